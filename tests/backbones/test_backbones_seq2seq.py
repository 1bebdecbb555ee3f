"""Every pair of an encoder and a decoder keeps the laws of writing one sequence from another; each law can fail."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import GRU, LSTM, RecurrentDecoder, Seq2Seq, Transformer
from seqkit.conformance.laws import pad
from seqkit.contract import Backbone, Embedded, Links, TokenBatch, Tokens, TokenSpec
from seqkit.embed import Embedder
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block
from seqkit.layers.position import NoPosition, Rotary, Sinusoidal
from seqkit.layers.scores import Additive

DIM = 12
ADDITIVE = partial(Attention, mechanism=Additive)
close = partial(assert_close, rtol=1e-7, atol=1e-7)


def encoder(**settings):
    return Transformer(DIM, 2, num_heads=3, **settings)


def decoder(**settings):
    return Transformer(DIM, 2, num_heads=3, causal=True, block=partial(Block, cross=True), **settings)


PAIRS = {
    "Transformer + Transformer": lambda: Seq2Seq(encoder(), decoder()),
    "rotary": lambda: Seq2Seq(encoder(position=Rotary()), decoder(position=Rotary())),
    "GRU + GRU": lambda: Seq2Seq(GRU(DIM, 1), RecurrentDecoder(DIM)),
    "GRU + GRU with Bahdanau's attention": lambda: Seq2Seq(GRU(DIM, 1), RecurrentDecoder(DIM, attention=ADDITIVE)),
    "LSTM + 2 LSTM, 3 heads": lambda: Seq2Seq(
        LSTM(DIM, 1), RecurrentDecoder(DIM, 2, cell="LSTM", attention=Attention, num_heads=3)
    ),
    "LSTM + 2 LSTM": lambda: Seq2Seq(LSTM(DIM, 1), RecurrentDecoder(DIM, 2, cell="LSTM")),
    "GRU + Transformer": lambda: Seq2Seq(GRU(DIM, 1), decoder()),
    "Transformer + GRU": lambda: Seq2Seq(encoder(), RecurrentDecoder(DIM, attention=ADDITIVE)),
}


class Writer(nn.Module):
    """Two Embedders over vectors and a backbone, as a `Model` has them, in float64."""

    def __init__(self, backbone, embedder=Embedder):
        super().__init__()
        reader = backbone.source_reader()
        self.source = embedder(TokenSpec(num_features=5), DIM, position=position(reader))
        self.target = embedder(TokenSpec(num_features=3), DIM, position=position(backbone))
        self.backbone = backbone
        for weight in backbone.parameters():
            if weight.ndim > 1:  # a Transformer's start so small that a fault would hardly show
                nn.init.normal_(weight, std=0.3)
        self.double().eval()

    def forward(self, target, source=None, cache=None):
        embedded = self.target(target)
        if source is not None:
            embedded = replace(embedded, memory=self.source(source))
        return self.backbone(embedded, cache)


def position(reader):
    return NoPosition if reader.reads_positions or reader.ordered else Sinusoidal


def examples(lengths, features, start=0):
    g = torch.Generator().manual_seed(features)
    return [
        Tokens(torch.randn(n, features, generator=g).double(), torch.arange(start, start + n).double()[:, None])
        for n in lengths
    ]


SOURCES, TARGETS = examples((5, 3, 7), 5), examples((5, 7, 6), 3)
SOURCE, TARGET = TokenBatch.collate(SOURCES), TokenBatch.collate(TARGETS)


def alone(writer):
    """Each example by itself."""
    return [writer(TokenBatch.collate([t]), TokenBatch.collate([s]))[0] for s, t in zip(SOURCES, TARGETS)]


# ── the laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def padding_of_the_source_changes_nothing(writer):
    close(writer(TARGET, pad(SOURCE, 2)), writer(TARGET, SOURCE))


def padding_of_the_target_changes_nothing(writer):
    longer = writer(pad(TARGET, 2), SOURCE)
    close(longer[:, :-2], writer(TARGET, SOURCE))
    assert not longer[~pad(TARGET, 2).valid].any()


def batch_mates_change_nothing(writer):
    together = writer(TARGET, SOURCE)
    for i, right in enumerate(alone(writer)):
        close(together[i, : len(right)], right)


def padding_may_hold_anything(writer):
    dirty = [replace(x, content=x.content.masked_fill(~x.valid[..., None], torch.nan)) for x in (TARGET, SOURCE)]
    close(writer(*dirty), writer(TARGET, SOURCE))


def no_token_reads_the_future(writer):
    right = writer(TARGET, SOURCE)
    for t in range(TARGET.valid.shape[1] - 1):
        content = TARGET.content.clone()
        content[:, t + 1 :] = -content[:, t + 1 :] - 1
        close(writer(replace(TARGET, content=content), SOURCE)[:, : t + 1], right[:, : t + 1])


def every_token_reads_the_whole_source(writer):
    content = SOURCE.content.clone().requires_grad_()
    hidden = writer(TARGET, replace(SOURCE, content=content))
    for i, t in TARGET.valid.nonzero().tolist():
        (gradient,) = torch.autograd.grad(hidden[i, t] @ torch.randn(DIM).double(), content, retain_graph=True)
        read = gradient.abs().amax(dim=-1) > 0
        only_its_own = torch.zeros_like(SOURCE.valid)
        only_its_own[i] = SOURCE.valid[i]
        assert torch.equal(read, only_its_own)


def steps(writer, cache, start, end, source=None):
    """Hidden vectors of tokens start to end, given to a cache."""
    cut = [Tokens(x.content[start:end], x.positions[start:end]) for x in TARGETS]
    return writer(TokenBatch.collate(cut), source, cache)


@torch.no_grad()
def step_by_step_equals_at_once(writer):
    """Prompts of different lengths, then chunks of 1, 2 and 1 tokens; the source is given with the prompts alone."""
    cache = writer.backbone.init_cache(10)
    pieces, source = [[] for _ in TARGETS], SOURCE
    for back, until in ((99, 3), (3, 2), (2, 0)):
        ends = [(max(len(x) - 1 - back, 0), len(x) - 1 - until) for x in TARGETS]
        batch = TokenBatch.collate([Tokens(x.content[a:b], x.positions[a:b]) for x, (a, b) in zip(TARGETS, ends)])
        hidden = writer(batch, source, cache)
        source = None
        for piece, row, (a, b) in zip(pieces, hidden, ends):
            piece.append(row[: b - a])
    assert cache.num_tokens == 3 + 1 + 2
    for piece, right in zip(pieces, alone(writer)):
        close(torch.cat(piece), right[:-1])


@torch.no_grad()
def a_cache_goes_on_with_the_rows_that_are_kept(writer):
    cache, rows = writer.backbone.init_cache(4), torch.tensor([2, 0, 2])
    steps(writer, cache, 0, 2, SOURCE)
    cache.select(rows)
    cut = TokenBatch.collate([Tokens(TARGETS[i].content[2:4], TARGETS[i].positions[2:4]) for i in rows])
    hidden, right = writer(cut, None, cache), alone(writer)
    for row, i in zip(hidden, rows):
        close(row, right[i][2:4])


def gradients_reach_every_parameter(writer):
    hidden = writer(TARGET, SOURCE)
    (hidden * torch.randn(hidden.shape)).sum().backward()
    for name, p in writer.named_parameters():
        assert p.grad is not None, name
        assert bool(p.grad.abs().max() > 0), name
        assert bool(torch.isfinite(p.grad).all()), name


# ── a fault for each ─────────────────────────────────────────────────────────────────────────────────────────────────


class Faulty(Backbone):
    """A backbone with something wrong before or after it."""

    causal = reads_memory = True

    def __init__(self, before=lambda embedded: embedded, after=lambda hidden, embedded: hidden, forgets=False):
        super().__init__()
        self.inner, self.before, self.after, self.forgets = PAIRS["GRU + Transformer"](), before, after, forgets
        self.dim = self.inner.dim

    def source_reader(self):
        return self.inner.source_reader()

    def init_cache(self, max_tokens):
        cache = self.inner.init_cache(max_tokens)
        if self.forgets:
            cache.select = lambda rows: None
        return cache

    def forward(self, embedded, cache=None):
        return self.after(self.inner(self.before(embedded), cache), embedded)


class Careless(Embedder):
    """Multiplies padding away, where NaN times zero is NaN."""

    def forward(self, batch, hide=None):
        embedded = super().forward(replace(batch, valid=torch.ones_like(batch.valid)), hide)
        return replace(embedded, hidden=embedded.hidden * batch.valid[..., None], valid=batch.valid)


class Idle(nn.Module):
    """Weights that do nothing."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))


