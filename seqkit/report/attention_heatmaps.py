"""Attention weights as heatmaps: all heads of all layers at a glance.

n queries · m keys · h heads · l layers
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import FuncNorm
from matplotlib.figure import Figure

from seqkit.report.figures import STYLE, new_figure

MAX_NAMED = 40
"""At most this many tokens are named beside a heatmap; of more, every tenth is numbered."""

MAX_WIDTH = 24.0
"""Inches of the heads of a layer, side by side. Where named tokens would make them wider, they are numbered."""

MAX_COLUMNS = 4
PAGE = 15.0
"""At most so many heads stand in a row, and have so many inches, which a page shows without scrolling."""

EVEN = 0.98
"""Share of the largest entropy from which on a head is called even."""

TICKS = [0.0, 0.1, 0.2, 0.5, 1.0]


@rc_context(STYLE)
def heatmaps(
    weights: Sequence[np.ndarray], queries: Sequence[str], keys: Sequence[str], entropy: np.ndarray
) -> Figure:
    """Layers down, heads across in one or more rows, one colour scale for all. entropy: [l h] nats, above each head.

    weights: [h n m] of each layer. queries, keys: names of the tokens. The colour goes by the square root, from 0 to 1
    whatever the weights, so that figures can be compared and 1/m is still seen; weights below 0 (Linformer's) are red.
    """
    h = max(len(layer) for layer in weights)
    is_named = max(len(queries), len(keys)) <= MAX_NAMED and h * 0.18 * len(keys) <= MAX_WIDTH
    width = height = 1.9
    if is_named:
        width, height = (max(1.45, 0.18 * len(tokens)) for tokens in (keys, queries))
    columns = min(h, MAX_COLUMNS, int(PAGE / width))
    rows = ceil(h / columns)
    depth = len(weights) * rows
    figure, axes = new_figure(
        width * columns + 1.6, (height + 0.36) * depth + 0.7, rows=depth, columns=columns
    )
    top = max(1.0, max(float(np.abs(layer).max()) for layer in weights))
    is_signed = any(bool((layer < 0).any()) for layer in weights)
    lowest = 0.0
    ticks = TICKS
    colors = "Blues"
    if is_signed:
        lowest = -top
        ticks = [*(-tick for tick in TICKS[:0:-1]), *TICKS]
        colors = "RdBu"
    norm = FuncNorm((_root, _square), vmin=lowest, vmax=top)
    for ax in axes:
        ax.set_axis_off()
    for layer, heads in enumerate(weights):
        for head, matrix in enumerate(heads):
            ax = axes[layer * rows * columns + head]
            ax.set_axis_on()
            image = ax.imshow(
                matrix, cmap=colors, norm=norm, interpolation="nearest", aspect="auto"
            )
            nats = "–"
            if not np.isnan(entropy[layer, head]):
                nats = f"{entropy[layer, head]:.2f} of {_largest(matrix):.2f} nats"
                nats += ", even" * is_even(matrix)
            ax.set_title(f"layer {layer} · head {head}\n{nats}", fontsize=7.5, loc="center")
            is_last = layer == len(weights) - 1 and head + columns >= len(heads)
            ax.tick_params(
                length=0 if is_named else 2, labelbottom=is_last, labelleft=head % columns == 0
            )
            ax.spines[:].set_visible(True)
            rotation = 90 if is_named and max(map(len, keys)) > 2 else 0
            ax.set_xticks(*_ticks(keys, is_named), rotation=rotation, fontsize=7)
            ax.set_yticks(*_ticks(queries, is_named), fontsize=7)
    figure.supxlabel("key", fontsize=8)
    figure.supylabel("query", fontsize=8)
    bar = figure.colorbar(
        image, ax=axes, label="attention weight", shrink=min(1, 3 / (height * depth)), pad=0.01
    )
    bar.ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=6.5)
    bar.ax.minorticks_off()
    return figure


def is_even(weights: np.ndarray) -> bool:
    """Whether the rows of a head [n m] have on average 98 % of the largest entropy that their columns allow."""
    shares = []
    for row in weights:
        seen = row[row > 0]
        if len(seen) > 1:
            entropy = -(seen * np.log(seen / seen.sum())).sum() / seen.sum()
            shares.append(entropy / np.log(len(seen)))
    return bool(shares) and float(np.mean(shares)) >= EVEN


def _largest(weights: np.ndarray) -> float:
    """Mean entropy in nats of rows [n m] that attend alike to all that they see; the sink of a head is one more."""
    sinks = weights.sum(axis=1) < 1 - 1e-4
    return float(np.log((weights > 0).sum(axis=1) + sinks).mean())


def _ticks(names: Sequence[str], is_named: bool) -> tuple[list[int], list[str]]:
    if is_named:
        return list(range(len(names))), list(names)
    step = 10 if len(names) <= 100 else 50
    places = list(range(0, len(names), step))
    return places, [str(i) for i in places]


def _root(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.sqrt(np.abs(x))


def _square(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.square(x)
