"""Stages of a comparison: trials choose the settings of each candidate, then every candidate is run, then measured.

A stage asks for cells, and gets their results from `execute`, which knows how processes and machines share them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from seqkit.analysis.measured import Cost
from seqkit.comparison.candidates import Candidate, Size
from seqkit.comparison.cells import Cell, Ended
from seqkit.comparison.sequential import planned, too_fine
from seqkit.comparison.settings import LR_RATIO, MIN_SEEDS, Settings
from seqkit.comparison.statistics import Scores
from seqkit.comparison.types import Metric, Trial
from seqkit.config.record import learning_rates

log = logging.getLogger("seqkit")

Execute = Callable[[Sequence[Cell]], Mapping[str, Ended]]
"""Runs cells, and returns the result of each by its id."""

Asking = Generator[list[Cell], Mapping[str, Ended], "Tuned"]

RULES = 6
"""Version of how trials and verdicts follow from results. Old results would get another meaning under a new one."""

VALIDATIONS = 8
"""Points of a validation curve, where validation generates nothing."""

TUNING_SEEDS = (1001, 1002)
"""Seeds of trials: no reported run has them. The best two settings are tried with both."""

BEYOND = 3
"""Most learning rates that are added beyond the ends of a candidate's grids, where the best lies there."""

AGAIN = 2
"""Number of the best settings that are tried with the second seed."""


@dataclass(frozen=True)
class Plan:
    """Candidates and how they are judged; made once, before anything runs. generates: validation generates."""

    settings: Settings
    candidates: list[Candidate]
    metric: Metric
    generates: bool = False

    def to_json(self) -> dict[str, object]:
        """Everything from which the runs and their verdicts follow."""
        return {
            "rules": RULES,
            "settings": self.settings.identity,
            "metric": self.metric.name,
            "candidates": [asdict(candidate) for candidate in self.candidates],
            "plugins": [
                hashlib.sha256(Path(path).read_bytes()).hexdigest()
                for path in self.settings.plugins
            ],
        }

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON of the plan."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    @property
    def num_cells(self) -> int:
        """Number of runs that are known beforehand; a best rate or depth at the end of a grid adds some."""
        settings = self.settings
        number = 0
        for one in self.candidates:
            number += len(grid_of(self, one)) + settings.seeds
            if settings.lr_trials > 1:
                number += AGAIN * (settings.tuning_seeds - 1) + len(_beside(0, one.ladder))
        return number + settings.measure


class Rate(NamedTuple):
    """A learning rate that is tried: number of the optimizer, and power of the grid's ratio."""

    optimizer: int
    power: int


class Setting(NamedTuple):
    """A rate and a depth, as a step of `Candidate.ladder`."""

    rate: Rate
    step: int = 0


@dataclass(frozen=True)
class Tuned:
    """Settings that were chosen for a candidate, by dotted key, its size, and the trials that chose them."""

    values: dict[str, Any]
    size: Size
    trials: list[Trial]


@dataclass(frozen=True)
class Trained:
    """All results. runs: by name and seed. configs: of the runs with the first seed, by name."""

    tuned: dict[str, Tuned]
    runs: dict[str, dict[int, Ended]]
    costs: dict[str, Cost]
    configs: dict[str, dict[str, Any]]


def train(plan: Plan, execute: Execute) -> Trained:
    """Tune, run and measure all candidates."""
    tuned = _together({one.name: tune(plan, one) for one in plan.candidates}, execute)
    runs = _reported(plan, tuned, execute)
    configs = {one.name: _run(plan, tuned, 1, one).config for one in plan.candidates}
    costs = _measured(plan, tuned, execute) if plan.settings.measure else {}
    return Trained(tuned, runs, costs, configs)


def _together(asking: Mapping[str, Asking], execute: Execute) -> dict[str, Tuned]:
    """Run the searches of all candidates side by side, one round of cells after the other."""
    done: dict[str, Tuned] = {}
    results: Mapping[str, Ended] | None = None
    while len(done) < len(asking):
        cells: list[Cell] = []
        for name, search in asking.items():
            if name not in done:
                try:
                    cells += next(search) if results is None else search.send(results)
                except StopIteration as stop:
                    done[name] = stop.value
        results = execute(cells) if cells else {}
    return done


# ── tuning ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def tune(plan: Plan, candidate: Candidate) -> Asking:
    """Ask for trials of a candidate, and return the settings that they chose.

    First every rate of the grid with one seed, then half and double the depth at the best rate. Last the best two of
    all with a second seed, by whose mean one is chosen, unless the settings want one seed. While the best is at an end
    of the rates or of the depths that were tried, the next one beyond is tried, too.
    """
    search = _Search(plan, candidate)
    once = TUNING_SEEDS[:1]
    grid = [Setting(rate) for rate in grid_of(plan, candidate)]
    yield from search.ask(grid, once)
    if plan.settings.lr_trials < 2:
        return search.tuned(search.best(once))
    while further := search.further_rates(search.best(once)):
        yield from search.ask(further, once)
    while further := search.further_depths(search.best(once)):
        yield from search.ask(further, once)
    if plan.settings.tuning_seeds < 2:
        return search.tuned(search.best(once))
    yield from search.ask(search.ranked(once)[:AGAIN], TUNING_SEEDS[1:])
    while further := search.further(search.best(TUNING_SEEDS)):
        yield from search.ask(further, TUNING_SEEDS)
    return search.tuned(search.best(TUNING_SEEDS) or search.best(once))


