"""The cells of a comparison, and those that can run, given the results so far."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqkit.comparison.candidates import Candidate, keys_of, pretraining_config, value_at
from seqkit.comparison.cells import Cell
from seqkit.comparison.settings import DROPOUTS, LR_RATIO, Settings
from seqkit.errors import UsageError

Results = Mapping[str, Mapping[str, Any]]
"""By cell: its result, or {"error": …}."""

VALIDATIONS = 8
"""Points of a validation curve, where validation generates nothing."""


@dataclass(frozen=True)
class Step:
    """A cell that will run, and the cells that must have ended before. kind, candidate: as in `Cell`."""

    id: str
    kind: str
    candidate: str
    needs: tuple[str, ...] = ()
    number: int = 0


class Plan:
    """All steps of a comparison.

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
        self.steps = {step.id: step for step in self._steps()}

    def _steps(self) -> Iterator[Step]:
        settings, seeds = self.settings, range(1, self.settings.seeds + 1)
        by_time = settings.match == "time"
        if by_time:
            yield Step("measure", "measure", "")
        for name, candidate in self.candidates.items():
            slug, first = slug_of(name), ("measure",) * by_time
            if candidate.of is not None:
                first += (f"{slug}/pretrain-1",)
                for seed in seeds:
                    yield Step(f"{slug}/pretrain-{seed}", "pretrain", name, self._trial_ids(candidate.of), seed)
            rates, dropouts = self._trial_ids(name, "lr"), self._trial_ids(name, "dropout")
            yield from (Step(key, "trial", name, first, i) for i, key in enumerate(rates))
            yield from (Step(key, "trial", name, rates, i) for i, key in enumerate(dropouts))
            for seed in seeds:
                own = (f"{slug}/pretrain-{seed}",) if candidate.of is not None else ()
                yield Step(f"{slug}/seed-{seed}", "seed", name, rates + dropouts + own, seed)
        if settings.measure and not by_time:
            everything = tuple(f"{slug_of(n)}/seed-{seed}" for n in self.candidates for seed in seeds)
            yield Step("measure", "measure", "", everything)

    def _trial_ids(self, name: str, kind: str = "") -> tuple[str, ...]:
        """Ids of a candidate's trials, learning rates first. kind: "lr" or "dropout" for those alone."""
        num_rates = self.settings.lr_trials * max(1, len(self.candidates[name].optimizers))
        counts = {"lr": num_rates, "dropout": self.settings.dropout_trials}
        return tuple(
            f"{slug_of(name)}/{what}-{i + 1}" for what, n in counts.items() if kind in ("", what) for i in range(n)
        )

    def ready(self, results: Results) -> list[Step]:
        """Steps without a result whose needs all have one, in order."""
        return [s for s in self.steps.values() if s.id not in results and all(need in results for need in s.needs)]

    def values(self, step: Step, results: Results) -> dict[str, Any]:
        """Values by dotted key that a step changes in its candidate's configuration: those that are tried or chosen."""
        candidate = self.candidates[step.candidate]
        if step.kind == "trial" and "/lr-" in step.id:
            return self._learning_rates(candidate, step.number)
        if step.kind == "trial":
            chosen = self._best(candidate.name, results, "lr")
            return chosen | self._dropout(candidate, DROPOUTS[step.number])
        if step.kind == "pretrain":
            assert candidate.of is not None
            return self._best(candidate.of, results)
        return self._best(candidate.name, results)

    def cell(self, step: Step, results: Results) -> Cell:
        """The cell of a step that is ready."""
        if step.kind == "measure":
            configs = {name: c.config for name, c in self.candidates.items() if c.of is None}
            return Cell(step.id, "measure", "", configs)
        candidate, slug = self.candidates[step.candidate], slug_of(step.candidate)
        config, values = copy.deepcopy(candidate.config), self.values(step, results)
        for optimizer in candidate.optimizers:
            if optimizer["type"] == values.get("optimizer.type"):
                config["optimizer"] = copy.deepcopy(optimizer)
        for key, value in values.items():
            _set(config, key, value)
        trainer = config["trainer"]
        trainer["enable_progress_bar"] = False
        num_steps = self._num_steps(candidate, results)
        if num_steps != self.num_steps[candidate.name]:
            trainer["max_steps"], trainer["max_epochs"] = num_steps, None
        initial = f"runs/{slug}/pretrain-{max(step.number, 1)}" if candidate.of is not None else None
        if step.kind == "trial":
            config["seed"] = 1
            trainer["max_steps"] = max(1, round(num_steps * self.settings.trial_share))
            initial = f"runs/{slug}/pretrain-1" if candidate.of is not None else None
            return Cell(step.id, "trial", candidate.name, config, initial)
        config["seed"] = step.number
        if not self.generates and trainer["val_check_interval"] is None:
            trainer["val_check_interval"] = max(1, num_steps // VALIDATIONS)
            trainer["check_val_every_n_epoch"] = None
        folder = f"runs/{step.id}"
        if step.kind == "pretrain":
            assert self.settings.pretrain is not None
            config = pretraining_config(config, self.settings.pretrain)
            return Cell(step.id, "pretrain", candidate.name, config, None, folder)
        flow = step.number == 1
        return Cell(step.id, "seed", candidate.name, config, initial, folder, self.metric, flow)

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

    def _learning_rates(self, candidate: Candidate, number: int) -> dict[str, Any]:
        """A grid around the rates of each optimizer: powers of the grid's ratio, as many below as above."""
        optimizers = candidate.optimizers or [candidate.config["optimizer"]]
        optimizer = optimizers[number // self.settings.lr_trials]
        power = number % self.settings.lr_trials - (self.settings.lr_trials - 1) // 2
        kind = {"optimizer.type": optimizer["type"]} if len(optimizers) > 1 else {}
        return kind | {
            f"optimizer.{key}": float(f"{value_at(optimizer, key) * LR_RATIO**power:.3g}") for key in _rates(optimizer)
        }

    def _dropout(self, candidate: Candidate, value: float) -> dict[str, Any]:
        keys = ["model.dropout", *keys_of(candidate.config["model"]["backbone"], "dropout")]
        return dict.fromkeys(keys, value)

    def _best(self, name: str, results: Results, kind: str = "") -> dict[str, Any]:
        """The values of the trial with the lowest validation loss; empty where every trial failed."""
        sound = [key for key in self._trial_ids(name, kind) if "error" not in results.get(key, {"error": ""})]
        best = min(sound, key=lambda key: (results[key]["metrics"]["loss"], key), default=None)
        return {} if best is None else self.values(self.steps[best], results)


def slug_of(name: str) -> str:
    """The name as a folder: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.=]+", "-", name).strip("-.") or "candidate"


def _rates(optimizer: Mapping[str, Any], path: str = "") -> list[str]:
    """Dotted keys of all learning rates of an optimizer, those of optimizers inside it too."""
    found = [f"{path}lr"] if isinstance(optimizer.get("lr"), int | float) else []
    for key, value in optimizer.items():
        if isinstance(value, Mapping):
            found += _rates(value, f"{path}{key}.")
    return found


def _set(config: dict[str, Any], key: str, value: Any) -> None:
    path, _, last = key.rpartition(".")
    (value_at(config, path) if path else config)[last] = value
