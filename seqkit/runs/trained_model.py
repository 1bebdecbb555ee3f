"""Trained models with tokenizer and objective, loaded from run folders."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch

from seqkit.config import Built, build, build_model, complete
from seqkit.data.inputs import Input
from seqkit.errors import DataError, UsageError, described, one_line
from seqkit.files import read_mapping, read_small
from seqkit.interfaces import Objective, Tokenizer, Tokens
from seqkit.model import Model
from seqkit.runs.answers import predictions
from seqkit.runs.folder import (
    CONFIG,
    STATE,
    SUMMARY,
    changed_plugins,
    check_as_trained,
    check_no_links,
    naming_plugins,
)
from seqkit.runs.predictor import Predictor, find_device
from seqkit.runs.summary import check_trained, read_summary
from seqkit.training.weights import load_weights

log = logging.getLogger("seqkit")

CURVE = "curve.svg"
"""The learning curve in a run's folder, which the report draws."""


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with its tokenizer and objective, ready to use; no data set needed.

    config: the run's complete configuration. summary: what `summary.json` says. folder: the run's.
    """

    model: Model
    tokenizer: Tokenizer
    objective: Objective
    config: dict[str, Any]
    summary: dict[str, Any]
    folder: Path

    @property
    def predictor(self) -> Predictor:
        """The model at work, on the device and in the type that its weights have."""
        return Predictor(self.model, self.device)

    @property
    def device(self) -> torch.device:
        """Device of the model's weights."""
        return next(self.model.parameters()).device

    def predict(self, raws: Iterable[Any], batch_size: int = 32, names: Sequence[str] | None = None) -> list[Any]:
        """Predictions in the user's terms for raw examples, in order. Raises DataError for the first that fails.

        names: names of the examples, for the error. A warning is logged once if some are larger or smaller than all
        training examples were: a larger image than it was trained on gets a prediction, too.
        """
        inputs = (Input(f"example {i}" if names is None else names[i], raw) for i, raw in enumerate(raws))
        found: list[Any] = []
        for answer in predictions(self, inputs, batch_size=batch_size):
            if (fault := answer.error) is not None:
                raise DataError(fault if answer.name in fault else f"{answer.name}: {fault}")
            found.append(answer.prediction)
        return found

    def encode(self, raw: Any) -> Tokens:
        """Tokens of a raw example as the run's data had them, cut to `data.max_tokens`. Raises as the tokenizer."""
        tokens, most = self.tokenizer.encode(raw), self.config.get("data", {}).get("max_tokens")
        return tokens if most is None else self.tokenizer.cut(tokens, most)

    def unlike_training(self, tokens: Tokens) -> str:
        """Difference in size from all training examples, in words; empty if there is none."""
        ends, known = tokens.positions.amax(dim=0).tolist(), self.summary.get("extents", [])
        if tokens.parts:  # which may be absent
            known = [[0.0, high] for _, high in known]
        if len(known) != len(ends) or all(low <= end <= high for end, (low, high) in zip(ends, known)):
            return ""
        if len(ends) == 1 and tokens.positions[:, 0].equal(torch.arange(float(len(tokens)))):  # counted, not measured
            (low, high), n = known[0], len(tokens)
            known_lengths = f"{low + 1:g}" if low == high else f"{low + 1:g} to {high + 1:g}"
            return f"has {n} tokens, but those of training have {known_lengths}"
        ranges = ", ".join(f"{low:g}" if low == high else f"{low:g} to {high:g}" for low, high in known)
        return (
            f"has {len(tokens)} tokens, the last at position ({', '.join(f'{end:g}' for end in ends)}), but those of "
            f"training end at ({ranges})"
        )

    def _repr_html_(self) -> str:
        """The run in a notebook: its metrics beside the baseline's, and the learning curve.

        A notebook runs the scripts in what it shows, but none in a picture: the folder may be somebody else's.
        """
        baseline = self.summary.get("baseline", {})
        rows = [("test metric", self.summary["backbone"], "baseline")]
        for name, value in self.summary["metrics"].items():
            rows.append((name, f"{value:.4f}", f"{baseline[name]:.4f}" if name in baseline else "–"))
        cells = ("".join(f"<td>{escape(one_line(cell))}</td>" for cell in row) for row in rows)
        html = f"<p>{escape(one_line(self.summary['recipe']))}</p><table><tr>{'</tr><tr>'.join(cells)}</tr></table>"
        try:
            curve = b64encode(read_small(self.folder / CURVE, 2**24)).decode()
        except (OSError, DataError):
            return html
        return f'{html}<img style="background: white" src="data:image/svg+xml;base64,{curve}">'


