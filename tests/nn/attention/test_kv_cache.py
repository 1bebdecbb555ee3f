"""Caches return what was appended, in order, and follow their rows when they are reordered."""

import pytest
import torch
from torch.testing import assert_close

from seqkit.nn.attention.kv_cache import KVCache, LayerCache


def test_appended_keys_and_values_come_back_in_order():
    cache = KVCache(7)
    keys, values = torch.randn(2, 2, 3, 7, 5)
    for start, end in ((0, 3), (3, 4), (4, 7)):
        k, v = cache.update(keys[:, :, start:end], values[:, :, start:end])
        assert_close(k, keys[:, :, :end])
        assert_close(v, values[:, :, :end])


def test_a_full_cache_is_refused():
    cache = KVCache(3)
    keys, values = torch.randn(2, 2, 3, 4, 5)
    with pytest.raises(ValueError, match="3 tokens, got 4"):
        cache.update(keys, values)


def test_reordered_rows_keep_their_keys_values_memory_and_convolution_inputs():
    cache = LayerCache(KVCache(5))
    keys, values, memory, inputs = (torch.randn(3, 2, 4, 7) for _ in range(4))
    cache.self_attention.update(keys, values)
    cache.cross_attention, cache.convolution = (memory, memory + 1), inputs
    rows = torch.tensor([2, 0, 0, 1])
    cache.reorder(rows)
    k, v = cache.self_attention.update(keys[rows, :, :1], values[rows, :, :1])
    assert_close(k[:, :, :4], keys[rows])
    assert_close(v[:, :, :4], values[rows])
    assert_close(cache.cross_attention[0], memory[rows])
    assert_close(cache.cross_attention[1], memory[rows] + 1)
    assert_close(cache.convolution, inputs[rows])
