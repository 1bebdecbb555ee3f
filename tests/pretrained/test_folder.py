"""Models that transformers saved, read from their folders: the same hidden states and logits, or a refusal."""

import json
import os
import subprocess
import sys
from inspect import signature
from types import SimpleNamespace

import pytest
import torch
import transformers
from foreign_models import (
    ALIKE,
    BERT,
    CONTEXT,
    DECODERS,
    ENCODERS,
    HEADS,
    LLAMA,
    LLAMA3,
    LONGROPE,
    NAMES,
    OF_STATES,
    SIMILAR,
    TEXT_CONFIG,
    VOCAB,
    save,
    saved,
    words_of,
)
from harmless import assert_any_other_value_counts
from parity import alone, assert_equal, doubled
from safetensors.torch import load_file, save_file
from test_encoder_decoder import T5
from tiers import one_in
from tokenizers import Tokenizer, models
from whole import assert_same_generation

from seqkit.config import build, build_model, complete
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import TokenBatch, Tokens
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import task_of
from seqkit.pretrained.folder import settings, weights, written
from seqkit.runs.exported import to_hf
from seqkit.runs.imported import import_model
from seqkit.runs.initial_weights import InitialWeights
from seqkit.runs.trained_model import load_one

LENGTHS = [[13, 13], [11, 19, 5]]


def begun(folder, recipe, **overrides):
    """Our model of a recipe that begins with that folder, and what was said of its weights."""
    given = {name.replace("__", "."): value for name, value in overrides.items()}
    config = complete(recipe, "debug", {"model.init": str(folder), **given})
    built = build(config)
    objective = built.model["objective"]
    if recipe == "text/classify":
        objective.fit([0, 1], ["ham", "spam"])
    model = build_model(built, built.tokenizer.spec).eval()
    return SimpleNamespace(
        model=model,
        config=config,
        origin=InitialWeights(folder, config).load_into(model, objective),
    )


def own_class(name):
    """End of the name of their class with a head of its own."""
    return "LMHeadModel" if name == "GPT2" else "ForCausalLM" if name in DECODERS else "ForMaskedLM"


