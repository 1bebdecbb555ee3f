"""Files that are written whole or not at all, and small JSON and YAML files read back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from seqkit.errors import DataError


def write_json(path: Path, value: Any) -> None:
    """A JSON file, whole or not at all."""
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=False).encode())


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


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: temporary file in the same folder, fsync, rename, fsync of the folder.

    On failure the temporary file is removed, and an earlier file at `path` is left unchanged.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power failure."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folder, and has no need to
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
