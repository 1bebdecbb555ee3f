"""Rows of numbers and categories: each token as its column and its cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqkit.errors import one_line, shortened
from seqkit.interfaces import Tokens
from seqkit.raw import Years
from seqkit.report.modality.base import AttentionSummary, Renderer
from seqkit.tokenizers.cells import Cells

MAX_NAME, MAX_CELL = 22, 10
"""Characters of a token's name, and of the cell in it."""

MAX_LINES = 12
"""Cells that a thumbnail shows."""


class CellsRenderer(Renderer):
    """Names the tokens of a row by column and cell, since the number of a token means another column in each row."""

    tokenizer: Cells
    has_picture = False
    note = "A picture has a line for each cell."

    def picture(self, raw: Any, tokens: Tokens) -> Figure:
        """Content beside positions, with a name for each token."""
        return self._named(super().picture(raw, tokens), 0, raw, tokens)

    def overlay(self, raw: Any, tokens: Tokens, summary: AttentionSummary) -> Figure:
        """Bars over the cells."""
        figure = super().overlay(raw, tokens, summary)
        for axes in figure.axes[:-1]:
            axes.set_xticks(range(len(tokens)), [""] * len(tokens))
        return self._named(figure, -1, raw, tokens)

    def thumbnail(self, tokens: Tokens, axes: Axes, raw: Any = None) -> None:
        """The cells, one below the other."""
        axes.set(xticks=[], yticks=[])
        lines = self.token_names(raw, tokens.at(slice(MAX_LINES)))
        axes.text(
            0.02, 0.98, "\n".join(lines), transform=axes.transAxes, ha="left", va="top", fontsize=6, parse_math=False
        )

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """`column = cell` for each token, short; without `raw` the column alone."""
        columns = self.tokenizer.columns
        names = []
        for place in tokens.content[:, 0].tolist():
            value = raw.get(columns[place]) if isinstance(raw, Mapping) else None
            cell = "" if value is None else f" = {shortened(one_line(written(value)), MAX_CELL)}"
            names.append(f"{shortened(one_line(columns[place]), MAX_NAME - len(cell))}{cell}")
        return names

    def _named(self, figure: Figure, index: int, raw: Any, tokens: Tokens) -> Figure:
        """The figure with the tokens' names below one of its axes."""
        axes = figure.axes[index]
        axes.set_xticks(range(len(tokens)), self.token_names(raw, tokens), rotation=90, fontsize=7, parse_math=False)
        axes.set_xlabel("")
        return figure


def written(value: Any) -> str:
    """A cell as a person writes it: a date as a date, a number with six digits."""
    return f"{value:.6g}" if isinstance(value, float) and not isinstance(value, Years) else str(value)
