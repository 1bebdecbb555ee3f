"""Modules of Python's standard library as text: one sample is a module, a `str`, without a label."""

import sysconfig
from hashlib import sha256
from pathlib import Path

from seqkit.data import DataSource, Sample, Splits, read_text
from seqkit.errors import DataError

LEFT_OUT = {
    "test", "tests", "encodings", "pydoc_data", "idlelib", "lib2to3", "site-packages", "dist-packages", "ensurepip",
    "turtledemo", "__pycache__",
}  # fmt: skip
"""Folders that are no part of the library proper, or hold copies of others."""


class StdlibModules(DataSource):
    """`stdlib-modules`: about 450 modules of the standard library of this Python, 9 MB of source (offline).

    Whole modules are held out, by SHA-256 of the module's path: 10 % test, 10 % validation, the rest training. Code is
    read, and never run.
    packages: top-level modules and packages to read; None: all.
    Another version of Python has other modules; the digest of the data, which every run keeps, tells them apart.
    """

    def __init__(self, packages: list[str] | None = None):
        self.packages = packages

    def splits(self) -> Splits:
        """Modules in the order of their paths, equal ones once. Raises DataError if this Python has no sources."""
        root = Path(sysconfig.get_path("stdlib"))
        modules: dict[str, Sample] = {}
        for path in sorted(root.rglob("*.py")):
            place = path.relative_to(root)
            is_asked = self.packages is None or place.parts[0].removesuffix(".py") in self.packages
            if is_asked and LEFT_OUT.isdisjoint(place.parts) and path.stat().st_size > 1:
                text = read_text(path)
                modules.setdefault(text, Sample(text, name=place.as_posix()))
        splits: dict[str, list[Sample]] = {"train": [], "valid": [], "test": []}
        for sample in modules.values():
            splits[split_of(str(sample.name))].append(sample)
        if not splits["train"]:
            raise DataError(
                f"{root} has no sources of the standard library; install them, or give --data of your own"
            )
        return Splits(**splits)


def split_of(module: str) -> str:
    """The split that a module is in, by its path: "test" (10 %), "valid" (10 %) or "train"."""
    share = int.from_bytes(sha256(module.encode()).digest()[:8], "big") / 2**64
    if share < 0.1:
        return "test"
    if share < 0.2:
        return "valid"
    return "train"
