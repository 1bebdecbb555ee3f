"""Trained models with tokenizer and objective, loaded from run folders, and at work on a device.

b batch · n tokens
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from seqkit.config import Built, Config, build, build_model, complete
from seqkit.config.merge import MODEL_KEYS
from seqkit.data.inputs import Input, nested, schema_of
from seqkit.errors import DataError, UsageError, described, is_out_of_memory, one_line
from seqkit.files import read_mapping
from seqkit.generation.decode import evaluating
from seqkit.interfaces import LabeledBatch, LossOutput, Objective, TokenBatch, Tokenizer, Tokens
from seqkit.model import Model
from seqkit.objectives.labels import LabelObjective
from seqkit.pretrained.folder import published
from seqkit.pretrained.generation_config import Published
from seqkit.registry.commands import command
from seqkit.runs.answers import predictions
from seqkit.runs.folder import (
    CONFIG,
    STATE,
    as_seen_from_here,
    changed_plugins,
    check_as_trained,
    check_no_links,
    missing_plugins,
)
from seqkit.runs.joined import Joined, loaded
from seqkit.runs.summary import Summary, check_trained, read_summary, task_folders
from seqkit.tokenizers.from_file import FromFile
from seqkit.training.weights import load_weights

log = logging.getLogger("seqkit")

Result = TypeVar("Result")


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with its tokenizer and objective, ready to use; no data set needed.

    config: the run's complete configuration. summary: what `summary.json` says. folder: the run's.
    """

    model: Model
    tokenizer: Tokenizer
    objective: Objective
    config: Config
    summary: Summary
    folder: Path

    @property
    def predictor(self) -> Predictor:
        """The model at work, on its device and in its type."""
        return Predictor(self.model)

    @property
    def device(self) -> torch.device:
        """Device of the model's weights."""
        return next(self.model.parameters()).device

    @cached_property
    def joined(self) -> Joined | None:
        """The classical method that joins the network; None: it predicts alone. Raises DataError as `loaded`."""
        return loaded(self.folder, self.summary, self.tokenizer, self.objective)

    @property
    def published(self) -> Published:
        """How the model that a run began with was published to write; empty where ids mean something else by now.

        Raises DataError if its file is damaged.
        """
        tokenizer = getattr(self.objective, "target", None) or self.tokenizer
        if not isinstance(tokenizer, FromFile):
            return Published()
        return published(self.folder).of_ids_below(tokenizer.vocab_size)

    def outputs(self, batch: TokenBatch, raws: Sequence[Any]) -> Tensor:
        """Input of the objective's `decode`: what the network gives, and the classical method if one joins it.

        raws: the raw examples of the batch.
        """
        prediction = self.objective.predict(self.model, batch)
        return prediction if self.joined is None else self.joined.of(prediction, raws)

    def step(self, batch: LabeledBatch, raws: Sequence[Any]) -> LossOutput:
        """Output of the objective's step, on the CPU, for the predictions of network and classical method."""
        output = self.predictor.step(self.objective, batch)
        if self.joined is None:
            return output
        assert isinstance(self.objective, LabelObjective)
        assert output.prediction is not None
        assert output.inputs is not None
        both = self.joined.of(output.prediction, raws)
        found = self.objective.loss(both, output.inputs.target.cpu())
        return replace(found, inputs=output.inputs, prediction=both)

    def predict(
        self, raws: Iterable[Any], batch_size: int = 32, names: Sequence[str] | None = None
    ) -> list[Any]:
        """Predictions in the user's terms for raw examples, in order. Raises DataError for the first that fails.

        The row of a table may map its columns, as over HTTP, or parts, as the tokenizer has it.
        names: names of the examples, for the error. A warning is logged once if some are larger or smaller than all
        training examples were: a larger image than it was trained on gets a prediction, too.
        """
        schema = schema_of(self.config)

        def given(name: str, raw: Any) -> Input:
            try:
                return Input(name, nested(raw, schema, self.tokenizer))
            except DataError as error:
                return Input(name, error=str(error))

        inputs = (
            given(f"example {i}" if names is None else names[i], raw) for i, raw in enumerate(raws)
        )
        found: list[Any] = []
        for answer in predictions(self, inputs, batch_size=batch_size):
            if (fault := answer.error) is not None:
                raise DataError(fault if answer.name in fault else f"{answer.name}: {fault}")
            found.append(answer.prediction)
        return found

    def encode(self, raw: Any) -> Tokens:
        """Tokens of a raw example as the run's data had them, cut to `data.max_tokens`. Raises as the tokenizer."""
        tokens = self.tokenizer.encode(raw)
        most = self.config.get("data", {}).get("max_tokens")
        if most is None:
            return tokens
        return self.tokenizer.cut(tokens, most)

    def unlike_training(self, tokens: Tokens) -> str:
        """Difference in size from all training examples, in words; empty if there is none."""
        ends = tokens.positions.amax(dim=0).tolist()
        known = self.summary.extents
        if tokens.parts:  # which may be absent
            known = [(0.0, high) for _, high in known]
        if len(known) != len(ends) or all(
            low <= end <= high for end, (low, high) in zip(ends, known)
        ):
            return ""
        last = ", ".join(f"{end:g}" for end in ends)
        ranges = ", ".join(
            f"{low:g}" if low == high else f"{low:g} to {high:g}" for low, high in known
        )
        return f"has {len(tokens)} tokens, the last at position ({last}), but those of training end at ({ranges})"


