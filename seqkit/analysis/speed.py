"""Measured cost of several models: training steps, peak memory, and the latency of a generated token.

The models take turns, and another one begins each round, so that a busy machine slows all alike. The clock on the CPU
is the processor time of the process, over all its threads, which does not count waiting for a busy core. On CUDA it is
wall time, read after the device has finished its work.

b batch · n tokens · p axes · f features · a answers · t tokens of an answer
"""

from __future__ import annotations

import copy
import itertools
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from seqkit.analysis.peak_memory import peak_bytes
from seqkit.generation.decode import DecodingState
from seqkit.interfaces import LabeledBatch, Objective, TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.moe import AuxiliaryLoss
from seqkit.training.optim import OptimizerFactory

MIN_ROUNDS = 3
"""Rounds that are measured however long they take."""

TOKENS_TIMED = 9
"""Tokens generated for one latency, at most."""

MIN_CONTEXT = 3
"""Tokens of the shortest context at which latency is measured: a prompt, one to warm up, one to be timed."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to be measured, with what trains it.

    batches: batches of the loader; a round trains on each of them once. loader: loader of the training, of which each
    round reads a batch; None: loading is not measured and counts as free. clip: the largest norm of the gradient;
    None: it is not clipped.
    """

    model: Model
    objective: Objective
    optimizer: OptimizerFactory
    batches: Sequence[LabeledBatch]
    loader: Iterable[LabeledBatch] | None = None
    clip: float | None = 1.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Measured cost of a model: medians over the rounds, in seconds and bytes; `dataclasses.asdict` gives plain data.

    tokens_per_second: real tokens of training. step_seconds: time of a training step without loading, mean over the
    batches of a round. glue_share: share of a step with loading that the loader and the objective's masks and targets
    take: all that is neither the model nor its optimizer.
    seconds_by_length, memory_by_length: (n, value) of a training step on one example of n tokens: its time, and its
    peak of memory with weights, gradients, optimizer and activations. A length that the model refuses is left out;
    None: the tokens have an adjacency, and no graph of n tokens is typical of the data.
    latency_by_context: (n, time per generated token by the cache) of the last tokens that fill a context of n, from 3;
    None: the model does not generate, or has no cache.
    """

    tokens_per_second: float
    step_seconds: float
    glue_share: float
    seconds_by_length: list[tuple[int, float]] | None
    memory_by_length: list[tuple[int, int]] | None
    latency_by_context: list[tuple[int, float]] | None


def measure(
    candidates: Mapping[str, Candidate], *, seconds: float = 30.0, lengths: Sequence[int] = ()
) -> dict[str, Cost]:
    """The cost of each candidate, by name; copies are trained, so the models keep their weights.

    seconds: time for the rounds of training on real batches, all candidates together; there are at least three rounds.
    The measurements by length come on top. lengths: numbers of tokens at which time, memory and latency are measured.
    Models are measured on the device that they are on.
    Raises ValueError if there are no candidates or batches, seconds is not above 0, or a length is below 1.
    """
    if not candidates:
        raise ValueError("there are no candidates; give at least one model to be measured")
    for name, candidate in candidates.items():
        if not candidate.batches:
            raise ValueError(f"the candidate {name!r} has no batches; give at least one to train on")
    if not seconds > 0:
        raise ValueError(f"seconds={seconds} is the time of the measurement; make it more than 0")
    if any(n < 1 for n in lengths):
        raise ValueError(f"lengths={list(lengths)} count tokens; make each 1 or more")
    trainings = {name: Training(candidate) for name, candidate in candidates.items()}
    step_seconds, glue_shares = _step_seconds(trainings, seconds)
    by_length = _by_length(trainings, lengths)
    latencies = token_latencies(trainings, lengths)
    return {
        name: Cost(
            tokens_per_second=statistics.median(training.tokens_per_batch / each for each in step_seconds[name]),
            step_seconds=statistics.median(step_seconds[name]),
            glue_share=statistics.fmean(glue_shares[name]),
            seconds_by_length=[(n, each) for n, each, _ in by_length[name]] if name in by_length else None,
            memory_by_length=[(n, peak) for n, _, peak in by_length[name]] if name in by_length else None,
            latency_by_context=latencies.get(name),
        )
        for name, training in trainings.items()
    }


def in_turn(names: Iterable[str], count: int) -> list[str]:
    """The names, another one first in each round: who comes first finds other caches than who comes last."""
    names = list(names)
    start = count % max(1, len(names))
    return names[start:] + names[:start]


# ── training on real batches ─────────────────────────────────────────────────────────────────────────────────────────


class Training:
    """A candidate's training on a copy of its model, step by step as `TrainingModule` under Lightning does it."""

    def __init__(self, candidate: Candidate):
        self.model = copy.deepcopy(candidate.model).train()
        self.device = next(self.model.parameters()).device
        self.objective, self.clip = candidate.objective, candidate.clip
        self.optimizer = candidate.optimizer.build(self.model)
        self.batches = [self.on_device(batch) for batch in candidate.batches]
        called = [self.objective.first_call(self.model, batch)[0] for batch in self.batches]
        self.tokens_per_batch = statistics.fmean(one.num_tokens for one in called)
        self._auxiliary = [module for module in self.model.modules() if isinstance(module, AuxiliaryLoss)]
        self._stream: Iterator[LabeledBatch] | None = None
        if candidate.loader is not None:
            self._stream = itertools.chain.from_iterable(itertools.repeat(candidate.loader))  # epoch after epoch

    def now(self) -> float:
        """Seconds of the clock."""
        if self.device.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def on_device(self, batch: LabeledBatch) -> LabeledBatch:
        tokens, label = batch
        return tokens.to(self.device), None if label is None else label.to(self.device)

    def step(self, batch: LabeledBatch) -> None:
        """One optimizer step."""
        output = self.objective.step(self.model, batch, training=True)
        loss = output.loss
        if self.device.type == "cpu":
            bool(torch.isfinite(loss.detach()))  # looked at in every step, as training does
        if self._auxiliary:
            loss = loss + output.count * torch.stack([module.aux_loss() for module in self._auxiliary]).sum()
        loss.backward()
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, 1.0 / output.count.clamp(min=1))
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def glue_share(self) -> float:
        """Share of one step, with loading its batch, that is over when the model gets its input."""
        started = self.now()
        batch = self.batches[0] if self._stream is None else self.on_device(next(self._stream))
        called: list[float] = []
        hook = self.model.register_forward_pre_hook(lambda *_: called.append(self.now()), prepend=True)
        self.step(batch)
        hook.remove()
        return (called[0] - started) / (self.now() - started)

    def held(self, batch: LabeledBatch) -> list[Tensor]:
        """All tensors that exist between steps: weights, buffers, state of the optimizer, the batch."""
        state = [t for one in self.optimizer.state.values() for t in one.values() if isinstance(t, Tensor)]
        tokens, label = batch
        labels = [] if label is None else [label]
        return [*self.model.parameters(), *self.model.buffers(), *state, *tokens.tensors().values(), *labels]


