"""Keys of a run's `summary.json`, checked when it is read: the folder may be anybody's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seqkit.errors import DataError, UsageError
from seqkit.files import read_mapping

FEW_STEPS = 50
"""A run of fewer optimizer steps is a trial."""


@dataclass
class StrongBaseline:
    """A specialist's results on the test split, and the seconds that it took."""

    name: str
    metrics: dict[str, float]
    num_train: int
    seconds: float


@dataclass
class MostFrequent:
    """The class that most labels of a split are of, and its share."""

    name: str
    share: float


@dataclass
class Interval:
    """Predictions of a target are within ± `half_width` of it; test_coverage: the share of the test split that was."""

    half_width: float
    num_valid: int
    test_coverage: float | None = None
    target: str | None = None


REQUIRED: dict[str, Any] = {
    "sha256": str,
    "recipe": str,
    "backbone": str,
    "seed": int,
    "num_parameters": int,
    "tokens_seen": int,
    "steps": int,
    "wall_seconds": float,
    "metrics": dict[str, float],
    "versions": dict[str, str],
}
OPTIONAL: dict[str, Any] = {
    "objective": str,
    "state": str,
    "finished": bool,
    "baseline": dict[str, float],
    "strong_baseline": StrongBaseline,
    "no_strong_baseline": str,
    "intervals": list[Interval],
    "no_intervals": str,
    "extents": list[tuple[float, float]],
    "num_train": int,
    "train_tokens": int,
    "num_test": int,
    "limit": int,
    "unknown": dict[str, list[int]],
    "config_sha256": str,
    "state_sha256": str,
    "data_sha256": dict[str, str],
    "date": str,
    "data": str,
    "num_valid": int,
    "split_rule": str,
    "most_frequent": MostFrequent,
    "most_frequent_in_test": MostFrequent,
    "late_fall": float,
    "main_metric": str,
    "main_metric_mode": Literal["max", "min"],
    "positive": str,
    "data_notes": list[str],
    "data_cautions": list[str],
}
"""Keys and what they hold; there may be others."""


def check_trained(folder: Path) -> None:
    """Raise UsageError if a folder holds no run, or one that has not trained to its end. Imports no torch."""
    mixture = folder.parent.parent
    if not (folder / "config.yaml").exists() and folder.parent.name == "tasks" and (mixture / "config.yaml").exists():
        raise UsageError(f"{mixture} did not train to its end; go on with `seqkit fit --resume {mixture}`")
    if not (folder / "config.yaml").exists():
        raise UsageError(
            f"{folder} is no run: it has no config.yaml; give a folder such as runs/text/char-lm/2026-01-31-120000"
        )
    if not (folder / "summary.json").exists():
        raise UsageError(
            f"{folder} did not train to its end: it has no summary.json; go on with `seqkit fit --resume {folder}`, or "
            "end it as it is: add --end-here to that"
        )


def read_summary(folder: Path) -> dict[str, Any]:
    """Content of a run's `summary.json`. Raises DataError, which names the key, if it is damaged."""
    import json

    from pydantic import TypeAdapter, ValidationError

    path = folder / "summary.json"
    summary = read_mapping(path, *REQUIRED)
    for key, kind in (REQUIRED | OPTIONAL).items():
        try:
            if key in summary:
                TypeAdapter(kind).validate_json(json.dumps(summary[key]), strict=True)  # as JSON a list may be a tuple
        except ValidationError as error:
            what = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise DataError(f"{path} is damaged: {key}: {what}; copy it again or train again") from None
    return summary
