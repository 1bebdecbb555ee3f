"""A run as a folder of weights and settings: as transformers reads it, or as `seqkit.load` does."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.config import Config, complete
from seqkit.config.merge import MODEL_KEYS
from seqkit.config.record import Key, walk
from seqkit.errors import DataError, UsageError
from seqkit.files import load_json, read_mapping, to_yaml, whole_folder, write_atomic, write_json
from seqkit.pretrained import folder as foreign
from seqkit.pretrained.config_file import ConfigFile
from seqkit.pretrained.family import task_of
from seqkit.pretrained.hub import SENTENCES
from seqkit.runs.folder import CONFIG, GIVEN, STATE, SUMMARY, digests
from seqkit.runs.joined import FILE as JOINED
from seqkit.tokenizers.from_file import NAME as TOKENIZER
from seqkit.training.checkpoint_files import FOLDER
from seqkit.training.weights import untied

if TYPE_CHECKING:
    from torch import Tensor

    from seqkit.runs.trained_model import TrainedModel

WEIGHTS = "model.safetensors"


def to_hf(trained: TrainedModel, out: Path) -> list[str]:
    """Write the folder that transformers reads; gives the names of our weights that have no place there, of a head.

    Raises UsageError for a run that did not begin with a model of such a folder, or that has other settings by now,
    such as another activation: `config.json` would say the old ones.
    """
    from safetensors.torch import save_file

    kept = foreign.kept_files(trained.folder)
    task = task_of(trained.config["model"]["objective"])
    if not kept:
        raise UsageError(
            f"{trained.folder} did not begin with a model of transformers (seqkit import, --model.init FOLDER), so "
            "none of its classes is known to be this model; use --to safetensors, torch or onnx"
        )
    with whole_folder(out) as part:
        for name, content in kept.items():
            # of another objective, or with a layer that has no place there, they would say what is not so
            if name not in SENTENCES or (
                task == "Features" and not trained.model.head.state_dict()
            ):
                (part / name).parent.mkdir(exist_ok=True)
                write_atomic(part / name, content)
        try:
            _write_tokenizer(trained, part)
            settings = _write_class(trained, part, task)
            weights, left_out = foreign.written(
                ConfigFile(part / foreign.NAME), untied(trained.model), task
            )
        except DataError as error:
            raise UsageError(
                f"{trained.folder} is no such model any more: {error}; use --to safetensors"
            ) from error
        changed: dict[str, Any] = {
            key: _dtype(weights) for key in ("dtype", "torch_dtype") if key in settings
        }
        names = trained.objective.state().get("names", [])
        if not left_out and names != foreign.objective_state(part, task).get("names", []):
            changed |= _named(names)
        # a class whose head is not written
        if left_out or foreign.own_task(part) not in (None, task):
            with_head = None if left_out else foreign.class_with_head(part, task)
            own_class = with_head or foreign.class_without_head(part)
            changed |= {"architectures": [own_class] if own_class else None}
        if settings | changed != settings:  # else the file stays as it is
            write_json(
                part / foreign.NAME,
                {key: x for key, x in (settings | changed).items() if x is not None},
            )
        save_file(weights, part / WEIGHTS, {"format": "pt"})
    return left_out


def _write_tokenizer(trained: TrainedModel, part: Path) -> None:
    """Write the tokenizer's file, if the run has one. Raises DataError if it has several."""
    state = trained.tokenizer.state()
    of_parts = (own for own in state.values() if isinstance(own, Mapping))
    states = (state, *of_parts, trained.objective.state().get("target", {}))
    texts = {own[TOKENIZER] for own in states if TOKENIZER in own}
    if len(texts) > 1:
        raise DataError("it has several tokenizers")
    for text in texts:
        write_atomic(part / TOKENIZER, text.encode())


