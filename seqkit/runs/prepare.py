"""Model and data of a complete configuration, seeded and checked."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from seqkit.config import Built, Config, build, build_model
from seqkit.config.mixture import task_configs
from seqkit.data.encoding import raised_by
from seqkit.data.mixture import MixtureData
from seqkit.data.module import DataModule
from seqkit.errors import DataError, UsageError, described, is_out_of_memory
from seqkit.files import MAX_JSON_BYTES
from seqkit.interfaces import Objective, Tokenizer
from seqkit.mixture import Mixture
from seqkit.model import Model
from seqkit.objectives.metric import primary_metric
from seqkit.runs.folder import STATE
from seqkit.runs.initial_weights import InitialWeights
from seqkit.runs.summary import Initial, checked
from seqkit.runs.trained_model import load_state
from seqkit.training.trainer import SHARDED, TrainerSettings, resolved_precision

if TYPE_CHECKING:
    from seqkit.data.tables.read import Tables
    from seqkit.training.module import Task

log = logging.getLogger("seqkit")

NUM_TRIED = 16
"""Number of examples of a split that are encoded before training."""

LOOKED_AT = 10_000
"""Characters of a text on which a tokenizer's state is tried."""


@dataclass(frozen=True)
class Prepared:
    """Model and data of a run, before a trainer is made.

    tasks: of a mixture, each task as a run of its own; model is then a `Mixture`, and data a `MixtureData`. Otherwise
    it is empty, model a `Model`, and data a `DataModule`. initial: where weights and vocabulary come from, as
    `InitialWeights` gives it; None: they are its own.
    """

    config: Config
    built: Built
    model: Any
    data: Any
    tasks: Mapping[str, Prepared] = field(default_factory=dict)
    initial: Initial | None = None

    @property
    def seed(self) -> int:
        """Seed of the run's random numbers."""
        return int(self.config["seed"])

    def objectives(self) -> dict[str, Task]:
        """Model and objective of each task, by what the names of its metrics begin with."""
        from seqkit.training.module import Task

        if not self.tasks:
            return {"": Task(self.model, self.data.objective)}
        return {
            f"{name}/": Task(task.model, task.data.objective) for name, task in self.tasks.items()
        }

    def training_module(self, num_steps: int, constants: Mapping[str, float] | None = None) -> Any:
        """LightningModule for a training of that many optimizer steps. constants: as of `TrainingModule`."""
        from seqkit.training.module import TrainingModule

        objectives = {name: task.data.objective for name, task in self.tasks.items()}
        optimizers = {name: task.built.optimizer for name, task in self.tasks.items()}
        return TrainingModule(
            self.model,
            objectives or self.data.objective,
            constants=constants,
            optimizer=optimizers
            if self.config.get("moments") == "by_task"
            else self.built.optimizer,
            schedule=self.built.schedule,
            num_steps=num_steps,
            skip_nonfinite=self.built.trainer["skip_nonfinite"],
            seed=self.seed,
        )


def prepare(
    config: Config, state: Mapping[str, Any] | None = None, tables: Tables | None = None
) -> Prepared:
    """Seed the generators, read the data, build the model.

    state: state of tokenizer and objective, as in `state.json`, of a run that goes on: its weights are in its
    checkpoints; None: they are fitted. tables: as of `build`. Raises DataError or UsageError, each with one line.
    """
    import pytorch_lightning as pl

    seed = config["seed"]
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}; give 0 to {2**32 - 1}")
    pl.seed_everything(seed, verbose=False)
    if "tasks" in config:
        return _mixture(config, state)
    built = build(config, tables)
    TrainerSettings.of(built.trainer)  # both refuse before any data is read
    built.model["objective"].check_trainable()
    if state is None:
        model, data, origin = _begun(config, built)
    else:
        load_state(built, state)
        model, data = _model_and_data(built, seed)
        initial = state.get("initial")
        origin = None if initial is None else checked(Initial, initial, Path(STATE))
    return Prepared(_with_decided(config, built), built, model, data, initial=origin)


