"""Causality of the backbone, of the objective, and of the batch: one set of weights for both ways, and prefixes."""

import copy
from functools import partial

import pytest
import torch
from laws.combinations import DIM, HEADS, SETTINGS
from torch.testing import assert_close

from seqkit.backbones import GRU, TCN, Mamba, MeanPool, Transformer
from seqkit.backbones.reversible import Reversible
from seqkit.generation import generate
from seqkit.interfaces import Adjacency, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.linear import LinearAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.attention.sliding_window import SlidingWindowAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Classify, Masked, NextToken
from seqkit.registry import components
from seqkit.runs.answers import hidden_states
from seqkit.testing import check_backbone

IDS = TokenSpec(vocab_size=11)


def batch(*lengths):
    g = torch.Generator().manual_seed(3)
    examples = [
        Tokens(torch.randint(11, (n,), generator=g), torch.arange(float(n))[:, None])
        for n in lengths
    ]
    return TokenBatch.collate(examples)


def classify():
    objective = Classify()
    objective.fit([0, 1, 2], None)
    return objective


def stack(causal, **settings):
    torch.manual_seed(1)
    return Transformer(DIM, 2, num_heads=HEADS, causal=causal, **settings)


def twin(model, causal):
    """The same weights around a backbone that is causal or not by itself."""
    other = copy.deepcopy(model)
    other.backbone.causal = causal
    return other.eval()


def with_mechanism(mechanism, causal):
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=mechanism))
    return Transformer(DIM, 2, num_heads=HEADS, causal=causal, block=block)


OF_CAUSALITY = [
    "keeps_its_reach",
    "no_token_attends_to_the_future",
    "attends_both_ways",
    "step_by_step_equals_at_once",
]


@pytest.mark.parametrize("name", components("mechanism"))
def test_a_mechanism_takes_causality_from_the_batch_or_refuses_when_built(name):
    mechanism = components("mechanism")[name].load()
    build = partial(with_mechanism, partial(mechanism, **SETTINGS.get(name, {})))
    both = AttentionFeature.CAUSAL | AttentionFeature.BIDIRECTIONAL | AttentionFeature.REACH
    if both in mechanism.supports:
        check_backbone(
            lambda dim, causal: build(causal),
            dim=DIM,
            causal=[None],
            kinds=["text"],
            only=OF_CAUSALITY,
        )
    else:
        with pytest.raises(ValueError, match="causal=None"):
            build(None)


def test_one_backbone_predicts_the_next_token_and_classifies():
    backbone, given = stack(None, position=Rotary()), batch(9, 4)
    language, classifier = Model(IDS, backbone, NextToken()), Model(IDS, backbone, classify())
    assert language.backbone is classifier.backbone
    assert (language.causal, classifier.causal) == (True, False)
    for model, causal in ((language.eval(), True), (classifier.eval(), False)):
        right = model(given)
        assert_close(right, twin(model, causal)(given))
        assert (right - twin(model, not causal)(given)).abs().max() > 1e-4
    for objective, model, label in (
        (NextToken(), language, None),
        (classify(), classifier, torch.tensor([0, 2])),
    ):
        objective.step(model, (given, label), training=True).loss.backward()
        assert all(p.grad is not None and p.grad.any() for p in backbone.parameters())
        backbone.zero_grad()


def test_vectors_are_those_of_the_objectives_causality():
    for objective, causal in ((NextToken(), True), (classify(), False)):
        model = Model(IDS, stack(None), objective).eval()
        assert_close(hidden_states(model, batch(6)), hidden_states(twin(model, causal), batch(6)))
        assert (
            hidden_states(model, batch(6)) - hidden_states(twin(model, not causal), batch(6))
        ).abs().max() > 1e-4


def test_masked_tokens_are_predicted_from_both_sides():
    model = Model(IDS, stack(None), Masked()).eval()
    assert not model.causal
    assert_close(model(batch(7)), twin(model, False)(batch(7)))


