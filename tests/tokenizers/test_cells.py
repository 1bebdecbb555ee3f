"""Rows of a table as tokens: one for each filled cell, and an embedding as FT-Transformer's."""

import json

import pytest
import torch
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch
from seqkit.nn.embedder import Embedder
from seqkit.nn.position.absolute import NoPosition
from seqkit.tokenizers import Bytes, Cells, Join

ROWS = [
    {"hp": 130, "origin": "USA", "year": 70.0},
    {"hp": 90, "origin": "USA", "year": None},
    {"origin": "Japan", "hp": 80, "turbo": True},
    {"origin": "Japan", "year": 75, "turbo": False},
    {"origin": "Peru", "year": 70, "turbo": True},
]


def fitted(**settings) -> Cells:
    cells = Cells(**settings)
    cells.fit(ROWS)
    return cells


def test_a_missing_cell_is_as_if_the_column_had_not_been_given():
    cells = fitted()
    for row in ROWS:
        given = {name: value for name, value in row.items() if value is not None}
        assert cells.encode(row | {"hp": float("nan")}).equals(cells.encode({**row, "hp": None}))
        assert len(cells.encode(row)) == len(given)
        assert cells.encode(dict(reversed(row.items()))).equals(cells.encode(given)), (
            "columns have an order of their own"
        )


def test_the_embedding_of_a_row_is_that_of_ft_transformer():
    """A number is its column's own vector times the standardised number, and a bias; a word has its own vector."""
    cells = fitted(num_bins=0)
    embedder = Embedder(cells.spec, 7, position=NoPosition)
    hidden = embedder(TokenBatch.collate([cells.encode(ROWS[0])])).hidden[0]
    column, word = (table.weight for table in embedder.content.tables)
    of_number, bias = embedder.features.weight, embedder.features.bias
    hp = torch.tensor([130.0, 90.0, 80.0])
    year = torch.tensor([70.0, 75.0, 70.0])
    expected = [
        column[0] + word[0] + bias + of_number[:, 0] * (130 - hp.mean()) / hp.std(correction=0),
        column[1] + word[3] + bias,
        column[3] + word[0] + bias + of_number[:, 1] * (70 - year.mean()) / year.std(correction=0),
    ]
    assert_close(hidden, torch.stack(expected))


def test_the_size_of_a_row_is_linear_in_its_numbers():
    row = {f"column {i}": i / 7 for i in range(1_000)}
    cells = Cells()
    cells.fit([row, {name: -value for name, value in row.items()}])
    tokens = cells.encode(row)
    assert sum(tensor.nbytes for tensor in tokens.tensors().values()) < 50_000
    dense = torch.zeros(1_000, 1_000)
    dense[torch.arange(1_000), torch.arange(1_000)] = tokens.features[:, 0]
    assert cells.spec.numbers_of(tokens).equal(dense)


def test_numbers_of_a_column_are_at_its_own_place():
    cells = fitted(num_bins=2)
    tokens = cells.encode(ROWS[0])
    numbers = cells.spec.numbers_of(tokens)
    assert tokens.features.shape == (3, 3)
    assert numbers.shape == (3, 6)
    assert numbers[0].tolist() == [*tokens.features[0].tolist(), 0, 0, 0]
    assert not numbers[1].any()
    assert numbers[2].tolist() == [0, 0, 0, *tokens.features[2].tolist()]


def test_words_that_are_rare_or_new_share_an_id_and_words_of_two_columns_do_not():
    cells = fitted()
    unknown = cells.encode({"origin": "Peru"})
    assert unknown.equals(cells.encode({"origin": "Atlantis"}))
    assert not unknown.equals(cells.encode({"origin": "USA"}))
    assert (
        not fitted(min_count=1)
        .encode({"origin": "Peru"})
        .equals(fitted(min_count=1).encode({"origin": "Atlantis"}))
    )
    both = Cells(min_count=1)
    both.fit([{"a": "yes", "b": "yes"}])
    ids = both.encode({"a": "yes", "b": "yes"}).content
    assert ids[0, 1] != ids[1, 1]


def test_the_most_frequent_words_have_ids():
    cells = Cells(max_words=1)
    cells.fit([{"a": word} for word in ("x", "y", "y", "y", "x")])
    assert cells.spec.vocab_sizes == (1, 3)
    assert cells.encode({"a": "y"}).content.tolist() == [[0, 2]]


