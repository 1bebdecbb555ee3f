"""Every encoder–decoder keeps its laws, and each law notices a planted fault."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import (
    GRU,
    LSTM,
    TCN,
    AttentionDecoder,
    EncoderDecoder,
    MeanPool,
    RNNDecoder,
    Transformer,
)
from seqkit.interfaces import Adjacency, Backbone, Embedded, TokenBatch, Tokens, TokenSpec
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.embedder import Embedder
from seqkit.nn.position.absolute import NoPosition, Sinusoidal, default_position
from seqkit.nn.position.rotary import Rotary
from seqkit.registry import components

DIM = 12
ADDITIVE = partial(MultiHeadAttention, mechanism=AdditiveAttention)
close = partial(assert_close, rtol=1e-7, atol=1e-7)


def encoder(**settings):
    return Transformer(DIM, 2, num_heads=3, **settings)


def decoder(**settings):
    return Transformer(
        DIM,
        2,
        num_heads=3,
        causal=True,
        block=partial(PreNormBlock, cross_attention=True),
        **settings,
    )


def pair_of(mixer):
    """Of mixers alone, and beside attention; each decoder's block also attends to the memory."""
    return EncoderDecoder(encoder(mixer=mixer), decoder(mixer=[mixer, None]))


PAIRS = {
    "Transformer + Transformer": lambda: EncoderDecoder(encoder(), decoder()),
    "rotary": lambda: EncoderDecoder(encoder(position=Rotary()), decoder(position=Rotary())),
    "GRU + GRU": lambda: EncoderDecoder(GRU(DIM, 1), RNNDecoder(DIM)),
    "GRU + GRU with Bahdanau's attention": lambda: EncoderDecoder(
        GRU(DIM, 1), RNNDecoder(DIM, attention=ADDITIVE)
    ),
    "LSTM + 2 LSTM, 3 heads": lambda: EncoderDecoder(
        LSTM(DIM, 1), RNNDecoder(DIM, 2, cell="LSTM", attention=MultiHeadAttention, num_heads=3)
    ),
    "LSTM + 2 LSTM": lambda: EncoderDecoder(LSTM(DIM, 1), RNNDecoder(DIM, 2, cell="LSTM")),
    "GRU + Transformer": lambda: EncoderDecoder(GRU(DIM, 1), decoder()),
    "TCN with attention": lambda: EncoderDecoder(
        GRU(DIM, 1), AttentionDecoder(TCN(DIM, 1, causal=True), num_heads=3)
    ),
    "Transformer + GRU": lambda: EncoderDecoder(encoder(), RNNDecoder(DIM, attention=ADDITIVE)),
} | {
    f"mixers, {name}": partial(pair_of, component.load())
    for name, component in components("mixer").items()
}


class EmbeddedPair(nn.Module):
    """Two embedders over vectors and an encoder–decoder, as a `Model` has them, in float64."""

    def __init__(self, backbone, embedder=Embedder):
        super().__init__()
        encoder = backbone.get_encoder()
        self.source = embedder(TokenSpec(num_features=5), DIM, position=position(encoder))
        self.target = embedder(TokenSpec(num_features=3), DIM, position=position(backbone))
        self.backbone = backbone
        for weight in backbone.parameters():
            # a Transformer's are initialised so small that a fault would hardly show
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.3)
        self.double().eval()

    def forward(self, target, source=None, cache=None):
        embedded = self.target(target)
        if source is not None:
            embedded = replace(embedded, source=self.source(source))
        return self.backbone(embedded, cache)


def position(backbone):
    return NoPosition if backbone.uses_positions or backbone.is_recurrent else Sinusoidal


def examples(lengths, features, start=0):
    g = torch.Generator().manual_seed(features)
    return [
        Tokens(
            torch.randn(n, features, generator=g).double(),
            torch.arange(start, start + n).double()[:, None],
        )
        for n in lengths
    ]


SOURCES, TARGETS = examples((5, 3, 7), 5), examples((5, 7, 6), 3)
SOURCE, TARGET = TokenBatch.collate(SOURCES), TokenBatch.collate(TARGETS)


