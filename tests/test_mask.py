"""Who reads whom equals its definition, by brute force; and no mask is made where none is needed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqkit.contract import Embedded, Links, TokenBatch, Tokens
from seqkit.layers.position import AttentionPosition, Rotary
from seqkit.mask import dense_kinds, who_reads_whom


class Distance(AttentionPosition):
    """A bias that is easy to foretell: minus the distance, by head."""

    def bias(self, readers, read, num_heads):
        apart = (readers - read.mT).abs()
        return -torch.stack([apart * (h + 1) for h in range(num_heads)], dim=1)


def readable(valid, kinds, segments, causal, t, i, j):
    """Token i of this pass (t tokens were read before) may read token j of all."""
    same = segments is None or segments[i] == segments[j]
    linked = kinds is None or i == j or kinds[i][j] > 0
    return bool(valid[j] and same and linked and (not causal or j <= i + t))


def allowed(reading, b, n, m):
    """[b n m] of what SDPA will let be read."""
    if reading.attend is None:
        assert not reading.causal or n == m
        everyone = torch.ones(b, n, m, dtype=torch.bool)
        return everyone.tril() if reading.causal else everyone
    attend = reading.attend if reading.attend.dtype == torch.bool else reading.attend > -torch.inf
    return attend.expand(b, attend.shape[1], n, m)[:, 0]


def batch(lengths, t, linked, segmented, seed):
    g = torch.Generator().manual_seed(seed)
    b, n = len(lengths), max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    links = None
    if linked:
        examples = []
        for length in lengths:
            edges = (torch.rand(length, length, generator=g) < 0.4).nonzero().T
            kinds = torch.randint(1, 4, (edges.shape[1],), generator=g)
            examples.append(Tokens(torch.zeros(length, 1), torch.zeros(length, 1), Links(edges, kinds)))
        links = TokenBatch.collate(examples).links
    segments = torch.randint(2, (b, n), generator=g) if segmented else None
    positions = torch.arange(t, t + n).float().expand(b, n)[..., None]
    past = None
    if t:
        past = (torch.rand(b, t, generator=g) < 0.7, torch.arange(float(t)).expand(b, t)[..., None])
    return Embedded(torch.zeros(b, n, 5), positions, valid, links, None, segments), past


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(["plain", "past", "links", "segments", "links and segments"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_who_reads_whom_equals_its_definition(lengths, causal, kind, biased, seed):
    t = 3 if kind == "past" else 0
    embedded, past = batch(lengths, t, "links" in kind, "segments" in kind, seed)
    b, n = embedded.valid.shape
    position = Distance() if biased else None
    reading = who_reads_whom(embedded, causal=causal, num_heads=2, channels=4, position=position, past=past)
    got = allowed(reading, b, n, t + n)
    every = embedded.valid if past is None else torch.cat([past[0], embedded.valid], dim=1)
    kinds = dense_kinds(embedded.links, b, n) if embedded.links is not None else None
    for x in range(b):
        for i in range(lengths[x]):  # what padding reads is nobody's concern
            for j in range(t + n):
                parts = (None if part is None else part[x].tolist() for part in (every, kinds, embedded.segments))
                assert bool(got[x, i, j]) == readable(*parts, causal, t, i, j), (x, i, j)
                if biased and got[x, i, j]:
                    assert reading.attend[x, :, i, j].tolist() == [-float(abs(t + i - j)), -2.0 * abs(t + i - j)]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 99))
def test_dense_kinds_are_the_links_one_by_one(lengths, seed):
    embedded, _ = batch(lengths, 0, True, False, seed)
    b, n = embedded.valid.shape
    right = torch.zeros(b, n, n, dtype=torch.int64)
    for (reader, read), kind in zip(embedded.links.edges.T.tolist(), embedded.links.kinds.tolist()):
        assert reader // n == read // n
        right[reader // n, reader % n, read % n] = kind
    assert dense_kinds(embedded.links, b, n).equal(right)


@pytest.mark.parametrize("biased", [False, True])
def test_links_add_the_bias_of_their_kind_and_of_oneself(biased):
    links = Links(torch.tensor([[0, 1, 3], [1, 0, 5]]), torch.tensor([2, 1, 3]))
    table = torch.randn(4, 2)
    embedded = Embedded(torch.zeros(2, 3, 5), torch.rand(2, 3, 1), torch.ones(2, 3).bool(), links, table)
    position = Distance() if biased else None
    attend = who_reads_whom(embedded, causal=False, num_heads=2, channels=4, position=position).attend
    right = torch.full((2, 2, 3, 3), -torch.inf)
    for x, i, j, kind in [
        (0, 0, 1, 2),
        (0, 1, 0, 1),
        (1, 0, 2, 3),
        *((x, i, i, 0) for x in range(2) for i in range(3)),
    ]:
        right[x, :, i, j] = table[kind]
    if biased:
        right = right + Distance().bias(embedded.positions, embedded.positions, 2)
    torch.testing.assert_close(attend, right)


@pytest.mark.parametrize(
    ("lengths", "t", "causal", "attend", "triangle"),
    [
        ([4, 4], 0, False, False, False),
        ([4, 4], 0, True, False, True),
        ([4, 2], 0, True, False, True),  # padding stands on the right, where a causal token does not look
        ([4, 2], 0, False, True, False),
        ([1, 1], 3, True, True, False),  # padding between prompts of a ragged batch
        ([2, 2], 3, True, True, False),
    ],
)
def test_a_mask_is_made_only_where_something_hides(lengths, t, causal, attend, triangle):
    embedded, past = batch(lengths, t, False, False, 0)
    reading = who_reads_whom(embedded, causal=causal, num_heads=2, channels=4, past=past)
    assert (reading.attend is not None, reading.causal) == (attend, triangle)


def test_one_token_after_a_full_past_needs_no_mask():
    embedded, past = batch([1, 1], 3, False, False, 0)
    past = (torch.ones_like(past[0]), past[1])
    reading = who_reads_whom(embedded, causal=True, num_heads=2, channels=4, past=past)
    assert reading.attend is None
    assert not reading.causal


def test_rotation_turns_this_pass_only():
    embedded, past = batch([2, 2], 3, False, False, 0)
    reading = who_reads_whom(embedded, causal=True, num_heads=2, channels=4, position=Rotary(), past=past)
    assert reading.rotation.equal(Rotary().rotation(embedded.positions, 4))


@pytest.mark.parametrize("kind", ["links", "segments"])
def test_graphs_and_packed_sequences_are_not_continued(kind):
    embedded, _ = batch([3, 3], 0, kind == "links", kind == "segments", 0)
    _, past = batch([3, 3], 2, False, False, 0)
    with pytest.raises(ValueError, match="a cache continues plain sequences"):
        who_reads_whom(embedded, causal=True, num_heads=2, channels=4, past=past)
