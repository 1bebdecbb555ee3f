"""Cells of the page: each law on each family, at two sizes and in two dtypes, with an example for each fault."""

import math
import warnings
from collections.abc import Collection
from typing import Any

import torch
from strangers.examples import MOST_LINES, example, example_of_other, printed
from strangers.families import FAMILIES, built
from strangers.laws import LAWS, Subject
from strangers.others import OTHERS, built_other

from seqkit.errors import one_line
from seqkit.testing.checks import NotCheckedError

TOLERANCE = {"float64": 1e-5, "float32": 1e-3}
"""Largest difference, as a share of the largest right number, that is rounding."""

NEAR = 0.02
"""Share by which an example's number may differ from its cell's."""


def tried(law: str, subject: Subject) -> tuple[str, float | None]:
    """How a law ends ("kept", or the words of what was raised) and its size; None: it has none."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            size = LAWS[law](subject)
    except NotCheckedError as reason:
        return one_line(reason), None
    except Exception as error:
        return f"raises {type(error).__name__}: {one_line(error)[:120]}", None
    return "kept", size


def measured(name: str, size: str = "tiny", laws: Collection[str] = tuple(LAWS)) -> dict[str, Any]:
    """Cells of one family. Raises ImportError if its library is not installed."""
    dtypes = ("float64", "float32") if size == "tiny" else ("float32",)
    found: dict[str, dict[str, Any]] = {law: {} for law in laws}
    subjects = {}
    for dtype in dtypes:
        try:
            subject = built_of(name, size, dtype)
        except NotCheckedError:
            continue
        subjects[dtype] = subject
        for law in laws:
            said, share = tried(law, subject)
            broken = share is not None and not share < TOLERANCE[dtype]
            found[law][dtype] = {"said": "broken" if broken else said, "size": rounded(share)}
    cells = {}
    for law, each in found.items():
        cell = cells[law] = {"status": status(each), **each}
        if cell["status"] == "broken":
            dtype = next(dtype for dtype in dtypes if dtype in each)
            cell["example"] = code = code_of(name, law, subjects[dtype], size, dtype)
            try:
                cell["by_hand"] = rounded(printed(code))
            except Exception as error:  # whatever a library raises
                cell["by_hand"] = one_line(error)[:120]
            if not agrees(cell["by_hand"], each[dtype]["size"]) or code.count("\n") >= MOST_LINES:
                cell["status"] = "not reproduced"
    return cells


def built_of(name: str, size: str, dtype: str) -> Subject:
    """A family of the page by its name."""
    if name in FAMILIES:
        return built(FAMILIES[name], size, dtype)
    return built_other(OTHERS[name], dtype)


def code_of(name: str, law: str, subject: Subject, size: str, dtype: str) -> str:
    """The example of a fault."""
    if name in FAMILIES:
        return example(FAMILIES[name], law, subject, size, dtype)
    return example_of_other(OTHERS[name], law, dtype)


def status(each: dict[str, dict[str, Any]]) -> str:
    """One word for a cell of all dtypes; "float64 alone" if only that breaks the law."""
    said = {dtype: cell["said"] for dtype, cell in each.items()}
    broken = [dtype for dtype, words in said.items() if words == "broken"]
    if broken:
        return "broken" if len(broken) == len(said) else f"{broken[0]} alone"
    first = next(iter(said.values()))
    if first == "kept" or first.startswith("generate refuses"):
        return first.split(":")[0]
    return "raises" if first.startswith("raises") else "not applicable"


def rounded(size: float | None) -> float | str | None:
    """Two digits of a size; "nan" for one that is no number."""
    if size is None:
        return None
    return float(f"{size:.2g}") if math.isfinite(size) else "nan"


def agrees(by_hand: Any, size: Any) -> bool:
    """Whether an example shows the fault of its cell."""
    if isinstance(by_hand, str) or isinstance(size, str):
        return by_hand == size
    return bool(abs(by_hand - size) <= NEAR * size + 1e-12)