def texts(lengths, low=2, num_axes=1):
    """A batch of random ids, padded; the second axis is the token type: 0, and 1 in the last third."""
    torch.manual_seed(5)
    tokens = []
    for n in lengths:
        index = torch.arange(n)
        positions = torch.stack([index, (index >= n - n // 3).long()][:num_axes], dim=1).float()
        tokens.append(Tokens(torch.randint(low, VOCAB, (n,)), positions))
    return TokenBatch.collate(tokens)


@pytest.mark.parametrize("name", ENCODERS)
def test_hidden_states_of_an_encoder(tmp_path, name):
    theirs = doubled(saved(tmp_path, name, ENCODERS[name]))
    ours = begun(tmp_path, "text/classify")
    model, types = ours.model.double(), ENCODERS[name].get("type_vocab_size", 2)
    for lengths in LENGTHS:
        batch = texts(lengths, num_axes=model.spec.num_axes)
        batch.positions[..., 1:].clamp_(max=types - 1)
        has_types = batch.positions.shape[-1] > 1
        given = {"token_type_ids": batch.positions[..., 1].long()} if has_types else {}
        with torch.no_grad():
            assert_equal(
                model.backbone(model.embed(batch)), alone(theirs, batch, **given), batch.valid
            )
    assert ours.origin["taken"] == ["backbone", "embedder"]
    assert ours.origin["new"] == ["head"]


@pytest.mark.parametrize("name", DECODERS)
def test_logits_of_a_decoder(tmp_path, name):
    theirs = doubled(saved(tmp_path, name, DECODERS[name], own_class(name)))
    ours = begun(tmp_path, "text/char-lm")
    for lengths in LENGTHS:
        batch = texts(lengths)
        with torch.no_grad():
            assert_equal(ours.model.double()(batch), alone(theirs, batch), batch.valid)
    assert ours.origin["taken"] == ["backbone", "embedder", "head"]
    assert ours.origin["new"] == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in {*ALIKE, *OF_STATES}))
        for name in DECODERS
    ],
)
def test_both_write_the_same_tokens(tmp_path, name):
    theirs = saved(tmp_path, name, DECODERS[name], own_class(name), std=0.4)
    ours = begun(tmp_path, "text/char-lm").model
    assert_same_generation(
        ours.double(), doubled(theirs), [torch.randint(VOCAB, (n,)) for n in (1, 7)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ALIKE)
def test_packed_texts_and_a_text_in_parts_are_those_of_each_alone(tmp_path, name):
    theirs = doubled(saved(tmp_path, name, DECODERS[name], own_class(name)))
    ours = begun(tmp_path, "text/char-lm").model.double()
    batch = texts([11, 5])
    with torch.no_grad():
        right = alone(theirs, batch)[batch.valid]
        packed = TokenBatch(
            batch.content[batch.valid][None],
            batch.positions[batch.valid][None],
            torch.ones(1, 16, dtype=torch.bool),
            segments=torch.tensor([[0] * 11 + [1] * 5]),
        )
        assert_equal(ours(packed)[0], right)
        cache, found = ours.backbone.init_cache(11), []
        for start, end in ((0, 6), (6, 7), (7, 11)):
            columns = torch.arange(start, end).float()[:, None]
            embedded = ours.embed(
                TokenBatch.collate([Tokens(batch.content[0, start:end], columns)])
            )
            found.append(ours.head(ours.backbone(embedded, cache), embedded)[0])
        assert_equal(torch.cat(found), right[:11])


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", one_in(3, ENCODERS))
def test_logits_of_an_encoder_and_the_same_bytes_back(tmp_path, name, kind):
    theirs = saved(tmp_path / "theirs", name, {**ENCODERS[name], "id2label": NAMES}, kind)
    import_model(tmp_path / "theirs", tmp_path / "run", name)
    run, theirs = load_one(tmp_path / "run"), doubled(theirs)
    assert to_hf(run, tmp_path / "back") == []
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "back" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()
    model = run.model.double()
    assert task_of(run.config["model"]["objective"]) == HEADS[kind]
    assert run.summary["initial"]["left_out"] == []
    batch = texts([11, 19, 5], num_axes=model.spec.num_axes)
    batch.positions[..., 1:].fill_(0)
    with torch.no_grad():
        right = alone(theirs, batch)
        if kind == "ForMaskedLM":
            assert_equal(model(batch), right, batch.valid)
            hides = torch.rand(batch.valid.shape) < 0.3
            right = alone(
                theirs, batch.replace(content=batch.content.masked_fill(hides, VOCAB - 1))
            )
            assert_equal(model(batch, hides & batch.valid), right, batch.valid)
        else:
            assert_equal(
                model(batch),
                right,
                batch.valid if right.ndim == 3 else torch.ones(3, dtype=torch.bool),
            )
            assert run.objective.names == [*NAMES.values()]


# ── what files may look like ──────────────────────────────────────────────────────────────────────────────────────────


def rewritten(folder, change):
    """The folder with other weights: `change` gets them by name."""
    held = load_file(folder / "model.safetensors")
    change(held)
    save_file(held, folder / "model.safetensors")


def configured(folder, **keys):
    """The folder with other keys in its config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


def test_files_in_parts_with_a_prefix_and_with_names_of_old(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    saved(whole, "Bert", BERT, "ForMaskedLM")
    saved(parts, "Bert", BERT, "ForMaskedLM", max_shard_size="8KB")
    assert len(list(parts.glob("*.safetensors"))) > 1
    right, left_out, _ = weights(whole, "Classify")
    assert left_out
    assert all(name.startswith("cls.") for name in left_out)

    def rename(held):
        for name in [name for name in held if "LayerNorm" in name]:
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            )
            held[old] = held.pop(name)
        held["bert.embeddings.position_ids"] = torch.arange(CONTEXT)[None]

    rewritten(whole, rename)
    for folder in (whole, parts):
        got, _, _ = weights(folder, "Classify")
        assert got.keys() == right.keys()
        assert all(torch.equal(got[name], x) for name, x in right.items())


def test_rows_that_no_id_of_the_tokenizer_has_are_kept(tmp_path):
    theirs = saved(tmp_path, "GPT2", {**DECODERS["GPT2"], "vocab_size": VOCAB + 3}, "LMHeadModel")
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCAB)}, unk_token="w0"))
    words.save(str(tmp_path / "tokenizer.json"))
    ours, batch = begun(tmp_path, "text/char-lm"), texts([13, 13])
    with torch.no_grad():
        assert_equal(ours.model.double()(batch), doubled(theirs)(batch.content).logits, batch.valid)


ALL = [(name, ENCODERS[name], "Model", "Classify") for name in ENCODERS]
ALL += [
    (name, {**ENCODERS[name], "id2label": NAMES}, *head)
    for name in ENCODERS
    for head in HEADS.items()
]
ALL += [(name, DECODERS[name], own_class(name), "NextToken") for name in DECODERS]
ALL = [pytest.param(*row, marks=pytest.mark.slow if row[0] in SIMILAR else ()) for row in ALL]


@pytest.mark.parametrize(("name", "given", "kind", "objective"), ALL)
@pytest.mark.parametrize("dtype", one_in(2, ["bfloat16", "float32"]))
def test_what_is_read_is_written_back_bit_for_bit(tmp_path, name, given, kind, objective, dtype):
    made = signature(getattr(transformers, f"{name.split()[0]}{kind}", dict))
    more = {"add_pooling_layer": False} if "add_pooling_layer" in made.parameters else {}
    saved(tmp_path, name, given, kind, dtype=dtype, **more)
    held = load_file(tmp_path / "model.safetensors")
    ours, left_out, _ = weights(tmp_path, objective)
    found, others = written(ConfigFile(tmp_path / "config.json"), ours, objective)
    assert (left_out, others) == ([], [])
    assert found.keys() == held.keys()
    for key, x in held.items():
        assert found[key].dtype == x.dtype == getattr(torch, dtype)
        assert found[key].equal(x), key


def test_the_head_is_new_where_the_tokenizer_is_another(tmp_path):
    saved(tmp_path, "GPT2", DECODERS["GPT2"], "LMHeadModel")
    ours = begun(tmp_path, "text/char-lm", tokenizer="Bytes")
    assert ours.origin["taken"] == ["backbone"]
    assert ours.origin["new"] == ["embedder", "head"]


def test_dropout_activation_and_positions_are_those_of_the_model(tmp_path):
    saved(
        tmp_path,
        "Bert",
        {
            **BERT,
            "hidden_dropout_prob": 0.3,
            "attention_probs_dropout_prob": 0.2,
            "hidden_act": "relu",
        },
    )
    model = complete("text/classify", "debug", {"model.init": str(tmp_path)})["model"]
    block = model["backbone"]["block"]
    assert (model["dropout"], model["backbone"]["dropout"]) == (0.3, 0.3)
    assert block["attention"]["mechanism"]["dropout"] == 0.2
    assert block["mlp"]["activation"]["type"] == "ReLU"
    assert model["position"]["sizes"] == [CONTEXT, 2]


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_act": "xielu"}, "hidden_act is 'xielu'"),
        ({"hidden_size": 24.5}, "hidden_size is 24.5"),
        ({"hidden_dropout_prob": "much"}, "hidden_dropout_prob is 'much'"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"model_type": "berd"}, "berd.*did you mean bert"),
    ],
)
def test_a_setting_that_is_not_read_is_refused(tmp_path, keys, said):
    saved(tmp_path, "Bert", BERT)
    configured(tmp_path, **keys)
    with pytest.raises(UsageError, match=said) as refused:
        complete("text/classify", "debug", {"model.init": str(tmp_path)})
    assert "\n" not in str(refused.value)


CHANGES_NOTHING_HERE = {
    # others of the file decide: the layers' kinds, or that there are no windows
    "_sliding_window_pattern", "layer_types", "max_window_layers", "no_rope_layer_interval", "sliding_window",
    "sliding_window_pattern", "use_sliding_window", "expand", "full_attn_idxs",
    # of losses that are not asked for; half of it counts; the same layers twice
    "router_aux_loss_coef", "local_attention", "mlp_only_layers",
}  # fmt: skip
UNUSED = {
    # of experts, in a model that has none; of a width that is given itself
    "GraniteMoeHybrid": {"intermediate_size", "num_experts_per_tok"}, "FalconH1": {"mamba_expand"},
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(3, [*DECODERS, *ENCODERS]))
def test_another_value_of_any_key_is_another_model_or_refused(tmp_path, name):
    task = "NextToken" if name in DECODERS else "Masked"
    saved(tmp_path, name, {**DECODERS, **ENCODERS}[name], own_class(name))
    unused = UNUSED.get(name, set())
    assert_any_other_value_counts(tmp_path, task, CHANGES_NOTHING_HERE | unused)


@pytest.mark.parametrize(
    "name",
    [name for name in [*DECODERS, *ENCODERS] if " " not in name and name != "GraniteMoeHybrid"],
)
def test_keys_that_are_not_written_have_the_values_of_the_library(tmp_path, name):
    """A file that says the type alone, and one with all values of that type's configuration."""
    text = "Text" if name in TEXT_CONFIG else ""
    whole = getattr(transformers, f"{name}{text}Config")().to_dict()
    task = "NextToken" if name in DECODERS else "Masked"
    words_of(VOCAB).save(str(tmp_path / "tokenizer.json"))
    found = []
    for held in (whole, {key: whole[key] for key in ("model_type", *NEEDED) if key in whole}):
        (tmp_path / "config.json").write_text(json.dumps(held))
        found.append(settings(tmp_path, task)["model"])
    assert found[0] == found[1]


NEEDED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "architectures",
    "n_layer",
    "n_head",
    "ffn_dim",
)
"""Sizes that every file of some types writes; there is no default for them."""


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_is_read_for_other_tasks(tmp_path, name):
    saved(tmp_path, name, DECODERS[name], own_class(name))
    assert [
        "objective" in settings(tmp_path, task)["model"] for task in ("Classify", "Features")
    ] == [False, False]


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        # as official files write them
        ("Gemma", {"hidden_act": "gelu", "hidden_activation": None}),
        (
            "Gemma2",
            {
                "hidden_act": "gelu_pytorch_tanh",
                "cache_implementation": "hybrid",
                "sliding_window_size": 5,
            },
        ),
        ("Phi3", {"partial_rotary_factor": 1.0}),
        ("Mamba", {"pad_vocab_size_multiple": 8}),
        ("SmolLM3", {"tie_word_embeddings": ...}),
    ],
)
def test_published_files_say_the_same(tmp_path, name, keys):
    saved(tmp_path, name, {**DECODERS, **ENCODERS}[name], own_class(name))
    task = "NextToken" if name in DECODERS else "Masked"
    found, path = settings(tmp_path, task), tmp_path / "config.json"
    held = {**json.loads(path.read_text()), **keys}
    path.write_text(json.dumps({key: value for key, value in held.items() if value is not ...}))
    assert settings(tmp_path, task) == found