def test_of_equally_frequent_words_the_first_by_spelling_has_an_id_in_any_order_of_rows():
    for words in ("yx", "xy"):
        cells = Cells(max_words=1, min_count=1)
        cells.fit([{"a": word} for word in words])
        assert cells.encode({"a": "x"}).content.tolist() == [[0, 2]]


@pytest.mark.parametrize("value", [0.1, 1e17, 0.0, 3])
def test_a_constant_column_of_numbers_gives_zero(value):
    cells = Cells()
    cells.fit([{"a": value}] * 7)
    assert_close(cells.encode({"a": value}).features, torch.zeros(1, 1))


def test_a_piecewise_linear_encoding_is_the_share_of_each_bin_that_lies_below_a_number():
    cells = Cells(num_bins=4)
    cells.fit([{"a": x} for x in (0, 1, 2, 4, 8)])  # which are its quantiles
    for number, right in (
        (-3, [0, 0, 0, 0]),
        (0.5, [0.5, 0, 0, 0]),
        (3, [1, 1, 0.5, 0]),
        (9, [1, 1, 1, 1]),
    ):
        assert_close(
            cells.encode({"a": number}).features[0, 1:], torch.tensor(right, dtype=torch.float32)
        )
    cells.fit([{"a": x} for x in (0, 0, 0, 0, 8)])
    assert cells.encode({"a": 2}).features[0, 1:].tolist() == [0.25], "equal quantiles make no bin"


def test_the_state_holds_all_that_was_learned():
    cells, fresh = fitted(), Cells()
    fresh.load_state(json.loads(json.dumps(cells.state(), sort_keys=True)))
    assert fresh.spec == cells.spec
    assert all(fresh.encode(row).equals(cells.encode(row)) for row in ROWS)
    for broken in (
        {"columns": [{"name": "a"}]},
        {"columns": [{"name": "a", "mean": 0.0, "std": 0.0}]},
        {"rows": 1},
        {"columns": [{"name": "a", "mean": 0.0, "std": 1.0, "edges": [1.0, 1.0]}]},
    ):
        with pytest.raises(ValueError, match="state"):
            Cells().load_state(broken)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"horse": 1}, "column 'horse'; "),
        ({"hp": "strong"}, "column 'hp' holds numbers, and this is 'strong'"),
        ({"hp": 1e300}, "1e+18 is the largest"),
        ({"hp": "inf"}, "1e+18 is the largest"),
        ({"origin": ["USA"]}, "column 'origin' holds a list"),
        ({"hp": None}, "no cell of the row is filled"),
        ("130", "of type str"),
    ],
)
def test_each_mistake_is_answered_in_one_line(row, said):
    with pytest.raises(DataError) as error:
        fitted().encode(row)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_columns_that_cannot_be_learned_are_refused():
    with pytest.raises(DataError, match="number 7 and 'seven'"):
        Cells().fit([{"a": 7}, {"a": "seven"}])
    with pytest.raises(DataError, match="no training row"):
        Cells().fit([{"a": None}, {}])
    with pytest.raises(ValueError, match="min_count=0"):
        Cells(min_count=0)
    with pytest.raises(ValueError, match="num_bins=-1"):
        Cells(num_bins=-1)


def test_a_number_that_is_a_word_is_one_word_however_it_is_written():
    cells = Cells()
    cells.fit([{"cylinders": "4"}, {"cylinders": "4"}, {"cylinders": "8"}, {"cylinders": "8"}])
    assert cells.encode({"cylinders": 4.0}).equals(cells.encode({"cylinders": " 4 "}))


def test_a_row_without_cells_is_an_absent_part():
    join = Join({"text": Bytes(), "cells": fitted()})
    alone = join.encode({"text": "hello"})
    assert join.encode({"text": "hello", "cells": {}}).equals(alone)
    assert join.encode({"text": "hello", "cells": {"hp": None, "year": None}}).equals(alone)
    assert join.encode([("text", "hello"), ("cells", {})]).equals(join.encode([("text", "hello")]))


def test_fit_notes_that_it_ran_whatever_its_argument_is_called():
    cells = Cells()
    cells.fit(raws=[{"size": 1.0, "kind": "a"}])
    assert cells.was_fitted
    with pytest.raises(DataError, match="holds numbers"):
        cells.encode({"size": 10**400, "kind": "a"})
