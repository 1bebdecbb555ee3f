"""Backbones with one fault each: those that are known to have passed once (`KNOWN`), and others (`INVENTED`).

Each is (builder, whether it is causal, words of the sentence that catches it). The sound backbone behind most of them
is a small Transformer or LSTM.
"""

import random
import time
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from seqkit.backbones import LSTM, Transformer
from seqkit.interfaces import Adjacency, Backbone, Cache
from seqkit.nn.position.rotary import Rotary


class Faulty(Backbone):
    """A sound backbone whose parts a fault overrides."""

    supports_adjacency = False

    def __init__(self, dim, causal=False):
        super().__init__()
        self.dim, self.causal = dim, causal
        self.inner = self.sound(dim, causal)
        self.supports_segments, self.is_recurrent = (
            self.inner.supports_segments,
            self.inner.is_recurrent,
        )
        self.uses_positions = self.inner.uses_positions

    def sound(self, dim, causal):
        return Transformer(dim, 2, num_heads=3, causal=causal)

    def check_supported(self, spec):
        self.inner.check_supported(spec)
        if spec.num_edge_types:
            raise ValueError("no adjacency")

    def forward(self, embedded, cache=None):
        if embedded.adjacency is not None:
            raise ValueError("no adjacency")
        return self.inner(embedded, cache)

    def init_cache(self, max_tokens):
        return self.inner.init_cache(max_tokens)


class FaultyRNN(Faulty):
    def sound(self, dim, causal):
        return LSTM(dim, 1, causal=causal)


def _zero(hidden, embedded):
    return hidden.masked_fill(~embedded.valid[..., None], 0.0)


def _columns(embedded, which):
    return embedded.replace(
        hidden=embedded.hidden[:, which],
        positions=embedded.positions[:, which],
        valid=embedded.valid[:, which],
    )


def _times(factor, states):
    return [tuple(factor * part for part in state) for state in states]


def after(name, change):
    """A backbone that changes what a sound one gives, but in padding; `change(self, hidden)` gives the result."""

    def forward(self, embedded, cache=None):
        hidden = change(self, Faulty.forward(self, embedded, cache))
        return _zero(hidden, embedded) if isinstance(hidden, torch.Tensor) else hidden

    return type(name, (Faulty,), {"forward": forward})