def test_a_missing_head_of_the_files_own_class_is_an_error(tmp_path):
    saved(tmp_path, "Llama", DECODERS["Llama"], "ForCausalLM")
    rewritten(tmp_path, lambda held: held.pop("lm_head.weight"))
    with pytest.raises(DataError, match=r"lm_head\.weight"):
        weights(tmp_path, "NextToken")


def test_one_expert_of_normalised_gates_is_refused(tmp_path):
    saved(tmp_path, "Mixtral", {**DECODERS["Mixtral"], "num_experts_per_tok": 1}, "ForCausalLM")
    with pytest.raises(DataError, match="num_experts_per_tok is 1"):
        settings(tmp_path, "NextToken")


def test_constants_of_old_files_are_left_out(tmp_path):
    saved(tmp_path, "GPT2", DECODERS["GPT2"], "LMHeadModel")

    def with_masks(held):
        held["transformer.h.0.attn.bias"] = torch.ones(1, 1, 7, 7, dtype=torch.bool)
        held["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e9)

    rewritten(tmp_path, with_masks)
    assert weights(tmp_path, "NextToken")[1] == []


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        (
            "Llama",
            {"rope_parameters": {"rope_type": "default"}, "rope_scaling": LLAMA3},
            "rope_scaling is",
        ),
        (
            "Gemma3",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            "rope_parameters is",
        ),
        (
            "Gemma3",
            {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}},
            "rope_scaling is",
        ),
        ("Gemma3", {"attn_logit_softcapping": 2.5}, "attn_logit_softcapping is 2.5"),
        ("Llama", {"rms_norm_eps": 0.0}, "rms_norm_eps is 0.0"),
    ],
)
def test_what_transformers_reads_otherwise_is_refused(tmp_path, name, keys, said):
    saved(tmp_path, name, DECODERS[name], "ForCausalLM")
    configured(tmp_path, **keys)
    with pytest.raises(DataError, match=said):
        settings(tmp_path, "NextToken")


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("GptOss", {"sliding_window": 1}, "sliding_window is 1, .* from 2 to"),
        ("RecurrentGemma", {"attention_window_size": 1}, "attention_window_size is 1"),
        ("Llama", {"num_key_value_heads": 2}, "num_key_value_heads is 2, .* a divisor of 3 heads"),
        ("ModernBert", {"local_attention": 1}, "local_attention is 1"),
        ("DebertaV2", {"position_buckets": 2}, "position_buckets is 2, .* from 4 to"),
        ("DebertaV2", {"max_relative_positions": 5}, "max_relative_positions is 5, .* from 6 to"),
        ("MPNet", {"relative_attention_num_buckets": 8}, "relative_attention_num_buckets is 8"),
    ],
)
def test_a_size_that_cannot_be_built_is_refused_by_the_key_of_the_folder(
    tmp_path, name, keys, said
):
    saved(tmp_path, name, {**DECODERS, **ENCODERS}[name], own_class(name))
    configured(tmp_path, **keys)
    with pytest.raises(DataError, match=rf"config\.json: {said}"):
        settings(tmp_path, "NextToken" if name in DECODERS else "Masked")


