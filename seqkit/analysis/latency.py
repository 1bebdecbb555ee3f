"""Latency of a generated token by the length of its context, from the cache.

The models take turns token by token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from seqkit.analysis.by_length import accepts, example, synthetic_batch
from seqkit.analysis.training_step import Training
from seqkit.analysis.turns import Spread, rotated
from seqkit.generation.decode import DecodingState

TOKENS_TIMED = 9
"""Tokens generated for one latency, at most."""

MIN_CONTEXT = 3
"""Tokens of the shortest context at which latency is measured: a prompt, one to warm up, one to be timed."""


def token_latencies(
    trainings: Mapping[str, Training], lengths: Sequence[int], say: Callable[[str], None]
) -> dict[str, tuple[tuple[int, Spread], ...] | None]:
    """(n, seconds per generated token) up to a context of n tokens; the models take turns token by token."""
    rows: dict[str, list[tuple[int, Spread]]] = {
        name: [] for name, training in trainings.items() if _generates(training)
    }
    for training in trainings.values():
        training.model.eval()
    with torch.inference_mode():
        for n in sorted({n for n in lengths if n >= MIN_CONTEXT}):
            states = {name: state for name in rows if (state := _decoding(trainings[name], n)) is not None}
            times: dict[str, list[float]] = {name: [] for name in states}
            for i in range(_num_timed(n)):
                for name in rotated(list(states), i) if states else ():
                    times[name].append(_generate_token(states[name], trainings[name].now))
            for name, each in times.items():
                rows[name].append((n, Spread.of(each)))
            say(f"generating: {n} tokens")
    return {name: tuple(rows[name]) if name in rows else None for name in trainings}


def _generates(training: Training) -> bool:
    """Whether the model generates ids, and has a cache for it."""
    if not training.model.spec.ids:
        return False
    try:
        _prompted(training, MIN_CONTEXT)
    except ValueError:  # not causal, several axes, or no cache: DecodingState says which
        return False
    return True


def _num_timed(n: int) -> int:
    """Tokens to be timed: those that are left of n when a prompt of one token and a warm-up have taken theirs."""
    return min(TOKENS_TIMED, n - MIN_CONTEXT + 1)


def _prompted(training: Training, n: int) -> DecodingState:
    """Decoding whose last timed token has n before it."""
    model = training.model
    prompt = torch.randint(model.spec.vocab_size, (n - 1 - _num_timed(n),), generator=torch.Generator().manual_seed(0))
    source = None
    if model.source_embedder is not None:
        spec = model.source_embedder.spec
        if spec.num_edge_types:
            raise ValueError("a source with an adjacency has no typical graph of n tokens")
        source = synthetic_batch(spec, n)
    return DecodingState(model, [prompt], _num_timed(n) + 2, source=source, use_cache=True)


def _decoding(training: Training, n: int) -> DecodingState | None:
    """Decoding up to where timing begins; None: the model refuses n tokens."""
    if not accepts(training, training.on_device(example(training, n))):
        return None
    state = _prompted(training, n)
    for _ in range(2):  # the prompt in one pass, then a first step by the cache
        _generate_token(state, training.now)
    return state


def _generate_token(state: DecodingState, now: Callable[[], float]) -> float:
    """Generate the likeliest token; the seconds that it took."""
    started = now()
    state.append(state.next_logits().argmax(dim=-1))
    return now() - started
