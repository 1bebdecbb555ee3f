"""Base of the renderers, which draws any tokenizer's tokens, and what they share: the colours of attention.

n tokens · f features
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from einops import rearrange
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seqkit.interfaces import Tokenizer, Tokens
from seqkit.report.figures import INK, STYLE, new_figure, svg

MAX_RECEIVED = 3.0
"""Times the average, where the colours of attention end: a single token would leave all others cold."""

HEAT: Any = {"cmap": colormaps["YlOrRd"], "norm": Normalize(0, MAX_RECEIVED, clip=True)}
WARM = ScalarMappable(**HEAT)
"""Colours of the attention that a token receives, the same in every figure."""

MAX_SIDE = 500
"""Rows of an adjacency matrix that are drawn."""

WIDTH = 7.5
"""Inches of a large picture."""


class Run(NamedTuple):
    """Tokens of one part of an example, with their renderer; tokens that are not joined are a run without a name."""

    name: str
    renderer: Renderer
    raw: Any
    tokens: Tokens


class Look(NamedTuple):
    """An example as a page shows it: as a picture, an SVG element; as its text; or as the cells of its row."""

    figure: str | None = None
    text: str | None = None
    cells: Sequence[tuple[str, str]] | None = None


class Renderer:
    """Draws and names the tokens of one tokenizer. This base class knows no modality: it draws content.

    is_text: True: reports write tokens as text (`pieces`); False: they draw small pictures.
    unit: what tokens are called. size: width and height of a small picture in inches. note: how to read it, in a
    sentence; may be empty.
    """

    is_text: ClassVar[bool] = False
    unit: ClassVar[str] = "tokens"
    size: ClassVar[tuple[float, float]] = (1.6, 1.6)
    note: ClassVar[str] = "A picture has a column for each token and a row for each feature."

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer

    def draw(
        self, axes: Axes, raw: Any, tokens: Tokens, received: np.ndarray | None = None
    ) -> None:
        """The example on axes; raw: None where only its tokens are known. Here: features over tokens.

        received: [n], attention that each token receives, in times an equal share, drawn over the example. Here: bars.
        """
        if received is None:
            draw_content(axes, tokens)
            return
        axes.bar(
            range(len(received)),
            received,
            width=0.9,
            color=WARM.to_rgba(received),
            edgecolor=INK,
            linewidth=0.3,
        )
        axes.axhline(1, color=INK, linestyle="--", linewidth=0.7)
        axes.set(xlabel="token", ylabel="times an equal share")
        whole_numbers(axes.xaxis)

    def mark_tokens(self, axes: Axes, raw: Any, tokens: Tokens) -> None:
        """Shows which token is where in an example that `draw` has drawn. Here: nothing."""

    def height(self, tokens: Tokens) -> float:
        """Inches of the example where it is `WIDTH` wide."""
        return 2.4

    def small_svg(self, raw: Any, tokens: Tokens) -> str:
        """A small picture of an example by itself, as an SVG element."""
        with rc_context(STYLE):
            figure, (axes,) = new_figure(*self.size)
            self.draw(axes, raw, tokens)
            if not axes.get_xlabel():
                axes.set_axis_off()
        return svg(figure)

    def look(self, raw: Any, tokens: Tokens) -> Look:
        """An example among others on a page. Here: a text as it is, all else as a small picture."""
        if isinstance(raw, str):
            return Look(text=raw)
        return Look(self.small_svg(raw, tokens))

    def runs(self, raw: Any, tokens: Tokens) -> Iterator[Run]:
        """The parts of an example with their renderers, in the order of the tokens. raw: None if it is not known."""
        yield Run("", self, raw, tokens)

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """A short name for each token, as on a heatmap. Here: its position where this has several axes, or index."""
        if tokens.positions.shape[1] > 1:
            return [",".join(f"{x:g}" for x in row) for row in tokens.positions.tolist()]
        return [str(i) for i in range(len(tokens))]

    def pieces(self, tokens: Tokens) -> list[str]:
        """The text of each id by itself. Raises AttributeError where the tokenizer has no `decode`."""
        tokenizer: Any = self.tokenizer
        return [str(tokenizer.decode(content)) for content in tokens.content[:, None]]


def draw_content(axes: Axes, tokens: Tokens) -> None:
    """Content as [f n]; ids are a single row."""
    content = tokens.content.numpy()
    if content.ndim == 1:
        matrix = rearrange(content, "n -> 1 n")
    else:
        matrix = rearrange(content, "n f -> f n")
    axes.imshow(matrix, aspect="auto", cmap="cividis", interpolation="nearest", origin="lower")
    axes.set(xlabel="token", ylabel="id" if content.ndim == 1 else "feature")
    whole_numbers(axes.xaxis)
    whole_numbers(axes.yaxis)
    if content.ndim == 1:
        axes.set_yticks([])  # a single row has no number


def draw_adjacency(axes: Axes, tokens: Tokens) -> None:
    """Edge type of each query (row) and key (column): white is masked, the palest colour the token itself.

    Of a large graph, the first `MAX_SIDE` tokens are drawn.
    """
    assert tokens.adjacency is not None
    edges = tokens.adjacency.edge_index.numpy()
    edge_type = tokens.adjacency.edge_type.numpy()
    side = min(len(tokens), MAX_SIDE)
    is_drawn = (edges < side).all(axis=0)
    source, target = edges[:, is_drawn]
    table = np.eye(side, dtype=np.int64)
    table[target, source] = edge_type[is_drawn] + 1
    axes.imshow(table, cmap="Blues", vmin=0, interpolation="nearest")
    axes.set(xlabel="key (edge source)", ylabel="query (edge target)")
    axes.set_title(f"adjacency: {len(edge_type):,} of {len(tokens) ** 2:,} pairs")
    whole_numbers(axes.xaxis)
    whole_numbers(axes.yaxis)


@rc_context(STYLE)
def picture(renderer: Renderer, raw: Any, tokens: Tokens) -> Figure:
    """How a raw example became tokens: each part with its tokens marked, beside its content and its adjacency."""
    runs = list(renderer.runs(raw, tokens))
    heights = [one.renderer.height(one.tokens) + 0.4 for one in runs]
    figure = Figure(figsize=(WIDTH + 3.5, sum(heights)), layout="constrained")
    for part, (name, own, own_raw, run) in zip(
        figure.subfigures(len(runs), 1, height_ratios=heights, squeeze=False)[:, 0], runs
    ):
        if own.is_text:
            columns = 1
        elif run.adjacency is None:
            columns = 2
        else:
            columns = 3
        example, *others = part.subplots(1, columns, squeeze=False)[0]
        own.draw(example, own_raw, run)
        own.mark_tokens(example, own_raw, run)
        count = f"{len(run):,} tokens of {type(own.tokenizer).__name__}"
        example.set_title(f"{name}: {count}" if name else count)
        if others:
            draw_content(others[0], run)
            others[0].set_title("content")
        if others[1:]:
            draw_adjacency(others[1], run)
    return figure


@rc_context(STYLE)
def attended(renderer: Renderer, raw: Any, tokens: Tokens, received: np.ndarray) -> Figure:
    """Attention that each token receives [n], in times an equal share, over the example; each part has its picture."""
    runs = list(renderer.runs(raw, tokens))
    heights = [one.renderer.height(one.tokens) for one in runs]
    figure, axes = new_figure(
        WIDTH + 0.8, sum(heights) + 0.3, rows=len(runs), height_ratios=heights
    )
    start = 0
    for ax, (name, own, own_raw, run) in zip(axes, runs):
        own.draw(ax, own_raw, run, received[start : start + len(run)])
        ax.set_title(name)
        ax.set_anchor("W")
        start += len(run)
    place: dict[str, Any] = {"ax": axes, "pad": 0.02, "shrink": min(1.0, 2.2 / sum(heights))}
    if len(runs) > 1:
        # pictures of several parts begin at the left, one alone stands beside the bar
        place["panchor"] = False
    bar = figure.colorbar(WARM, extend="max", aspect=18, **place)
    # no longer than the bar of a line of text
    bar.set_label("× average", fontsize=8)
    bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def whole_numbers(axis: Axis) -> None:
    """Ticks of an axis that counts, at whole numbers alone, even where it counts one thing."""
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
