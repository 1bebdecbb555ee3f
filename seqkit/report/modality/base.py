"""Base class of the renderers, with a generic default for any tokenizer, and what they share: the colours of attention.

n tokens · m keys · f features · h heads · l layers · H W image height and width
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from einops import rearrange, reduce
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seqkit.interfaces import Tokenizer, Tokens
from seqkit.report.figures import INK, STYLE, VERMILION, new_figure, svg

HEAT = colormaps["YlOrRd"]
FLAME, MAX_TINT = (1.0, 0.19, 0.0), 0.8
"""A grey picture is tinted with this colour, from not at all to that share, the more attention a place receives."""
TINT = LinearSegmentedColormap.from_list(
    "tint", [(0.5,) * 3, tuple(0.5 * (1 - MAX_TINT) + MAX_TINT * c for c in FLAME)]
)
"""The same over middle grey, for a colour bar."""

BAR_LABEL = "attention received (1: average)"
MAX_RECEIVED = 5.0
"""Times the average, where the colour scale ends: a single token would leave all others cold."""


@dataclass(frozen=True)
class AttentionSummary:
    """Self-attention of a stack on one example, as attention received per token.

    weights: [l h n m] attention weights. rollout: [n m], attention rollout through all layers; rows sum to 1.
    last_query: True: only the last query counts, since the next token is predicted from it alone.
    """

    weights: np.ndarray
    rollout: np.ndarray
    last_query: bool = False

    @property
    def by_rollout(self) -> np.ndarray:
        """[m]: attention that each token receives through all layers, in times the average token."""
        rows = self.rollout[-1:] if self.last_query else self.rollout
        return rows.mean(axis=0) * len(self.rollout)

    @property
    def by_head(self) -> np.ndarray:
        """[l h m]: attention that each token receives from each head, in times the average token."""
        rows = self.weights[:, :, -1:] if self.last_query else self.weights
        received: np.ndarray = reduce(rows, "l h n m -> l h m", "mean") * len(self.rollout)
        return received

    @property
    def rows(self) -> dict[str, np.ndarray]:
        """[m] by name: the whole stack, then the mean of each layer's heads."""
        layers = {f"layer {i}, mean of heads": heads.mean(axis=0) for i, heads in enumerate(self.by_head)}
        return {"all layers (rollout)": self.by_rollout} | layers

    @property
    def most(self) -> float:
        """The largest attention received, in times the average token."""
        return max(float(self.by_rollout.max()), float(self.by_head.max()))

    def scale(self) -> Normalize:
        """One colour scale for a whole figure."""
        return Normalize(0, min(max(2.0, self.most), MAX_RECEIVED), clip=True)


