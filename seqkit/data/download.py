"""Data folder, and downloads into it: once, verified by SHA-256, whole or not at all."""

from __future__ import annotations

import logging
import os
from hashlib import file_digest
from pathlib import Path
from typing import Any

from seqkit.errors import DataError
from seqkit.progress import ProgressBar


def data_folder() -> Path:
    """`$SEQKIT_DATA`, or the user's cache folder."""
    given = os.environ.get("SEQKIT_DATA")
    return Path(given).expanduser() if given else user_folder()


def user_folder() -> Path:
    """The user's cache folder, which is written to when `$SEQKIT_DATA` is read-only."""
    import platformdirs

    return platformdirs.user_cache_path("seqkit")


def find(name: str) -> Path | None:
    """A file or folder of that name in the data folder or the user's cache folder, or None."""
    for folder in dict.fromkeys((data_folder(), user_folder())):
        if (folder / name).exists():
            return folder / name
    return None


def writable(name: str) -> Path:
    """Where to write a file of that name; its folder is made. Raises DataError where neither place can be written."""
    for folder in dict.fromkeys((data_folder(), user_folder())):
        path = folder / name
        if not _may_write(path.parent):
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        return path
    places = f"{data_folder()} or {user_folder()}"
    raise DataError(f"cannot write {name} to {places}; set SEQKIT_DATA to a folder that you can write")


def missing(name: str, what: str) -> DataError:
    """The error for data that the user must put in place; what: to put there, and how."""
    return DataError(f"{name} is not in {data_folder()}; {what}, or set SEQKIT_DATA to a folder that holds {name}")


def fetch(url: str, sha256: str, name: str) -> Path:
    """The file `name` of the data folder, downloaded from `url` if it is not there yet.

    name: path inside the data folder. sha256: 64 hex digits, checked also where the file is there already.
    Returns the path of the verified file; it is never half-written.
    Raises DataError where it can be neither found nor downloaded, with what to put where.
    """
    found = find(name)
    if found is not None and _digest(found) == sha256:
        return found
    path = writable(name)
    try:
        _download(url, sha256, path)
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; pooch's wrong hash is a ValueError
        state = "is not at hand" if found is None else f"at {found} has another SHA-256 than it should"
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{name} {state} and could not be fetched ({type(error).__name__}: {reason}); "
            f"fetch {url} by other means and put it at {path} (SHA-256 {sha256})"
        ) from error
    return path


def _may_write(folder: Path) -> bool:
    """False: the folder, or the nearest existing one above it, is read-only; its mode counts for root, too."""
    existing = next((f for f in (folder, *folder.absolute().parents) if f.exists()), folder)
    return os.access(existing, os.W_OK) and bool(existing.stat().st_mode & 0o222)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _download(url: str, sha256: str, path: Path) -> None:
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)  # the progress bar shows it already
    try:
        pooch.retrieve(url, f"sha256:{sha256}", fname=path.name, path=path.parent, downloader=_stream)
    finally:
        logger.setLevel(level)
    path.chmod(0o644)  # pooch leaves its temporary file's 0600, and a data folder may be shared


def _stream(url: str, output_file: Any, _pooch: Any) -> None:
    """Downloader for pooch, with our progress bar; pooch's own leaves the connection open when it breaks."""
    import requests

    with requests.get(url, stream=True, timeout=30) as response, Path(output_file).open("wb") as file:
        response.raise_for_status()
        total = int(response.headers.get("Content-Length", 0)) or None
        with ProgressBar(f"fetching {url.rpartition('/')[2]}", total, in_bytes=True) as bar:
            for chunk in response.iter_content(2**16):
                file.write(chunk)
                bar.update(file.tell())