class _Search:
    """Settings that were tried for a candidate, and how well they did."""

    def __init__(self, plan: Plan, candidate: Candidate):
        self.plan = plan
        self.candidate = candidate
        self.trials: dict[tuple[Setting, int], Trial] = {}
        self.higher_is_better = False

    def ask(
        self, wanted: Sequence[Setting], seeds: Sequence[int]
    ) -> Generator[list[Cell], Mapping[str, Ended], None]:
        """Ask for trials of each setting with each seed, and keep their results."""
        cells = {(one, seed): self._cell(one, seed) for seed in seeds for one in wanted}
        ended = yield list(cells.values())
        for (setting, seed), cell in cells.items():
            result = ended[cell.id]
            other = self.candidate.ladder[setting.step] if setting.step else Size()
            name = self.plan.metric.name
            loss = result.metrics.get("loss")
            # else the loss stands for a metric that single trials do not have
            if name in result.metrics:
                self.higher_is_better = self.plan.metric.higher_is_better
            self.trials[setting, seed] = Trial(
                values=rate_values(self.candidate, setting.rate),
                seed=seed,
                score=result.metrics.get(name, loss),
                loss=loss,
                width=other.width,
                depth=other.depth,
                error=result.error,
            )

    def mean(self, setting: Setting, seeds: Sequence[int]) -> tuple[float, float] | None:
        """Mean over the seeds of (score, loss), less is better; None where one failed or was not tried.

        Equal scores, as accuracies of few examples are, leave the choice to the loss.
        """
        own = [self.trials.get((setting, seed)) for seed in seeds]
        known = [(one.score, one.loss) for one in own if one is not None and one.score is not None]
        if len(known) < len(seeds):
            return None
        sign = -1 if self.higher_is_better else 1
        return sign * fmean(score for score, _ in known), fmean(loss or 0.0 for _, loss in known)

    def ranked(self, seeds: Sequence[int]) -> list[Setting]:
        """Settings that ended well with all these seeds, the best first."""
        tried = dict.fromkeys(setting for setting, _ in self.trials)
        means = {one: mean for one in tried if (mean := self.mean(one, seeds)) is not None}
        return sorted(means, key=means.__getitem__)

    def best(self, seeds: Sequence[int]) -> Setting | None:
        """The best setting of those that ended well with all these seeds."""
        return next(iter(self.ranked(seeds)), None)

    def further_rates(self, best: Setting | None) -> list[Setting]:
        """The rate beyond the best one, where that is at an end of its optimizer's; empty where it is within."""
        rates = {one.rate for one, _ in self.trials}
        if best is None or len(rates) >= len(grid_of(self.plan, self.candidate)) + BEYOND:
            return []
        optimizer, power = best.rate
        beyond = {Rate(optimizer, power - 1), Rate(optimizer, power + 1)} - rates
        return [best._replace(rate=rate) for rate in sorted(beyond)]

    def further_depths(self, best: Setting | None) -> list[Setting]:
        """The depths beside the best one that were not tried."""
        if best is None:
            return []
        tried = {one.step for one, _ in self.trials}
        steps = _beside(best.step, self.candidate.ladder)
        return [best._replace(step=step) for step in steps if step not in tried]

    def further(self, best: Setting | None) -> list[Setting]:
        """The settings beyond the best one, where that is at an end."""
        return [*self.further_rates(best), *self.further_depths(best)]

    def tuned(self, best: Setting | None) -> Tuned:
        """The chosen setting; without one, the candidate as it is."""
        trials = list(self.trials.values())
        if best is None:
            return Tuned({}, self.candidate.size, trials)
        values = rate_values(self.candidate, best.rate)
        return Tuned(values, self.candidate.ladder[best.step], trials)

    def _cell(self, setting: Setting, seed: int) -> Cell:
        size = self.candidate.ladder[setting.step]
        values = rate_values(self.candidate, setting.rate)
        words = [f"{value:g}" if isinstance(value, float) else value for value in values.values()]
        name = "-".join(words)
        if setting.step:
            name = f"{name}-depth-{size.depth}"
        slug = slug_of(self.candidate.name)
        return Cell(
            id=f"{slug}/trial-{name}-seed-{seed}",
            kind="trial",
            candidate=self.candidate.name,
            config=config_of(self.plan, self.candidate, values | size.values, seed),
            broken=self.candidate.broken,
        )