@pytest.mark.parametrize(
    "keys",
    [
        {"relative_attention_num_buckets": 7},
        {"relative_attention_num_buckets": 2},
        {"relative_attention_max_distance": 4},
    ],
)
def test_distances_of_a_t5_are_refused_by_their_key(tmp_path, keys):
    (key,) = keys
    save(tmp_path, "T5", T5, "ForConditionalGeneration")
    configured(tmp_path, **keys)
    with pytest.raises(DataError, match=rf"config\.json: {key} is {keys[key]}, "):
        settings(tmp_path, "Seq2Seq")


def test_a_weight_that_is_missing_is_said_with_the_class_of_the_folder(tmp_path):
    saved(tmp_path, "Bert", BERT, "ForMaskedLM")
    configured(tmp_path, architectures=["BertForSomething"])
    rewritten(tmp_path, lambda held: held.pop("bert.embeddings.word_embeddings.weight"))
    with pytest.raises(
        DataError, match="which a bert that seqkit reads has; if a BertForSomething"
    ):
        weights(tmp_path, "Classify")


def test_longrope_is_read_up_to_the_length_at_which_transformers_turns_all_tokens_otherwise(
    tmp_path,
):
    name = "Phi3 with LongRoPE"
    theirs = doubled(saved(tmp_path, name, DECODERS[name], "ForCausalLM"))
    ours = begun(tmp_path, "text/char-lm").model.double()
    short, long = texts([24]), texts([25])
    with torch.no_grad():
        assert_equal(ours(short), theirs(short.content).logits)
        # the first tokens of a sequence of one token more, too
        first = theirs(long.content).logits[:, :24]
        assert (first - theirs(long.content[:, :24]).logits).abs().max() > 0.01
        with pytest.raises(ValueError, match=r"more than 24 tokens.*max_tokens=null"):
            ours(long)
    both = {"factors": LONGROPE["long_factor"], "max_tokens": None}
    given = {f"model__backbone__position__scaling__{key}": value for key, value in both.items()}
    ours = begun(tmp_path, "text/char-lm", **given).model.double()
    with torch.no_grad():
        assert_equal(ours(long), theirs(long.content).logits)


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        (
            "GPTNeoX",
            {"rope_parameters": {"partial_rotary_factor": 0.4}},
            "an even number, not of 3",
        ),
        ("OPT", {"do_layer_norm_before": False}, "do_layer_norm_before is False"),
        ("OPT", {"word_embed_proj_dim": 12}, "word_embed_proj_dim is 12"),
        ("GptOss", {"swiglu_alpha": 1.0}, r"swiglu_alpha is 1\.0"),
        ("Cohere", {"use_qk_norm": True}, "use_qk_norm is True"),
        ("Olmoe", {"clip_qkv": 0.5}, r"clip_qkv is 0\.5"),
        (
            "Olmo3",
            {"rope_parameters": {"full_attention": {"truncate": False}, "sliding_attention": {}}},
            "none with truncate",
        ),
    ],
)
def test_what_no_row_computes_is_refused(tmp_path, name, keys, said):
    saved(tmp_path, name, DECODERS[name], own_class(name))
    configured(tmp_path, **keys)
    with pytest.raises(DataError, match=said):
        settings(tmp_path, "NextToken")