AFTER = [
    (after(name, change), causal, sentence)
    for name, causal, sentence, change in (
        ("GivesAnotherWidth", False, r"gives_hidden_states_of_its_width: hidden states are \[3, 8, 48\], not",
         lambda self, hidden: torch.cat([hidden, hidden], dim=-1)),
        ("LeaksInBatchesOfFive", False, "any_batch_gives_the_same: in a batch of 5, padding or the other examples",
         lambda self, hidden: hidden + hidden.roll(1, dims=0) if len(hidden) == 5 else hidden),
        ("AlwaysDropsOut", False, "is_deterministic: the same batch gives other hidden states a second time",
         lambda self, hidden: nn.functional.dropout(hidden, 0.1, training=True)),
        ("DiffersWithoutGradients", False, "is_deterministic: without gradients, the same batch gives",
         lambda self, hidden: hidden * (1.0 if torch.is_grad_enabled() else 1.1)),
        ("GivesATuple", False, "gives_hidden_states_of_its_width: forward gives a tuple",
         lambda self, hidden: (hidden, None)),
        ("GivesFloat32", False, "gives_hidden_states_of_its_width: hidden states are torch.float32 for an input of",
         lambda self, hidden: hidden.float()),
        ("IsInfinite", False, "gives_hidden_states_of_its_width: hidden states are not finite",
         lambda self, hidden: hidden / 0.0),
        ("CountsColumnsNotTokens", False, "training_mates_change_nothing: in training mode, padding or",
         lambda self, hidden: hidden / hidden.shape[1]),
        ("NormalisesOverTime", True, "no_token_attends_to_the_future: a token attends to the future",
         lambda self, hidden: hidden / hidden.abs().sum(dim=1, keepdim=True)),
        ("TiesRowsInTraining", False, "training_mates_change_nothing: in training mode, padding or",
         lambda self, hidden: hidden - 0.1 * hidden.mean(dim=(0, 1)) if self.training else hidden),
        ("MixesHalvesOfLargeBatches", False, "any_batch_gives_the_same: in a batch of 9, padding or the other examples",
         lambda self, hidden: hidden.roll(4, dims=0) if len(hidden) > 8 else hidden),
        ("DrawsFromPython", False, "is_deterministic: the same batch gives other hidden states a second time",
         lambda self, hidden: hidden * (1 + 1e-3 * random.random())),
        ("ScalesInTraining", False, "training_equals_eval: nothing is random, but training mode",
         lambda self, hidden: hidden * (1.1 if self.training else 1.0)),
        ("MasksPaddingUpTo256", False, "columns_far_along_are_like_others: padding or the other examples",
         lambda self, hidden: hidden * (1 + 0.1 * (hidden.shape[1] > 256) * (hidden.shape[0] > 1))),
        ("Prints", False, "leaves_input_and_process_alone: forward prints",
         lambda self, hidden: print(hidden.shape) or hidden),
        ("SeedsInForward", False, "leaves_input_and_process_alone: forward changes the state of torch",
         lambda self, hidden: torch.manual_seed(1) and hidden),
        ("DropsOutByItsOwnGenerator", False, "one_seed_trains_alike: in training mode, one seed gives",
         lambda self, hidden: hidden * float(np.random.default_rng().uniform(0.9, 1.1)) if self.training else hidden),
    )
]  # fmt: skip
"""Faults of one expression."""
ScalesInTraining = next(fault for fault, _, _ in AFTER if fault.__name__ == "ScalesInTraining")


# ── known to have passed once ────────────────────────────────────────────────────────────────────────────────────────


class IgnoresPositions(Faulty):
    """Claims positions and ignores them."""

    def __init__(self, dim, causal=False):
        super().__init__(dim, causal)
        self.uses_positions = True


class NeedsFloat64(Faulty):
    def __init__(self, dim, causal=False):
        super().__init__(dim, causal)
        self.matrix = torch.eye(dim, dtype=torch.float64)

    def forward(self, embedded, cache=None):
        return super().forward(embedded, cache) @ self.matrix


class LeaksFromColumn32(Faulty):
    def forward(self, embedded, cache=None):
        hidden = super().forward(embedded, cache)
        if hidden.shape[1] <= 32 or cache is not None:
            return hidden
        return _zero(
            torch.cat(
                [hidden[:, :32], hidden[:, 32:] + embedded.hidden[:, 32:].roll(-1, dims=1)], 1
            ),
            embedded,
        )


class CacheIsWrongAfterEightColumns(FaultyRNN):
    def forward(self, embedded, cache=None):
        if cache is not None and cache.num_tokens > 8:
            cache.states = _times(0.5, cache.states)
        return super().forward(embedded, cache)


class ReordersNothing(FaultyRNN):
    def init_cache(self, max_tokens):
        cache = super().init_cache(max_tokens)
        cache.reorder = lambda rows: None
        return cache


class HasOneCache(FaultyRNN):
    def init_cache(self, max_tokens):
        if not hasattr(self, "cache"):
            self.cache = super().init_cache(max_tokens)
        self.cache.num_tokens = 0
        return self.cache


class NormalisesBatchesInTraining(Faulty):
    def __init__(self, dim, causal=False):
        super().__init__(dim, causal)
        self.norm = nn.BatchNorm1d(dim)

    def forward(self, embedded, cache=None):
        hidden = super().forward(embedded, cache)
        return _zero(self.norm(hidden.transpose(1, 2)).transpose(1, 2), embedded)


