"""Every imported type with drawn settings: the numbers of transformers, or one line that refuses the setting.

`python tests/pretrained/test_drawn.py TYPE …` tries each other value of each key, of these types or of all.
"""

import json
import random
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

if __name__ == "__main__":
    sys.path[:0] = ["tests", "tests/parity"]
from every_type import FAST, asked, model_of, save, small_models
from foreign_models import VOCAB, words_of
from transformers.activations import ACT2FN

from seqkit.errors import DataError, UsageError
from seqkit.pretrained.families import FAMILIES
from seqkit.pretrained.folder import settings
from seqkit.runs.trained_model import load_one

SLACK = 1e-5
"""Largest difference, as a share of the largest number."""
NOT_DRAWN = {
    # names, versions, and how their library computes or returns what it computes
    "model_type", "architectures", "transformers_version", "dtype", "id2label", "label2id", "num_labels",
    "problem_type", "_name_or_path", "return_dict", "output_hidden_states", "output_attentions", "use_cache",
    "text_config", "vision_config", "is_encoder_decoder", "vocab_size",
    # patches that a masked autoencoder hides in training
    "mask_ratio",
}  # fmt: skip
WORDS = {
    "feat_extract_norm": ["group", "layer"],
    "classifier_pooling": ["cls", "mean"],
    "feed_forward_proj": ["relu", "gated-gelu", "gated-silu", "gelu"],
}
"""Values of keys that are words, and of no activation."""
YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 3.0,
    "original_max_position_embeddings": 8,
}
ROPES = [
    {"rope_type": "default", "rope_theta": 50.0},
    {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0},
    {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0},
    {"rope_type": "llama3", "rope_theta": 100.0, "factor": 3.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 16},
    {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5},
    YARN,
    {**YARN, "mscale": 0.7, "mscale_all_dim": 0.4},
    {**YARN, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False, "attention_factor": 1.3},
]  # fmt: skip


DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Types of the weights in a file."""


def places(model_class, given):
    """Keys that can be drawn, each with the section that it stands in, or None, and its value."""
    config = model_class.config_class(**given).to_dict()
    for section in (None, *getattr(model_class.config_class, "sub_configs", {})):
        held = config if section is None else config[section]
        for key, value in held.items():
            # first weights are no setting of a model that is saved
            if key not in NOT_DRAWN and "init" not in key and others(key, value, random.Random(0)):
                yield section, key, value


def changed(given, section, key, value):
    """The settings with another value of a key."""
    if section is None:
        return {**given, key: value}
    return {**given, section: {**given[section], key: value}}


def others(key, value, rng):
    """Other values of a key; none where it says nothing that can be drawn."""
    if key in WORDS:
        return WORDS[key]
    match value:
        case bool():
            return [not value]
        case int():
            return [max(0, value - 1), value + 1, value * 2, max(1, value // 2), 1, 3]
        case float():
            return [value / 2, value * 3, 0.0, 1.0, 0.3]
        case str():
            return [*ACT2FN] if value in ACT2FN else []
        case {"rope_type": _}:
            return ROPES
        case {"full_attention": {**full}, "sliding_attention": {**local}}:
            one = rng.choice(ROPES)
            return [{"full_attention": one, "sliding_attention": x} for x in (local, full, *ROPES)]
        case [str(), *_]:
            kinds = sorted({*value, "full_attention"})
            return [[rng.choice(kinds) for _ in value], value[::-1]]
        case [int(), *_]:
            return [value[::-1], [rng.choice([0, 1, 2]) for _ in value]]
        case [] | None:
            return [1, 2, 7, True, 0.5, 3.0, [1]]
    return []


def drawn(name, given, rng):
    """The settings with other values of one to three keys, and these values."""
    known = [*places(getattr(transformers, name), given)]
    found = {}
    for section, key, value in rng.sample(known, rng.randint(1, 3)):
        found[key] = rng.choice(others(key, value, rng))
        given = changed(given, section, key, found[key])
    return given, found


def outcome(place, name, given, *, dtype=torch.float32, **how):
    """What becomes of a model of these settings: `equal`, `refused`, or `theirs` where their library refuses it.

    dtype, how: of the file. Both read its weights in float32.
    Raises AssertionError where both compute it, and give other numbers.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = model_of(name, given).to(dtype)
            save(place / "theirs", model, **how)
            read = {"config": model.config, "dtype": torch.float32}
            again = type(model).from_pretrained(place / "theirs", **read).eval()
    except Exception:  # of one of many types
        return "theirs"
    refused = ""
    try:
        both = asked(place, again)
    except (DataError, UsageError) as error:
        refused = str(error)
    if refused:
        assert "\n" not in refused
        assert len(refused) < 500
        return "refused"
    try:
        rights = both.rights()
    except Exception:
        return "theirs"
    try:
        ours = both.ours()
    except ValueError as error:  # examples are longer than a table of positions
        return "refused" if "outside the learned table" in str(error) else repr(error)
    for i, (found, right) in enumerate(zip(ours, rights, strict=True)):
        if not right.isfinite().all():
            return "theirs"
        difference = float((found[: len(right)] - right).abs().max() / right.abs().max())
        assert difference <= SLACK, f"example {i} differs by {difference:.1g}"
    return "equal"


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_type_has_small_settings(kind):
    assert small_models()[kind], f"add a row of {kind} to a table that every_type.py reads"


