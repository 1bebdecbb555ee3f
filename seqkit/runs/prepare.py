"""Model and data of a complete configuration, seeded and checked."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from seqkit.config import Built, build, build_model
from seqkit.data.encoding import raised_by
from seqkit.data.module import DataModule
from seqkit.data.source import sample_name
from seqkit.errors import DataError, UsageError, described, is_out_of_memory
from seqkit.interfaces import Objective, Tokenizer
from seqkit.interfaces.tokens import rounding
from seqkit.model import Model
from seqkit.nn.position.absolute import NoPosition
from seqkit.runs.trained_model import load_state
from seqkit.training.trainer import TrainerSettings
from seqkit.training.weights import load_body

log = logging.getLogger("seqkit")

NUM_TRIED = 16
"""Number of examples of a split that are encoded before training."""

UNEVEN = 0.01
"""Difference of steps between positions, as a share of the largest, above which they say more than the order."""

LOOKED_AT = 10_000
"""Characters of a text on which a tokenizer's state is tried."""


@dataclass(frozen=True)
class Prepared:
    """Model and data of a run, before a trainer is made."""

    config: Mapping[str, Any]
    built: Built
    model: Model
    data: DataModule

    @property
    def seed(self) -> int:
        """Seed of the run's random numbers."""
        return int(self.config["seed"])

    def training_module(self, num_steps: int) -> Any:
        """LightningModule for a training of that many optimizer steps."""
        from seqkit.training.module import TrainingModule

        return TrainingModule(
            self.model,
            self.data.objective,
            optimizer=self.built.optimizer,
            schedule=self.built.schedule,
            num_steps=num_steps,
            skip_nonfinite=self.built.trainer["skip_nonfinite"],
            seed=self.seed,
        )


def prepare(config: Mapping[str, Any], initial: Path | None = None, state: Mapping[str, Any] | None = None) -> Prepared:
    """Seed the generators, read the data, build the model.

    initial: run whose embedder and backbone are taken. state: state of tokenizer and objective, as in `state.json`;
    None: they are fitted. Raises DataError or UsageError, each with one line.
    """
    import pytorch_lightning as pl

    seed = config["seed"]
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}; give 0 to {2**32 - 1}")
    pl.seed_everything(seed, verbose=False)
    built = build(config)
    TrainerSettings.of(built.trainer)  # refuses before any data is read
    if state is not None:
        load_state(built, state)
    model, data = _model_and_data(built, seed)
    if initial is not None:
        load_body(model, initial)
    decided = built.data["source"].decided()
    if decided:  # repeated by config.yaml, and not decided again
        section = config["data"]
        config = {**config, "data": {**section, "source": {**section["source"], **decided}}}
    return Prepared(config, built, model, data)


