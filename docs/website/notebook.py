"""Notebooks in percent format: run from top to bottom, and written as a page and as an .ipynb file.

A notebook is a Python file in which `# %%` begins a cell of code and `# %% [markdown]` a cell of text. Jupyter (with
jupytext), VS Code and PyCharm open it as a notebook; here it needs none of them. As in Jupyter, a cell shows what it
prints, the value of its last expression, and the figures that it draws.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import pprint
import re
import sys
import tempfile
import traceback
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

DPI = 110

PAGE = re.compile(r"(?<=\]\()[\w/.-]+\.html(?=\))")
"""Link of a notebook to a page that it made."""


@dataclass
class Cell:
    """A cell, and what it showed when it ran. line: of its first line in the file, from 1. figures: as PNG."""

    is_code: bool
    text: str
    line: int
    printed: str = ""
    value: str = ""
    figures: list[bytes] = field(default_factory=list)


def cells(source: str) -> list[Cell]:
    """Cells of a notebook, without empty ones."""
    found = []
    for cell in re.finditer(
        r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", source, flags=re.MULTILINE | re.DOTALL
    ):
        text = re.sub("^# ?", "", cell[2], flags=re.MULTILINE) if cell[1] else cell[2]
        found.append(
            Cell(cell[1] is None, text.strip("\n"), source.count("\n", 0, cell.start(2)) + 1)
        )
    return [cell for cell in found if cell.text]


def run(path: Path, folder: Path) -> list[Cell]:
    """Cells of a notebook with what they show, executed in order, in a folder and as a `__main__` of its own.

    Raises what a cell raises, with a note that names its line.
    """
    import matplotlib as mpl

    found = cells(path.read_text(encoding="utf-8"))
    # as in Jupyter: classes of the notebook can be pickled, and a process that is started does not read a file again
    main, module = sys.modules["__main__"], types.ModuleType("__main__")
    with (
        contextlib.chdir(folder),
        mpl.rc_context({"figure.dpi": DPI}),
        patch.dict(os.environ, COLUMNS="90"),
    ):
        mpl.use("agg")
        sys.modules["__main__"] = module
        try:
            for cell in found:
                if cell.is_code:
                    _execute(cell, module, path)
        finally:
            sys.modules["__main__"] = main
    return found


def _execute(cell: Cell, module: types.ModuleType, path: Path) -> None:
    import matplotlib.pyplot as plt

    tree = ast.parse(cell.text, str(path))
    ast.increment_lineno(tree, cell.line - 1)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        try:
            exec(compile(tree, str(path), "exec"), vars(module))  # noqa: S102 - our own notebooks
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), str(path), "eval"), vars(module))  # noqa: S307
                cell.value = (
                    "" if value is None else pprint.pformat(value, width=100, sort_dicts=False)
                )
        except Exception as error:
            lines = [
                frame.lineno
                for frame in traceback.extract_tb(error.__traceback__)
                if frame.filename == str(path)
            ]
            error.add_note(f"in {path.name}, line {lines[0] if lines else cell.line}")
            raise
    cell.printed = shown.getvalue()
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(
            picture, format="png", bbox_inches="tight", metadata={"Software": None}
        )
        cell.figures.append(picture.getvalue())
    plt.close("all")


def plain(text: str) -> str:
    """Printed text without colours, and of a progress bar its last state alone."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return "\n".join(
        line.rpartition("\r")[2].rstrip() for line in text.replace("\r\n", "\n").split("\n")
    ).strip("\n")


def write(path: Path, folder: Path) -> None:
    """Run a notebook; write NAME.md, NAME.ipynb and its pictures, and keep the HTML pages that it made.

    A link of the notebook to an HTML page in its working folder leads to the kept one.
    """
    name = path.stem
    pictures = folder / name
    with tempfile.TemporaryDirectory() as work:
        done = run(path, Path(work))
        linked = {link for cell in done if not cell.is_code for link in PAGE.findall(cell.text)}
        for link in sorted(linked):
            (kept := pictures / link.replace("/", "-")).parent.mkdir(exist_ok=True)
            kept.write_bytes((Path(work) / link).read_bytes())
        whole = str(Path(work).resolve())
    parts, figure = [], 0
    for cell in done:
        if not cell.is_code:
            text = re.sub(r"(?<=\]\()([\w-]+)\.py(?=\))", r"\1.md", cell.text)  # another notebook
            parts.append(PAGE.sub(lambda link: f"{name}/{link[0].replace('/', '-')}", text))
            continue
        parts.append(f"```python\n{cell.text}\n```")
        for text in filter(None, (plain(cell.printed), cell.value)):
            parts.append(f"```text\n{text.replace(whole, '.')}\n```")
        for picture in cell.figures:
            figure += 1
            pictures.mkdir(exist_ok=True)
            (pictures / f"{figure}.png").write_bytes(picture)
            parts.append(f"![figure {figure}]({name}/{figure}.png)")
    head, *rest = parts
    download = f"[Download this notebook]({name}.ipynb){{ download }}, or open `docs/notebooks/{path.name}`."
    (folder / f"{name}.md").write_text(
        "\n\n".join([head, download, *rest]) + "\n", encoding="utf-8"
    )
    (folder / f"{name}.ipynb").write_text(
        json.dumps(as_ipynb(done), indent=1) + "\n", encoding="utf-8"
    )


def as_ipynb(found: list[Cell]) -> dict[str, Any]:
    """A notebook in Jupyter's format 4.5, to be run there: without what it showed."""
    listed = []
    for number, cell in enumerate(found):
        own: dict[str, Any] = {
            "cell_type": "markdown",
            "id": f"cell-{number}",
            "metadata": {},
            "source": cell.text,
        }
        listed.append(
            own
            | (
                {"cell_type": "code", "execution_count": None, "outputs": []}
                if cell.is_code
                else {}
            )
        )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": listed}