def test_a_tied_head_of_phi_has_its_bias(tmp_path):
    given = {**DECODERS["Phi"], "tie_word_embeddings": True}
    theirs = doubled(saved(tmp_path, "Phi", given, "ForCausalLM"))
    ours, batch = begun(tmp_path, "text/char-lm"), texts([13, 13])
    with torch.no_grad():
        assert_equal(ours.model.double()(batch), theirs(batch.content).logits)
    assert ours.origin["new"] == []


def test_keys_that_are_not_read_are_said_at_the_level_of_information(tmp_path, caplog):
    saved(tmp_path, "Bert", BERT)
    configured(tmp_path, talking_heads=True, gradient_checkpointing=True)
    with caplog.at_level("INFO"):
        settings(tmp_path, "Classify")
    (line,) = (one for one in caplog.records if one.levelname == "INFO")
    unread = line.getMessage().rpartition(": ")[2]
    assert "'talking_heads'" in unread
    assert "'gradient_checkpointing'" in unread
    assert "'hidden_size'" not in unread


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x.mul_(torch.nan), "holds NaN"),
        (lambda x: x.index_fill(0, torch.tensor([1]), -torch.inf), "holds infinity"),
        (lambda x: torch.full_like(x, 1e300, dtype=torch.float64), "holds infinity"),
        (lambda x: x.long(), "holds int64"),
    ],
)
def test_weights_that_are_no_numbers_are_refused(tmp_path, change, said):
    saved(tmp_path / "theirs", "Bert", BERT)
    key = "encoder.layer.1.output.dense.weight"
    rewritten(tmp_path / "theirs", lambda held: held.update({key: change(held[key])}))
    with pytest.raises(DataError, match=f"{key} {said}; no model is made of it$"):
        import_model(tmp_path / "theirs", tmp_path / "run", "theirs")


