"""Backbones without a fault that are built in unusual ways: the laws must let each of them pass.

b batch · n tokens · d width · h heads · m latents · i query · j key
"""

from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from einops import rearrange
from laws.faulty_backbones import Faulty
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

from seqkit.backbones import Transformer
from seqkit.backbones.sequence import SequenceBackbone, StateCache
from seqkit.interfaces import Backbone, Cache
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary


def _zero(hidden, embedded):
    return hidden.masked_fill(~embedded.valid[..., None], 0.0)


class OneLayer(Faulty):
    def sound(self, dim, causal):
        return Transformer(dim, 1, num_heads=3, causal=causal)


class Plain(SequenceBackbone):
    """`run` gives its hidden states; it supports no cache, unless it says so."""

    num_states = 0

    def __init__(self, dim, causal=False):
        super().__init__()
        self.dim, self.causal = dim, causal
        self.build(dim)

    def new_cache(self):
        if not self.num_states:
            raise ValueError("there is no cache; generate with use_cache=False")
        return StateCache(self.num_states)

    def forward(self, embedded, cache=None):
        hidden = super().forward(embedded, cache)
        return _zero(hidden, embedded)


def _counts(embedded):
    """Number of tokens up to each, [b n 1]."""
    return embedded.valid.cumsum(dim=1)[..., None].clamp(min=1)


# ── layers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class StartsAtZero(Faulty):
    """Its output projections start at zero, so each block is the identity until the first step."""

    def sound(self, dim, causal):
        block = partial(PreNormBlock, zero_init=True)
        return Transformer(dim, 2, num_heads=3, causal=causal, position=Rotary(), block=block)


class RepeatsOneBlock(Backbone):
    """One block, three times, with the same weights; a cache for each time is left out."""

    supports_adjacency, supports_segments = True, True

    def __init__(self, dim, causal=False):
        super().__init__()
        self.dim, self.causal = dim, causal
        self.block = Transformer(dim, 1, num_heads=3, causal=causal)

    def add_edge_bias(self, num_edge_types):
        self.block.add_edge_bias(num_edge_types)

    def forward(self, embedded, cache=None):
        for _ in range(3):
            embedded = replace(embedded, hidden=self.block(embedded))
        return embedded.hidden


class SeesAllLayersBefore(Plain):
    """Each layer gets the outputs of all before it (DenseNet), and mixes tokens by their mean so far."""

    num_states = 3

    def build(self, dim):
        self.layers = nn.ModuleList(weight_norm(nn.Linear(dim * (i + 1), dim)) for i in range(3))

    def run(self, embedded, cache):
        seen, real = [embedded.hidden], embedded.valid[..., None]
        for i, layer in enumerate(self.layers):
            x = layer(torch.cat(seen, dim=-1)).tanh().masked_fill(~real, 0.0)
            given = torch.cat([x, real.to(x)], dim=-1)
            total = (
                given.cumsum(dim=1)
                if self.causal
                else given.sum(dim=1, keepdim=True).expand_as(given)
            )
            if cache is not None:
                total = total if cache.states[i] is None else total + cache.states[i][:, None]
                cache.states[i] = total[:, -1]
            seen.append(x + total[..., :-1] / total[..., -1:].clamp(min=1))
        return seen[-1]


class RecomputesInBackward(OneLayer):
    """Its activations are not kept but computed again for the gradient."""

    def forward(self, embedded, cache=None):
        if embedded.adjacency is not None:
            raise ValueError("no adjacency")
        return checkpoint(self.inner, embedded, cache, use_reentrant=False)


class TrainsALowRankPart(OneLayer):
    """Its own weights are frozen; what is trained starts at zero (LoRA)."""

    def __init__(self, dim, causal=False):
        super().__init__(dim, causal)
        self.inner.requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(dim, 2)), nn.Parameter(torch.zeros(2, dim))

    def forward(self, embedded, cache=None):
        return super().forward(embedded, cache) + _zero(
            embedded.hidden @ self.down @ self.up, embedded
        )


