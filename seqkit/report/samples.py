"""Samples of what a trained model predicts: sections of a report, by objective.

b batch · n tokens · k classes · m predictions · f features
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from itertools import islice, permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc

from seqkit.data.graph_files import read_graph
from seqkit.data.module import DataModule
from seqkit.data.sources.graph_file import GraphFile
from seqkit.generation import Sampling, stream_text
from seqkit.interfaces import IGNORE, LabeledBatch, LossOutput, Objective, TokenBatch, Tokens
from seqkit.objectives.classify import Classify
from seqkit.objectives.contrastive import Contrastive
from seqkit.objectives.ctc import CTC
from seqkit.objectives.losses import is_positive
from seqkit.objectives.masked import Masked
from seqkit.objectives.metric import DASH
from seqkit.objectives.multi_label import MultiLabel
from seqkit.objectives.next_token import NextToken
from seqkit.objectives.regress import Regress
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.raw import Waveform
from seqkit.report.figures import FEW_CLASSES, confusion, scatter, svg
from seqkit.report.modality import Renderer, find_renderer
from seqkit.report.modality.audio import MAX_SECONDS, player_source
from seqkit.report.modality.graph import GraphRenderer
from seqkit.report.modality.series import error_by_step, forecast, steps_of
from seqkit.report.numbers import format_number
from seqkit.runs.intervals import COVERAGE, half_widths
from seqkit.runs.summary import Interval
from seqkit.runs.trained_model import TrainedModel

MAX_EXAMPLES = 2000
"""A confusion matrix or a scatter plot shows at most this many test examples."""

NUM_SHOWN = 8
NUM_PROMPT_TOKENS = 24
NUM_GENERATED = 400
MAX_CHARACTERS = 600
NUM_QUERIES = 3
NUM_NEAREST = 5
NUM_DIRECTIONS = 6
"""Queries of each direction of retrieval that are shown, how many of the nearest, and most directions."""

WHOLE = 440
"""Points from which on a section has the page's whole width."""

MAX_WRONG = 20
"""Rows of the table of wrong nodes."""

MAX_CLASSES = 100
"""Rows of the table of classes."""


StepErrors = tuple[Tensor, Tensor]
"""Absolute errors [b k] by step ahead, of a forecast and of another."""


class Error(NamedTuple):
    """A test example that is predicted wrongly: how wrong, what to say of it, and its place in the test split."""

    size: float
    caption: str
    place: int


NUMBER = re.compile(rf"[-−+]?[\d.,]+(e[-+]?\d+)?( %)?|{DASH}|")
"""A cell with a number, or with none."""

Span = tuple[str, str]
"""A piece of text and its class in the page's style: "", "prompt", "masked", "right" or "wrong"."""


@dataclass(frozen=True)
class Shown:
    """An example with what is predicted for it.

    caption: what was predicted. origin: where the example is from. figures: SVG elements. sound: a WAV as an address.
    spans: its text. cells: columns of a table's row, and what their cells hold.
    """

    caption: str
    origin: str = ""
    figures: Sequence[str] = ()
    sound: str = ""
    spans: Sequence[Span] = ()
    cells: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Section:
    """A section of a report. note: what the reader sees, and how to read it; may be empty. figures: SVG elements.

    columns, rows: a table whose first column is a name. points: width of an example's pictures, or width that figures
    keep on a narrow screen, where they scroll; 0: they shrink. per_row: examples in a row; 0: as many as fit.
    """

    title: str
    note: str
    figures: Sequence[str] = ()
    examples: Sequence[Shown] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    points: float = 0
    per_row: int = 0

    @property
    def are_numbers(self) -> list[bool]:
        """Whether each column of the table is numbers, which stand on the right; the first one is names."""
        return [
            i > 0 and all(NUMBER.fullmatch(row[i]) for row in self.rows)
            for i in range(len(self.columns))
        ]


