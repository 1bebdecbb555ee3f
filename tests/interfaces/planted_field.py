"""A field that none of the code has heard of goes through every place that tokens go through, and is kept.

Run as a script. `weight` is planted into the source of `Tokens` and `TokenBatch` before seqkit is imported. The name of
each place that keeps it is printed; the first that does not ends the script with an error.
"""

import sys
from importlib.machinery import PathFinder, SourceFileLoader

NAMES, LAST = (
    ("seqkit.interfaces.tokens", "seqkit.interfaces.batch"),
    "    features: Tensor | None = None\n",
)


class Planting(SourceFileLoader):
    def get_code(self, fullname):
        text = self.get_source(fullname)
        assert text.count(LAST) == 1
        return compile(
            text.replace(LAST, LAST + "    weight: Tensor | None = None\n"), self.path, "exec"
        )


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in NAMES:
            return None
        spec = PathFinder.find_spec(name, path)
        spec.loader = Planting(name, spec.origin)
        return spec


sys.meta_path.insert(0, Finder)

import pyarrow as pa  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

from seqkit.data.dataset import TokenizedDataset  # noqa: E402
from seqkit.data.packing import PackedDataset  # noqa: E402
from seqkit.data.sample import Sample  # noqa: E402
from seqkit.data.token_rows import Stored, batch_of, row_of  # noqa: E402
from seqkit.data.windows import TextWindows  # noqa: E402
from seqkit.interfaces import Adjacency, TokenBatch, Tokenizer, Tokens, TokenSpec  # noqa: E402
from seqkit.objectives import Masked, NextToken  # noqa: E402
from seqkit.testing.changed_tokens import other_content  # noqa: E402
from seqkit.testing.tokenizers import check_tokenizer  # noqa: E402


def tokens(n, *, edges=False, weight=1.0):
    count = torch.arange(float(n))
    path = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    adjacency = Adjacency(path, torch.ones(n - 1, dtype=torch.int64)) if edges else None
    return Tokens(torch.arange(n), count[:, None], adjacency, weight=count * weight + 0.5)


def weights(batch, i, n):
    """The real weights of example i, and that those of padding are 0."""
    assert not batch.weight[~batch.valid].any()
    return batch.weight[i][batch.valid[i]].tolist() == tokens(n).weight.tolist()


class Weighed(Tokenizer):
    spec = TokenSpec(vocab_size=50)

    def encode(self, raw, /):
        return tokens(raw)


class Restless(Weighed):
    """Gives another weight every time."""

    calls = 0

    def encode(self, raw, /):
        self.calls += 1
        return tokens(raw, weight=self.calls)


def in_batches():
    batch = TokenBatch.collate([tokens(5), tokens(3)])
    assert weights(batch, 0, 5)
    assert weights(batch, 1, 3)
    assert weights(batch.pad(2), 1, 3)
    assert weights(batch.select(torch.tensor([1, 0])), 0, 3)
    assert batch.columns(slice(1, 4)).weight[0].tolist() == [1.5, 2.5, 3.5]
    assert weights(batch.to("cpu").with_dtype(torch.float64), 0, 5)
    assert batch.example(1).equals(tokens(3))
    assert "weight" in batch.tensors()


def in_examples():
    assert tokens(5).first(3).equals(tokens(3))
    assert tokens(5).at(torch.tensor([4, 0])).weight.tolist() == [4.5, 0.5]
    assert Tokens.join([tokens(2), tokens(3)]).weight.tolist() == [0.5, 1.5, 0.5, 1.5, 2.5]
    assert not tokens(3).equals(tokens(3, weight=2.0))
    assert Tokens.of(tokens(4, edges=True).tensors()).equals(tokens(4, edges=True))


def in_digest_and_cache():
    assert row_of(tokens(3))["digest"] != row_of(tokens(3, weight=2.0))["digest"]
    rows = batch_of([tokens(4, edges=True)])
    assert Stored(pa.Table.from_batches([rows]))[0].equals(tokens(4, edges=True))


def in_windows():
    batch, _ = TextWindows([tokens(9), tokens(4)], 3, "test", shuffle=False)[0, [1, 3]]
    assert batch.weight.tolist() == [[3.5, 4.5, 5.5, 6.5], [0.5, 1.5, 2.5, 3.5]]


def in_packed_rows():
    examples = TokenizedDataset([Sample(n) for n in (2, 3)], Weighed(), "training")
    batch, _ = PackedDataset(examples, 5)[0, [0]]
    assert sorted(batch.weight[0].tolist()) == [0.5, 0.5, 1.5, 1.5, 2.5]


def in_objectives():
    batch = TokenBatch.collate([tokens(5), tokens(3)])
    assert Masked().prepare(batch, None).batch.weight is batch.weight
    assert NextToken().prepare(batch, None).batch.weight.tolist() == batch.weight[:, :-1].tolist()


def in_checks():
    assert not tokens(3).tensors()["weight"].equal(tokens(3, weight=2.0).tensors()["weight"])
    other = other_content(tokens(3), torch.tensor([False, True, True]), TokenSpec(vocab_size=50))
    assert other.weight.tolist() == [0.5, -2.5, -3.5]
    check_tokenizer(Weighed(), [3, 5])
    with pytest.raises(AssertionError, match="weight"):
        check_tokenizer(Restless(), [3, 5])


if __name__ == "__main__":
    places = (
        in_batches,
        in_examples,
        in_digest_and_cache,
        in_windows,
        in_packed_rows,
        in_objectives,
        in_checks,
    )
    for place in places:
        place()
        print(place.__name__)
