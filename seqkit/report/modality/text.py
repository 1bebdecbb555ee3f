"""Text: each token as its piece of text.

n tokens
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from seqkit.errors import shortened
from seqkit.interfaces import Tokens
from seqkit.report.figures import BLUE, INK
from seqkit.report.modality.base import MAX_RECEIVED, WARM, Look, Renderer
from seqkit.tokenizers import CharNGrams
from seqkit.tokenizers.text import Text

MAX_PIECES = 72
"""Tokens of a text that its picture shows."""

MAX_NAME = 16
"""Characters of a token's name."""

LINE_WIDTH = 64.0
"""Width of a picture in characters."""

_TINTS = ("#cfe3f3", "#fbe3c0", "#cdeadf", "#f3dbe8")
_VISIBLE = str.maketrans({"\n": "↵", " ": "␣", "\t": "⇥", "\r": "␍"})


class TextRenderer(Renderer):
    """Pieces of text in boxes, with their ids below, or coloured by the attention that they receive."""

    tokenizer: Text | CharNGrams
    is_text = True

    def draw(
        self, axes: Axes, raw: Any, tokens: Tokens, received: np.ndarray | None = None
    ) -> None:
        """A box for each of the first pieces, in lines."""
        texts, ids = self._shown(tokens)
        line = 0
        for i, (text, number, (line, left, width)) in enumerate(
            zip(texts, ids, _boxes(texts, ids))
        ):
            color: Any = _TINTS[i % len(_TINTS)]
            ink = "#1a1a1a"
            if received is not None:
                color = WARM.to_rgba(received[i])
                ink = "#ffffff" if received[i] > 0.7 * MAX_RECEIVED else ink
            box = Rectangle(
                (left + 0.06, -line - 0.5),
                width - 0.12,
                0.5,
                facecolor=color,
                edgecolor=INK,
                linewidth=0.3,
            )
            axes.add_patch(box)
            place: dict[str, Any] = {"x": left + width / 2, "ha": "center", "va": "center"}
            axes.text(y=-line - 0.27, s=text, family="monospace", color=ink, **place)
            if received is None:
                axes.text(y=-line - 0.68, s=number, fontsize=6, color=BLUE, **place)
        axes.set(xlim=(0, LINE_WIDTH), ylim=(-line - 0.9, 0.1))
        axes.set_axis_off()

    def height(self, tokens: Tokens) -> float:
        """0.4 inches a line."""
        return 0.4 * (1 + _boxes(*self._shown(tokens))[-1][0]) + 0.2

    def look(self, raw: Any, tokens: Tokens) -> Look:
        """The text, or what the tokens say."""
        if isinstance(raw, str):
            return Look(text=raw)
        return Look(text=str(self.tokenizer.decode(tokens)))

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """The piece of text of each token."""
        return [shortened(text, MAX_NAME) for text in self.pieces(tokens)]

    def pieces(self, tokens: Tokens) -> list[str]:
        """The text of each token by itself; spaces are made visible, a byte that is no character is hexadecimal."""
        texts = []
        for ids in tokens.content.split(1):
            text = self.tokenizer.decode(ids)
            shown = text.translate(_VISIBLE)
            if "\N{REPLACEMENT CHARACTER}" in text or not shown.isprintable():
                shown = f"‹{int(ids.flatten()[0]):02x}›"
            texts.append(shown)
        return texts

    def _shown(self, tokens: Tokens) -> tuple[list[str], list[str]]:
        """Pieces and ids that are drawn."""
        tokens = tokens.at(slice(MAX_PIECES))
        return self.pieces(tokens), [str(int(ids.flatten()[0])) for ids in tokens.content.split(1)]


def _boxes(texts: list[str], ids: list[str]) -> list[tuple[int, float, float]]:
    """Line, left edge and width of each piece, in characters."""
    boxes = []
    line = 0
    left = 0.0
    for text, number in zip(texts, ids):
        width = max(len(text) + 0.9, 0.7 * len(number) + 0.7, 2.0)  # ids are smaller
        if left and left + width > LINE_WIDTH:
            line = line + 1
            left = 0.0
        boxes.append((line, left, width))
        left += width
    return boxes
