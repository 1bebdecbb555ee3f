"""bfloat16 weights (`trainer.precision bf16-true`)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from pytorch_lightning.plugins.precision import Precision


class BFloat16(Precision):
    """Weights, gradients and optimizer states in bfloat16; positions, masks and losses stay as they are.

    Lightning's own plugin converts every number of a batch and makes bfloat16 the default, which rounds positions: in
    bfloat16, 257 is 256. Here the model alone is converted, and its embedder converts the content that it is given.
    """

    precision = "bf16-true"

    def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Convert the model; metrics stay in float32."""
        module.model.to(torch.bfloat16)
        return module

    def forward_context(self) -> AbstractContextManager[Any]:
        """Context that leaves float32 the default."""
        return nullcontext()
