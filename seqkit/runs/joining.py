"""Finding the classical method that joins a trained network, and the weights of both.

m examples or nodes · k outputs
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqkit.data.notes import Caution
from seqkit.errors import one_line
from seqkit.objectives.labels import LabelObjective
from seqkit.runs.calibration import collected
from seqkit.runs.joined import Joined
from seqkit.runs.prepare import Prepared
from seqkit.runs.summary import JoinedMethod

if TYPE_CHECKING:
    from seqkit.classical.strong_baseline import Found
    from seqkit.data.module import DataModule

log = logging.getLogger("seqkit")


def join(prepared: Prepared) -> tuple[Joined, JoinedMethod] | None:
    """The classical method that joins a trained network, and its entry in the summary; None: there is none.

    Its weights are fitted on the validation split, for which the method is fitted on the training split alone.
    """
    data = prepared.data
    loader = data.val_dataloader()
    if not isinstance(data.objective, LabelObjective) or not loader:
        return None
    with data.notes.kept(), tolerant("classical method"):
        found = found_for(data)
        if found is None or found.member is None or found.valid is None:
            return None
        return _joined(prepared, found)
    return None


def _joined(prepared: Prepared, found: Found) -> tuple[Joined, JoinedMethod]:
    from seqkit.classical.pool import fitted

    objective = prepared.data.objective
    loader = prepared.data.val_dataloader()
    network, target = collected(
        prepared, loader, lambda inputs, prediction: (prediction.float(), inputs.target)
    )
    network, target = in_order(network, target, loader)
    assert found.member is not None
    assert found.valid is not None
    pool = fitted(network, found.valid, target, objective)
    log.info(
        "joined by %s in %.1f s: weights %.2f of the network, %.2f of the method",
        found.name,
        found.seconds,
        *pool,
    )
    entry = JoinedMethod(
        name=found.name,
        num_train=found.num_train,
        seconds=found.seconds,
        network_weight=pool.network,
        classical_weight=pool.classical,
    )
    return Joined(found.member, pool, objective), entry


def found_for(data: DataModule) -> Found | None:
    """The best classical method for a run's data; None: there is none. No random number of the run is drawn."""
    from seqkit.classical.strong_baseline import strong_baseline

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return strong_baseline(data)


@contextmanager
def tolerant(what: str) -> Iterator[None]:
    """A run needs no such thing: where it fails, the log says why."""
    try:
        yield
    except Exception as error:  # whatever it makes of a user's own data or objective
        log.warning(Caution(f"no {what}: {one_line(f'{error}')[:300]}"))


def in_order(outputs: Tensor, target: Tensor, loader: Any) -> tuple[Tensor, Tensor]:
    """Outputs and targets of a loader's batches, joined, in the order of its examples; of nodes, without batch axis."""
    if outputs.ndim == 3:  # nodes of one graph
        return outputs[0], target[0]
    places = torch.tensor([i for batch in loader.batch_indices() for i in batch])
    order = places.argsort()
    return outputs[order], target[order]
