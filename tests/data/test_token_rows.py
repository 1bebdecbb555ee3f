"""Tokens as rows: every field as it was, equal in every bit, in few bytes."""

from dataclasses import dataclass

import pyarrow as pa
import pytest
import torch

from seqkit.data import token_rows
from seqkit.data.token_rows import Stored, batch_of, row_of
from seqkit.interfaces import Adjacency, Tokens


def stored(*batches):
    """Tokens that went through Arrow."""
    return Stored(pa.Table.from_batches(list(map(batch_of, batches))))


def ids(*values):
    return Tokens(torch.tensor(values), torch.arange(len(values), dtype=torch.float32)[:, None])


def same(one, other):
    """Equal in every bit of every tensor."""
    ours, theirs = one.tensors(), other.tensors()
    return list(ours) == list(theirs) and all(
        ours[name].dtype == theirs[name].dtype
        and ours[name].shape == theirs[name].shape
        and ours[name].numpy().tobytes() == theirs[name].numpy().tobytes()
        for name in ours
    )


@pytest.mark.parametrize("content", [
    torch.tensor([0, 255]), torch.tensor([256, 0]), torch.tensor([70_000]), torch.tensor([2**40]),
    torch.tensor([-5, 3]), torch.tensor([0, 1, 2]), torch.tensor([[0, 1], [2, 3]]),
    torch.tensor([[0.0, 1.5], [255.0, -0.0]]), torch.tensor([[1.0, 2.0]]), torch.tensor([[-0.0, 256.0, 1e-30]]),
    torch.tensor([[3e38, 65504.0, 65505.0]]), torch.randn(4, 11, generator=torch.Generator().manual_seed(0)),
])  # fmt: skip
def test_nothing_is_lost(content):
    n = len(content)
    count = torch.arange(n, dtype=torch.float32)[:, None]
    adjacency = Adjacency(torch.tensor([[0], [n - 1]]), torch.tensor([300]))
    no_edges = Adjacency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    given = [Tokens(content, torch.rand(n, 2)), Tokens(content, count), Tokens(content, count / 10)]
    given += [Tokens(content, torch.zeros(n, 0), edges) for edges in (adjacency, no_edges)]
    if content.ndim == 2 and not content.is_floating_point():
        given += [Tokens(content, count, features=torch.rand(n, 3))]
    for tokens in given:
        found = stored([tokens, tokens], [tokens])
        assert all(same(tokens, found[k]) for k in range(3))


@dataclass(frozen=True, slots=True)
class Weighed(Tokens):
    weight: torch.Tensor | None = None


def test_a_field_that_tokens_get_later_is_kept_and_in_the_digest(monkeypatch):
    monkeypatch.setattr(token_rows, "Tokens", Weighed)
    given = [
        Weighed(torch.tensor([5, 3]), torch.zeros(2, 1), weight=torch.tensor([0.1, i]))
        for i in range(2)
    ]
    found = stored(given)
    assert all(same(tokens, found[i]) for i, tokens in enumerate(given))
    assert row_of(given[0])["digest"] != row_of(given[1])["digest"]


def test_the_digest_covers_every_field():
    content, positions = torch.tensor([[1], [2]]), torch.zeros(2, 1)
    edges = torch.tensor([[0], [1]])
    given = [
        Tokens(content, positions),
        Tokens(content + 1, positions),
        Tokens(content, positions + 0.5),
        Tokens(content, torch.arange(2.0)[:, None]),
        Tokens(content, torch.zeros(2, 0)),
        Tokens(content, positions, features=torch.zeros(2, 1)),
        Tokens(content, positions, features=torch.ones(2, 1)),
        Tokens(content, positions, Adjacency(edges, torch.tensor([1]))),
        Tokens(content, positions, Adjacency(edges, torch.tensor([2]))),
        Tokens(content, positions, Adjacency(edges.flip(0), torch.tensor([1]))),
        Tokens(content.float(), positions),
    ]
    assert len({row_of(tokens)["digest"] for tokens in given}) == len(given)
    assert (
        row_of(given[0])["digest"] == row_of(Tokens(content.clone(), positions.clone()))["digest"]
    )


def test_what_is_known_of_a_sample_without_its_tensors_is_in_its_row():
    tokens = Tokens(torch.tensor([5, 3]), torch.tensor([[0.5, 7.0], [2.5, 1.0]]))
    (row,) = batch_of([tokens]).to_pylist()
    assert (row["length"], row["ends"], row["digest"]) == (2, [2.5, 7.0], row_of(tokens)["digest"])


def test_tensors_of_middle_size_are_compressed_and_long_ones_mapped_as_they_are():
    image = Tokens(torch.randint(2, (100, 100)) / 255, torch.zeros(100, 0))
    text = Tokens(torch.randint(2, (2**20,)), torch.arange(2.0**20)[:, None])
    sizes = [batch_of([tokens]).nbytes for tokens in (image, text)]
    assert sizes[0] < 0.1 * image.content.nbytes
    assert 2**20 <= sizes[1] < 2**20 + 1000
    assert same(stored([image])[0], image)
    assert same(stored([text])[0], text)


def test_arrays_are_small_and_not_to_be_written():
    found = stored([ids(7, 300, 7), ids(0, 1, 2)])
    assert [array["content"].dtype.itemsize for array in map(found.arrays, range(2))] == [2, 8]
    assert found.arrays(0)["content"].tolist() == [7, 300, 7]
    assert not found.arrays(0)["content"].flags.writeable
    assert list(found.arrays(0)) == ["content"]


def test_arrays_of_long_tensors_are_no_copies():
    rows = Stored(pa.Table.from_batches([batch_of([ids(*range(9, 2**20 + 9))])]))
    one, again = rows.arrays(0)["content"], rows.arrays(0)["content"]
    assert one.ctypes.data == again.ctypes.data
    assert one[-1] == 2**20 + 8
