"""Graph files as inputs of a run that was trained on one: each node has an answer of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqkit.data import GraphFile
from seqkit.raw import GraphData
from seqkit.runs.evaluate import check_data
from seqkit.runs.prepare import data_module
from seqkit.runs.trained_model import TrainedModel


def graph_reader(trained: TrainedModel, folder: Path) -> Callable[[str], tuple[GraphData, list[str]]]:
    """Reads a file as a graph and the names of its nodes, for a run that was trained on a `GraphFile`.

    The reader raises DataError where the file of training has changed since, or where another one's features would
    mean something else.
    """
    source = trained.config["data"]["source"]
    own = GraphFile(**{name: value for name, value in source.items() if name != "type"})

    def read(path: str) -> tuple[GraphData, list[str]]:
        found = own.nodes_of(path)
        if Path(path).expanduser().resolve() == Path(own.path).expanduser().resolve():
            check_data(trained.summary, data_module(trained.config, trained.tokenizer, trained.objective), folder)
        return found

    return read
