"""Time and memory of a training step by the number of tokens, on random examples of that length.

b batch · n tokens · p axes · f features · a answers · t tokens of an answer
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from einops import repeat
from torch import Tensor

from seqkit.analysis.memory import peak_bytes
from seqkit.analysis.training_step import LabeledBatch, Training
from seqkit.analysis.turns import MIN_ROUNDS, Spread, rotated
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.model import Model


def steps_by_length(
    trainings: Mapping[str, Training], lengths: Sequence[int], say: Callable[[str], None]
) -> dict[str, list[tuple[int, Spread, int]] | None]:
    """(n, seconds, peak bytes) of a training step on one example of n tokens."""
    found: dict[str, list[tuple[int, Spread, int]] | None] = {
        name: None if input_spec(training.model).num_edge_types else [] for name, training in trainings.items()
    }
    for n in sorted(set(lengths)):
        ready = {}
        for name, training in trainings.items():
            if found[name] is not None:
                batch = training.on_device(example(training, n))
                if accepts(training, batch):
                    training.step(batch)
                    ready[name] = batch
        times: dict[str, list[float]] = {name: [] for name in ready}
        for i in range(MIN_ROUNDS):
            for name in rotated(list(ready), i) if ready else ():
                training = trainings[name]
                started = training.now()
                training.step(ready[name])
                times[name].append(training.now() - started)
        for name, batch in ready.items():
            training, rows = trainings[name], found[name]
            assert rows is not None
            peak = peak_bytes(lambda training=training, batch=batch: training.step(batch), training.held(batch))  # type: ignore[misc]
            rows.append((n, Spread.of(times[name]), peak))
        say(f"training: {n} tokens")
    return found


def accepts(training: Training, batch: LabeledBatch) -> bool:
    """False: the model refuses tokens of that number (a table of positions is full)."""
    inputs = training.objective.prepare(*batch)
    try:
        with torch.no_grad():
            training.model(inputs.batch, inputs.masked)
    except ValueError:
        return False
    return True


def example(training: Training, n: int) -> LabeledBatch:
    """One random example of n tokens. A label is the first real one; labels per token are repeated until they do."""
    tokens, label = training.batches[0]
    made = synthetic_batch(input_spec(training.model), n)
    if label is None:
        return made, None
    if training.objective.target_spec is not None:  # ids [b a t] of a sequence to be generated
        return made, _repeated(label[:1].clamp(min=0), 2, n)
    per_token = label.ndim > 1 and label.shape[1] == tokens.valid.shape[1]
    return made, _repeated(label[:1], 1, n) if per_token else label[:1]


def _repeated(x: Tensor, axis: int, n: int) -> Tensor:
    """x, repeated along an axis until that has n entries."""
    index = torch.arange(n, device=x.device) % x.shape[axis]
    return x.index_select(axis, index)


def synthetic_batch(spec: TokenSpec, n: int, *, seed: int = 0) -> TokenBatch:
    """One example of n random tokens: ids or standard normal vectors [1 n f].

    Positions [1 n p] count from 0; with several axes they fill a cube row by row, with as many steps on every axis.
    Raises ValueError for tokens that have an adjacency.
    """
    if spec.num_edge_types:
        raise ValueError("these tokens have an adjacency, and random tokens have no edges; give a real batch")
    generator = torch.Generator().manual_seed(seed)
    content = (
        torch.randint(spec.vocab_size, (1, n), generator=generator)
        if spec.ids
        else torch.randn(1, n, spec.num_features, generator=generator)
    )
    side = math.ceil(round(n ** (1 / spec.num_axes), 6)) if spec.num_axes > 1 else n
    index = torch.arange(n)
    axes = [index // side**axis % side for axis in reversed(range(spec.num_axes))]
    positions = torch.stack(axes, dim=-1).float() if axes else torch.zeros(n, 0)
    return TokenBatch(content, repeat(positions, "n p -> 1 n p"), torch.ones(1, n, dtype=torch.bool))


def input_spec(model: Model) -> TokenSpec:
    """Of the tokens that the model reads, in an encoder–decoder those of the source."""
    return model.embedder.spec if model.source_embedder is None else model.source_embedder.spec
