"""Random queries, keys and values."""

import torch


def random_heads(num_heads, num_kv_heads, n=5, m=7, c=3):
    """q [2 h n c] and k, v [2 g m c]."""
    return (
        torch.randn(2, num_heads, n, c),
        torch.randn(2, num_kv_heads, m, c),
        torch.randn(2, num_kv_heads, m, c),
    )
