"""What several models cost, measured side by side: training steps, memory, and the latency of a generated token.

The models take turns, so that a busy machine slows all alike. The clock on the CPU is the processor time of the
process, over all its threads, which does not count waiting for a busy core. On CUDA it is wall time, read after the
device has finished what it was asked for.

b batch · n tokens · p axes · f features
"""

from __future__ import annotations

import copy
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import repeat
from torch import Tensor, nn

from seqkit.analysis.memory import peak_bytes
from seqkit.generation.decode import DecodingState
from seqkit.interfaces import Objective, TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.moe import AuxiliaryLoss
from seqkit.training.optim import OptimizerFactory

MIN_ROUNDS = 3
"""Rounds that are made however long they take: below that there are no quartiles."""

TOKENS_TIMED = 9
"""Tokens generated for one latency, at most."""

MIN_CONTEXT = 3
"""Tokens of the shortest context at which latency is measured: a prompt, one to warm up, one to be timed."""

LabeledBatch = tuple[TokenBatch, Tensor | None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to be measured, with what trains it.

    batches: what the loader yields; a round trains on each of them once. loader: to measure what loading costs, a
    batch a round; None: it is not measured, and counts as free. clip: the largest norm of the gradient; None: it is not
    clipped.
    """

    model: Model
    objective: Objective
    optimizer: OptimizerFactory
    batches: Sequence[LabeledBatch]
    loader: Iterable[LabeledBatch] | None = None
    clip: float | None = 1.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ValueError for no values."""
        if not values:
            raise ValueError("there are no values; a spread needs at least one")
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


@dataclass(frozen=True, slots=True)
class StepShares:
    """Where the time of a training step goes; the shares add up to 1.

    load: reading a batch from the loader. prepare: the objective's masks and targets. ends: embedder, head and loss,
    forward and backward. backbone: its forward and backward. update: scaling and clipping the gradient, the optimizer.
    """

    load: float
    prepare: float
    ends: float
    backbone: float
    update: float

    @property
    def glue(self) -> float:
        """Loading and preparing: what is neither the model nor its optimizer."""
        return self.load + self.prepare

    @property
    def outside_backbone(self) -> float:
        """All but the backbone."""
        return 1.0 - self.backbone


@dataclass(frozen=True, slots=True)
class Cost:
    """Measured cost of a model; times in seconds, memory in bytes; `dataclasses.asdict` gives plain data.

    tokens_per_second: real tokens of training; step_seconds: of a training step without loading, the mean over the
    batches of a round. shares: of a step with loading.
    seconds_by_length, memory_by_length: (n, training step of one example of n tokens: its time, its peak of memory with
    weights, gradients, optimizer and activations). A length that the model refuses is left out; None: the tokens have
    an adjacency, and there is no graph of n tokens to be had that would be typical of the data.
    latency_by_context: (n, time per generated token by the cache, of the last tokens that fill a context of n, from 3);
    None: the model does not generate, or has no cache.
    """

    tokens_per_second: Spread
    step_seconds: Spread
    shares: StepShares
    seconds_by_length: tuple[tuple[int, Spread], ...] | None
    memory_by_length: tuple[tuple[int, int], ...] | None
    latency_by_context: tuple[tuple[int, Spread], ...] | None


def measure(
    candidates: Mapping[str, Candidate],
    *,
    seconds: float = 30.0,
    lengths: Sequence[int] = (),
    report: Callable[[str], None] | None = None,
) -> dict[str, Cost]:
    """The cost of each candidate, by name; copies are trained, so the models keep their weights.

    seconds: of the clock, for the rounds of training on real batches, all candidates together; there are at least three
    rounds. What each length takes comes on top. lengths: n of the measurements by length and by context.
    report: gets a line of progress now and then. Models are measured on the device that they are on.
    Raises ValueError where there are no candidates or batches, seconds is not above 0, or a length is below 1.
    """
    _check(candidates, seconds, lengths)
    say = report or _silent
    trainings = {name: _Training(candidate) for name, candidate in candidates.items()}
    rounds = _rounds(trainings, seconds, say)
    by_length = _by_length(trainings, lengths, say)
    latencies = _latencies(trainings, lengths, say)
    costs = {}
    for name, training in trainings.items():
        num_steps = len(training.batches)
        num_tokens = sum(training.num_tokens)
        times = [one.seconds for one in rounds[name]]
        supports_lengths = by_length[name] is not None
        costs[name] = Cost(
            Spread.of([num_tokens / t for t in times]),
            Spread.of([t / num_steps for t in times]),
            _mean_shares([one.shares for one in rounds[name]]),
            tuple((n, spread) for n, spread, _ in by_length[name] or ()) if supports_lengths else None,
            tuple((n, peak) for n, _, peak in by_length[name] or ()) if supports_lengths else None,
            latencies[name],
        )
    return costs


# ── one training step ────────────────────────────────────────────────────────────────────────────────────────────────


class _Training:
    """A candidate's training on a copy of its model, step by step as `TrainingModule` under Lightning does it."""

    def __init__(self, candidate: Candidate):
        self.model = copy.deepcopy(candidate.model).train()
        self.device = next(self.model.parameters()).device
        self.objective, self.clip = candidate.objective, candidate.clip
        self.optimizer = candidate.optimizer.build(self.model)
        self.batches = [self.on_device(batch) for batch in candidate.batches]
        self.num_tokens = [int(self.objective.prepare(*batch).batch.valid.sum()) for batch in self.batches]
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

    def load(self) -> LabeledBatch:
        """A batch of the loader; without one, the first of the batches."""
        return self.batches[0] if self._stream is None else self.on_device(next(self._stream))

    def on_device(self, batch: LabeledBatch) -> LabeledBatch:
        tokens, label = batch
        return tokens.to(self.device), None if label is None else label.to(self.device)

    def step(self, batch: LabeledBatch, mark: Callable[[str], None] | None = None) -> None:
        """One optimizer step. mark: gets the name of each part of it when that part ends."""
        mark = mark or _silent
        inputs = self.objective.prepare(*batch)
        mark("prepare")
        output = self.objective.loss(self.model(inputs.batch, inputs.masked), inputs.target, training=True)
        loss = output.loss
        if self.device.type == "cpu":
            bool(torch.isfinite(loss.detach()))  # looked at in every step, as training does
        if self._auxiliary:
            loss = loss + output.count * torch.stack([module.aux_loss() for module in self._auxiliary]).sum()
        loss.backward()
        mark("model")
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, 1.0 / output.count.clamp(min=1))
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        mark("update")

    def held(self, batch: LabeledBatch) -> list[Tensor]:
        """All tensors that exist between steps: weights, buffers, state of the optimizer, the batch."""
        state = [t for one in self.optimizer.state.values() for t in one.values() if isinstance(t, Tensor)]
        tokens, label = batch
        parts = [tokens.content, tokens.positions, tokens.valid, *([] if label is None else [label])]
        return [*self.model.parameters(), *self.model.buffers(), *state, *parts]

    def shares(self) -> StepShares:
        """Of one step, with what loading its batch takes."""
        marks = [("", self.now())]

        def mark(part: str) -> None:
            marks.append((part, self.now()))

        batch = self.load()
        mark("load")
        with _Stopwatch(self.model.backbone, self.now) as watch:
            self.step(batch, mark)
        took = {part: end - start for (_, start), (part, end) in itertools.pairwise(marks)}
        total = marks[-1][1] - marks[0][1]
        return StepShares(
            took["load"] / total,
            took["prepare"] / total,
            (took["model"] - watch.seconds) / total,
            watch.seconds / total,
            took["update"] / total,
        )


