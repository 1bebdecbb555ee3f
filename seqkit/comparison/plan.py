"""The cells of a comparison, and those that can run, given the results so far."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

from seqkit.comparison.candidates import Candidate, keys_of, pretraining_config, value_at
from seqkit.comparison.cells import Cell
from seqkit.comparison.settings import DROPOUTS, LR_RATIO, Settings
from seqkit.errors import UsageError

Results = Mapping[str, Mapping[str, Any]]
"""By cell: its result, or {"error": …}."""

VALIDATIONS = 8
"""Points of a validation curve, where validation generates nothing."""

TUNING_SEED = 1001
"""Seed of the trials, and the first of those with which the best two rates are tried again: no reported run has it."""

BEYOND = 3
"""Most learning rates that are added beyond the ends of a candidate's grids, where the best lies there."""

AGAIN = 2
"""Number of the best rates that are tried with a second seed, and of the seeds by which a setting is chosen."""

RULES = 3
"""Version of how a plan follows from results. Old trial results would get another meaning under a new one."""

Rate = tuple[int, int]
"""Number of the optimizer, and power of the grid's ratio."""


@dataclass(frozen=True)
class Step:
    """A cell that will run, and the cells that must have ended before. kind, candidate: as in `Cell`.

    what: of a trial, what it tries: "lr", "again" (a good rate with another seed), "depth" or "dropout". number: seed
    of a run; of a trial, which of that kind, from 0. share: of a whole run's steps; "part" is a run of fewer.
    """

    id: str
    kind: str
    candidate: str
    needs: tuple[str, ...] = ()
    number: int = 0
    what: str = ""
    share: float = 1.0