class KeepsWeightsOutsideStateDict(Faulty):
    def __init__(self, dim, causal=False):
        super().__init__(dim, causal)
        self.scale = [1 + torch.rand(()).item()]

    def forward(self, embedded, cache=None):
        return super().forward(embedded, cache) * self.scale[0]


KNOWN = [
    (
        IgnoresPositions,
        False,
        "uses_positions_as_it_says: uses_positions is True, but other positions on axis 0",
    ),
    (NeedsFloat64, False, "works_in_float32: it does not run in float32"),
    (LeaksFromColumn32, True, "no_column_attends_to_the_future.*: .* tokens after 32 of 70 change"),
    (
        CacheIsWrongAfterEightColumns,
        True,
        "step_by_step_goes_on: step by step differs from at once in column 55 of 70",
    ),
    (
        ReordersNothing,
        True,
        r"reorder_keeps_the_rows: after reorder\(\[1, 2, 0\]\), row 0 does not go on with",
    ),
    (HasOneCache, True, "step_by_step_equals_at_once|caches_are_apart"),
    (
        NormalisesBatchesInTraining,
        False,
        "training_mates_change_nothing: in training mode, padding or",
    ),
    (
        KeepsWeightsOutsideStateDict,
        False,
        "builds_and_saves_all_weights: .* weights are outside of it",
    ),
]


# ── invented ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class ReadsPositionsUnsaid(Faulty):
    def sound(self, dim, causal):
        return Transformer(dim, 1, num_heads=3, causal=causal, position=Rotary())

    def __init__(self, dim, causal=False):
        super().__init__(dim, causal)
        self.uses_positions = False


class KnowsNoOrder(Faulty):
    """Says that it runs over the columns, so that nobody tells it the order."""

    is_recurrent = True

    def __init__(self, dim, causal=False):
        super().__init__(dim, causal)
        self.is_recurrent = True


class BagThatKnowsOrder(FaultyRNN):
    ignores_order = True


class ChangesItsInput(Faulty):
    def forward(self, embedded, cache=None):
        embedded.hidden.mul_(1.5)
        return super().forward(embedded, cache)


class ChangesPositions(Faulty):
    def forward(self, embedded, cache=None):
        embedded.positions.sub_(1.0)
        return super().forward(embedded, cache)


class SeedsItsWeights(Faulty):
    def sound(self, dim, causal):
        torch.manual_seed(1)
        return super().sound(dim, causal)


class DrawsWeightsByTheClock(Faulty):
    def __init__(self, dim, causal=False):
        super().__init__(dim, causal)
        self.shift = nn.Parameter(
            torch.randn(dim, generator=torch.Generator().manual_seed(time.perf_counter_ns()))
        )

    def forward(self, embedded, cache=None):
        return _zero(super().forward(embedded, cache) + self.shift, embedded)


class DependsOnTheCall(Faulty):
    calls = 0

    def forward(self, embedded, cache=None):
        self.calls += 1
        return super().forward(embedded, cache) * (1 + 0.1 * (self.calls % 2))


class RemembersTheLastBatch(Faulty):
    last = 0.0

    def forward(self, embedded, cache=None):
        hidden = super().forward(embedded, cache)
        total, self.last = hidden + self.last, float(hidden.detach().abs().mean())
        return _zero(total, embedded)


class BuildsAtTheFirstCall(Faulty):
    def forward(self, embedded, cache=None):
        if not hasattr(self, "late"):
            self.late = nn.Linear(self.dim, self.dim).to(embedded.hidden)
        return _zero(self.late(super().forward(embedded, cache)), embedded)


class HasWeightsInAList(Faulty):
    def __init__(self, dim, causal=False):
        super().__init__(dim, causal)
        self.layers = [nn.Linear(dim, dim)]

    def forward(self, embedded, cache=None):
        return _zero(
            self.layers[0].to(embedded.hidden.dtype)(super().forward(embedded, cache)), embedded
        )


