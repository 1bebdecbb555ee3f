"""Every registered tokenizer × backbone × (causal or not) keeps the laws, and every law notices a planted fault."""

import inspect
from dataclasses import replace

import pytest
import torch
from torch import nn

import seqkit.conformance.laws as laws
from seqkit.backbones import GRU, LSTM, Transformer
from seqkit.backbones.recurrent import RecurrentState
from seqkit.conformance import Reader, check_backbone, check_reader, check_tokenizer, laws_for, made_up
from seqkit.contract import Backbone, Embedded, Links, TokenBatch
from seqkit.embed import Embedder
from seqkit.layers.block import Block
from seqkit.layers.position import Rotary
from seqkit.mask import who_reads_whom
from seqkit.model import Model
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.tokenizers import GraphData

DIM = 24
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["both-ways", "causal"])


# ── the laws over everything that is registered ──────────────────────────────────────────────────────────────────────


def test_a_tokenizer_keeps_its_laws(sample):
    check_tokenizer(sample.fitted(), sample.raws, unfitted=sample.build(), bad=sample.bad)


def test_a_backbone_keeps_its_laws_on_made_up_tokens(build):
    check_backbone(build, dim=DIM)


@CAUSAL
def test_a_backbone_keeps_its_laws_on_a_tokenizers_tokens(sample, build, causal):
    tokenizer, examples = sample.encoded()
    checked = check_reader(tokenizer.spec, build(DIM, causal=causal), examples)
    assert laws.padding_changes_nothing in checked
    assert (laws.no_token_reads_the_future in checked) == causal


@pytest.mark.parametrize("kind", made_up())
def test_laws_are_checked_with_the_positions_that_a_model_adds(build, kind):
    spec, _ = made_up()[kind]
    backbone, objective = build(DIM, causal=False), Regress()
    objective.fit([1.0, 3.0], None)
    try:
        model = Model(spec, backbone, objective)
    except ValueError:
        pytest.skip(f"{type(backbone).__name__} refuses {kind}")
    assert type(Reader(spec, backbone).embedder.position) is type(model.embedder.position)


@CAUSAL
def test_which_laws_bind_a_transformer(causal):
    bound = {}
    for name, (spec, examples) in made_up().items():
        bound[name] = {law.__name__ for law in laws_for(Reader(spec, Transformer(DIM, 1, causal=causal)), examples)}
    always = {"padding_changes_nothing", "batch_mates_change_nothing", "padding_may_hold_anything"}
    always |= {"gradients_reach_every_parameter", "refuses_what_it_cannot_honour"}
    if causal:
        assert bound["graph"] - always == {
            "no_token_reads_the_future",
            "nothing_crosses_components",
            "reads_along_links",
        }
        assert bound["text"] - always == {
            "no_token_reads_the_future", "step_by_step_equals_at_once", "packed_equals_separate"
        }  # fmt: skip
    else:
        along = {"order_is_told_by_positions", "nothing_crosses_components", "reads_along_links"}
        assert bound["graph"] - always == along
        assert bound["image"] - always == {"reads_both_ways", "order_is_told_by_positions", "packed_equals_separate"}


def _labels(objective, batch):
    if isinstance(objective, Classify | Regress):
        objective.fit([0, 1, 2], None)
        return torch.arange(len(batch)) % 3
    return None


@pytest.mark.parametrize("objective", [NextToken(), NextToken(tied=True), Masked(fraction=0.5), Classify(), Regress()])
def test_the_gradient_of_every_objective_reaches_every_parameter(sample, build, objective):
    tokenizer, examples = sample.encoded()
    backbone = build(DIM, causal=bool(objective.causal))
    if isinstance(objective, NextToken) and not tokenizer.spec.ids:
        with pytest.raises(ValueError, match=r"vectors|left to right|who reads whom"):
            Model(tokenizer.spec, backbone, objective)
        return
    batch = TokenBatch.collate(examples)
    label = _labels(objective, batch)
    model = Model(tokenizer.spec, backbone, objective, links="read" if backbone.reads_links else "ignore")
    task = objective.prepare(batch, label if not isinstance(objective, Regress) else label.float())
    objective.score(model(task.batch, task.hide), task.target).loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert bool(torch.isfinite(p.grad).all()), name
        assert bool((p.grad != 0).any()), name