@dataclass(frozen=True)
class Picker:
    """Picks test examples of a run, with what its trained model gives for them."""

    trained: TrainedModel
    data: DataModule

    @property
    def renderer(self) -> Renderer:
        """How the examples are drawn."""
        return find_renderer(self.trained.tokenizer)

    @property
    def examples(self) -> Any:
        """The encoded test examples, in the data's order; the loader begins with the shortest."""
        return self.data.test_dataloader().examples

    def first(self, count: int = NUM_SHOWN) -> LabeledBatch:
        """The first examples with their labels (None without)."""
        batch: LabeledBatch = self.examples[0, list(range(min(count, len(self.examples))))]
        return batch

    def outputs(self) -> Iterator[tuple[list[int], Any, LossOutput]]:
        """Batches of the split: places of their examples in it, labels (None without), and the step's output."""
        loader = self.data.test_dataloader()
        for places, batch in zip(loader.batch_indices(), loader):
            yield places, batch[1], self.trained.step(batch, self.raws(places))

    def raws(self, places: Sequence[int]) -> list[Any]:
        """The raw examples at these places of the split."""
        test = self.data.splits().test
        return [test[place].raw for place in places]

    def origin(self, place: int) -> str:
        """Where an example is from, as its data source says; a path begins in the folder that the source was given."""
        source = self.trained.config["data"]["source"]
        name: str = self.examples.name(place)
        given = source.values() if isinstance(source, Mapping) else ()
        for one in given:
            if isinstance(one, str):
                path = Path(one).expanduser()
                folder = path if path.is_dir() else path.parent
                name = name.removeprefix(f"{folder}/")
        return name

    def shown(self, place: int, caption: str = "", *, only: str = "", without: str = "") -> Shown:
        """An example under a caption, with where it is from; of joined tokens one part alone, or all but one.

        Texts are text, cells a table, others small pictures, and sound can be heard.
        """
        batch, _ = self.examples[0, [place]]
        runs = self.renderer.runs(self.data.splits().test[place].raw, example(batch, 0))
        kept = [run for run in runs if only in ("", run.name) and without in ("", run.name)]
        figures = list[str]()
        spans = list[Span]()
        cells = list[tuple[str, str]]()
        looks = [(run.name, run.renderer.look(run.raw, run.tokens)) for run in kept]
        is_row = any(look.cells is not None for _, look in looks)
        for name, look in looks:
            cells += look.cells or ()
            if look.figure is not None:
                figures.append(look.figure)
            if look.text is None:
                continue
            text = look.text[:MAX_CHARACTERS]
            if is_row:
                cells.append((name, text))
            elif len(looks) > 1:
                spans.append((f"{name}: {text}\n", ""))
            else:
                spans.append((text, ""))
        sounds = (player_source(run.raw) for run in kept if isinstance(run.raw, Waveform))
        sound = next(filter(None, sounds), "")
        origin = "" if only else self.origin(place)
        return Shown(caption, origin, figures, sound, spans, cells)

    def gallery(
        self, title: str, note: str, examples: Sequence[Shown], *, pictures: int = 1
    ) -> list[Section]:
        """A section of examples, with how to read them; none without examples. pictures: of one example."""
        if not examples:
            return []
        is_drawn = any(one.figures for one in examples)
        is_heard = any(one.sound for one in examples)
        if not (is_drawn or is_heard) and all(one.cells for one in examples):
            return [_rows(title, note, examples)]
        if is_drawn and self.renderer.note:
            note += f" {self.renderer.note}"
        if is_heard:
            note += f" A player has at most the first {MAX_SECONDS:g} seconds."
        points = 72 * self.renderer.size[0] * pictures if is_drawn else 0
        return [Section(title, note, examples=examples, points=points)]

    def largest(self, title: str, note: str, errors: Sequence[Error]) -> list[Section]:
        """A gallery of the largest errors; none where there is no error."""
        shown = [self.shown(one.place, one.caption) for one in _by_size(errors)[:NUM_SHOWN]]
        return self.gallery(title, note, shown)


def _by_size(errors: Sequence[Error]) -> list[Error]:
    return sorted(errors, key=lambda error: error.size, reverse=True)


def _rows(title: str, note: str, examples: Sequence[Shown]) -> Section:
    """Examples that are rows of a table, below each other."""
    names = list(dict.fromkeys(name for one in examples for name, _ in one.cells))
    rows = []
    for one in examples:
        row = dict(one.cells)
        cells = [row.get(name, DASH) for name in names]
        rows.append((one.caption, *cells, Path(one.origin).name))
    return Section(title, note, columns=("prediction", *names, "from"), rows=rows, points=WHOLE)


