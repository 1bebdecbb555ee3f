"""Given ids: what goes in comes out, whatever holds it; what is no id is refused with the reason."""

import numpy as np
import pytest
import torch

from seqkit.errors import DataError
from seqkit.tokenizers import Ids


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_lists_tuples_arrays_and_tensors_of_any_integers_are_alike(dtype):
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
    with pytest.raises(DataError, match=r"id 11 is outside the vocabulary of 11 \(0 to 10\); give a larger vocab_size"):
        Ids(11).encode([3, 11])
    with pytest.raises(ValueError, match="vocab_size=0"):
        Ids(0)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "give one sequence"),
        ([[1, 2], [3, 4]], r"ids are \[2, 2\] int64; give one sequence"),
        (torch.tensor(3), "give one sequence"),
        ([-1, 2], "id -1 is outside"),
        ([0.0, 1.0], r"ids are \[2\] float32; give integers"),
        ([True, False], "bool; give integers"),
        ("12", "str is not a sequence of ids"),
        (7, "int is not a sequence of ids"),
        ([1, "a"], "ids are not integers"),
        ([1, None], "ids are not integers"),
        ([2**70], "ids are not integers"),
        (np.array(["a"]), "ids are not integers"),
    ],
)
def test_what_is_no_sequence_of_ids_is_refused(raw, message):
    with pytest.raises(DataError, match=message):
        Ids(11).encode(raw)