@pytest.mark.parametrize("settings", [{}, {"position": Rotary()}], ids=["added", "rotary"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_generation_is_that_of_a_causal_backbone(settings, use_cache):
    model = Model(IDS, stack(None, **settings), NextToken()).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4.0)
    prompts = [torch.tensor([1, 2, 3]), torch.tensor([4])]
    got, right = (generate(m, prompts, 12, use_cache=use_cache) for m in (model, twin(model, True)))
    assert [ids.tolist() for ids in got] == [ids.tolist() for ids in right]


def test_a_prefix_is_seen_whole_and_the_rest_from_left_to_right():
    model, given = Model(IDS, stack(None), NextToken()).double().eval(), batch(8)
    given = given.with_dtype(torch.float64).replace(reach=torch.tensor([[2, 2, 2, 3, 4, 5, 6, 7]]))
    right = model(given)

    def moved(column):
        content = given.content.clone()
        content[0, column] = (content[0, column] + 1) % 11
        return (model(given.replace(content=content)) - right).abs().amax(dim=-1)[0] > 1e-9

    assert moved(2).tolist() == [True] * 8
    assert moved(5).tolist() == [False] * 5 + [True] * 3


@pytest.mark.parametrize("backbone", [GRU(DIM, causal=True), TCN(DIM, causal=True), stack(True)])
def test_a_causal_backbone_sees_less_than_any_reach(backbone):
    model, given = Model(IDS, backbone, NextToken()).eval(), batch(5)
    assert_close(model(given.replace(reach=torch.tensor([[4] * 5]))), model(given))


def test_a_bidirectional_backbone_refuses_a_reach():
    with pytest.raises(ValueError, match="reach"):
        Model(IDS, stack(False), Masked())(batch(3).replace(reach=torch.tensor([[0, 1, 2]])))


@pytest.mark.parametrize("wrong", [
    [0, 0, 2, 3],  # before its own column
    [2, 1, 2, 3],  # falls
    [1, 2, 2, 3],  # column 1, where column 0 ends, reaches on
    [0, 1, 2, 4],  # beyond the last
])  # fmt: skip
def test_a_reach_that_would_leak_is_refused_where_it_is_made(wrong):
    with pytest.raises(ValueError, match="reach of column"):
        batch(4).replace(reach=torch.tensor([wrong]))
    with pytest.raises(ValueError, match="int64"):
        batch(4).replace(reach=torch.tensor([[0.0, 1.0, 2.0, 3.0]]))


def test_a_reach_goes_along_with_its_columns():
    given = batch(6, 4).replace(reach=torch.tensor([[2, 2, 2, 5, 5, 5], [0, 1, 3, 3, 0, 0]]))
    assert given.columns(slice(-1)).reach.tolist() == [[2, 2, 2, 4, 4], [0, 1, 3, 3, 0]]
    assert given.columns(slice(2, 5)).reach[0].tolist() == [0, 2, 2]
    assert given.pad(1).reach[1].tolist() == [0, 1, 3, 3, 0, 0, 0]


@pytest.mark.parametrize("kind", [GRU, Mamba, TCN, MeanPool, Reversible])
def test_causality_of_the_batch_is_refused_by_backbones_that_cannot_take_it(kind):
    settings = {} if kind in (GRU, Mamba, MeanPool, TCN) else {"depth": 1}
    with pytest.raises(ValueError, match="causal=None"):
        Model(IDS, kind(DIM, causal=None, **settings), NextToken())


@pytest.mark.parametrize(("mechanism", "refused"), [
    (partial(SlidingWindowAttention, size=3), True), (LinearAttention, False),
])  # fmt: skip
def test_a_set_is_refused_where_columns_count(mechanism, refused):
    spec, backbone = TokenSpec(vocab_size=5, is_set=True), with_mechanism(mechanism, False)
    assert backbone.knows_columns == refused
    if refused:
        with pytest.raises(ValueError, match="order of columns"):
            Model(spec, backbone, classify())
    Model(spec, backbone, classify(), set_as_sequence=refused)


def protein(ids, contacts):
    """Residues in a chain: each is joined to the one before it and to its contacts."""
    n = len(ids)
    pairs = [(i, i + 1) for i in range(n - 1)] + [(i + 1, i) for i in range(n - 1)] + contacts
    index = torch.tensor(pairs, dtype=torch.int64).T
    edge_type = torch.tensor([1] * (2 * n - 2) + [2] * len(contacts))
    return Tokens(torch.tensor(ids), torch.arange(float(n))[:, None], Adjacency(index, edge_type))


def test_ordered_tokens_with_edges_train_from_left_to_right():
    spec = TokenSpec(vocab_size=11, num_edge_types=2)
    chains = [protein([3, 1, 4, 1, 5], [(0, 4), (4, 0)]), protein([9, 2, 6], [])]
    model = Model(spec, stack(None), NextToken()).double().eval()
    given = NextToken().prepare(TokenBatch.collate(chains), None)
    assert given.batch.adjacency.edge_index.max() < given.batch.valid.numel()
    right = model(given.batch)
    for column in range(4):
        content = given.batch.content.clone()
        content[0, column] = (content[0, column] + 1) % 11
        differs = (model(given.batch.replace(content=content)) - right).abs().amax(dim=-1)[0] > 1e-9
        assert not differs[:column].any()
        assert differs[column]
    assert_close(
        model(NextToken().prepare(TokenBatch.collate(chains[1:]), None).batch)[0], right[1, :2]
    )


def test_nodes_without_positions_have_no_left_and_right():
    with pytest.raises(ValueError, match="left to right"):
        Model(TokenSpec(vocab_size=11, num_axes=0, num_edge_types=2), stack(True), NextToken())
