"""Fits after training: a linear model of a table's cells beside the network, and the temperature of a classifier.

k classes or outputs · m labels or rows · q inputs of the linear model
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from seqkit.interfaces import IGNORE, ModelInput, TokenBatch
from seqkit.nn.linear_cells import LinearCells
from seqkit.objectives.classify import Classify
from seqkit.runs.prepare import Prepared
from seqkit.runs.trained_model import Predictor

FEWEST = 30
"""Fewest labels of a validation split on which a temperature is fitted."""

RANGE = (1 / 16, 16.0)
"""Temperatures that are possible."""

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Penalties of squared weights that a linear model of cells may have."""

FEW, MAX_NUMBERS = 1_000, 2e7
"""Rows up to which each of five folds is held out to choose the penalty, else one; and most numbers of training rows
that the linear model reads."""

PRIOR = 10
"""Validation rows that equal shares of network and linear model weigh as much as."""


def add_linear_model(prepared: Prepared) -> float | None:
    """Fit a linear model of a table's cells, average it with the network, and return the network's share.

    Training rows alone fit the linear model and choose its penalty; the share is of least validation loss, and near a
    half where validation rows are few. None: there are no cells, or no validation.
    """
    model, data = prepared.model, prepared.data
    shortcut = None if prepared.tasks else model.shortcut
    loader = data.val_dataloader()
    if not isinstance(shortcut, LinearCells) or isinstance(loader, list):
        return None

    rows = islice(data.train_dataloader(), int(MAX_NUMBERS / len(shortcut.weight) / data.batch_size) + 1)
    x, target = _collected(prepared, rows, lambda task: (shortcut.inputs(task.batch), task.target))
    shortcut.weight.copy_(fitted(x, target, shortcut, data.objective))
    x, target, outputs = _collected(
        prepared, loader, lambda task: (shortcut.inputs(task.batch), task.target, model(task.batch).float())
    )
    linear = x @ shortcut.weight.cpu()

    def loss(share: float) -> float:
        return float(data.objective.loss(linear + share * (outputs - linear), target).loss)

    best = float(minimize_scalar(loss, bounds=(0, 1), method="bounded").x)
    share = (len(x) * best + PRIOR / 2) / (len(x) + PRIOR)
    shortcut.shares.copy_(torch.tensor([share, 1 - share]))
    return share


def fitted(x: Tensor, target: Tensor, shortcut: LinearCells, objective: Any) -> Tensor:
    """Weights [q k] from inputs [m q]; bins are left out where they do not lower the loss."""

    def fit(x: Tensor, target: Tensor, penalty: float) -> Tensor:
        weight = torch.zeros_like(shortcut.weight, device="cpu", requires_grad=True)
        optimizer = torch.optim.LBFGS([weight], max_iter=100, line_search_fn="strong_wolfe")

        def penalised() -> Tensor:
            optimizer.zero_grad()
            squares = weight[:-1].square().sum()  # without the intercept
            total: Tensor = objective.loss(x @ weight, target).loss + penalty * squares
            total.backward()
            return total

        optimizer.step(penalised)
        return weight.detach()

    def held_out(x: Tensor, penalty: float) -> float:
        fold = torch.arange(len(x)) % 5
        each = [fold == i for i in range(5 if len(x) <= FEW else 1)]
        return sum(float(objective.loss(x[o] @ fit(x[~o], target[~o], penalty), target[o]).loss) for o in each)

    choices = ((one, penalty) for one in (x.masked_fill(shortcut.is_bin(), 0.0), x) for penalty in PENALTIES)
    x, penalty = min(choices, key=lambda each: held_out(*each))
    return fit(x, target, penalty)


def calibrate(prepared: Prepared) -> float | None:
    """Divide a classifier's logits by the temperature of least validation loss (Guo et al. 2017, section 4.2).

    The head's last layer takes it, or the shares beside a linear model, so all that uses the weights has it; the
    likeliest classes stay. Returns the temperature; None: there is none, for want of `FEWEST` labels or of a linear
    last layer.
    """
    if prepared.tasks:
        return None
    objective, loader = prepared.data.objective, prepared.data.val_dataloader()
    head, shortcut = prepared.model.head, prepared.model.shortcut
    layer = getattr(head, "linear", None)
    if type(layer) is not nn.Linear or getattr(head, "softcap", None) is not None:  # no subclass: LoRA's has more in it
        return None
    if not isinstance(objective, Classify) or isinstance(loader, list):
        return None

    def outputs(task: ModelInput) -> tuple[Tensor, ...]:
        known = task.target != IGNORE
        return prepared.model(task.batch, task.masked)[known].double(), task.target[known]

    logits, labels = _collected(prepared, loader, outputs)
    if len(labels) < FEWEST:
        return None
    temperature = best_temperature(logits, labels)
    with torch.no_grad():
        for weight in [shortcut.shares] if isinstance(shortcut, LinearCells) else layer.parameters(recurse=False):
            weight.div_(temperature)
    return temperature


def _collected(
    prepared: Prepared, loader: Iterable[Any], compute: Callable[[ModelInput], tuple[Tensor, ...]]
) -> list[Tensor]:
    """Tensors that `compute` makes of each batch, joined, on the CPU."""

    def found(batch: TokenBatch, label: Tensor) -> list[Tensor]:
        return [x.cpu() for x in compute(prepared.data.objective.prepare(batch, label))]

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