def test_a_link_in_a_foreign_folder_publishes_nothing(tmp_path):
    saved(tmp_path / "theirs", "Bert", BERT)
    (secret := tmp_path / "id_rsa").write_text('{"secret": 1}')
    for name in ("tokenizer_config.json", "tokenizer.json", "config.json"):
        path = tmp_path / "theirs" / name
        before = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        path.symlink_to(secret)
        with pytest.raises(DataError, match=rf"{name} is a link"):
            import_model(tmp_path / "theirs", tmp_path / "run", "theirs")
        path.unlink()
        if before is not None:
            path.write_bytes(before)
    (tmp_path / "theirs" / "tokenizer_config.json").write_text("no JSON")
    with pytest.raises(DataError, match="is no JSON"):
        import_model(tmp_path / "theirs", tmp_path / "run", "theirs")


@pytest.mark.parametrize("file", ["model.safetensors", "model-00001-of-00002.safetensors"])
def test_a_fifo_or_a_device_is_no_file_of_weights(tmp_path, file):
    saved(tmp_path, "Bert", BERT, max_shard_size="1GB" if file == "model.safetensors" else "30KB")
    path = next(tmp_path.glob("model-00001*"), tmp_path / file)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="is a FIFO"):
        weights(tmp_path, "Classify")
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match="is a link"):
        weights(tmp_path, "Classify")