def grid_of(plan: Plan, candidate: Candidate) -> list[Rate]:
    """The learning rates that are tried first: as many powers of the grid's ratio below its middle as above."""
    number = plan.settings.lr_trials
    return [
        Rate(i, k - (number - 1) // 2)
        for i in range(max(1, len(candidate.optimizers)))
        for k in range(number)
    ]


def rate_values(candidate: Candidate, rate: Rate) -> dict[str, str | float]:
    """The learning rates of an optimizer by dotted key, each times the same power of the grid's ratio."""
    optimizers = candidate.optimizers or [candidate.config["optimizer"]]
    optimizer = optimizers[rate.optimizer]
    values: dict[str, str | float] = {}
    if len(optimizers) > 1:
        values["optimizer.type"] = optimizer["type"]
    for key, own in learning_rates(optimizer).items():
        values[f"optimizer.{key}"] = float(f"{own * LR_RATIO**rate.power:.3g}")
    return values


def _beside(step: int, ladder: Mapping[int, Size]) -> list[int]:
    """The steps of the ladder before and after one."""
    return [one for one in (step - 1, step + 1) if one in ladder]


# ── runs and costs ───────────────────────────────────────────────────────────────────────────────────────────────────


def _reported(
    plan: Plan, tuned: Mapping[str, Tuned], execute: Execute
) -> dict[str, dict[int, Ended]]:
    """The runs of the page by candidate and seed: all with one seed, then the next.

    A comparison that is stopped has then run as many seeds of each candidate. With a margin, later seeds are for the
    reference and the candidates that are undecided; this follows from the results alone, so all machines ask for it.
    """
    settings = plan.settings
    is_fixed = settings.until_sure is None
    runs: dict[str, dict[int, Ended]] = {one.name: {} for one in plan.candidates}
    candidates = plan.candidates
    seeds = range(1, 1 + (settings.seeds if is_fixed else MIN_SEEDS))
    while candidates and seeds.start <= settings.seeds:
        cells = [_run(plan, tuned, *one) for one in product(seeds, candidates)]
        ended = execute(cells)
        for cell in cells:
            runs[cell.candidate][cell.config["seed"]] = ended[cell.id]
        candidates = [] if is_fixed else _undecided(plan, candidates, runs)
        seeds = range(seeds.stop, seeds.stop + 1)
    return runs


def _undecided(
    plan: Plan, candidates: Sequence[Candidate], runs: Mapping[str, Mapping[int, Ended]]
) -> list[Candidate]:
    """The reference and those candidates on which more seeds may decide; none: there are none.

    One that breaks a law is compared with none. One of which no seed finished has nothing to be compared.
    """
    delta = plan.settings.until_sure
    assert delta is not None
    scores = {}
    for one in candidates:
        sound = {s: ended.scores for s, ended in runs[one.name].items() if ended.scores is not None}
        if sound and not one.broken:
            scores[one.name] = Scores.by_seed(sound)
    reference = plan.candidates[0]
    pairs = list(planned(scores, reference.name, plan.metric, delta, len(plan.candidates) - 1))
    told = too_fine(pairs, plan.metric, delta)
    if told and {one.seeds for one in pairs} == {MIN_SEEDS}:
        log.warning("%s.", told)
    ended = {pair.a for pair in pairs if pair.verdict != "undecided"}
    left = [one for one in candidates[1:] if one.name in scores.keys() - ended]
    return [reference, *left] if left and reference.name in scores else []


def _run(plan: Plan, tuned: Mapping[str, Tuned], seed: int, candidate: Candidate) -> Cell:
    """A run of a candidate with the settings that were chosen for it."""
    own = tuned[candidate.name]
    return Cell(
        id=f"{slug_of(candidate.name)}/seed-{seed}",
        kind="run",
        candidate=candidate.name,
        config=config_of(plan, candidate, own.values | own.size.values, seed),
        metric=plan.metric.name,
        examines=seed == 1,
        has_baseline=seed == 1 and candidate is plan.candidates[0],
        broken=candidate.broken,
    )


def _measured(plan: Plan, tuned: Mapping[str, Tuned], execute: Execute) -> dict[str, Cost]:
    """Cost of each candidate at its chosen size."""
    configs = {one.name: one.configured(tuned[one.name].size.values) for one in plan.candidates}
    cell = Cell(id="measure", kind="measure", candidate="", config=configs)
    return execute([cell])["measure"].costs or {}


def config_of(
    plan: Plan, candidate: Candidate, values: Mapping[str, object], seed: int
) -> dict[str, Any]:
    """Configuration of a run with these values by dotted key."""
    config = candidate.configured(values)
    trainer = config["trainer"]
    trainer["enable_progress_bar"] = False
    if not plan.generates and trainer["val_check_interval"] is None:
        trainer["val_check_interval"] = max(1, candidate.num_steps // VALIDATIONS)
        trainer["check_val_every_n_epoch"] = None
    config["seed"] = seed
    return config


def slug_of(name: str) -> str:
    """The name as a folder: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.=]+", "-", name).strip("-.") or "candidate"
