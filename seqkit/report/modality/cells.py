"""Rows of numbers and categories: each token as its column and its cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from seqkit.errors import one_line, shortened
from seqkit.interfaces import Tokens
from seqkit.raw import Years
from seqkit.report.figures import INK
from seqkit.report.modality.base import WARM, Look, Renderer
from seqkit.tokenizers.cells import Cells

MAX_NAME = 22
MAX_CELL = 10
"""Characters of a token's name, and of the cell in it."""


class CellsRenderer(Renderer):
    """A line for each cell, since the number of a token means another column in each row."""

    tokenizer: Cells
    note = ""

    def draw(
        self, axes: Axes, raw: Any, tokens: Tokens, received: np.ndarray | None = None
    ) -> None:
        """The cells below each other, with the attention that each receives as a bar."""
        places = range(len(tokens))
        if received is None:
            received = np.zeros(len(tokens))
            axes.set_xticks([])
        else:
            axes.set_xlabel("times an equal share")
        axes.barh(places, received, color=WARM.to_rgba(received), edgecolor=INK, linewidth=0.3)
        names = self.token_names(raw, tokens)
        axes.set_yticks(places, names, fontsize=7, parse_math=False)
        axes.invert_yaxis()

    def height(self, tokens: Tokens) -> float:
        """0.18 inches a cell."""
        return 0.18 * len(tokens) + 0.6

    def look(self, raw: Any, tokens: Tokens) -> Look:
        """The cells that are there."""
        return Look(cells=[(name, written(cell)) for name, cell in raw.items() if cell is not None])

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """`column = cell` for each token, short; without `raw` the column alone."""
        columns = self.tokenizer.columns
        cells = raw if isinstance(raw, Mapping) else {}
        names = []
        for place in tokens.content[:, 0].tolist():
            value = cells.get(columns[place])
            cell = ""
            if value is not None:
                cell = f" = {shortened(one_line(written(value)), MAX_CELL)}"
            names.append(f"{shortened(one_line(columns[place]), MAX_NAME - len(cell))}{cell}")
        return names


def written(value: Any) -> str:
    """A cell as a person writes it: a date as a date, a number with six digits."""
    if isinstance(value, float) and not isinstance(value, Years):
        return f"{value:.6g}"
    return str(value)
