"""Checkpoints: weights as safetensors, checked by their SHA-256."""

from __future__ import annotations

import hashlib
from pathlib import Path

from torch import Tensor, nn

from seqkit.errors import DataError, one_line
from seqkit.files import read_mapping, write_atomic


def save_weights(model: nn.Module, path: Path) -> str:
    """Write all weights, whole or not at all; returns the file's SHA-256."""
    from safetensors.torch import save

    path.parent.mkdir(parents=True, exist_ok=True)
    shared: dict[int, str] = {}
    weights: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if shared.setdefault(tensor.data_ptr(), name) == name or tensor.numel() == 0:  # tied weights are written once
            weights[name] = tensor.detach().cpu().contiguous()
    content = save(weights)
    write_atomic(path, content)
    return hashlib.sha256(content).hexdigest()


def load_weights(model: nn.Module, path: Path, digest: str) -> None:
    """Load what `save_weights` wrote. Raises DataError where the file is missing, changed, or of another model."""
    weights, own = _read_weights(path, digest), model.state_dict()
    tied = {own[name].data_ptr() for name in weights if name in own}
    missing = [name for name, tensor in own.items() if name not in weights and tensor.data_ptr() not in tied]
    extra = [name for name in weights if name not in own]
    extra += [name for name in weights if name in own and weights[name].shape != own[name].shape]
    if missing or extra:
        wrong = [f"{name} is missing" for name in missing] + [
            f"{name} is unknown or of another shape" for name in extra
        ]
        raise DataError(
            f"{path} does not fit the model of config.yaml: {wrong[0]}"
            f"{f', and {len(wrong) - 1} more' if wrong[1:] else ''}; copy the run again"
        )
    model.load_state_dict(weights, strict=False)


def load_body(model: nn.Module, run: Path) -> None:
    """Load embedder and backbone of a run, and leave the head as it is: what finetuning begins with.

    A mask token that only one of the two has is left out. Raises DataError where anything else is missing or of
    another shape.
    """
    summary = read_mapping(run / "summary.json", "sha256")
    weights = _read_weights(run / "checkpoints" / "model.safetensors", summary["sha256"])
    own = {name: tensor for name, tensor in model.state_dict().items() if _is_body(name)}
    tied = {own[name].data_ptr() for name in weights if name in own}
    given = {name: tensor for name, tensor in weights.items() if _is_body(name)}
    wrong = [name for name, tensor in own.items() if name not in given and tensor.data_ptr() not in tied]
    wrong += [name for name in given if name not in own or own[name].shape != given[name].shape]
    if wrong:
        raise DataError(f"the weights of {run} do not fit this model: {wrong[0]} is missing, or of another shape")
    model.load_state_dict(given, strict=False)


def _is_body(name: str) -> bool:
    return name.startswith(("embedder.", "source_embedder.", "backbone.")) and not name.endswith(".mask_token")


def _read_weights(path: Path, digest: str) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    if not path.is_file():
        raise DataError(f"{path} is missing; the run folder is not complete, train again or copy it whole")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError(f"{path} is damaged: its SHA-256 is not the one in summary.json; copy it again or train again")
    try:
        return load(content)
    except (SafetensorError, ValueError, KeyError) as error:  # a hash that fits says only that both were written so
        raise DataError(f"{path} holds no weights ({one_line(error)}); copy it again or train again") from error