@pytest.mark.parametrize(
    "draw", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, 4))]
)
@pytest.mark.parametrize(
    "kind", [pytest.param(x, marks=() if x in FAST else pytest.mark.slow) for x in FAMILIES]
)
def test_drawn_settings_are_computed_as_theirs_or_refused(tmp_path, kind, draw):
    rows = small_models()[kind]
    rng = random.Random(f"{kind} {draw}")
    how = {"dtype": rng.choice(DTYPES), "max_shard_size": rng.choice(["9KB", "1GB"])}
    for i in range(9):  # until their library takes what is drawn
        name, given = rows[(draw + i) % len(rows)]
        given, found = drawn(name, given, rng)
        (tmp_path / str(i)).mkdir()
        try:
            got = outcome(tmp_path / str(i), name, given, **how)
        except AssertionError as error:
            raise AssertionError(f"{name} with {found}: {error}") from None
        if got != "theirs":
            break
    assert got in ("equal", "refused"), f"{name} with {found}: {got}"


@pytest.mark.slow
def test_types_that_are_not_read_are_refused_by_name(tmp_path):
    words_of(VOCAB).save(str(tmp_path / "tokenizer.json"))
    others = {*transformers.CONFIG_MAPPING} - {*FAMILIES}
    assert len(others) > 100
    for kind in others:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, "vocab_size": VOCAB}))
        for task in (None, "NextToken", "Seq2Seq"):
            with pytest.raises(DataError, match=f"the model type {kind} is not read; ") as refused:
                settings(tmp_path, task)
            assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["llama", "bert", "mamba", "t5", "vit"])
def test_a_model_in_bfloat16_is_as_near_to_itself_as_theirs(tmp_path, kind):
    model = model_of(*small_models()[kind][0]).bfloat16()
    save(tmp_path / "theirs", model)
    both = asked(tmp_path, model)
    exact = both.ours()
    narrow = replace(both, run=load_one(tmp_path / "run", dtype="bfloat16"))
    assert next(narrow.run.model.parameters()).dtype == torch.bfloat16
    batch = both.batch.with_dtype(torch.bfloat16)
    inputs = [{key: narrowed(x) for key, x in given.items()} for given in both.inputs]
    theirs = replace(both, theirs=model, inputs=inputs).rights()
    for ours, right, found in zip(exact, theirs, narrow.ours(batch), strict=True):
        n = len(right)
        errors = [float((x[:n] - ours[:n]).pow(2).mean()) ** 0.5 for x in (found, right)]
        assert 0 < errors[0] < 1.5 * errors[1]


def narrowed(x):
    """Numbers in bfloat16; ids as they are."""
    return x.bfloat16() if x.is_floating_point() else x


def _every_other_value(kinds):
    """Tries each other value of each key of these types, and prints those that are wrong."""
    for kind in kinds:
        count = Counter()
        for name, given in small_models()[kind]:
            for section, key, value in places(getattr(transformers, name), given):
                for other in others(key, value, random.Random(0)):
                    with tempfile.TemporaryDirectory() as folder:
                        try:
                            got = outcome(Path(folder), name, changed(given, section, key, other))
                        except Exception as error:
                            got = "wrong"
                            print(name, section or "", key, other, repr(error), flush=True)
                    count[got] += 1
        print(kind, dict(count), flush=True)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    _every_other_value(sys.argv[1:] or FAMILIES)
