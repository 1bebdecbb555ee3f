"""Samples of what a trained model predicts: sections of a report, by objective.

b batch · n tokens · k classes · m predictions · f features
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from itertools import islice, permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc

from seqkit.analysis.column_importance import NUM_PERMUTATIONS, column_importance
from seqkit.data.module import DataModule
from seqkit.errors import one_line
from seqkit.generation import Sampling, stream_text
from seqkit.generation.parts import before_last_run
from seqkit.interfaces import IGNORE, LossOutput, Objective, TokenBatch, Tokenizer, Tokens
from seqkit.objectives.classify import NEED_PROBABILITIES, Classify
from seqkit.objectives.contrastive import Contrastive
from seqkit.objectives.losses import is_positive
from seqkit.objectives.masked import Masked
from seqkit.objectives.metrics import NUM_BINS
from seqkit.objectives.multi_label import MultiLabel
from seqkit.objectives.next_token import NextToken
from seqkit.objectives.regress import Regress
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.raw import Waveform
from seqkit.report.figures import (
    FEW_CLASSES,
    GREEN,
    INK,
    STYLE,
    VERMILION,
    confusion,
    new_figure,
    reliability,
    scatter,
    shortened,
    svg,
)
from seqkit.report.modality import Renderer, find_renderer
from seqkit.report.modality.cells import written
from seqkit.report.numbers import amount
from seqkit.report.sound import MAX_SECONDS, player_source
from seqkit.runs.trained_model import TrainedModel
from seqkit.tokenizers.cells import Cells
from seqkit.tokenizers.join import Join

MAX_EXAMPLES = 2000
"""A confusion matrix or a scatter plot shows at most this many test examples."""

NUM_SHOWN = 8
NUM_SHOWN_TEXTS = 3
NUM_PROMPT_TOKENS = 24
NUM_GENERATED = 400
MAX_CHARACTERS = 600
NUM_QUERIES, NUM_NEAREST, NUM_DIRECTIONS = 3, 5, 6
"""Queries of each direction of retrieval that are shown, how many of the nearest, and most directions."""

MAX_CLASSES = 100
"""Rows of the table of classes."""

Span = tuple[str, str]
"""A piece of text and its class in the page's style: "", "prompt", "masked", "right" or "wrong"."""


@dataclass(frozen=True)
class Shown:
    """An example, as a picture or as a text with marked pieces.

    caption: what was predicted. origin: where the example is from. figure: an SVG element. sound: a WAV as an address.
    cells: columns of a table's row, and what their cells hold.
    """

    caption: str
    origin: str = ""
    figure: str = ""
    sound: str = ""
    spans: Sequence[Span] = ()
    cells: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Section:
    """A section of a report. note: what the reader sees, and how to read it. figures: SVG elements.

    examples: all pictures, or all texts. columns, rows: a table whose first column is a name. points: width of small
    pictures, or width that figures keep on a narrow screen, where they scroll; 0: they shrink.
    """

    title: str
    note: str
    figures: Sequence[str] = ()
    examples: Sequence[Shown] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    points: float = 0


@singledispatch
def samples(_objective: Objective, _trained: TrainedModel, _data: DataModule | None) -> list[Section]:
    """Sections of a report, by a run's objective: from the trained model and its data, None where that is absent.

    An objective that is not known here has none.
    """
    return []


# ── next token ───────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: NextToken, trained: TrainedModel, data: DataModule | None) -> list[Section]:
    if objective.part is not None:
        return [] if data is None else _captions(objective, trained, data)
    if not find_renderer(trained.tokenizer).is_text:
        return []
    prompt = _prompt(trained, data)
    text = "".join(stream_text(trained, prompt, NUM_GENERATED, sampling=Sampling(temperature=0.8, seed=1)))
    shown = Shown("", spans=((prompt, "prompt"), (text, "")))
    start = "the vocabulary" if data is None else "the test data"
    note = (
        f"The model continues the underlined text, which is the beginning of {start}. It draws {NUM_GENERATED} tokens "
        "at temperature 0.8, with seed 1."
    )
    return [Section("Sample", note, examples=[shown])]


