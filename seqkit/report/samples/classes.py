"""A class: the confusion matrix, a row for each class, and the errors. k classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torchmetrics.functional.classification import binary_auroc

from seqkit.interfaces import IGNORE
from seqkit.objectives.classify import Classify
from seqkit.objectives.metric import DASH
from seqkit.objectives.multi_label import MultiLabel
from seqkit.report.figures import FEW_CLASSES, confusion, svg
from seqkit.report.modality.graph import GraphRenderer
from seqkit.report.samples.nodes import graph_sections
from seqkit.report.samples.picker import Error, Picker, by_size, example
from seqkit.report.samples.section import Section, Shown, Span

MAX_CLASSES = 100
"""Rows of the table of classes."""


def of_class(objective: Classify, picker: Picker) -> list[Section]:
    names = objective.names
    is_whole = objective.level == "sequence"
    counts = np.zeros((len(names), len(names)), np.int64)
    kinds = defaultdict[tuple[int, int], list[Error]](list)
    for places, label, output in picker.outputs():
        assert output.prediction is not None
        preds = output.prediction.argmax(dim=-1)
        known = label != IGNORE
        is_wrong = known & (preds != label)
        np.add.at(counts, (label[known].numpy(), preds[known].numpy()), 1)
        for i in is_wrong.nonzero()[:, 0].tolist() if is_whole else ():
            confidence = float(output.prediction[i].softmax(dim=-1).max())
            caption = f"{names[preds[i]]} ({100 * confidence:.0f} %), not {names[label[i]]}"
            kinds[int(preds[i]), int(label[i])].append(Error(confidence, caption, places[i]))
    if is_whole:
        errors = list[Error]()
        for found in map(by_size, kinds.values()):
            # one frequent confusion must not fill the page
            errors += found[:2]
            errors += [error._replace(size=error.size - 1) for error in found[2:]]
        note = "These wrong predictions have the highest probability, first two of each kind. The right class follows."
        sections = class_sections(counts, names, "examples")
        return sections + picker.largest("Most confident errors", note, errors)
    renderer = picker.renderer
    sections = class_sections(counts, names, renderer.unit)
    if renderer.is_text:
        sections.append(_tagged(objective, picker))
    elif isinstance(renderer, GraphRenderer) and len(label) == 1:
        assert output.prediction is not None
        sections += graph_sections(renderer, picker, label[0], output.prediction[0])
    return sections


def class_sections(counts: np.ndarray, names: Sequence[str], unit: str) -> list[Section]:
    """Sections of a classifier, from counts [k k] of (target, predicted) examples or tokens, as `unit` says."""
    right = int(np.trace(counts))
    total = int(counts.sum())
    note = (
        f"{right:,} of {total:,} test {unit} are right. A row holds the {unit} of a class, and a column those that the "
        "model takes for a class, so the diagonal is right. The colour is the share of the row."
    )
    (predicted,) = np.nonzero(counts.sum(axis=0))
    if len(predicted) == 1 < len(names):
        note = f"All {total:,} predictions are {names[predicted[0]]}. {note}"
    matrix = confusion(counts, names)
    # names of many classes are smaller already
    scale = 0.6 if len(names) <= FEW_CLASSES else 0.8
    points = 72 * scale * matrix.get_figwidth()
    return [
        Section("Confusion matrix", note, [svg(matrix)], points=points),
        _by_class(counts, names),
    ]


def _by_class(counts: np.ndarray, names: Sequence[str]) -> Section:
    """Support, precision, recall and F1 of each class from counts [k k] of (target, predicted); of many, the worst."""
    right = np.diag(counts)
    support = counts.sum(axis=1)
    predicted = counts.sum(axis=0)
    known = np.flatnonzero(support + predicted)  # F1 is not defined for the others
    f1 = np.zeros(len(names))
    f1[known] = 2 * right[known] / (support + predicted)[known]
    note = (
        "Support is how many of a class the test split has. Precision is the share of the predictions of a class that "
        "are right, and recall the share of its examples that are found. F1 is their harmonic mean."
    )
    shown = known
    if len(known) > MAX_CLASSES:
        shown = known[np.argsort(f1[known], kind="stable")[:MAX_CLASSES]]
        note = f"These are the {MAX_CLASSES} classes with the lowest F1, of {len(known):,}. {note}"

    def share(part: float, whole: int) -> str:
        if whole == 0:
            return DASH
        return f"{100 * part / whole:.2f} %"

    rows = []
    for c in shown.tolist():
        precision = share(right[c], predicted[c])
        recall = share(right[c], support[c])
        rows.append((names[c], f"{support[c]:,}", precision, recall, share(f1[c], 1)))
    if len(rows) > 1 and len(shown) == len(known):
        # a class that is never predicted has a precision of 0, as in scikit-learn
        found = [right / np.maximum(whole, 1) for whole in (predicted, support)]
        precision, recall, mean = (share(each[known].mean(), 1) for each in (*found, f1))
        rows.append(("mean (macro)", f"{support.sum():,}", precision, recall, mean))
    columns = ("class", "support", "precision", "recall", "F1")
    return Section("By class", note, columns=columns, rows=rows)


def _tagged(objective: Classify, picker: Picker) -> Section:
    """The first test examples, each token with its predicted class."""
    batch, label = picker.first()
    assert label is not None
    preds = picker.trained.predictor.run(picker.trained.model, batch).argmax(dim=-1).cpu()
    examples = []
    for i in range(len(batch)):
        spans = list[Span]()
        pieces = picker.renderer.pieces(example(batch, i))
        for piece, pred, target in zip(pieces, preds[i], label[i]):
            text = f"{piece}/{objective.names[int(pred)]}"
            if target == IGNORE:
                spans.append((f"{text} ", ""))
            elif pred == target:
                spans.append((f"{text} ", "right"))
            else:
                spans.append((f"{text}, not {objective.names[int(target)]} ", "wrong"))
        examples.append(Shown("", picker.origin(i), spans=spans))
    note = "Each token is followed by its predicted class. Green is right; for a wrong one, the right class is given."
    return Section("First test examples", note, examples=examples)


def of_labels(objective: MultiLabel, picker: Picker) -> list[Section]:
    found = [(output.prediction, label) for _, label, output in picker.outputs()]
    scores, labels = (torch.cat(part) for part in zip(*found))
    rows = []
    names = objective.label_names or [f"label {i}" for i in range(1, labels.shape[1] + 1)]
    for name, score, label in zip(names, scores.T, labels.T, strict=True):
        known = ~label.isnan()
        yes = label[known] > 0.5
        count = int(yes.sum())
        area = DASH
        if 0 < count < len(yes):
            area = f"{float(binary_auroc(score[known].sigmoid(), yes.long())):.3f}"
        rows.append((name, f"{len(yes):,}", f"{count:,}", area))
    note = (
        "AUROC is the share of pairs of a yes and a no in which the yes has the higher probability. Examples without "
        "the label are left out."
    )
    columns = ("label", "examples", "of these yes", "AUROC")
    return [Section("By label", note, columns=columns, rows=rows)]