class DropsItsLayerInTraining(OneLayer):
    """Stochastic depth: one draw decides for a layer whether the batch goes through it."""

    def forward(self, embedded, cache=None):
        hidden = super().forward(embedded, cache)
        keep = (torch.rand(()) < 0.5) / 0.5 if self.training else 1.0
        return embedded.hidden + keep * hidden


class SolvesForItsStates(Plain):
    """h = tanh(x + W mean(h)), with a W that shrinks: it goes on until nothing changes, so some batches take longer."""

    def build(self, dim):
        self.linear = spectral_norm(nn.Linear(dim, dim, bias=False))

    def run(self, embedded, cache):
        # in training it is new at each look
        x, count, weight = embedded.hidden, _counts(embedded), self.linear.weight
        hidden = torch.zeros_like(x)
        for _ in range(60):
            before, real = hidden, _zero(hidden, embedded)
            mean = (
                real.cumsum(1) / count if self.causal else real.sum(1, keepdim=True) / count[:, -1:]
            )
            hidden = (x + 0.5 * mean @ weight).tanh()
            if float((hidden - before).detach().abs().max()) < 1e-12:
                break
        return hidden


class ChoosesOneOfTwo(Plain):
    """The sign of a fixed random projection sends a token through one of two networks; a mean mixes them."""

    causal = False

    def build(self, dim):
        self.register_buffer("direction", torch.randn(dim))
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, dim), nn.Tanh()) for _ in range(2)
        )

    def run(self, embedded, cache):
        x = embedded.hidden
        chosen = torch.stack([x @ self.direction, -x @ self.direction]).argmax(dim=0)
        hidden = torch.zeros_like(x)
        for k, network in enumerate(self.networks):
            hidden[chosen == k] = network(x[chosen == k])
        return x + hidden + _zero(hidden, embedded).sum(1, keepdim=True) / _counts(embedded)[:, -1:]


class AddsUpInFloat64(Plain):
    """Linear attention whose sums are in float64, whatever the dtype of its input."""

    def build(self, dim):
        self.project = nn.Linear(dim, 3 * dim)

    def run(self, embedded, cache):
        q, k, v = self.project(embedded.hidden).double().chunk(3, dim=-1)
        q, k = F.elu(q) + 1, _zero(F.elu(k) + 1, embedded)
        states, norm = torch.einsum("b n i, b n j -> b n i j", k, v).cumsum(1), k.cumsum(1)
        if not self.causal:
            states, norm = states[:, -1:].expand_as(states), norm[:, -1:].expand_as(norm)
        hidden = torch.einsum("b n i, b n i j -> b n j", q, states) / (q * norm).sum(
            -1, keepdim=True
        )
        return hidden.to(embedded.hidden.dtype)


class MapsOverExamples(Plain):
    """Attention of one example, mapped over the batch."""

    causal = False

    def build(self, dim):
        self.q = nn.Linear(dim, dim)

    def run(self, embedded, cache):
        def one(x, valid):
            scores = (self.q(x) @ x.T).masked_fill(~valid, -1e9)
            return scores.softmax(-1) @ x

        return torch.vmap(one)(embedded.hidden, embedded.valid)


class RemembersItsTables(Plain):
    """It keeps a table for each length and dtype, and none of them is saved."""

    knows_columns = True

    def build(self, dim):
        self.linear, self.tables = nn.Linear(dim, dim), {}

    def run(self, embedded, cache):
        key = embedded.hidden.shape[1], embedded.hidden.dtype
        if key not in self.tables:
            at = torch.arange(float(key[0]), dtype=key[1])
            table = torch.exp(-(at[:, None] - at).abs())
            self.tables[key] = table.tril() if self.causal else table
        return self.tables[key] @ _zero(self.linear(embedded.hidden), embedded)


# ── attention ────────────────────────────────────────────────────────────────────────────────────────────────────────


