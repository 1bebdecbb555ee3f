"""The subject of an examination: a recipe's model with its initial weights, pieces of its data, its training plan."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqkit.config import complete
from seqkit.data.module import DataModule
from seqkit.errors import UsageError
from seqkit.interfaces import LabeledBatch, LossOutput, ModelInput, Objective, TokenSpec
from seqkit.model import Model
from seqkit.runs.prepare import Prepared, prepare
from seqkit.runs.trained_model import TrainedModel, load_one
from seqkit.training.module import evaluation_rng
from seqkit.training.trainer import count_steps

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

    config: complete configuration. batch_size, num_steps: size of a batch and number of steps of the planned training.
    lengths: number of tokens of every training example. trained: the model of a finished run. run: the folder of a run,
    finished or not.
    """

    config: Mapping[str, Any]
    prepared: Prepared
    batch_size: int
    num_steps: int
    lengths: list[int]
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

    @property
    def seed(self) -> int:
        """Seed of the recipe."""
        return int(self.config["seed"])

    @property
    def content_spec(self) -> TokenSpec:
        """Spec of the tokens that the tokenizer makes: in an encoder–decoder, of the source."""
        embedder = self.model.source_embedder or self.model.embedder
        return embedder.spec

    def fresh(self) -> Model:
        """A copy of the model with its initial weights."""
        return copy.deepcopy(self.model).train()

    def flops(self, batch: LabeledBatch) -> float:
        """FLOPs of a training step on a batch: 6 per parameter and token (Kaplan et al. 2020, section 2.1)."""
        called, _ = self.objective.first_call(self.model, batch)
        source = called.source
        num_tokens = called.valid.numel() + (0 if source is None else source.valid.numel())
        return 6.0 * self.model.num_parameters * num_tokens

    @cached_property
    def batches(self) -> list[LabeledBatch]:
        """The first batches of training, with fewer examples where a step on them would be too much work."""
        return [self.first_batch, *itertools.islice(self._batches_in_turn, NUM_BATCHES - 1)]

    @cached_property
    def first_batch(self) -> LabeledBatch:
        """The first of `batches`, which alone is read where no other is needed."""
        return next(self._batches_in_turn)

    @cached_property
    def _batches_in_turn(self) -> Iterator[LabeledBatch]:
        loader = self.data.train_dataloader()
        taken = itertools.chain.from_iterable(itertools.repeat(loader))  # epoch after epoch
        return (first_examples(batch, self._affordable(batch, STEP_FLOPS)) for batch in taken)

    def _affordable(self, batch: LabeledBatch, flops: float) -> int:
        """Number of examples of a batch, at least one, on which a step costs at most that many FLOPs."""
        each = 6.0 * self.model.num_parameters * batch[0].valid.shape[1]
        return max(1, min(len(batch[0]), int(flops / each)))

    @cached_property
    def handful(self) -> LabeledBatch:
        """A few examples of the first batch."""
        number = min(HANDFUL, self._affordable(self.first_batch, STEP_FLOPS / 16))
        return first_examples(self.first_batch, number)

    @cached_property
    def inputs(self) -> ModelInput | None:
        """The handful as the objective prepares it; None: it prepares more or other than one input."""
        with torch.no_grad():
            return self.step(self.fresh().eval(), self.handful).inputs

    def step(self, model: nn.Module, batch: LabeledBatch, seed: int = 0, *, training: bool = False) -> LossOutput:
        """The objective's step, with the same random numbers (masked tokens, dropout) every time."""
        with evaluation_rng(self.seed, seed):
            return self.objective.step(model, batch, training=training)


def first_examples(batch: LabeledBatch, number: int) -> LabeledBatch:
    """The first examples of a batch, padded as it is."""
    tokens, label = batch
    if number >= len(tokens):
        return batch
    rows = torch.arange(number)
    return tokens.select(rows), None if label is None else label[rows]


def subject_of(config: Mapping[str, Any], run: Path | None = None) -> Subject:
    """Reads the data and builds the model of a complete configuration. Raises as `seqkit.runs.prepare.prepare`.

    run: run folder of the configuration; if its training is finished, its weights are examined too.
    """
    batch_size = config["data"]["batch_size"]
    small = {**config, "data": {**config["data"], "batch_size": min(batch_size, MAX_BATCH), "num_workers": 0}}
    prepared = prepare(small)
    loader = prepared.data.train_dataloader()
    num_batches = len(loader) if batch_size <= MAX_BATCH else -(-len(loader.examples) // batch_size)
    num_steps = count_steps(prepared.built.trainer, num_batches)
    trained = load_one(run) if run is not None and (run / "summary.json").is_file() else None
    lengths = list(loader.examples.lengths)
    return Subject(config, prepared, batch_size, num_steps, lengths, trained, run)


def recipe_or_run(what: str, preset: str | None, overrides: list[str]) -> tuple[dict[str, Any], Path | None]:
    """The complete configuration of a recipe (name or YAML file) or of a run folder, and that folder.

    Raises UsageError.
    """
    folder = Path(what)
    if not (folder / "config.yaml").is_file():
        return complete(what, preset, overrides), None
    if preset or overrides:
        raise UsageError(
            f"{what} is a run, whose keys are fixed; to try others, give its configuration: "
            f"seqkit doctor {folder / 'config.yaml'} {' '.join(overrides)}"
        )
    return complete(str(folder / "config.yaml")), folder
