"""Every registered tokenizer × backbone × (causal or not) keeps the laws, and every law notices a planted fault."""

import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from conftest import SAMPLES, backbones
from laws.all_tokenizers import AllTokenizers
from laws.faulty_backbones import INVENTED, KNOWN, ScalesInTraining
from laws.sound_backbones import SOUND, SnapsToACodebook
from torch import nn

from seqkit.backbones import GRU, LSTM, MeanPool, Transformer
from seqkit.interfaces import Adjacency, Backbone, Embedded, TokenBatch
from seqkit.interfaces.batch import Padding
from seqkit.model import Model
from seqkit.nn.attention.context import Past, attention_context
from seqkit.nn.embedder import Embedder
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.raw import GraphData
from seqkit.registry import components
from seqkit.testing import (
    EmbeddedBackbone,
    another_process,
    check_backbone,
    check_embedded_backbone,
    check_tokenizer,
    laws_for,
    long_laws,
    module_laws,
    padding,
    synthetic,
    tokenizers,
)
from seqkit.testing.another_process import Made, is_the_same_in_another_process, run_elsewhere
from seqkit.testing.backbones import KINDS
from seqkit.testing.checks import SLOW, on_device
from seqkit.testing.process import fixed_generator

DIM = 24
laws = sys.modules["seqkit.testing.laws"]  # the package has a function of that name
TOKENIZERS = sorted(components("tokenizer"))  # now: tests of other files register more
OF_ITS_KIND = ("Bytes", "LogMel", "WhisperMel", "Patches", "Graph", "Molecule", "Cells", "Join")
"""Tokenizers whose tokens differ in kind: ids, numbers, numbers behind a stem, two axes, edges of few types and of
many, fields, and parts. The others give what one of these gives, so that what a backbone makes of it is proven."""
PAIRS = [
    (tokenizer, backbone)
    for i, tokenizer in enumerate(TOKENIZERS)
    for j, backbone in enumerate(sorted(backbones()))
    if tokenizer in OF_ITS_KIND or backbone == "Transformer" or j == i % len(backbones())
]
"""Each backbone with each kind of tokens; a tokenizer of another's kind with the Transformer, and one other in turn."""
EACH_PAIR = pytest.mark.parametrize(
    ("name", "backbone"),
    [
        pytest.param(
            *pair, marks=() if pair[1] in ("Transformer", "GRU") or i % 3 == 0 else pytest.mark.slow
        )
        for i, pair in enumerate(PAIRS)
    ],
    ids=["-".join(pair) for pair in PAIRS],
)
"""In the fast tier: all tokens with one that attends and one that recurs, and a third of the rest."""
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


# ── the laws over everything that is registered ──────────────────────────────────────────────────────────────────────


def test_a_tokenizer_keeps_its_laws(sample):
    check_tokenizer(
        sample.fitted(), sample.raws, unfitted=sample.build(), bad=sample.bad, other_process=False
    )