def all_of_the_source(embedded):
    memory = embedded.memory
    return replace(embedded, memory=memory and replace(memory, valid=torch.ones_like(memory.valid)))


def nothing_of_the_source(embedded):
    memory = embedded.memory
    return replace(embedded, memory=memory and replace(memory, hidden=memory.hidden * 0))


def with_idle_weights():
    writer = Writer(Faulty())
    writer.idle = Idle()
    return writer


FAULTS = {
    padding_of_the_source_changes_nothing: lambda: Writer(Faulty(before=all_of_the_source)),
    padding_of_the_target_changes_nothing: lambda: Writer(Faulty(after=lambda h, e: h + e.valid.shape[1])),
    batch_mates_change_nothing: lambda: Writer(Faulty(after=lambda h, e: h + h.mean(dim=0))),
    padding_may_hold_anything: lambda: Writer(Faulty(), Careless),
    no_token_reads_the_future: lambda: Writer(Faulty(after=lambda h, e: h + e.hidden.sum(dim=1, keepdim=True))),
    every_token_reads_the_whole_source: lambda: Writer(Faulty(before=nothing_of_the_source)),
    step_by_step_equals_at_once: lambda: Writer(Faulty(after=lambda h, e: h + h.cumsum(dim=1))),
    a_cache_goes_on_with_the_rows_that_are_kept: lambda: Writer(Faulty(forgets=True)),
    gradients_reach_every_parameter: with_idle_weights,
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("law", FAULTS, ids=lambda law: law.__name__)
def test_a_pair_keeps_the_law(law, pair):
    law(Writer(PAIRS[pair]()))


@pytest.mark.parametrize("law", FAULTS, ids=lambda law: law.__name__)
def test_the_law_notices_a_planted_fault(law):
    law(Writer(Faulty()))
    with pytest.raises(AssertionError):
        law(FAULTS[law]())


# ── what else a pair is ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pair_is_its_parts_one_after_the_other():
    pair, x, source = Seq2Seq(encoder(), decoder()), torch.randn(2, 3, DIM), torch.randn(2, 5, DIM)

    def real(hidden):
        n = hidden.shape[1]
        return Embedded(hidden, torch.zeros(2, n, 1), torch.ones(2, n, dtype=torch.bool))

    read = pair.encoder(real(source))
    assert_close(pair(replace(real(x), memory=real(source))), pair.decoder(replace(real(x), memory=real(read))))
    assert pair.source_reader() is pair.encoder
    assert (pair.dim, pair.causal, pair.reads_memory, pair.reads_links) == (DIM, True, True, True)


def test_a_source_may_have_links_where_the_encoder_reads_them():
    writer = Writer(Seq2Seq(encoder(), decoder()))
    links = Links(torch.tensor([[0, 1], [1, 0]]), torch.ones(2, dtype=torch.int64))
    linked = TokenBatch.collate([replace(SOURCES[1], links=links)])
    target, plain = TokenBatch.collate(TARGETS[:1]), TokenBatch.collate(SOURCES[1:2])
    assert (writer(target, linked) - writer(target, plain)).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (lambda: (GRU(DIM, causal=True), decoder()), r"the encoder \(GRU\) should read one sequence, both ways"),
        (lambda: (decoder(), decoder()), r"the encoder \(Transformer\) should read one sequence"),
        (lambda: (encoder(), GRU(DIM, causal=True)), r"the decoder \(GRU\) should be causal and read the encoder's"),
        (lambda: (encoder(), encoder(block=partial(Block, cross=True))), r"the decoder \(Transformer\) should be caus"),
        (lambda: (GRU(14), decoder()), r"encoder and decoder differ in width \(14 and 12\)"),
    ],
)
def test_parts_that_do_not_fit_their_place_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        Seq2Seq(*parts())


@pytest.mark.parametrize("pair", ["Transformer + Transformer", "GRU + GRU"])
def test_nothing_to_read_is_refused(pair):
    with pytest.raises(ValueError, match="reads another sequence, and was given none"):
        Writer(PAIRS[pair]())(TARGET)
