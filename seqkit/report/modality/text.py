"""Text: each token as its piece of text.

n tokens
"""

from __future__ import annotations

from textwrap import fill, shorten
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from seqkit.interfaces import Tokens
from seqkit.report.figures import BLUE, INK, STYLE, new_figure
from seqkit.report.modality.base import HEAT, AttentionSummary, Renderer, color_bar, text_color
from seqkit.tokenizers.text import Text

MAX_PIECES = 72
"""Tokens of a text that its picture shows."""

MAX_NAME = 16
"""Characters of a token's name."""

MAX_SMALL = 84
"""Characters of a text that its thumbnail shows."""

LINE_WIDTH = 64.0
"""Width of a picture in characters."""

_TINTS = ("#cfe3f3", "#fbe3c0", "#cdeadf", "#f3dbe8")
_VISIBLE = str.maketrans({"\n": "↵", " ": "␣", "\t": "⇥", "\r": "␍"})


class TextRenderer(Renderer):
    """Pieces of text in boxes, with their ids and positions, or coloured by the attention that they receive."""

    tokenizer: Text
    is_text = True
    has_picture = False

    def picture(self, raw: Any, tokens: Tokens) -> Figure:
        """A box for each piece of text, its id and position below."""
        texts = self.pieces(tokens.at(slice(MAX_PIECES)))
        ids = [str(i) for i in tokens.content[:MAX_PIECES].tolist()]
        # widths in characters of the monospaced pieces; ids are smaller
        widths = [max(len(text) + 0.9, 0.7 * len(i) + 0.7, 2.0) for text, i in zip(texts, ids)]
        lines = _wrap(widths, LINE_WIDTH)
        number = f"{len(tokens):,} tokens" if len(tokens) == len(texts) else f"{len(texts)} of {len(tokens):,} tokens"
        with rc_context(STYLE):
            figure, (axes,) = new_figure(9.2, 0.75 + 0.72 * len(lines))
            for line, members in enumerate(lines):
                left = 0.0
                for i in members:
                    style: dict[str, Any] = {"facecolor": _TINTS[i % 4], "edgecolor": INK, "linewidth": 0.5}
                    axes.add_patch(Rectangle((left + 0.06, -line - 0.44), widths[i] - 0.12, 0.44, **style))
                    middle = left + widths[i] / 2
                    axes.text(middle, -line - 0.23, texts[i], ha="center", va="center", family="monospace", fontsize=11)
                    axes.text(middle, -line - 0.55, ids[i], ha="center", va="center", fontsize=7.5, color=BLUE)
                    position = ", ".join(f"{p:g}" for p in tokens.positions[i].tolist())
                    axes.text(middle, -line - 0.73, position, ha="center", va="center", fontsize=6.5)
                    left += widths[i]
            axes.set(xlim=(-0.3, LINE_WIDTH + 0.5), ylim=(-len(lines) + 0.15, 0.15))
            axes.set_axis_off()
            axes.set_title(
                f"{type(self.tokenizer).__name__}: {number}, vocabulary {self.tokenizer.spec.vocab_size:,}"
                " · box: piece of text · below: id (blue), position"
            )
        return figure

    def thumbnail(self, tokens: Tokens, axes: Axes, raw: Any = None) -> None:
        """The beginning of the text."""
        text = shorten(self.tokenizer.decode(tokens), width=MAX_SMALL, placeholder="…")
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, fill(text, 12), transform=axes.transAxes, ha="center", va="center", fontsize=8)

    def overlay(self, raw: Any, tokens: Tokens, summary: AttentionSummary) -> Figure:
        """The text once for each row of the summary, its pieces coloured."""
        texts, scale = self.token_names(raw, tokens), summary.scale()
        widths = [max(len(text) + 0.5, 1.6) for text in texts]
        lines = _wrap(widths, LINE_WIDTH + 0.5)
        width = max(22.0, *(sum(widths[i] for i in line) for line in lines))
        height = 0.3 * len(summary.rows) * (len(lines) + 0.4)
        with rc_context(STYLE):
            figure, (axes,) = new_figure(0.125 * (width + 17) + 0.9, height + 0.3)
            y = 0.0
            for name, received in summary.rows.items():
                axes.text(-2.4, y - 0.5, name, ha="right", va="center", fontsize=8)
                for line in lines:
                    left = 0.0
                    axes.text(-0.5, y - 0.5, str(line[0]), ha="right", va="center", fontsize=6)
                    for token in line:
                        heat = float(scale(received[token]))
                        box = Rectangle((left, y - 0.94), widths[token], 0.88, facecolor=HEAT(heat), linewidth=0)
                        axes.add_patch(box)
                        style: dict[str, Any] = {
                            "ha": "center",
                            "va": "center",
                            "family": "monospace",
                            "color": text_color(heat),
                        }
                        axes.text(left + widths[token] / 2, y - 0.5, texts[token], fontsize=8, **style)
                        left += widths[token]
                    y -= 1.0
                y -= 0.4
            axes.set(xlim=(-17, width), ylim=(y + 0.3, 0.1))
            axes.set_axis_off()
            color_bar(figure, [axes], summary, height=height)
        return figure

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """The piece of text of each token."""
        return [text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…" for text in self.pieces(tokens)]

    def pieces(self, tokens: Tokens) -> list[str]:
        """The text of each token by itself; spaces are made visible, a byte that is no character is hexadecimal."""
        texts = []
        for i in tokens.content.tolist():
            text = self.tokenizer.decode([i])
            broken = "\N{REPLACEMENT CHARACTER}" in text or not text.translate(_VISIBLE).isprintable()
            texts.append(f"‹{i:02x}›" if broken else text.translate(_VISIBLE))
        return texts


def _wrap(widths: list[float], limit: float) -> list[list[int]]:
    """Indices of pieces, in lines no wider than `limit`."""
    lines: list[list[int]] = [[]]
    for i in range(len(widths)):
        if lines[-1] and sum(widths[j] for j in lines[-1]) + widths[i] > limit:
            lines.append([])
        lines[-1].append(i)
    return lines
