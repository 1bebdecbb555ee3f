"""Functions of Python's standard library: one sample is a function without its name, its label the name."""

import logging
import sysconfig
from hashlib import sha256
from pathlib import Path

from seqkit.data import DataSource, Sample, Splits
from seqkit.data.sources.python_files import distinct, functions
from seqkit.errors import DataError

LEFT_OUT = {
    "test", "tests", "encodings", "pydoc_data", "idlelib", "lib2to3", "site-packages", "dist-packages", "ensurepip",
    "turtledemo", "__pycache__",
}  # fmt: skip
"""Folders that are no part of the library proper, or hold copies of others."""

log = logging.getLogger("seqkit")


class StdlibFunctions(DataSource):
    """`stdlib-functions`: about 10,000 functions and methods of the standard library of this Python (offline).

    raw, label: as `PythonFiles` has them ("read file"); equal code counts once.
    Whole modules are held out, by SHA-256 of the module's path: 10 % test, 10 % validation, the rest training.
    packages: top-level modules and packages to read; None: all.
    Another version of Python has other functions; the digest of the data, which every run keeps, tells them apart.
    """

    def __init__(self, packages: list[str] | None = None):
        self.packages = packages

    def splits(self) -> Splits:
        """Functions in the order of modules and lines. Raises DataError if this Python has no sources."""
        root, found = Path(sysconfig.get_path("stdlib")), list[Sample]()
        for path in sorted(root.rglob("*.py")):
            module = path.relative_to(root)
            is_asked = self.packages is None or module.parts[0].removesuffix(".py") in self.packages
            if is_asked and LEFT_OUT.isdisjoint(module.parts):
                try:
                    found += [
                        sample._replace(group=module.as_posix()) for sample in functions(path)
                    ]
                except DataError as error:
                    log.warning("left out: %s", error)
        splits: dict[str, list[Sample]] = {"train": [], "test": [], "valid": []}
        for sample in distinct(found):
            splits[split_of(str(sample.group))].append(sample)
        if not splits["train"]:
            raise DataError(
                f"{root} has no sources of the standard library; install them, or give --data of your own"
            )
        return Splits(**splits)


def split_of(module: str) -> str:
    """The split that a module is in: "test" (10 %), "valid" (10 %) or "train"."""
    share = int.from_bytes(sha256(module.encode()).digest()[:8], "big") / 2**64
    return "test" if share < 0.1 else "valid" if share < 0.2 else "train"
