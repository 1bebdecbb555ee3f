"""Data folder, and downloads into it: once, verified by SHA-256, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from seqkit.errors import DataError, one_line
from seqkit.files import write_atomic
from seqkit.progress import ProgressBar

MAX_BYTES = 2**28
"""Most bytes of a download; the largest, CIFAR-10, has 170 MB."""

MAX_SECONDS = 1800
"""Most seconds that a download may take."""


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
    """A path to write a file of that name to; its folder is made. Raises DataError where neither place is writable."""
    for folder in dict.fromkeys((data_folder(), user_folder())):
        path = folder / name
        with suppress(OSError):
            if _may_write(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
                return path
    places = f"{data_folder()} or {user_folder()}"
    raise DataError(
        f"cannot write {name} to {places}; set SEQKIT_DATA to a folder that you can write"
    )


def missing(name: str, what: str) -> DataError:
    """The error for data that the user must put in place; what: to put there, and how."""
    return DataError(
        f"{name} is not in {data_folder()}; {what}, or set SEQKIT_DATA to a folder that holds {name}"
    )


def fetch(url: str, sha256: str, name: str) -> Path:
    """The file `name` of the data folder, downloaded from `url` if it is not there yet.

    name: path inside the data folder. sha256: 64 hex digits, checked also where the file is there already.
    Raises DataError where it can be neither found nor downloaded within `MAX_BYTES` and `MAX_SECONDS`; the error says
    what to put where.
    """
    return obtained(name, sha256, lambda: _download(url), f"fetch {url}")


def obtained(name: str, sha256: str, obtain: Callable[[], bytes], by_hand: str) -> Path:
    """The file `name` of the data folder, written from what `obtain` gives if it is not there yet, or damaged.

    sha256: as of `fetch`. by_hand: what a user can do if `obtain` fails. Raises DataError where it does.
    """
    found = find(name)
    if found is not None and _sha256(found.read_bytes()) == sha256:
        return found
    path = writable(name)
    try:
        content = obtain()
        if _sha256(content) != sha256:
            raise ValueError(f"its SHA-256 is {_sha256(content)}")
        write_atomic(path, content)
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        if found is None:
            state = "is not at hand"
        else:
            state = f"at {found} has another SHA-256 than it should"
        raise DataError(
            f"{name} {state} and could not be fetched ({type(error).__name__}: {one_line(error)[:200]}); "
            f"{by_hand} by other means and put it at {path} (SHA-256 {sha256})"
        ) from error
    return path


def _may_write(folder: Path) -> bool:
    """False: the folder, or the nearest existing one above it, is read-only; its mode counts for root, too."""
    existing = next((f for f in (folder, *folder.absolute().parents) if f.exists()), folder)
    return os.access(existing, os.W_OK) and bool(existing.stat().st_mode & 0o222)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _download(url: str) -> bytes:
    import requests
    from urllib3.exceptions import HTTPError

    stop = time.monotonic() + MAX_SECONDS
    content = bytearray()
    # identity: the bytes of the connection are those of the file
    with requests.get(
        url, stream=True, timeout=30, headers={"Accept-Encoding": "identity"}
    ) as response:
        response.raise_for_status()
        total = int(response.headers.get("Content-Length", 0)) or None
        with ProgressBar(f"fetching {url.rpartition('/')[2]}", total, in_bytes=True) as bar:
            # read1 returns what has come: a connection that trickles cannot outlast the deadline
            try:
                while chunk := response.raw.read1(2**16):
                    content += chunk
                    bar.update(len(content))
                    if len(content) > MAX_BYTES:
                        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
                    if time.monotonic() > stop:
                        raise TimeoutError(f"it took more than {MAX_SECONDS} s")
            except HTTPError as error:
                raise OSError(error) from error
    return bytes(content)
