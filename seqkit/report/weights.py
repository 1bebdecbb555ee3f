"""Attention weights as matrices: all heads of all layers at a glance, and how widely each head reads.

n tokens that read · m tokens that are read · h heads · l layers
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import FuncNorm
from matplotlib.figure import Figure

from seqkit.report.figures import STYLE, blank

MAX_LABELLED = 40
"""Up to so many tokens each is named beside a matrix; of more, every tenth is numbered. Bare numbers: half as many."""

MAX_WIDTH = 24.0
"""Inches. Where named tokens would make the figure wider, they are numbered."""

TICKS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)


@rc_context(STYLE)
def grid(weights: Sequence[np.ndarray], readers: Sequence[str], read: Sequence[str], spread: np.ndarray) -> Figure:
    """Layers down, heads across, one scale of colour for all. spread: [l h] entropies, shown above each head.

    weights: [h n m] of each layer. The colour goes by the square root, from 0 to 1 whatever the weights, so that
    figures can be compared and 1/m is still seen; weights below 0 (of mixtures) are red.
    """
    depth, h = len(weights), max(len(layer) for layer in weights)
    names = [*readers, *read]
    numbers = names == [str(i) for i in (*range(len(readers)), *range(len(read)))]
    named = max(len(readers), len(read)) <= (MAX_LABELLED // 2 if numbers else MAX_LABELLED)
    pitch = 0.155 if max(map(len, names)) <= 3 else 0.185
    named = named and h * max(1.45, pitch * len(read)) <= MAX_WIDTH
    width, height = (max(1.45, pitch * len(tokens)) if named else 1.9 for tokens in (read, readers))
    figure, axes = blank(width * h + 1.6, (height + 0.24) * depth + 0.7, rows=depth, columns=h)
    top = max(1.0, max(float(np.abs(layer).max()) for layer in weights))
    signed = any(bool((layer < 0).any()) for layer in weights)
    norm = FuncNorm((_root, _square), vmin=-top if signed else 0.0, vmax=top)
    for layer, heads in enumerate(weights):
        for head in range(h):
            ax = axes[layer * h + head]
            if head >= len(heads):
                ax.set_axis_off()
                continue
            image = ax.imshow(
                heads[head], cmap="RdBu" if signed else "Blues", norm=norm, interpolation="nearest", aspect="auto"
            )
            ax.set_title(f"layer {layer} · head {head} · {_nats(spread[layer, head])}", fontsize=7.5, loc="center")
            ax.tick_params(length=0 if named else 2, labelbottom=layer == depth - 1, labelleft=head == 0)
            ax.spines[:].set_visible(True)
            turned = 90 if named and max(map(len, read)) > 2 else 0
            ax.set_xticks(*_ticks(read, named), rotation=turned, fontsize=7)
            ax.set_yticks(*_ticks(readers, named), fontsize=7)
    figure.supxlabel("is read", fontsize=8)
    figure.supylabel("reads", fontsize=8)
    ticks = [tick for tick in TICKS if tick in (0, 1) or tick >= 0.05 or height * depth > 3]
    ticks = [*(-tick for tick in ticks[:0:-1]), *ticks] if signed else ticks
    bar = figure.colorbar(
        image, ax=axes, label="weight", ticks=ticks, aspect=25, shrink=min(1, 3 / (height * depth)), pad=0.01
    )
    bar.ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=6.5)
    bar.ax.minorticks_off()
    return figure


@rc_context(STYLE)
def entropies(spread: np.ndarray, most: float) -> Figure:
    """A table in colour: [l h] nats, from 0 to `most`, which is what reading all alike would give."""
    depth, h = spread.shape
    figure, (axes,) = blank(max(3.2, 0.55 * h + 1.8), 0.42 * depth + 1.0)
    top = max(most, 1e-6)
    image = axes.imshow(spread, cmap="cividis", vmin=0, vmax=top, aspect="auto")
    for (layer, head), value in np.ndenumerate(spread):
        color = "#000000" if value > 0.55 * top else "#ffffff"
        axes.text(head, layer, f"{value:.2f}", ha="center", va="center", color=color, fontsize=7.5)
    axes.set_xticks(range(h))
    axes.set_yticks(range(depth))
    axes.tick_params(length=0)
    axes.set(xlabel="head", ylabel="layer")
    bar = figure.colorbar(image, ax=axes, label="nats", ticks=[0, most / 2, most])
    bar.ax.set_yticks([0, most / 2, most], ["0", f"{most / 2:.2f}", f"{most:.2f}"])
    return figure


def most_entropy(weights: Sequence[np.ndarray]) -> float:
    """Nats of heads that read alike all that they may: log m; where nobody reads a later token, the mean of log i."""
    n, m = weights[0].shape[1:]
    causal = n == m > 1 and not any(np.triu(layer, 1).any() for layer in weights)
    return float(np.log(np.arange(1, n + 1)).mean() if causal else np.log(m))


def _ticks(names: Sequence[str], named: bool) -> tuple[list[int], list[str]]:
    places = list(range(len(names))) if named else list(range(0, len(names), 10 if len(names) <= 100 else 50))
    return places, [names[i] if named else str(i) for i in places]


def _nats(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f} nats"


def _root(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.sqrt(np.abs(x))


def _square(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.square(x)