def test_renumbered_nodes_of_a_raw_graph_give_the_same_vectors_renumbered(sample, build):
    tokenizer, _ = sample.encoded()
    if tokenizer.spec.num_links == 0:
        return
    if not build(DIM, causal=False).reads_links:
        return
    reader = Reader(tokenizer.spec, build(DIM, causal=False))
    for raw in sample.raws:
        right = reader(TokenBatch.collate([tokenizer.encode(raw)]))[0]
        order = torch.randperm(len(right))
        if isinstance(raw, GraphData):
            moved = replace(raw, nodes=raw.nodes[order], edges=order.argsort()[raw.edges])
        else:
            from rdkit import Chem

            moved = Chem.RenumberAtoms(Chem.MolFromSmiles(raw), order.tolist())
        got = reader(TokenBatch.collate([tokenizer.encode(moved)]))[0]
        torch.testing.assert_close(got, right[order], rtol=1e-5, atol=1e-6)


# ── faults planted in backbones, the embedder and who reads whom ─────────────────────────────────────────────────────


class Faulty(Backbone):
    """A sound backbone, read in a wrong way: `forward(inner, embedded, cache)`, or claiming what is not true."""

    def __init__(self, inner, forward=None, **claims):
        super().__init__()
        self.inner, self._wrong = inner, forward or (lambda inner, embedded, cache: inner(embedded, cache))
        for name in ("dim", "causal", "num_heads", "reads_links", "reads_segments", "reads_positions", "ordered"):
            setattr(self, name, claims.get(name, getattr(inner, name)))

    def forward(self, embedded, cache=None):
        return self._wrong(self.inner, embedded, cache)

    def init_cache(self, max_tokens):
        return self.inner.init_cache(max_tokens)


def _zero(hidden, embedded):
    return hidden * embedded.valid[..., None]


def _unpacked(inner, embedded, cache):
    return _zero(inner.layers(embedded.hidden)[0], embedded)


def _unpacked_steps(inner, embedded, cache):
    hidden, cache.state = inner.layers(embedded.hidden, cache.state)
    cache.num_tokens += embedded.valid.shape[1]
    return _zero(hidden, embedded)


def _forgets(inner, embedded, cache):
    if cache is not None:
        cache.state = None
    return inner(embedded, cache)


def _miscounts(inner, embedded, cache):
    hidden = inner(embedded, cache)
    if cache is not None:
        cache.num_tokens += 1
    return hidden


def _mean_over_padding(inner, embedded, cache):
    hidden = inner(embedded, cache)
    return _zero(hidden + hidden.mean(dim=1, keepdim=True), embedded)


def _mean_over_batch(inner, embedded, cache):
    hidden = inner(embedded, cache)
    return _zero(hidden - hidden.mean(dim=(0, 1), keepdim=True), embedded)


def _normed_over_padding_columns(inner, embedded, cache):
    return inner.norm(inner(embedded, cache)) + 1.0


def _shifted_back(inner, embedded, cache):
    return _zero(inner(embedded, cache).roll(-1, dims=1), embedded)


def _only_itself(inner, embedded, cache):
    return embedded.hidden


def _without_links(inner, embedded, cache):
    return inner(replace(embedded, links=None), cache)


def _without_segments(inner, embedded, cache):
    return inner(replace(embedded, segments=None), cache)


def _links_turned_round(inner, embedded, cache):
    links = embedded.links
    return inner(replace(embedded, links=Links(links.edges.flip(0), links.kinds)), cache)


def _links_of_columns_in_a_shorter_batch(inner, embedded, cache):
    wrong = embedded.links.edges % embedded.valid.shape[1]  # all links land in the first example
    keys = wrong[0] * embedded.valid.shape[1] + wrong[1]
    first = torch.tensor([int((keys == key).nonzero()[0]) for key in keys.unique()])
    return inner(replace(embedded, links=Links(wrong[:, first], embedded.links.kinds[first])), cache)


def _order_of_columns(inner, embedded, cache):
    column = torch.arange(embedded.valid.shape[1], dtype=embedded.hidden.dtype)[:, None] * torch.randn(DIM)
    return inner(replace(embedded, hidden=_zero(embedded.hidden + column.sin(), embedded)), cache)


def _detached(inner, embedded, cache):
    return inner(replace(embedded, hidden=embedded.hidden.detach()), cache)


class _UnusedLayer(Transformer):
    def __init__(self, dim, depth):
        super().__init__(dim, depth)
        self.unused = nn.Linear(dim, dim)


class _AlwaysCaches(LSTM):
    def init_cache(self, max_tokens):
        return RecurrentState()


class _MultipliesPadding(Embedder):
    """NaN times zero is NaN."""

    def forward(self, batch, hide=None):
        real = batch.valid[..., None]
        hidden = (self.content(batch.content) + self.position(batch.positions)) * real
        return Embedded(hidden, batch.positions, batch.valid, batch.links, self.link_bias)


