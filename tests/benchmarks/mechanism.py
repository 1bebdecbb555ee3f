"""Measures the tables of docs/mechanisms.md: every diagnostic task with every backbone, tuned alike.

    python tests/benchmarks/mechanism.py                                  # all of them, two at a time
    python tests/benchmarks/mechanism.py --tasks parity --backbones LSTM  # some of them
    python tests/benchmarks/mechanism.py --rates 0.003                    # learning rates to choose from
    python tests/benchmarks/mechanism.py --show                           # only the tables of finished runs

All backbones have width 32 and two layers. The learning rate is the one of RATES with the least validation loss in a
run of its own (seed SEARCH_SEED); then SEEDS are trained with it, and their figures on the test split are in the table.
Results are in runs/mechanism, and finished runs are not repeated.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import seqkit
from seqkit.data.dataset import collate_targets
from seqkit.interfaces import TokenBatch
from seqkit.registry import components
from seqkit.report.headline import headline
from seqkit.runs import trained_model
from seqkit.runs.prepare import data_module, evaluate

TASKS = ("associative-recall", "selective-copy", "parity", "copy", "induction-heads", "adding")
RATES, SEARCH_SEED, SEEDS = (0.001, 0.003, 0.01), 0, (1, 2, 3)
SIZE = {"dim": 32, "depth": 2, "causal": True}
BACKBONES: dict[str, dict[str, Any]] = {
    "Transformer": {"type": "Transformer", **SIZE, "num_heads": 2, "position": "Rotary"},
    "Transformer, sinusoidal": {"type": "Transformer", **SIZE, "num_heads": 2, "position": None},
    "LSTM": {"type": "LSTM", **SIZE},
    "GRU": {"type": "GRU", **SIZE},
    "S4D": {"type": "S4D", **SIZE},
    "Mamba": {"type": "Mamba", **SIZE},
}
Job = tuple[str, str, float, int, Path]
"""Task, backbone, learning rate, seed, folder of all results."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--backbones", nargs="+", default=list(BACKBONES), choices=list(BACKBONES))
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--folder", type=Path, default=Path("runs/mechanism"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    backbones = [name for name in args.backbones if BACKBONES[name]["type"] in components("backbone")]
    pairs = [(task, backbone) for task in args.tasks for backbone in backbones]
    if not args.show:
        # processes of their own, started afresh: torch's threads do not survive a fork
        with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
            search = [(*pair, rate, SEARCH_SEED, args.folder) for pair in pairs for rate in args.rates]
            for line in pool.map(measure, search):
                print(line, flush=True)
            chosen = [(*pair, best_rate(*pair, args.rates, args.folder)) for pair in pairs]
            runs = [(*job, seed, args.folder) for job in chosen if job[2] is not None for seed in SEEDS]
            for line in pool.map(measure, runs):
                print(line, flush=True)
    for line in [*table(pairs, args.rates, args.folder), "", *length_table(pairs, args.rates, args.folder)]:
        print(line)


def _one_thread() -> None:
    torch.set_num_threads(1)


def measure(job: Job) -> str:
    """Train one model unless that was done, and write what it scored to `result.json` of its run folder."""
    task, backbone, rate, seed, _ = job
    out = run_folder(*job)
    if not (out / "result.json").is_file():
        shutil.rmtree(out, ignore_errors=True)
        overrides = {"model.backbone": BACKBONES[backbone], "optimizer.lr": rate, "seed": seed}
        try:
            trained = seqkit.fit(f"mechanism/{task}", overrides | {"trainer.enable_progress_bar": False}, out=out)
        except seqkit.DivergedError as error:
            return f"{task}, {backbone}, {rate:g}, seed {seed}: {error}"
        result = {"valid": evaluate(out, "valid"), "by_length": by_length(trained)}
        (out / "result.json").write_text(json.dumps(result))
    summary, result = read(out)
    shown = f"{headline(summary).name} {headline(summary).value:.4f}, valid loss {result['valid']['loss']:.4f}"
    return f"{task}, {backbone}, {rate:g}, seed {seed}: {shown}, {summary['wall_seconds']} s"


def run_folder(task: str, backbone: str, rate: float, seed: int, folder: Path) -> Path:
    """The run folder of a job."""
    return folder / task / backbone.replace(", ", "-") / f"lr-{rate:g}-seed-{seed}"


