"""Initial weights of a stack of blocks."""

from __future__ import annotations

from typing import cast

from torch import nn

from seqkit.nn.block import BaseBlock, Residual
from seqkit.nn.mixers.base import StateMixer

OUTPUT_PROJECTIONS = ("out_proj", "down_proj")
"""Names of the last linear layer of a branch, whose output is added to the residual stream."""


def init_weights(blocks: nn.ModuleList) -> None:
    """Initialize as GPT-2: normal with std 0.02, output projections divided by sqrt(2 depth), or zero (`zero_init`).

    Mixers that carry a state keep their own weights. Stochastic depth grows from the first block to the last.
    """
    mixers = [module for module in blocks.modules() if isinstance(module, StateMixer)]
    kept = {module for mixer in mixers for module in mixer.modules()}
    for name, module in blocks.named_modules():
        if module in kept:
            continue
        # a linear layer by another name
        pointwise = isinstance(module, nn.Conv1d) and module.kernel_size == (1,)
        if isinstance(module, nn.Linear) or pointwise:
            if name.endswith(OUTPUT_PROJECTIONS):
                shrink = (2 * len(blocks)) ** -0.5
            else:
                shrink = 1.0
            nn.init.normal_(module.weight, std=0.02 * shrink)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for layer, block in enumerate(blocks):
        for name, module in block.named_modules():
            if isinstance(module, Residual):
                module.set_drop_path(layer / max(len(blocks) - 1, 1))
            if cast(BaseBlock, block).zero_init and name.endswith(OUTPUT_PROJECTIONS):
                for parameter in module.parameters():
                    nn.init.zeros_(parameter)
