"""The data types: what is right passes, what is wrong is refused where it is made, with what would be right."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from seqkit.contract import Backbone, DataError, Embedded, Links, Stateful, TokenBatch, Tokens, TokenSpec


def links(*triples):
    reader, read, kinds = zip(*triples) if triples else ((), (), ())
    return Links(torch.tensor([reader, read], dtype=torch.int64), torch.tensor(kinds, dtype=torch.int64))


def vectors(n, f=3, p=2, links=None):
    return Tokens(torch.randn(n, f), torch.randn(n, p), links)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "vocab_size=0 and num_features=0"),
        ({"vocab_size": 5, "num_features": 3}, "set exactly one"),
        ({"vocab_size": -1}, "vocab_size is -1; it counts something"),
        ({"num_features": 2.0}, "num_features is 2.0"),
        ({"vocab_size": 5, "num_axes": -2}, "num_axes is -2"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TokenSpec(**fields)


IDS = TokenSpec(vocab_size=5)
VECTORS = TokenSpec(num_features=3, num_axes=2)
LINKED = TokenSpec(num_features=3, num_axes=0, num_links=2)


@pytest.mark.parametrize(
    ("spec", "tokens", "message"),
    [
        (IDS, lambda: vectors(4, p=1), "promises ids below 5"),
        (IDS, lambda: Tokens(torch.tensor([1, 5]), torch.zeros(2, 1)), "holds id 5, outside the vocabulary of 5"),
        (IDS, lambda: Tokens(torch.tensor([-1, 2]), torch.zeros(2, 1)), "holds id -1"),
        (IDS, lambda: Tokens(torch.tensor([1]), torch.zeros(1, 2)), "positions have 2 axes; the spec promises 1"),
        (VECTORS, lambda: vectors(4, f=7), r"content is \[4, 7\]; the spec promises vectors \[n 3\]"),
        (VECTORS, lambda: vectors(4, links=links((0, 1, 1))), "come with links, but the spec has num_links=0"),
        (LINKED, lambda: vectors(4, p=0), "come with no links, but the spec has num_links=2"),
        (LINKED, lambda: vectors(4, p=0, links=links((0, 1, 3))), "kind 3; the spec knows kinds 1 to 2"),
    ],
)
def test_tokens_that_break_the_promise_are_bad_data(spec, tokens, message):
    with pytest.raises(DataError, match=message):
        spec.check(tokens())


def test_tokens_that_keep_the_promise_pass():
    IDS.check(Tokens(torch.tensor([0, 4]), torch.zeros(2, 1)))
    VECTORS.check(vectors(4))
    LINKED.check(vectors(4, p=0, links=links((3, 0, 2))))
    LINKED.check(vectors(4, p=0, links=links()))
    assert IDS.ids
    assert not VECTORS.ids


@pytest.mark.parametrize(
    ("edges", "kinds", "message"),
    [
        (torch.zeros(3, 2, dtype=torch.int64), torch.ones(2, dtype=torch.int64), r"edges are \[3, 2\] int64"),
        (torch.zeros(2, 2), torch.ones(2, dtype=torch.int64), r"edges are \[2, 2\] float32"),
        (torch.zeros(2, 2, dtype=torch.int64), torch.ones(3, dtype=torch.int64), r"kinds are \[3\] int64; give \[2\]"),
        (torch.zeros(2, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), "kinds go down to 0"),
    ],
)
def test_links_of_a_wrong_shape_type_or_kind_are_refused(edges, kinds, message):
    with pytest.raises(ValueError, match=message):
        Links(edges, kinds)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tokens(torch.zeros(0, 3), torch.zeros(0, 1)), "content has no tokens"),
        (lambda: Tokens(torch.zeros(3, dtype=torch.int32), torch.zeros(3, 1)), r"content is \[3\] int32"),
        (lambda: Tokens(torch.zeros(3), torch.zeros(3, 1)), r"content is \[3\] float32"),
        (lambda: Tokens(torch.zeros(3, 2), torch.zeros(2, 1)), r"positions are \[2, 1\] float32; give \[3 p\]"),
        (lambda: Tokens(torch.zeros(3, 2), torch.zeros(3, 1).long()), r"positions are \[3, 1\] int64"),
        (lambda: Tokens(torch.tensor([[0.0], [torch.nan]]), torch.zeros(2, 1)), "content of token 1 is not finite"),
        (lambda: Tokens(torch.zeros(2, 1), torch.tensor([[torch.inf], [0.0]])), "positions of token 0 is not finite"),
        (lambda: vectors(3, links=links((0, 3, 1))), "names token 3, but there are tokens 0 to 2"),
        (lambda: vectors(3, links=links((-1, 0, 1))), "names token -1"),
        (lambda: vectors(3, links=links((0, 1, 1), (0, 1, 2))), r"two links join the same \(reader, read\) pair"),
    ],
)
def test_tokens_that_cannot_be_are_bad_data(make, message):
    with pytest.raises(DataError, match=message):
        make()


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.booleans(), st.booleans(), st.data())
def test_a_batch_holds_each_example_and_zeros(lengths, ids, linked, data):
    examples = []
    for n in lengths:
        pairs = st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), unique=True, max_size=5)
        chosen = links(*((i, j, 1 + (i + j) % 3) for i, j in data.draw(pairs))) if linked else None
        content = torch.randint(1, 11, (n,)) if ids else torch.randn(n, 3)
        examples.append(Tokens(content, torch.randn(n, 2), chosen))
    batch = TokenBatch.collate(examples)
    n = max(lengths)
    assert len(batch) == len(lengths)
    assert batch.num_tokens == sum(lengths)
    for i, x in enumerate(examples):
        assert batch.valid[i].tolist() == [t < len(x) for t in range(n)]
        assert_close(batch.content[i, : len(x)], x.content)
        assert_close(batch.positions[i, : len(x)], x.positions)
        assert not batch.content[i, len(x) :].any()
        assert not batch.positions[i, len(x) :].any()
    if linked:
        right = [(i * n + a, i * n + b) for i, x in enumerate(examples) for a, b in zip(*x.links.edges.tolist())]
        assert list(zip(*batch.links.edges.tolist())) == right
        assert batch.links.kinds.tolist() == [k for x in examples for k in x.links.kinds.tolist()]
    else:
        assert batch.links is None


@pytest.mark.parametrize(
    "others",
    [
        lambda: vectors(2, f=5),
        lambda: vectors(2, p=1),
        lambda: vectors(2, links=links()),
        lambda: Tokens(torch.tensor([1]), torch.zeros(1, 2)),
    ],
)
def test_one_batch_holds_one_tokenizers_tokens(others):
    with pytest.raises(ValueError, match=r"example 1 has content.*one batch holds one tokenizer's tokens"):
        TokenBatch.collate([vectors(3), others()])


def test_no_examples_make_no_batch():
    with pytest.raises(ValueError, match="given no examples"):
        TokenBatch.collate([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"valid": torch.ones(2, 3)}, r"valid is \[2, 3\] float32; give \[b n\] bool"),
        ({"content": torch.zeros(2, 5, 4)}, r"content is \[2, 5, 4\] float32; its first two sizes should be \[2, 3\]"),
        ({"positions": torch.zeros(3, 2, 1)}, r"positions is \[3, 2, 1\]"),
        ({"segments": torch.zeros(2, 2).long()}, r"segments is \[2, 2\] int64"),
    ],
)
def test_a_batch_whose_parts_do_not_agree_is_refused(change, message):
    sound = {"content": torch.zeros(2, 3, 4), "positions": torch.zeros(2, 3, 1), "valid": torch.ones(2, 3).bool()}
    with pytest.raises(ValueError, match=message):
        TokenBatch(**(sound | change))


def test_batches_move_with_all_their_parts():
    batch = TokenBatch.collate([vectors(3, links=links((0, 1, 1))), vectors(2, links=links())])
    moved = batch.to("cpu", copy=True)
    assert isinstance(moved, TokenBatch)
    parts = [(x.content, x.positions, x.valid, x.links.edges, x.links.kinds) for x in (batch, moved)]
    for before, after in zip(*parts):
        assert_close(after, before)
        assert after.data_ptr() != before.data_ptr()
    assert moved.segments is None
    embedded = Embedded(torch.zeros(2, 3, 5), batch.positions, batch.valid, link_bias=torch.zeros(2, 1)).to("meta")
    assert {embedded.hidden.device.type, embedded.link_bias.device.type} == {"meta"}


def test_an_end_without_state_takes_none():
    end = Stateful()
    assert end.state() == {}
    end.load_state({})
    with pytest.raises(ValueError, match=r"Stateful has no fitted state, but was given \['scale'\]"):
        end.load_state({"scale": 2})


def test_a_backbone_without_a_cache_says_how_to_generate():
    class Plain(Backbone):
        def forward(self, embedded, cache=None):
            return embedded.hidden

    with pytest.raises(ValueError, match="Plain keeps no cache; generate with use_cache=False"):
        Plain().init_cache(3)
