"""Attention weights as heatmaps: all heads of all layers at a glance.

n queries · m keys · h heads · l layers
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import FuncNorm
from matplotlib.figure import Figure

from seqkit.report.figures import STYLE, new_figure

MAX_NAMED = 40
"""At most this many tokens are named beside a heatmap; of more, every tenth is numbered."""

MAX_WIDTH = 24.0
"""Inches. Where named tokens would make the figure wider, they are numbered."""

TICKS = [0.0, 0.1, 0.2, 0.5, 1.0]


@rc_context(STYLE)
def heatmaps(
    weights: Sequence[np.ndarray], queries: Sequence[str], keys: Sequence[str], entropy: np.ndarray
) -> Figure:
    """Layers down, heads across, one colour scale for all. entropy: [l h] nats, shown above each head.

    weights: [h n m] of each layer. queries, keys: names of the tokens. The colour goes by the square root, from 0 to 1
    whatever the weights, so that figures can be compared and 1/m is still seen; weights below 0 (Linformer's) are red.
    """
    depth = len(weights)
    h = max(len(layer) for layer in weights)
    is_named = max(len(queries), len(keys)) <= MAX_NAMED and h * 0.18 * len(keys) <= MAX_WIDTH
    width = height = 1.9
    if is_named:
        width, height = (max(1.45, 0.18 * len(tokens)) for tokens in (keys, queries))
    figure, axes = new_figure(width * h + 1.6, (height + 0.24) * depth + 0.7, rows=depth, columns=h)
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
            ax = axes[layer * h + head]
            ax.set_axis_on()
            image = ax.imshow(
                matrix, cmap=colors, norm=norm, interpolation="nearest", aspect="auto"
            )
            nats = "–"
            if not np.isnan(entropy[layer, head]):
                nats = f"{entropy[layer, head]:.2f} nats"
            ax.set_title(f"layer {layer} · head {head} · {nats}", fontsize=7.5, loc="center")
            ax.tick_params(
                length=0 if is_named else 2, labelbottom=layer == depth - 1, labelleft=head == 0
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