def _captions(objective: NextToken, trained: TrainedModel, data: DataModule) -> list[Section]:
    """The first test examples, each with what is generated behind its other parts, and the reference if it differs."""
    batch, _ = _first_examples(data, NUM_SHOWN)
    found = objective.decode(trained.predictor.run(partial(objective.predict, trained.model), batch))
    right = objective.decode(objective.references((batch, None))[:, 0])
    examples = []
    for i, (text, reference) in enumerate(zip(found, right)):
        caption = str(text) if text == reference else f"{text} (reference: {reference})"
        examples.append(_shown(trained, data, i, before_last_run(example(batch, i), str(objective.part)), caption))
    note = (
        f"The first test examples, each with the {objective.part} that the model writes for it. If the reference "
        "differs, it stands in brackets."
    )
    return [_pictures("Generated", note, trained, examples)]


def _prompt(trained: TrainedModel, data: DataModule | None) -> str:
    """The beginning of the test split, or of the vocabulary."""
    ids = torch.tensor([0]) if data is None else _first_examples(data, 1)[0].content[0][:NUM_PROMPT_TOKENS]
    tokenizer: Any = trained.tokenizer
    return str(tokenizer.decode(ids))


# ── classification ───────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Classify, trained: TrainedModel, data: DataModule | None) -> list[Section]:
    if data is None:
        return []
    k = len(objective.names)
    counts, errors, answers = np.zeros((k, k), np.int64), list[Error](), list[tuple[Tensor, Tensor]]()
    for indices, batch, label, prediction in _predictions(trained, data):
        preds, known = prediction.argmax(dim=-1), label != IGNORE
        answers.append((objective.probabilities(prediction)[known], label[known]))
        np.add.at(counts, (label[known].numpy(), preds[known].numpy()), 1)
        if objective.level == "sequence":
            confidence = prediction.softmax(dim=-1).amax(dim=-1)
            for i in (known & (preds != label)).nonzero()[:, 0].tolist():
                names = objective.names[preds[i]], objective.names[label[i]]
                caption = f"{names[0]} ({100 * confidence[i]:.0f} %), not {names[1]}"
                errors.append(Error(float(confidence[i]), caption, example(batch, i), indices[i]))
            errors = _largest(errors)
    sections = class_sections(counts, objective.names, "examples" if objective.level == "sequence" else "tokens")
    if NEED_PROBABILITIES & set(objective.chosen_metrics):
        sections.append(_calibration(objective, *(torch.cat(part) for part in zip(*answers))))
    if objective.level == "token" and find_renderer(trained.tokenizer).is_text:
        sections.append(_tagged(objective, trained, data))
    note = (
        "These wrong predictions have the highest probability. Each is followed by its probability, the right class "
        "and the place where the example is from."
    )
    return [
        *sections,
        *_columns(trained, data, "loss"),
        *_gallery("Most confident errors", note, trained, data, errors),
    ]


def _calibration(objective: Classify, shares: Tensor, target: Tensor) -> Section:
    """A reliability diagram from probabilities [m k] and classes [m]; of two classes, that of the positive one."""
    name, place = objective.positive_name, objective.positive_class
    if name is None or place is None:
        sure, preds = shares.max(dim=-1)
        right, labels = preds == target, ("probability of the likeliest class", "share that is right")
    else:
        sure, right = shares[:, place], target == place
        name = shortened([one_line(name)])[0]
        labels = (f"probability of {name}", f"share that is {name}")
    note = (
        f"Each dot is one of {NUM_BINS} bins of equal width that has predictions. On the dashed line a probability is "
        "the share that comes true; below it, the model is too sure. A bar is the share of the predictions in its bin, "
        "so trust dots above tall bars."
    )
    figure = reliability(sure.double().numpy(), right.numpy(), NUM_BINS, labels)
    return Section("Calibration", note, [svg(figure)])