def example(batch: TokenBatch, index: int) -> Tokens:
    """One example of a batch, without padding and without adjacency."""
    return batch.replace(adjacency=None).example(index)


@singledispatch
def samples(_objective: Objective, _picker: Picker) -> list[Section]:
    """Sections of a report, by a run's objective. An objective that is not known here has none."""
    return []


# ── a class ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Classify, picker: Picker) -> list[Section]:
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
        for found in map(_by_size, kinds.values()):
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
        sections += _graph(renderer, picker, label[0], output.prediction[0])
    return sections


def _graph(
    renderer: GraphRenderer, picker: Picker, label: Tensor, prediction: Tensor
) -> list[Section]:
    """The one graph with its answers, and its wrong nodes by name. label: [n]. prediction: [n k]."""
    names = picker.trained.objective.classes
    raw = picker.data.splits().test[0].raw
    preds = prediction.argmax(dim=-1)
    is_wrong = (label != IGNORE) & (preds != label)
    right = torch.where(label != IGNORE, 1 - 2 * is_wrong.int(), 0).numpy()
    note = "Test nodes are right (green) or wrong (orange); the class of a grey one was not asked."
    drawn = Section("The graph", note, [svg(renderer.answered(raw, right))])
    nodes = renderer.token_names(raw, picker.trained.encode(raw))
    if isinstance(source := picker.data.source, GraphFile):
        nodes = read_graph(source.path).ids
    shares = prediction.softmax(dim=-1).amax(dim=-1)
    order = [i for i in shares.argsort(descending=True).tolist() if is_wrong[i]]
    if not order:
        return [drawn]
    rows = [
        (nodes[i], names[preds[i]], f"{100 * shares[i]:.0f} %", names[label[i]])
        for i in order[:MAX_WRONG]
    ]
    note = f"These {len(rows)} of {len(order):,} wrong nodes have the highest probability."
    columns = ("node", "predicted", "probability", "right")
    return [drawn, Section("Wrong nodes", note, columns=columns, rows=rows)]


def class_sections(counts: np.ndarray, names: Sequence[str], unit: str) -> list[Section]:
    """Sections of a classifier, from counts [k k] of (target, predicted) examples or tokens, as `unit` says."""
    right = int(np.trace(counts))
    total = int(counts.sum())
    note = (
        f"{right:,} of {total:,} test {unit} are right. A row holds the {unit} of a class, and a column those that the "
        "model takes for a class, so the diagonal is right. The colour is the share of the row."
    )
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
        rows.append(("mean (macro)", f"{support.sum():,}", "", "", share(f1[known].mean(), 1)))
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


@samples.register
def _(objective: MultiLabel, picker: Picker) -> list[Section]:
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


# ── a number ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Regress, picker: Picker) -> list[Section]:
    targets = list[Tensor]()
    predicted = list[Tensor]()
    errors = list[Error]()
    ahead = list[StepErrors]()
    has_one_target = objective.level == "sequence" and len(objective.mean) == 1
    for places, label, output in picker.outputs():
        assert output.prediction is not None
        assert output.target is not None
        assert output.preds is not None
        targets.append(output.target)
        predicted.append(output.preds)
        if objective.forecast:
            ahead.append(_step_errors(objective, picker, places, label, output.prediction))
        rights = objective.in_unit(label).reshape(-1).tolist() if has_one_target else ()
        for place, found, right in zip(places, objective.decode(output.prediction), rights):
            if not math.isnan(right):
                caption = f"{format_number(found)}, not {format_number(right)}"
                errors.append(Error(abs(found - right), caption, place))
    center = objective.center[0] if has_one_target else 0.0
    target, preds = (torch.cat(part).double().numpy() + center for part in (targets, predicted))
    note = f"Each dot is one of {len(target):,} test targets. On the dashed line the prediction is right."
    figure = scatter(target, preds, rmse=float(np.sqrt(np.mean((target - preds) ** 2))))
    sections = [Section("Predictions and targets", note, [svg(figure)])]
    if objective.forecast:
        return [*sections, _by_step(ahead), _forecasts(objective, picker)]
    note = "These predictions are furthest from their targets, which follow."
    return sections + picker.largest("Largest errors", note, errors)


