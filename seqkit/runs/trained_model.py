"""A trained model with its tokenizer and objective, taken back from a run folder; no data set needed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqkit.config import build, build_model, complete
from seqkit.data.dataset import raised_by
from seqkit.errors import DataError, UsageError, is_out_of_memory
from seqkit.files import read_mapping
from seqkit.interfaces import Objective, TokenBatch, Tokenizer, Tokens
from seqkit.model import Model
from seqkit.runs.folder import sha256
from seqkit.runs.fragment import metrics_fragment, read_fragment
from seqkit.runs.summary import check_trained, read_summary
from seqkit.training.checkpoint import load_weights

log = logging.getLogger("seqkit")


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

    @torch.inference_mode()
    def predict(self, raws: Iterable[Any], batch_size: int = 32, names: Sequence[str] | None = None) -> list[Any]:
        """Predictions in the user's terms for raw examples, in order. Raises DataError for one that cannot be encoded.

        names: of the examples, for the error. A warning is logged once where some are larger or smaller than all
        training examples were: a larger image than it was trained on gets a prediction, too.
        """
        tokens: list[Tokens] = []
        unusual: list[str] = []
        for i, raw in enumerate(raws):
            name = f"example {i}" if names is None else names[i]
            try:
                tokens.append(self.encode(raw))
            except DataError as error:
                raise error if name in str(error) else DataError(f"{name}: {error}") from error
            except Exception as error:  # a plug-in's own code: whatever it raises
                if is_out_of_memory(error):
                    raise
                raise DataError(f"{name}: {raised_by(self.tokenizer, error)}") from error
            if difference := self.unlike_training(tokens[-1]):
                unusual.append(f"{name} {difference}")
        if unusual:
            more = f" (and {len(unusual) - 1} more)" if unusual[1:] else ""
            log.warning("%s; do not rely on the prediction%s", unusual[0], more)
        predictions: list[Any] = []
        for start in range(0, len(tokens), batch_size):
            batch = TokenBatch.collate(tokens[start : start + batch_size])
            predictions += per_example(self.objective, self.objective.predict(self.model, batch), batch)
        return predictions

    def encode(self, raw: Any) -> Tokens:
        """Tokens of a raw example as the run's data had them, cut to `data.max_tokens`. Raises as the tokenizer."""
        tokens, most = self.tokenizer.encode(raw), self.config.get("data", {}).get("max_tokens")
        return tokens if most is None else tokens.first(most)

    def unlike_training(self, tokens: Tokens) -> str:
        """How the example differs in size from all training examples, or nothing."""
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

    def _repr_html_(self) -> str:
        """The run as a table with curves, for notebooks: the fragment that the report wrote, else its metrics."""
        return read_fragment(self.folder / "summary.html") or metrics_fragment(self.summary.get("metrics", {}))


def per_example(objective: Objective, prediction: Any, batch: TokenBatch) -> list[Any]:
    """A prediction in the user's terms, one entry per example; of a prediction per token without that of padding."""
    decoded = objective.decode(prediction)
    if getattr(objective, "level", "sequence") != "token":
        return decoded
    return [one[:length] for one, length in zip(decoded, batch.valid.sum(dim=1).tolist())]


def load(folder: str | Path) -> TrainedModel:
    """Model, tokenizer and objective of a run, in evaluation mode; the data set may be absent.

    Raises UsageError if the folder is no finished run; DataError if one of its files is damaged.
    """
    folder = Path(folder)
    check_trained(folder)
    config = read_mapping(folder / "config.yaml", "data", "model", "tokenizer")
    summary = read_summary(folder)
    state = read_mapping(folder / "state.json", "objective", "tokenizer")
    for name in ("config", "state"):
        file = folder / {"config": "config.yaml", "state": "state.json"}[name]
        if summary.get(f"{name}_sha256", digest := sha256(file)) != digest:
            raise DataError(f"{file} has changed since training: its SHA-256 is not the one in summary.json")
    keys = ("tokenizer", "model")
    try:
        built = build(complete({key: config[key] for key in keys}, only=keys))
    except UsageError as error:
        raise UsageError(f"{folder / 'config.yaml'}: {error}") from error
    tokenizer, objective = built.tokenizer, built.model["objective"]
    try:
        if not all(isinstance(state[key], dict) for key in ("tokenizer", "objective")):
            raise TypeError("a state is keys with a value each")
        tokenizer.load_state(state["tokenizer"])
        objective.load_state(state["objective"])
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{folder / 'state.json'} does not fit the run ({error!r}); copy the run again") from error
    try:
        model = build_model(built, tokenizer.spec)
    except UsageError as error:
        raise UsageError(f"{folder}: {error}") from error
    load_weights(model, folder / "checkpoints" / "model.safetensors", summary["sha256"])
    return TrainedModel(model.eval(), tokenizer, objective, config, summary, folder)


def state(folder: Path) -> str:
    """`trained` where the test is still to come, `finished` after it, `unfinished` before."""
    if not (folder / "summary.json").is_file():
        return "unfinished"
    return str(read_mapping(folder / "summary.json").get("state", "finished"))
