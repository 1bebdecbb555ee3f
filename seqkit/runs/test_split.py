"""Inputs of predictions that a run's own data knows: its test split beside the targets, and graphs like its own."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from seqkit.config import complete
from seqkit.data import GraphFile
from seqkit.data.inputs import Input
from seqkit.data.sample import Sample
from seqkit.interfaces import IGNORE, Objective
from seqkit.objectives.multi_label import MultiLabel
from seqkit.raw import GraphData
from seqkit.runs.reopened import check_data, reopened
from seqkit.runs.trained_model import TrainedModel

log = logging.getLogger("seqkit")


class SplitInputs:
    """The test examples of a run in the order of the split, each named by where it is from.

    Raises DataError where the data is gone. Logs if the data has changed.
    """

    def __init__(self, trained: TrainedModel):
        self._data, doubt = reopened(trained)
        self.objective = trained.objective
        self._samples = self._data.splits().test
        self._max_tokens = complete(trained.config)["data"]["max_tokens"]
        if doubt:
            log.warning("%s", doubt)

    @property
    def total(self) -> int | None:
        """Number of answers; None: not known, as each node of a graph has one."""
        if _is_labelled_graph(self._samples[0]):
            return None
        return len(self._samples)

    def __iter__(self) -> Iterator[Input]:
        for i in range(len(self._samples)):
            raw = self._samples[i].raw
            yield Input(
                self._samples.name(i),
                raw,
                parts=self._nodes(i) if _is_labelled_graph(self._samples[i]) else None,
            )

    def targets(self) -> Iterator[dict[str, Any] | None]:
        """Target of each answer, by the name of its column; None for a node that is not of the test split."""
        is_by_token = getattr(self.objective, "level", "sequence") == "token"
        for i in range(len(self._samples)):
            sample = self._samples[i]
            found = target_in_words(self.objective, sample.label)
            if _is_labelled_graph(sample):
                yield from (None if one is None else {"target": one} for one in found)
            else:
                yield {"target": found[: self._max_tokens] if is_by_token else found}

    def _nodes(self, index: int) -> list[str]:
        """Names of the nodes of a graph, as its file has them."""
        source: Any = self._data.source
        if hasattr(source, "nodes_of"):
            names: list[str] = source.nodes_of(source.path)[1]
            return names
        return [
            f"{self._samples.name(index)}, node {i}" for i in range(len(self._samples[index].label))
        ]


def _is_labelled_graph(sample: Sample) -> bool:
    """Whether it is a graph with a target for each node."""
    return (
        isinstance(sample.raw, GraphData)
        and isinstance(sample.label, Tensor)
        and sample.label.ndim > 0
    )


def target_in_words(objective: Objective, label: Any) -> Any:
    """A label as the objective's predictions are written: names of classes, numbers, texts; None: there is none."""
    label = label.tolist() if isinstance(label, Tensor) else label
    if isinstance(label, list | tuple):
        found = [target_in_words(objective, one) for one in label]
        is_one_number = len(found) == 1 and isinstance(found[0], int | float)
        if is_one_number and getattr(objective, "level", "sequence") == "sequence":
            return found[0]
        return found
    if isinstance(label, int) and objective.classes:
        return None if label == IGNORE else objective.classes[label]
    if isinstance(label, float):
        if math.isnan(label):
            return None
        if isinstance(objective, MultiLabel):
            return int(label)
        return label
    return label


def graph_reader(
    trained: TrainedModel, folder: Path
) -> Callable[[str], tuple[GraphData, list[str]]]:
    """Reads a file as a graph and the names of its nodes, for a run that was trained on a `GraphFile`.

    The reader raises DataError where the file of training has changed since, or where another one's features would
    mean something else.
    """
    source = trained.config["data"]["source"]
    own = GraphFile(**{name: value for name, value in source.items() if name != "type"})

    def read(path: str) -> tuple[GraphData, list[str]]:
        found = own.nodes_of(path)
        if Path(path).expanduser().resolve() == Path(own.path).expanduser().resolve():
            data, _ = reopened(trained, ())
            check_data(trained.summary.data_sha256, data, folder)
        return found

    return read