class Renderer:
    """Draws and names the tokens of one tokenizer. This base class knows no modality: it draws content and positions.

    is_text: True: reports write tokens as text (`pieces`); False: they draw thumbnails.
    has_picture: False: a thumbnail holds words, which colours over it would hide.
    overlay_note: further explanation of an overlay. size: width and height of a small picture in inches.
    note: how to read small pictures, in a sentence; may be empty.
    """

    is_text: ClassVar[bool] = False
    has_picture: ClassVar[bool] = True
    overlay_note: ClassVar[str] = ""
    size: ClassVar[tuple[float, float]] = (1.6, 1.6)
    note: ClassVar[str] = "A picture has a column for each token and a row for each feature."

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer

    def picture(self, raw: Any, tokens: Tokens) -> Figure:
        """Picture of how the raw example became `tokens`, for `seqkit inspect`. Here: content beside positions."""
        apart = {"figure.constrained_layout.wspace": 0.05}  # between the colour bar's label and the next axis
        with rc_context(STYLE | apart):
            axes: list[Axes]
            figure, axes = new_figure(8.6, 3.6, columns=2, width_ratios=[3, 1])
            ids = tokens.content.ndim == 1
            image = axes[0].imshow(content_matrix(tokens), aspect="auto", cmap="cividis", interpolation="nearest")
            axes[0].set(xlabel="token", ylabel="id" if ids else "feature")
            axes[0].set_title(f"content: {len(tokens)} tokens of {type(self.tokenizer).__name__}")
            figure.colorbar(image, ax=axes[0], label="id" if ids else "value", pad=0.01)
            for counting in (axes[0].xaxis, axes[0].yaxis, axes[1].xaxis):
                whole_numbers(counting)
            if ids:
                axes[0].set_yticks([])  # a single row has no number
            if tokens.positions.shape[1]:
                for axis, values in enumerate(tokens.positions.T.numpy()):
                    axes[1].plot(values, label=f"axis {axis}", marker=".", linewidth=0.8)
                axes[1].set(xlabel="token", ylabel="position")
                axes[1].legend()
            else:
                axes[1].text(0.5, 0.5, "no positions:\nthese tokens have no order", ha="center", va="center")
                axes[1].set_axis_off()
        return figure

    def small_svg(self, raw: Any, tokens: Tokens) -> str:
        """A small picture of an example by itself, as an SVG element. Here: its thumbnail."""
        with rc_context(STYLE):
            figure, (axes,) = new_figure(*self.size)
            axes.set_axis_off()
            self.thumbnail(tokens, axes, raw)
        return svg(figure)

    def thumbnail(self, tokens: Tokens, axes: Axes, raw: Any = None) -> None:
        """A small picture on axes without scales; raw: the raw example, if known. Here: features over tokens."""
        axes.imshow(content_matrix(tokens), aspect="auto", cmap="cividis", interpolation="nearest", origin="lower")
        axes.set(xticks=[], yticks=[])

    def overlay(self, raw: Any, tokens: Tokens, summary: AttentionSummary) -> Figure:
        """The attention that each token receives, drawn on the example. Here: bars over the tokens."""
        with rc_context(STYLE):
            figure, axes = new_figure(7.5, 1.5 * len(summary.rows) + 0.3, rows=len(summary.rows))
            for ax, (name, received) in zip(axes, summary.rows.items()):
                ax.bar(range(len(received)), received, width=0.9, color=VERMILION)
                ax.axhline(1, color=INK, linestyle="--", linewidth=0.7)
                ax.set_title(name)
                whole_numbers(ax.xaxis)
            axes[-1].set(xlabel="token", ylabel="times the average")
        return figure

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """A short name for each token, as on a heatmap. Here: its position where this has several axes, or index."""
        if tokens.positions.shape[1] > 1:
            return [",".join(f"{x:g}" for x in row) for row in tokens.positions.tolist()]
        return [str(i) for i in range(len(tokens))]

    def on_a_grid(self, tokens: Tokens, values: np.ndarray) -> np.ndarray:
        """Values of tokens [n] as a picture: by row and column where positions have two axes, else one row."""
        if tokens.positions.shape[1] != 2:
            return values[None]
        place = tokens.positions.long().numpy()
        grid = np.zeros(place.max(axis=0) + 1)
        grid[place[:, 0], place[:, 1]] = values
        return grid

    def pieces(self, tokens: Tokens) -> list[str]:
        """The text of each id by itself. Raises AttributeError where the tokenizer has no `decode`."""
        tokenizer: Any = self.tokenizer
        return [str(tokenizer.decode(content)) for content in tokens.content[:, None]]


def whole_numbers(axis: Axis) -> None:
    """Ticks of an axis that counts, at whole numbers alone, even where it counts one thing."""
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


# ── colours of attention ─────────────────────────────────────────────────────────────────────────────────────────────


def content_matrix(tokens: Tokens) -> np.ndarray:
    """Content as [f n]; ids are a single row."""
    content = tokens.content.numpy()
    return rearrange(content, "n -> 1 n") if content.ndim == 1 else rearrange(content, "n f -> f n")


def blend(grey: np.ndarray, received: np.ndarray, scale: Normalize) -> np.ndarray:
    """Colours [H W 3] of a grey picture [H W] in [0, 1], tinted by the attention received [H W]."""
    share = MAX_TINT * np.asarray(scale(received))[..., None]
    blended: np.ndarray = grey[..., None] * (1 - share) + np.array(FLAME) * share
    return blended


def text_color(heat: float) -> str:
    """Colour of text on HEAT at `heat` in [0, 1]."""
    return "#ffffff" if heat > 0.7 else "#1a1a1a"


def color_bar(
    figure: Figure, axes: Sequence[Axes], summary: AttentionSummary, *, height: float, colors: Colormap = HEAT
) -> None:
    """The summary's scale as a colour bar beside `axes`, which are `height` inches tall together."""
    bar = figure.colorbar(
        ScalarMappable(summary.scale(), colors),
        ax=list(axes),
        extend="max" if summary.most > MAX_RECEIVED else "neither",
        aspect=18,
        shrink=min(1.0, 2.2 / height),
        pad=0.02,
    )
    bar.set_label(BAR_LABEL if height > 1.6 else "times average", fontsize=7)
    bar.ax.tick_params(labelsize=6.5)
    bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True))
