"""Run of a complete configuration: trains it, tests it, and fills a folder.

config.yaml  state.json  metrics.csv  checkpoints/  summary.json  log.txt  (report.html: seqkit.report)
checkpoints/ holds points to resume from, the best weights and, once trained, model.safetensors: the run's weights.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from seqkit.config import Config, complete, to_yaml
from seqkit.config.recipe import check_name
from seqkit.data.module import DataModule
from seqkit.errors import DataError, DivergedError, StorageError, UsageError
from seqkit.files import read_mapping, write_atomic, write_json
from seqkit.interfaces.finite import flawed_weight
from seqkit.model import Model
from seqkit.pretrained.folder import keep_files, located
from seqkit.registry.commands import command
from seqkit.runs.calibration import calibrate
from seqkit.runs.evaluate import Scorer, evaluate_model, finish
from seqkit.runs.folder import (
    CONFIG,
    DIGESTED,
    GIVEN,
    STATE,
    as_seen_from_here,
    beside_learned,
    changed_plugins,
    check_new,
    check_no_links,
    digests,
    half_done,
    is_unfinished,
    logging_to,
    missing_plugins,
    opened,
)
from seqkit.runs.initial_weights import told
from seqkit.runs.joined import Joined, saved
from seqkit.runs.joining import join
from seqkit.runs.launcher import rank, telling_of_lost_processes
from seqkit.runs.mixture import constants, evaluate_run, finish_tasks
from seqkit.runs.prepare import Prepared, check_examples, prepare, saved_state
from seqkit.runs.reopened import check_data
from seqkit.runs.setup import RunSetup, begin_fine_tuning, end_fine_tuning
from seqkit.runs.summary import JoinedMethod, Summary, read_summary, reasons_of_trial, state
from seqkit.runs.trained_files import write_summary, write_tasks
from seqkit.training import metrics_csv
from seqkit.training.checkpoint_files import (
    FOLDER,
    Checkpoint,
    checkpoints,
    has_written,
    newest_good,
    remove_all,
)
from seqkit.training.checkpoint_io import read_checkpoint
from seqkit.training.interrupt import StopSignals
from seqkit.training.loggers import log_settings
from seqkit.training.recompute import activation_checkpointing
from seqkit.training.trainer import SHARDED, count_steps, silence_lightning, train

if TYPE_CHECKING:
    from seqkit.data.tables.read import Tables

log = logging.getLogger("seqkit")


Point = tuple[Checkpoint, dict[str, Any]]
"""A checkpoint, and the facts that a run is checked against."""


class Resumed(NamedTuple):
    """Where an unfinished run goes on. point: its newest good checkpoint; None: it has none, and begins anew."""

    point: Point | None


def run(
    config: Config,
    folder: Path,
    *,
    examine: Callable[[Model, DataModule], object] | None = None,
    scorer: Scorer | None = None,
    resume: Resumed | None = None,
    tables: Tables | None = None,
    broken: Sequence[str] | None = None,
) -> Summary | None:
    """Train what a complete configuration describes, test it, and fill `folder`, which holds no run yet.

    examine: looks at the tested model and its data. scorer: as of `finish`. resume:
    where the unfinished run of this configuration in `folder` goes on; None: there is none. tables: has read the user's
    table already; None: it has not. broken: sentences on the laws that the model is known to break; None: it is
    examined first.
    Returns the summary; None on all processes of a distributed run but the first. A run that a signal stops
    writes a checkpoint and raises Interrupted. One that fails before the first optimizer step leaves no folder behind.
    Raises DataError, UsageError (a component refused), StorageError or DivergedError, each with one line.
    """
    is_first = rank() == 0
    check_name(str(config["recipe"]))  # which logs and paths hold
    if resume is None and is_first:
        check_new(folder)
    point = None if resume is None else resume.point
    signals = StopSignals()
    with signals.installed(), silence_lightning():
        state_of_run = None if point is None else read_mapping(folder / STATE)
        prepared = prepare(config, state_of_run, tables)
        attempt = Attempt(prepared, folder, signals)
        if not is_first:
            with telling_of_lost_processes(folder):
                attempt.examine(broken)
                attempt.fit(point)
            return None
        with opened(folder, lambda: resume is not None or attempt.has_stepped):
            if resume is not None:
                is_as_before = is_unfinished(folder)
            else:
                is_as_before = not (folder / CONFIG).is_file()
            if not is_as_before or (point is None and has_written(folder / FOLDER)):
                check_new(folder)  # another process has worked there since the first look
            if point is None:
                _begin(folder, prepared)
            with logging_to(folder / "log.txt"):
                check_examples(prepared)
                attempt.examine(broken)
                if prepared.initial is not None and point is None:
                    log.warning("%s", told(prepared.initial))
                with telling_of_lost_processes(folder):
                    summary = attempt.fit(point)
                prepared = attempt.prepared
                if signals.received is not None:
                    raise signals.interrupted(
                        f"trained, and not tested; finish it with: {command('evaluate', folder)}"
                    )
                signals.phase = "testing"
                signals.next_step = (
                    f"; the run is trained, finish it with: {command('evaluate', folder)}"
                )
                assert summary is not None  # as on every first process
                if prepared.tasks:
                    return finish_tasks(folder, prepared, scorer, attempt.loggers)
                summary = finish(
                    folder,
                    summary,
                    prepared.model,
                    prepared.data,
                    prepared.config,
                    scorer,
                    loggers=attempt.loggers,
                )
                if examine is not None:
                    examine(prepared.model, prepared.data)
                return summary


def _begin(folder: Path, prepared: Prepared) -> None:
    """Write what a run keeps from its beginning on: its configuration, what was learned from the data, its source."""
    (folder / metrics_csv.NAME).unlink(missing_ok=True)
    remove_all(folder / FOLDER)
    config = prepared.config
    beside = beside_learned(folder, config) | {GIVEN: config.left_open}
    write_json(folder / STATE, saved_state(prepared) | beside)
    # the last of what resuming needs: a run without it has not begun
    write_atomic(folder / CONFIG, to_yaml(config).encode())
    if prepared.initial is not None:
        keep_files(located(prepared.initial.run), folder)


def resume_run(
    folder: Path,
    changes: Mapping[str, Any],
    scorer: Scorer | None = None,
) -> Summary | None:
    """Resume an unfinished run.

    changes: values by dotted key that do not change what is learned.
    Returns the summary. Raises UsageError if there is nothing to resume, else as `run`.
    """
    if not is_unfinished(folder):
        untested = f"is trained; test it: {command('evaluate', folder)}"
        what = {"unfinished": f"is no run: it has no {CONFIG}", "trained": untested}
        raise UsageError(
            f"{folder} {what.get(state(folder), 'is finished, so there is nothing to resume')}"
        )
    check_no_links(folder)
    resumed = Resumed(_newest(folder))
    # a mistyped key is answered with the nearest
    try:
        config = complete(folder / CONFIG, None, dict(changes), may_mix=True)
    except UsageError as error:
        raise UsageError(f"{error}{missing_plugins(folder)}") from error
    if others := [f"--{key}" for key in changes if key not in MAY_CHANGE]:
        raise UsageError(
            f"{others[0]} would change what a run learns, so it cannot be resumed with it; "
            f"these may change: {', '.join(MAY_CHANGE)}"
        )
    # killed between the two, by an earlier version: nothing is lost
    if not (folder / STATE).is_file() and not has_written(folder / FOLDER):
        return run(config, folder, scorer=scorer, resume=resumed)
    if changed := changed_plugins(folder, config):
        raise DataError(
            f"the plug-in {', '.join(changed)} has changed since {folder} began (its SHA-256 differs); "
            "bring the old one back, or train a new run"
        )
    seen = as_seen_from_here(_as_given(config, folder), folder)
    return run(seen, folder, scorer=scorer, resume=resumed)


MAY_CHANGE = (
    "classical", "trainer.skip_nonfinite", "trainer.allow_broken_laws", "trainer.checkpoint_every_minutes",
    "trainer.checkpoint_every_n_steps", "trainer.checkpoint_keep", "trainer.enable_progress_bar", "data.num_workers",
)  # fmt: skip
"""Keys that may change when a run is resumed."""


def train_or_resume(
    config: Config,
    folder: Path,
    scorer: Scorer | None = None,
    tables: Tables | None = None,
) -> Summary | None:
    """Summary of the run of this configuration in `folder`, whatever is there: a finished run is read, one that was not
    tested is tested, an unfinished one goes on, and in an empty folder one is trained.

    Raises UsageError where the folder holds another run, else as `run`.
    """
    if not (folder / CONFIG).is_file():
        return run(config, folder, scorer=scorer, tables=tables)
    if not _is_same(config, folder):
        raise UsageError(f"{folder} holds a run of another configuration; give another --out")
    if is_unfinished(folder):
        return resume_run(folder, {}, scorer)
    if rank() > 0:
        return None
    if state(folder) == "trained":
        evaluate_run(folder, "test", scorer)
    elif half_done(folder):
        with opened(folder, lambda: True):
            pass
    return read_summary(folder)


def _as_given(written: Config, folder: Path) -> Config:
    """The configuration in a run's folder as it was given. written: what its file says, complete."""
    try:
        return written.of_open(read_mapping(folder / STATE).get(GIVEN, {}))
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{folder / STATE} is damaged: {GIVEN} does not fit {CONFIG}; copy it again or train again"
        ) from error