def read(out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Summary and result of a finished run."""
    return json.loads((out / "summary.json").read_text()), json.loads((out / "result.json").read_text())


@torch.inference_mode()
def by_length(trained: trained_model.TrainedModel) -> dict[int, float]:
    """The headline metric on the test examples of each number of tokens."""
    data = data_module(trained.config, trained.tokenizer, trained.objective)
    objective, name = trained.objective, headline(trained.summary).name
    groups: dict[int, list[Any]] = {}
    for sample in data.splits().test:
        tokens = trained.tokenizer.encode(sample.raw)
        groups.setdefault(len(tokens), []).append((tokens, objective.encode_target(sample.label)))
    scores = {}
    for num_tokens, examples in sorted(groups.items()):
        metric = objective.metrics(trained.model.spec)[name]
        for start in range(0, len(examples), 64):
            tokens, targets = zip(*examples[start : start + 64])
            model_input = objective.prepare(TokenBatch.collate(tokens), collate_targets(targets))
            output = objective.loss(trained.model(model_input.batch), model_input.target)
            metric.update(output.preds, output.target)
        scores[num_tokens] = float(metric.compute())
    return scores


def best_rate(task: str, backbone: str, rates: Sequence[float], folder: Path) -> float | None:
    """The learning rate with the least validation loss; None: no run has finished."""
    losses = {}
    for rate in rates:
        out = run_folder(task, backbone, rate, SEARCH_SEED, folder)
        if (out / "result.json").is_file():
            losses[rate] = read(out)[1]["valid"]["loss"]
    return min(losses, key=losses.__getitem__) if losses else None


def finished(
    task: str, backbone: str, rates: Sequence[float], folder: Path
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Summary and result of the runs that count: SEEDS at the chosen rate."""
    rate = best_rate(task, backbone, rates, folder)
    outs = [run_folder(task, backbone, rate, seed, folder) for seed in SEEDS] if rate is not None else []
    return [read(out) for out in outs if (out / "result.json").is_file()]


def table(pairs: Sequence[tuple[str, str]], rates: Sequence[float], folder: Path) -> Iterator[str]:
    """Markdown rows: mean ± standard deviation on the test split at the trained length."""
    yield "| task | backbone | metric at the trained length | each seed | learning rate | parameters | seconds a run |"
    yield "|---|---|---|---|---|---|---|"
    for task, backbone in pairs:
        runs = finished(task, backbone, rates, folder)
        if not runs:
            continue
        name = headline(runs[0][0]).name
        values = [at_trained_length(summary, result) for summary, result in runs]
        seconds = statistics.mean(summary["wall_seconds"] for summary, _ in runs)
        yield (
            f"| {task} | {backbone} | {name} {_mean(values, name)} | {', '.join(_figure(v, name) for v in values)} "
            f"| {best_rate(task, backbone, rates, folder):g} | {runs[0][0]['num_parameters']:,} | {seconds:.0f} |"
        )


def at_trained_length(summary: dict[str, Any], result: dict[str, Any]) -> float:
    """The metric on the test examples that are as long as those of training."""
    (longest,) = {high for _, high in summary["extents"]}
    return result["by_length"][str(int(longest) + 1)]


def length_table(pairs: Sequence[tuple[str, str]], rates: Sequence[float], folder: Path) -> Iterator[str]:
    """Markdown rows for tasks whose test split has several lengths: the metric by number of tokens."""
    for task in dict.fromkeys(task for task, _ in pairs):
        rows = {backbone: finished(task, backbone, rates, folder) for t, backbone in pairs if t == task}
        lengths = next((list(runs[0][1]["by_length"]) for runs in rows.values() if runs), [])
        if len(lengths) < 2:
            continue
        yield f"| {task}, by tokens | " + " | ".join(lengths) + " |"
        yield "|---|" + "---|" * len(lengths)
        for backbone, runs in rows.items():
            if runs:
                name = headline(runs[0][0]).name
                cells = [_mean([result["by_length"][length] for _, result in runs], name) for length in lengths]
                yield f"| {backbone} | " + " | ".join(cells) + " |"


def _mean(values: Sequence[float], name: str) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{_figure(statistics.mean(values), name)} ± {_figure(spread, name)}"


def _figure(value: float, name: str) -> str:
    """Shares in percent."""
    return f"{100 * value:.1f}" if name == "accuracy" else f"{value:.3f}"


if __name__ == "__main__":
    main()