def class_sections(counts: np.ndarray, names: Sequence[str], unit: str) -> list[Section]:
    """Sections of a classifier, from counts [k k] of (target, predicted) examples or tokens, as `unit` says."""
    right, total = int(np.trace(counts)), int(counts.sum())
    note = (
        f"{right:,} of {total:,} test {unit} are right. A row holds the {unit} of a class, and a column those that the "
        "model takes for a class, so the diagonal is right. The colour is the share of the row."
    )
    matrix = confusion(counts, names)
    scale = 0.6 if len(names) <= FEW_CLASSES else 0.8  # names of many classes are smaller already
    return [
        Section("Confusion matrix", note, [svg(matrix)], points=72 * scale * matrix.get_figwidth()),
        *_confused(counts, names),
        _by_class(counts, names),
    ]


def _by_class(counts: np.ndarray, names: Sequence[str]) -> Section:
    """Support, precision, recall and F1 of each class from counts [k k] of (target, predicted); of many, the worst."""
    right, support, predicted = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    known = np.flatnonzero(support + predicted)  # F1 is not defined for the others
    f1 = np.zeros(len(names))
    f1[known] = 2 * right[known] / (support + predicted)[known]
    note = (
        "Support is the number of test examples of a class. Precision is the share of the predictions of a class that "
        "are right, and recall the share of its examples that are found. F1 is their harmonic mean. A dash means that "
        "the model never predicts the class, or that the test data has none of it."
    )
    shown = known
    if len(known) > MAX_CLASSES:
        shown = known[np.argsort(f1[known], kind="stable")[:MAX_CLASSES]]
        note = f"These are the {MAX_CLASSES} classes with the lowest F1, of {len(known):,}. {note}"

    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.2f} %" if whole else "–"

    rows = []
    for c in shown.tolist():
        precision, recall = share(right[c], predicted[c]), share(right[c], support[c])
        rows.append((names[c], f"{support[c]:,}", precision, recall, f"{100 * f1[c]:.2f} %"))
    if len(rows) > 1 and len(shown) == len(known):
        rows.append(("mean (macro)", f"{support.sum():,}", "", "", f"{100 * f1[known].mean():.2f} %"))
    return Section("By class", note, columns=("class", "support", "precision", "recall", "F1"), rows=rows)


