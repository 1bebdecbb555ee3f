"""A run: from a configuration to a complete folder, and from a folder back to a model.

config.yaml  state.json  metrics.csv  checkpoints/model.safetensors  summary.json  report.html  log.txt
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from seqkit.configure import dump, instantiate, parse
from seqkit.contract import DataError, Objective, TokenBatch, Tokenizer, Tokens
from seqkit.model import Model
from seqkit.quiet import quiet
from seqkit.recipe import UsageError
from seqkit.trainer import count_steps, make_trainer, train
from seqkit.weights import load_weights, read_mapping, save_weights, write_json

log = logging.getLogger("seqkit")

PACKAGES = ("seqkit", "torch", "torchvision", "torchaudio", "timm", "pytorch-lightning", "einops", "numpy")


@dataclass(frozen=True)
class Loaded:
    """A trained model with its two ends, ready to use; no data set needed.

    config: the run's whole configuration. summary: what `summary.json` says.
    """

    model: Model
    tokenizer: Tokenizer
    objective: Objective
    config: dict[str, Any]
    summary: dict[str, Any]

    @torch.inference_mode()
    def predict(self, raws: Iterable[Any], batch_size: int = 32, names: Sequence[str] | None = None) -> list[Any]:
        """Answers in the user's words for raw examples, in order. Raises DataError for one that cannot be read.

        names: of the examples, for the error. A warning is logged once where some reach further, or less far, than all
        training examples did: a larger image than it learned from gets an answer, too.
        """
        tokens: list[Tokens] = []
        strange: list[str] = []
        for i, raw in enumerate(raws):
            name = f"example {i}" if names is None else names[i]
            try:
                tokens.append(self.tokenizer.encode(raw))
            except DataError as error:
                raise error if name in str(error) else DataError(f"{name}: {error}") from error
            if unlike := self._unlike_training(tokens[-1]):
                strange.append(f"{name} {unlike}")
        if strange:
            more = f" (and {len(strange) - 1} more)" if strange[1:] else ""
            log.warning("%s; do not rely on the answer%s", strange[0], more)
        answers: list[Any] = []
        for start in range(0, len(tokens), batch_size):
            batch = TokenBatch.collate(tokens[start : start + batch_size])
            answers += self.objective.answer(self.objective.predict(self.model, batch))
        return answers

    def _unlike_training(self, tokens: Tokens) -> str:
        """How the example differs in size from all that were learned from, or nothing."""
        ends, known = tokens.positions.amax(dim=0).tolist(), self.summary.get("extents", [])
        if len(known) != len(ends) or all(low <= end <= high for end, (low, high) in zip(ends, known)):
            return ""
        if len(ends) == 1 and tokens.positions[:, 0].equal(torch.arange(float(len(tokens)))):  # counted, not measured
            (low, high), n = known[0], len(tokens)
            return f"has {n} tokens, but those of training have {low + 1:g} to {high + 1:g}"
        ranges = ", ".join(f"{low:g}" if low == high else f"{low:g} to {high:g}" for low, high in known)
        return (
            f"has {len(tokens)} tokens, the last at position ({', '.join(f'{end:g}' for end in ends)}), but those of "
            f"training end at ({ranges})"
        )


# ── training ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def fit(config: Any, folder: Path) -> dict[str, Any]:
    """Train what `config` (from `configure.parse`) describes, test it, and fill `folder`, which must not exist yet.

    Stopped by Ctrl-C or SIGTERM, it keeps and tests the weights so far. Returns the summary.
    Raises DataError, UsageError (a part refused) or DivergedError, each with one line.
    """
    import pytorch_lightning as pl
    from pytorch_lightning.loggers import CSVLogger

    from seqkit.learner import Learner
    from seqkit.progress import StepProgress

    if not 0 <= config.seed < 2**32:
        raise UsageError(f"seed is {config.seed}; give 0 to {2**32 - 1}")
    pl.seed_everything(config.seed, verbose=False)
    built = _built(config)
    data, tokenizer, objective = built.data, built.tokenizer, built.model.objective
    data.connect(tokenizer, objective, seed=config.seed)
    model = _model(tokenizer, built.model)
    # all parts are encoded here: a fault in the test part is better found before training than after it
    loaders = data.train_dataloader(), data.val_dataloader() or None, data.test_dataloader()
    num_steps = count_steps(config.trainer, len(loaders[0]))
    shown = config.trainer.enable_progress_bar is not False
    trainer = make_trainer(
        **{**dict(config.trainer), "enable_progress_bar": False},
        logger=CSVLogger(folder, name="", version=""),
        callbacks=[StepProgress(config.recipe, num_steps)] if shown else [],
        default_root_dir=folder,
    )

    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"the run folder {folder} cannot be made ({error.strerror}); give another --out") from error
    (folder / "config.yaml").write_text(dump(config), encoding="utf-8")
    write_json(folder / "state.json", {"tokenizer": tokenizer.state(), "objective": objective.state()})
    with quiet(), _logging_to(folder / "log.txt"):
        log.info("recipe %s, %s parameters, seed %d", config.recipe, f"{model.num_parameters:,}", config.seed)
        learner = Learner(
            model,
            objective,
            optimizer=built.optimizer,
            schedule=built.schedule,
            num_steps=num_steps,
            seed=config.seed,
        )
        started = time.perf_counter()
        finished = train(trainer, learner, *loaders[:2])
        seconds, steps = time.perf_counter() - started, trainer.global_step
        digest = save_weights(model, folder / "checkpoints" / "model.safetensors")
        measured = _measured(trainer, learner, data, "test")
        summary = {
            "recipe": config.recipe,
            "backbone": type(model.backbone).__name__,
            "objective": type(objective).__name__,
            "metrics": measured,
            "num_test": len(loaders[2].examples),
            **({} if data.limit is None else {"limit": data.limit}),
            "baseline": _constant_baseline(objective, data),
            "num_parameters": model.num_parameters,
            "extents": data.extents(),
            "tokens_seen": learner.tokens_seen,
            "steps": steps,
            "wall_seconds": round(seconds, 1),
            "seed": config.seed,
            "finished": finished,
            "sha256": digest,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        }
        write_json(folder / "summary.json", summary)
        log.info("done in %.0f s: %s", seconds, ", ".join(f"{k} {v:.4f}" for k, v in measured.items()))
    return summary


def evaluate(folder: Path, split: str) -> dict[str, float]:
    """Measure a run's weights again on its data's `split` ("valid" or "test"). Raises UsageError if there is none."""
    import pytorch_lightning as pl

    from seqkit.learner import Learner

    loaded = load(folder)
    config = parse(loaded.config)
    pl.seed_everything(config.seed, verbose=False)
    data = instantiate(config).data
    data.connect(loaded.tokenizer, loaded.objective, seed=config.seed)
    trainer = make_trainer(
        accelerator=config.trainer.accelerator, devices=1, precision=config.trainer.precision, logger=False,
        enable_model_summary=False, enable_progress_bar=False,
    )  # fmt: skip
    with quiet():
        return _measured(trainer, Learner(loaded.model, loaded.objective, seed=config.seed), data, split)


def new_folder(recipe: str, root: Path = Path("runs")) -> Path:
    """A folder `root/recipe/time` that does not exist yet: a run is never overwritten."""
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    folder, again = root / recipe / stamp, 1
    while folder.exists():
        again += 1
        folder = root / recipe / f"{stamp}-{again}"
    return folder


def untrained(config: Any) -> tuple[Model, Any]:
    """The model that `config` describes, with weights as they start, and its data. Raises as `fit`."""
    built = _built(config)
    built.data.connect(built.tokenizer, built.model.objective, seed=config.seed)
    return _model(built.tokenizer, built.model), built.data


def _built(config: Any) -> Any:
    try:
        return instantiate(config)
    except DataError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def _model(tokenizer: Tokenizer, arguments: Any) -> Model:
    try:
        return Model(tokenizer.spec, **vars(arguments))
    except DataError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def _measured(trainer: Any, learner: Any, data: Any, split: str) -> dict[str, float]:
    loader = data.test_dataloader() if split == "test" else data.val_dataloader()
    if not loader:
        raise UsageError("the data has no validation part; give --data.valid_fraction at training, or ask for `test`")
    run = trainer.test if split == "test" else trainer.validate
    (measured,) = run(learner, loader, verbose=False)
    return {name.removeprefix(f"{split}/"): float(value) for name, value in measured.items()}


def _constant_baseline(objective: Objective, data: Any) -> dict[str, float]:
    """What the best constant prediction, fitted on the training targets, scores on the test split."""
    from seqkit.learner import MeanLoss

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        guess = objective.constant([objective.prepare(*batch).target for batch in data.train_dataloader()])
        measures: dict[str, Any] = {"loss": MeanLoss(), **objective.metrics()}
        for batch in data.test_dataloader():
            target = objective.prepare(*batch).target
            score = objective.score(guess(target), target)
            measures["loss"].update(score.loss, score.count)
            for name, measure in measures.items():
                if name != "loss" and score.truth.numel():
                    measure.update(score.predicted, score.truth)
    return {name: float(measure.compute()) for name, measure in measures.items()}


# ── back from a folder ───────────────────────────────────────────────────────────────────────────────────────────────


def load(folder: str | Path) -> Loaded:
    """Model, tokenizer and objective of a run, in evaluation mode; the data set may be absent.

    Raises UsageError if the folder is no finished run; DataError if one of its files is damaged.
    """
    folder = Path(folder)
    if not (folder / "config.yaml").is_file():
        raise UsageError(
            f"{folder} is no run: it has no config.yaml; give a folder such as runs/text/char-lm/2026-01-31-120000"
        )
    if not (folder / "summary.json").is_file():
        raise UsageError(
            f"{folder} did not finish: it has no summary.json; train again with `seqkit fit {folder / 'config.yaml'}`"
        )
    config = read_mapping(folder / "config.yaml", "data", "model", "tokenizer")
    summary = read_mapping(folder / "summary.json", "sha256")
    state = read_mapping(folder / "state.json", "objective", "tokenizer")
    ends = instantiate(parse({k: config[k] for k in ("tokenizer", "model")}, with_data=False), with_data=False)
    try:
        ends.tokenizer.load_state(state["tokenizer"])
        ends.model.objective.load_state(state["objective"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{folder / 'state.json'} does not fit the run ({error!r}); copy the run again") from error
    model = Model(ends.tokenizer.spec, **vars(ends.model))
    load_weights(model, folder / "checkpoints" / "model.safetensors", summary["sha256"])
    return Loaded(model.eval(), ends.tokenizer, ends.model.objective, config, summary)


@contextmanager
def _logging_to(path: Path) -> Any:
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    watched = [logging.getLogger(name) for name in ("seqkit", "pytorch_lightning")]
    log.setLevel(logging.INFO)
    for logger in watched:
        logger.addHandler(handler)
    try:
        yield
    except BaseException:
        log.exception("the run stopped")
        raise
    finally:
        for logger in watched:
            logger.removeHandler(handler)
        handler.close()
