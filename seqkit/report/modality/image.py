"""Images: each token as its patch.

c channels · n tokens · l layers · h heads · H W image height and width · p q patch height and width
"""

from __future__ import annotations

from typing import Any

import numpy as np
from einops import rearrange, repeat
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from seqkit.interfaces import Tokens
from seqkit.report.figures import BLUE, INK, STYLE, VERMILION, new_figure
from seqkit.report.modality.base import TINT, AttentionSummary, Renderer, blend, color_bar
from seqkit.tokenizers.image import Patches


class ImageRenderer(Renderer):
    """The image with its grid of patches, or tinted by the attention that they receive."""

    tokenizer: Patches
    note = ""

    def picture(self, raw: Any, tokens: Tokens) -> Figure:
        """The image cut into patches, the patch of most contrast, and that patch's vector."""
        (p, q), patches = self.tokenizer.patch, self.tokenizer.patches(tokens)
        chosen, k = int(patches.content.std(dim=1).argmax()), len(tokens) - len(patches)
        row, column = patches.positions[chosen].int().tolist()
        with rc_context(STYLE):
            figure, (whole, patch, vector) = new_figure(10.2, 3.7, columns=3, width_ratios=[1.25, 0.9, 1.1])
            _show(whole, self.tokenizer.pixels(tokens).numpy())
            height, width = _grid_size(patches)
            whole.set_xticks(np.arange(width) * q + (q - 1) / 2, [str(x) for x in range(width)], fontsize=6)
            whole.set_yticks(np.arange(height) * p + (p - 1) / 2, [str(y) for y in range(height)], fontsize=6)
            for y in range(1, height):
                whole.axhline(y * p - 0.5, color=BLUE, linewidth=0.6)
            for x in range(1, width):
                whole.axvline(x * q - 0.5, color=BLUE, linewidth=0.6)
            whole.add_patch(
                Rectangle((column * q - 0.5, row * p - 0.5), q, p, fill=False, edgecolor=VERMILION, linewidth=2.2)
            )
            on_axes = self.tokenizer.positions == "grid"
            axes = [f" (position axis {axis})" if on_axes else "" for axis in range(2)]
            whole.set(xlabel=f"column{axes[1]}", ylabel=f"row{axes[0]}")
            before = f"{k} learned tokens + " if k else ""
            whole.set_title(f"{height * p}x{width * q} pixels → {before}{len(patches)} patches of {p}x{q}")
            image = self.tokenizer.pixels(tokens)
            pixels = image[:, row * p : (row + 1) * p, column * q : (column + 1) * q].numpy()
            _show(patch, pixels)
            patch.set(xticks=[], yticks=[])
            patch.spines[:].set_visible(False)
            patch.set_title(f"token {k + chosen}, position ({row}, {column})", color=VERMILION)
            if len(pixels) == 1 and p * q <= 64:
                for (y, x), value in np.ndenumerate(pixels[0]):
                    color = "#000000" if value > 0.5 else "#ffffff"
                    patch.text(x, y, f"{value:.1f}", ha="center", va="center", color=color, fontsize=7)
            values = patches.content[chosen].numpy()
            vector.bar(range(len(values)), values, width=0.9, color=BLUE)
            vector.axhline(0, color=INK, linewidth=0.6)
            vector.xaxis.set_major_locator(MaxNLocator(integer=True))
            vector.set(xlabel="feature", ylabel="value (model input)")
            vector.set_title(f"its vector: f = {self.tokenizer.channels}·{p}·{q} = {len(values)}")
        return figure

    def thumbnail(self, tokens: Tokens, axes: Axes, raw: Any = None) -> None:
        """The image."""
        _show(axes, self.tokenizer.pixels(tokens).numpy())
        axes.set(xticks=[], yticks=[])

    def overlay(self, raw: Any, tokens: Tokens, summary: AttentionSummary) -> Figure:
        """The image, tinted by rollout and by each head of each layer."""
        image = np.clip(self.tokenizer.pixels(tokens).numpy(), 0, 1)
        layers, heads, _ = summary.by_head.shape
        rows, columns = max(layers, 2), heads + 1
        side = 1.3 if layers * heads <= 64 else 0.9
        shape = min(max(image.shape[1] / image.shape[2], 0.4), 2.5)
        with rc_context(STYLE):
            figure, axes = new_figure(
                side * columns + 0.9, (side * shape + 0.2) * rows + 0.1, rows=rows, columns=columns
            )
            for ax in axes:
                ax.set_axis_off()
            _show(axes[0], image)
            axes[0].set_title("the image", fontsize=7.5, loc="center")
            self._tinted(axes[columns], image, tokens, summary.by_rollout, summary)
            axes[columns].set_title("all layers (rollout)", fontsize=7.5, loc="center")
            for layer, head in np.ndindex(layers, heads):
                ax = axes[layer * columns + head + 1]
                self._tinted(ax, image, tokens, summary.by_head[layer, head], summary)
                ax.set_title(f"layer {layer} · head {head}", fontsize=7, loc="center")
            color_bar(figure, axes, summary, height=(side * shape + 0.2) * rows, colors=TINT)
        return figure

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """Row and column of each patch; the learned tokens before them are numbered."""
        places = iter(self.tokenizer.patches(tokens).positions.int().tolist())
        is_patch = self.tokenizer.is_patch(tokens).tolist()
        return [",".join(map(str, next(places))) if one else f"+{i}" for i, one in enumerate(is_patch)]

    def on_a_grid(self, tokens: Tokens, values: np.ndarray) -> np.ndarray:
        """Values of tokens [n] by row and column of the patches, without those of learned tokens."""
        own: np.ndarray = values[self.tokenizer.is_patch(tokens).numpy()]
        return super().on_a_grid(self.tokenizer.patches(tokens), own)

    def _tinted(
        self, axes: Axes, image: np.ndarray, tokens: Tokens, received: np.ndarray, summary: AttentionSummary
    ) -> None:
        """An image [c H W] in grey, each patch tinted by the attention that it receives [n]."""
        p, q = self.tokenizer.patch
        large = repeat(self.on_a_grid(tokens, received), "r s -> (r p) (s q)", p=p, q=q)
        axes.imshow(blend(image.mean(axis=0), large, summary.scale()), interpolation="nearest")


def _grid_size(patches: Tokens) -> tuple[int, int]:
    """Rows and columns of patches."""
    height, width = (int(x) + 1 for x in patches.positions.max(dim=0).values)
    return height, width


def _show(axes: Axes, image: np.ndarray) -> None:
    """An image [c H W]: in colour if it has three channels, the mean of its channels in grey otherwise."""
    image = np.clip(image, 0, 1)
    if len(image) == 3:
        axes.imshow(rearrange(image, "c H W -> H W c"), interpolation="nearest")
    else:
        axes.imshow(image.mean(axis=0), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
