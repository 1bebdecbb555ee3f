"""Attention weights as matrices: all heads of all layers at a glance, and how widely each head reads.

n tokens that read · m tokens that are read · h heads · l layers
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from seqkit.report.figures import STYLE, blank

MAX_LABELLED = 40
"""Up to so many tokens each is named beside a matrix."""


@rc_context(STYLE)
def grid(weights: Sequence[np.ndarray], readers: Sequence[str], read: Sequence[str], spread: np.ndarray) -> Figure:
    """Layers down, heads across. weights: [h n m] of each layer. spread: [l h] entropies, shown above each head."""
    depth, h = len(weights), max(len(layer) for layer in weights)
    labelled = max(len(readers), len(read)) <= MAX_LABELLED
    size = max(1.35, 0.105 * max(len(readers), len(read)) + 0.35) if labelled else 1.6
    figure, axes = blank(max(3.4, size * h + 0.4), (size + 0.22) * depth + 0.3, rows=depth, columns=h)
    for layer, heads in enumerate(weights):
        for head in range(h):
            ax = axes[layer * h + head]
            if head >= len(heads):
                ax.set_axis_off()
                continue
            ax.imshow(heads[head], cmap="Blues", vmin=0, interpolation="nearest", aspect="auto")
            title = f"layer {layer} · head {head} · {spread[layer, head]:.2f}"
            ax.set_title(title, fontsize=7, loc="center")
            ax.tick_params(length=0)
            ax.spines[:].set_visible(True)
            if labelled:
                ax.set_xticks(
                    range(len(read)), read if layer == depth - 1 else [""] * len(read), rotation=90, fontsize=6
                )
                ax.set_yticks(range(len(readers)), readers if head == 0 else [""] * len(readers), fontsize=6)
            else:
                ax.set(xticks=[], yticks=[])
    axes[(depth - 1) * h].set_xlabel("read", fontsize=7)
    axes[(depth - 1) * h].set_ylabel("reader", fontsize=7)
    return figure


@rc_context(STYLE)
def entropies(spread: np.ndarray) -> Figure:
    """A table in colour: [l h] nats."""
    depth, h = spread.shape
    figure, (axes,) = blank(max(2.6, 0.55 * h + 1.4), 0.42 * depth + 1.0)
    top = max(float(spread.max()), 1e-6)
    image = axes.imshow(spread, cmap="cividis", vmin=0, vmax=top, aspect="auto")
    for (layer, head), value in np.ndenumerate(spread):
        color = "#ffffff" if value < 0.55 * top else "#000000"
        axes.text(head, layer, f"{value:.2f}", ha="center", va="center", color=color, fontsize=7.5)
    axes.set_xticks(range(h))
    axes.set_yticks(range(depth))
    axes.tick_params(length=0)
    axes.set(xlabel="head", ylabel="layer")
    figure.colorbar(image, ax=axes, label="entropy (nats)")
    return figure