class _Stopwatch:
    """Times a backbone's forward pass, and its backward pass: from the gradient of its output to that of its input."""

    def __init__(self, backbone: nn.Module, now: Callable[[], float]):
        self._now, self._handles = now, list[Any]()
        self._backbone = backbone
        self._forward_seconds, self._started = 0.0, 0.0
        self._backward: list[float] = []

    @property
    def seconds(self) -> float:
        backward = self._backward[-1] - self._backward[0] if self._backward else 0.0
        return self._forward_seconds + backward

    def __enter__(self) -> _Stopwatch:
        self._handles = [
            self._backbone.register_forward_pre_hook(self._before),
            self._backbone.register_forward_hook(self._after),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, _module: nn.Module, args: Any) -> None:
        embedded = args[0]
        for part in (embedded, embedded.source):
            if part is not None and part.hidden.requires_grad:
                part.hidden.register_hook(self._reached)
        self._started = self._now()

    def _after(self, _module: nn.Module, _args: Any, output: Tensor) -> None:
        self._forward_seconds = self._now() - self._started
        if output.requires_grad:
            output.register_hook(self._reached)

    def _reached(self, _gradient: Tensor) -> None:
        self._backward.append(self._now())


# ── rounds on real batches ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Round:
    """Seconds of one step on each batch, and where one step's time went."""

    seconds: float
    shares: StepShares