def _step_errors(
    objective: Regress,
    picker: Picker,
    places: Sequence[int],
    label: Tensor,
    prediction: Tensor,
) -> StepErrors:
    """Absolute errors [b k] of the model, and of the last value that it reads."""
    column, *_ = objective.learned["column"]
    last = torch.tensor([steps_of(raw)[-1, column] for raw in picker.raws(places)])
    target = objective.in_unit(label).reshape(len(label), -1)
    return objective.absolute_errors(prediction, label).cpu(), (target - last[:, None]).abs()


def _by_step(errors: Sequence[StepErrors]) -> Section:
    """The root mean square error of each step ahead."""
    ours, last = (
        torch.cat(one).square().nanmean(dim=0).sqrt().numpy() for one in zip(*errors, strict=True)
    )
    note = "The error over all test windows, by how far ahead a step is; dashed, that of repeating the last value."
    return Section("Error by step ahead", note, [svg(error_by_step(ours, last))])


def _forecasts(objective: Regress, picker: Picker) -> Section:
    """Windows that are evenly spread over the test split, with what followed and what was predicted."""
    column, *_ = objective.learned["column"]
    known = [Interval(**one) for one in picker.trained.summary.get("intervals", [])]
    widths = np.array(half_widths(objective, known))
    last = len(picker.examples) - 1
    places = np.unique(np.linspace(0, last, NUM_SHOWN).round().astype(int)).tolist()
    batch, label = picker.examples[0, places]
    target = objective.in_unit(label).numpy()
    output = picker.trained.step((batch, label), picker.raws(places))
    assert output.prediction is not None
    predicted = np.array(objective.decode(output.prediction))
    examples = []
    for place, right, guess in zip(places, target, predicted.reshape(target.shape)):
        shown = max(2 * len(right), 24)
        past = steps_of(picker.data.splits().test[place].raw)[-shown:, column]
        caption = f"RMSE {format_number(float(np.sqrt(np.nanmean((guess - right) ** 2))))}"
        figure = svg(forecast(past, right, guess, widths))
        examples.append(Shown(caption, picker.origin(place), [figure]))
    note = "The last steps of some test windows. Left of the dotted line the model reads, in colour is its forecast."
    if len(widths):
        note += f" {100 * COVERAGE} % of values were within the band around it."
    return Section("Forecasts", note, examples=examples, points=72 * 2.8)


# ── a sequence ───────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: NextToken, picker: Picker) -> list[Section]:
    if objective.part is not None:
        return _generated(objective, picker, str(objective.part))
    if not picker.renderer.is_text:
        return []
    trained = picker.trained
    tokenizer: Any = trained.tokenizer
    prompt = str(tokenizer.decode(picker.first(1)[0].content[0][:NUM_PROMPT_TOKENS]))
    sampling = Sampling(temperature=0.8, seed=1)
    text = "".join(stream_text(trained, prompt, NUM_GENERATED, sampling=sampling))
    note = (
        "The model continues the underlined text, which is the beginning of the test data. It draws "
        f"{NUM_GENERATED} tokens at temperature 0.8, with seed 1."
    )
    return [Section("Sample", note, examples=[Shown("", spans=((prompt, "prompt"), (text, "")))])]


def _generated(
    objective: Seq2Seq | CTC | NextToken, picker: Picker, part: str = ""
) -> list[Section]:
    """The first test examples without the part that is written, each with what the model writes for it."""
    batch, label = picker.first()
    rights = objective.references((batch, label))
    assert rights is not None
    write = partial(objective.predict, picker.trained.model)
    texts = objective.decode(picker.trained.predictor.run(write, batch))
    references = [
        [objective.decode(row[None])[0] for row in rows if int(row[0]) != IGNORE] for rows in rights
    ]
    examples = []
    for place, (text, right) in enumerate(zip(texts, references)):
        shown = picker.shown(place, without=part)
        written = str(text)[:MAX_CHARACTERS] or "(nothing)"
        spans = [(f"{before}\n", mark) for before, mark in shown.spans]
        if text in right:
            spans.append((written, "right"))
        else:
            wanted = " | ".join(map(str, right))[:MAX_CHARACTERS]
            spans += [(written, "wrong"), (f"\n{wanted}", "")]
        examples.append(replace(shown, spans=spans))
    note = (
        "The first test examples, each with the text that the model writes. Green is equal to a reference; otherwise "
        "the references follow."
    )
    return picker.gallery("Generated", note, examples)


