"""Measured cost of several models: training steps, peak memory, and the latency of a generated token.

The models take turns, so that a busy machine slows all alike. The clock on the CPU is the processor time of the
process, over all its threads, which does not count waiting for a busy core. On CUDA it is wall time, read after the
device has finished its work.

n tokens
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

import torch
from pytorch_lightning import Callback
from torch.utils.data import DataLoader

from seqkit.analysis.measured import Cost
from seqkit.analysis.peak_memory import peak_bytes
from seqkit.generation.decode import DecodingState, supports_cache
from seqkit.interfaces import LabeledBatch, TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.runs.prepare import Prepared
from seqkit.training.trainer import make_trainer, silence_lightning, train

NUM_BATCHES = 4
"""Training batches on which every model is timed."""

NUM_ROUNDS = 5
"""Turns of every model on these batches."""

NUM_STEPS = 4
"""Training steps on one example of each length; the first is not timed."""

TOKENS_TIMED = 9
"""Most generated tokens whose median time is a latency."""

MIN_CONTEXT = 3
"""Shortest context of a latency: one token of prompt, one to warm up the cache, one to be timed."""


def measure(prepared: Mapping[str, Prepared], *, lengths: Sequence[int] = ()) -> dict[str, Cost]:
    """Cost of each model by name, on one device and without compiling. The timed steps train the models.

    lengths: numbers of tokens at which time, memory and latency are measured.
    """
    batches = {
        name: list(islice(one.data.train_dataloader(), NUM_BATCHES))
        for name, one in prepared.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in prepared}
    for _ in range(NUM_ROUNDS):
        for name, one in prepared.items():
            # the first step also sets up the optimizer, so its batch comes twice and is timed once
            with_warm_up = [*batches[name][:1], *batches[name]]
            seconds[name].append(statistics.fmean(step_seconds(one, with_warm_up)[1:]))
    costs = {}
    for name, one in prepared.items():
        called = [one.data.objective.first_call(one.model, batch)[0] for batch in batches[name]]
        step = statistics.median(seconds[name])
        seconds_by_length: list[tuple[float, float]] | None = None
        memory_by_length: list[tuple[float, float]] | None = None
        if not _input_spec(one.model).num_edge_types:
            measured = [_at_length(one, batches[name][0], n) for n in sorted(set(lengths))]
            rows = [row for row in measured if row is not None]
            seconds_by_length = [(n, value) for n, value, _ in rows]
            memory_by_length = [(n, peak) for n, _, peak in rows]
        costs[name] = Cost(
            tokens_per_second=statistics.fmean(batch.num_tokens for batch in called) / step,
            step_seconds=step,
            seconds_by_length=seconds_by_length,
            memory_by_length=memory_by_length,
            latency_by_context=token_latencies(one.model, lengths),
        )
    return costs


class _Clock(Callback):
    """Reads the clock before and after each training step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        self._started = now(pl_module.device)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.seconds.append(now(pl_module.device) - self._started)


def now(device: torch.device) -> float:
    """Seconds: on CUDA wall time after the device has finished its work, else processor time."""
    if device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def step_seconds(prepared: Prepared, batches: Sequence[LabeledBatch]) -> list[float]:
    """Seconds of one training step on each batch; the first step also sets up the optimizer."""
    clock = _Clock()
    one_device = {"devices": 1, "strategy": "auto", "accumulate_grad_batches": 1}
    quiet = {"enable_progress_bar": False, "limit_val_batches": 0, "log_every_n_steps": 0}
    steps = {"max_steps": len(batches), "max_epochs": -1}
    trainer = make_trainer(
        {**prepared.built.trainer, **one_device, **quiet, **steps}, logger=False, callbacks=[clock]
    )
    module = prepared.training_module(len(batches))
    module.skip_nonfinite = len(batches)
    loader: Any = DataLoader(list(batches), batch_size=None, collate_fn=lambda batch: batch)  # type: ignore[arg-type]
    with silence_lightning():
        train(trainer, module, loader, None)
    return clock.seconds


def _at_length(prepared: Prepared, real: LabeledBatch, n: int) -> tuple[int, float, int] | None:
    """n, seconds and peak bytes of a training step on one example of n tokens; None: the model refuses so many."""
    batch = _example(prepared, real, n)
    try:
        seconds = step_seconds(prepared, [batch] * NUM_STEPS)
    except ValueError:  # a learned table of positions may be too short
        return None
    held = [*prepared.model.parameters(), *prepared.model.buffers()]
    # the optimizer makes its moments in the first step, so the second has the peak
    peak = peak_bytes(lambda: step_seconds(prepared, [batch] * 2), held)
    return n, statistics.median(seconds[1:]), peak


def _example(prepared: Prepared, real: LabeledBatch, n: int) -> LabeledBatch:
    """One random example of n tokens, with the first real label; labels of tokens are repeated until there are n."""
    tokens, label = real
    made = TokenBatch.collate(
        [_input_spec(prepared.model).random(n, torch.Generator().manual_seed(0))]
    )
    if label is None:
        return made, None
    index = torch.arange(n)
    if prepared.data.objective.target_spec is not None:  # ids [b a t] of a sequence to be generated
        return made, label[:1].clamp(min=0).index_select(2, index % label.shape[2])
    is_by_token = label.ndim > 1 and label.shape[1] == tokens.valid.shape[1]
    if is_by_token:
        return made, label[:1].index_select(1, index % label.shape[1])
    return made, label[:1]


def _input_spec(model: Model) -> TokenSpec:
    """Spec of the tokens that the model reads: in an encoder–decoder, of the source."""
    if model.source_embedder is None:
        return model.embedder.spec
    return model.source_embedder.spec


def token_latencies(model: Model, lengths: Sequence[int]) -> list[tuple[float, float]] | None:
    """(n, seconds per generated token) of the last tokens that fill a context of n.

    None: the model does not generate with a cache.
    """
    spec = model.spec
    if not (
        model.causal and spec.ids and spec.num_axes == 1 and supports_cache(model, required=False)
    ):
        return None
    generator = torch.Generator().manual_seed(0)
    rows: list[tuple[float, float]] = []
    for n in sorted({n for n in lengths if n >= MIN_CONTEXT}):
        num_timed = min(TOKENS_TIMED, n - MIN_CONTEXT + 1)
        prompt = torch.randint(spec.vocab_size, (n - 1 - num_timed,), generator=generator)
        source = None
        if model.source_embedder is not None:
            source = TokenBatch.collate([model.source_embedder.spec.random(n, generator)])
        times = []
        try:
            with torch.inference_mode():
                state = DecodingState(
                    model.eval(), [prompt], num_timed + 2, source=source, use_cache=True
                )
                # two passes before those that are timed: the prompt, and one token to warm up the cache
                for _ in range(num_timed + 2):
                    times.append(now(state.device))
                    state.append(state.next_logits().argmax(dim=-1))
        except ValueError:  # a learned table of positions may be too short
            continue
        times = [*times[2:], now(state.device)]
        rows.append((n, statistics.median(later - earlier for earlier, later in pairwise(times))))
    return rows