@pytest.fixture(scope="module")
def elsewhere():
    """Tokens and the state of every tokenizer from another process, by name: one process for all."""
    samples = {name: SAMPLES[name]() for name in TOKENIZERS}
    fitted = AllTokenizers({name: sample.fitted() for name, sample in samples.items()})
    unfitted = AllTokenizers({name: sample.build() for name, sample in samples.items()})
    pairs = [(name, raw) for name, sample in samples.items() for raw in sample.raws]
    found = run_elsewhere(fitted, pairs, unfitted)
    return {
        name: (
            [x for x, (one, _) in zip(found.tokens, pairs, strict=True) if one == name],
            [x for x, (one, _) in zip(found.anew, pairs, strict=True) if one == name],
            found.state.get(name),
        )
        for name in samples
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer_makes_the_same_tokens_in_another_process(name, elsewhere, monkeypatch):
    sample, (tokens, anew, state) = SAMPLES[name](), elsewhere[name]
    assert len(tokens) == len(anew) == len(sample.raws)
    assert (state is None) == (not hasattr(sample.build(), "fit"))
    found = Made(tokens, state, anew)
    monkeypatch.setattr(another_process, "run_elsewhere", lambda *_: found)
    is_the_same_in_another_process(sample.fitted(), sample.raws, sample.build)


LONG = ["no_column_attends_to_the_future", "any_batch_gives_the_same", "reorder_keeps_the_rows"]
"""Those that cost little of the laws that a quick check leaves out."""


@pytest.mark.slow
def test_a_backbone_keeps_its_laws_on_synthetic_texts(build):
    check_backbone(build, dim=DIM, kinds=["text"], quick=True)
    check_backbone(build, dim=DIM, causal=[True], kinds=["text"], only=LONG)


@pytest.mark.slow
def test_a_backbone_keeps_the_dear_laws_on_texts_and_those_of_modules_on_other_tokens(build):
    """The test below has the other laws of each kind of tokens; to a backbone that reads neither positions nor edges,
    all tokens are embeddings."""
    backbone = build(DIM, causal=False)
    check_backbone(build, dim=DIM, kinds=["text"], only=SLOW - set(LONG))
    reads_more = backbone.uses_positions or backbone.supports_adjacency
    kinds = [kind for kind in KINDS if kind != "text"] if reads_more else ["image"]
    of_modules = [law.__name__ for law in module_laws.MODULE_LAWS]
    check_backbone(build, dim=DIM, kinds=kinds, only=[*of_modules, "edges_matter"])


@EACH_PAIR
def test_a_backbone_keeps_its_laws_on_a_tokenizers_tokens(name, backbone):
    """Causal and bidirectional in turn: each backbone is both with half of the tokenizers, and both above."""
    causal = (TOKENIZERS.index(name) + sorted(backbones()).index(backbone)) % 2 == 1
    tokenizer, examples = SAMPLES[name]().encoded()
    checked = check_embedded_backbone(
        tokenizer.spec, backbones()[backbone](DIM, causal=causal), examples
    )
    assert laws.padding_changes_nothing in checked
    assert (laws.no_token_attends_to_the_future in checked) == causal


@pytest.mark.parametrize("modality", synthetic())
def test_laws_are_checked_with_the_positions_that_a_model_adds(build, modality):
    spec, _ = synthetic()[modality]
    backbone, objective = build(DIM, causal=False), Regress()
    objective.fit([1.0, 3.0], None)
    try:
        model = Model(spec, backbone, objective)
    except ValueError:
        pytest.skip(f"{type(backbone).__name__} refuses {modality}")
    found = EmbeddedBackbone(spec, backbone).embedder
    for name in (name for name, _ in spec.parts) if spec.is_joined else (None,):
        assert type(found.part(name).position) is type(model.embedder.part(name).position)


@CAUSAL
def test_dropout_of_a_backbone_acts_while_training_only(build, causal):
    spec, examples = synthetic()["text"]
    model, batch = (
        EmbeddedBackbone(spec, build(DIM, causal=causal, dropout=0.5)).train(),
        TokenBatch.collate(examples),
    )
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    torch.testing.assert_close(model(batch), model(batch))


@CAUSAL
def test_which_laws_apply_to_a_transformer(causal):
    applied = {}
    for name, (spec, examples) in synthetic().items():
        applied[name] = {
            law.__name__
            for law in laws_for(
                EmbeddedBackbone(spec, Transformer(DIM, 1, causal=causal)), examples
            )
        }
    always = {"padding_changes_nothing", "batch_mates_change_nothing", "padding_may_hold_anything"}
    always |= {"gradients_reach_every_parameter", "refuses_what_it_does_not_support"}
    if causal:
        assert applied["graph"] - always == {
            "no_token_attends_to_the_future",
            "nothing_crosses_components",
            "attends_along_edges",
        }
        assert applied["text"] - always == {
            "no_token_attends_to_the_future", "step_by_step_equals_at_once", "packed_equals_separate"
        }  # fmt: skip
    else:
        of_graphs = {
            "is_permutation_equivariant",
            "nothing_crosses_components",
            "attends_along_edges",
        }
        assert applied["graph"] - always == of_graphs
        assert applied["image"] - always == {
            "attends_both_ways",
            "is_permutation_equivariant",
            "packed_equals_separate",
        }


def _labels(objective, batch):
    if isinstance(objective, Classify | Regress):
        objective.fit([0, 1, 2], None)
        return torch.arange(len(batch)) % 3
    return None


OBJECTIVES = [
    NextToken,
    partial(NextToken, tied=True),
    partial(Masked, fraction=0.5),
    Classify,
    Regress,
]
GRADIENTS = [
    (name, backbone, objective)
    for i, (name, backbone) in enumerate(PAIRS)
    for objective in range(len(OBJECTIVES))
    if backbone == "Transformer" or objective == i % len(OBJECTIVES)
]
"""All objectives with each tokenizer in front of one backbone, and one in turn with each other pair."""


@pytest.mark.parametrize(
    ("name", "backbone", "objective"),
    GRADIENTS,
    ids=[f"{name}-{backbone}-{i}" for name, backbone, i in GRADIENTS],
)
def test_the_gradient_of_every_objective_reaches_every_parameter(name, backbone, objective):
    objective = OBJECTIVES[objective]()
    tokenizer, examples = SAMPLES[name]().encoded()
    backbone = backbones()[backbone](DIM, causal=bool(objective.causal))
    has_one_table = tokenizer.spec.ids or (
        bool(tokenizer.spec.vocab_sizes) and not getattr(objective, "tied", False)
    )
    is_bag = bool(tokenizer.spec.vocab_sizes) and tokenizer.spec.embedder is not None
    if (isinstance(objective, NextToken) and not has_one_table) or (
        isinstance(objective, NextToken | Masked) and is_bag
    ):
        with pytest.raises(
            ValueError,
            match=r"vectors|left to right|adjacency|joined of text, ids|several ids|bags",
        ):
            Model(tokenizer.spec, backbone, objective)
        return
    batch = TokenBatch.collate(examples)
    label = _labels(objective, batch)
    model = Model(
        tokenizer.spec,
        backbone,
        objective,
        adjacency="use" if backbone.supports_adjacency else "ignore",
    )
    label = label.float() if isinstance(objective, Regress) else label
    objective.step(model, (batch, label), training=True).loss.backward()
    for parameter, p in model.named_parameters():
        assert p.grad is not None, parameter
        assert bool(torch.isfinite(p.grad).all()), parameter
        assert bool((p.grad != 0).any()), parameter


@pytest.mark.parametrize("name", ["Graph", "Molecule"])
@pytest.mark.parametrize("backbone", ["Transformer", "Transformer-rotary"])
def test_renumbered_nodes_of_a_raw_graph_give_the_same_hidden_states_renumbered(name, backbone):
    sample = SAMPLES[name]()
    tokenizer, _ = sample.encoded()
    model = EmbeddedBackbone(tokenizer.spec, backbones()[backbone](DIM, causal=False))
    for raw in sample.raws:
        right = model(TokenBatch.collate([tokenizer.encode(raw)]))[0]
        order = torch.randperm(len(right))
        if isinstance(raw, GraphData):
            renumbered = replace(raw, nodes=raw.nodes[order], edges=order.argsort()[raw.edges])
        else:
            from rdkit import Chem

            renumbered = Chem.RenumberAtoms(Chem.MolFromSmiles(raw), order.tolist())
        got = model(TokenBatch.collate([tokenizer.encode(renumbered)]))[0]
        torch.testing.assert_close(got, right[order])


# ── faults planted in backbones, the embedder and the attention context ──────────────────────────────────────────────


class Faulty(Backbone):
    """A sound backbone with a wrong `forward(inner, embedded, cache)`, or with attributes that are not true."""

    def __init__(self, inner, forward=None, **attributes):
        super().__init__()
        self.inner, self._wrong = (
            inner,
            forward or (lambda inner, embedded, cache: inner(embedded, cache)),
        )
        for name in (
            "dim",
            "causal",
            "num_heads",
            "supports_adjacency",
            "supports_segments",
            "uses_positions",
            "is_recurrent",
        ):
            setattr(self, name, attributes.get(name, getattr(inner, name)))

    def forward(self, embedded, cache=None):
        return self._wrong(self.inner, embedded, cache)

    def init_cache(self, max_tokens):
        return self.inner.init_cache(max_tokens)

    def add_edge_bias(self, num_edge_types):
        self.inner.add_edge_bias(num_edge_types)


def _masked(hidden, embedded):
    return hidden * embedded.valid[..., None]


def _unpacked(inner, embedded, cache):
    every = torch.ones_like(embedded.valid)
    whole = replace(embedded, valid=every).know(Padding.of(every))
    return _masked(inner(whole, cache), embedded)


def _forgets_its_state(inner, embedded, cache):
    if cache is not None:
        cache.states = [None] * len(cache.states)
    return inner(embedded, cache)


def _miscounts(inner, embedded, cache):
    hidden = inner(embedded, cache)
    if cache is not None:
        cache.num_tokens += 1
    return hidden


def _mean_over_padding(inner, embedded, cache):
    hidden = inner(embedded, cache)
    return _masked(hidden + hidden.mean(dim=1, keepdim=True), embedded)


def _mean_over_batch(inner, embedded, cache):
    hidden = inner(embedded, cache)
    return _masked(hidden - hidden.mean(dim=(0, 1), keepdim=True), embedded)


def _padding_not_zeroed(inner, embedded, cache):
    return inner.norm(inner(embedded, cache)) + 1.0


def _shifted_back(inner, embedded, cache):
    return _masked(inner(embedded, cache).roll(-1, dims=1), embedded)


def _only_itself(inner, embedded, cache):
    return embedded.hidden


def _without_adjacency(inner, embedded, cache):
    return inner(replace(embedded, adjacency=None), cache)


def _without_graphs(inner, embedded, cache):
    return inner(replace(embedded, graphs=None), cache)


def _without_segments(inner, embedded, cache):
    return inner(replace(embedded, segments=None), cache)


def _edges_reversed(inner, embedded, cache):
    adjacency = embedded.adjacency
    return inner(
        replace(embedded, adjacency=Adjacency(adjacency.edge_index.flip(0), adjacency.edge_type)),
        cache,
    )


def _edges_of_the_first_example(inner, embedded, cache):
    # all edges land in the first example
    wrong = embedded.adjacency.edge_index % embedded.valid.shape[1]
    pairs = wrong[0] * embedded.valid.shape[1] + wrong[1]
    first = torch.tensor([int((pairs == pair).nonzero()[0]) for pair in pairs.unique()])
    return inner(
        replace(
            embedded, adjacency=Adjacency(wrong[:, first], embedded.adjacency.edge_type[first])
        ),
        cache,
    )


def _order_of_columns(inner, embedded, cache):
    column = torch.arange(embedded.valid.shape[1], dtype=embedded.hidden.dtype)[
        :, None
    ] * torch.randn(DIM)
    return inner(replace(embedded, hidden=_masked(embedded.hidden + column.sin(), embedded)), cache)


def _detached(inner, embedded, cache):
    return inner(replace(embedded, hidden=embedded.hidden.detach()), cache)


class _UnusedLayer(Transformer):
    def __init__(self, dim, depth):
        super().__init__(dim, depth)
        self.unused = nn.Linear(dim, dim)


class _AlwaysCaches(LSTM):
    def init_cache(self, max_tokens):
        return self.new_cache()


class _MultipliesPadding(Embedder):
    """NaN times zero is NaN."""

    def forward(self, batch, masked=None):
        real = batch.valid[..., None]
        hidden = (self.content(batch.content) + self.position(batch.positions)) * real
        return Embedded(hidden, batch.positions, batch.valid, batch.adjacency)


class _KeepsPositionsOfPadding(Embedder):
    """Hidden states are zero in padding, positions are not."""

    def forward(self, batch, masked=None):
        return replace(super().forward(batch, masked), positions=batch.positions)


def _transformer(causal=False, **settings):
    return Transformer(DIM, 2, num_heads=3, causal=causal, **settings)


PLANTED = {
    "bidirectional LSTM not packed": (laws.padding_changes_nothing, "text", lambda: Faulty(LSTM(DIM), _unpacked)),
    "mean over padding": (laws.padding_changes_nothing, "image", lambda: Faulty(_transformer(), _mean_over_padding)),
    "padding not zeroed": (
        laws.padding_changes_nothing, "text", lambda: Faulty(_transformer(), _padding_not_zeroed)
    ),
    "LSTM in a batch not packed": (laws.batch_mates_change_nothing, "series", lambda: Faulty(LSTM(DIM), _unpacked)),
    "mean over the batch": (laws.batch_mates_change_nothing, "text", lambda: Faulty(_transformer(), _mean_over_batch)),
    "edges without the example's offset": (
        laws.batch_mates_change_nothing, "graph", lambda: Faulty(_transformer(), _edges_of_the_first_example)
    ),
    "encoder that declares causal=True": (
        laws.no_token_attends_to_the_future, "text", lambda: Faulty(_transformer(), causal=True)
    ),
    "bidirectional network that declares causal=True": (
        laws.no_token_attends_to_the_future, "series", lambda: Faulty(GRU(DIM), causal=True)
    ),
    "outputs one column early": (
        laws.no_token_attends_to_the_future, "text", lambda: Faulty(_transformer(causal=True), _shifted_back)
    ),
    "tokens that attend only to themselves": (
        laws.no_token_attends_to_the_future, "text", lambda: Faulty(LSTM(DIM, causal=True), _only_itself)
    ),
    "decoder that declares causal=False": (
        laws.attends_both_ways, "image", lambda: Faulty(_transformer(causal=True), causal=False)
    ),
    "state that is lost between steps": (
        laws.step_by_step_equals_at_once, "text", lambda: Faulty(GRU(DIM, causal=True), _forgets_its_state)
    ),
    "cache that miscounts": (
        laws.step_by_step_equals_at_once, "text", lambda: Faulty(GRU(DIM, causal=True), _miscounts)
    ),
    "order taken from columns": (
        laws.is_permutation_equivariant, "graph", lambda: Faulty(_transformer(), _order_of_columns)
    ),
    "order of patches taken from columns": (
        laws.is_permutation_equivariant, "image", lambda: Faulty(_transformer(), _order_of_columns)
    ),
    "adjacency ignored": (laws.nothing_crosses_components, "graph", lambda: Faulty(_transformer(), _without_adjacency)),
    "joined graph whose edges are ignored": (
        laws.attends_along_edges, "joined graphs", lambda: Faulty(_transformer(), _without_adjacency)
    ),
    "text beside a graph that is blind": (
        laws.attends_along_edges, "joined graphs", lambda: Faulty(_transformer(), _without_graphs)
    ),
    "adjacency ignored, by gradient": (
        laws.attends_along_edges, "graph", lambda: Faulty(_transformer(), _without_adjacency)
    ),
    "edges reversed": (
        laws.attends_along_edges, "graph", lambda: Faulty(Transformer(DIM, 1), _edges_reversed)
    ),
    "edges that no token attends along": (
        laws.attends_along_edges, "graph", lambda: Faulty(_transformer(), _only_itself)
    ),
    "segments ignored": (laws.packed_equals_separate, "text", lambda: Faulty(_transformer(), _without_segments)),
    "unused layer": (laws.gradients_reach_every_parameter, "text", lambda: _UnusedLayer(DIM, 1)),
    "embedding cut off": (laws.gradients_reach_every_parameter, "text", lambda: Faulty(_transformer(), _detached)),
    "RNN that ignores adjacency": (
        laws.refuses_what_it_does_not_support, "text", lambda: Faulty(LSTM(DIM), _without_adjacency)
    ),
    "segments ignored, and not declared": (
        laws.refuses_what_it_does_not_support,
        "text",
        lambda: Faulty(LSTM(DIM), _without_segments, supports_segments=False),
    ),
    "bidirectional network with a cache": (laws.refuses_what_it_does_not_support, "text", lambda: _AlwaysCaches(DIM)),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_a_law_notices_a_planted_fault_in_a_backbone(fault):
    law, modality, build = PLANTED[fault]
    spec, examples = synthetic()[modality]
    with pytest.raises(AssertionError):
        law(EmbeddedBackbone(spec, build()), examples)


@pytest.mark.parametrize("broken", [_MultipliesPadding, _KeepsPositionsOfPadding])
def test_nan_in_padding_is_noticed_where_the_embedder_lets_it_through(broken):
    spec, examples = synthetic()["image"]
    model = EmbeddedBackbone(spec, _transformer(position=Rotary()))
    laws.padding_may_hold_anything(model, examples)
    model.embedder = broken(spec, DIM).double()
    with pytest.raises(AssertionError, match="content of padding"):
        laws.padding_may_hold_anything(model, examples)


def _triangle_from_the_top_left(embedded, **settings):
    """`is_causal=True` with more keys than queries aligns the triangle at the wrong corner."""
    return replace(attention_context(embedded, **settings), attn_mask=None, is_causal=True)


def _padding_in_the_cache_not_masked(embedded, *, past=None, **settings):
    past = None if past is None else Past(torch.ones_like(past.valid), past.positions, False)
    return attention_context(embedded, past=past, **settings)


def _positions_from_columns(embedded, *, past=None, **settings):
    start = 0 if past is None else past.valid.shape[1]
    columns = torch.arange(start, start + embedded.valid.shape[1])[None, :, None].expand_as(
        embedded.positions
    )
    return attention_context(replace(embedded, positions=columns.double()), past=past, **settings)


def _padding_not_masked(embedded, **settings):
    return attention_context(replace(embedded, valid=torch.ones_like(embedded.valid)), **settings)


def _causality_dropped_beside_padding(embedded, *, causal, **settings):
    return attention_context(embedded, causal=causal and bool(embedded.valid.all()), **settings)


def _reach_ignored(embedded, **settings):
    return attention_context(replace(embedded, reach=None), **settings)


def _reach_one_further(embedded, **settings):
    last = embedded.valid.shape[1] - 1
    return attention_context(
        replace(embedded, reach=(embedded.reach + 1).clamp(max=last)), **settings
    )


def _reach_one_less(embedded, **settings):
    column = torch.arange(embedded.valid.shape[1])
    return attention_context(
        replace(embedded, reach=(embedded.reach - 1).maximum(column)), **settings
    )


def _reach_as_causality(embedded, **settings):
    return attention_context(replace(embedded, reach=None), **settings | {"causal": True})


def _adjacency_ignored(embedded, **settings):
    return attention_context(replace(embedded, adjacency=None), **settings)


@pytest.mark.parametrize(
    ("law", "modality", "causal", "broken"),
    [
        (laws.step_by_step_equals_at_once, "text", True, _triangle_from_the_top_left),
        (laws.step_by_step_equals_at_once, "text", True, _padding_in_the_cache_not_masked),
        (laws.step_by_step_equals_at_once, "text", True, _positions_from_columns),
        (laws.padding_changes_nothing, "image", False, _padding_not_masked),
        (laws.batch_mates_change_nothing, "text", False, _padding_not_masked),
        (laws.padding_changes_nothing, "text", True, _causality_dropped_beside_padding),
        (laws.batch_mates_change_nothing, "text", True, _causality_dropped_beside_padding),
        (laws.nothing_crosses_components, "graph", False, _adjacency_ignored),
        (laws.keeps_its_reach, "text", None, _reach_ignored),
        (laws.keeps_its_reach, "image", None, _reach_one_further),
        (laws.keeps_its_reach, "text", None, _reach_one_less),
        (laws.keeps_its_reach, "series", None, _reach_as_causality),
    ],
)
def test_a_law_notices_a_planted_fault_in_the_attention_context(
    monkeypatch, law, modality, causal, broken
):
    spec, examples = synthetic()[modality]
    model = EmbeddedBackbone(spec, _transformer(causal=causal, position=Rotary()))
    law(model, examples)
    monkeypatch.setattr("seqkit.backbones.transformer.attention_context", broken)
    with pytest.raises(AssertionError):
        law(model, examples)


def test_step_by_step_notices_a_state_that_ran_over_padding():
    spec, examples = synthetic()["text"]
    model = EmbeddedBackbone(spec, LSTM(DIM, causal=True))
    laws.step_by_step_equals_at_once(model, examples)
    sound = model.backbone
    model.backbone = Faulty(sound, _unpacked)
    with pytest.raises(AssertionError, match="step by step differs from at once in column"):
        laws.step_by_step_equals_at_once(model, examples)


def test_every_law_of_backbones_has_a_planted_fault():
    text = partial(
        check_backbone,
        partial(Transformer, depth=1, num_heads=3),
        causal=[False, True, None],
        only=(),
    )
    applied = {
        *text().left_out,
        *check_backbone(partial(GRU, depth=1), causal=[True], only=()).left_out,
    }
    planted = {law.__name__ for law, _, _ in PLANTED.values()} | {
        "padding_may_hold_anything",
        "keeps_its_reach",
    }
    sentences = " ".join(sentence for _, _, sentence in KNOWN + INVENTED)
    assert {name for name in applied if name not in planted and f"{name}" not in sentences} == set()


GRAPHS = {
    "ReadsEightNeighbours": ["graph"],
    "SeesOneEdgeType": ["graph"],
    "KeepsWeightsOutsideStateDict": ["text"],
    "ForgetsEvery64Tokens": ["text"],
    "DetachesAfter64Tokens": ["text"],
    "LeaksInTraining": ["text"],
}
"""Tokens on which a fault shows, where it takes long to reach them."""


LIKE_OTHERS = {
    "CacheIsWrongAfterEightColumns", "LeaksFromColumn256", "MixesHalvesOfLargeBatches", "ReadsTheFirstAxisOnly",
    "ReordersNothing", "SeedsItsWeights",
}  # fmt: skip
"""Faults that take longest, and whose law notices another fault in the fast tier."""


@pytest.mark.parametrize(
    ("faulty", "causal", "sentence"),
    [
        pytest.param(
            *fault,
            id=fault[0].__name__,
            marks=pytest.mark.slow if i % 2 or fault[0].__name__ in LIKE_OTHERS else (),
        )
        for i, fault in enumerate(KNOWN + INVENTED)
    ],
)
def test_a_fault_is_named_with_class_law_and_example(faulty, causal, sentence):
    with pytest.raises(
        AssertionError, match=rf"(?m)^{faulty.__name__}\(causal={causal}\): .*({sentence})"
    ):
        check_backbone(faulty, dim=DIM, causal=[causal], kinds=GRAPHS.get(faulty.__name__, KINDS))


DEAR = {
    "ConvolvesWithGaps", "DropsItsLayerInTraining", "ForgetsOverTime", "HasATableOf256",
    "HasNoCache", "RecomputesInBackward", "RectifiesAsTheBatchSays", "RepeatsOneBlock", "RunsInTheOrderOfPositions",
    "SeesAllLayersBefore", "SolvesForItsStates", "StartsAtZero", "TrainsALowRankPart", "WeighsByDistance",
}  # fmt: skip
"""Sound backbones whose check takes longest; of the others every fifth is in the fast tier."""


@pytest.mark.parametrize(
    "sound",
    [
        pytest.param(
            x, marks=pytest.mark.slow if x.__name__ in DEAR or i % 5 else (), id=x.__name__
        )
        for i, x in enumerate(SOUND)
    ],
)
def test_an_unusual_backbone_that_is_sound_passes(sound):
    """Positions in other steps than one are for those that read positions, and graphs for those that read edges."""
    kinds = ["image"] + ["series"] * sound.uses_positions + ["graph"] * sound.supports_adjacency
    causal = [sound.causal] if sound.causal is not None or sound.takes_causality else [False, True]
    check_backbone(sound, dim=DIM, kinds=["text", *kinds], causal=causal, quick=True)
    check_backbone(sound, dim=DIM, kinds=["text", "graph"], causal=causal, only=SLOW)


def test_a_straight_through_estimate_breaks_one_law_and_may():
    reason = {"gradients_are_right": "rounding has the gradient of what was rounded"}
    check_backbone(
        SnapsToACodebook, dim=DIM, causal=[False], kinds=["text"], expected_failures=reason
    )


def test_a_law_that_is_expected_to_fail_may_fail():
    reason = {"training_equals_eval": "the scale is for training alone"}
    given = {"causal": [False], "kinds": ["text"], "quick": True}
    checked = check_backbone(ScalesInTraining, dim=DIM, expected_failures=reason, **given)
    assert checked.left_out["training_equals_eval"] == "expected to fail"
    assert module_laws.training_equals_eval not in checked
    assert module_laws.is_deterministic in checked


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("is_deterministic", "it is kept"), ("is_determined", "no such law")],
)
def test_a_law_that_is_expected_to_fail_and_does_not_is_an_error(name, sentence):
    with pytest.raises(AssertionError, match=f"{name}: .*{sentence}"):
        given = {"causal": [False], "kinds": ["text"], "quick": True}
        check_backbone(MeanPool, dim=DIM, expected_failures={name: "a reason"}, **given)