def _step_seconds(
    trainings: Mapping[str, Training], seconds: float
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds per step, and share of glue, in rounds until `seconds` are over."""
    for training in trainings.values():
        training.glue_share()  # loads what is loaded at first use
    times: dict[str, list[float]] = {name: [] for name in trainings}
    shares: dict[str, list[float]] = {name: [] for name in trainings}
    spent, count = 0.0, 0
    while count < MIN_ROUNDS or spent < seconds:
        for name in in_turn(trainings, count):
            training = trainings[name]
            started = training.now()
            for batch in training.batches:
                training.step(batch)
            times[name].append((training.now() - started) / len(training.batches))
            shares[name].append(training.glue_share())
            spent += training.now() - started
        count += 1
    return times, shares


# ── training by the number of tokens ─────────────────────────────────────────────────────────────────────────────────


def _by_length(trainings: Mapping[str, Training], lengths: Sequence[int]) -> dict[str, list[tuple[int, float, int]]]:
    """(n, seconds, peak bytes) of a training step on one example of n tokens; tokens with an adjacency are left out."""
    rows: dict[str, list[tuple[int, float, int]]] = {
        name: [] for name, training in trainings.items() if not _input_spec(training.model).num_edge_types
    }
    for n in sorted(set(lengths)):
        batches = {name: trainings[name].on_device(_example(trainings[name], n)) for name in rows}
        batches = {name: batch for name, batch in batches.items() if _accepts(trainings[name], batch)}
        for name, batch in batches.items():
            trainings[name].step(batch)
        times: dict[str, list[float]] = {name: [] for name in batches}
        for i in range(MIN_ROUNDS):
            for name in in_turn(batches, i):
                started = trainings[name].now()
                trainings[name].step(batches[name])
                times[name].append(trainings[name].now() - started)
        for name, batch in batches.items():
            peak = peak_bytes(partial(trainings[name].step, batch), trainings[name].held(batch))
            rows[name].append((n, statistics.median(times[name]), peak))
    return rows


def _accepts(training: Training, batch: LabeledBatch) -> bool:
    """Whether the model takes that many tokens; a learned table of positions may be too short."""
    try:
        with torch.no_grad():
            training.objective.step(training.model, batch, training=True)
    except ValueError:
        return False
    return True


def _example(training: Training, n: int) -> LabeledBatch:
    """One random example of n tokens, with the first real label; labels of tokens are repeated until there are n."""
    tokens, label = training.batches[0]
    made = synthetic_batch(_input_spec(training.model), n)
    if label is None:
        return made, None
    if training.objective.target_spec is not None:  # ids [b a t] of a sequence to be generated
        return made, _repeated(label[:1].clamp(min=0), 2, n)
    by_token = label.ndim > 1 and label.shape[1] == tokens.valid.shape[1]
    return made, _repeated(label[:1], 1, n) if by_token else label[:1]


def _repeated(x: Tensor, axis: int, n: int) -> Tensor:
    """x, repeated along an axis until that has n entries."""
    index = torch.arange(n, device=x.device) % x.shape[axis]
    return x.index_select(axis, index)


def synthetic_batch(spec: TokenSpec, n: int, *, seed: int = 0) -> TokenBatch:
    """One example of n tokens drawn at random, as `TokenSpec.random`."""
    return TokenBatch.collate([spec.random(n, torch.Generator().manual_seed(seed))])


def _input_spec(model: Model) -> TokenSpec:
    """Spec of the tokens that the model reads: in an encoder–decoder, of the source."""
    return model.embedder.spec if model.source_embedder is None else model.source_embedder.spec


# ── generation by the length of the context ──────────────────────────────────────────────────────────────────────────


def token_latencies(trainings: Mapping[str, Training], lengths: Sequence[int]) -> dict[str, list[tuple[int, float]]]:
    """(n, seconds per generated token) up to a context of n tokens, for each model that generates with a cache."""
    rows: dict[str, list[tuple[int, float]]] = {name: [] for name, one in trainings.items() if _generates(one)}
    for training in trainings.values():
        training.model.eval()
    with torch.inference_mode():
        for n in sorted({n for n in lengths if n >= MIN_CONTEXT}):
            states = {name: state for name in rows if (state := _decoding(trainings[name], n)) is not None}
            times: dict[str, list[float]] = {name: [] for name in states}
            for i in range(_num_timed(n)):
                for name in in_turn(states, i):
                    started = trainings[name].now()
                    _generate_token(states[name])
                    times[name].append(trainings[name].now() - started)
            for name, each in times.items():
                rows[name].append((n, statistics.median(each)))
    return rows


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
    """Number of tokens to be timed: what is left of n after a prompt of one token and one to warm up."""
    return min(TOKENS_TIMED, n - MIN_CONTEXT + 1)


def _prompted(training: Training, n: int) -> DecodingState:
    """Decoding whose last timed token has n before it."""
    model = training.model
    prompt = torch.randint(model.spec.vocab_size, (n - 1 - _num_timed(n),), generator=torch.Generator().manual_seed(0))
    source = None if model.source_embedder is None else synthetic_batch(model.source_embedder.spec, n)
    return DecodingState(model, [prompt], _num_timed(n) + 2, source=source, use_cache=True)


def _decoding(training: Training, n: int) -> DecodingState | None:
    """Decoding up to where timing begins; None if the model refuses n tokens."""
    if not _accepts(training, training.on_device(_example(training, n))):
        return None
    state = _prompted(training, n)
    for _ in range(2):  # the prompt in one pass, then a first step by the cache
        _generate_token(state)
    return state


def _generate_token(state: DecodingState) -> None:
    state.append(state.next_logits().argmax(dim=-1))
