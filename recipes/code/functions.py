"""Functions of Python's standard library: one sample is a function without its name, its label the name."""

import ast
import re
import sysconfig
import warnings
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from textwrap import dedent

from seqkit.data import DataSource, Sample, Splits, read_text
from seqkit.errors import DataError

LEFT_OUT = {"test", "tests", "encodings", "pydoc_data", "idlelib", "lib2to3", "site-packages", "dist-packages", "ensurepip", "turtledemo", "__pycache__"}
"""Folders that are no part of the library proper, or hold copies of others."""

MAX_LINES = 40

NAME = "_"
"""What stands in the place of the function's name, at its definition and wherever the function calls itself."""


class StdlibFunctions(DataSource):
    """`stdlib-functions`: about 9,000 functions and methods of the standard library of this Python (offline).

    raw: source of 3 to 40 lines, without decorators and docstring; its own name is `_`. label: the words of the name
    ("read file"). Names that begin with two underscores are left out, since the language sets them.
    Whole modules are held out, by SHA-256 of the module's path: 10 % test, 10 % validation, the rest training.
    packages: top-level modules and packages to read; None: all.
    Another version of Python has other functions; the digest of the data, which every run keeps, tells them apart.
    """

    def __init__(self, packages: list[str] | None = None):
        self.packages = packages

    def splits(self) -> Splits:
        """Functions in the order of modules and lines. Raises DataError if this Python has no sources."""
        root = Path(sysconfig.get_path("stdlib"))
        splits: dict[str, list[Sample]] = {"train": [], "test": [], "valid": []}
        for path in sorted(root.rglob("*.py")):
            module = path.relative_to(root)
            is_asked = self.packages is None or module.parts[0].removesuffix(".py") in self.packages
            if is_asked and LEFT_OUT.isdisjoint(module.parts):
                splits[split_of(module.as_posix())] += functions(path, module.as_posix())
        if not splits["train"]:
            raise DataError(f"{root} has no sources of the standard library; install them, or give --data of your own")
        return Splits(**splits)


def functions(path: Path, module: str) -> Iterator[Sample]:
    """Functions of a module, outermost first; none if it cannot be parsed. Equal ones of a module count once."""
    try:
        text = read_text(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, DataError):  # files of broken code, which ship for tests of tools
        return
    lines, seen = text.splitlines(keepends=True), set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("__"):
            continue
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        if not body or not 3 <= (node.end_lineno or 0) - node.lineno + 1 <= MAX_LINES:
            continue
        head = lines[node.lineno - 1 : node.body[0].lineno - 1]
        source = dedent("".join([*head, *lines[body[0].lineno - 1 : node.end_lineno]]))
        raw, label = re.sub(rf"\b{re.escape(node.name)}\b", NAME, source), words_of(node.name)
        if head and label and raw not in seen and _parses(raw):
            seen.add(raw)
            yield Sample(raw, label, group=module, name=f"{module}:{node.lineno}")


def _parses(source: str) -> bool:
    """False of a method with lines of a string that begin further left than the method."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except SyntaxError:
        return False
    return True


def words_of(name: str) -> str:
    """Words of a name in lower case, with spaces between: `_readFile` is "read file"."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)).lower()


def split_of(module: str) -> str:
    """The split that a module is in: "test" (10 %), "valid" (10 %) or "train"."""
    share = int.from_bytes(sha256(module.encode()).digest()[:8], "big") / 2**64
    return "test" if share < 0.1 else "valid" if share < 0.2 else "train"