TASKS = "tasks"
"""Folder of a mixture's run that holds the folders of its tasks."""


def task_folders(folder: Path) -> dict[str, Path]:
    """Folders of the tasks of a mixture's run, by name; empty for any other run."""
    if not (folder / CONFIG).is_file():
        return {}
    tasks = read_mapping(folder / CONFIG).get(TASKS)
    return {name: folder / TASKS / name for name in tasks} if isinstance(tasks, Mapping) else {}


def load_one(
    folder: str | Path, device: str | torch.device = "cpu", dtype: str | torch.dtype | None = None
) -> TrainedModel:
    """Model, tokenizer and objective of a run, in evaluation mode; the data set may be absent.

    device: device of the model, such as `cuda` or `mps`; `auto`: an accelerator if there is one, else `cpu`.
    dtype: type of the weights, such as `bfloat16`; None: as they were saved.
    Raises UsageError if the folder is no finished run or there is no such device; DataError if a file is damaged.
    """
    device = find_device(device)
    folder = Path(folder)
    check_trained(folder)
    check_no_links(folder)
    if places := task_folders(folder):
        raise UsageError(f"{folder} is a mixture of tasks; give one of them: {', '.join(map(str, places.values()))}")
    config = read_mapping(folder / CONFIG, "data", "model", "tokenizer")
    summary = read_summary(folder)
    state = read_mapping(folder / STATE, "objective", "tokenizer")
    check_as_trained(folder, summary)
    keys = ("tokenizer", "model")
    try:
        with naming_plugins(folder):
            built = build(complete({key: config[key] for key in keys}, only=keys))
    except UsageError as error:
        raise error if str(error).startswith(f"{folder} ") else UsageError(f"{folder / CONFIG}: {error}") from error
    if changed := changed_plugins(folder, config, partly=True):
        log.warning("%s since %s was trained: answers may be other ones", changed, folder)
    load_state(built, state)
    tokenizer, objective = built.tokenizer, built.model["objective"]
    try:
        model = build_model(built, tokenizer.spec)
    except UsageError as error:
        raise UsageError(f"{folder}: {error}") from error
    load_weights(model, folder / "checkpoints" / "model.safetensors", summary["sha256"])
    return TrainedModel(Predictor(model, device, dtype).model, tokenizer, objective, config, summary, folder)


def load_state(built: Built, state: Mapping[str, Any]) -> None:
    """Load the saved state of tokenizer and objective. Raises DataError if it is of another run."""
    try:
        if not all(isinstance(state[key], dict) for key in ("tokenizer", "objective")):
            raise TypeError("a state is keys with a value each")
        built.tokenizer.load_state(state["tokenizer"])
        built.model["objective"].load_state(state["objective"])
        built.model["objective"].read_from(built.tokenizer)
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"state.json does not fit the run ({described(error)}); copy the run again") from error


def state(folder: Path) -> str:
    """State of a run: `unfinished`, `trained` (not tested yet) or `finished`."""
    if not (folder / SUMMARY).is_file():
        return "unfinished"
    return str(read_mapping(folder / SUMMARY).get("state", "finished"))
