"""Folders that are made once and kept until a file that they are made of changes."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from docs.website.stage import ROOT

KEPT = ROOT / "build" / "kept"


def sources(*more: Path) -> list[Path]:
    """Files that decide what a notebook prints or a picture shows: the package, recipes, versions, these tools."""
    package = [path for path in (ROOT / "seqkit").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    tools = list(Path(__file__).parent.glob("*.py"))
    return [*package, *(ROOT / "recipes").rglob("*.yaml"), *tools, ROOT / "constraints.txt", *more]


def digest(files: Iterable[Path]) -> str:
    """SHA-256 of names and contents."""
    found = hashlib.sha256()
    for path in sorted(set(files)):
        found.update(f"{path.relative_to(ROOT)}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def kept(name: str, make: Callable[[Path], None], files: Iterable[Path], *, anew: bool = False) -> Path:
    """The folder that `make` fills; made again if one of the files has changed, or `anew`."""
    folder = KEPT / f"{name}-{digest(files)}"
    if folder.exists() and not anew:
        return folder
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT, prefix="unfinished-") as unfinished:
        made = Path(unfinished) / "made"
        made.mkdir()
        make(made)
        for before in KEPT.glob(f"{name}-{'[0-9a-f]' * 16}"):
            shutil.rmtree(before)
        made.rename(folder)
    return folder
