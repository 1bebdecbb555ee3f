"""A run as a folder of weights and settings: as transformers reads it, or as `seqkit.load` does."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.config import complete
from seqkit.config.resolve import MODEL_KEYS
from seqkit.errors import DataError, UsageError
from seqkit.files import load_json, whole_folder, write_atomic, write_json
from seqkit.pretrained import folder as foreign
from seqkit.pretrained.config_file import ConfigFile
from seqkit.runs.folder import CONFIG, STATE, SUMMARY
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
    if not kept:
        raise UsageError(
            f"{trained.folder} did not begin with a model of transformers (seqkit import, --model.init FOLDER), so "
            "none of its classes is known to be this model; use --to safetensors, torch or onnx"
        )
    with whole_folder(out) as part:
        for name, content in kept.items():
            write_atomic(part / name, content)
        if text := trained.tokenizer.state().get(TOKENIZER):
            write_atomic(part / TOKENIZER, text.encode())
        objective = trained.config["model"]["objective"]["type"]
        if changed_keys := _changed(trained.config, part, objective):
            raise UsageError(
                f"{trained.folder} is no such model any more: {', '.join(changed_keys)} is not as {foreign.NAME} says; "
                "use --to safetensors"
            )
        try:
            weights, left_out = foreign.written(ConfigFile(part / foreign.NAME), untied(trained.model), objective)
        except DataError as error:
            raise UsageError(f"{trained.folder} is no such model any more: {error}; use --to safetensors") from error
        settings = load_json(kept[foreign.NAME].decode())
        changed: dict[str, Any] = {key: _dtype(weights) for key in ("dtype", "torch_dtype") if key in settings}
        names = trained.objective.state().get("names", [])
        if not left_out and names != foreign.objective_state(part, objective).get("names", []):
            changed["id2label"] = {str(i): name for i, name in enumerate(names)}
            changed["label2id"] = {name: i for i, name in enumerate(names)}
        if left_out or settings | changed != settings:  # else the file stays as it is
            settings |= changed
            settings.pop("architectures" if left_out else "", None)  # a class whose head is not written
            write_json(part / foreign.NAME, settings)
        save_file(weights, part / WEIGHTS, {"format": "pt"})
    return left_out


def _changed(config: Mapping[str, Any], place: Path, objective: str) -> list[str]:
    """Keys of a run's tokenizer and model that are not those of the foreign model in a folder.

    Dropout is for training alone, and of the objective only what the model's own head has is compared.
    """
    try:
        found = foreign.settings(place, objective)
    except DataError as error:  # such as a tokenizer of another kind, which has no file
        raise UsageError(f"the run is no such model any more: {error}; use --to safetensors") from error
    own = found["model"].get("objective", {})
    found["model"]["objective"] = {**config["model"]["objective"], **own}
    theirs = complete(found, only=MODEL_KEYS)
    changed = [] if {**config["tokenizer"], "path": ""} == {**theirs["tokenizer"], "path": ""} else ["tokenizer"]
    expected, got = _without_dropout(theirs["model"]), _without_dropout(config["model"])
    return changed + [f"model.{key}" for key in expected if key != "init" and expected[key] != got[key]]


def _without_dropout(value: Any) -> Any:
    """A part of a configuration without its keys of dropout."""
    if isinstance(value, Mapping):
        return {key: _without_dropout(x) for key, x in value.items() if key not in ("dropout", "drop_path")}
    return [_without_dropout(x) for x in value] if isinstance(value, list) else value


def to_seqkit(trained: TrainedModel, out: Path) -> list[str]:
    """Write the folder that `seqkit.load` reads: what a run folder holds, without its training. Leaves out nothing."""
    run = trained.folder
    with whole_folder(out) as part:
        (part / FOLDER).mkdir()
        for name in (CONFIG, STATE, SUMMARY, f"{FOLDER}/{WEIGHTS}"):
            shutil.copyfile(run / name, part / name)
        foreign.keep_files(run, part)
    return []


def _dtype(weights: Mapping[str, Tensor]) -> str:
    """Name of the widest type of the weights."""
    widest = max((x.dtype for x in weights.values()), key=lambda dtype: dtype.itemsize)
    return str(widest).removeprefix("torch.")