def check_test_examples(data: DataModule) -> None:
    """Encode a few test examples: a fault in all of them is better found before training than after it.

    Raises DataError, which names the example. Windows of text are left out: their splits are read to fit a tokenizer.
    """
    samples = data.splits().test
    for i in range(0, len(samples), max(1, len(samples) // NUM_TRIED)) if data.window is None else ():
        try:
            data.tokenizer.encode(samples[i].raw)
        except DataError as error:
            raise DataError(f"test data, {sample_name(samples, i)}: {error}") from error
        except Exception as error:  # a plug-in's own code: whatever it raises
            if is_out_of_memory(error):
                raise
            raise DataError(f"test data, {sample_name(samples, i)}: {raised_by(data.tokenizer, error)}") from error


def tell_lost_positions(prepared: Prepared) -> None:
    """Log, in a line each, that positions are rounded or that uneven ones are not used, by a few training examples.

    A recurrent backbone gets no positions where they have one axis, which is right where they count the tokens. Nothing
    is said where the configuration names an encoding, even one that adds none.
    """
    data, model = prepared.data, prepared.model
    embedder, backbone = model.embedder, model.backbone
    if model.source_embedder is not None:
        embedder, encoder = model.source_embedder, model.backbone.get_encoder()
        backbone = model.backbone if encoder is None else encoder
    open_to_choice = prepared.config["model"]["position"] is None and not backbone.ignores_order
    open_to_choice = open_to_choice and not backbone.uses_positions
    samples = data.splits().train
    said: dict[str, str] = {}
    for i in range(0, len(samples), max(1, len(samples) // NUM_TRIED)) if data.window is None else ():
        try:
            tokens = data.tokenizer.encode(samples[i].raw)
        except Exception:  # noqa: S112  the loader names the example
            continue
        for part, run in tokens.parts or ((None, tokens),):
            name, positions = sample_name(samples, i) + (f", part {part}" if part else ""), run.positions
            if rounded := rounding(positions):
                said.setdefault("rounded", f"training data, {name}: {rounded}")
            steps = positions[:, 0].diff() if positions.shape[1] == 1 else positions[:0, 0:0]
            is_unused = open_to_choice and isinstance(embedder.part(part).position, NoPosition) and steps.numel() > 0
            if is_unused and float(steps.max() - steps.min()) > UNEVEN * float(steps.abs().max()):
                said.setdefault(
                    "unused",
                    f"training data, {name}: positions grow by {float(steps.min()):g} to {float(steps.max()):g}, and "
                    f"{type(backbone).__name__} uses the order of the tokens alone; add positions by --model.position "
                    "Sinusoidal, or say that they do not matter: --model.position NoPosition",
                )
    for line in said.values():
        log.warning("%s", line)


def saved_state(prepared: Prepared) -> dict[str, Any]:
    """State of tokenizer and objective, proven to come back through JSON.

    Raises UsageError if a fresh tokenizer with that state has another spec, or encodes the first training example to
    other tokens: its run could be trained, and not be used.
    """
    tokenizer, objective = prepared.data.tokenizer, prepared.data.objective
    state = {"tokenizer": tokenizer.state(), "objective": objective.state()}
    name = type(tokenizer).__name__
    advice = "its state() must hold all that fit() learned, as plain data, and load_state() must take it back"
    try:
        text = json.dumps(state)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the state of {name} is no plain data ({described(error)}); {advice}") from error
    raw = prepared.data.splits().train[0].raw
    raw = raw[:LOOKED_AT] if isinstance(raw, str) else raw
    try:
        ours = tokenizer.encode(raw)
    except DataError:
        return state  # the loaders name the example
    with torch.random.fork_rng(devices=[]):
        fresh = build(prepared.config)
    try:
        fresh.tokenizer.load_state(json.loads(text)["tokenizer"])
        if replace(fresh.tokenizer.spec, embedder=None) != replace(tokenizer.spec, embedder=None):
            raise UsageError(f"{name} that gets its state back has another spec; {advice}")
        theirs = fresh.tokenizer.encode(raw)
    except UsageError:
        raise
    except Exception as error:  # the user's own code: whatever it raises
        raise UsageError(f"{name} does not take its own state back ({described(error)}); {advice}") from error
    if not ours.equals(theirs):
        raise UsageError(f"{name} that gets its state back encodes the first example to other tokens; {advice}")
    return state


def untrained(config: Mapping[str, Any]) -> tuple[Model, DataModule]:
    """Model of a complete configuration with its initial weights, and its data, set up. Raises as `prepare`."""
    return _model_and_data(build(config), config["seed"])


def data_module(config: Mapping[str, Any], tokenizer: Tokenizer, objective: Objective) -> DataModule:
    """Data of a complete configuration for a fitted tokenizer and objective, set up. Raises as `prepare`."""
    return _data(build(config), tokenizer, objective, config["seed"])


def _model_and_data(built: Built, seed: int) -> tuple[Model, DataModule]:
    data = _data(built, built.tokenizer, built.model["objective"], seed)
    model = build_model(built, built.tokenizer.spec)
    try:
        data.check_supported(model.backbone)
    except ValueError as error:
        raise UsageError(f"data: {error}") from error
    return model, data


def _data(built: Built, tokenizer: Tokenizer, objective: Objective, seed: int) -> DataModule:
    try:
        data = DataModule(**built.data, tokenizer=tokenizer, objective=objective, seed=seed)
    except DataError:
        raise
    except ValueError as error:
        raise UsageError(f"data: {error}") from error
    data.setup()
    return data
