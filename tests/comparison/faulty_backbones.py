"""Backbones that fail while they train: one diverges, one kills its process, one runs out of memory.

A plug-in, so that worker processes have them too.
"""

import multiprocessing
import os
import signal

import torch
from einops import rearrange
from torch import nn

from seqkit import Backbone, register


def in_worker():
    """Not where the comparison is planned, which takes a training step of each candidate, too."""
    return multiprocessing.parent_process() is not None


class _Plain(Backbone):
    """A linear layer of each token."""

    def __init__(self, dim: int, depth: int = 1, *, causal: bool = False):
        super().__init__()
        self.dim, self.depth, self.causal = dim, depth, causal
        self.layers = nn.Sequential(*(nn.Linear(dim, dim) for _ in range(depth)))

    def forward(self, embedded, cache=None):
        self.fail(embedded.hidden)
        return self.layers(embedded.hidden).masked_fill(
            ~rearrange(embedded.valid, "b n -> b n 1"), 0.0
        )

    def fail(self, hidden):
        """Nothing."""


@register("backbone")
class Plain(_Plain):
    """It does not fail."""


@register("backbone")
class Diverges(_Plain):
    """Its weights become NaN at once."""

    def fail(self, hidden):
        if self.training and not hidden.is_meta and hidden.requires_grad:
            with torch.no_grad():
                self.layers[0].bias.fill_(torch.nan)


@register("backbone")
class KillsItsProcess(_Plain):
    """As the system does when memory is short."""

    def fail(self, hidden):
        if in_worker():
            os.kill(os.getpid(), signal.SIGKILL)


@register("backbone")
class NeedsTooMuch(_Plain):
    """torch's own error for a tensor that no memory holds."""

    def fail(self, hidden):
        if in_worker():
            torch.empty(2**60)