class BufferIsNotSaved(Faulty):
    def __init__(self, dim, causal=False):
        super().__init__(dim, causal)
        self.register_buffer("mixture", torch.randn(dim), persistent=False)

    def forward(self, embedded, cache=None):
        return super().forward(embedded, cache) * self.mixture


class DividesByTheLength(FaultyRNN):
    """An example of one token is divided by zero."""

    def forward(self, embedded, cache=None):
        hidden, count = super().forward(embedded, cache), embedded.valid.sum(dim=1)[:, None, None]
        return _zero(hidden / (count - 1), embedded)


class SegmentsLeakFromColumn32(Faulty):
    def forward(self, embedded, cache=None):
        if embedded.segments is not None and embedded.valid.shape[1] > 32:
            embedded = replace(embedded, segments=embedded.segments // 2)
        return super().forward(embedded, cache)


class TakesNoCache(Faulty):
    def forward(self, embedded):
        return super().forward(embedded)


class CacheIsForEvenColumns(FaultyRNN):
    """A prompt of one chunk is right, and so are two tokens at a time."""

    def forward(self, embedded, cache=None):
        if (
            cache is not None
            and embedded.valid.shape[1] == 1
            and cache.num_tokens % 2
            and cache.num_tokens > 9
        ):
            cache.states = _times(0.0, cache.states)
        return super().forward(embedded, cache)


class ReadsPaddingOfALaterPart(FaultyRNN):
    """A prompt in one part is right; the padding of a second part reaches the state."""

    def forward(self, embedded, cache=None):
        if cache is None or not cache.num_tokens:
            return super().forward(embedded, cache)
        every = torch.ones_like(embedded.valid)
        return _zero(super().forward(embedded.replace(valid=every), cache), embedded)


class ReorderDropsOnly(FaultyRNN):
    """Repeats no row: it sorts them."""

    def init_cache(self, max_tokens):
        cache = super().init_cache(max_tokens)
        sound = cache.reorder
        cache.reorder = lambda rows: sound(rows.sort().values)
        return cache


class KeepsTheCacheOfTheFirst(FaultyRNN):
    """A cache whose state is the module's."""

    class Shared(Cache):
        states = None

        def __init__(self):
            self.num_tokens = 0

        def reorder(self, rows):
            type(self).states = [tuple(part[rows] for part in state) for state in type(self).states]

    def init_cache(self, max_tokens):
        self.Shared.states = [None]
        return self.Shared()

    def forward(self, embedded, cache=None):
        if cache is None:
            return super().forward(embedded)
        inner = self.inner.init_cache(1)
        inner.states, inner.num_tokens = self.Shared.states, cache.num_tokens
        hidden = super().forward(embedded, inner)
        self.Shared.states, cache.num_tokens = inner.states, inner.num_tokens
        return hidden


class ClipsItsGradients(Faulty):
    def forward(self, embedded, cache=None):
        hidden = super().forward(embedded, cache)
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: gradient.clamp(-0.5, 0.5))
        return hidden


class DetachesItsScale(Faulty):
    """Each parameter has a gradient, and some have a wrong one."""

    def __init__(self, dim, causal=False):
        super().__init__(dim, causal)
        self.linear = nn.Linear(dim, dim)

    def forward(self, embedded, cache=None):
        hidden = self.linear(super().forward(embedded, cache))
        return _zero(hidden / hidden.norm(dim=-1, keepdim=True).detach(), embedded)


class ReadsTheFirstAxisOnly(Faulty):
    def sound(self, dim, causal):
        return Transformer(dim, 1, num_heads=3, causal=causal, position=Rotary())

    def forward(self, embedded, cache=None):
        positions = embedded.positions.clone()
        positions[..., 1:] = 0.0
        return super().forward(replace(embedded, positions=positions), cache)


