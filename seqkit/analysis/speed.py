"""What several models cost, measured side by side: training steps, memory, and the latency of a generated token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seqkit.analysis.by_length import steps_by_length
from seqkit.analysis.latency import token_latencies
from seqkit.analysis.training_step import Candidate, StepShares, Training
from seqkit.analysis.turns import MIN_ROUNDS, Spread, rotated


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
    trainings = {name: Training(candidate) for name, candidate in candidates.items()}
    rounds = _rounds(trainings, seconds, say)
    by_length = steps_by_length(trainings, lengths, say)
    latencies = token_latencies(trainings, lengths, say)
    costs = {}
    for name, training in trainings.items():
        num_steps = len(training.batches)
        num_tokens = sum(training.num_tokens)
        times = [one.seconds for one in rounds[name]]
        supports_lengths = by_length[name] is not None
        costs[name] = Cost(
            Spread.of([num_tokens / t for t in times]),
            Spread.of([t / num_steps for t in times]),
            StepShares.mean([one.shares for one in rounds[name]]),
            tuple((n, spread) for n, spread, _ in by_length[name] or ()) if supports_lengths else None,
            tuple((n, peak) for n, _, peak in by_length[name] or ()) if supports_lengths else None,
            latencies[name],
        )
    return costs


@dataclass(frozen=True, slots=True)
class _Round:
    """Seconds of one step on each batch, and where one step's time went."""

    seconds: float
    shares: StepShares


def _rounds(trainings: Mapping[str, Training], seconds: float, say: Callable[[str], None]) -> dict[str, list[_Round]]:
    """Rounds until `seconds` are over; a step each goes before, which loads what is loaded at first use."""
    for training in trainings.values():
        training.shares()
    rounds: dict[str, list[_Round]] = {name: [] for name in trainings}
    spent, count = 0.0, 0
    while count < MIN_ROUNDS or spent < seconds:
        for name in rotated(list(trainings), count):
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
