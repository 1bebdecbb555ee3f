"""Activation checkpointing: blocks whose activations are computed again in the backward pass instead of kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from seqkit.backbones.reversible import Reversible
from seqkit.errors import UsageError


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Blocks of a model's stacks, in order, each once: all lists of modules that are called `blocks`."""
    stacks = (getattr(module, "blocks", None) for module in model.modules())
    found = (block for stack in stacks if isinstance(stack, nn.ModuleList) for block in stack)
    return [*dict.fromkeys(found)]


@contextmanager
def activation_checkpointing(model: nn.Module, *, enabled: bool = True) -> Iterator[None]:
    """Keep only the inputs of each block inside this context (Chen et al. 2016, arXiv 1604.06174, section 4).

    The rest is computed again, with the same random numbers, when the backward pass arrives at the block: gradients
    are equal to the bit, and a training step computes the forward pass of its blocks twice.
    Raises UsageError for a model without blocks, or one that computes its activations again already.
    """
    blocks = checked_blocks(model) if enabled else []
    for block in blocks:
        # on the instance: a wrapping module would change the names of all weights
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


def checked_blocks(model: nn.Module) -> list[nn.Module]:
    """Blocks of a model that can be computed again. Raises UsageError as `activation_checkpointing`."""
    name = type(getattr(model, "backbone", model)).__name__
    if any(isinstance(module, Reversible) for module in model.modules()):
        raise UsageError(
            f"trainer.activation_checkpointing: {name} computes its activations again already; leave it out"
        )
    if not (blocks := blocks_of(model)):
        raise UsageError(
            f"trainer.activation_checkpointing: {name} has no blocks to compute again; leave it out, or use Transformer"
        )
    return blocks
