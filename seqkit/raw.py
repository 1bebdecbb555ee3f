"""Types of raw examples that torch has none for: audio, graphs and dates, as sources give and tokenizers take them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import NamedTuple

import torch
from torch import Tensor

from seqkit.errors import DataError


def describe_tensor(x: Tensor) -> str:
    """Shape and dtype as errors say them, such as "[2, 3] int64"."""
    return f"{list(x.shape)} {str(x.dtype).removeprefix('torch.')}"


class Waveform(NamedTuple):
    """Audio at its own sample rate.

    samples: [t] or [c t] float, amplitude in [-1, 1]. sample_rate: in Hz.
    """

    samples: Tensor
    sample_rate: int


class Years(float):
    """A date in years since 1970, as the model gets it; as text it is a date again, as ISO 8601 writes it."""

    __slots__ = ()

    @classmethod
    def of(cls, day: date) -> Years:
        """A date, with its time if it has one: in UTC where it says its distance from it, else as it stands."""
        moment = datetime.fromisoformat(day.isoformat())
        since = moment.replace(tzinfo=None) - datetime(1970, 1, 1)
        since -= moment.utcoffset() or timedelta()
        return cls(since / timedelta(days=365.2425))

    def __str__(self) -> str:
        # a float64 of years holds no finer time
        milliseconds = round(self * 365.2425 * 86_400_000)
        found = datetime(1970, 1, 1) + timedelta(milliseconds=milliseconds)
        return found.isoformat(" ").removesuffix(" 00:00:00")


@dataclass(frozen=True, slots=True)
class GraphData:
    """A graph with node features or categories, and with edge types if it has them.

    nodes: [n f] float features, f = 0 for nodes without any; or [n] int64 >= 0, a category each.
    edges: [2 e] int64 node indices (source, target), as PyG's `edge_index`.
    edge_types: [e] int64 >= 0, or None: all of one type. directed: False: an edge goes both ways, listed once or twice.
    edge_features: [e k] float vectors of the edges, or None.
    Raises DataError where there are no nodes, an edge names a node that is not there, or a field has another shape or
    dtype.
    """

    nodes: Tensor
    edges: Tensor
    edge_types: Tensor | None = None
    directed: bool = False
    edge_features: Tensor | None = None

    def __post_init__(self) -> None:
        nodes = self.nodes
        edges = self.edges
        types = self.edge_types
        vectors = self.edge_features
        features = nodes.ndim == 2 and nodes.is_floating_point()
        if not features and not (nodes.ndim == 1 and nodes.dtype == torch.int64):
            raise DataError(
                f"nodes are {describe_tensor(nodes)}; give [n f] float features or [n] int64 categories"
            )
        n = len(nodes)
        if n == 0:
            raise DataError("the graph has no nodes; drop it")
        if features:
            _check_finite(nodes, "node")
        elif int(nodes.min()) < 0:
            raise DataError(f"a node has category {int(nodes.min())}; categories count from 0")
        if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype != torch.int64:
            raise DataError(
                f"edges are {describe_tensor(edges)}; give [2 e] int64, a column (source, target) per edge"
            )
        unknown = edges[(edges < 0) | (edges >= n)]
        if len(unknown):
            raise DataError(
                f"an edge names node {int(unknown[0])}, but there are nodes 0 to {n - 1}"
            )
        if types is not None and (types.shape != edges.shape[1:] or types.dtype != torch.int64):
            raise DataError(
                f"edge_types are {describe_tensor(types)}; give [{edges.shape[1]}] int64, one per edge"
            )
        if types is not None and len(types) and int(types.min()) < 0:
            raise DataError(f"an edge has type {int(types.min())}; types count from 0")
        if vectors is None:
            return
        if vectors.ndim != 2 or len(vectors) != edges.shape[1]:
            raise DataError(
                f"edge_features are {describe_tensor(vectors)}; give [{edges.shape[1]} k], one per edge"
            )
        _check_finite(vectors, "edge")


def _check_finite(features: Tensor, what: str) -> None:
    """Raises DataError with the first row of features [rows f] that holds NaN or an infinite number."""
    wrong = (~torch.isfinite(features)).any(dim=1).nonzero()
    if len(wrong):
        raise DataError(
            f"features of {what} {int(wrong[0])} are not finite (NaN or infinite); clean them or drop the {what}"
        )
