"""Laws of every backbone over longer examples and larger batches, and of the cache by which it generates.

What is right for seven tokens may be wrong from the 32nd on, and what is right for two examples wrong for five.

b batch · n tokens · d width
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.testing.changed_tokens import other_content
from seqkit.testing.embedded_backbone import EmbeddedBackbone, Examples, has_cache
from seqkit.testing.laws import (
    Law,
    assert_as_alone,
    assert_no_future,
    assert_steps,
    future_fault,
    packed_equals_separate,
    with_another_future,
)
from seqkit.testing.process import fixed_generator, seeded
from seqkit.testing.tolerance import assert_same, is_same

LENGTHS = (70, 33, 1, 40, 2, 17)
FAR = (300, 140)
FAR_COLUMNS = (127, 128, 129, 255, 256, 257, 298)
"""Columns around the sizes that tables and caches often have."""
FAR_STEPS = (1, 1, 126, 1, 1, 43)
"""Sizes of chunks after a prompt, which begin at such columns."""
PAST_COLUMNS = (2, 3, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 298)
"""Columns that must depend on one before them: at the borders of chunks and tables, and between."""
NUM_PASTS = 4
"""Number of pasts, at most, of which one must change such a column."""
BATCH_SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 17)
VOCAB_SIZE = 11


def long_texts(lengths: Sequence[int] = LENGTHS) -> tuple[TokenSpec, list[Tokens]]:
    """Spec and texts of so many tokens; the same every time."""
    g = fixed_generator()
    ids = [torch.randint(VOCAB_SIZE, (n,), generator=g) for n in lengths]
    return TokenSpec(vocab_size=VOCAB_SIZE), [
        Tokens(x, torch.arange(float(len(x)))[:, None]) for x in ids
    ]


def any_batch_gives_the_same(model: EmbeddedBackbone, examples: Examples) -> None:
    """An example gives the same hidden states alone and in batches of 2 to 17, whatever is beside it."""
    alone = [model.alone(x) for x in examples]
    for i, hidden in enumerate(alone):
        if not bool(torch.isfinite(hidden).all()):
            raise AssertionError(
                f"hidden states of example {i} of {len(hidden)} tokens are not finite"
            )
    for size in BATCH_SIZES:
        rows = [(i + size) % len(examples) for i in range(size)]
        chosen = [examples[i] for i in rows]
        where = f"in a batch of {size}, "
        assert_as_alone(model, chosen, [alone[i] for i in rows], where=where)


def no_column_attends_to_the_future(model: EmbeddedBackbone, examples: Examples) -> None:
    """Causal backbones: no later token, however far along, changes a hidden state."""
    x = max(examples, key=len)
    assert_no_future(model, x, range(len(x) - 1))


def training_sees_no_future(model: EmbeddedBackbone, examples: Examples) -> None:
    """Causal backbones: the same in training mode, where what is drawn is the same for tokens of one shape."""
    x = max(examples, key=len)
    n = len(x)
    columns = range(0, n - 1, 8)

    def trained(batch: Examples) -> Tensor:
        copied = copy.deepcopy(model).train()
        with seeded(1):
            return copied(TokenBatch.collate(batch))  # type: ignore[no-any-return]

    alike = [x] * len(columns)
    expected = trained(alike)
    if not is_same(trained(alike), expected):
        return  # another law says that a seed does not decide what is drawn
    together = trained([with_another_future(model, x, t) for t in columns])
    for t, got, right in zip(columns, together, expected, strict=True):
        assert_same(got[: t + 1], right[: t + 1], future_fault(t, n))


def step_by_step_goes_on(model: EmbeddedBackbone, examples: Examples) -> None:
    """After longer prompts, too, at once and in two parts, and many steps, chunks with a cache give what one pass
    gives."""
    long = [x for x in examples if len(x) > 2]
    assert_steps(model, long, (1, 2) * 5)
    assert_steps(model, long, (1, 2) * 5, in_parts=True)


def caches_are_apart(model: EmbeddedBackbone, examples: Examples) -> None:
    """Two generations that take turns, each with its cache, do not change each other; nor does an earlier one."""
    turns: list[tuple[Tokens, Any, list[Tensor]]] = []
    with torch.no_grad():
        for x in sorted(examples, key=len)[-2:]:
            turns.append((x, model.backbone.init_cache(len(x)), []))
        for t in range(0, 9, 3):
            for x, cache, parts in turns:
                parts.append(model(TokenBatch.collate([x.at(slice(t, t + 3))]), cache)[0])
    fault = "two caches in turn differ from one pass: they share their state"
    for x, _, parts in turns:
        assert_same(torch.cat(parts), model.alone(x.at(slice(9))), fault)


def reorder_keeps_the_rows(model: EmbeddedBackbone, examples: Examples) -> None:
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
                    fault = f"after reorder({rows}), row {row} does not go on with example {i}"
                    assert_same(got[row, 0], model.alone(x)[len(x) - end - 1], fault)


def columns_far_along_are_like_others(model: EmbeddedBackbone, examples: Examples) -> None:
    """At 300 tokens, too, batch mates and padding change nothing, and no token attends to the future; a cache goes on
    as one pass does."""
    with torch.no_grad():
        assert_as_alone(model, examples)
        if model.causal:
            assert_no_future(model, examples[0], FAR_COLUMNS)
        if model.causal and has_cache(model.backbone):
            assert_steps(model, examples[:1], FAR_STEPS)


def columns_read_the_past_alike(model: EmbeddedBackbone, examples: Examples) -> None:
    """Causal backbones: from the first column on that depends on one before it, all do: no state is lost far along."""
    x = max(examples, key=len)
    n = len(x)
    pasts = {t: x for t in PAST_COLUMNS if t < n}
    first = n
    with torch.no_grad():
        right = model.alone(x)
        for _ in range(NUM_PASTS):
            pasts = {
                t: other_content(past, torch.arange(n) < t, model.spec) for t, past in pasts.items()
            }
            together = model(TokenBatch.collate(list(pasts.values())))
            for t, hidden in zip(list(pasts), together, strict=True):
                if not torch.allclose(hidden[t], right[t], rtol=1e-9, atol=1e-12):
                    first = min(first, t)
                    del pasts[t]
            if not pasts:
                return
    for t in pasts:
        if t > first:
            raise AssertionError(
                f"column {t} of {n} depends on no column before it, and others do: a state is lost there"
            )


def laws_of_long_texts(model: EmbeddedBackbone) -> list[Law]:
    """The laws that apply to this backbone on texts of 1 to 70 tokens."""
    found: list[Law] = [any_batch_gives_the_same]
    if model.causal:
        found[:0] = [no_column_attends_to_the_future, training_sees_no_future]
    if model.backbone.supports_segments:
        found.append(packed_equals_separate)
    if model.causal and has_cache(model.backbone):
        found += [step_by_step_goes_on, caches_are_apart, reorder_keeps_the_rows]
    return found


def refused_when_long(model: EmbeddedBackbone, examples: Examples) -> bool:
    """Whether the backbone refuses examples of that length with ValueError, as learned tables of positions do."""
    try:
        with torch.no_grad():
            model(TokenBatch.collate(examples))
    except ValueError:
        return True
    except Exception:  # the user's own code: a law says what it raises
        return False
    return False
