"""The subject of an examination: a recipe's model with its initial weights, and pieces of its data."""

from __future__ import annotations

import copy
import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqkit.config import Config, complete
from seqkit.data.module import DataModule
from seqkit.errors import UsageError
from seqkit.interfaces import LabeledBatch, LossOutput, ModelInput, Objective
from seqkit.model import Model
from seqkit.runs.folder import as_seen_from_here, missing_plugins
from seqkit.runs.prepare import Prepared, prepare
from seqkit.runs.reopened import ALL, check_one, moved, reopened
from seqkit.runs.trained_model import TrainedModel, load_one
from seqkit.training.module import evaluation_rng

log = logging.getLogger("seqkit")

NUM_BATCHES = 40
"""Number of training batches that are examined."""

HANDFUL = 8
"""Number of examples that are overfitted, and on which the laws are checked."""

MAX_BATCH = 256
"""Examples of a batch, at most: a batch that is too large for the memory must not fill it here."""

STEP_FLOPS = 2e10
"""FLOPs of a training step, at most: a third of a second on one core. Batches that cost more get fewer examples."""


@dataclass
class Subject:
    """A model and its data, as a training would begin with them. No check changes `model`.

    config: complete configuration. trained: the model of a finished run. run: the folder of a run, finished or not.
    """

    config: Mapping[str, Any]
    prepared: Prepared
    trained: TrainedModel | None = None
    run: Path | None = None

    @property
    def model(self) -> Model:
        """The model with its initial weights, in training mode."""
        return self.prepared.model

    @property
    def data(self) -> DataModule:
        """The data, in batches of at most MAX_BATCH."""
        return self.prepared.data

    @property
    def objective(self) -> Objective:
        """The fitted objective."""
        return self.data.objective

    def fresh(self) -> Model:
        """A copy of the model with its initial weights."""
        return copy.deepcopy(self.model).train()

    @cached_property
    def batches(self) -> list[LabeledBatch]:
        """The first batches of training, with fewer examples where a step on them would be too much work."""
        loader = self.data.train_dataloader()
        taken = itertools.chain.from_iterable(itertools.repeat(loader))  # epoch after epoch
        return [
            first_examples(batch, int(STEP_FLOPS / self.example_flops(batch)))
            for batch in itertools.islice(taken, NUM_BATCHES)
        ]

    def example_flops(self, batch: LabeledBatch) -> float:
        """FLOPs of a training step on one example: 6 per parameter and token (Kaplan et al. 2020, section 2.1)."""
        return 6.0 * self.model.num_parameters * batch[0].valid.shape[1]

    @cached_property
    def handful(self) -> LabeledBatch:
        """A few examples of the first batch."""
        first = self.batches[0]
        return first_examples(first, min(HANDFUL, int(STEP_FLOPS / 16 / self.example_flops(first))))

    @cached_property
    def inputs(self) -> ModelInput | None:
        """The handful as the objective prepares it; None: it prepares more or other than one input."""
        with torch.no_grad():
            return self.step(self.fresh().eval(), self.handful).inputs

    def step(self, model: nn.Module, batch: LabeledBatch, seed: int = 0) -> LossOutput:
        """The objective's step, with the same random numbers (masked tokens) every time."""
        with evaluation_rng(self.prepared.seed, seed):
            return self.objective.step(model, batch)


def first_examples(batch: LabeledBatch, number: int) -> LabeledBatch:
    """The first examples of a batch, at least one, padded as it is."""
    tokens, label = batch[:2]
    rows = torch.arange(max(1, min(number, len(tokens))))
    if label is not None:
        label = label[rows]
    return tokens.select(rows), label


def subject_of(config: Config, run: Path | None = None) -> Subject:
    """Reads the data and builds the model of a complete configuration. Raises as `seqkit.runs.prepare.prepare`.

    run: run folder of the configuration; if its training is finished, its weights are examined too.
    """
    batch_size = min(config["data"]["batch_size"], MAX_BATCH)
    small = config.changed({"data.batch_size": batch_size, "data.num_workers": 0})
    trained = None
    if run is not None and (run / "summary.json").is_file():
        trained = load_one(run)
        _, doubt = reopened(replace(trained, config=config), ALL, words=("doctor",))
        if doubt:
            log.warning("%s", doubt)
    return Subject(config, prepare(small), trained, run)


def recipe_or_run(
    what: str, preset: str | None, overrides: list[str]
) -> tuple[Config, Path | None]:
    """The complete configuration of a recipe (name or YAML file) or of a run folder, and that folder.

    `--data` alone says where the data of a run is now; with a preset or other keys, its configuration is examined as a
    recipe. Raises UsageError.
    """
    folder = Path(what)
    own = folder / "config.yaml"
    if not own.is_file():
        return complete(what, preset, overrides), None
    key, _, data = "".join(overrides[:1]).partition("=")
    try:
        if len(overrides) == 1 and key == "--data" and preset is None:
            check_one(folder, data)
            return moved(as_seen_from_here(complete(str(own)), folder), folder, data), folder
        config = complete(str(own), preset, overrides)
    except UsageError as error:
        raise UsageError(f"{error}{missing_plugins(folder)}") from error
    if preset or overrides:
        return config, None
    return as_seen_from_here(config, folder), folder
