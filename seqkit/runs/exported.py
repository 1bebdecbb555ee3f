"""A run as a folder of weights and settings: as transformers reads it, or as `seqkit.load` does."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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

    Raises UsageError for a run that did not begin with a model of such a folder, or whose backbone is another by now.
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
        objective = trained.config["model"]["objective"]["type"]
        try:
            weights, left_out = foreign.written(ConfigFile(part / foreign.NAME), untied(trained.model), objective)
        except DataError as error:
            raise UsageError(f"{trained.folder} is no such model any more: {error}; use --to safetensors") from error
        settings = load_json(kept[foreign.NAME].decode())
        changed = {key: _dtype(weights) for key in ("dtype", "torch_dtype") if key in settings}
        if left_out or settings | changed != settings:  # else the file stays as it is
            settings |= changed
            settings.pop("architectures" if left_out else "", None)  # a class whose head is not written
            write_json(part / foreign.NAME, settings)
        save_file(weights, part / WEIGHTS, {"format": "pt"})
        if text := trained.tokenizer.state().get(TOKENIZER):
            write_atomic(part / TOKENIZER, text.encode())
    return left_out


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
