"""Files that a trained run leaves: its weights and `summary.json`, and the folder of each task of a mixture."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from seqkit.config import to_yaml
from seqkit.files import read_mapping, write_atomic, write_json
from seqkit.interfaces import Objective, TokenSpec
from seqkit.objectives.classify import Classify
from seqkit.objectives.metric import primary_metric
from seqkit.runs.folder import CONFIG, STATE, beside_learned, digests
from seqkit.runs.prepare import Prepared, alone
from seqkit.runs.summary import TASKS, Summary
from seqkit.training import metrics_csv
from seqkit.training.checkpoint_files import FOLDER
from seqkit.training.weights import save_weights

PACKAGES = (
    "seqkit",
    "torch",
    "torchvision",
    "torchaudio",
    "timm",
    "pytorch-lightning",
    "einops",
    "numpy",
    "scipy",
    "scikit-learn",
    "torchmetrics",
    "tokenizers",
    "rdkit",
    "pillow",
    "soundfile",
    "numba",
    "triton",
    "flash-linear-attention",
)


def write_summary(folder: Path, prepared: Prepared, facts: Mapping[str, Any]) -> Summary:
    """Write the weights of a run into its folder, then its summary, which is returned. facts: of its training."""
    data = prepared.data
    model = prepared.model
    digest = save_weights(model, folder / FOLDER / "model.safetensors")
    examples = data.train_dataloader().examples
    summary = Summary(
        recipe=prepared.config["recipe"],
        backbone=type(model.backbone).__name__,
        objective=type(data.objective).__name__,
        **_main_metric(data.objective, model.spec),
        metrics={},
        num_train=len(examples),
        train_tokens=sum(examples.lengths),
        limit=data.limit,
        unknown=data.unknown(),
        data_notes=data.notes.lines,
        data_cautions=data.notes.cautions,
        baseline={},
        num_parameters=model.num_parameters,
        extents=data.extents(),
        **facts,
        initial=prepared.initial,
        seed=prepared.seed,
        sha256=digest,
        **digests(folder),
        data_sha256=data.sha256(),
        versions=versions(),
        machine=machine(),
    )
    summary.write(folder)
    return summary


def _main_metric(objective: Objective, spec: TokenSpec) -> dict[str, Any]:
    """The metric by which the best weights are chosen, and whether more of it is better; not the loss that all have."""
    if objective.primary_metric == "loss" and not isinstance(objective, Classify):
        return {}
    metric = primary_metric(objective, spec)
    return {"main_metric": metric.name, "main_metric_mode": metric.mode}


def write_tasks(
    folder: Path, prepared: Prepared, facts: Mapping[str, Any], own: Mapping[str, Mapping[str, int]]
) -> Summary:
    """Write each task of a mixture as a run of its own, and the summary of the mixture, which is returned.

    facts: of the training. own: what differs between tasks.
    """
    states = read_mapping(folder / STATE, TASKS)[TASKS]
    digests: list[str] = []
    for name, task in prepared.tasks.items():
        place = folder / TASKS / name
        (place / FOLDER).mkdir(parents=True, exist_ok=True)
        write_atomic(place / CONFIG, to_yaml(task.config).encode())
        write_json(place / STATE, states[name] | beside_learned(place, task.config))
        metrics_csv.write_of_task(folder / metrics_csv.NAME, name, place / metrics_csv.NAME)
        of_task = write_summary(place, replace(task, model=alone(task)), {**facts, **own[name]})
        digests.append(of_task.sha256)
    summary = Summary(
        recipe=prepared.config["recipe"],
        backbone=type(prepared.model.backbone).__name__,
        metrics={},
        num_parameters=prepared.model.num_parameters,
        **facts,
        tokens_seen=sum(each["tokens_seen"] for each in own.values()),
        seed=prepared.seed,
        sha256=hashlib.sha256("".join(digests).encode()).hexdigest(),
        versions=versions(),
        machine=machine(),
    )
    summary.write(folder)
    return summary


def versions() -> dict[str, str]:
    """Versions of Python and of the packages here on which a result may depend; "unknown": run from a source tree."""
    found = {"python": platform.python_version(), "seqkit": "unknown"}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def machine() -> dict[str, object]:
    """The machine of this process, and how many threads torch uses on it: sums are rounded otherwise on another."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()}-{platform.machine()}",
    }


@cache
def _cpu() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