def _rounds(trainings: Mapping[str, _Training], seconds: float, say: Callable[[str], None]) -> dict[str, list[_Round]]:
    """Rounds until `seconds` are over; a step each goes before, which loads what is loaded at first use."""
    for training in trainings.values():
        training.shares()
    rounds: dict[str, list[_Round]] = {name: [] for name in trainings}
    spent, count = 0.0, 0
    while count < MIN_ROUNDS or spent < seconds:
        for name in _rotated(list(trainings), count):
            training = trainings[name]
            started = training.now()
            for batch in training.batches:
                training.step(batch)
            took = training.now() - started
            rounds[name].append(_Round(took, training.shares()))
            spent += training.now() - started
        count += 1
        say(f"training: {count} rounds, {spent:.1f} of {seconds:g} s")
    return rounds


def _rotated(names: list[str], count: int) -> Iterator[str]:
    """Another candidate begins each round: who comes first finds other caches than who comes last."""
    start = count % len(names)
    yield from names[start:] + names[:start]


def _mean_shares(shares: Sequence[StepShares]) -> StepShares:
    """Means, whose sum is 1 as each one's is."""
    parts = ("load", "prepare", "ends", "backbone", "update")
    return StepShares(*(statistics.fmean(getattr(one, part) for one in shares) for part in parts))


# ── by length ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _by_length(
    trainings: Mapping[str, _Training], lengths: Sequence[int], say: Callable[[str], None]
) -> dict[str, list[tuple[int, Spread, int]] | None]:
    """(n, seconds, peak bytes) of a training step on one example of n tokens."""
    found: dict[str, list[tuple[int, Spread, int]] | None] = {
        name: None if _input_spec(training.model).num_edge_types else [] for name, training in trainings.items()
    }
    for n in sorted(set(lengths)):
        ready = {}
        for name, training in trainings.items():
            if found[name] is not None:
                batch = training.on_device(_example(training, n))
                if _accepts(training, batch):
                    training.step(batch)
                    ready[name] = batch
        times: dict[str, list[float]] = {name: [] for name in ready}
        for i in range(MIN_ROUNDS):
            for name in _rotated(list(ready), i) if ready else ():
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


def _accepts(training: _Training, batch: LabeledBatch) -> bool:
    """False: the model refuses tokens of that number (a table of positions is full)."""
    inputs = training.objective.prepare(*batch)
    try:
        with torch.no_grad():
            training.model(inputs.batch, inputs.masked)
    except ValueError:
        return False
    return True


def _example(training: _Training, n: int) -> LabeledBatch:
    """One random example of n tokens. A label is the first real one; labels per token are repeated until they do."""
    tokens, label = training.batches[0]
    made = synthetic_batch(_input_spec(training.model), n)
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


def _input_spec(model: Model) -> TokenSpec:
    """Of the tokens that the model reads, in an encoder–decoder those of the source."""
    return model.embedder.spec if model.source_embedder is None else model.source_embedder.spec


# ── latency ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _latencies(
    trainings: Mapping[str, _Training], lengths: Sequence[int], say: Callable[[str], None]
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
                for name in _rotated(list(states), i) if states else ():
                    times[name].append(_generate_token(states[name], trainings[name].now))
            for name, each in times.items():
                rows[name].append((n, Spread.of(each)))
            say(f"generating: {n} tokens")
    return {name: tuple(rows[name]) if name in rows else None for name in trainings}


def _generates(training: _Training) -> bool:
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


def _prompted(training: _Training, n: int) -> DecodingState:
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


def _decoding(training: _Training, n: int) -> DecodingState | None:
    """Decoding up to where timing begins; None: the model refuses n tokens."""
    if not _accepts(training, training.on_device(_example(training, n))):
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


# ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check(candidates: Mapping[str, Candidate], seconds: float, lengths: Sequence[int]) -> None:
    if not candidates:
        raise ValueError("there are no candidates; give at least one model to be measured")
    for name, candidate in candidates.items():
        if not candidate.batches:
            raise ValueError(f"the candidate {name!r} has no batches; give at least one to train on")
    if not seconds > 0:
        raise ValueError(f"seconds={seconds} is the time of the measurement; make it more than 0")
    if any(n < 1 for n in lengths):
        raise ValueError(f"lengths={list(lengths)} count tokens; make each 1 or more")


def _silent(_: str) -> None:
    pass
