"""Weights of a run as a safetensors file, checked by its SHA-256."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from seqkit.errors import DataError, one_line
from seqkit.files import read_small, write_atomic
from seqkit.interfaces.finite import flawed_weight

MAX_HEADER_BYTES = 2**26
"""Bytes of a safetensors file beside its numbers."""

RETIRED = "shortcut.weight", "shortcut.shares"
"""Weights of runs of earlier versions that are read by nothing."""

OF_A_MIXER = re.compile(r"(.*\bblocks\.\d+\.)((in_proj|out_proj|ssm|reversed_ssm)\..*)")
"""Weights of Mamba and S4D that runs of earlier versions name without the mixer that they now belong to."""


def save_weights(model: nn.Module, path: Path) -> str:
    """Write all weights, whole or not at all; gives the file's SHA-256. Tied weights are written once."""
    from safetensors.torch import save

    path.parent.mkdir(parents=True, exist_ok=True)
    content = save(untied(model))
    write_atomic(path, content)
    return hashlib.sha256(content).hexdigest()


def untied(model: nn.Module) -> dict[str, Tensor]:
    """All weights by name on the CPU, tied ones under their first name alone."""
    shared: dict[int, str] = {}
    weights: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if shared.setdefault(tensor.data_ptr(), name) == name or tensor.numel() == 0:
            weights[name] = tensor.detach().cpu().contiguous()
    return weights


def component_of(name: str) -> str:
    """Name of the component that a weight belongs to: backbone, head, embedder, or embedder of a part."""
    words = name.split(".")
    if words[1] == "modality":
        return "vectors of the modalities"
    if words[1] in ("parts", "encoders") and "embedder" in words[0]:
        return f"{words[0]} of {words[2]}"
    return words[0]


def load_weights(model: nn.Module, path: Path, digest: str) -> None:
    """Load what `save_weights` wrote. Raises DataError if the file is missing, changed, or of another model."""
    own = model.state_dict()
    # they may have been float64
    most = MAX_HEADER_BYTES + 2 * sum(weight.nbytes for weight in own.values())
    weights = {_today(name, own): x for name, x in _read_weights(path, digest, most).items()}
    if wrong := misfits(weights, own):
        more = f", and {len(wrong) - 1} more" if wrong[1:] else ""
        raise DataError(
            f"{path} does not fit the model of config.yaml: {wrong[0]}{more}; copy the run again"
        )
    model.load_state_dict(weights, strict=False)
    # asked of the model's: a number of a wider type may be infinite there
    if broken := flawed_weight(model.state_dict()):
        raise DataError(f"{path}: {broken}; its training diverged, train again")


def _today(name: str, own: Mapping[str, Tensor]) -> str:
    """The name that a weight of an earlier version has in a model with those weights."""
    found = OF_A_MIXER.fullmatch(name)
    if name in own or found is None:
        return name
    return f"{found[1]}mixer.{found[2]}"


def misfits(weights: dict[str, Tensor], own: dict[str, Tensor]) -> list[str]:
    """Faults of weights for a model, one for each name; a weight that is tied to a given one need not be given."""
    tied = {own[name].data_ptr() for name in weights if name in own}
    wrong = [f"{name} is missing" for name, x in own.items() if x.data_ptr() not in tied]
    return wrong + [
        f"{name} is unknown or of another shape"
        for name, x in weights.items()
        if name not in RETIRED and (name not in own or x.shape != own[name].shape)
    ]


def _read_weights(path: Path, digest: str, max_bytes: int) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        content = read_small(path, max_bytes)
    except FileNotFoundError:
        raise DataError(
            f"{path} is missing; the run folder is not complete, train again or copy it whole"
        ) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError(
            f"{path} is damaged: its SHA-256 is not the one in summary.json; copy it again or train again"
        )
    try:
        return load(content)
    # a hash that fits says only that both were written so
    except (SafetensorError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} holds no weights ({one_line(error)}); copy it again or train again"
        ) from error