class _KeepsPositionsOfPadding(Embedder):
    """Zero content, but whatever stands in the positions of padding."""

    def forward(self, batch, hide=None):
        return replace(super().forward(batch, hide), positions=batch.positions)


def _transformer(causal=False, **settings):
    return Transformer(DIM, 2, num_heads=3, causal=causal, **settings)


PLANTED = {
    "bidirectional LSTM not packed": (laws.padding_changes_nothing, "text", lambda: Faulty(LSTM(DIM), _unpacked)),
    "mean over padding": (laws.padding_changes_nothing, "image", lambda: Faulty(_transformer(), _mean_over_padding)),
    "padding not zeroed": (
        laws.padding_changes_nothing, "text", lambda: Faulty(_transformer(), _normed_over_padding_columns)
    ),
    "LSTM in a batch not packed": (laws.batch_mates_change_nothing, "series", lambda: Faulty(LSTM(DIM), _unpacked)),
    "mean over the batch": (laws.batch_mates_change_nothing, "text", lambda: Faulty(_transformer(), _mean_over_batch)),
    "links without the example's offset": (
        laws.batch_mates_change_nothing, "graph", lambda: Faulty(_transformer(), _links_of_columns_in_a_shorter_batch)
    ),
    "encoder that says it is causal": (
        laws.no_token_reads_the_future, "text", lambda: Faulty(_transformer(), causal=True)
    ),
    "two directions that say they are one": (
        laws.no_token_reads_the_future, "series", lambda: Faulty(GRU(DIM), causal=True)
    ),
    "outputs one column early": (
        laws.no_token_reads_the_future, "text", lambda: Faulty(_transformer(causal=True), _shifted_back)
    ),
    "tokens that read only themselves": (
        laws.no_token_reads_the_future, "text", lambda: Faulty(LSTM(DIM, causal=True), _only_itself)
    ),
    "decoder that says it is an encoder": (
        laws.reads_both_ways, "image", lambda: Faulty(_transformer(causal=True), causal=False)
    ),
    "state that is forgotten": (
        laws.step_by_step_equals_at_once, "text", lambda: Faulty(GRU(DIM, causal=True), _forgets)
    ),
    "cache that miscounts": (
        laws.step_by_step_equals_at_once, "text", lambda: Faulty(GRU(DIM, causal=True), _miscounts)
    ),
    "order taken from columns": (
        laws.order_is_told_by_positions, "graph", lambda: Faulty(_transformer(), _order_of_columns)
    ),
    "order of patches taken from columns": (
        laws.order_is_told_by_positions, "image", lambda: Faulty(_transformer(), _order_of_columns)
    ),
    "links dropped": (laws.nothing_crosses_components, "graph", lambda: Faulty(_transformer(), _without_links)),
    "links dropped, by gradient": (laws.reads_along_links, "graph", lambda: Faulty(_transformer(), _without_links)),
    "links turned round": (
        laws.reads_along_links, "graph", lambda: Faulty(Transformer(DIM, 1), _links_turned_round)
    ),
    "links that nobody follows": (laws.reads_along_links, "graph", lambda: Faulty(_transformer(), _only_itself)),
    "segments dropped": (laws.packed_equals_separate, "text", lambda: Faulty(_transformer(), _without_segments)),
    "layer that is not used": (laws.gradients_reach_every_parameter, "text", lambda: _UnusedLayer(DIM, 1)),
    "embedding cut off": (laws.gradients_reach_every_parameter, "text", lambda: Faulty(_transformer(), _detached)),
    "branches that start at zero": (
        laws.gradients_reach_every_parameter,
        "text",
        lambda: _transformer(block=lambda dim, heads: Block(dim, heads, zero_init=True)),
    ),
    "RNN that drops links": (laws.refuses_what_it_cannot_honour, "text", lambda: Faulty(LSTM(DIM), _without_links)),
    "RNN that drops segments": (
        laws.refuses_what_it_cannot_honour, "text", lambda: Faulty(LSTM(DIM), _without_segments)
    ),
    "two directions with a cache": (laws.refuses_what_it_cannot_honour, "text", lambda: _AlwaysCaches(DIM)),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_a_law_notices_a_planted_fault_in_a_backbone(fault):
    law, modality, build = PLANTED[fault]
    spec, examples = made_up()[modality]
    with pytest.raises(AssertionError):
        law(Reader(spec, build()), examples)


@pytest.mark.parametrize("broken", [_MultipliesPadding, _KeepsPositionsOfPadding])
def test_nan_in_padding_is_noticed_where_the_embedder_lets_it_through(broken):
    spec, examples = made_up()["image"]
    reader = Reader(spec, _transformer(position=Rotary()))
    laws.padding_may_hold_anything(reader, examples)
    reader.embedder = broken(spec, DIM).double()
    with pytest.raises(AssertionError, match="what stands in padding"):
        laws.padding_may_hold_anything(reader, examples)


def _triangle_from_the_top_left(embedded, **how):
    """`is_causal=True` with more keys than queries aligns the triangle at the wrong corner."""
    right = who_reads_whom(embedded, **how)
    return replace(right, attend=None, causal=True)


def _padding_in_the_cache_is_read(embedded, *, past=None, **how):
    past = None if past is None else (torch.ones_like(past[0]), past[1])
    return who_reads_whom(embedded, past=past, **how)


def _positions_from_columns(embedded, *, past=None, **how):
    start = 0 if past is None else past[0].shape[1]
    columns = torch.arange(start, start + embedded.valid.shape[1])[None, :, None].expand_as(embedded.positions)
    return who_reads_whom(replace(embedded, positions=columns.double()), past=past, **how)


def _padding_is_read(embedded, **how):
    return who_reads_whom(replace(embedded, valid=torch.ones_like(embedded.valid)), **how)


def _causality_dropped_beside_padding(embedded, *, causal, **how):
    return who_reads_whom(embedded, causal=causal and bool(embedded.valid.all()), **how)


def _bias_forgotten(embedded, **how):
    return who_reads_whom(replace(embedded, links=None), **how)


@pytest.mark.parametrize(
    ("law", "modality", "causal", "broken"),
    [
        (laws.step_by_step_equals_at_once, "text", True, _triangle_from_the_top_left),
        (laws.step_by_step_equals_at_once, "text", True, _padding_in_the_cache_is_read),
        (laws.step_by_step_equals_at_once, "text", True, _positions_from_columns),
        (laws.padding_changes_nothing, "image", False, _padding_is_read),
        (laws.batch_mates_change_nothing, "text", False, _padding_is_read),
        (laws.padding_changes_nothing, "text", True, _causality_dropped_beside_padding),
        (laws.batch_mates_change_nothing, "text", True, _causality_dropped_beside_padding),
        (laws.nothing_crosses_components, "graph", False, _bias_forgotten),
    ],
)
def test_a_law_notices_a_planted_fault_in_who_reads_whom(monkeypatch, law, modality, causal, broken):
    spec, examples = made_up()[modality]
    reader = Reader(spec, _transformer(causal=causal, position=Rotary()))
    law(reader, examples)
    monkeypatch.setattr("seqkit.backbones.transformer.who_reads_whom", broken)
    with pytest.raises(AssertionError):
        law(reader, examples)


def test_step_by_step_notices_a_state_that_has_read_padding():
    spec, examples = made_up()["text"]
    reader = Reader(spec, LSTM(DIM, causal=True))
    laws.step_by_step_equals_at_once(reader, examples)
    sound = reader.backbone
    reader.backbone = Faulty(sound, lambda inner, e, cache: (_unpacked_steps if cache else _unpacked)(inner, e, cache))
    with pytest.raises(AssertionError, match="step by step differs"):
        laws.step_by_step_equals_at_once(reader, examples)


def test_every_law_of_backbones_has_a_planted_fault():
    named = {name for name, law in inspect.getmembers(laws, inspect.isfunction) if law.__module__ == laws.__name__}
    named = {name for name in named if "reader" in inspect.signature(getattr(laws, name)).parameters and name[0] != "_"}
    assert {law.__name__ for law, _, _ in PLANTED.values()} | {"padding_may_hold_anything"} == named


def test_check_backbone_names_the_part_and_the_law():
    with pytest.raises(
        AssertionError, match=r"Faulty\(causal=True\): no_token_reads_the_future: a token reads the future"
    ):
        check_backbone(lambda dim, causal: Faulty(Transformer(dim, 1), causal=True), dim=DIM, causal=[True])
    with pytest.raises(AssertionError, match=r"built with dim=24, causal=True; it says dim=24, causal=False"):
        check_backbone(lambda dim, causal: LSTM(dim), dim=DIM)


def test_check_reader_wants_examples_of_different_lengths():
    spec, examples = made_up()["text"]
    with pytest.raises(ValueError, match=r"examples have \[7, 7\] tokens"):
        check_reader(spec, LSTM(DIM), [examples[0], examples[0]])
