"""N-grams: the classical method for next-token prediction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seqkit.data.module import DataModule
from seqkit.objectives import NextToken


def n_grams(data: DataModule, objective: NextToken) -> dict[str, Any]:
    """Loss of n-grams, smoothed as Witten and Bell (1991), on every token of the test split that a model predicts."""
    size = data.tokenizer.spec.vocab_size
    order = min(6, int(62 / np.log2(max(size, 2))))  # an n-gram is one int64
    splits = data.splits().train, data.splits().test
    train, test = (
        [data.tokenizer.encode(sample.raw).content.numpy() for sample in split] for split in splits
    )
    probability = np.full(sum(len(ids) - 1 for ids in test), 1 / size)
    # a context with few kinds of followers leaves little to the shorter context
    for n in range(1, order + 1):
        grams, counts = np.unique(
            np.concatenate([_grams(ids, n, size) for ids in train]), return_counts=True
        )
        contexts, kinds = np.unique(grams // size, return_counts=True)
        totals = np.bincount(np.searchsorted(contexts, grams // size), weights=counts)
        # the n-gram that ends at each token but a document's first, id -1 standing for what is before a document
        padded = [
            np.concatenate([np.full(max(n - 2, 0), -1), ids[1:] if n == 1 else ids]) for ids in test
        ]
        asked = np.concatenate([_grams(ids, n, size) for ids in padded])
        seen, of_gram = _looked_up(asked, grams, counts)
        known, total = _looked_up(asked // size, contexts, totals)
        _, kind = _looked_up(asked // size, contexts, kinds)
        mixed = (of_gram * seen + kind * probability) / np.maximum(total + kind, 1)
        probability = np.where(known & (asked >= 0), mixed, probability)
    loss = float(-np.log(probability).mean())
    metrics = {"loss": loss} | (
        {"perplexity": math.exp(loss)} if "Perplexity" in objective.of_tokens else {}
    )
    return {
        "name": f"{order}-grams (Witten–Bell)",
        "metrics": metrics,
        "num_train": sum(map(len, train)),
    }


def _grams(ids: np.ndarray, n: int, size: int) -> np.ndarray:
    """Every n-gram of the ids as one number; below 0 where it begins before them (id -1)."""
    if len(ids) < n:
        return np.zeros(0, dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(ids.astype(np.int64), n)
    found = windows @ size ** np.arange(n - 1, -1, -1, dtype=np.int64)
    return np.where((windows < 0).any(axis=1), -1, found)


def _looked_up(
    asked: np.ndarray, known: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each number is among the sorted known ones, and its value (0 where it is not)."""
    place = np.searchsorted(known, asked).clip(max=len(known) - 1)
    is_known = known[place] == asked
    return is_known, np.where(is_known, values[place], 0)
