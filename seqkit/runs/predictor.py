"""A trained model at work: batches to its device, in evaluation mode, without gradients.

b batch · n tokens
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from seqkit.errors import UsageError, is_out_of_memory, one_line
from seqkit.generation.decode import evaluating
from seqkit.interfaces import LabeledBatch, LossOutput, Objective, TokenBatch, Tokens
from seqkit.model import Model

Result = TypeVar("Result")


class Predictor:
    """Runs computations with a model.

    device: name of the device of the model, to which every batch is moved; `auto`: an accelerator if there is one, else
    `cpu`. dtype: type of the weights, such as `bfloat16`; None: as they are.
    Raises UsageError if this machine has no such device.
    """

    def __init__(self, model: Model, device: str | torch.device = "cpu", dtype: str | torch.dtype | None = None):
        weights = getattr(torch, dtype) if isinstance(dtype, str) else dtype
        found = find_device(device) if isinstance(device, str) else device
        self.model = model.eval().to(found, weights)

    @property
    def device(self) -> torch.device:
        """Device of the model's weights."""
        return next(self.model.parameters()).device

    def run(self, compute: Callable[..., Result], batch: TokenBatch, label: Tensor | None = None) -> Result:
        """Result of `compute` for a batch, and of its label if there is one, on the model's device."""
        given = [batch.to(self.device)] if label is None else [batch.to(self.device), label.to(self.device)]
        with torch.inference_mode(), evaluating(self.model):
            return compute(*given)

    def step(self, objective: Objective, batch: LabeledBatch) -> LossOutput:
        """Output of an objective's step, its tensors on the CPU."""
        output = self.run(lambda *moved: objective.step(self.model, (*moved, None)[:2]), *batch)
        values = {field.name: getattr(output, field.name) for field in fields(output)}
        here: dict[str, Any] = {name: value.cpu() for name, value in values.items() if isinstance(value, Tensor)}
        return replace(output, **here)

    def answers(self, compute: Callable[[TokenBatch], Sequence[Any]], examples: Sequence[Tokens]) -> list[Any]:
        """Answers of `compute` to the examples of one batch; for one that fails, the reason (a string).

        If the batch fails, each example is tried alone, so that the others have their answers.
        """
        if not examples:
            return []
        try:
            return list(self.run(compute, TokenBatch.collate(examples)))
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