def alone(model):
    """Each example without the others."""
    return [
        model(TokenBatch.collate([t]), TokenBatch.collate([s]))[0] for s, t in zip(SOURCES, TARGETS)
    ]


# ── the laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def padding_of_the_source_changes_nothing(model):
    close(model(TARGET, SOURCE.pad(2)), model(TARGET, SOURCE))


def padding_of_the_target_changes_nothing(model):
    longer = model(TARGET.pad(2), SOURCE)
    close(longer[:, :-2], model(TARGET, SOURCE))
    assert not longer[~TARGET.pad(2).valid].any()


def batch_mates_change_nothing(model):
    together = model(TARGET, SOURCE)
    for i, right in enumerate(alone(model)):
        close(together[i, : len(right)], right)


def padding_may_hold_anything(model):
    dirty = [
        replace(x, content=x.content.masked_fill(~x.valid[..., None], torch.nan))
        for x in (TARGET, SOURCE)
    ]
    close(model(*dirty), model(TARGET, SOURCE))


def no_token_attends_to_the_future(model):
    right = model(TARGET, SOURCE)
    for t in range(TARGET.valid.shape[1] - 1):
        content = TARGET.content.clone()
        content[:, t + 1 :] = -content[:, t + 1 :] - 1
        close(model(replace(TARGET, content=content), SOURCE)[:, : t + 1], right[:, : t + 1])


def every_token_attends_to_its_whole_source(model):
    content = SOURCE.content.clone().requires_grad_()
    hidden = model(TARGET, replace(SOURCE, content=content))
    for i, t in TARGET.valid.nonzero().tolist():
        (gradient,) = torch.autograd.grad(
            hidden[i, t] @ torch.randn(DIM).double(), content, retain_graph=True
        )
        attended = gradient.abs().amax(dim=-1) > 0
        only_its_own = torch.zeros_like(SOURCE.valid)
        only_its_own[i] = SOURCE.valid[i]
        assert torch.equal(attended, only_its_own)


def packed_targets_are_as_apart(model):
    """Hidden states and gradients: each target with the source of its row, whatever is beside it."""
    rows, g = [[0, 2, 1], [1, 0]], torch.Generator().manual_seed(0)
    direction = torch.randn(7, DIM, generator=g).double()
    packed = TokenBatch.collate([Tokens.join([TARGETS[i] for i in row]) for row in rows])
    segments = torch.zeros_like(packed.valid, dtype=torch.int64)
    for own, row in zip(segments, rows, strict=True):
        number = torch.repeat_interleave(torch.tensor([len(TARGETS[i]) for i in row]))
        own[: len(number)] = number
    hidden = model(packed.replace(segments=segments), TokenBatch.collate(SOURCES[:2]))
    lengths = [len(TARGETS[i]) for row in rows for i in row]
    found = hidden[packed.valid].split(lengths)
    right = [
        model(TokenBatch.collate([TARGETS[i]]), TokenBatch.collate([source]))[0]
        for row, source in zip(rows, SOURCES, strict=False)
        for i in row
    ]
    close(torch.cat(found), torch.cat(right))
    both = [sum((x * direction[: len(x)]).sum() for x in parts) for parts in (found, right)]
    for one, other in zip(*(torch.autograd.grad(x, list(model.parameters())) for x in both)):
        close(one, other)


def steps(model, cache, start, end, source=None):
    """Hidden states of tokens start to end, with a cache."""
    cut = [Tokens(x.content[start:end], x.positions[start:end]) for x in TARGETS]
    return model(TokenBatch.collate(cut), source, cache)


@torch.no_grad()
def step_by_step_equals_at_once(model):
    """Prompts of different lengths, then chunks of 1, 2 and 1 tokens; the source is given with the prompts alone."""
    cache = model.backbone.init_cache(10)
    chunks, source = [[] for _ in TARGETS], SOURCE
    for back, until in ((99, 3), (3, 2), (2, 0)):
        ends = [(max(len(x) - 1 - back, 0), len(x) - 1 - until) for x in TARGETS]
        batch = TokenBatch.collate(
            [Tokens(x.content[a:b], x.positions[a:b]) for x, (a, b) in zip(TARGETS, ends)]
        )
        hidden = model(batch, source, cache)
        source = None
        for chunk, row, (a, b) in zip(chunks, hidden, ends):
            chunk.append(row[: b - a])
    assert cache.num_tokens == 3 + 1 + 2
    for chunk, right in zip(chunks, alone(model)):
        close(torch.cat(chunk), right[:-1])


