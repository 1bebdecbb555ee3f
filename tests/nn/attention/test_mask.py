"""The attention mask equals its definition, by brute force; and no mask is made where none is needed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqkit.interfaces import Adjacency, Embedded, TokenBatch, Tokens
from seqkit.interfaces.batch import Padding
from seqkit.nn.attention.context import Past, attention_context, cross_attention_context
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.mask import dense_edge_types
from seqkit.nn.position.base import RelativePosition
from seqkit.nn.position.rotary import Rotary


class Distance(RelativePosition):
    """A bias that is easy to predict: minus the distance, times the number of the head."""

    requires = AttentionFeature.BIAS

    def bias(self, query_positions, key_positions, num_heads):
        distance = (query_positions - key_positions.mT).abs()
        return -torch.stack([distance * (h + 1) for h in range(num_heads)], dim=1)


def may_attend(valid, edge_types, segments, causal, t, i, j):
    """Token i of this pass (t tokens are in the cache) may attend to token j of all."""
    same = segments is None or segments[i] == segments[j]
    adjacent = edge_types is None or i == j or edge_types[i][j] > 0
    return bool(valid[j] and same and adjacent and (not causal or j <= i + t))


def sdpa_mask(context, b, n, m):
    """[b n m] mask that SDPA will apply."""
    if context.attn_mask is None:
        assert not context.is_causal or n == m
        every_pair = torch.ones(b, n, m, dtype=torch.bool)
        return every_pair.tril() if context.is_causal else every_pair
    attn_mask = (
        context.attn_mask
        if context.attn_mask.dtype == torch.bool
        else context.attn_mask > -torch.inf
    )
    return attn_mask.expand(b, attn_mask.shape[1], n, m)[:, 0]


def batch(lengths, t, has_adjacency, segmented, seed):
    g = torch.Generator().manual_seed(seed)
    b, n = len(lengths), max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    adjacency = None
    if has_adjacency:
        examples = []
        for length in lengths:
            edge_index = (torch.rand(length, length, generator=g) < 0.4).nonzero().T
            edge_type = torch.randint(1, 4, (edge_index.shape[1],), generator=g)
            adjacency = Adjacency(edge_index, edge_type)
            examples.append(Tokens(torch.zeros(length, 1), torch.zeros(length, 1), adjacency))
        adjacency = TokenBatch.collate(examples).adjacency
    segments = torch.randint(2, (b, n), generator=g) if segmented else None
    positions = torch.arange(t, t + n).float().expand(b, n)[..., None]
    past = None
    if t:
        past = columns(torch.rand(b, t, generator=g) < 0.7)
    embedded = Embedded(torch.zeros(b, n, 5), positions, valid, adjacency, segments)
    return embedded.know(Padding.of(valid)), past


def columns(valid):
    """A past of these columns, at positions 0, 1, 2, …"""
    positions = torch.arange(float(valid.shape[1])).expand(valid.shape)[..., None]
    return Past(valid, positions, not bool(valid.all()))


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(["plain", "past", "adjacency", "segments", "adjacency and segments"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_the_attention_mask_equals_its_definition(lengths, causal, kind, biased, seed):
    t = 3 if kind == "past" else 0
    embedded, past = batch(lengths, t, "adjacency" in kind, "segments" in kind, seed)
    b, n = embedded.valid.shape
    position = Distance() if biased else None
    context = attention_context(
        embedded, causal=causal, num_heads=2, head_dim=4, position=position, past=past
    )
    got = sdpa_mask(context, b, n, t + n)
    valid = embedded.valid if past is None else torch.cat([past.valid, embedded.valid], dim=1)
    edge_types = (
        dense_edge_types(embedded.adjacency, b, n) if embedded.adjacency is not None else None
    )
    for x in range(b):
        for i in range(lengths[x]):  # padded queries may attend to anything
            for j in range(t + n):
                own = (
                    None if y is None else y[x].tolist()
                    for y in (valid, edge_types, embedded.segments)
                )
                assert bool(got[x, i, j]) == may_attend(*own, causal, t, i, j), (x, i, j)
                if biased and got[x, i, j]:
                    assert context.attn_mask[x, :, i, j].tolist() == [
                        -float(abs(t + i - j)),
                        -2.0 * abs(t + i - j),
                    ]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 99))
def test_dense_edge_types_are_the_edges_one_by_one(lengths, seed):
    embedded, _ = batch(lengths, 0, True, False, seed)
    b, n = embedded.valid.shape
    right = torch.zeros(b, n, n, dtype=torch.int64)
    adjacency = embedded.adjacency
    for (source, target), edge_type in zip(
        adjacency.edge_index.T.tolist(), adjacency.edge_type.tolist()
    ):
        assert source // n == target // n
        right[target // n, target % n, source % n] = edge_type
    assert dense_edge_types(embedded.adjacency, b, n).equal(right)


def test_the_target_of_an_edge_attends_to_its_source():
    edge = Adjacency(torch.tensor([[0], [2]]), torch.tensor([1]))
    embedded = Embedded(torch.zeros(1, 3, 5), torch.zeros(1, 3, 1), torch.ones(1, 3).bool(), edge)
    context = attention_context(embedded, causal=False, num_heads=2, head_dim=4)
    assert context.attn_mask[0, 0].tolist() == [
        [True, False, False],
        [False, True, False],
        [True, False, True],
    ]


@pytest.mark.parametrize("biased", [False, True])
def test_edges_add_the_bias_of_their_type_and_every_token_that_of_type_0(biased):
    adjacency = Adjacency(torch.tensor([[1, 0, 5], [0, 1, 3]]), torch.tensor([2, 1, 3]))
    table = torch.randn(4, 2)
    embedded = Embedded(
        torch.zeros(2, 3, 5), torch.rand(2, 3, 1), torch.ones(2, 3).bool(), adjacency
    )
    attn_mask = attention_context(
        embedded,
        causal=False,
        num_heads=2,
        head_dim=4,
        position=Distance() if biased else None,
        edge_bias=table,
    ).attn_mask
    right = torch.full((2, 2, 3, 3), -torch.inf)
    for x, i, j, edge_type in [
        (0, 0, 1, 2),
        (0, 1, 0, 1),
        (1, 0, 2, 3),
        *((x, i, i, 0) for x in range(2) for i in range(3)),
    ]:
        right[x, :, i, j] = table[edge_type]
    if biased:
        right = right + Distance().bias(embedded.positions, embedded.positions, 2)
    torch.testing.assert_close(attn_mask, right)


def test_joined_tokens_outside_of_a_graph_get_no_edge_bias():
    """Columns 0 and 1 are one graph, 2 is another, 3 is a token of another part."""
    adjacency, graphs = (
        Adjacency(torch.tensor([[0], [1]]), torch.tensor([1])),
        torch.tensor([[1, 1, 2, 0]]),
    )
    embedded = Embedded(
        torch.zeros(1, 4, 5),
        torch.zeros(1, 4, 0),
        torch.ones(1, 4).bool(),
        adjacency,
        graphs=graphs,
    )
    context = attention_context(
        embedded, causal=False, num_heads=1, head_dim=2, edge_bias=torch.tensor([[5.0], [7.0]])
    )
    masked = -torch.inf
    right = [
        [5.0, masked, 0.0, 0.0],
        [7.0, 5.0, 0.0, 0.0],
        [0.0, 0.0, 5.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
    ]
    assert context.attn_mask[0, 0].tolist() == right


def test_padding_beside_a_graph_attends_to_itself():
    """A row without any key is 0 in torch and NaN in ONNX, and NaN reaches real tokens through later layers."""
    adjacency = Adjacency(torch.tensor([[3], [4]]), torch.tensor([1]))
    valid = torch.tensor([[True, False, False], [True, True, True]])
    embedded = Embedded(torch.zeros(2, 3, 5), torch.zeros(2, 3, 0), valid, adjacency)
    context = attention_context(embedded, causal=False, num_heads=1, head_dim=2)
    assert context.attn_mask[0, 0].equal(torch.eye(3, dtype=torch.bool))


@pytest.mark.parametrize(
    ("lengths", "t", "causal", "has_mask", "is_causal"),
    [
        ([4, 4], 0, False, False, False),
        ([4, 4], 0, True, False, True),
        ([4, 2], 0, True, False, True),  # padded on the right, where no causal token attends to
        ([4, 2], 0, False, True, False),
        ([1, 1], 3, True, True, False),  # padding between prompts of a ragged batch
        ([2, 2], 3, True, True, False),
    ],
)
def test_a_mask_is_made_only_where_something_is_masked(lengths, t, causal, has_mask, is_causal):
    embedded, past = batch(lengths, t, False, False, 0)
    context = attention_context(embedded, causal=causal, num_heads=2, head_dim=4, past=past)
    assert (context.attn_mask is not None, context.is_causal) == (has_mask, is_causal)


def test_one_token_after_a_full_past_needs_no_mask():
    embedded, past = batch([1, 1], 3, False, False, 0)
    past = columns(torch.ones_like(past.valid))
    context = attention_context(embedded, causal=True, num_heads=2, head_dim=4, past=past)
    assert context.attn_mask is None
    assert not context.is_causal


def test_padding_in_the_past_alone_is_masked():
    embedded, _ = batch([1, 1], 0, False, False, 0)
    past = columns(torch.tensor([[True, True], [True, False]]))
    context = attention_context(embedded, causal=True, num_heads=2, head_dim=4, past=past)
    assert context.attn_mask[:, 0, 0].tolist() == [[True, True, True], [True, False, True]]


@pytest.mark.parametrize("lengths", [[3, 3], [3, 2]])
def test_a_mask_depends_on_what_the_batch_knows_of_padding(lengths):
    embedded, _ = batch(lengths, 0, False, False, 0)
    unknown = embedded.replace(valid=embedded.valid.clone())
    for x, has_mask in ((embedded, lengths == [3, 2]), (unknown, True)):
        context = attention_context(x, causal=False, num_heads=2, head_dim=4)
        assert (context.attn_mask is not None) == has_mask
        assert (cross_attention_context(x.valid, x).attn_mask is not None) == has_mask


@pytest.mark.parametrize(
    ("hidden", "mask"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_a_bias_has_the_precision_of_the_hidden_states_at_least(hidden, mask):
    """On CPUs without AVX2 torch 2.11 gives other numbers where it has less."""
    embedded, _ = batch([4], 0, False, False, 0)
    context = attention_context(
        embedded.replace(hidden=embedded.hidden.to(hidden)),
        causal=True,
        num_heads=1,
        head_dim=2,
        position=Distance(),
    )
    assert context.attn_mask.dtype == mask


def test_cross_attention_masks_the_padding_of_the_memory():
    embedded, _ = batch([3, 1], 0, False, False, 0)
    attn_mask = cross_attention_context(torch.ones(2, 5, dtype=torch.bool), embedded).attn_mask
    assert attn_mask[:, 0, 0].tolist() == embedded.valid.tolist()
    assert cross_attention_context(embedded.valid, embedded, needs_mask=False).attn_mask is None


def test_rotary_positions_are_those_of_this_pass_only():
    embedded, past = batch([2, 2], 3, False, False, 0)
    context = attention_context(
        embedded, causal=True, num_heads=2, head_dim=4, position=Rotary(), past=past
    )
    assert context.rotary.equal(Rotary().rotary(embedded.positions, 4))


@pytest.mark.parametrize("kind", ["adjacency", "segments"])
def test_a_cache_of_graphs_and_packed_sequences_is_refused(kind):
    embedded, _ = batch([3, 3], 0, kind == "adjacency", kind == "segments", 0)
    _, past = batch([3, 3], 2, False, False, 0)
    with pytest.raises(ValueError, match="cache"):
        attention_context(embedded, causal=True, num_heads=2, head_dim=4, past=past)