def _is_same(config: Config, folder: Path) -> bool:
    """Whether what was given for the run in a folder is this configuration."""
    written = complete(folder / CONFIG, may_mix=True)
    if (folder / STATE).is_file() and GIVEN in read_mapping(folder / STATE):
        return config.given == _as_given(written, folder).given
    return _may_be_same(config, written)


def _may_be_same(given: Any, written: Any, *, of_source: bool = False) -> bool:
    """Whether a run of an earlier version, which does not say what was given, may be of this configuration."""
    if isinstance(given, Mapping) and isinstance(written, Mapping):
        return given.keys() == written.keys() and all(
            _may_be_same(given[key], written[key], of_source=of_source or key == "source")
            for key in given
        )
    return bool(given == written) or (of_source and given is None) or given == "auto"


def trial(config: Config, broken: Sequence[str] | None = None) -> Summary:
    """Train as `run` does, but keep nothing but the summary, with metrics on the validation split; none is tested.

    broken: as of `run`. Raises as `run` and `evaluate_model`.
    """
    if "tasks" in config:
        raise UsageError(
            f"{config['recipe']} trains several tasks; give one of them, such as {config['recipe']}/NAME"
        )
    quiet = {"trainer.enable_progress_bar": False, "trainer.logger": None}
    prepared = prepare(config.changed(quiet))
    if prepared.built.trainer["strategy"] == SHARDED:
        raise UsageError(
            f"trials run without sharded weights; give --trainer.strategy auto in place of {SHARDED}"
        )
    if not prepared.data.val_dataloader():
        raise UsageError(
            "the data has no validation split to tune on; give --data.valid_fraction 0.1"
        )
    with silence_lightning(), TemporaryDirectory() as place:
        _begin(Path(place), prepared)
        attempt = Attempt(prepared, Path(place), StopSignals())
        attempt.examine(broken)
        summary = attempt.fit()
        assert summary is not None  # a trial is one process
        metrics = evaluate_model(attempt.prepared.model, prepared.data, prepared.config, "valid")
    return summary.changed(metrics=metrics)