def load_one(
    folder: str | Path, device: str | torch.device = "cpu", dtype: str | torch.dtype | None = None
) -> TrainedModel:
    """Model, tokenizer and objective of a run, in evaluation mode; the data set may be absent.

    device: device of the model, such as `cuda` or `mps`; `auto`: an accelerator if there is one, else `cpu`.
    dtype: type of the weights, such as `bfloat16`; `auto`: bfloat16 for a model that generates, on a GPU that computes
    in it; None: as they were saved.
    Raises UsageError if the folder is no finished run or there is no such device; DataError if a file is damaged.
    """
    device = find_device(device)
    folder = Path(folder)
    check_trained(folder)
    check_no_links(folder)
    if places := task_folders(folder):
        raise UsageError(
            f"{folder} is a mixture of tasks; give one of them: {', '.join(map(str, places.values()))}"
        )
    config = Config(read_mapping(folder / CONFIG, "data", "model", "tokenizer"))
    summary = read_summary(folder)
    if summary.get("network_share") is not None:
        raise UsageError(
            f"{folder} is averaged with a linear model, as earlier versions put it beside the network; train again "
            f"with: {command('fit', folder / CONFIG)}"
        )
    state = read_mapping(folder / STATE, "objective", "tokenizer")
    check_as_trained(folder, summary.digests)
    try:
        built = build(complete({key: config[key] for key in MODEL_KEYS}, only=MODEL_KEYS))
        load_state(built, state)
        model = build_model(built, built.tokenizer.spec)
    except UsageError as error:
        raise UsageError(f"{folder / CONFIG}: {error}{missing_plugins(folder)}") from error
    if changed := changed_plugins(folder, config):
        log.warning(
            "the plug-in %s has changed since %s was trained: answers may be other ones",
            ", ".join(changed),
            folder,
        )
    load_weights(model, folder / "checkpoints" / "model.safetensors", summary.sha256)
    objective: Objective = built.model["objective"]
    if dtype == "auto":
        dtype = "bfloat16" if _generates_in_bfloat16(objective, device) else None
    model = model.eval().to(device, getattr(torch, dtype) if isinstance(dtype, str) else dtype)
    config = as_seen_from_here(config, folder)
    return TrainedModel(model, built.tokenizer, objective, config, summary, folder)


def _generates_in_bfloat16(objective: Objective, device: torch.device) -> bool:
    """Whether steps of generation, which take as long as reading the weights, may read half as much. Vectors and
    predictions keep their digits."""
    if not (objective.causal or objective.target_spec is not None) or device.type != "cuda":
        return False
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        return False
    log.warning(
        "weights are in bfloat16 on this GPU; give --dtype float32 for those that were trained"
    )
    return True


def load_state(built: Built, state: Mapping[str, Any], task: str | None = None) -> None:
    """Load the saved state of tokenizer and objective, of a mixture's those of a task. Raises DataError if it is of
    another run."""
    try:
        state = state if task is None else state["tasks"][task]
        if not all(isinstance(state[key], dict) for key in ("tokenizer", "objective")):
            raise TypeError("a state is keys with a value each")
        built.tokenizer.load_state(state["tokenizer"])
        built.model["objective"].load_state(state["objective"])
        built.model["objective"].read_from(built.tokenizer)
    except UsageError:
        raise
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"state.json does not fit the run ({described(error)}); copy the run again"
        ) from error


class Predictor:
    """Runs computations with a model, in evaluation mode and without gradients, on batches moved to its device."""

    def __init__(self, model: Model):
        self.model = model

    @property
    def device(self) -> torch.device:
        """Device of the model's weights."""
        return next(self.model.parameters()).device

    def run(
        self, compute: Callable[..., Result], batch: TokenBatch, label: Tensor | None = None
    ) -> Result:
        """Result of `compute` for a batch, and of its label if there is one, on the model's device."""
        given: list[Any] = [batch.to(self.device)]
        if label is not None:
            given.append(label.to(self.device))
        with torch.inference_mode(), evaluating(self.model):
            return compute(*given)

    def step(self, objective: Objective, batch: LabeledBatch) -> LossOutput:
        """Output of an objective's step, its tensors on the CPU."""
        output = self.run(lambda *moved: objective.step(self.model, (*moved, None)[:2]), *batch)
        values = {field.name: getattr(output, field.name) for field in fields(output)}
        here: dict[str, Any] = {
            name: value.cpu() for name, value in values.items() if isinstance(value, Tensor)
        }
        return replace(output, **here)

    def answers(
        self,
        compute: Callable[[TokenBatch, Sequence[Any]], Sequence[Any]],
        examples: Sequence[tuple[Tokens, Any]],
    ) -> list[Any]:
        """Answers of `compute` to the examples of one batch, given as tokens and raw; for one that fails, the reason.

        If the batch fails, each example is tried alone, so that the others have their answers.
        """
        if not examples:
            return []
        try:
            tokens, raws = zip(*examples)
            return list(self.run(lambda batch: compute(batch, raws), TokenBatch.collate(tokens)))
        except UsageError:
            raise
        except (ValueError, RuntimeError, MemoryError) as error:
            if not isinstance(error, ValueError) and not is_out_of_memory(error):
                raise
            if len(examples) == 1:
                return [f"not enough memory: {error}" if is_out_of_memory(error) else str(error)]
        return [found for one in examples for found in self.answers(compute, [one])]


def find_device(name: str | torch.device) -> torch.device:
    """Device of this name; of `auto`, the accelerator if there is one. Raises UsageError if this machine has none."""
    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).tolist()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(
            f"device {name} cannot be used here ({one_line(error)[:100]}); give auto, cpu, cuda or mps"
        ) from error
    return device