def _write_class(trained: TrainedModel, part: Path, task: str | None) -> dict[str, Any]:
    """The settings in `config.json`: with the class that has the run's head, which the model that it began with had
    not, if there is one; else they stay. Raises DataError where the run has other ones."""
    settings = load_json((part / foreign.NAME).read_text(encoding="utf-8"))
    names = trained.objective.state().get("names", [])
    name = foreign.class_with_head(part, task)
    if name is not None and names and name not in (settings.get("architectures") or [name]):
        other = {key: x for key, x in settings.items() if key != "problem_type"}
        other |= {"architectures": [name], **_named(names)}
        write_json(part / foreign.NAME, other)
        if not _changed(trained.config, part, task):
            return other
        write_json(part / foreign.NAME, settings)
    if keys := _changed(trained.config, part, task):
        raise DataError(f"{', '.join(keys)} is not as {foreign.NAME} says")
    return dict(settings)


def _named(names: list[str]) -> dict[str, Any]:
    """The keys of `config.json` that name the classes."""
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def _changed(config: Config, place: Path, task: str | None) -> list[str]:
    """Keys of a run's tokenizer and model that are not those of the foreign model in a folder.

    Dropout is for training alone, and of the objective only what the model's own head has is compared. Raises
    DataError where the folder holds no such model, such as one whose tokenizer has no file.
    """
    found = foreign.settings(place, task)
    own, other = config["model"], found["model"]
    other["objective"] = {**own["objective"], **other.get("objective", {})}
    theirs = complete(found, only=MODEL_KEYS)
    pairs = {f"model.{key}": (own[key], x) for key, x in theirs["model"].items() if key not in FREE}
    pairs = {"tokenizer": (config["tokenizer"], theirs["tokenizer"]), **pairs}
    return [key for key, (mine, its) in pairs.items() if _held(mine) != _held(its)]


FREE = {"path", "reads", "dropout", "drop_path", "init"}
"""Keys whose values may differ from the foreign model's."""


def _held(section: Any) -> dict[Key, Any]:
    """Values of a part of a configuration by key, but for those that are free, at any depth."""
    return {key: value for key, value in walk(section) if not FREE & set(key)}


def to_seqkit(trained: TrainedModel, out: Path) -> list[str]:
    """Write the folder that `seqkit.load` reads: what a run folder holds, without its training. Leaves out nothing.

    Paths of this machine become names of files, in its configuration and its summary; those of plug-ins stay.
    """
    run = trained.folder
    with whole_folder(out) as part:
        (part / FOLDER).mkdir()
        for name in (CONFIG, STATE, SUMMARY, f"{FOLDER}/{WEIGHTS}"):
            shutil.copyfile(run / name, part / name)
        config = read_mapping(run / CONFIG)
        published = {
            key: value if key == "plugins" else without_folders(value)
            for key, value in config.items()
        }
        write_atomic(part / CONFIG, to_yaml(published).encode())
        for name in (STATE, SUMMARY):  # not their other texts: a token may look like a path
            held = load_json((run / name).read_text(encoding="utf-8"))
            held |= {key: without_folders(held[key]) for key in ("data", "initial") if key in held}
            held.pop(GIVEN, None)  # with paths of this machine
            write_json(part / name, held | (digests(part) if name == SUMMARY else {}))
        foreign.keep_files(run, part)
        if (run / JOINED).is_file():
            shutil.copyfile(run / JOINED, part / JOINED)
    return []


def without_folders(value: Any) -> Any:
    """A configuration in which a path that leads out of the working folder is the name of its file: it is published."""
    if isinstance(value, Mapping):
        return {key: without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_folders(inner) for inner in value]
    is_elsewhere = isinstance(value, str) and (
        value.startswith(("/", "~", "..")) or re.match(r"[A-Za-z]:[\\/]", value)
    )
    if is_elsewhere:
        return re.split(r"[\\/]", value.rstrip("/"))[-1] or value
    return value


def _dtype(weights: Mapping[str, Tensor]) -> str:
    """Name of the widest type of the weights."""
    widest = max((x.dtype for x in weights.values()), key=lambda dtype: dtype.itemsize)
    return str(widest).removeprefix("torch.")
