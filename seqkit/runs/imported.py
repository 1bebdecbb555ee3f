"""A model of another library as a run folder: it predicts, embeds, generates, is fine-tuned and compared as any run."""

from __future__ import annotations

import shutil
from pathlib import Path

from seqkit.config import build, build_model, complete, to_yaml
from seqkit.config.merge import MODEL_KEYS
from seqkit.errors import DataError, UsageError
from seqkit.files import whole_folder, write_atomic, write_json
from seqkit.pretrained import folder as foreign
from seqkit.pretrained.folder import MASK_TOKEN
from seqkit.pretrained.hub import HUB
from seqkit.pretrained.sentences import dense_weights, longest_sentence, sentence_vectors
from seqkit.runs.folder import CONFIG, STATE, check_new, digests
from seqkit.runs.initial_weights import copied
from seqkit.runs.summary import Initial, Summary, read_summary
from seqkit.runs.trained_files import versions
from seqkit.runs.trained_model import load_one
from seqkit.training.checkpoint_files import FOLDER
from seqkit.training.weights import save_weights

HEADLESS = "Features"
"""Objective of a model whose head is not known, or that has none."""


def import_model(place: Path, out: Path, source: str) -> Summary:
    """Write a model of another library as a run folder, or copy a published run; gives its summary.

    place: the model's folder. source: what the user named it, which the summary keeps.
    Raises UsageError if `out` exists or the place is no model, DataError if the model is not read: every setting has to
    be known, and every weight has to have its place.
    """
    check_new(out)
    if (place / CONFIG).is_file() and source.startswith(HUB):
        load_one(place)  # a damaged one is not copied
        with whole_folder(out) as part:
            shutil.copytree(place, part, dirs_exist_ok=True)
        return read_summary(out)
    if not foreign.is_foreign(place):
        raise UsageError(
            f"{place} holds no model of another library with a {foreign.NAME}; give one, or hf:OWNER/NAME"
        )
    sentences = sentence_vectors(place)
    # its files may name the class that the model was trained with before
    task = HEADLESS if sentences else foreign.own_task(place) or HEADLESS
    found = foreign.settings(place, task)
    state = foreign.objective_state(place, task)
    own = {"type": HEADLESS, **sentences} if task == HEADLESS else {}
    model_section = {"objective": own, **found["model"]}
    config = complete({"tokenizer": found["tokenizer"], "model": model_section}, only=MODEL_KEYS)
    objective = config["model"]["objective"]["type"]
    built = build(config)
    made = built.model["objective"]
    for tokenizer in (built.tokenizer, getattr(made, "target", None)):
        foreign.check_vocabulary(tokenizer)
    try:
        if state:
            made.load_state(state)
    except ValueError as error:
        raise DataError(f"{place / foreign.NAME}: {error}") from error
    model = build_model(built, built.tokenizer.spec)
    weights, left_out, digest = foreign.weights(place, task)
    dense = dense_weights(place)
    own = {name: x for name, x in model.state_dict().items() if name not in dense}
    names = [*weights]
    if MASK_TOKEN in weights and MASK_TOKEN not in own:
        names.remove(MASK_TOKEN)
        left_out = [*left_out, "mask_token"]  # of an objective that this run does not have
    if MASK_TOKEN in own and MASK_TOKEN not in weights:
        raise DataError(
            f"{place}: the tokenizer has no [MASK] or <mask>, without which {objective} hides no tokens"
        )
    of_dense = {name: x for name, x in model.state_dict().items() if name not in own}
    if wrong := copied(weights, names, own) or copied(dense, [*dense], of_dense):
        raise DataError(
            f"{place}: {wrong}; its weights and its {foreign.NAME} disagree, copy it again"
        )

    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(out) as part:
        (part / FOLDER).mkdir()
        foreign.keep_files(place, part)
        limits = (foreign.longest(found), longest_sentence(place))
        data = min((one for one in limits if one), key=lambda one: one["max_tokens"], default={})
        write_atomic(
            part / CONFIG, to_yaml({"recipe": "imported", "data": data, **config}).encode()
        )
        learned = made.state() if state else {}
        write_json(part / STATE, {"tokenizer": built.tokenizer.state(), "objective": learned})
        parts_left_out = sorted({name.split(".")[0] for name in left_out})
        summary = Summary(
            recipe="imported",
            backbone=type(model.backbone).__name__,
            objective=objective,
            metrics={},
            num_parameters=model.num_parameters,
            tokens_seen=0,
            steps=0,
            wall_seconds=0.0,
            seed=0,
            initial=Initial(run=source, sha256=digest, left_out=parts_left_out),
            sha256=save_weights(model, part / FOLDER / "model.safetensors"),
            **digests(part),
            versions=versions(),
        )
        summary.write(part)
    return summary