class RectifiesItsScores(Plain):
    """ReLU in place of softmax, divided by the number of tokens (Wortsman et al. 2023): a token may attend to none."""

    num_heads = 2

    def build(self, dim):
        self.project = nn.Linear(dim, 3 * dim)

    def run(self, embedded, cache):
        q, k, v = rearrange(
            self.project(embedded.hidden), "b n (s h d) -> s b h n d", s=3, h=self.num_heads
        )
        column = torch.arange(embedded.valid.shape[1])
        last = (
            embedded.reach
            if embedded.reach is not None
            else column
            if self.reads_no_future(embedded)
            else column[-1:]
        )
        may = (embedded.valid[:, None] & (column <= last[..., None]))[:, None]
        weights = (
            torch.einsum("b h i d, b h j d -> b h i j", q, k).relu()
            * may
            / may.sum(-1, keepdim=True).clamp(min=1)
        )
        return embedded.hidden + rearrange(weights @ v, "b h n d -> b n (h d)")

    def reads_no_future(self, embedded):
        return self.causal


class RectifiesAsTheBatchSays(RectifiesItsScores):
    """The same, whose causality comes with each batch."""

    causal, takes_causality = None, True

    def reads_no_future(self, embedded):
        return embedded.causal


class AttendsToOne(Plain):
    """Each head reads the one token of the best score, and no other; the score weighs it."""

    num_heads = 3

    def build(self, dim):
        self.project = nn.Linear(dim, 3 * dim)

    def run(self, embedded, cache):
        q, k, v = rearrange(
            self.project(embedded.hidden), "b n (s h d) -> s b h n d", s=3, h=self.num_heads
        )
        scores = torch.einsum("b h i d, b h j d -> b h i j", q, k)
        may = embedded.valid[:, None, None].expand_as(scores)
        may = may.tril() if self.causal else may
        best, index = scores.masked_fill(~may, -torch.inf).max(dim=-1, keepdim=True)
        read = v.gather(2, index.expand_as(v)) * best.sigmoid()
        return embedded.hidden + rearrange(read, "b h n d -> b n (h d)")


class SoftensInFloat32(Plain):
    """The softmax is in float32, as in models that run in bfloat16."""

    num_heads = 2

    def build(self, dim):
        self.project = nn.Linear(dim, 3 * dim)

    def run(self, embedded, cache):
        q, k, v = rearrange(
            self.project(embedded.hidden), "b n (s h d) -> s b h n d", s=3, h=self.num_heads
        )
        scores = torch.einsum("b h i d, b h j d -> b h i j", q, k)
        may = embedded.valid[:, None, None].expand_as(scores) | torch.eye(
            scores.shape[-1], dtype=torch.bool
        )
        may = may.tril() if self.causal else may
        weights = scores.masked_fill(~may, -torch.inf).softmax(-1, dtype=torch.float32).to(v.dtype)
        return embedded.hidden + rearrange(weights @ v, "b h n d -> b n (h d)")


class _Fixed(Cache):
    def __init__(self, max_tokens):
        self.max_tokens, self.num_tokens, self.keys = max_tokens, 0, None

    def reorder(self, rows):
        self.keys, self.valid = self.keys[rows], self.valid[rows]


class FillsAFixedCache(Plain):
    """A cache with room for so many columns and no more."""

    causal = True

    def build(self, dim):
        self.q = nn.Linear(dim, dim)

    def init_cache(self, max_tokens):
        return _Fixed(max_tokens)

    def new_cache(self):
        return _Fixed(1)

    def run(self, embedded, cache):
        x, valid, start = embedded.hidden, embedded.valid, 0
        n = x.shape[1]
        if cache is not None:
            start = cache.num_tokens
            if cache.keys is None:
                cache.keys = x.new_zeros(len(x), cache.max_tokens, x.shape[2])
                cache.valid = torch.zeros(len(x), cache.max_tokens, dtype=torch.bool)
            if start + n > cache.max_tokens:
                raise ValueError(
                    f"a cache for {cache.max_tokens} columns has no room for {start + n}"
                )
            cache.keys[:, start : start + n], cache.valid[:, start : start + n] = x, valid
            keys, valid = cache.keys, cache.valid
        else:
            keys = x
        scores = self.q(x) @ keys.mT
        at = torch.arange(n)[:, None] + start
        col = torch.arange(keys.shape[1])
        may = valid[:, None] & (col <= at) | (col == at)
        return scores.masked_fill(~may, -torch.inf).softmax(-1) @ keys