class CountsColumnsUnsaid(Faulty):
    """Rotary positions, and beside them the index of each column."""

    def sound(self, dim, causal):
        return Transformer(dim, 1, num_heads=3, causal=causal, position=Rotary())

    def forward(self, embedded, cache=None):
        hidden = super().forward(embedded, cache)
        column = torch.arange(hidden.shape[1], dtype=hidden.dtype)[:, None]
        return _zero(hidden * (1 + 0.1 * column), embedded)


class SharesAWeight(Faulty):
    """A default argument that all of its class have in common."""

    def __init__(self, dim, causal=False, norm=nn.LayerNorm(24)):  # noqa: B008
        super().__init__(dim, causal)
        self.norm = norm

    def forward(self, embedded, cache=None):
        return _zero(self.norm(super().forward(embedded, cache)), embedded)


class ReadsAdjacency(Backbone):
    """A sound backbone along edges, whose edges a fault overrides."""

    supports_adjacency, supports_segments, causal = True, True, False

    def __init__(self, dim, causal=False):
        super().__init__()
        self.dim = dim
        self.inner = Transformer(dim, 2, num_heads=3)

    def add_edge_bias(self, num_edge_types):
        self.inner.add_edge_bias(num_edge_types)

    def forward(self, embedded, cache=None):
        if embedded.adjacency is not None:
            embedded = replace(embedded, adjacency=self.edges(embedded.adjacency))
        return self.inner(embedded, cache)


class SeesOneEdgeType(ReadsAdjacency):
    """Edges of the second type are taken for the first."""

    def edges(self, adjacency):
        return Adjacency(adjacency.edge_index, adjacency.edge_type.clamp(max=1))


class ReadsEightNeighbours(ReadsAdjacency):
    """It samples: of each node the first edges alone."""

    def edges(self, adjacency):
        target, kept = adjacency.edge_index[1], []
        for edge in range(len(target)):
            kept += [edge] if int((target[:edge] == target[edge]).sum()) < 8 else []
        return Adjacency(adjacency.edge_index[:, kept], adjacency.edge_type[kept])


class LeaksFromColumn256(Faulty):
    def forward(self, embedded, cache=None):
        hidden = super().forward(embedded, cache)
        if hidden.shape[1] <= 256:
            return hidden
        following = nn.functional.pad(embedded.hidden[:, 1:], [0, 0, 0, 1])
        return _zero(hidden + following * (torch.arange(hidden.shape[1]) >= 256)[:, None], embedded)


class PositionsWrapInTheCache(FaultyRNN):
    """Its cache forgets every 128 columns."""

    def forward(self, embedded, cache=None):
        if cache is not None and cache.num_tokens and cache.num_tokens % 128 == 0:
            cache.states = _times(0.0, cache.states)
        return super().forward(embedded, cache)


class ForgetsEvery64Tokens(Faulty):
    """Chunks whose state is lost, and no cache that would show it."""

    def forward(self, embedded, cache=None):
        starts = range(0, embedded.hidden.shape[1], 64)
        run = super().forward
        return torch.cat([run(_columns(embedded, slice(t, t + 64))) for t in starts], dim=1)

    def init_cache(self, max_tokens):
        raise ValueError("no cache")


class DetachesAfter64Tokens(Faulty):
    """A running sum that is right, and whose gradient does not go back over the border of two chunks."""

    def forward(self, embedded, cache=None):
        hidden = super().forward(embedded)
        first, rest = hidden.split([min(64, hidden.shape[1]), max(0, hidden.shape[1] - 64)], dim=1)
        total = first.sum(dim=1, keepdim=True).detach()
        sums = torch.cat([first.cumsum(dim=1), total + rest.cumsum(dim=1)], dim=1)
        return _zero(hidden + 0.1 * sums, embedded)

    def init_cache(self, max_tokens):
        raise ValueError("no cache")


class LeaksInTraining(Faulty):
    def forward(self, embedded, cache=None):
        hidden = nn.functional.dropout(super().forward(embedded, cache), 0.1, self.training)
        if not self.training:
            return hidden
        following = nn.functional.pad(embedded.hidden[:, 1:], [0, 0, 0, 1])
        return _zero(hidden + following, embedded)