def test_a_head_of_an_odd_number_of_channels_is_named(tmp_path):
    saved(tmp_path, "Mistral", {**DECODERS["Mistral"], "head_dim": 10})
    configured(tmp_path, head_dim=5, num_attention_heads=6, num_key_value_heads=2)
    with pytest.raises(DataError, match="5 channels of a head cannot be turned in pairs"):
        dict(weights(tmp_path, "NextToken")[0])


MEMORY = """
import sys, threading
from pathlib import Path
import torch
from seqkit.pretrained.folder import settings, weights
from seqkit.runs.initial_weights import copied

def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])

folder = Path(sys.argv[1])
weights(folder, "Features")  # what is imported
before, peak, done = held(), 0, threading.Event()

def look():
    global peak
    while not done.wait(0.002):
        peak = max(peak, held())

thread = threading.Thread(target=look)
thread.start()
theirs = weights(folder, "Features")[0]
shapes = {name: theirs[name].shape for name in theirs}
model = {name: torch.empty(shape) for name, shape in shapes.items()}
assert copied(theirs, [*theirs], model) == ""
done.set()
thread.join()
print((max(peak, held()) - before) / (folder / "model.safetensors").stat().st_size)
"""


@pytest.mark.slow
def test_a_large_file_is_read_in_little_more_than_its_size_of_memory(tmp_path):
    """Pages of the mapped file do not count: they are freed when memory is short."""
    sizes = {
        **LLAMA,
        "hidden_size": 768,
        "num_hidden_layers": 7,
        "intermediate_size": 2048,
        "num_attention_heads": 12,
    }
    saved(tmp_path, "Llama", {**sizes, "num_key_value_heads": 12})
    assert (tmp_path / "model.safetensors").stat().st_size > 190e6
    # freed at once, as tensors of a large model always are
    own = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    said = subprocess.run(
        [sys.executable, "-c", MEMORY, tmp_path],
        capture_output=True,
        text=True,
        check=True,
        env=own,
    )
    assert 1.0 < float(said.stdout) <= 1.2


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "yarn", "factor": 2.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "default", "partial_rotary_factor": 0.5},
        {"beta_fast": 3},
    ],
)
def test_rotary_positions_that_are_not_read_are_refused(tmp_path, rope):
    saved(tmp_path, "Llama", DECODERS["Llama"])
    configured(tmp_path, rope_parameters=rope)
    with pytest.raises(UsageError, match=r"rope_parameters is"):
        complete("text/char-lm", "debug", {"model.init": str(tmp_path)})