samples.register(Seq2Seq, _generated)
samples.register(CTC, _generated)


@samples.register
def _(objective: Masked, picker: Picker) -> list[Section]:
    batch, label = picker.first()
    renderer = picker.renderer
    if not (renderer.is_text or batch.content.is_floating_point()):
        return []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        output = picker.trained.predictor.step(objective, (batch, label))
    assert output.inputs is not None
    assert output.prediction is not None
    assert output.inputs.masked is not None
    masked = output.inputs.masked.cpu()
    prediction = output.prediction.cpu()
    if renderer.is_text:
        contents = [batch.content, prediction.argmax(dim=-1)]
    else:
        where = masked[..., None]
        seen = batch.content.masked_fill(where, 0.0)
        filled = torch.where(where, prediction.float(), batch.content)
        contents = [batch.content, seen, filled]
    examples = []
    for i in range(len(batch)):
        versions = [example(replace(batch, content=content), i) for content in contents]
        shown = Shown("", picker.origin(i))
        if renderer.is_text:
            original, predicted = map(renderer.pieces, versions)
            spans = _masked_text(original, predicted, masked[i][batch.valid[i]].tolist())
            shown = replace(shown, spans=spans)
        else:
            shown = replace(shown, figures=[renderer.small_svg(None, one) for one in versions])
        examples.append(shown)
    note = (
        f"The first test examples. {100 * objective.fraction:.0f} % of their tokens are masked, and the model predicts "
        "these from the rest. Below each other or side by side are the example, what the model sees of it, and its "
        "predictions in the masked places."
    )
    return picker.gallery("Masked and predicted", note, examples, pictures=3)


def _masked_text(
    original: Sequence[str], predicted: Sequence[str], masked: Sequence[bool]
) -> list[Span]:
    """The pieces of a text, the input with masked tokens as lines, and the predictions, one below the other."""
    whole = list[Span]()
    seen = list[Span]()
    filled = list[Span]()
    for text, guess, is_masked in zip(original, predicted, masked):
        whole.append((text, ""))
        if is_masked:
            seen.append(("▁" * len(text), "masked"))
            filled.append((guess, "right" if guess == text else "wrong"))
        else:
            seen.append((text, ""))
            filled.append((text, ""))
    gap = ("\n\n", "")
    return [*whole, gap, *seen, gap, *filled]


# ── a ranking ────────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Contrastive, picker: Picker) -> list[Section]:
    found = list(picker.outputs())
    order = torch.tensor([place for places, _, _ in found for place in places]).argsort()
    vectors, keys = (
        torch.cat([getattr(one, name) for *_, one in found])[order] for name in ("preds", "target")
    )
    same = "the example itself, or one with an equal part"
    if objective.has_classes:
        same = "an example of the same class"
    note = (
        f"A row begins with one part of a test example. Beside it are those of {len(order):,} test examples whose "
        f"other part is nearest, with the cosine of the two vectors. ✓ marks {same}."
    )
    sections = []
    for i, j in islice(permutations(range(len(objective.parts)), 2), NUM_DIRECTIONS):
        query = objective.parts[i]
        answer = objective.parts[j]
        known = (~vectors[:, j, 0].isnan()).nonzero()[:, 0]
        queries = known[~vectors[known, i, 0].isnan()][:NUM_QUERIES]
        if not len(queries):
            continue
        most = min(NUM_NEAREST, len(known))
        cosines, nearest = (vectors[queries, i] @ vectors[known, j].T).topk(most, dim=1)
        right = is_positive(keys[queries], keys[known], i, j).gather(1, nearest)
        examples = []
        for row, place in enumerate(queries.tolist()):
            examples.append(picker.shown(place, "query", only=query))
            answers = known[nearest[row]].tolist()
            for other, cosine, is_right in zip(answers, cosines[row], right[row]):
                mark = "✓" if is_right else "✗"
                examples.append(picker.shown(other, f"{mark} {cosine:.2f}", only=answer))
        title = f"Nearest examples: {query} → {answer}"
        sections.append(Section(title, note, examples=examples, points=72, per_row=1 + most))
        note = ""
    return sections
