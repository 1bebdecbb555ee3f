"""The classical method that joins a trained network: a run predicts with both.

b batch · n nodes · k outputs
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Objective, Tokenizer
from seqkit.runs.folder import sha256
from seqkit.runs.summary import Summary

if TYPE_CHECKING:
    from seqkit.classical.member import Member, NodeMember
    from seqkit.classical.pool import Pool

log = logging.getLogger("seqkit")

FILE = "classical.skops"
"""File of a run folder that holds the fitted classical method."""


@dataclass(frozen=True)
class Joined:
    """A fitted classical method, and the weights of network and method (`seqkit.classical.pool`)."""

    member: Member | NodeMember
    pool: Pool
    objective: Objective

    def of(self, network: Tensor, raws: Sequence[Any]) -> Tensor:
        """Predictions of both from the network's, [b k], or [1 n k] for the nodes of one graph.

        raws: the raw examples. Raises ValueError where the method cannot read one.
        """
        from seqkit.classical.member import OtherGraphError

        try:
            classical = self.member.predict(raws)
        except OtherGraphError as error:
            log.warning("%s: the network predicts alone", error)
            return network
        return self.pool.of(network.cpu().float(), classical.reshape(network.shape), self.objective)


def saved(joined: Joined, folder: Path) -> str:
    """Write the method into a run folder, and give the SHA-256 of its file."""
    from seqkit.classical.stored import save

    save(joined.member, folder / FILE)
    return sha256(folder / FILE)


def loaded(
    folder: Path, summary: Summary, tokenizer: Tokenizer, objective: Objective
) -> Joined | None:
    """The classical method of a run; None: its network predicts alone. Raises DataError if its file is damaged."""
    known = summary.joined
    if known is None:
        return None
    from seqkit.classical.pool import Pool
    from seqkit.classical.stored import load

    path = folder / FILE
    if not path.is_file():
        raise DataError(f"{path} is missing; copy the run again")
    if sha256(path) != known.sha256:
        raise DataError(
            f"{path} has changed since training: its SHA-256 is not the one in summary.json"
        )
    member = load(path, objective, tokenizer)
    return Joined(member, Pool(known.network_weight, known.classical_weight), objective)


def network_alone(summary: Summary, what: str) -> str:
    """A sentence that something is of the network alone, for a run whose predictions are not; else empty."""
    known = summary.joined
    if known is None:
        return ""
    return f"{what} is of the network alone; the run predicts with it and {known.name}."
