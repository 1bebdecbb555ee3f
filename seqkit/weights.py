"""Files that are whole or not there: weights as safetensors with a checksum, and small JSON."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor, nn

from seqkit.contract import DataError


def save_weights(model: nn.Module, path: Path) -> str:
    """Write all weights, whole or not at all; gives the file's SHA-256."""
    from safetensors.torch import save

    path.parent.mkdir(parents=True, exist_ok=True)
    shared: dict[int, str] = {}
    weights: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if shared.setdefault(tensor.data_ptr(), name) == name or tensor.numel() == 0:  # tied weights are written once
            weights[name] = tensor.detach().cpu().contiguous()
    content = save(weights)
    _write_whole(path, content)
    return hashlib.sha256(content).hexdigest()


def load_weights(model: nn.Module, path: Path, digest: str) -> None:
    """Read what `save_weights` wrote. Raises DataError where the file is missing, changed, or of another model."""
    from safetensors.torch import load as read

    if not path.is_file():
        raise DataError(f"{path} is missing; the run folder is not complete, train again or copy it whole")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError(f"{path} is damaged: its SHA-256 is not the one in summary.json; copy it again or train again")
    weights, own = read(content), model.state_dict()
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


def write_json(path: Path, value: Any) -> None:
    """A JSON file, whole or not at all."""
    _write_whole(path, json.dumps(value, indent=1, ensure_ascii=False).encode())


def read_mapping(path: Path, *keys: str) -> dict[str, Any]:
    """A JSON or YAML file of a run as a dictionary with these keys. Raises DataError where it is not."""
    try:
        value = (
            yaml.safe_load(path.read_text(encoding="utf-8"))
            if path.suffix == ".yaml"
            else json.loads(path.read_bytes())
        )
    except FileNotFoundError:
        raise DataError(f"{path} is missing; the run folder is not complete, train again or copy it whole") from None
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"{path} is damaged ({' '.join(str(error).split())}); copy it again or train again") from error
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if missing:
        raise DataError(f"{path} is damaged: it has no {', '.join(missing)}; copy it again or train again")
    return value


def _write_whole(path: Path, content: bytes) -> None:
    """A file appears whole or not at all: temporary file in the same folder, fsync, rename."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
