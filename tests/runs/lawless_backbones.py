"""Backbones that break one law each, and sound ones that are like them. A plug-in, so that commands have them too."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from seqkit import Backbone, register


class Recurrent(Backbone):
    """A GRU over what `before` makes of the embeddings; `after` changes its states."""

    is_recurrent = True

    def __init__(self, dim: int, depth: int = 1, *, causal: bool = True):
        super().__init__()
        self.dim = dim
        self.depth = depth
        self.causal = causal
        self.layers = nn.GRU(dim, dim, depth, batch_first=True, dropout=0.3 if depth > 1 else 0.0)
        self.norm = nn.BatchNorm1d(dim)
        self.branch = nn.Linear(dim, dim)

    def forward(self, embedded, cache=None):
        states, _ = self.layers(self.before(embedded.hidden))
        return self.after(states).masked_fill(~rearrange(embedded.valid, "b n -> b n 1"), 0.0)

    def before(self, hidden):
        return hidden

    def after(self, states):
        return states


def following(hidden):
    """The embedding of the token that follows, zero behind the last."""
    return F.pad(hidden[:, 1:], [0, 0, 0, 1])


def normalised(norm, states):
    return rearrange(norm(rearrange(states, "b n d -> b d n")), "b d n -> b n d")


# ── sound ones ───────────────────────────────────────────────────────────────────────────────────────────────────────


@register("backbone")
class ReadsThePast(Recurrent):
    """It adds the embedding of the token before."""

    def before(self, hidden):
        return hidden + F.pad(hidden[:, :-1], [0, 0, 1, 0])


@register("backbone")
class DropsItsBranch(Recurrent):
    """Stochastic depth of a probability that nothing can set to zero."""

    def after(self, states):
        kept = torch.rand(len(states), 1, 1, dtype=states.dtype) > (0.5 if self.training else -1)
        return states + kept * self.branch(states)


@register("backbone")
class RoundsToFloat32(Recurrent):
    """Its branch has kernels of float32 alone."""

    def after(self, states):
        weight = self.branch.weight.float()
        if states.dtype == torch.float64:
            raise RuntimeError("no kernel of float64")
        return states + states.float() @ weight


@register("backbone")
class NormalisesTokens(Recurrent):
    """Batch norm that does not train, as in a frozen model."""

    def after(self, states):
        return normalised(self.norm.eval(), states)


# ── those that break a law ───────────────────────────────────────────────────────────────────────────────────────────


@register("backbone")
class AddsTheNext(Recurrent):
    """It adds the embedding of the next token."""

    def before(self, hidden):
        return hidden + following(hidden)


@register("backbone")
class AddsTheNextLate(Recurrent):
    """It does so after column 64 alone."""

    def before(self, hidden):
        return torch.cat([hidden[:, :64], (hidden + following(hidden))[:, 64:]], dim=1)


@register("backbone")
class AddsTheNextInFloat32(RoundsToFloat32):
    """It does so where no float64 shows it."""

    def before(self, hidden):
        return hidden + following(hidden)


@register("backbone")
class AddsTheNextAtRandom(DropsItsBranch):
    """It adds the next token, in training alone, in a branch that is often left out."""

    def after(self, states):
        return super().after(states + following(states) * self.training)


@register("backbone")
class NormalisesBatches(Recurrent):
    """Batch norm over all tokens of a batch, padding too."""

    def after(self, states):
        return normalised(self.norm, states)


@register("backbone")
class LeavesItsDropoutOn(Recurrent):
    """It forgets to say `self.training`."""

    def __init__(self, dim: int, depth: int = 1, *, causal: bool = True):
        super().__init__(dim, depth, causal=causal)
        self.dropout = 0.3

    def after(self, states):
        return F.dropout(states, self.dropout)


@register("backbone")
class AddsTheNextBySteps(Recurrent):
    """It adds the next token by a weight that starts at almost nothing."""

    def __init__(self, dim: int, depth: int = 1, *, causal: bool = True):
        super().__init__(dim, depth, causal=causal)
        self.weight = nn.Parameter(torch.full((dim,), 1e-9))

    def before(self, hidden):
        return hidden + self.weight * following(hidden)


@register("backbone")
class OpensAGate(Recurrent):
    """It adds the next token behind a gate that is shut before training."""

    def __init__(self, dim: int, depth: int = 1, *, causal: bool = True):
        super().__init__(dim, depth, causal=causal)
        self.gate = nn.Parameter(torch.tensor(-30.0))

    def before(self, hidden):
        return hidden + self.gate.sigmoid() * following(hidden)


@register("backbone")
class WrapsRound(Recurrent):
    """Its first tokens read those from token 241 on, as a convolution by a Fourier transform that is too short."""

    def before(self, hidden):
        far = hidden[:, 240:]
        return torch.cat([hidden[:, : far.shape[1]] + far, hidden[:, far.shape[1] :]], dim=1)


class OnGraphs(Recurrent):
    """A layer for each token of a graph, beside which `seen` stands."""

    supports_adjacency = True

    def __init__(self, dim: int):
        super().__init__(dim, causal=False)

    def forward(self, embedded, cache=None):
        real = rearrange(embedded.valid, "b n -> b n 1")
        hidden = embedded.hidden * real
        return (self.branch(hidden) + self.seen(hidden, real)) * real

    def add_edge_bias(self, num_edge_types):
        """It reads no types."""


class CountsNodes(OnGraphs):
    """It adds the sum of the nodes before, in their order."""

    def seen(self, hidden, real):
        return hidden.cumsum(dim=1)


class ForgetsEdges(OnGraphs):
    """It adds the mean of all nodes, be they joined or not."""

    def seen(self, hidden, real):
        return hidden.sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True)


@register("backbone")
class RemembersPasses(Recurrent):
    """It adds the mean of the pass before, and so no other fault would show."""

    last = 0.0

    def after(self, states):
        found = states + following(states) + self.last
        self.last = float(states.detach().mean())
        return found


@register("backbone")
class CountsColumns(Recurrent):
    """It divides by the number of columns, padding too."""

    def before(self, hidden):
        return hidden / hidden.shape[1]