def test_what_is_not_checked_is_said_with_the_reason():
    def build(dim, causal):
        return Transformer(dim, 1, causal=causal, dropout=0.3)

    checked = check_backbone(build, dim=DIM, causal=[True], kinds=["text"], quick=True)
    assert checked.left_out["training_equals_eval"] == "random in training"
    assert checked.left_out["gradients_are_right"] == "takes long"
    assert {law.__name__ for law in checked}.isdisjoint(checked.left_out)


def test_every_law_that_a_quick_check_leaves_out_exists():
    known = [
        name
        for module in (laws, long_laws, module_laws, padding, tokenizers)
        for name in vars(module)
    ]
    assert set(known) >= SLOW


@pytest.mark.slow
def test_check_backbone_names_the_backbone_and_the_law():
    with pytest.raises(
        AssertionError,
        match=r"Faulty\(causal=True\): no_token_attends_to_the_future: a token attends to the future",
    ):
        check_backbone(
            lambda dim, causal: Faulty(Transformer(dim, 1), causal=True), dim=DIM, causal=[True]
        )
    with pytest.raises(AssertionError, match="built with dim=24"):
        check_backbone(lambda dim, causal: LSTM(dim), dim=DIM, causal=[True])


def test_check_embedded_backbone_needs_examples_of_different_lengths():
    spec, examples = synthetic()["text"]
    with pytest.raises(ValueError, match=r"\[7, 7\] tokens"):
        check_embedded_backbone(spec, LSTM(DIM), [examples[0], examples[0]])


# ── devices ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_that_a_check_makes_is_on_its_device_also_what_a_generator_of_the_cpu_draws():
    with on_device("meta"):
        drawn = [
            torch.randn(2, generator=fixed_generator()),
            torch.tensor([1]),
            *LSTM(DIM).parameters(),
        ]
        # its recurrent layers have no gradient in evaluation mode
        assert not torch.backends.cudnn.enabled
    assert {x.device.type for x in drawn} == {"meta"}
    assert torch.backends.cudnn.enabled
    assert torch.ones(1).device.type == "cpu"


def test_a_device_that_is_not_here_is_refused():
    with pytest.raises(ValueError, match="device gpu cannot be used here") as refused:
        check_backbone(MeanPool, dim=DIM, device="gpu")
    assert "\n" not in str(refused.value)
