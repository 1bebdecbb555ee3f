"""A fitted classical method that predicts from raw examples alone, as the head of a network does.

m examples · n nodes · k classes, labels or targets
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from seqkit.classical.features import statistics_of_tokens
from seqkit.classical.images import frame_changes
from seqkit.classical.method import Method
from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer
from seqkit.raw import GraphData, Waveform
from seqkit.tokenizers import Cells, Join, Molecule, Series


class OtherGraphError(DataError):
    """The graph is not the one whose nodes a method was fitted to."""


class Member:
    """A fitted method with the transformer of its features.

    kind: of the examples (`kind_of`). transformer: fitted, of examples as `read` gives them.
    """

    def __init__(self, kind: str, transformer: Any, method: Method, tokenizer: Tokenizer) -> None:
        self.kind = kind
        self.transformer = transformer
        self.method = method
        self.tokenizer = tokenizer

    def predict(self, raws: Sequence[Any]) -> Tensor:
        """Predictions [m k] as the head gives them: log-probabilities, logits of labels, or standardised numbers."""
        rows = [read(self.kind, self.tokenizer, raw) for raw in raws]
        return self.method.predict(self.transformer.transform(rows))


class NodeMember:
    """Predictions for the nodes of one graph, whose features are classes of training nodes beside them.

    table: log-probabilities [n k]. digest: of the graph (`digest_of`).
    """

    def __init__(self, table: Tensor, digest: str) -> None:
        self.table = table
        self.digest = digest

    def predict(self, raws: Sequence[GraphData]) -> Tensor:
        """Log-probabilities [n k] of the only example. Raises OtherGraphError for another graph."""
        (graph,) = raws
        if digest_of(graph) != self.digest:
            raise OtherGraphError(
                "the classical method knows the nodes of the training graph alone, and this is another graph"
            )
        return self.table


def kind_of(tokenizer: Tokenizer, raw: Any) -> str:
    """Kind of data by which methods are chosen. raw: one of the examples."""
    by_tokenizer = {Join: "parts", Cells: "cells", Molecule: "molecules", Series: "series"}
    for known, kind in by_tokenizer.items():
        if isinstance(tokenizer, known):
            return kind
    if isinstance(raw, str):
        return "texts"
    if isinstance(raw, Waveform):
        return "sounds"
    if isinstance(raw, Tensor):
        return {3: "images", 4: "clips"}.get(raw.ndim, "tokens")
    return "tokens"


def read(kind: str, tokenizer: Tokenizer, raw: Any) -> Any:
    """A raw example as transformers of features take it."""
    match kind:
        case "parts":
            return dict(tokenizer.runs(raw))  # type: ignore[attr-defined]  # of Join
        case "clips":
            return frame_changes(raw)  # so that all clips fit into memory
        case "tokens":
            return statistics_of_tokens(tokenizer, raw)
    return raw


def digest_of(graph: GraphData) -> str:
    """SHA-256 of the nodes and edges of a graph."""
    found = hashlib.sha256()
    for tensor in (graph.nodes, graph.edges):
        values = np.ascontiguousarray(tensor.numpy())
        found.update(f"{values.dtype} {values.shape}".encode())
        found.update(values.tobytes())
    return found.hexdigest()
