"""`seqkit inspect`: a picture and a few lines that tell the truth."""

import pytest
import torch

from seqkit.configure import parse
from seqkit.contract import DataError, Links, Tokenizer, Tokens, TokenSpec
from seqkit.report.inspect import describe, inspect


@pytest.mark.parametrize("kind", ["classify", "next token", "regress", "nodes"])
def test_a_recipe_becomes_a_png_and_a_few_lines(kind, config, tmp_path, capsys):
    path = inspect(parse(config(tmp_path, kind)), tmp_path / "deep" / "picture.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()] == ["tokenizer", "tokens", "content", "positions", "links"]


def test_data_that_is_not_there_is_a_data_error(config, tmp_path):
    given = config(tmp_path, "next token")
    (tmp_path / "text.txt").unlink()
    with pytest.raises(DataError, match=r"text\.txt"):
        inspect(parse(given), tmp_path / "picture.png")


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
        "links      none: every token may read every other",
    ]


def test_linked_vectors_are_described():
    links = Links(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2, 2]))
    tokens = Tokens(torch.arange(22.0).reshape(2, 11), torch.zeros(2, 0), links)
    assert describe(Given(TokenSpec(num_features=11, num_axes=0, num_links=3)), tokens)[1:] == [
        "tokens     2 vectors of 11",
        "content    first vector 0, 1, 2, 3, 4, 5, 6, 7, …",
        "positions  none: these tokens have no order",
        "links      2 of 4 pairs, 1 of 3 kinds occur",
    ]