class WritesToLatents(Plain):
    """Latents read all tokens, and every token reads the latents (Perceiver)."""

    causal = False

    def build(self, dim):
        self.latents = nn.Parameter(torch.randn(4, dim))
        self.write, self.read = (nn.MultiheadAttention(dim, 3, batch_first=True) for _ in range(2))

    def run(self, embedded, cache):
        x = embedded.hidden
        latents = self.latents.expand(len(x), -1, -1)
        latents, _ = self.write(latents, x, x, key_padding_mask=~embedded.valid, need_weights=False)
        return self.read(x, latents, latents, need_weights=False)[0]


class HasNoLatentsOfItsOwn(Plain):
    """An average over the tokens and latents, of which there are none: a parameter without numbers."""

    causal = False

    def build(self, dim):
        self.gain, self.latents = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(0, dim))

    def run(self, embedded, cache):
        x = _zero(embedded.hidden, embedded)
        both = torch.cat([self.latents.expand(len(x), -1, -1), x], dim=1)
        return (
            embedded.hidden + self.gain * both.sum(dim=1, keepdim=True) / _counts(embedded)[:, -1:]
        )


class WeighsByDistance(Plain):
    """A Gaussian of the distance of two positions, which may have any number of axes."""

    uses_positions = True

    def build(self, dim):
        self.value, self.log_width = nn.Linear(dim, dim), nn.Parameter(torch.zeros(()))

    def check_supported(self, spec):
        if spec.num_axes == 0:
            raise ValueError("it needs positions")

    def run(self, embedded, cache):
        at = embedded.positions
        scores = -((at[:, :, None] - at[:, None]) ** 2).sum(-1) * self.log_width.exp()
        may = embedded.valid[:, None].expand_as(scores) | torch.eye(
            scores.shape[1], dtype=torch.bool
        )
        may = may.tril() if self.causal else may
        return scores.masked_fill(~may, -torch.inf).softmax(-1) @ self.value(embedded.hidden)


# ── convolutions ─────────────────────────────────────────────────────────────────────────────────────────────────────