OLD = {
    # name: keys that transformers 5 writes, as files before it have them
    "Llama": {"rope_theta": 5e5, "rope_scaling": {key: x for key, x in LLAMA3.items() if key != "rope_theta"}},
    "Qwen2 with YaRN": {
        "rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    },
    "Gemma3": {
        "rope_theta": 1000.0, "rope_local_base_freq": 100.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window_pattern": 6, "layer_types": None,
    },
    "StableLm": {"rope_theta": 100.0, "partial_rotary_factor": 0.5, "rope_scaling": None},
    "GPTNeoX": {"rotary_emb_base": 100.0, "rotary_pct": 0.5, "rope_scaling": None},
    "Phi3 with LongRoPE": {"rope_theta": 100.0, "rope_scaling": {
        "type": "longrope", "short_factor": LONGROPE["short_factor"], "long_factor": LONGROPE["long_factor"]}},
    "Bloom": {"n_embed": 24, "num_attention_heads": 3, "hidden_size": None, "n_head": None},
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_files_of_before_transformers_5_say_the_same(tmp_path, name):
    saved(tmp_path, name, DECODERS[name], "ForCausalLM")
    new = settings(tmp_path, "NextToken")
    held = json.loads((tmp_path / "config.json").read_text())
    held = {
        key: x
        for key, x in (held | OLD[name]).items()
        if key not in ("rope_parameters", "_sliding_window_pattern")
    }
    (tmp_path / "config.json").write_text(
        json.dumps({key: x for key, x in held.items() if x is not None})
    )
    assert settings(tmp_path, "NextToken") == new


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_parameters": [1]},
        {"num_key_value_heads": "x"},
        {"head_dim": "wide"},
        {"layer_types": 3},
    ],
)
def test_values_of_wrong_types_are_one_line(tmp_path, keys):
    saved(tmp_path, "Qwen2", DECODERS["Qwen2"])
    configured(tmp_path, **keys)
    with pytest.raises(UsageError) as refused:
        build(complete("text/char-lm", "debug", {"model.init": str(tmp_path)}))
    assert "\n" not in str(refused.value)


def narrow(held):
    held["embeddings.position_embeddings.weight"] = torch.ones(CONTEXT, 7)


def extra(held):
    held["encoder.layer.0.adapter.weight"] = torch.ones(3)


def lost(held):
    del held["encoder.layer.2.output.dense.weight"]


def lost_of_three(held):
    del held["encoder.layer.2.attention.self.key.weight"]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (narrow, UsageError, r"position\.tables\.0"),
        (extra, DataError, r"has a weight encoder\.layer\.0\.adapter"),
        (lost, UsageError, r"backbone\.blocks\.2\.mlp\.down_proj\.weight is missing"),
        (
            lost_of_three,
            DataError,
            r"has no weight encoder\.layer\.2\.attention\.self\.key\.weight",
        ),
    ],
)
def test_weights_are_all_read_or_the_file_is_refused(tmp_path, change, error, said):
    saved(tmp_path, "Bert", BERT)
    rewritten(tmp_path, change)
    with pytest.raises(error, match=said):
        begun(tmp_path, "text/classify")


def test_pickled_weights_and_other_files_are_not_opened(tmp_path):
    saved(tmp_path, "Bert", BERT)
    whole = (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match="only safetensors are read"):
        weights(tmp_path, "Classify")
    index = tmp_path / "model.safetensors.index.json"
    for name in ("../outside.safetensors", "pytorch_model.bin", 3):
        index.write_text(json.dumps({"weight_map": {"pooler.dense.bias": name}}))
        with pytest.raises(DataError, match=r"index\.json is damaged"):
            weights(tmp_path, "Classify")
    whole.rename(tmp_path / "one.safetensors")
    index.write_text(json.dumps({"weight_map": {"pooler.dense.bias": "one.safetensors"}}))
    with pytest.raises(DataError, match=r"one\.safetensors disagree"):
        weights(tmp_path, "Classify")
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(DataError, match="which may disagree"):
        weights(tmp_path, "Classify")
    index.unlink()
    with pytest.raises(DataError, match="holds no weights"):
        weights(tmp_path, "Classify")


def test_a_backbone_of_ones_own_does_not_take_the_weights(tmp_path):
    saved(tmp_path, "Bert", BERT)
    said = r"model\.init .*is (missing|unknown or of another shape); give model\.backbone"
    with pytest.raises(UsageError, match=said):
        begun(tmp_path, "text/classify", model__backbone__depth=2)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    saved(tmp_path, "Bert", BERT)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match=r"has no tokenizer\.json"):
        complete("text/classify", "debug", {"model.init": str(tmp_path)})