class Plan:
    """All steps of a comparison, of which some are known only when others have ended.

    num_steps: optimizer steps of a whole run, by candidate. generates: True: validation generates sequences, so it is
    left to the recipe how often it runs. Raises UsageError where two candidates would share a folder.
    """

    def __init__(
        self,
        settings: Settings,
        candidates: Sequence[Candidate],
        num_steps: Mapping[str, int],
        *,
        metric: str,
        generates: bool,
    ):
        self.settings, self.num_steps, self.metric, self.generates = settings, num_steps, metric, generates
        self.candidates = {candidate.name: candidate for candidate in candidates}
        if len({slug_of(name) for name in self.candidates}) < len(self.candidates):
            raise UsageError(f"two candidates would share a folder: {', '.join(self.candidates)}; rename one")
        for whole in num_steps.values():
            steps = [max(1, round(whole * share)) for share in (*settings.run_shares, 1.0)]
            if len(set(steps)) < len(steps):
                raise UsageError(f"--run-shares: of {whole} steps these are {steps}, two of them alike; train longer")

    def steps(self, results: Results) -> dict[str, Step]:
        """All steps by id that are known, given the results so far: a best rate at the end of a grid adds one."""
        return {step.id: step for step in self._steps(results)}

    def _steps(self, results: Results) -> Iterator[Step]:
        settings, seeds = self.settings, range(1, self.settings.seeds + 1)
        by_time = settings.match == "time"
        if by_time:
            yield Step("measure", "measure", "")
        for name, candidate in self.candidates.items():
            slug, before = slug_of(name), ("measure",) * by_time
            if candidate.of is not None:
                before += (f"{slug}/pretrain-1",)
                tuned = tuple(step.id for step in self._trials(self.candidates[candidate.of], (), results))
                for seed in seeds:
                    yield Step(f"{slug}/pretrain-{seed}", "pretrain", name, tuned, seed)
            trials = list(self._trials(candidate, before, results))
            yield from trials
            tuned = tuple(step.id for step in trials)
            for seed in seeds:
                own = (f"{slug}/pretrain-{seed}",) if candidate.of is not None else ()
                yield Step(f"{slug}/seed-{seed}", "seed", name, tuned + own, seed)
            for share, seed in product(settings.run_shares, seeds):
                yield Step(f"{slug}/share-{share:g}-seed-{seed}", "part", name, tuned, seed, share=share)
        if settings.measure and not by_time:
            kinds = ("seed", *(f"share-{share:g}-seed" for share in settings.run_shares))
            everything = product(map(slug_of, self.candidates), kinds, seeds)
            yield Step("measure", "measure", "", tuple(f"{slug}/{kind}-{seed}" for slug, kind, seed in everything))

    def _trials(self, candidate: Candidate, before: tuple[str, ...], results: Results) -> Iterator[Step]:
        """Trials of a candidate: learning rates, the best of them again, then depths, then dropouts."""
        rates, twice = self._rates(candidate, results)
        depths, dropouts = len(candidate.depths) * self._num_seeds, self.settings.dropout_trials * self._num_seeds
        kinds = ("lr", range(len(rates))), ("again", twice), ("depth", range(depths)), ("dropout", range(dropouts))
        for what, numbers in kinds:
            steps = [_trial(candidate.name, what, i, before) for i in numbers]
            yield from steps
            before += tuple(step.id for step in steps)

    @property
    def _num_seeds(self) -> int:
        """Number of seeds by which a setting is chosen."""
        return AGAIN if self.settings.lr_trials > 1 else 1

    def ready(self, results: Results) -> list[Step]:
        """Steps without a result whose needs all have one: trials, then all candidates with one seed, then the next.

        A comparison that is stopped has then run as many seeds of each candidate.
        """
        steps = [s for s in self.steps(results).values() if s.id not in results]
        ready = [s for s in steps if all(need in results for need in s.needs)]
        return sorted(ready, key=lambda s: (s.kind != "trial", s.kind == "part", s.number * (s.kind != "trial")))

    def values(self, step: Step, results: Results) -> dict[str, Any]:
        """Values by dotted key that a step changes in its candidate's configuration: those that are tried or chosen."""
        candidate = self.candidates[step.candidate]
        if step.what in ("lr", "again"):
            return self._learning_rates(candidate, self._rates(candidate, results)[0][step.number])
        if step.what == "depth":
            return self._depth(candidate, step.number, self.best(candidate, results, ()))
        if step.what == "dropout":
            return self._dropout(candidate, step.number, self.best(candidate, results, ("depth",)))
        if step.kind == "pretrain":
            assert candidate.of is not None
            return self.best(self.candidates[candidate.of], results)
        return self.best(candidate, results)

    def cell(self, step: Step, results: Results) -> Cell:
        """The cell of a step that is ready."""
        if step.kind == "measure":
            sized = {name: self._sized(c, results) for name, c in self.candidates.items() if c.of is None}
            return Cell(step.id, "measure", "", sized)
        candidate, slug = self.candidates[step.candidate], slug_of(step.candidate)
        config, values = copy.deepcopy(candidate.config), self.values(step, results)
        for optimizer in candidate.optimizers:
            if optimizer["type"] == values.get("optimizer.type"):
                config["optimizer"] = copy.deepcopy(optimizer)
        for key, value in values.items():
            _set(config, key, value)
        trainer = config["trainer"]
        trainer["enable_progress_bar"] = False
        whole = self.num_steps[candidate.name]
        share = self.settings.trial_share if step.kind == "trial" else step.share
        num_steps = max(1, round(self._num_steps(candidate, results) * share))
        if step.kind == "trial" or num_steps != whole:
            trainer["max_steps"], trainer["max_epochs"] = num_steps, None
        warmup = (config["schedule"] or {}).get("warmup_steps")
        if warmup:  # the same share of a shorter or longer training
            config["schedule"]["warmup_steps"] = round(warmup * num_steps / whole)
        if not self.generates and trainer["val_check_interval"] is None:
            trainer["val_check_interval"] = max(1, num_steps // VALIDATIONS)
            trainer["check_val_every_n_epoch"] = None
        initial = f"runs/{slug}/pretrain-{max(step.number, 1)}" if candidate.of is not None else None
        if step.kind == "trial":
            config["seed"] = self.tuning_seed(step)
            initial = f"runs/{slug}/pretrain-1" if candidate.of is not None else None
            return Cell(step.id, "trial", candidate.name, config, initial)
        config["seed"] = step.number
        folder = f"runs/{step.id}"
        if step.kind == "pretrain":
            assert self.settings.pretrain is not None
            config = pretraining_config(config, self.settings.pretrain)
            return Cell(step.id, "pretrain", candidate.name, config, None, folder)
        is_first = step.kind == "seed" and step.number == 1
        return Cell(step.id, "seed", candidate.name, config, initial, folder, self.metric, is_first=is_first)

    def tuning_seed(self, step: Step) -> int:
        """Seed of a trial: of depths, and of dropouts, the first half has the first seed, the others the second."""
        options = {"depth": len(self.candidates[step.candidate].depths), "dropout": self.settings.dropout_trials}
        return TUNING_SEED + (step.number // options[step.what] if step.what in options else step.what == "again")

    def _sized(self, candidate: Candidate, results: Results) -> dict[str, Any]:
        """The candidate's configuration at the depth that was chosen."""
        config, chosen = copy.deepcopy(candidate.config), self.best(candidate, results)
        for key in {key for one in candidate.depths for key in one.values} & chosen.keys():
            _set(config, key, chosen[key])
        return config

    def _num_steps(self, candidate: Candidate, results: Results) -> int:
        """Optimizer steps of a whole run: the recipe's or, at matched time, as many as take the reference's time."""
        steps = self.num_steps[candidate.name]
        if self.settings.match != "time":
            return steps
        costs = results["measure"].get("costs", {})
        reference = next(iter(self.candidates.values()))
        own, theirs = costs.get(candidate.of or candidate.name), costs.get(reference.name)
        if not own or not theirs:
            return steps
        share = theirs["step_seconds"] / own["step_seconds"]
        return max(1, round(self.num_steps[reference.name] * share))

    # ── what is tried ────────────────────────────────────────────────────────────────────────────────────────────────

    def _rates(self, candidate: Candidate, results: Results) -> tuple[list[Rate], list[int]]:
        """Learning rates that are tried, in order, and the numbers of those with two seeds, as far as they are known.

        A grid has as many powers below its middle as above. While the best of all by the first seed, and then the best
        of those with two, lies at an end of its optimizer's grid, that grid gets one more there.
        """
        number = self.settings.lr_trials
        middle = (number - 1) // 2
        found = [(i, k - middle) for i in range(max(1, len(candidate.optimizers))) for k in range(number)]
        most = len(found) + (BEYOND if number > 1 else 0)
        while (losses := self._losses(candidate, "lr", range(len(found)), results)) is not None:
            further = _further(found, losses)
            if further is None or len(found) == most:
                break
            found.append(further)
        if self._num_seeds == 1:
            return found, []
        if losses is None:
            return found, list(range(AGAIN))
        twice = sorted(losses, key=losses.__getitem__)[:AGAIN]
        while len(found) < most and (means := self._means(candidate, twice, results)) is not None:
            further = _further(found, means)
            if further is None:
                break
            twice.append(len(found))
            found.append(further)
        return found, twice

    def _losses(
        self, candidate: Candidate, what: str, numbers: Iterable[int], results: Results
    ) -> dict[int, float] | None:
        """Loss by its number of each of these trials that ended well; None while one has not ended."""
        trials = {i: results.get(_trial(candidate.name, what, i).id) for i in numbers}
        if any(result is None for result in trials.values()):
            return None
        return {i: loss for i, result in trials.items() if result and (loss := _loss(result)) is not None}

    def _means(self, candidate: Candidate, twice: Sequence[int], results: Results) -> dict[int, float] | None:
        """Mean loss over both seeds, by its number, of each rate that ended well with both; None while one has not."""
        one, two = (self._losses(candidate, what, twice, results) for what in ("lr", "again"))
        return None if one is None or two is None else {i: (one[i] + two[i]) / 2 for i in one.keys() & two.keys()}

    def best(
        self, candidate: Candidate, results: Results, kinds: Sequence[str] = ("depth", "dropout")
    ) -> dict[str, Any]:
        """Values of the setting with the lowest validation loss, a mean over seeds; empty where every trial failed.

        Of the rates, one of those that were tried with both seeds. kinds: what else is chosen, if it is better: first a
        depth, then a dropout.
        """
        rates, twice = self._rates(candidate, results)
        ended = [i for i in range(len(rates)) if _trial(candidate.name, "lr", i).id in results]
        means = self._means(candidate, twice, results) if len(ended) == len(rates) else None
        losses = means or self._losses(candidate, "lr", ended, results)
        chosen, loss = dict[str, Any](), math.inf
        if losses:
            lowest = min(losses, key=losses.__getitem__)
            chosen, loss = self._learning_rates(candidate, rates[lowest]), losses[lowest]
        for kind, options, values in (
            ("depth", len(candidate.depths), self._depth),
            ("dropout", self.settings.dropout_trials, self._dropout),
        ):
            found = self._losses(candidate, kind, range(options * self._num_seeds), results) if kind in kinds else None
            every = [range(i, options * self._num_seeds, options) for i in range(options)]
            tried = {i: fmean(found[j] for j in own) for i, own in enumerate(every) if found and found.keys() >= {*own}}
            if tried and min(tried.values()) < loss:
                lowest = min(tried, key=tried.__getitem__)
                chosen, loss = values(candidate, lowest, chosen), tried[lowest]
        return chosen

    def _learning_rates(self, candidate: Candidate, rate: tuple[int, int]) -> dict[str, Any]:
        """The rates of an optimizer, each times the same power of the grid's ratio."""
        optimizers = candidate.optimizers or [candidate.config["optimizer"]]
        optimizer = optimizers[rate[0]]
        kind = {"optimizer.type": optimizer["type"]} if len(optimizers) > 1 else {}
        return kind | {
            f"optimizer.{key}": float(f"{value_at(optimizer, key) * LR_RATIO ** rate[1]:.3g}")
            for key in _lr_keys(optimizer)
        }

    def _depth(self, candidate: Candidate, number: int, chosen: Mapping[str, Any]) -> dict[str, Any]:
        return {**chosen, **candidate.depths[number % len(candidate.depths)].values}

    def _dropout(self, candidate: Candidate, number: int, chosen: Mapping[str, Any]) -> dict[str, Any]:
        keys = ["model.dropout", *keys_of(candidate.config["model"]["backbone"], "dropout")]
        return {**chosen, **dict.fromkeys(keys, DROPOUTS[number % self.settings.dropout_trials])}


def _further(rates: Sequence[Rate], losses: Mapping[int, float]) -> Rate | None:
    """The rate beyond the best of these, where that is at an end of its optimizer's grid; None where it is within."""
    if not losses:
        return None
    optimizer, best = rates[min(losses, key=losses.__getitem__)]
    powers = [power for one, power in rates if one == optimizer]
    if min(powers) < best < max(powers):
        return None
    return optimizer, best + (1 if best == max(powers) else -1)


def _trial(name: str, what: str, number: int, needs: tuple[str, ...] = ()) -> Step:
    return Step(f"{slug_of(name)}/{what}-{number + 1}", "trial", name, needs, number, what)


def _loss(result: Mapping[str, Any]) -> float | None:
    """Validation loss of a trial; None where it failed, or has not ended."""
    return None if "error" in result or not result else float(result["metrics"]["loss"])


def slug_of(name: str) -> str:
    """The name as a folder: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.=]+", "-", name).strip("-.") or "candidate"


def _lr_keys(optimizer: Mapping[str, Any], path: str = "") -> list[str]:
    """Dotted keys of all learning rates of an optimizer, those of optimizers inside it too."""
    found = [f"{path}lr"] if isinstance(optimizer.get("lr"), int | float) else []
    for key, value in optimizer.items():
        if isinstance(value, Mapping):
            found += _lr_keys(value, f"{path}{key}.")
    return found


def _set(config: dict[str, Any], key: str, value: Any) -> None:
    path, _, last = key.rpartition(".")
    (value_at(config, path) if path else config)[last] = value