def _begun(config: Config, built: Built) -> tuple[Model, DataModule, Initial | None]:
    """Model and data of a training that begins, and where its weights come from; None: they are random."""
    if built.init is None:
        return *_model_and_data(built, config["seed"]), None
    weights = InitialWeights(built.init, config)
    weights.give_vocabulary(built.tokenizer)
    model, data = _model_and_data(built, config["seed"])
    return model, data, weights.load_into(model, data.objective)


def _with_decided(config: Config, built: Built) -> Config:
    """The configuration with what its data source and `auto` decided, which config.yaml repeats."""
    of_source = _of_source(built)
    return _with_precision(config.deciding({**of_source, "tokenizer": built.tokenizer_section}))


def _of_source(built: Built, prefix: str = "") -> dict[str, Any]:
    """Values that a data source decided, by dotted key."""
    decided = built.data["source"].decided()
    return {f"{prefix}data.source.{name}": value for name, value in decided.items()}


def _with_precision(config: Config) -> Config:
    trainer = config["trainer"]
    precision = resolved_precision(trainer["precision"], trainer["accelerator"])
    return config.deciding({"trainer.precision": precision})


def _mixture(config: Config, state: Mapping[str, Any] | None) -> Prepared:
    """A mixture: each task is prepared in turn as a run of its own would be, but for the backbone, which is one."""
    tasks: dict[str, Prepared] = {}
    decided: dict[str, Any] = {}
    for name, own in task_configs(config).items():
        if hasattr(torch.nn.ModuleDict(), name):
            raise UsageError(
                f"the task {name!r} has a name that no module can have; give it another, such as my_{name}"
            )
        try:
            built = build(own)
            if built.init is not None:
                raise UsageError("model.init: a mixture begins with random weights; leave it out")
            built.model["objective"].check_trainable()
            if tasks:
                backbone = next(iter(tasks.values())).built.model["backbone"]
                built = built._replace(model={**built.model, "backbone": backbone})
            else:
                _check_trainer(built, config["moments"])
            if state is not None:
                load_state(built, state, name)
            model, data = _model_and_data(built, config["seed"])
        except (UsageError, DataError) as error:
            raise type(error)(f"tasks.{name}: {error}") from error
        tasks[name] = Prepared(_with_decided(own, built), built, model, data)
        decided |= _of_source(built, f"tasks.{name}.")
    models = {name: task.model for name, task in tasks.items()}
    shared = built._replace(tokenizer=None, model={}, data={})
    together = MixtureData(
        {name: task.data for name, task in tasks.items()},
        config["sampling"],
        seed=config["seed"],
        accumulate=built.trainer["accumulate_grad_batches"],
    )
    mixture = Mixture(built.model["backbone"], models)
    return Prepared(_with_precision(config.deciding(decided)), shared, mixture, together, tasks)


def _check_trainer(built: Built, moments: str) -> None:
    """Raise UsageError for a trainer that a mixture has no proof for."""
    settings = TrainerSettings.of(built.trainer)
    if settings.strategy == SHARDED:
        raise UsageError(f"trainer.strategy {SHARDED} shards one model, and a mixture has several")
    if settings.precision == "16-mixed" and moments == "by_task":
        raise UsageError(
            "float16 scales gradients, which an optimizer for each task would undo more than once; give "
            "--trainer.precision bf16-mixed"
        )


def alone(task: Prepared) -> Model:
    """Model of a mixture's task as its own configuration describes it, with the weights that it has in the mixture.

    The shared backbone may have weights for other tasks, such as biases of edges.
    """
    with torch.random.fork_rng(devices=[]):
        backbone = build(task.config).model["backbone"]
        model = build_model(
            task.built._replace(model={**task.built.model, "backbone": backbone}), task.model.spec
        )
    names = model.state_dict().keys()
    weights = task.model.state_dict()
    model.load_state_dict({name: weights[name] for name in names})
    return model