class ConvolvesWithGaps(Plain):
    """Depthwise convolutions with dilations 1, 2, 4: it knows its columns, and is not called recurrent."""

    knows_columns = True

    def build(self, dim):
        self.layers = nn.ModuleList(
            nn.Conv1d(dim, dim, 3, dilation=2**i, groups=dim) for i in range(3)
        )

    def run(self, embedded, cache):
        hidden = embedded.hidden
        for layer in self.layers:
            span = 2 * layer.dilation[0]
            x = rearrange(_zero(hidden, embedded), "b n d -> b d n")
            x = F.pad(x, [span, 0] if self.causal else [span // 2, span // 2])
            hidden = hidden + rearrange(F.gelu(layer(x)), "b d n -> b n d")
        return hidden


class ConvolvesByFourier(Plain):
    """A convolution as long as the example: a product of spectra of twice its length, so that nothing wraps round."""

    is_recurrent = True

    def build(self, dim):
        self.decay, self.frequency = (
            nn.Parameter(torch.rand(2, dim)),
            nn.Parameter(torch.rand(2, dim)),
        )

    def run(self, embedded, cache):
        x = _zero(embedded.hidden, embedded)
        n = x.shape[1]
        t = torch.arange(n, dtype=x.dtype)[:, None, None]
        kernels = torch.exp(-self.decay.exp() * t / 4) * torch.cos(self.frequency * t)  # [n 2 d]
        past, future = torch.fft.rfft(kernels, n=2 * n, dim=0).unbind(dim=1)
        spectrum = past if self.causal else past + future.conj()
        return torch.fft.irfft(torch.fft.rfft(x, n=2 * n, dim=1) * spectrum, n=2 * n, dim=1)[:, :n]


class MixesByFourier(Plain):
    """The real part of a Fourier transform over tokens and channels (FNet), example by example."""

    causal, knows_columns = False, True

    def build(self, dim):
        self.out = nn.Linear(dim, dim)

    def run(self, embedded, cache):
        hidden = embedded.hidden.clone()
        for row, length in enumerate(embedded.valid.sum(dim=1).tolist()):
            hidden[row, :length] = (
                torch.fft.fft2(embedded.hidden[row, :length]).real / max(length, 1) ** 0.5
            )
        return self.out(hidden) + embedded.hidden


# ── recurrences ──────────────────────────────────────────────────────────────────────────────────────────────────────


class ScansInParallel(Plain):
    """h_t = (1 - z_t) h_(t-1) + z_t c_t of gates that do not read h (minGRU), in log2 n steps over all tokens."""

    causal, is_recurrent, num_states = True, True, 1

    def build(self, dim):
        self.gate, self.candidate = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def run(self, embedded, cache):
        z = _zero(self.gate(embedded.hidden).sigmoid(), embedded)  # in padding the state stays
        keep, h = 1 - z, z * self.candidate(embedded.hidden)
        step = 1
        while step < h.shape[1]:
            h = torch.cat([h[:, :step], h[:, step:] + keep[:, step:] * h[:, :-step]], dim=1)
            keep = torch.cat([keep[:, :step], keep[:, step:] * keep[:, :-step]], dim=1)
            step *= 2
        if cache is not None:
            h = h if cache.states[0] is None else h + keep * cache.states[0][:, None]
            cache.states[0] = h[:, -1]
        return h


class StepsItsCell(Plain):
    """An `LSTMCell` that is called for each column."""

    causal, is_recurrent, num_states = True, True, 1

    def build(self, dim):
        self.cell = nn.LSTMCell(dim, dim)

    def run(self, embedded, cache):
        x, hidden = embedded.hidden, []
        state = None if cache is None else cache.states[0]
        state = (torch.zeros_like(x[:, 0]),) * 2 if state is None else state
        for column, real in zip(x.unbind(1), embedded.valid.unbind(1), strict=True):
            new = self.cell(column, state)
            state = tuple(torch.where(real[:, None], a, b) for a, b in zip(new, state, strict=True))
            hidden.append(state[0])
        if cache is not None:
            cache.states[0] = state
        return torch.stack(hidden, dim=1)


class KeepsTheLargest(Plain):
    """The largest value of each channel so far, from minus infinity on."""

    causal, num_states = True, 1

    def build(self, dim):
        self.project = nn.Linear(dim, dim)

    def run(self, embedded, cache):
        x = self.project(embedded.hidden).masked_fill(~embedded.valid[..., None], -torch.inf)
        before = (
            cache.states[0]
            if cache is not None and cache.states[0] is not None
            else x[:, 0] - torch.inf
        )
        x = torch.cat([before[:, None], x], dim=1).cummax(dim=1).values[:, 1:]
        if cache is not None:
            cache.states[0] = x[:, -1]
        return x


class RunsInTheOrderOfPositions(Plain):
    """A GRU over the tokens sorted by position, by the first axis first: in whatever order they come."""

    causal, uses_positions = False, True

    def build(self, dim):
        self.gru = nn.GRU(dim, dim // 2, bidirectional=True, batch_first=True)

    def check_supported(self, spec):
        if spec.num_axes == 0 or spec.is_joined:
            raise ValueError("it needs positions that tell tokens apart")

    def run(self, embedded, cache):
        hidden = torch.zeros_like(embedded.hidden)
        for row, real in enumerate(embedded.valid):
            order = torch.arange(int(real.sum()))
            for axis in reversed(embedded.positions[row].unbind(dim=1)):
                order = order[axis[order].argsort(stable=True)]
            hidden[row, order] = self.gru(embedded.hidden[row, order])[0]
        return hidden


class StartsAsTheIdentity(Plain):
    """Nothing of it is drawn: its matrices start as the identity, its decays at chosen values."""

    causal, is_recurrent, num_states = True, True, 1

    def build(self, dim):
        self.weight = nn.Parameter(torch.eye(dim))
        self.decay = nn.Parameter(torch.linspace(-2.0, 2.0, dim))

    def run(self, embedded, cache):
        keep, state, hidden = self.decay.sigmoid(), None if cache is None else cache.states[0], []
        state = torch.zeros_like(embedded.hidden[:, 0]) if state is None else state
        for x, real in zip(
            (embedded.hidden @ self.weight).unbind(1), embedded.valid.unbind(1), strict=True
        ):
            state = torch.where(real[:, None], keep * state + x, state)
            hidden.append(state)
        if cache is not None:
            cache.states[0] = state
        return torch.stack(hidden, 1)


class TurnsInThePlane(Plain):
    """A recurrence with complex eigenvalues, as complex parameters (LRU)."""

    causal, is_recurrent = True, True

    def build(self, dim):
        self.eigenvalue = nn.Parameter(torch.complex(-torch.rand(dim), 6 * torch.rand(dim)))
        self.out = nn.Parameter(torch.randn(dim, dtype=torch.complex64))

    def run(self, embedded, cache):
        state, hidden = 0.0, []
        for x in embedded.hidden.unbind(1):
            state = self.eigenvalue.exp() * state + x
            hidden.append((self.out * state).real)
        return torch.stack(hidden, 1).to(embedded.hidden.dtype)


class ForgetsOverTime(StepsItsCell):
    """A GRU whose state decays by the time since the last token (GRU-D)."""

    uses_positions = True

    def check_supported(self, spec):
        if spec.num_axes == 0:
            raise ValueError("it needs positions")

    def build(self, dim):
        self.cell, self.rate = nn.GRUCell(dim, dim), nn.Parameter(torch.zeros(dim))

    def run(self, embedded, cache):
        x, hidden = embedded.hidden, []
        state = None if cache is None else cache.states[0]
        h, last = (torch.zeros_like(x[:, 0]), embedded.positions[:, 0]) if state is None else state
        for column, at, real in zip(
            x.unbind(1), embedded.positions.unbind(1), embedded.valid.unbind(1), strict=True
        ):
            gap = (at - last).abs().sum(-1, keepdim=True)
            h = torch.where(
                real[:, None], self.cell(column, h * torch.exp(-gap * self.rate.exp())), h
            )
            last = torch.where(real[:, None], at, last)
            hidden.append(h)
        if cache is not None:
            cache.states[0] = (h, last)
        return torch.stack(hidden, 1)


class ForgetsBetweenSegments(ScansInParallel):
    """A recurrence over packed sequences, each of them alone."""

    supports_segments = True

    def forward(self, embedded, cache=None):
        if embedded.segments is None:
            return super().forward(embedded, cache)
        hidden = torch.zeros_like(embedded.hidden)
        for segment in embedded.segments.unique():
            own = embedded.valid & (embedded.segments == segment)
            order = (~own).int().argsort(dim=1, stable=True)  # its tokens first
            at = order[..., None].expand_as(hidden)
            alone = replace(
                embedded,
                hidden=embedded.hidden.gather(1, at),
                valid=own.gather(1, order),
                segments=None,
            )
            hidden = hidden + torch.zeros_like(hidden).scatter(1, at, super().forward(alone))
        return hidden


# ── edges ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class AveragesItsNeighbours(Backbone):
    """A mean along edges: it does not know how many there are."""

    supports_adjacency, causal = True, False

    def __init__(self, dim, causal=False):
        super().__init__()
        self.dim = dim
        self.own, self.others, self.kind = nn.Linear(dim, dim), nn.Linear(dim, dim), None

    def add_edge_bias(self, num_edge_types):
        self.kind = nn.Embedding(num_edge_types + 1, self.dim)

    def check_supported(self, spec):
        if not spec.num_edge_types:
            raise ValueError("it needs edges")

    def forward(self, embedded, cache=None):
        if embedded.segments is not None or embedded.adjacency is None:
            raise ValueError("segments, or no edges")
        b, n, d = embedded.hidden.shape
        flat, (source, target) = embedded.hidden.reshape(b * n, d), embedded.adjacency.edge_index
        message = self.others(flat)[source] + self.kind.weight[embedded.adjacency.edge_type]
        return _zero(
            (self.own(flat) + self.gather(message, target, flat)).tanh().reshape(b, n, d), embedded
        )

    def gather(self, message, target, flat):
        count = torch.zeros_like(flat[:, :1]).index_add(0, target, torch.ones_like(message[:, :1]))
        return torch.zeros_like(flat).index_add(0, target, message) / count.clamp(min=1)


class TakesTheLargestOfItsNeighbours(AveragesItsNeighbours):
    """A maximum along edges (GraphSAGE with pooling)."""

    def gather(self, message, target, flat):
        where = target[:, None].expand_as(message)
        return torch.zeros_like(flat).scatter_reduce(0, where, message, "amax", include_self=False)


class ReadsTheBestOfItsNeighbours(AveragesItsNeighbours):
    """One message along edges, that of the highest score (hard attention on a graph)."""

    def __init__(self, dim, causal=False):
        super().__init__(dim)
        self.score = nn.Linear(dim, 1)

    def add_edge_bias(self, num_edge_types):
        super().add_edge_bias(num_edge_types)
        # else an edge of one type may be the best whatever the tokens hold
        nn.init.normal_(self.kind.weight, std=0.1)

    def gather(self, message, target, flat):
        score = self.score(message)
        best = torch.full_like(flat[:, :1], -torch.inf).scatter_reduce(
            0, target[:, None], score.detach(), "amax"
        )
        is_best = (score == best[target])[:, 0]
        return torch.zeros_like(flat).index_add(
            0, target[is_best], (message * score.sigmoid())[is_best]
        )


class AveragesEarlierNeighbours(AveragesItsNeighbours):
    """Causal along edges: of an edge from a later token it makes nothing."""

    causal = True

    def forward(self, embedded, cache=None):
        if embedded.adjacency is not None:
            index = embedded.adjacency.edge_index
            is_late = index[0] > index[1]
            embedded = replace(
                embedded, adjacency=embedded.adjacency.moved(index.masked_fill(is_late, -1))
            )
        return super().forward(embedded)


# ── what it says of itself ───────────────────────────────────────────────────────────────────────────────────────────


class SnapsToACodebook(Plain):
    """It rounds, and its gradient is that of what was rounded (a straight-through estimate)."""

    causal = False

    def build(self, dim):
        self.linear = nn.Linear(dim, dim)

    def run(self, embedded, cache):
        x = self.linear(embedded.hidden)
        x = x + (x.round() - x).detach()
        return x + _zero(x, embedded).sum(1, keepdim=True) / _counts(embedded)[:, -1:]


class HasNoCache(Faulty):
    """Causal, and it says in `init_cache` that there is none."""

    def init_cache(self, max_tokens):
        raise ValueError("there is no cache; generate with use_cache=False")


class HasATableOf256(Faulty):
    """It refuses longer texts."""

    def forward(self, embedded, cache=None):
        if embedded.hidden.shape[1] > 256:
            raise ValueError("more than 256 tokens; cut them")
        return super().forward(embedded, cache)


SOUND = [
    StartsAtZero,
    RepeatsOneBlock,
    SeesAllLayersBefore,
    RecomputesInBackward,
    TrainsALowRankPart,
    DropsItsLayerInTraining,
    SolvesForItsStates,
    ChoosesOneOfTwo,
    AddsUpInFloat64,
    MapsOverExamples,
    RemembersItsTables,
    RectifiesItsScores,
    RectifiesAsTheBatchSays,
    AttendsToOne,
    SoftensInFloat32,
    FillsAFixedCache,
    WritesToLatents,
    HasNoLatentsOfItsOwn,
    WeighsByDistance,
    ConvolvesWithGaps,
    ConvolvesByFourier,
    MixesByFourier,
    ScansInParallel,
    StepsItsCell,
    KeepsTheLargest,
    RunsInTheOrderOfPositions,
    StartsAsTheIdentity,
    TurnsInThePlane,
    ForgetsOverTime,
    ForgetsBetweenSegments,
    AveragesItsNeighbours,
    TakesTheLargestOfItsNeighbours,
    ReadsTheBestOfItsNeighbours,
    AveragesEarlierNeighbours,
    HasNoCache,
    HasATableOf256,
]
