"""Fit of the linear model of a table's cells that is averaged with a trained network.

m rows · k outputs · q inputs
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from seqkit.objectives.linear_cells import LinearCells
from seqkit.runs.calibration import collected
from seqkit.runs.prepare import Prepared

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Penalties of squared weights that a linear model of cells may have."""

FEW = 1_000
MAX_NUMBERS = 2e7
"""Rows up to which each of five folds is held out to choose the penalty, else one; and most numbers of training rows
that the linear model reads."""

PRIOR = 10
"""Validation rows that equal shares of network and linear model weigh as much as."""


def add_linear_model(prepared: Prepared) -> float | None:
    """Fit a linear model of a table's cells, average it with the network, and return the network's share.

    Training rows alone fit the linear model and choose its penalty; the share is of least validation loss, and near a
    half where validation rows are few. Each loss is that of training, with the weights of the classes. None: there are
    no cells, or no validation.
    """
    model = prepared.model
    data = prepared.data
    shortcut = None if prepared.tasks else model.shortcut
    loader = data.val_dataloader()
    if not isinstance(shortcut, LinearCells) or isinstance(loader, list):
        return None

    rows = islice(
        data.train_dataloader(), int(MAX_NUMBERS / len(shortcut.weight) / data.batch_size) + 1
    )
    x, target = collected(prepared, rows, lambda task: (shortcut.inputs(task.batch), task.target))
    shortcut.weight.copy_(fitted(x, target, shortcut, data.objective))
    x, target, outputs = collected(
        prepared,
        loader,
        lambda task: (shortcut.inputs(task.batch), task.target, model(task.batch).float()),
    )
    linear = x @ shortcut.weight.cpu()

    def loss(share: float) -> float:
        averaged = linear + share * (outputs - linear)
        return float(data.objective.loss(averaged, target, training=True).loss)

    best = float(minimize_scalar(loss, bounds=(0, 1), method="bounded").x)
    share = (len(x) * best + PRIOR / 2) / (len(x) + PRIOR)
    shortcut.shares.copy_(torch.tensor([share, 1 - share]))
    return share


def fitted(x: Tensor, target: Tensor, shortcut: LinearCells, objective: Any) -> Tensor:
    """Weights [q k] from inputs [m q]; bins are left out where they do not lower the loss."""

    def loss(outputs: Tensor, target: Tensor) -> Tensor:
        found: Tensor = objective.loss(outputs, target, training=True).loss
        return found

    def fit(x: Tensor, target: Tensor, penalty: float) -> Tensor:
        weight = torch.zeros_like(shortcut.weight, device="cpu", requires_grad=True)
        optimizer = torch.optim.LBFGS([weight], max_iter=100, line_search_fn="strong_wolfe")

        def penalised() -> Tensor:
            optimizer.zero_grad()
            squares = weight[:-1].square().sum()  # without the intercept
            total = loss(x @ weight, target) + penalty * squares
            total.backward()
            return total

        optimizer.step(penalised)
        return weight.detach()

    def held_out(x: Tensor, penalty: float) -> float:
        fold = torch.arange(len(x)) % 5
        each = [fold == i for i in range(5 if len(x) <= FEW else 1)]
        return sum(float(loss(x[o] @ fit(x[~o], target[~o], penalty), target[o])) for o in each)

    choices = (
        (one, penalty)
        for one in (x.masked_fill(shortcut.is_bin(), 0.0), x)
        for penalty in PENALTIES
    )
    x, penalty = min(choices, key=lambda each: held_out(*each))
    return fit(x, target, penalty)
