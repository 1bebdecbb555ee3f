"""Clips of videos: the first frame of each tubelet, from left to right."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes

from seqkit.interfaces import Tokens
from seqkit.report.modality.base import Renderer
from seqkit.report.modality.image import ImageRenderer
from seqkit.tokenizers.video import Tubelets


class VideoRenderer(Renderer):
    """Frames beside each other, their tubelets coloured by the attention that they receive."""

    tokenizer: Tubelets
    size = (4.0, 1.0)
    note = "Each picture shows the first frame of each tubelet, in the order of time."

    def draw(self, axes: Axes, raw: Any, tokens: Tokens, received: np.ndarray | None = None) -> None:
        """As an image of all these frames is drawn."""
        self._of_images.draw(axes, raw, self._strip(tokens), received)

    def mark_tokens(self, axes: Axes, raw: Any, tokens: Tokens) -> None:
        """Lines between the tubelets."""
        self._of_images.mark_tokens(axes, raw, self._strip(tokens))

    @property
    def _of_images(self) -> ImageRenderer:
        return ImageRenderer(self.tokenizer.patches)

    def _strip(self, tokens: Tokens) -> Tokens:
        """The first frames of the tubelets, as the patches of one wide image."""
        time, row, column = tokens.positions.unbind(dim=1)
        content = tokens.content[:, : self.tokenizer.patches.spec.num_features]
        return Tokens(content, torch.stack([row, time * (column.max() + 1) + column], dim=1))
