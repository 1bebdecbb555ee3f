"""NaN and infinity are found among numbers of any kind, and only there."""

import math

import pytest
import torch

from seqkit.errors import DataError
from seqkit.interfaces.finite import check_computed, flaw, flawed_weight


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_what_is_not_finite_is_named(dtype):
    sound = torch.tensor([0.0, -3.0, torch.finfo(dtype).max], dtype=dtype)
    assert flaw(sound) == ""
    for bad, name in ((math.nan, "NaN"), (math.inf, "infinity"), (-math.inf, "infinity")):
        values = torch.cat([sound, torch.tensor([bad], dtype=dtype)])
        assert flaw(values) == name
        assert flawed_weight({"a": sound, "b": values}) == f"the weight b holds {name}"
        with pytest.raises(DataError, match=f"computes {name}"):
            check_computed(values)


def test_numbers_of_no_float_type_and_no_numbers_are_sound():
    weights = {"steps": torch.tensor([1, 2]), "is_on": torch.tensor([True]), "none": torch.empty(0)}
    assert flawed_weight(weights) == ""
