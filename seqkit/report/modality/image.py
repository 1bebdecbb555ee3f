"""Images: each token as its patch.

c channels · n tokens · H W image height and width · p q patch height and width
"""

from __future__ import annotations

from typing import Any

import numpy as np
from einops import rearrange, repeat
from matplotlib.axes import Axes

from seqkit.interfaces import Tokens
from seqkit.report.figures import BLUE
from seqkit.report.modality.base import HEAT, MAX_RECEIVED, Renderer
from seqkit.tokenizers.image import Patches


class ImageRenderer(Renderer):
    """The image, its patches coloured by the attention that they receive."""

    tokenizer: Patches
    note = ""

    def draw(
        self, axes: Axes, raw: Any, tokens: Tokens, received: np.ndarray | None = None
    ) -> None:
        """The image in colour if it has three channels; otherwise, and below attention, their mean in grey."""
        image = np.clip(self.tokenizer.pixels(tokens).numpy(), 0, 1)
        if len(image) == 3 and received is None:
            axes.imshow(rearrange(image, "c H W -> H W c"), interpolation="nearest")
        else:
            axes.imshow(image.mean(axis=0), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        if received is not None:
            p, q = self.tokenizer.patch
            large = repeat(self._on_grid(tokens, received), "r s -> (r p) (s q)", p=p, q=q)
            # the picture shows through where little attention goes
            cold = 0.55 * np.clip(large / MAX_RECEIVED, 0.1, 1)
            axes.imshow(large, **HEAT, alpha=cold, interpolation="nearest")
        axes.set(xticks=[], yticks=[])

    def mark_tokens(self, axes: Axes, raw: Any, tokens: Tokens) -> None:
        """Lines between the patches."""
        height, width = self._grid_size(tokens)
        p, q = self.tokenizer.patch
        for y in range(1, height):
            axes.axhline(y * p - 0.5, color=BLUE, linewidth=0.6)
        for x in range(1, width):
            axes.axvline(x * q - 0.5, color=BLUE, linewidth=0.6)

    def height(self, tokens: Tokens) -> float:
        """3 inches: an image is square more often than not."""
        return 3.0

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """Row and column of each patch; the learned tokens before them are numbered."""
        places = iter(self.tokenizer.patches(tokens).positions.int().tolist())
        names = [f"+{i}" for i in range(len(tokens))]
        for i in self.tokenizer.is_patch(tokens).nonzero()[:, 0].tolist():
            names[i] = ",".join(map(str, next(places)))
        return names

    def _on_grid(self, tokens: Tokens, values: np.ndarray) -> np.ndarray:
        """Values of tokens [n] by row and column of the patches, without those of learned tokens."""
        rows, columns = self.tokenizer.patches(tokens).positions.long().numpy().T
        grid = np.zeros(self._grid_size(tokens))
        grid[rows, columns] = values[self.tokenizer.is_patch(tokens).numpy()]
        return grid

    def _grid_size(self, tokens: Tokens) -> tuple[int, int]:
        """Rows and columns of patches."""
        height, width = (
            int(x) + 1 for x in self.tokenizer.patches(tokens).positions.max(dim=0).values
        )
        return height, width
