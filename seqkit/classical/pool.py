"""Pool of a network and a classical method: two weights, chosen on validation rows.

The logarithmic pool of classes is p ~ p_network^a p_classical^b (Genest & Zidek 1986, "Combining probability
distributions", section 3). The weights need not sum to 1: two temperatures and a share in two numbers, they also undo
a wrong scale of a member, and too little confidence of both (Satopää et al. 2014, "Combining multiple probability
predictions using a simple logit model").

m rows: examples or nodes · k classes, labels or targets
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import IGNORE
from seqkit.interfaces.finite import flaw
from seqkit.objectives import Classify, Regress

EQUAL = 0.5
"""Each weight before any validation row is seen."""

PRIOR = 5.0
"""Prior for `EQUAL`: 1 / variance of a weight of classes or labels; for numbers, the rows that it counts as."""


class Pool(NamedTuple):
    """Weights of a network and of a classical method, both at least 0.

    >>> zeros, ones = torch.zeros(1, 2), torch.ones(1, 2)
    >>> Pool(0.25, 0.75).of(zeros, ones, Regress())
    tensor([[0.7500, 0.7500]])
    """

    network: float
    classical: float

    def of(self, network: Tensor, classical: Tensor, objective: Any) -> Tensor:
        """Outputs of both [... k], as a head gives them: logits of classes or labels, or standardised numbers.

        A member whose weight is 1 beside 0 gives its own outputs bit for bit. network, classical: [... k].
        Raises DataError where the outputs of a classical method that has a weight are not finite.
        """
        if self == (1.0, 0.0):
            return network
        _check(classical, "classical method")
        if self == (0.0, 1.0):
            return classical
        if isinstance(objective, Classify):
            network = network.log_softmax(dim=-1)
            classical = classical.log_softmax(dim=-1)
        return self.network * network + self.classical * classical


def fitted(network: Tensor, classical: Tensor, target: Tensor, objective: Any) -> Pool:
    """The likeliest pool, given rows [m k] on which neither member was fitted and their targets [m] or [m k].

    Weights of classes or labels are the least of m x mean loss + `PRIOR` / 2 x ((a - 1/2)^2 + (b - 1/2)^2). Numbers
    have shares, a + b = 1, of least training loss, of which `PRIOR` more rows had equal ones. So weights are near a
    half if there are few rows, and equal without any: either member alone may be useless.
    Unknown targets are left out. Raises DataError where outputs are not finite.
    """
    of_classes = isinstance(objective, Classify)
    rows = target != IGNORE if of_classes else (~target.isnan()).any(dim=1)
    m = int(rows.sum())
    if m == 0:
        return Pool(EQUAL, EQUAL)
    target = target[rows]
    members = torch.stack([network[rows].double(), classical[rows].double()])
    for values, name in zip(members, ("network", "classical method")):
        _check(values, name)
    if of_classes:
        members = members.log_softmax(dim=-1)

    def loss(weights: Tensor) -> Tensor:
        return _mean_loss(torch.tensordot(weights, members, dims=1), target, objective)

    def loss_of_share(share: float) -> float:
        return float(loss(torch.tensor([share, 1 - share], dtype=torch.float64)))

    def penalised(weights: np.ndarray) -> tuple[float, np.ndarray]:
        tried = torch.tensor(weights, requires_grad=True)
        total = loss(tried) + PRIOR / (2 * m) * (tried - EQUAL).square().sum()
        total.backward()
        assert tried.grad is not None
        return float(total.detach()), tried.grad.numpy()

    if isinstance(objective, Regress):
        best = minimize_scalar(loss_of_share, bounds=(0, 1), method="bounded").x
        share = (m * float(best) + PRIOR * EQUAL) / (m + PRIOR)
        return Pool(share, 1 - share)
    found = minimize(penalised, [EQUAL] * 2, jac=True, method="L-BFGS-B", bounds=[(0, None)] * 2)
    return Pool(*map(float, found.x))


def _mean_loss(outputs: Tensor, target: Tensor, objective: Any) -> Tensor:
    """Mean training loss, without label smoothing: where all answers are right, it favours the less certain member."""
    if isinstance(objective, Classify):
        weights = outputs.new_tensor(objective.weights) if objective.weights else None
        return F.cross_entropy(outputs, target, weights, reduction="sum") / len(target)
    found = objective.loss(outputs, target, training=True)
    mean: Tensor = found.loss / found.count
    return mean


def _check(values: Tensor, name: str) -> None:
    """Raise DataError if outputs of a member are not finite."""
    if what := flaw(values):
        raise DataError(
            f"the {name} predicts {what}, which nothing can be pooled with; train again, or give --classical off"
        )
