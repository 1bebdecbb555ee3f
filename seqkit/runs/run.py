"""Run of a complete configuration: trains it, tests it, and fills a folder.

config.yaml  state.json  metrics.csv  checkpoints/  summary.json  log.txt  (report.html and curve.svg: seqkit.report)
checkpoints/ holds points to resume from, the best weights and, once trained, model.safetensors: the run's weights.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from seqkit.config import to_yaml
from seqkit.config.recipe import check_name
from seqkit.data.module import DataModule
from seqkit.errors import DataError, DivergedError, Interrupted, StorageError, UsageError, described, one_line
from seqkit.files import read_mapping, write_atomic, write_json
from seqkit.interfaces import LabeledBatch, Objective
from seqkit.model import Model, first_call
from seqkit.pretrained.folder import keep_files, located
from seqkit.runs.curves import late_fall, metric_rows
from seqkit.runs.evaluate import Specialist, check_data, evaluate_model, finish
from seqkit.runs.folder import (
    CONFIG,
    FOLDER_OF_RANKS,
    STATE,
    SUMMARY,
    changed_plugins,
    check_new,
    check_no_links,
    is_unfinished,
    logging_to,
    naming_plugins,
    opened,
    plugin_digests,
    rank,
    sha256,
)
from seqkit.runs.initial_weights import told, told_of_head
from seqkit.runs.launcher import check_world, telling_of_lost_processes
from seqkit.runs.mixture import constants, finish_tasks
from seqkit.runs.prepare import Prepared, check_examples, prepare, saved_state
from seqkit.runs.setup import BestOfValidation, RunSetup, begin_fine_tuning, end_fine_tuning, keeps_best
from seqkit.runs.trained_files import write_summary, write_tasks
from seqkit.training import metrics_csv
from seqkit.training.checkpoint_files import FOLDER, Checkpoint, check_room, newest_good, sweep
from seqkit.training.checkpoint_io import VerifiedCheckpointIO, read_checkpoint
from seqkit.training.interrupt import StopSignals
from seqkit.training.loggers import log_settings
from seqkit.training.recompute import activation_checkpointing
from seqkit.training.trainer import SHARDED, count_steps, make_trainer, silence_lightning, train

log = logging.getLogger("seqkit")

BESIDE = "has_strong_baseline"
"""Key of `state.json`: whether the run was begun with a strong baseline."""

CountFlops = Callable[[Model, Objective, LabeledBatch], int]
"""FLOPs of a training step: `seqkit.analysis.cost.training_flops`."""


def run(
    config: Mapping[str, Any],
    folder: Path,
    *,
    initial: Path | None = None,
    examine: Callable[[Model, DataModule], dict[str, Any]] | None = None,
    count_flops: CountFlops | None = None,
    specialist: Specialist | None = None,
    resume: bool = False,
    end_here: bool = False,
) -> dict[str, Any]:
    """Train what a complete configuration describes, test it, and fill `folder`, which holds no run yet.

    initial: run whose embedder and backbone are taken, such as one of pretraining; None: random weights. examine: looks
    at the tested model and its data; what it returns is added to the returned summary, not to its file. count_flops:
    FLOPs of a training step on a batch, for the log. specialist: strong baseline, beside the best constant; a run that
    was begun without one goes on without. resume: whether `folder` holds an unfinished run of this configuration, which
    goes on from its newest good checkpoint. end_here: whether a resumed run takes no more steps, but ends with the
    weights that it has.
    Returns the summary; in a distributed run, an empty one on all processes but the first. A run that a signal stops
    writes a checkpoint and raises Interrupted. One that fails before the first optimizer step leaves no folder behind.
    Raises DataError, UsageError (a component refused), StorageError or DivergedError, each with one line.
    """
    is_first = rank() == 0
    check_name(str(config["recipe"]))  # which logs and paths hold
    check_world(config["trainer"], resume=resume)
    if not resume and is_first:
        check_new(folder)
    signals = StopSignals()
    with signals.installed(), silence_lightning():
        state = read_mapping(folder / STATE, *_keys_of_state(config)) if resume else None
        prepared = prepare(config, initial, state)
        config = prepared.config
        if state is not None and not state.get(BESIDE, True):  # as the run was begun, which the command may not repeat
            specialist = None
        attempt = Attempt(prepared, folder, signals, count_flops)
        if not is_first:
            with telling_of_lost_processes(folder):
                attempt.fit(resume=resume, end_here=end_here)
            return {}
        with opened(folder, lambda: resume or attempt.has_stepped):
            if not resume and (folder / CONFIG).is_file():  # begun by another process since the first look
                check_new(folder)
            sweep(folder)
            sweep(folder / FOLDER)
            if not resume:
                write_atomic(folder / CONFIG, to_yaml(dict(config)).encode())
                digests = {"config_sha256": sha256(folder / CONFIG), "plugins": plugin_digests(config)}
                state = saved_state(prepared) | digests | {BESIDE: specialist is not None}
                write_json(folder / STATE, state | {"sha256": _sha256_of(state)})
                if prepared.initial is not None:
                    keep_files(located(prepared.initial["run"]), folder)
            with logging_to(folder / "log.txt"):
                check_examples(prepared)
                if prepared.initial is not None and not resume:
                    log.warning("%s", told(prepared.initial))
                    if line := told_of_head(prepared.initial):
                        log.warning("%s", line)
                with telling_of_lost_processes(folder):
                    summary = attempt.fit(resume=resume, end_here=end_here)
                prepared = attempt.prepared
                if signals.received is not None:
                    raise signals.interrupted(f"trained, and not tested; finish it with: seqkit evaluate {folder}")
                signals.phase = "testing"
                signals.next_step = f"; the run is trained, finish it with: seqkit evaluate {folder}"
                if prepared.tasks:
                    return finish_tasks(folder, prepared, specialist, attempt.loggers)
                summary = finish(
                    folder, summary, prepared.model, prepared.data, config, specialist, loggers=attempt.loggers
                )
                return summary | ({} if examine is None else examine(prepared.model, prepared.data))


def resume_run(
    folder: Path,
    changes: Mapping[str, Any],
    count_flops: CountFlops | None = None,
    specialist: Specialist | None = None,
    *,
    end_here: bool = False,
) -> dict[str, Any]:
    """Resume an unfinished run.

    changes: values by dotted key that do not change what is learned. end_here: as of `run`.
    Returns the summary. Raises UsageError if there is nothing to resume, else as `run`.
    """
    from seqkit.config import complete

    if not (folder / CONFIG).is_file():
        raise UsageError(f"{folder} is no run: it has no {CONFIG}")
    check_no_links(folder)
    if not is_unfinished(folder):
        state = read_mapping(folder / SUMMARY).get("state")
        then = f"; it was not tested yet: seqkit evaluate {folder}" if state == "trained" else ""
        raise UsageError(f"{folder} has trained to its end, so there is nothing to resume{then}")
    _check_unchanged(folder)
    with naming_plugins(folder):
        # a mistyped key is answered with the nearest
        config = complete(folder / CONFIG, None, dict(changes), may_mix=True)
    for key in changes:
        if key not in MAY_CHANGE:
            raise UsageError(
                f"--{key} would change what a run learns, so it cannot be resumed with it; "
                f"these may change: {', '.join(MAY_CHANGE)}"
            )
    if changed := changed_plugins(folder, config):
        raise DataError(
            f"{changed} since {folder} began (its SHA-256 differs); bring the old one back, or train a new run"
        )
    return run(config, folder, count_flops=count_flops, specialist=specialist, resume=True, end_here=end_here)


MAY_CHANGE = (
    "trainer.skip_nonfinite", "trainer.checkpoint_every_minutes", "trainer.checkpoint_every_n_steps",
    "trainer.checkpoint_keep", "trainer.enable_progress_bar", "data.num_workers",
)  # fmt: skip
"""Keys that may change when a run is resumed."""


def trial(config: Mapping[str, Any], *, initial: Path | None = None) -> dict[str, Any]:
    """Train as `run` does, but evaluate on the validation split, and keep nothing; the test split is not read.

    The weights are chosen as a run chooses its own: the best of validation, or the last ones (`trainer.weights`).
    Returns metrics, steps, seconds and the SHA-256 of the splits used. Raises as `run`, DivergedError if the validation
    loss is not finite, and UsageError if the data has no validation split.
    """
    if "tasks" in config:
        raise UsageError(f"{config['recipe']} trains several tasks; give one of them, such as {config['recipe']}/NAME")
    prepared = prepare(config, initial)
    data, settings = prepared.data, {**prepared.built.trainer, "enable_progress_bar": False}
    train_loader, valid_loader = data.train_dataloader(), data.val_dataloader()
    if settings["strategy"] == SHARDED:
        raise UsageError(f"trials run without sharded weights; give --trainer.strategy auto in place of {SHARDED}")
    if not valid_loader:
        raise UsageError("the data has no validation split to tune on; give --data.valid_fraction 0.1")
    users, wants_best = list(settings["callbacks"] or ()), keeps_best(prepared, validates=True)
    validates = wants_best or bool(users)  # one of them may look at the validation metric
    recomputed = activation_checkpointing(prepared.model, enabled=settings["activation_checkpointing"])
    with silence_lightning(), recomputed, TemporaryDirectory() as folder:
        best = BestOfValidation(prepared, Path(folder), users)
        trainer = make_trainer(
            settings if validates else {**settings, "limit_val_batches": 0},
            logger=False,
            callbacks=[*users, *(best.callbacks if wants_best else ())],
            plugins=[VerifiedCheckpointIO()],
        )
        module = prepared.training_module(count_steps(settings, len(train_loader), trainer.world_size))
        begin_fine_tuning(settings, prepared.model, prepared.initial)
        compile_blocks(prepared)
        started = time.perf_counter()
        train(trainer, module, train_loader, valid_loader if validates else None)
        seconds, steps = time.perf_counter() - started, trainer.global_step
        if wants_best:
            best.load_into(prepared.model)
        end_fine_tuning(settings, prepared.model)
        metrics = evaluate_model(prepared.model, data, config, "valid")
    if not math.isfinite(metrics["loss"]):
        raise DivergedError(f"the validation loss is {metrics['loss']}; lower the learning rate")
    return {"metrics": metrics, "steps": steps, "wall_seconds": round(seconds, 2), "data_sha256": data.sha256()}


def compile_blocks(prepared: Prepared) -> None:
    """Compile each block of the backbone by itself if `trainer.compile` asks for it.

    Blocks are alike, so one compilation serves all; their weights keep their names.
    """
    if not prepared.built.trainer["compile"]:
        return
    blocks = list(getattr(prepared.model.backbone, "blocks", ())) or [prepared.model.backbone]
    for block in blocks:
        block.compile(dynamic=True)


class Attempt:
    """One training of a run, from its beginning or a checkpoint: loaders, trainer, weights and summary."""

    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        signals: StopSignals,
        count_flops: CountFlops | None = None,
    ):
        self.prepared, self.folder, self.signals, self.count_flops = prepared, folder, signals, count_flops
        self.has_stepped = False
        self.seconds = 0.0
        self.loggers: list[Any] = []

    def fit(self, *, resume: bool, end_here: bool = False) -> dict[str, Any]:
        """Train, and write weights and a summary. Every process of a distributed run is here; the first one gets it.

        end_here: take the newest checkpoint for the end.
        """
        from seqkit.training.step_log import peak_flops

        prepared, folder, signals = self.prepared, self.folder, self.signals
        data, settings = prepared.data, prepared.built.trainer
        train_loader = data.train_dataloader()
        valid_loader: Any = data.val_dataloader() or None
        valid_loaders = valid_loader if isinstance(valid_loader, list) else [valid_loader] if valid_loader else []
        setup = RunSetup(prepared, folder, signals)
        trainer, checkpoint = setup.trainer(valid_loader is not None), None
        is_first, self.loggers = trainer.is_global_zero, setup.loggers
        num_steps = count_steps(settings, len(train_loader), trainer.world_size)
        setup.check_steps(num_steps)
        number = min((len(loader.batch_indices()) for loader in valid_loaders), default=trainer.world_size)
        if number < trainer.world_size:
            raise UsageError(  # Lightning lets no process be without a batch
                f"the validation split has {number} batches, fewer than the {trainer.world_size} devices; "
                "give a smaller --data.batch_size, or a larger --data.valid_fraction"
            )
        compares = settings["weights"] == "best" and len(prepared.tasks) > 1
        recipe, parameters = prepared.config["recipe"], f"{prepared.model.num_parameters:,}"
        log.info("recipe %s, %s parameters, seed %d", recipe, parameters, prepared.seed)
        begin_fine_tuning(settings, prepared.model, prepared.initial)
        module = prepared.training_module(num_steps, constants(prepared) if compares else None)
        if resume:
            checkpoint = self._checkpoint(trainer, module.num_steps)
        if self.count_flops is not None and is_first and not prepared.tasks:
            setup.step_log.flops_per_token = self._flops_per_token(train_loader.examples, self.count_flops)
            setup.step_log.peak_flops = peak_flops(trainer)
        module.stop_requested = lambda: signals.received is not None
        if settings["strategy"] == SHARDED:
            self._check_sharding(validates=valid_loader is not None and settings["limit_val_batches"] != 0)
        compile_blocks(prepared)
        if is_first:
            (folder / FOLDER).mkdir(parents=True, exist_ok=True)
            num_bytes = sum(weight.nbytes for weight in prepared.model.state_dict().values())
            # weights, the best ones, and points with up to two numbers of the optimizer for each weight
            check_room(folder, num_bytes * (2 + 3 * (settings["checkpoint_keep"] + 1)))
            os.environ[FOLDER_OF_RANKS] = str(folder.absolute())
        if checkpoint is not None:
            log.info("resuming after step %d of %d", checkpoint.step, num_steps)
            if end_here:
                log.warning("the run ends here, after step %d of %d", checkpoint.step, num_steps)
                trainer.fit_loop.epoch_loop.max_steps = checkpoint.step
        if is_first and not resume:
            log_settings(self.loggers, prepared.config)
        signals.phase, signals.deferred = "training", True
        started = time.perf_counter()
        try:
            with activation_checkpointing(prepared.model, enabled=settings["activation_checkpointing"]):
                train(trainer, module, train_loader, valid_loader, checkpoint=checkpoint and checkpoint.path)
        except DivergedError:  # on all processes alike
            self.prepared = replace(prepared, model=module.gather_model())
            if is_first and trainer.global_step > 0 and _first_not_finite(self.prepared.model) is None:
                self._write(trainer, module, "diverged", "last", module.tokens_by_task())
            raise
        finally:
            self.has_stepped = trainer.global_step > 0
            self.seconds = time.perf_counter() - started + setup.facts.seconds_before
        tokens_seen = module.tokens_by_task()
        self.prepared = replace(prepared, model=module.gather_model())
        _leave_process_group()
        os.environ.pop(FOLDER_OF_RANKS, None)
        if not is_first:
            return {}
        weights = setup.use_best_weights(self.prepared.model)
        if (name := _first_not_finite(self.prepared.model)) is not None:
            raise DivergedError(f"{name} is not finite at the end of training; lower the learning rate")
        summary = self._write(trainer, module, "trained", weights, tokens_seen)
        log.info("trained in %.0f s, %d steps", self.seconds, trainer.global_step)
        signals.deferred = False
        return summary

    def _checkpoint(self, trainer: Any, num_steps: int) -> Checkpoint:
        """Newest good checkpoint of the same data, settings, length and number of processes; cuts metrics.csv."""
        from seqkit.training.resume import check_resumable

        folder, found = self.folder, newest_good(self.folder / FOLDER)
        if found is None:
            raise UsageError(
                f"{folder} has no good checkpoint to resume from; train again with: seqkit fit {folder / CONFIG}"
            )
        content = read_checkpoint(found.path)
        check_resumable(content, found, sha256(folder / CONFIG))
        known, processes = content["run"], len(content["resume"]["rng"])
        if known["num_steps"] != num_steps:
            raise UsageError(
                f"{folder} was planned for {known['num_steps']} steps, and would have {num_steps} now; "
                "resume with as many devices, and the same data"
            )
        if processes != trainer.world_size:
            raise UsageError(
                f"{folder} was trained by {processes} processes, and would be by {trainer.world_size} now; "
                "resume with as many devices"
            )
        check_data(known, self.prepared.data, folder)
        if trainer.is_global_zero:
            metrics_csv.cut(folder / metrics_csv.NAME, known["num_rows"])
        return found

    def _check_sharding(self, *, validates: bool) -> None:
        """Raise UsageError for what cannot be sharded."""
        from seqkit.training.parallel import check_sharding

        prepared = self.prepared
        generates = validates and bool(prepared.data.objective.generation_metrics())
        check_sharding(prepared.model, prepared.built.optimizer, prepared.built.trainer, generates=generates)

    def _flops_per_token(self, examples: Any, count: CountFlops) -> float | None:
        """FLOPs of training for a token of the first batch, padding included; random numbers stay as they were.

        None: a component runs on an accelerator alone, so that they cannot be counted before training.
        """
        with torch.random.fork_rng(devices=[]):
            model, objective, batch = self.prepared.model, self.prepared.data.objective, examples[0, [0]]
            called, _ = first_call(objective, model, batch)
            try:
                return count(model, objective, batch) / called.valid.numel()
            except ValueError:
                raise
            except Exception as error:  # the user's own code: whatever it raises
                log.warning("FLOPs are not counted (%s)", one_line(described(error)))
                return None

    def _write(self, trainer: Any, module: Any, state: str, weights: str, tokens: Mapping[str, int]) -> dict[str, Any]:
        """Write the weights, then the summary, of the run or of each of its tasks. tokens: seen in training, by task.

        Raises StorageError if there is no room.
        """
        prepared, steps = self.prepared, trainer.global_step
        rest = {"skipped_steps": module.num_skipped, "weights": weights, "wall_seconds": round(self.seconds, 1)}
        rest |= end_fine_tuning(prepared.built.trainer, prepared.model)
        try:
            if not prepared.tasks:
                rest |= {"steps": steps, "tokens_seen": tokens[""]}
                rows = metric_rows(self.folder)
                fall = late_fall([(row["step"], row["valid/loss"]) for row in rows if "valid/loss" in row])
                rest |= {} if fall is None else {"late_fall": round(fall, 4)}
                return write_summary(self.folder, prepared, {"state": state, **rest})
            own = {
                name: {"steps": number, "tokens_seen": tokens[f"{name}/"]}
                for name, number in prepared.data.steps(steps).items()
            }
            return write_tasks(self.folder, prepared, {"state": state, "steps": steps, **rest}, own)
        except OSError as error:
            raise StorageError(
                f"{self.folder} cannot be written ({error.strerror}); make room, then go on with: seqkit fit --resume "
                f"{self.folder}"
            ) from error


def _keys_of_state(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys that `state.json` of a run must have."""
    return ("tasks",) if "tasks" in config else ("objective", "tokenizer")


def _check_unchanged(folder: Path) -> None:
    """Raise DataError if configuration or state of a run are not as they were written when it began."""
    state = read_mapping(folder / STATE, "config_sha256", "sha256")
    written = state.pop("sha256")
    for file, known, found in (
        (STATE, written, _sha256_of(state)),
        (CONFIG, state["config_sha256"], sha256(folder / CONFIG)),
    ):
        if found != known:
            raise DataError(
                f"{folder / file} has changed since the run began (its SHA-256 differs); "
                "bring the old one back, or train a new run"
            )


def _sha256_of(state: Mapping[str, Any]) -> str:
    """SHA-256 of plain data, as it comes back through JSON."""
    return hashlib.sha256(json.dumps(json.loads(json.dumps(state)), sort_keys=True).encode()).hexdigest()


def _first_not_finite(model: Model) -> str | None:
    """Name of a weight that is not finite, if there is one."""
    for name, weight in model.state_dict().items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            return name
    return None


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


__all__ = ["Interrupted", "resume_run", "run", "trial"]
