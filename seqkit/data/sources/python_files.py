"""Functions of Python files: a sample is a function without its name, its label the words of the name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from copy import copy
from keyword import softkwlist
from pathlib import Path

from seqkit.data.formats import CODE
from seqkit.data.sample import Sample, Splits
from seqkit.data.source import DataSource, check_test_fraction
from seqkit.data.splits import by_group
from seqkit.data.walk import matching, walk
from seqkit.errors import DataError
from seqkit.files import read_regular
from seqkit.tokenizers.python_code import WORD, parsed

NAME = "_"
"""Placeholder of a function's own name, at its definition and wherever its code has it."""


class PythonFiles(DataSource):
    """Functions of your own Python files: code without the name, and the words of the name. Files are never run.

    path: a `.py` file, a folder of them, or a pattern. test_fraction: share of the functions that are test: of several
    files whole ones, by SHA-256 of their order.
    """

    def __init__(self, path: str, *, test_fraction: float = 0.1):
        check_test_fraction(test_fraction)
        self.path = path
        self.test_fraction = test_fraction

    def splits(self) -> Splits:
        """Raises DataError where a file is no Python, and where there are fewer than two functions."""
        root = Path(self.path)
        if root.is_dir():
            found = [str(root / name) for name in walk(root).files]
        else:
            found = matching(self.path)
        files = [Path(name) for name in found if CODE.fits(name)]
        samples = distinct(sample for path in files for sample in functions(path))
        if len(samples) < 2:
            raise DataError(
                f"{self.path} has {len(samples)} functions with names of their own; give more code"
            )
        if len({sample.group for sample in samples}) == 1:
            samples = [sample._replace(group=None) for sample in samples]
        rest, aside = by_group([sample.group for sample in samples], self.test_fraction, seed=0)
        return Splits([samples[i] for i in rest], [samples[i] for i in aside])


def functions(path: Path) -> list[Sample]:
    """Functions and methods of a file, with those inside them; none whose name Python sets (`__init__`).

    raw: the code as `ast.unparse` writes it, without decorators, comments and docstring; the function's own name is `_`
    wherever it stands. label: the words of the name in lower case. group: the file. name: file, line and name.
    Raises DataError where the file cannot be read, and with the line where it is no Python.
    """
    try:
        return [
            Sample(
                _nameless(node), _label(node.name), str(path), f"{path}:{node.lineno} {node.name}"
            )
            for node in _outermost(parsed(read_regular(path)))
            if not node.name.startswith("__")
        ]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); give a file that you may read"
        ) from None
    except RecursionError:
        raise DataError(f"{path} nests too deep; take it out") from None


def _outermost(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        elif not isinstance(child, ast.expr):
            yield from _outermost(child)


def distinct(samples: Iterable[Sample]) -> list[Sample]:
    """The samples with a label, the first of each code alone: a copy in another file would be in two splits."""
    return list(
        {sample.raw: sample for sample in reversed(list(samples)) if sample.label}.values()
    )[::-1]


def _label(name: str) -> str:
    return " ".join(WORD.findall(name)).lower()


def _nameless(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    name = re.escape(node.name)
    node = copy(node)
    if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]
    node.decorator_list = []
    # `match x:` stays in a function `match`
    if name in softkwlist:
        keyword = rf"^ +{name} (?!\W{{0,3}}= )"
    else:
        keyword = "(?!)"
    return re.sub(
        rf"({keyword})|\b{name}\b",
        lambda found: found[1] or NAME,
        ast.unparse(node),
        flags=re.MULTILINE,
    )
