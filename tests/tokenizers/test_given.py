"""Given ids and vectors: what goes in comes out, whatever holds it; anything else is refused with the reason."""

import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.testing import check_tokenizer
from seqkit.tokenizers import Ids, Series


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_ids_of_lists_tuples_arrays_and_tensors_are_alike(dtype):
    ids = [3, 0, 10, 10, 7]
    for raw in (ids, tuple(ids), np.array(ids), torch.tensor(ids, dtype=dtype)):
        tokens = Ids(11).encode(raw)
        assert tokens.content.tolist() == ids
        assert tokens.content.dtype == torch.int64
        assert tokens.positions.tolist() == [[0.0], [1.0], [2.0], [3.0], [4.0]]
    assert Ids(11).decode(Ids(11).encode(ids)) == ids
    assert Ids(11).decode(torch.tensor(ids)) == ids


def test_the_vocabulary_is_what_was_given():
    assert Ids(11).spec.vocab_size == 11
    assert Ids(11).encode([10]).content.tolist() == [10]
    with pytest.raises(DataError, match="id 11 is outside"):
        Ids(11).encode([3, 11])
    with pytest.raises(ValueError, match="vocab_size=0"):
        Ids(0)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "one sequence"),
        ([[1, 2], [3, 4]], r"\[2, 2\] int64"),
        (torch.tensor(3), "one sequence"),
        ([-1, 2], "id -1 is outside"),
        ([0.0, 1.0], r"\[2\] float32"),
        ([True, False], "bool"),
        ("12", "str is not a sequence"),
        (7, "int is not a sequence"),
        ([1, "a"], "are not numbers"),
        ([1, None], "are not numbers"),
        ([2**70], "are not numbers"),
        (np.array(["a"]), "are not numbers"),
    ],
)
def test_what_is_no_sequence_of_ids_is_refused(raw, message):
    with pytest.raises(DataError, match=message):
        Ids(11).encode(raw)


def test_series_of_lists_arrays_and_tensors_are_alike():
    rows = [[0.5, -1.0, 2.0], [3.0, 0.0, 0.25]]
    for raw in (
        rows,
        np.array(rows),
        np.array(rows, np.float32),
        torch.tensor(rows, dtype=torch.float64),
    ):
        tokens = Series(3).encode(raw)
        assert_close(tokens.content, torch.tensor(rows))
        assert tokens.positions.tolist() == [[0.0], [1.0]]
        assert_close(Series(3).decode(tokens), torch.tensor(rows))


def test_one_number_a_step_needs_no_second_axis():
    for raw in ([5, 7, 11], [[5], [7], [11]], torch.tensor([5.0, 7.0, 11.0])):
        assert Series().encode(raw).content.tolist() == [[5.0], [7.0], [11.0]]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], r"the series is \[0\] float32; give \[n 3\] \(num_features\)"),
        (torch.zeros(0, 3), "no tokens"),
        ([[1.0, 2.0]], r"the series is \[1, 2\] float32"),
        ([1.0, 2.0, 3.0], r"the series is \[3\] float32"),
        ([[1.0, 2.0, float("inf")]], "content of token 0 is not finite"),
        (torch.zeros(2, 3, dtype=torch.bool), "bool; give real numbers"),
        ([[1.0, 2.0, 3.0], [1.0]], "are not numbers"),
        ([["a", "b", "c"]], "are not numbers"),
        ("1 2 3", "str is not a sequence"),
    ],
)
def test_what_is_no_series_of_that_width_is_refused(raw, message):
    with pytest.raises(DataError, match=message):
        Series(3).encode(raw)


def test_a_width_of_none_is_refused():
    with pytest.raises(ValueError, match="num_features=0"):
        Series(0)


def test_patches_are_those_of_unfold_and_the_last_step_is_repeated():
    values = torch.arange(22.0).reshape(11, 2) ** 2
    series = Series(2, patch=5, stride=3)
    tokens = series.encode(values)
    assert_close(tokens.content.reshape(3, 5, 2), values.unfold(0, 5, 3).transpose(1, 2))
    assert series.spec.num_features == 10
    (short,) = series.encode(values[:3]).content.reshape(-1, 5, 2)
    assert_close(short, values[[0, 1, 2, 2, 2]])
    for patch, stride in ((5, 3), (4, None), (6, 6)):
        series = Series(2, patch=patch, stride=stride)
        again = series.decode(series.encode(values))
        assert_close(again[:11], values)
        assert (again[11:] == values[-1]).all()


def test_a_series_is_scaled_by_training_or_by_itself():
    raws = [[[1.0, 5.0], [3.0, 5.0]], [[5.0, 5.0], [7.0, 5.0]]]
    known, own = Series(2, normalize="training"), Series(2, normalize="series")
    known.fit(raws)
    both = torch.cat([known.encode(raw).content for raw in raws])
    assert_close(both.mean(0), torch.zeros(2))
    # a constant has no spread, and is no NaN
    assert_close(both.std(0, correction=0), torch.tensor([1.0, 0.0]))
    # level and scale are dropped
    assert_close(own.encode(raws[0]).content, own.encode(raws[1]).content)
    assert own.encode(raws[0]).content.tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_statistics_keep_the_form_of_a_faint_series_and_its_level_in_any_unit():
    random = np.random.default_rng(0)
    raws = [
        random.normal(level, scale, size=(23, 2))
        for level, scale in ((0, 0.01), (3, 1.0), (50, 100.0))
    ]

    def contents(raws):
        series = Series(2, normalize="statistics", patch=5)
        series.fit(raws)
        return [series.encode(raw).content for raw in raws]

    faint, middle, loud = contents(raws)
    for content in (faint, middle, loud):
        assert content.shape[1] == 5 * 2 + 4
        assert 0.5 < content[:, :-4].std() < 1.5
        assert (content[:, -4:] == content[0, -4:]).all()
    assert_close(middle[0, -4:], torch.zeros(4))  # the median series
    own = torch.tensor(np.log(raws[0].std(0) / raws[1].std(0)))
    assert_close(faint[0, -2:].double(), own, rtol=1e-6, atol=1e-6)
    for content, other in zip((faint, middle, loud), contents([1000 * raw for raw in raws])):
        assert_close(content, other)


def test_what_is_not_given_is_learned_and_comes_back():
    series = Series(None, patch=None, normalize="training")
    with pytest.raises(ValueError, match="has no num_features yet"):
        _ = series.spec
    raws = [np.random.default_rng(i).normal(size=(96 + i, 3)).tolist() for i in range(3)]
    series.fit(raws)
    assert (series.width, series.steps, series.spec.num_features) == (3, (6, 1), 18)
    again = Series(None, patch=None, normalize="training")
    again.load_state(json.loads(json.dumps(series.state())))
    assert again.encode(raws[1]).equals(series.encode(raws[1]))
    given = Series(3)
    given.fit(raws)
    assert given.state() == {}
    with pytest.raises(ValueError, match="leaves out steps"):
        Series(patch=2, stride=3)
    with pytest.raises(ValueError, match="state holds"):
        again.load_state({"num_features": 3, "patch": 6})
    with pytest.raises(ValueError, match="has no mean yet"):
        Series(normalize="training").encode([1.0])


@pytest.mark.parametrize("normalize", [None, "training", "series", "statistics"])
def test_a_series_of_patches_keeps_every_law(normalize):
    raws = [np.random.default_rng(i).normal(size=(37 + i, 2)).tolist() for i in range(3)]
    series = Series(None, normalize=normalize, patch=5, stride=2)
    series.fit(raws)
    check_tokenizer(series, raws, quick=True)