def check_examples(prepared: Prepared) -> None:
    """Encode a few test examples of each task: a fault in all of them is better found before training than after it.

    What was said of the data goes into the log, which had no file then. Raises DataError, which names the example.
    Windows of text are left out: their splits are read to fit a tokenizer.
    """
    for data in [task.data for task in prepared.tasks.values()] or [prepared.data]:
        for line in data.notes.lines:
            log.info("%s", line)
        samples = data.splits().test
        for i in (
            range(0, len(samples), max(1, len(samples) // NUM_TRIED)) if data.window is None else ()
        ):
            try:
                data.tokenizer.encode(samples[i].raw)
            except Exception as error:  # a plug-in's own code: whatever it raises
                if is_out_of_memory(error):
                    raise
                fault = str(error)
                if not isinstance(error, DataError):
                    fault = raised_by(data.tokenizer, error)
                raise DataError(f"test data, {samples.name(i)}: {fault}") from error


def saved_state(prepared: Prepared) -> dict[str, Any]:
    """State of tokenizer and objective, or of those of each task, proven to come back through JSON.

    Raises UsageError if a fresh tokenizer with that state encodes the first training example to other tokens, or if the
    state is larger than what is read back: its run could be trained, and not be used.
    """
    if prepared.tasks:
        return {"tasks": {name: saved_state(task) for name, task in prepared.tasks.items()}}
    tokenizer = prepared.data.tokenizer
    objective = prepared.data.objective
    state = {"tokenizer": tokenizer.state(), "objective": objective.state()}
    if prepared.initial is not None:
        state["initial"] = prepared.initial.written
    raw = prepared.data.splits().train[0].raw
    raw = raw[:LOOKED_AT] if isinstance(raw, str) else raw
    try:
        ours = tokenizer.encode(raw)
    except DataError:
        return state  # the loaders name the example
    try:
        text = json.dumps(state)
        if len(text) > MAX_JSON_BYTES:
            raise ValueError(
                f"{len(text):,} characters, and {MAX_JSON_BYTES:,} are read back at most"
            )
        with torch.random.fork_rng(devices=[]):
            fresh = build(prepared.config).tokenizer
        fresh.load_state(json.loads(text)["tokenizer"])
        if replace(fresh.spec, embedder=None) != replace(tokenizer.spec, embedder=None):
            raise ValueError("its spec is another")
        if not ours.equals(fresh.encode(raw)):
            raise ValueError("it gives other tokens")
    except Exception as error:  # the user's own code: whatever it raises
        raise UsageError(
            f"the state of {type(tokenizer).__name__} does not come back ({described(error)}); its state() must hold "
            "all that fit() learned, as plain data, and load_state() must take it back"
        ) from error
    return state


def untrained(config: Config) -> tuple[Model, DataModule]:
    """Model of a complete configuration with its initial weights, and its data, set up. Raises as `prepare`."""
    model, data, _ = _begun(config, build(config))
    return model, data


def data_module(config: Config, tokenizer: Tokenizer, objective: Objective) -> DataModule:
    """Data of a complete configuration for a fitted tokenizer and objective, set up. Raises as `prepare`."""
    return _data(build(config), tokenizer, objective, config["seed"])


def _model_and_data(built: Built, seed: int) -> tuple[Model, DataModule]:
    data = _data(built, built.tokenizer, built.model["objective"], seed)
    model = build_model(built, built.tokenizer.spec)
    try:
        data.check_supported(model.backbone)
    except ValueError as error:
        raise UsageError(f"data: {error}") from error
    primary_metric(data.objective, model.spec)  # refused before training if it is not measured
    return model, data


def _data(built: Built, tokenizer: Tokenizer, objective: Objective, seed: int) -> DataModule:
    try:
        data = DataModule(**built.data, tokenizer=tokenizer, objective=objective, seed=seed)
    except DataError:
        raise
    except ValueError as error:
        keys = {*built.data, *vars(built.data["loading"]), *vars(built.data["selection"])}
        is_of_key = str(error).partition(" ")[0] in keys
        raise UsageError(f"data.{error}" if is_of_key else f"data: {error}") from error
    data.setup()
    return data
