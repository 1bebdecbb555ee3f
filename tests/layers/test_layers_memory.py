"""What a layer keeps between steps, it keeps in order."""

import pytest
import torch
from torch.testing import assert_close

from seqkit.layers.memory import KeysValues, LayerMemory


def test_keys_and_values_are_kept_in_order():
    memory = KeysValues(7)
    keys, values = torch.randn(2, 2, 3, 7, 5)
    for start, end in ((0, 3), (3, 4), (4, 7)):
        k, v = memory.extend(keys[:, :, start:end], values[:, :, start:end])
        assert_close(k, keys[:, :, :end])
        assert_close(v, values[:, :, :end])


def test_a_full_memory_says_so():
    memory = KeysValues(3)
    keys, values = torch.randn(2, 2, 3, 4, 5)
    with pytest.raises(
        ValueError, match="the cache has room for 3 tokens and was given 4; make it with a larger max_tokens"
    ):
        memory.extend(keys, values)


def test_rows_that_are_selected_stay_with_their_keys_values_source_and_tail():
    memory = LayerMemory(KeysValues(5))
    keys, values, source, tail = (torch.randn(3, 2, 4, 7) for _ in range(4))
    memory.own.extend(keys, values)
    memory.source, memory.tail = (source, source + 1), tail
    rows = torch.tensor([2, 0, 0, 1])
    memory.select(rows)
    k, v = memory.own.extend(keys[rows, :, :1], values[rows, :, :1])
    assert_close(k[:, :, :4], keys[rows])
    assert_close(v[:, :, :4], values[rows])
    assert_close(memory.source[0], source[rows])
    assert_close(memory.source[1], source[rows] + 1)
    assert_close(memory.tail, tail[rows])