@torch.no_grad()
def a_reordered_cache_continues_the_chosen_examples(model):
    cache, rows = model.backbone.init_cache(4), torch.tensor([2, 0, 2])
    steps(model, cache, 0, 2, SOURCE)
    cache.reorder(rows)
    cut = TokenBatch.collate(
        [Tokens(TARGETS[i].content[2:4], TARGETS[i].positions[2:4]) for i in rows]
    )
    hidden, right = model(cut, None, cache), alone(model)
    for row, i in zip(hidden, rows):
        close(row, right[i][2:4])


def gradients_reach_every_parameter(model):
    hidden = model(TARGET, SOURCE)
    (hidden * torch.randn(hidden.shape)).sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert bool(p.grad.abs().max() > 0), name
        assert bool(torch.isfinite(p.grad).all()), name


# ── a fault for each ─────────────────────────────────────────────────────────────────────────────────────────────────


class Faulty(Backbone):
    """A sound encoder–decoder with a fault before or after it."""

    causal = is_encoder_decoder = True

    def __init__(
        self,
        before=lambda embedded: embedded,
        after=lambda hidden, embedded: hidden,
        ignores_reorder=False,
    ):
        super().__init__()
        self.inner, self.before, self.after, self.ignores_reorder = (
            PAIRS["GRU + Transformer"](),
            before,
            after,
            ignores_reorder,
        )
        self.dim = self.inner.dim

    def get_encoder(self):
        return self.inner.get_encoder()

    def init_cache(self, max_tokens):
        cache = self.inner.init_cache(max_tokens)
        if self.ignores_reorder:
            cache.reorder = lambda rows: None
        return cache

    def forward(self, embedded, cache=None):
        return self.after(self.inner(self.before(embedded), cache), embedded)


class MultipliesPadding(Embedder):
    """NaN times zero is NaN."""

    def forward(self, batch, masked=None):
        embedded = super().forward(replace(batch, valid=torch.ones_like(batch.valid)), masked)
        return replace(embedded, hidden=embedded.hidden * batch.valid[..., None], valid=batch.valid)


