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
"""At most this many tokens are named beside a heatmap; of more, every tenth is numbered. Bare numbers: half as many."""

MAX_WIDTH = 24.0
"""Inches. Where named tokens would make the figure wider, they are numbered."""

TICKS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)


@rc_context(STYLE)
def heatmaps(weights: Sequence[np.ndarray], queries: Sequence[str], keys: Sequence[str], entropy: np.ndarray) -> Figure:
    """Layers down, heads across, one colour scale for all. entropy: [l h] nats, shown above each head.

    weights: [h n m] of each layer. queries, keys: names of the tokens. The colour goes by the square root, from 0 to 1
    whatever the weights, so that figures can be compared and 1/m is still seen; weights below 0 (Linformer's) are red.
    """
    depth, h = len(weights), max(len(layer) for layer in weights)
    names = [*queries, *keys]
    numbers = names == [str(i) for i in (*range(len(queries)), *range(len(keys)))]
    named = max(len(queries), len(keys)) <= (MAX_NAMED // 2 if numbers else MAX_NAMED)
    pitch = 0.155 if max(map(len, names)) <= 3 else 0.185
    named = named and h * max(1.45, pitch * len(keys)) <= MAX_WIDTH
    width, height = (max(1.45, pitch * len(tokens)) if named else 1.9 for tokens in (keys, queries))
    figure, axes = new_figure(width * h + 1.6, (height + 0.24) * depth + 0.7, rows=depth, columns=h)
    top = max(1.0, max(float(np.abs(layer).max()) for layer in weights))
    signed = any(bool((layer < 0).any()) for layer in weights)
    norm = FuncNorm((_root, _square), vmin=-top if signed else 0.0, vmax=top)
    colors = "RdBu" if signed else "Blues"
    for layer, heads in enumerate(weights):
        for head in range(h):
            ax = axes[layer * h + head]
            if head >= len(heads):
                ax.set_axis_off()
                continue
            image = ax.imshow(heads[head], cmap=colors, norm=norm, interpolation="nearest", aspect="auto")
            nats = "–" if np.isnan(entropy[layer, head]) else f"{entropy[layer, head]:.2f} nats"
            ax.set_title(f"layer {layer} · head {head} · {nats}", fontsize=7.5, loc="center")
            ax.tick_params(length=0 if named else 2, labelbottom=layer == depth - 1, labelleft=head == 0)
            ax.spines[:].set_visible(True)
            rotation = 90 if named and max(map(len, keys)) > 2 else 0
            ax.set_xticks(*_ticks(keys, named), rotation=rotation, fontsize=7)
            ax.set_yticks(*_ticks(queries, named), fontsize=7)
    figure.supxlabel("key", fontsize=8)
    figure.supylabel("query", fontsize=8)
    ticks = [tick for tick in TICKS if tick in (0, 1) or tick >= 0.05 or height * depth > 3]
    ticks = [*(-tick for tick in ticks[:0:-1]), *ticks] if signed else ticks
    shrink = min(1, 3 / (height * depth))
    bar = figure.colorbar(image, ax=axes, label="attention weight", ticks=ticks, aspect=25, shrink=shrink, pad=0.01)
    bar.ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=6.5)
    bar.ax.minorticks_off()
    return figure


def uniform_entropy(weights: Sequence[np.ndarray]) -> float:
    """Entropy in nats of uniform attention: log m, or under a causal mask the mean of log 1 … log n."""
    n, m = weights[0].shape[1:]
    causal = n == m > 1 and not any(np.triu(layer, 1).any() for layer in weights)
    return float(np.log(np.arange(1, n + 1)).mean() if causal else np.log(m))


def _ticks(names: Sequence[str], named: bool) -> tuple[list[int], list[str]]:
    places = list(range(len(names))) if named else list(range(0, len(names), 10 if len(names) <= 100 else 50))
    return places, [names[i] if named else str(i) for i in places]


def _root(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.sqrt(np.abs(x))


def _square(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.square(x)