class Attempt:
    """One training of a run, from its beginning or a checkpoint: loaders, trainer, weights and summary."""

    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        signals: StopSignals,
    ):
        self.prepared = prepared
        self.folder = folder
        self.signals = signals
        self.has_stepped = False
        self.seconds = 0.0
        self.loggers: list[Any] = []
        self.broken: list[str] = []

    def examine(self, broken: Sequence[str] | None = None) -> None:
        """Look for laws that the model breaks, unless they are known, and log them. Raises UsageError unless the
        trainer's settings allow them."""
        from seqkit.runs.examined.model import examined

        self.broken = examined(self.prepared) if broken is None else list(broken)
        for line in self.broken:
            log.warning("%s; it trains all the same, and is compared with nothing", line)

    def _examine_again(self) -> None:
        """Look for laws that the trained model breaks, where it broke none before, and log them."""
        from seqkit.runs.examined.model import grown

        if not self.broken:
            self.broken = grown(self.prepared)
            for line in self.broken:
                log.warning("%s; the run is compared with nothing", line)

    def fit(self, point: tuple[Checkpoint, Mapping[str, Any]] | None = None) -> Summary | None:
        """Train, and write weights and a summary. Every process of a distributed run is here; the first one gets it.

        point: checkpoint to go on from, and its facts.
        """
        from seqkit.training.callbacks import EMA
        from seqkit.training.compiled import compile_loss
        from seqkit.training.parallel import check_sharding

        prepared = self.prepared
        folder = self.folder
        signals = self.signals
        settings = prepared.built.trainer
        train_loader = prepared.data.train_dataloader()
        valid_loader: Any = prepared.data.val_dataloader() or None
        setup = RunSetup(prepared, folder, signals)
        trainer = setup.trainer(valid_loader is not None)
        is_first = trainer.is_global_zero
        self.loggers = setup.loggers
        num_steps = count_steps(settings, len(train_loader), trainer.world_size)
        if settings["min_steps"] is not None:  # max_epochs would end the training before them
            trainer.fit_loop.max_epochs = -1
            trainer.fit_loop.epoch_loop.max_steps = num_steps
        if num_steps < settings["max_steps"]:
            ends = (
                f"max_epochs {settings['max_epochs']} end after {num_steps} steps, before max_steps"
            )
            log.warning("%s; for all of them, add --trainer.max_epochs -1", ends)
        for callback in settings["callbacks"] or ():
            if isinstance(callback, EMA):
                callback.check_steps(num_steps)
        _check_batches(valid_loader, trainer.world_size)
        recipe = prepared.config["recipe"]
        parameters = f"{prepared.model.num_parameters:,}"
        log.info("recipe %s, %s parameters, seed %d", recipe, parameters, prepared.seed)
        if settings["precision"] == "auto" and trainer.strategy.root_device.type == "cuda":
            log.info(
                "precision %s, as this GPU computes it fastest; --trainer.precision says otherwise",
                trainer.precision,
            )
        begin_fine_tuning(settings, prepared.model, prepared.initial)
        compares = setup.best is not None and len(prepared.tasks) > 1
        module = prepared.training_module(num_steps, constants(prepared) if compares else None)
        if point is not None:
            self._check_same(point[1], module.num_steps, trainer.world_size)
            log.info("resuming after step %d of %d", point[0].step, num_steps)
            if is_first:
                metrics_csv.cut(folder / metrics_csv.NAME, point[1]["num_rows"])
        module.stop_requested = lambda: signals.received is not None
        if settings["strategy"] == SHARDED:
            validates = valid_loader is not None and settings["limit_val_batches"] != 0
            generates = validates and bool(prepared.data.objective.generation_metrics())
            check_sharding(prepared.model, prepared.built.optimizer, settings, generates=generates)
        compile_loss(
            module, train_loader, settings, uses_cuda=trainer.strategy.root_device.type == "cuda"
        )
        if is_first:
            (folder / FOLDER).mkdir(parents=True, exist_ok=True)
            if point is None:
                log_settings(self.loggers, prepared.config)
        signals.phase = "training"
        signals.deferred = True
        started = time.perf_counter()
        try:
            with activation_checkpointing(
                prepared.model, enabled=settings["activation_checkpointing"]
            ):
                train(
                    trainer, module, train_loader, valid_loader, checkpoint=point and point[0].path
                )
        finally:
            self.has_stepped = trainer.global_step > 0
            self.seconds = time.perf_counter() - started + setup.facts.seconds_before
        tokens_seen = module.tokens_by_task()
        self.prepared = replace(prepared, model=module.gather_model())
        _leave_process_group()
        if not is_first:
            return None
        weights = setup.use_best_weights(self.prepared.model)
        if broken := flawed_weight(self.prepared.model.state_dict()):
            raise DivergedError(
                f"{broken} after step {trainer.global_step}, the last; lower the learning rate"
            )
        self._examine_again()
        temperature = calibrate(self.prepared)
        signals.first = "the classical method is chosen, and the weights are written"
        joined = self._join(trainer.global_step)
        summary = self._write(trainer, module, weights, tokens_seen, temperature, joined)
        log.info("trained in %.0f s, %d steps", self.seconds, trainer.global_step)
        signals.deferred = False
        return summary

    def _join(self, steps: int) -> tuple[Joined, JoinedMethod] | None:
        """The classical method that joins the network, as of `join`; none joins a trial or a mixture."""
        data = self.prepared.data
        if self.prepared.tasks or self.prepared.config["classical"] != "join":
            return None
        if reasons_of_trial(steps, data.limit, len(data.train_dataloader().examples)):
            return None
        return join(self.prepared)

    def _check_same(self, known: Mapping[str, Any], num_steps: int, num_processes: int) -> None:
        """Raise if a checkpoint is of a training of another length, of other data or by more or fewer processes."""
        if (known["num_steps"], known["num_processes"]) != (num_steps, num_processes):
            raise UsageError(
                f"{self.folder} was planned for {known['num_steps']} steps by {known['num_processes']} processes, and "
                f"would have {num_steps} by {num_processes} now; resume with as many devices, and the same data"
            )
        check_data(known.get("data_sha256", {}), self.prepared.data, self.folder)

    def _write(
        self,
        trainer: Any,
        module: Any,
        weights: str,
        tokens: Mapping[str, int],
        temperature: float | None,
        joined: tuple[Joined, JoinedMethod] | None,
    ) -> Summary:
        """Write the weights, then the summary, of the run or of each of its tasks.

        tokens: seen in training, by task. temperature: as of `calibrate`. joined: as of `join`.

        Raises StorageError if there is no room.
        """
        prepared = self.prepared
        steps = trainer.global_step
        facts = {
            "state": "trained",
            "skipped_steps": module.num_skipped,
            "weights": weights,
            "steps": steps,
        }
        if self.broken:
            facts["broken_laws"] = self.broken
        if temperature is not None:
            facts["temperature"] = round(temperature, 4)
        facts |= {
            "wall_seconds": round(self.seconds, 1),
            **end_fine_tuning(prepared.built.trainer, prepared.model),
        }
        try:
            if joined is not None:
                method, entry = joined
                facts["joined"] = entry.changed(sha256=saved(method, self.folder))
            if not prepared.tasks:
                return write_summary(self.folder, prepared, {**facts, "tokens_seen": tokens[""]})
            own: dict[str, dict[str, Any]] = {
                name: {"steps": number, "tokens_seen": tokens[f"{name}/"]}
                for name, number in prepared.data.steps(steps).items()
            }
            for name in own if self.broken else ():
                prefix = f"tasks.{name}: "
                lines = [line for line in self.broken if line.startswith(prefix)]
                own[name]["broken_laws"] = [line.removeprefix(prefix) for line in lines]
            return write_tasks(self.folder, prepared, facts, own)
        except OSError as error:
            raise StorageError(
                f"{self.folder} cannot be written ({error.strerror}); make room, then go on with: "
                + command("fit", "--resume", self.folder)
            ) from error


