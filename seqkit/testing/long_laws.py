"""Laws of every backbone over longer examples and larger batches, and of the cache by which it generates.

What is right for seven tokens may be wrong from the 32nd on, and what is right for two examples wrong for five.

b batch · n tokens · d width
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from einops import rearrange
from torch import Tensor

from seqkit.interfaces import Adjacency, TokenBatch, Tokens, TokenSpec
from seqkit.testing.laws import (
    NUM_CONTENTS,
    TOLERANCE,
    EmbeddedBackbone,
    assert_same,
    fixed_generator,
    has_cache,
    other_content,
    with_cause,
)

LENGTHS = (70, 33, 1, 40, 2, 17)
NUM_LEAVES = 20
FAR = (300, 140)
FAR_COLUMNS = (127, 128, 129, 255, 256, 257, 298)
"""Columns around the sizes that tables and caches often have."""
BATCH_SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 17)
VOCAB_SIZE = 11


def long_texts() -> tuple[TokenSpec, list[Tokens]]:
    """Spec and texts of 1 to 70 tokens; the same every time."""
    return _texts(LENGTHS)


def far_texts() -> tuple[TokenSpec, list[Tokens]]:
    """Spec and texts of 300 and 140 tokens; the same every time."""
    return _texts(FAR)


def stars() -> tuple[TokenSpec, list[Tokens]]:
    """Spec and graphs of a node with many neighbours, these with one each, and a last node with none."""
    g, found = fixed_generator(), []
    for num_leaves in (NUM_LEAVES, 3):
        out = torch.stack([torch.zeros(num_leaves, dtype=torch.int64), torch.arange(num_leaves) + 1])
        edges = torch.cat([out, out.flip(0)], dim=1)
        adjacency = Adjacency(edges, torch.ones_like(edges[0]))
        n = num_leaves + 2
        found.append(Tokens(torch.randn(n, 3, generator=g), torch.zeros(n, 0), adjacency))
    return TokenSpec(num_features=3, num_axes=0, num_edge_types=1), found


def _texts(lengths: Sequence[int]) -> tuple[TokenSpec, list[Tokens]]:
    g = fixed_generator()
    texts = [torch.randint(VOCAB_SIZE, (n,), generator=g) for n in lengths]
    return TokenSpec(vocab_size=VOCAB_SIZE), [
        Tokens(ids, rearrange(torch.arange(float(len(ids))), "n -> n 1")) for ids in texts
    ]


def any_batch_gives_the_same(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """An example gives the same hidden states alone and in batches of 2 to 17, whatever is beside it."""
    alone = [model(TokenBatch.collate([x]))[0] for x in examples]
    for i, hidden in enumerate(alone):
        if not bool(torch.isfinite(hidden).all()):
            raise AssertionError(f"hidden states of example {i} of {len(hidden)} tokens are not finite")
    for size in BATCH_SIZES:
        rows = [(i + size) % len(examples) for i in range(size)]
        together = model(TokenBatch.collate([examples[i] for i in rows]))
        for row, i in enumerate(rows):
            n = len(examples[i])
            fault = f"in a batch of {size}, the others change example {i} of {n} tokens"
            got = together[row, :n]
            assert_same(got, alone[i], with_cause(fault, model, examples[i], got, alone[i]))
            padding = together[row, n:]
            assert_same(padding, torch.zeros_like(padding), f"in a batch of {size}, padding is not zero")


def no_column_attends_to_the_future(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """Causal backbones: no later token, however far along, changes a hidden state."""
    x = max(examples, key=len)
    n = len(x)
    expected = model(TokenBatch.collate([x]))[0]
    changed = [other_content(x, torch.arange(n) > t, model.spec) for t in range(n - 1)]
    got = model(TokenBatch.collate(changed))
    for t in range(n - 1):
        fault = f"tokens after {t} of {n} change the hidden states up to it: a token attends to the future"
        assert_same(got[t, : t + 1], expected[: t + 1], fault)


def every_step_equals_at_once(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """With a cache, tokens one by one from the first on, and a prompt in two halves, give what one pass gives."""
    x = sorted(examples, key=len)[-2]
    n = len(x)
    expected = model(TokenBatch.collate([x]))[0]
    for step in (1, (n + 1) // 2):
        with torch.no_grad():
            cache = model.backbone.init_cache(n)
            parts = [model(TokenBatch.collate([x.at(slice(t, t + step))]), cache)[0] for t in range(0, n, step)]
        for column, (got, right) in enumerate(zip(torch.cat(parts), expected, strict=True)):
            assert_same(got, right, f"with a cache and {step} tokens a step, column {column} of {n} differs")


def caches_are_apart(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """Two generations that take turns, each with its cache, do not change each other; nor does an earlier one."""
    first, second = sorted(examples, key=len)[-2:]
    with torch.no_grad():
        caches = [model.backbone.init_cache(len(x)) for x in (first, second)]
        parts: tuple[list[Tensor], list[Tensor]] = ([], [])
        for t in range(0, 9, 3):
            for x, cache, part in zip((first, second), caches, parts, strict=True):
                part.append(model(TokenBatch.collate([x.at(slice(t, t + 3))]), cache)[0])
    for x, part in zip((first, second), parts, strict=True):
        expected = model(TokenBatch.collate([x.at(slice(9))]))[0]
        assert_same(torch.cat(part), expected, "two caches in turn differ from one pass: they share their state")


def reorder_keeps_the_rows(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """`Cache.reorder` keeps, repeats and drops examples, as a beam search does."""
    long = [x for x in examples if len(x) > 2]
    for rows in ([1, 2, 0], [2, 0, 0, 1], [1]):
        with torch.no_grad():
            cache = model.backbone.init_cache(max(map(len, long)))
            model(TokenBatch.collate([x.at(slice(len(x) - 2)) for x in long[:3]]), cache)
            cache.reorder(torch.tensor(rows))
            chosen = [long[i] for i in rows]
            for end in (1, 0):
                last = [x.at(slice(len(x) - end - 1, len(x) - end)) for x in chosen]
                got = model(TokenBatch.collate(last), cache)
                for row, (i, x) in enumerate(zip(rows, chosen, strict=True)):
                    expected: Tensor = model(TokenBatch.collate([x]))[0, len(x) - end - 1]
                    fault = f"after reorder({rows}), row {row} does not go on with example {i}"
                    assert_same(got[row, 0], expected, fault)


def columns_far_along_are_like_others(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """At 300 tokens, too, batch mates and padding change nothing, and no token attends to the future; a cache goes on
    as one pass does."""
    x = examples[0]
    n = len(x)
    with torch.no_grad():
        expected = model(TokenBatch.collate([x]))[0]
        together = model(TokenBatch.collate(examples).pad(3))
        for i, other in enumerate(examples):
            alone = expected if other is x else model(TokenBatch.collate([other]))[0]
            fault, got = f"batch mates and padding change example {i} of {len(other)} tokens", together[i, : len(other)]
            assert_same(got, alone, with_cause(fault, model, other, got, alone))
        if not model.causal:
            return
        changed = [other_content(x, torch.arange(n) > t, model.spec) for t in FAR_COLUMNS]
        for t, got in zip(FAR_COLUMNS, model(TokenBatch.collate(changed)), strict=True):
            fault = f"tokens after {t} of {n} change the hidden states up to it: a token attends to the future"
            assert_same(got[: t + 1], expected[: t + 1], fault)
        if not has_cache(model.backbone):
            return
        cache, ends = model.backbone.init_cache(n), [0, *(t for t in FAR_COLUMNS), n]
        for start, end in pairwise(ends):
            got = model(TokenBatch.collate([x.at(slice(start, end))]), cache)[0]
            assert_same(got, expected[start:end], f"with a cache, columns {start} to {end - 1} of {n} differ")


def nodes_of_any_degree_use_their_edges(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """Backbones that support adjacency: a node with fewer neighbours gets another state, one with many does not depend
    on their order, and one with none depends on no other."""
    for i, x in enumerate(examples):
        assert x.adjacency is not None
        n, (source, _) = len(x), x.adjacency.edge_index
        expected = model(TokenBatch.collate([x]))[0]
        is_kept = (x.adjacency.edge_index <= (n - 2) // 2).all(dim=0)
        fewer = Adjacency(x.adjacency.edge_index[:, is_kept], x.adjacency.edge_type[is_kept])
        last_with_edges = 0 if not model.causal else n - 2  # a first node has no earlier neighbour
        if not _edges_change_a_node(model, x, fewer, last_with_edges):
            raise AssertionError(
                f"a node of example {i} keeps its state without {len(source) - int(is_kept.sum())} of {len(source)} "
                "edges; use all of them, or declare supports_adjacency=False"
            )
        is_last = torch.arange(n) == n - 1
        got = model(TokenBatch.collate([other_content(x, ~is_last, model.spec)]))[0]
        assert_same(
            got[-1], expected[-1], f"the last node of example {i} has no neighbour, but others change its state"
        )
        if not model.causal:
            order = torch.cat([torch.zeros(1, dtype=torch.int64), torch.arange(n - 2, 0, -1), torch.tensor([n - 1])])
            got = model(TokenBatch.collate([x.at(order)]))[0]
            fault = f"the {n - 2} neighbours of a node of example {i} in another order give other hidden states"
            assert_same(got, expected[order], fault)


def _edges_change_a_node(model: EmbeddedBackbone, x: Tokens, other: Adjacency, node: int) -> bool:
    """Whether a node has another state with the other edges, for some content: a node may read one neighbour alone."""
    generator = fixed_generator()
    for _ in range(NUM_CONTENTS):
        one, two = (model(TokenBatch.collate([y]))[0, node] for y in (x, replace(x, adjacency=other)))
        if float((one - two).detach().abs().max()) > TOLERANCE:
            return True
        x = replace(x, content=torch.randn(x.content.shape, generator=generator))
    return False


def refused_when_long(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> bool:
    """Whether the backbone refuses examples of that length with ValueError, as learned tables of positions do."""
    try:
        with torch.no_grad():
            model(TokenBatch.collate(examples))
    except ValueError:
        return True
    return False