def _confused(counts: np.ndarray, names: Sequence[str]) -> Iterator[Section]:
    """The most frequent confusions in counts [k k] of (target, predicted); a matrix of many classes hides them."""
    wrong = counts * (1 - np.eye(len(names), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[:NUM_SHOWN]
    places = [(int(i), int(j)) for i, j in zip(*np.unravel_index(order, wrong.shape)) if wrong[i, j]]
    if len(names) <= FEW_CLASSES or not places:
        return
    rows = [(names[i], names[j], f"{wrong[i, j]:,}", f"{100 * wrong[i, j] / counts[i].sum():.2f} %") for i, j in places]
    note = "The most frequent errors. The share is that of all test examples of the target class."
    yield Section("Most frequent confusions", note, columns=("target", "predicted", "number", "share"), rows=rows)


def _tagged(objective: Classify, trained: TrainedModel, data: DataModule) -> Section:
    """The first test examples, each token with its predicted class."""
    batch, label = _first_examples(data, NUM_SHOWN)
    assert label is not None
    preds = trained.predictor.run(trained.model, batch).argmax(dim=-1).cpu()
    renderer, examples = find_renderer(trained.tokenizer), []
    for i in range(len(batch)):
        spans: list[Span] = []
        for piece, pred, target in zip(renderer.pieces(example(batch, i)), preds[i], label[i]):
            name = objective.names[int(pred)]
            if target == IGNORE or pred == target:
                spans.append((f"{piece}/{name} ", "" if target == IGNORE else "right"))
            else:
                spans.append((f"{piece}/{name}, not {objective.names[int(target)]} ", "wrong"))
        examples.append(Shown("", _origin(trained, data, i), spans=spans))
    note = "Each token is followed by its predicted class. Green is right; for a wrong one, the right class is given."
    return Section("First test examples", note, examples=examples)


# ── several labels ───────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: MultiLabel, trained: TrainedModel, data: DataModule | None) -> list[Section]:
    if data is None:
        return []
    found = [(prediction.sigmoid(), label) for _, _, label, prediction in _predictions(trained, data)]
    chances, labels = (torch.cat(part) for part in zip(*found))
    rows = []
    names = objective.label_names or [f"label {i}" for i in range(1, labels.shape[1] + 1)]
    for name, chance, label in zip(names, chances.T, labels.T, strict=True):
        known = ~label.isnan()
        yes = label[known] > 0.5
        means = [
            f"{float(part.mean()):.3f}" if len(part) else "–" for part in (chance[known][yes], chance[known][~yes])
        ]
        is_defined = 0 < int(yes.sum()) < len(yes)
        area = f"{float(binary_auroc(chance[known], yes.long())):.3f}" if is_defined else "–"
        rows.append((name, f"{int(known.sum()):,}", f"{int(yes.sum()):,}", *means, area))
    note = (
        "The two means are the probability of yes that the model gives: to test examples that are yes, and to those "
        "that are no. The further they are apart, the better. AUROC is the share of pairs of a yes and a no in which "
        "the yes has the higher probability. Examples without the label are left out."
    )
    columns = ("label", "examples", "of these yes", "mean if yes", "mean if no", "AUROC")
    return [Section("By label", note, columns=columns, rows=rows)]


# ── sequence to sequence ─────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Seq2Seq, trained: TrainedModel, data: DataModule | None) -> list[Section]:
    if data is None:
        return []
    batch, label = _first_examples(data, NUM_SHOWN)
    assert label is not None
    texts = objective.decode(trained.predictor.run(partial(objective.predict, trained.model), batch))
    renderer = find_renderer(trained.tokenizer)
    tokenizer: Any = trained.tokenizer
    examples = []
    for i, text in enumerate(texts):
        references = [str(objective.decode(row[None])[0]) for row in label[i] if int(row[0]) != IGNORE]
        source = [(f"{_text(tokenizer, example(batch, i))}\n", "")] if renderer.is_text else []
        is_right = text in references
        spans: list[Span] = [*source, (text[:MAX_CHARACTERS] or "(nothing)", "right" if is_right else "wrong")]
        if not is_right:
            spans.append((f"\n{' | '.join(references)[:MAX_CHARACTERS]}", ""))
        examples.append(Shown("", _origin(trained, data, i), spans=spans))
    note = (
        f"The first test examples: {'the source, then ' if renderer.is_text else ''}the text that the model writes. "
        "Green is equal to a reference; otherwise the references follow."
    )
    return [Section("Generated", note, examples=examples)]


def _text(tokenizer: Any, tokens: Tokens) -> str:
    """The text of an example."""
    return str(tokenizer.decode(tokens))[:MAX_CHARACTERS]


# ── regression ───────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Regress, trained: TrainedModel, data: DataModule | None) -> list[Section]:
    if data is None:
        return []
    targets, predicted, errors = list[Tensor](), list[Tensor](), list[Error]()
    has_one_target = objective.level == "sequence" and len(objective.mean) == 1
    for indices, batch, label, output in _outputs(trained, data):
        prediction = output.prediction
        assert prediction is not None
        assert output.target is not None
        assert output.preds is not None
        targets.append(output.target)
        predicted.append(output.preds)
        rights = objective.in_unit(label).reshape(-1).tolist() if has_one_target else ()
        for i, (found, right) in enumerate(zip(objective.decode(prediction), rights)):
            if right == right:  # NaN: unknown
                caption = f"{amount(found)}, not {amount(right)}".replace("-", "−")
                errors.append(Error(abs(found - right), caption, example(batch, i), indices[i]))
        errors = _largest(errors)
    target, preds = torch.cat(targets).double().numpy(), torch.cat(predicted).double().numpy()
    if has_one_target:
        target, preds = target + objective.center[0], preds + objective.center[0]
    rmse = float(np.sqrt(np.mean((target - preds) ** 2)))
    largest = float(np.abs(target - preds).max())
    note = (
        f"Each dot is one of {len(target):,} test targets. On the dashed line the prediction is right; the largest "
        f"error is {amount(largest)}."
    )
    sections = [Section("Predictions and targets", note, [svg(scatter(target, preds, rmse=rmse))])]
    sections += [*_columns(trained, data, "rmse")]
    note = (
        "These predictions are furthest from their targets. Each is followed by the target and by the place where the "
        "example is from."
    )
    return [*sections, *_gallery("Largest errors", note, trained, data, errors)]


def _columns(trained: TrainedModel, data: DataModule, metric: str) -> list[Section]:
    """By how much loss or RMSE is higher without what a column of a table says, as a table; none for other data."""
    found = column_importance(trained, data)
    if found is None or not found.columns:
        return []

    def shown(value: float) -> str:
        return (
            f"{value:+.4f}".replace("-", "−")
            if metric == "loss"
            else f"{'+' * (value >= 0)}{amount(value)}".replace("-", "−")
        )

    note = (
        f"By how much the {metric} is higher than {amount(found.metric)} if the cells of a column are permuted among "
        f"{found.num_examples:,} test examples, the mean of {NUM_PERMUTATIONS} permutations. If two columns say the "
        "same, the model may need neither of them alone."
    )
    rows, columns = [(name, shown(worse)) for name, worse in found.columns.items()], ("column", f"{metric} added")
    return [Section("Which columns matter", note, columns=columns, rows=rows)]


# ── masked ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Masked, trained: TrainedModel, data: DataModule | None) -> list[Section]:
    if data is None:
        return []
    batch, label = _first_examples(data, NUM_SHOWN)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        output = trained.predictor.step(objective, (batch, label))
    assert output.inputs is not None
    prediction, masked = output.prediction, output.inputs.masked
    assert prediction is not None
    assert masked is not None
    masked = masked.cpu()
    title = "Masked and predicted"
    note = (
        f"The first test examples. {100 * objective.fraction:.0f} % of their tokens are masked, and the model predicts "
        "these from the rest. "
    )
    renderer = find_renderer(trained.tokenizer)
    if renderer.is_text:
        examples = []
        for i in range(min(NUM_SHOWN_TEXTS, len(batch))):
            predicted = example(replace(batch, content=prediction.argmax(dim=-1)), i)
            spans = _masked_text(renderer, example(batch, i), predicted, masked[i][batch.valid[i]])
            examples.append(Shown("", _origin(trained, data, i), spans=list(spans)))
        note += "The three paragraphs are the text, what the model sees of it, and its predictions: right or wrong."
        return [Section(title, note, examples=examples)]
    if not batch.content.is_floating_point():
        return []
    note += "A row has the examples, what the model sees of them, or its predictions in the masked places."
    return [Section(title, note, [svg(_masked_pictures(renderer, batch, masked, prediction))])]


def _masked_text(renderer: Renderer, original: Tokens, predicted: Tokens, masked: Tensor) -> Iterator[Span]:
    """The text, the input with masked tokens as lines, and the predictions, one below the other."""
    triples = list(zip(renderer.pieces(original), renderer.pieces(predicted), masked.tolist()))
    yield from ((text, "") for text, _, _ in triples)
    yield "\n\n", ""
    yield from (("▁" * len(text), "masked") if is_masked else (text, "") for text, _, is_masked in triples)
    yield "\n\n", ""
    for text, pred, is_masked in triples:
        yield (pred, "right" if pred == text else "wrong") if is_masked else (text, "")


@rc_context(STYLE)
def _masked_pictures(renderer: Renderer, batch: TokenBatch, masked: Tensor, prediction: Tensor) -> Figure:
    """Rows: original, model input (masked tokens at 0), prediction."""
    columns = min(NUM_SHOWN, len(batch))
    figure, axes = new_figure(0.85 * columns + 0.6, 2.9, rows=3, columns=columns)
    where = masked[..., None]
    rows = {
        "original": batch.content,
        "model input": batch.content.masked_fill(where, 0.0),
        "prediction": torch.where(where, prediction.float(), batch.content),
    }
    for row, (name, content) in enumerate(rows.items()):
        for column in range(columns):
            ax = axes[row * columns + column]
            renderer.thumbnail(example(replace(batch, content=content), column), ax)
            ax.spines[:].set_visible(False)
        axes[row * columns].set_ylabel(name, color=INK)
    return figure


# ── retrieval ────────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Contrastive, trained: TrainedModel, data: DataModule | None) -> list[Section]:
    if data is None:
        return []
    places, outputs, loader = list[int](), list[LossOutput](), data.test_dataloader()
    for indices, batch in zip(loader.batch_indices(), loader):
        places += indices
        outputs.append(trained.predictor.step(objective, batch))
    order = torch.tensor(places).argsort()
    vectors, keys = (torch.cat([getattr(one, name) for one in outputs])[order] for name in ("preds", "target"))
    figures = []
    for i, j in islice(permutations(range(len(objective.parts)), 2), NUM_DIRECTIONS):
        known = (~vectors[:, j, 0].isnan()).nonzero()[:, 0]
        queries = known[~vectors[known, i, 0].isnan()][:NUM_QUERIES]
        if not len(queries):
            continue
        cosines, nearest = (vectors[queries, i] @ vectors[known, j].T).topk(min(NUM_NEAREST, len(known)), dim=1)
        right = is_positive(keys[queries], keys[known], i, j).gather(1, nearest)
        shown = queries.tolist(), known[nearest].tolist(), cosines.tolist(), right.tolist()
        figures.append(svg(_nearest_pictures(trained, data, (objective.parts[i], objective.parts[j]), *shown)))
    same = "an example of the same class" if objective.has_classes else "the example itself, or one with an equal part"
    note = (
        f"A row begins with one part of a test example. Beside it are those of {len(places):,} test examples whose "
        f"other part is nearest, with the cosine of the two vectors. ✓ and green mark {same}."
    )
    return [Section("Nearest examples", note, figures)] if figures else []


@rc_context(STYLE)
def _nearest_pictures(
    trained: TrainedModel,
    data: DataModule,
    names: tuple[str, str],
    queries: Sequence[int],
    nearest: Sequence[Sequence[int]],
    cosines: Sequence[Sequence[float]],
    right: Sequence[Sequence[bool]],
) -> Figure:
    """A row for each query: its own part, and the parts of the nearest examples. names: of the two parts."""
    columns = 1 + len(nearest[0])
    figure, axes = new_figure(1.05 * columns, 1.3 * len(queries), rows=len(queries), columns=columns)
    examples, samples = data.test_dataloader().examples, data.splits().test
    tokenizer: Any = trained.tokenizer
    for row, query in enumerate(queries):
        places = [query, *nearest[row]]
        batch, _ = examples[0, places]
        for column in range(columns):
            ax, name = axes[row * columns + column], names[column > 0]
            raw = dict(tokenizer.runs(samples[places[column]].raw))[name]
            find_renderer(tokenizer.parts[name]).thumbnail(dict(example(batch, column).alone())[name], ax, raw)
            if column == 0:
                ax.set_title(f"{names[0]} → {names[1]}" if row == 0 else "")
                continue
            is_right = right[row][column - 1]
            ax.set_title(f"{'✓' if is_right else '✗'} {cosines[row][column - 1]:.2f}")
            for spine in ax.spines.values():
                spine.set(visible=True, color=GREEN if is_right else VERMILION, linewidth=2.5)
    return figure


# ── examples ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def example(batch: TokenBatch, index: int) -> Tokens:
    """One example of a batch, without padding and without adjacency."""
    return batch.replace(adjacency=None).example(index)


def _first_examples(data: DataModule, count: int) -> tuple[TokenBatch, Tensor | None]:
    """The first test examples in the data's order; the loader begins with the shortest."""
    examples = data.test_dataloader().examples
    return examples[0, list(range(min(count, len(examples))))]


def _outputs(trained: TrainedModel, data: DataModule) -> Iterator[tuple[list[int], TokenBatch, Tensor, LossOutput]]:
    """Batches of the test split: places of their examples in it, tokens, labels, and the step's output."""
    loader = data.test_dataloader()
    for indices, (batch, label) in zip(loader.batch_indices(), loader):
        assert label is not None
        yield indices, batch, label, trained.predictor.step(trained.objective, (batch, label))


def _predictions(trained: TrainedModel, data: DataModule) -> Iterator[tuple[list[int], TokenBatch, Tensor, Tensor]]:
    """Batches of the test split with the model's predictions in place of the output."""
    for indices, batch, label, output in _outputs(trained, data):
        assert output.prediction is not None
        yield indices, batch, label, output.prediction


class Error(NamedTuple):
    """A test example that is predicted wrongly. size: how wrong. place: its place in the test split."""

    size: float
    caption: str
    tokens: Tokens
    place: int


def _largest(errors: Sequence[Error]) -> list[Error]:
    """The errors that are shown, largest first."""
    return sorted(errors, key=lambda error: -error.size)[:NUM_SHOWN]


def _gallery(
    title: str, note: str, trained: TrainedModel, data: DataModule, errors: Sequence[Error]
) -> Iterator[Section]:
    """A section of wrongly predicted examples as texts or small pictures; none where there is no error."""
    if errors:
        examples = [_shown(trained, data, error.place, error.tokens, error.caption) for error in errors]
        yield _pictures(title, note, trained, examples)


def _shown(trained: TrainedModel, data: DataModule, place: int, tokens: Tokens, caption: str) -> Shown:
    """A test example under a caption: as a text if it is one, else as a small picture, with its sound if it has one."""
    renderer, raw = find_renderer(trained.tokenizer), data.splits().test[place].raw
    origin = _origin(trained, data, place)
    if renderer.is_text or (isinstance(raw, str) and type(renderer) is Renderer):
        text = raw if isinstance(raw, str) else _text(trained.tokenizer, tokens)
        return Shown(caption, origin, spans=[(text[:MAX_CHARACTERS], "")])
    parts = raw.values() if isinstance(raw, Mapping) else [raw]
    sound = next((player_source(part) for part in parts if isinstance(part, Waveform)), "")
    cells, raw, drawn = _cells(trained.tokenizer, raw, tokens)
    return Shown(caption, origin, "" if drawn is None else renderer.small_svg(raw, drawn), sound, cells=cells)


def _cells(tokenizer: Tokenizer, raw: Any, tokens: Tokens) -> tuple[list[tuple[str, str]], Any, Tokens | None]:
    """The cells of a table's row, its texts among them; and what is left to be drawn, raw and as tokens: maybe none."""
    if isinstance(tokenizer, Cells):
        return [(name, written(value)) for name, value in raw.items() if value is not None], raw, None
    if not isinstance(tokenizer, Join) or not any(isinstance(part, Cells) for part in tokenizer.parts.values()):
        return [], raw, tokens
    found: list[tuple[str, str]] = []
    in_words: list[str] = []
    for name, part in tokenizer.runs(raw):
        if isinstance(tokenizer.parts[name], Cells):
            found += _cells(tokenizer.parts[name], part, tokens)[0]
        elif find_renderer(tokenizer.parts[name]).is_text:
            found.insert(0, (tokenizer.reads.get(name, name), str(part)[:MAX_CHARACTERS]))
        else:
            continue
        in_words.append(name)
    if {name for name, _ in tokens.parts} <= {*in_words}:
        return found, raw, None
    left = {key: part for key, part in raw.items() if key not in [tokenizer.reads.get(name, name) for name in in_words]}
    return found, left, tokenizer.without(tokens, in_words)


def _pictures(title: str, note: str, trained: TrainedModel, examples: Sequence[Shown]) -> Section:
    """A section of examples, with a sentence on how to read pictures and one on players, where there are any."""
    renderer = find_renderer(trained.tokenizer)
    if any(one.figure for one in examples):
        note += f" {renderer.note}"
    if any(one.sound for one in examples):
        note += f" A player has at most the first {MAX_SECONDS:g} seconds."
    return Section(title, note.strip(), examples=examples, points=72 * renderer.size[0])


def _origin(trained: TrainedModel, data: DataModule, place: int) -> str:
    """Where a test example is from, as its data source says; a path begins in the folder that the source was given."""
    source, name = trained.config["data"]["source"], data.test_dataloader().examples.name(place)
    given = source.values() if isinstance(source, Mapping) else ()
    for path in (Path(one).expanduser() for one in given if isinstance(one, str)):
        name = name.removeprefix(f"{path if path.is_dir() else path.parent}/")
    return name
