"""The nodes of one graph: the picture of predicted classes, and the wrong ones by name. n tokens · k classes."""

from __future__ import annotations

import torch
from torch import Tensor

from seqkit.data.graph_files import read_graph
from seqkit.data.sources.graph_file import GraphFile
from seqkit.interfaces import IGNORE
from seqkit.report.figures import svg
from seqkit.report.modality.graph import GraphRenderer
from seqkit.report.samples.picker import Picker
from seqkit.report.samples.section import Section

MAX_WRONG = 20
"""Rows of the table of wrong nodes."""


def graph_sections(
    renderer: GraphRenderer, picker: Picker, label: Tensor, prediction: Tensor
) -> list[Section]:
    """The one graph with its answers, and its wrong nodes by name. label: [n]. prediction: [n k]."""
    names = picker.trained.objective.classes
    raw = picker.data.splits().test[0].raw
    preds = prediction.argmax(dim=-1)
    is_wrong = (label != IGNORE) & (preds != label)
    right = torch.where(label != IGNORE, 1 - 2 * is_wrong.int(), 0).numpy()
    note = (
        "A test node has the colour of the class that is predicted, and a ring where that is wrong. Grey ones are no "
        "test nodes."
    )
    drawn = Section("The graph", note, [svg(renderer.answered(raw, right, preds.numpy(), names))])
    nodes = renderer.token_names(raw, picker.trained.encode(raw))
    if isinstance(source := picker.data.source, GraphFile):
        nodes = read_graph(source.path).ids
    shares = prediction.softmax(dim=-1).amax(dim=-1)
    order = [i for i in shares.argsort(descending=True).tolist() if is_wrong[i]]
    if not order:
        return [drawn]
    rows = [
        (nodes[i], names[preds[i]], names[label[i]], f"{100 * shares[i]:.0f} %")
        for i in order[:MAX_WRONG]
    ]
    note = f"These {len(rows)} of {len(order):,} wrong nodes have the highest probability."
    columns = ("node", "predicted", "right", "probability")
    return [drawn, Section("Wrong nodes", note, columns=columns, rows=rows)]
