"""`seqkit inspect`: a picture, and a few lines that describe the tokens."""

import pytest
import torch

from seqkit.config import complete
from seqkit.errors import DataError
from seqkit.interfaces import Adjacency, Tokenizer, Tokens, TokenSpec
from seqkit.report.inspect import MAX_CHARACTERS, describe, inspect, shorten


@pytest.mark.parametrize("kind", ["classify", "next token", "regress", "nodes"])
def test_a_recipe_becomes_a_png_and_a_few_lines(kind, config, tmp_path, capsys):
    path = inspect(complete(config(tmp_path, kind)), tmp_path / "deep" / "picture.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()] == [
        "tokenizer",
        "tokens",
        "content",
        "positions",
        "adjacency",
    ]


def test_data_that_is_not_there_is_a_data_error(config, tmp_path):
    given = config(tmp_path, "next token")
    (tmp_path / "text.txt").unlink()
    with pytest.raises(DataError, match=r"text\.txt"):
        inspect(complete(given), tmp_path / "picture.png")


class Given(Tokenizer):
    def __init__(self, spec):
        self._spec = spec

    @property
    def spec(self):
        return self._spec

    def encode(self, raw, /):
        raise NotImplementedError

    def __repr__(self):
        return "Given()"


def test_ids_are_described():
    tokens = Tokens(torch.tensor([3, 1, 4]), torch.tensor([[0.0], [1.0], [2.5]]))
    assert describe(Given(TokenSpec(vocab_size=1_507)), tokens) == [
        "tokenizer  Given()",
        "tokens     3 ids below 1,507",
        "content    ids 3, 1, 4",
        "positions  axes: 1, from (0) to (2.5)",
        "adjacency  none: every token may attend to every other",
    ]


def test_vectors_with_an_adjacency_are_described():
    adjacency = Adjacency(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2, 2]))
    tokens = Tokens(torch.arange(22.0).reshape(2, 11), torch.zeros(2, 0), adjacency)
    assert describe(Given(TokenSpec(num_features=11, num_axes=0, num_edge_types=3)), tokens)[
        1:
    ] == [
        "tokens     2 vectors of 11",
        "content    first vector 0, 1, 2, 3, 4, 5, 6, 7, …",
        "positions  none: these tokens have no order",
        "adjacency  2 of 4 pairs, 1 of 3 edge types occur",
    ]


def test_only_a_document_that_is_cut_into_windows_is_shortened():
    text = "a" * (MAX_CHARACTERS + 7)
    assert shorten(text, 17) == text[:MAX_CHARACTERS]
    assert shorten(text, None) == text
    assert shorten(7, 17) == 7
