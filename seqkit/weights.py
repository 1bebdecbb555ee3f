"""Files that are whole or not there: weights as safetensors with a checksum, and small JSON."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

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
    if missing or extra:
        raise DataError(f"{path} does not fit the model: missing {missing or 'nothing'}, unknown {extra or 'nothing'}")
    model.load_state_dict(weights, strict=False)


def write_json(path: Path, value: Any) -> None:
    _write_whole(path, json.dumps(value, indent=1, ensure_ascii=False).encode())


def _write_whole(path: Path, content: bytes) -> None:
    """A file appears whole or not at all: temporary file in the same folder, fsync, rename."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