def _check_batches(valid_loader: Any, num_processes: int) -> None:
    """Raise UsageError if a validation split has a batch for too few processes: Lightning lets none be without one."""
    loaders = valid_loader
    if not isinstance(valid_loader, list):
        loaders = [valid_loader] if valid_loader else []
    for loader in loaders:
        if (number := len(loader.batch_indices())) < num_processes:
            raise UsageError(
                f"the validation split has {number} batches, fewer than the {num_processes} devices; "
                "give a smaller --data.batch_size, or a larger --data.valid_fraction"
            )


def _newest(folder: Path) -> Point | None:
    """Newest good checkpoint of a run, and the facts that the run is checked against; None: none was ever written.

    Raises UsageError if all are damaged, DataError if configuration or state are not those that it was written beside,
    else as `check_resumable`.
    """
    from seqkit.training.resume import check_resumable

    found = newest_good(folder / FOLDER)
    if found is None:
        if not has_written(folder / FOLDER):
            if checkpoints(folder / FOLDER):
                log.warning("no checkpoint of %s was written to its end, so it begins anew", folder)
            return None
        raise UsageError(
            f"{folder} has no good checkpoint to resume from; train again with: {command('fit', folder / CONFIG)}"
        )
    content = read_checkpoint(found.path)
    check_resumable(content, found)
    for key, digest in digests(folder).items():
        if content["run"][key] != digest:
            raise DataError(
                f"{found.path} is of a run with another {DIGESTED[key]} (its SHA-256 differs); bring that file back, "
                "or train again"
            )
    return found, content["run"] | {"num_processes": len(content["resume"]["rng"])}


def _leave_process_group() -> None:
    """End the distributed run: one process alone does what comes after training.

    The others wait for their threads of Gloo: one that frees its last tensor while the interpreter ends aborts the
    process, and with it the run; DDP and DTensor keep the group, so destroying it does not join them (torch 2.11).
    """
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        is_first = distributed.get_rank() == 0
        distributed.destroy_process_group()
        if not is_first:
            time.sleep(0.5)