class Unused(nn.Module):
    """A parameter without effect."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))


def source_without_mask(embedded):
    source = embedded.source
    return replace(embedded, source=source and replace(source, valid=torch.ones_like(source.valid)))


def source_of_zeros(embedded):
    source = embedded.source
    return replace(embedded, source=source and replace(source, hidden=source.hidden * 0))


def with_an_unused_parameter():
    model = EmbeddedPair(Faulty())
    model.unused = Unused()
    return model


FAULTS = {
    padding_of_the_source_changes_nothing: lambda: EmbeddedPair(Faulty(before=source_without_mask)),
    padding_of_the_target_changes_nothing: lambda: EmbeddedPair(
        Faulty(after=lambda h, e: h + e.valid.shape[1])
    ),
    batch_mates_change_nothing: lambda: EmbeddedPair(Faulty(after=lambda h, e: h + h.mean(dim=0))),
    padding_may_hold_anything: lambda: EmbeddedPair(Faulty(), MultipliesPadding),
    no_token_attends_to_the_future: lambda: EmbeddedPair(
        Faulty(after=lambda h, e: h + e.hidden.sum(dim=1, keepdim=True))
    ),
    every_token_attends_to_its_whole_source: lambda: EmbeddedPair(Faulty(before=source_of_zeros)),
    step_by_step_equals_at_once: lambda: EmbeddedPair(
        Faulty(after=lambda h, e: h + h.cumsum(dim=1))
    ),
    a_reordered_cache_continues_the_chosen_examples: lambda: EmbeddedPair(
        Faulty(ignores_reorder=True)
    ),
    gradients_reach_every_parameter: with_an_unused_parameter,
    packed_targets_are_as_apart: lambda: EmbeddedPair(
        Faulty(before=lambda embedded: replace(embedded, segments=None))
    ),
}


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(name, marks=pytest.mark.slow if name.startswith("mixers") else ())
        for name in PAIRS
    ],
)
@pytest.mark.parametrize("check_law", FAULTS, ids=lambda law: law.__name__)
def test_an_encoder_decoder_keeps_the_law(check_law, pair):
    check_law(EmbeddedPair(PAIRS[pair]()))


@pytest.mark.parametrize("check_law", FAULTS, ids=lambda law: law.__name__)
def test_the_law_notices_a_planted_fault(check_law):
    check_law(EmbeddedPair(Faulty()))
    with pytest.raises(AssertionError):
        check_law(FAULTS[check_law]())


def test_packed_sources_are_refused():
    model = EmbeddedPair(PAIRS["Transformer + Transformer"]())
    packed = SOURCE.replace(segments=torch.zeros_like(SOURCE.valid, dtype=torch.int64))
    with pytest.raises(ValueError, match="the source is packed"):
        model(TARGET, packed)
    model = EmbeddedPair(PAIRS["GRU + GRU"]())
    with pytest.raises(ValueError, match="the source is packed"):
        model(TARGET, packed)


# ── composition and support ──────────────────────────────────────────────────────────────────────────────────────────


def test_it_is_the_encoder_followed_by_the_decoder():
    pair, x, source = (
        EncoderDecoder(encoder(), decoder()),
        torch.randn(2, 3, DIM),
        torch.randn(2, 5, DIM),
    )

    def real(hidden):
        n = hidden.shape[1]
        return Embedded(hidden, torch.zeros(2, n, 1), torch.ones(2, n, dtype=torch.bool))

    memory = pair.encoder(real(source))
    assert_close(
        pair(replace(real(x), source=real(source))),
        pair.decoder(replace(real(x), memory=real(memory))),
    )
    assert pair.get_encoder() is pair.encoder
    assert (pair.dim, pair.causal, pair.is_encoder_decoder, pair.supports_adjacency) == (
        DIM,
        True,
        True,
        True,
    )


def test_the_target_has_positions_unless_the_decoder_is_to_know_no_order():
    spec, bag = TokenSpec(vocab_size=11), AttentionDecoder(MeanPool(DIM, causal=True))
    assert default_position(EncoderDecoder(encoder(), bag), spec) is NoPosition
    assert default_position(EncoderDecoder(MeanPool(DIM), decoder()), spec) is Sinusoidal


def test_a_source_may_have_an_adjacency_where_the_encoder_supports_it():
    model = EmbeddedPair(EncoderDecoder(encoder(), decoder()))
    adjacency = Adjacency(torch.tensor([[0, 1], [1, 0]]), torch.ones(2, dtype=torch.int64))
    with_edges = TokenBatch.collate([replace(SOURCES[1], adjacency=adjacency)])
    target, plain = TokenBatch.collate(TARGETS[:1]), TokenBatch.collate(SOURCES[1:2])
    assert (model(target, with_edges) - model(target, plain)).abs().max() > 1e-3
    without_bias = model(target, with_edges)
    model.backbone.add_edge_bias(1)
    bias = model.double().get_parameter("backbone.encoder.edge_biases.3.weight")
    nn.init.normal_(bias)
    assert (model(target, with_edges) - without_bias).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (
            lambda: (GRU(DIM, causal=True), decoder()),
            "encoder .GRU. ",
        ),
        (lambda: (decoder(), decoder()), "encoder .Transformer. "),
        (lambda: (encoder(), GRU(DIM, causal=True)), "decoder .GRU. "),
        (
            lambda: (encoder(), encoder(block=partial(PreNormBlock, cross_attention=True))),
            "decoder .Transformer. ",
        ),
        (lambda: (GRU(14), decoder()), "14 and 12"),
    ],
)
def test_an_encoder_or_decoder_of_the_wrong_kind_is_refused(pair, message):
    with pytest.raises(ValueError, match=message):
        EncoderDecoder(*pair())


@pytest.mark.parametrize("pair", ["Transformer + Transformer", "GRU + GRU"])
def test_a_missing_source_is_refused(pair):
    with pytest.raises(ValueError, match="no source"):
        EmbeddedPair(PAIRS[pair]())(TARGET)
