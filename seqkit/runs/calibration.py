"""Temperature of a trained classifier, so that its confidence is the share of its answers that are right.

k classes · m labels
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from seqkit.interfaces import IGNORE, ModelInput
from seqkit.objectives.classify import Classify
from seqkit.runs.prepare import Prepared
from seqkit.runs.trained_model import Predictor

FEWEST = 30
"""Fewest labels of a validation split on which a temperature is fitted."""

RANGE = (1 / 16, 16.0)
"""Temperatures that are possible."""


def calibrate(prepared: Prepared) -> float | None:
    """Divide a classifier's logits by the temperature of least validation loss (Guo et al. 2017, section 4.2).

    The head's last layer takes it, so all that uses the weights has it; the likeliest classes stay. Returns the
    temperature; None: there is none, for want of `FEWEST` labels or of a linear last layer.
    """
    if prepared.tasks:
        return None
    objective = prepared.data.objective
    loader = prepared.data.val_dataloader()
    head = prepared.model.head
    layer = getattr(head, "linear", None)
    # no subclass: LoRA's has more in it
    if type(layer) is not nn.Linear or getattr(head, "softcap", None) is not None:
        return None
    if not isinstance(objective, Classify) or isinstance(loader, list):
        return None

    def outputs(inputs: ModelInput, prediction: Tensor) -> tuple[Tensor, ...]:
        known = inputs.target != IGNORE
        return prediction[known].double(), inputs.target[known]

    logits, labels = collected(prepared, loader, outputs)
    if len(labels) < FEWEST:
        return None
    temperature = best_temperature(logits, labels)
    with torch.no_grad():
        for weight in layer.parameters(recurse=False):
            weight.div_(temperature)
    return temperature


def collected(
    prepared: Prepared,
    loader: Iterable[Any],
    compute: Callable[[ModelInput, Tensor], tuple[Tensor, ...]],
) -> list[Tensor]:
    """Tensors that `compute` makes of the inputs and the prediction of each batch, joined, on the CPU."""
    objective = prepared.data.objective

    def found(*batch: Any) -> list[Tensor]:
        return [x.cpu() for x in compute(*objective.predicted(prepared.model, batch))]

    each = [Predictor(prepared.model).run(found, *batch) for batch in loader]
    return [torch.cat(x) for x in zip(*each, strict=True)]


def best_temperature(logits: Tensor, labels: Tensor) -> float:
    """Temperature in `RANGE` by which logits [m k] are divided for the least cross-entropy of the labels [m].

    A share of 1 / (m + 2) of each label is spread over all classes, as in Platt (1999): where all answers are right,
    the temperature would be 0 otherwise.
    """
    smoothing = 1 / (len(labels) + 2)

    def loss(log_temperature: float) -> float:
        scaled = logits / math.exp(log_temperature)
        return float(nn.functional.cross_entropy(scaled, labels, label_smoothing=smoothing))

    low, high = map(math.log, RANGE)
    return math.exp(float(minimize_scalar(loss, bounds=(low, high), method="bounded").x))