INVENTED = [
    *AFTER,
    (
        ForgetsEvery64Tokens,
        True,
        "columns_read_the_past_alike: column 64 of 300 depends on no column before it",
    ),
    (DetachesAfter64Tokens, True, "gradients_are_right: the gradient of"),
    (
        LeaksInTraining,
        True,
        "training_sees_no_future: a token attends to the future",
    ),
    (
        ReadsEightNeighbours,
        False,
        "attends_along_edges: a target of example 1 does not attend to the source",
    ),
    (
        LeaksFromColumn256,
        True,
        "columns_far_along_are_like_others: .* tokens after 256 of 300 change",
    ),
    (
        PositionsWrapInTheCache,
        True,
        "columns_far_along_are_like_others: step by step differs .* column 128 of 300",
    ),
    (
        ReadsPositionsUnsaid,
        False,
        "uses_positions_as_it_says: positions change .* but uses_positions is False",
    ),
    (
        KnowsNoOrder,
        False,
        "knows_columns_as_it_says: is_recurrent is True, but tokens in another order give the same",
    ),
    (
        BagThatKnowsOrder,
        False,
        "knows_columns_as_it_says: ignores_order is True, but tokens in another order",
    ),
    (
        ChangesItsInput,
        False,
        "leaves_input_and_process_alone: forward changes hidden of its input in place|it raises",
    ),
    (
        ChangesPositions,
        False,
        "leaves_input_and_process_alone: forward changes positions of its input in place",
    ),
    (
        SeedsItsWeights,
        False,
        "builds_and_saves_all_weights: built from two seeds, it has the same weights",
    ),
    (
        DrawsWeightsByTheClock,
        False,
        "builds_and_saves_all_weights: built twice from one seed, .* other weights .shift",
    ),
    (
        DependsOnTheCall,
        False,
        "is_deterministic: the same batch gives other hidden states a second time",
    ),
    (
        RemembersTheLastBatch,
        False,
        "is_deterministic: after example 0, the same batch gives other hidden states",
    ),
    (
        BuildsAtTheFirstCall,
        False,
        "builds_and_saves_all_weights: parameter late.* comes or goes in forward",
    ),
    (HasWeightsInAList, False, "builds_and_saves_all_weights: .* weights are outside of it"),
    (BufferIsNotSaved, False, "builds_and_saves_all_weights: .* weights are outside of it"),
    (
        DividesByTheLength,
        False,
        "any_batch_gives_the_same: hidden states of example 2 of 1 tokens are not finite",
    ),
    (SegmentsLeakFromColumn32, False, "packed_equals_separate: a packed sequence changes another"),
    (TakesNoCache, False, "raises TypeError: .*positional arguments? but"),
    (
        CacheIsForEvenColumns,
        True,
        "step_by_step_goes_on: step by step differs from at once in column 55 of 70",
    ),
    (ReadsPaddingOfALaterPart, True, "step_by_step_goes_on: step by step differs from at once"),
    (ReorderDropsOnly, True, r"reorder_keeps_the_rows: after reorder\(\[1, 2, 0\]\), row 0"),
    (KeepsTheCacheOfTheFirst, True, "caches_are_apart: two caches in turn differ from one pass"),
    (ClipsItsGradients, False, "gradients_are_right: the gradient of"),
    (DetachesItsScale, False, "gradients_are_right: the gradient of"),
    (
        ReadsTheFirstAxisOnly,
        False,
        "uses_positions_as_it_says: .* other positions on axis 1 give the same .*image",
    ),
    (
        CountsColumnsUnsaid,
        False,
        "knows_columns_as_it_says: tokens in another order, with their positions, give other",
    ),
    (
        SharesAWeight,
        False,
        "builds_and_saves_all_weights: two that are built have one storage for norm.weight",
    ),
    (SeesOneEdgeType, False, "edges_matter: edges of type 2 in place of 1"),
]
