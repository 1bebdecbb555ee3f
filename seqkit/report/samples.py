"""Samples of what a trained model predicts: sections of a report, by objective.

b batch · n tokens · k classes · m predictions · f features
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc

from seqkit.data.module import DataModule
from seqkit.generation import Sampling, stream_text
from seqkit.interfaces import IGNORE, LossOutput, Objective, TokenBatch, Tokens
from seqkit.objectives.classify import Classify
from seqkit.objectives.contrastive import Contrastive
from seqkit.objectives.ctc import CTC
from seqkit.objectives.losses import is_positive
from seqkit.objectives.masked import Masked
from seqkit.objectives.multi_label import MultiLabel
from seqkit.objectives.next_token import NextToken
from seqkit.objectives.regress import Regress
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.raw import Waveform
from seqkit.report.figures import FEW_CLASSES, confusion, scatter, svg
from seqkit.report.modality import Renderer, find_renderer
from seqkit.report.modality.audio import MAX_SECONDS, player_source
from seqkit.report.modality.base import Run
from seqkit.report.modality.cells import written
from seqkit.report.modality.graph import GraphRenderer
from seqkit.report.modality.series import forecast, steps_of
from seqkit.report.numbers import DASH, format_number
from seqkit.runs.trained_model import TrainedModel
from seqkit.tokenizers.cells import Cells

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

MAX_CLASSES = 100
"""Rows of the table of classes."""

Error = tuple[float, str, int]
"""A test example that is predicted wrongly: how wrong, its caption, and its place in the test split."""

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


@singledispatch
def samples(_objective: Objective, _trained: TrainedModel, _data: DataModule) -> list[Section]:
    """Sections of a report, by a run's objective: from the trained model and its data.

    An objective that is not known here has none.
    """
    return []


# ── a class ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Classify, trained: TrainedModel, data: DataModule) -> list[Section]:
    k = len(objective.names)
    is_whole = objective.level == "sequence"
    counts = np.zeros((k, k), np.int64)
    kinds = defaultdict[tuple[int, int], list[Error]](list)
    renderer = find_renderer(trained.tokenizer)
    for places, label, output in _outputs(trained, data):
        assert output.prediction is not None
        preds = output.prediction.argmax(dim=-1)
        known = label != IGNORE
        np.add.at(counts, (label[known].numpy(), preds[known].numpy()), 1)
        for i in (known & (preds != label)).nonzero()[:, 0].tolist() if is_whole else ():
            confidence = float(output.prediction[i].softmax(dim=-1).max())
            caption = f"{objective.names[preds[i]]} ({100 * confidence:.0f} %), not {objective.names[label[i]]}"
            kinds[int(preds[i]), int(label[i])].append((confidence, caption, places[i]))
    sections = class_sections(counts, objective.names, "examples" if is_whole else renderer.unit)
    if not is_whole and renderer.is_text:
        sections.append(_tagged(objective, trained, data))
    if not is_whole and isinstance(renderer, GraphRenderer) and len(label) == 1:
        right = torch.where(known, (preds == label).int() * 2 - 1, 0)[0].numpy()
        figure = renderer.answered(data.splits().test[0].raw, right)
        note = (
            "Green test nodes are right and red ones wrong; the class of a grey one was not asked."
        )
        sections.append(Section("The graph", note, [svg(figure)]))
    # of each kind of error two come first, so that one frequent confusion does not fill the page
    errors = [
        (confidence - (place > 1), caption, at)
        for found in kinds.values()
        for place, (confidence, caption, at) in enumerate(
            sorted(found, key=lambda error: -error[0])
        )
    ]
    note = "These wrong predictions have the highest probability, first two of each kind. The right class follows."
    return [*sections, *_largest("Most confident errors", note, trained, data, errors)]


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
    if len(names) <= FEW_CLASSES:
        scale = 0.6
    else:
        scale = 0.8
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

    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.2f} %" if whole else DASH

    rows = []
    for c in shown.tolist():
        precision = share(right[c], predicted[c])
        recall = share(right[c], support[c])
        rows.append((names[c], f"{support[c]:,}", precision, recall, f"{100 * f1[c]:.2f} %"))
    if len(rows) > 1 and len(shown) == len(known):
        rows.append(
            ("mean (macro)", f"{support.sum():,}", "", "", f"{100 * f1[known].mean():.2f} %")
        )
    return Section(
        "By class", note, columns=("class", "support", "precision", "recall", "F1"), rows=rows
    )


def _tagged(objective: Classify, trained: TrainedModel, data: DataModule) -> Section:
    """The first test examples, each token with its predicted class."""
    batch, label = _first_examples(data, NUM_SHOWN)
    assert label is not None
    preds = trained.predictor.run(trained.model, batch).argmax(dim=-1).cpu()
    renderer = find_renderer(trained.tokenizer)
    examples = []
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


@samples.register
def _(objective: MultiLabel, trained: TrainedModel, data: DataModule) -> list[Section]:
    found = [(output.prediction, label) for _, label, output in _outputs(trained, data)]
    scores, labels = (torch.cat(part) for part in zip(*found))
    rows = []
    names = objective.label_names or [f"label {i}" for i in range(1, labels.shape[1] + 1)]
    for name, score, label in zip(names, scores.T, labels.T, strict=True):
        known = ~label.isnan()
        yes = label[known] > 0.5
        is_defined = 0 < int(yes.sum()) < len(yes)
        if is_defined:
            area = f"{float(binary_auroc(score[known].sigmoid(), yes.long())):.3f}"
        else:
            area = DASH
        rows.append((name, f"{int(known.sum()):,}", f"{int(yes.sum()):,}", area))
    note = (
        "AUROC is the share of pairs of a yes and a no in which the yes has the higher probability. Examples without "
        "the label are left out."
    )
    return [
        Section("By label", note, columns=("label", "examples", "of these yes", "AUROC"), rows=rows)
    ]


# ── a number ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Regress, trained: TrainedModel, data: DataModule) -> list[Section]:
    targets = list[Tensor]()
    predicted = list[Tensor]()
    errors = list[Error]()
    has_one_target = objective.level == "sequence" and len(objective.mean) == 1
    for places, label, output in _outputs(trained, data):
        assert output.prediction is not None
        assert output.target is not None
        assert output.preds is not None
        targets.append(output.target)
        predicted.append(output.preds)
        rights = objective.in_unit(label).reshape(-1).tolist() if has_one_target else ()
        for place, found, right in zip(places, objective.decode(output.prediction), rights):
            if right == right:  # NaN: unknown
                errors.append(
                    (
                        abs(found - right),
                        f"{format_number(found)}, not {format_number(right)}",
                        place,
                    )
                )
    center = objective.center[0] if has_one_target else 0.0
    target, preds = (torch.cat(part).double().numpy() + center for part in (targets, predicted))
    note = f"Each dot is one of {len(target):,} test targets. On the dashed line the prediction is right."
    figure = scatter(target, preds, rmse=float(np.sqrt(np.mean((target - preds) ** 2))))
    sections = [Section("Predictions and targets", note, [svg(figure)])]
    if objective.forecast:
        return sections + _forecasts(objective, trained, data)
    note = "These predictions are furthest from their targets, which follow."
    return sections + _largest("Largest errors", note, trained, data, errors)


def _forecasts(objective: Regress, trained: TrainedModel, data: DataModule) -> list[Section]:
    """Windows that are evenly spread over the test split, with what followed and what was predicted."""
    found = data.test_dataloader().examples
    column, *_ = objective.fitted["column"]
    places = np.unique(np.linspace(0, len(found) - 1, NUM_SHOWN).round().astype(int)).tolist()
    batch, label = found[0, places]
    target = objective.in_unit(label).numpy()
    output = trained.predictor.step(objective, (batch, label))
    assert output.prediction is not None
    predicted = np.array(objective.decode(output.prediction))
    examples = []
    for place, right, guess in zip(places, target, predicted.reshape(target.shape)):
        past = steps_of(data.splits().test[place].raw)[-max(2 * len(right), 24) :, column]
        caption = f"RMSE {format_number(float(np.sqrt(np.nanmean((guess - right) ** 2))))}"
        examples.append(
            Shown(caption, _origin(trained, data, place), [svg(forecast(past, right, guess))])
        )
    note = "The last steps of some test windows. Left of the dotted line the model reads, in colour is its forecast."
    return [Section("Forecasts", note, examples=examples, points=72 * 2.8)]


# ── a sequence ───────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: NextToken, trained: TrainedModel, data: DataModule) -> list[Section]:
    if objective.part is not None:
        return _captions(objective, trained, data)
    if not find_renderer(trained.tokenizer).is_text:
        return []
    tokenizer: Any = trained.tokenizer
    prompt = str(tokenizer.decode(_first_examples(data, 1)[0].content[0][:NUM_PROMPT_TOKENS]))
    text = "".join(
        stream_text(trained, prompt, NUM_GENERATED, sampling=Sampling(temperature=0.8, seed=1))
    )
    note = (
        "The model continues the underlined text, which is the beginning of the test data. It draws "
        f"{NUM_GENERATED} tokens at temperature 0.8, with seed 1."
    )
    return [Section("Sample", note, examples=[Shown("", spans=((prompt, "prompt"), (text, "")))])]


def _captions(objective: NextToken, trained: TrainedModel, data: DataModule) -> list[Section]:
    """The part that a model of joined tokens writes behind the others."""
    batch, _ = _first_examples(data, NUM_SHOWN)
    texts = objective.decode(
        trained.predictor.run(partial(objective.predict, trained.model), batch)
    )
    references = [[text] for text in objective.decode(objective.references((batch, None))[:, 0])]
    return _generated(trained, data, texts, references, str(objective.part))


@samples.register
def _(objective: Seq2Seq | CTC, trained: TrainedModel, data: DataModule) -> list[Section]:
    batch, label = _first_examples(data, NUM_SHOWN)
    assert label is not None
    texts = objective.decode(
        trained.predictor.run(partial(objective.predict, trained.model), batch)
    )
    references = [
        [objective.decode(row[None])[0] for row in rows if int(row[0]) != IGNORE] for rows in label
    ]
    return _generated(trained, data, texts, references)


def _generated(
    trained: TrainedModel,
    data: DataModule,
    texts: Sequence[Any],
    references: Sequence[Sequence[Any]],
    part: str = "",
) -> list[Section]:
    """The first test examples without the part that is written, each with what the model writes for it."""
    examples = []
    for place, (text, right) in enumerate(zip(texts, references)):
        shown = _shown(trained, data, place, "", without=part)
        is_right = text in right
        spans = [(f"{before}\n", mark) for before, mark in shown.spans]
        spans.append((str(text)[:MAX_CHARACTERS] or "(nothing)", "right" if is_right else "wrong"))
        spans += [] if is_right else [(f"\n{' | '.join(map(str, right))[:MAX_CHARACTERS]}", "")]
        examples.append(replace(shown, spans=spans))
    note = (
        "The first test examples, each with the text that the model writes. Green is equal to a reference; otherwise "
        "the references follow."
    )
    return _gallery("Generated", note, trained, examples)


@samples.register
def _(objective: Masked, trained: TrainedModel, data: DataModule) -> list[Section]:
    batch, label = _first_examples(data, NUM_SHOWN)
    renderer = find_renderer(trained.tokenizer)
    if not (renderer.is_text or batch.content.is_floating_point()):
        return []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        output = trained.predictor.step(objective, (batch, label))
    assert output.inputs is not None
    assert output.prediction is not None
    assert output.inputs.masked is not None
    masked = output.inputs.masked.cpu()
    prediction = output.prediction.cpu()
    where = masked[..., None]
    examples = []
    for i in range(len(batch)):
        origin = _origin(trained, data, i)
        if renderer.is_text:
            predicted = example(replace(batch, content=prediction.argmax(dim=-1)), i)
            spans = list(
                _masked_text(renderer, example(batch, i), predicted, masked[i][batch.valid[i]])
            )
            examples.append(Shown("", origin, spans=spans))
            continue
        contents = (
            batch.content, batch.content.masked_fill(where, 0.0), torch.where(where, prediction.float(), batch.content)
        )  # fmt: skip
        versions = [example(replace(batch, content=content), i) for content in contents]
        examples.append(
            Shown("", origin, [renderer.small_svg(None, version) for version in versions])
        )
    note = (
        f"The first test examples. {100 * objective.fraction:.0f} % of their tokens are masked, and the model predicts "
        "these from the rest. Below each other or side by side are the example, what the model sees of it, and its "
        "predictions in the masked places."
    )
    return _gallery("Masked and predicted", note, trained, examples, pictures=3)


def _masked_text(
    renderer: Renderer, original: Tokens, predicted: Tokens, masked: Tensor
) -> Iterator[Span]:
    """The text, the input with masked tokens as lines, and the predictions, one below the other."""
    triples = list(zip(renderer.pieces(original), renderer.pieces(predicted), masked.tolist()))
    yield from ((text, "") for text, _, _ in triples)
    yield "\n\n", ""
    yield from (
        ("▁" * len(text), "masked") if is_masked else (text, "") for text, _, is_masked in triples
    )
    yield "\n\n", ""
    for text, pred, is_masked in triples:
        yield (pred, "right" if pred == text else "wrong") if is_masked else (text, "")


# ── a ranking ────────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Contrastive, trained: TrainedModel, data: DataModule) -> list[Section]:
    found = list(_outputs(trained, data))
    places = [place for indices, _, _ in found for place in indices]
    order = torch.tensor(places).argsort()
    vectors, keys = (
        torch.cat([getattr(one, name) for *_, one in found])[order] for name in ("preds", "target")
    )
    if objective.has_classes:
        same = "an example of the same class"
    else:
        same = "the example itself, or one with an equal part"
    note = (
        f"A row begins with one part of a test example. Beside it are those of {len(places):,} test examples whose "
        f"other part is nearest, with the cosine of the two vectors. ✓ marks {same}."
    )
    sections = []
    for i, j in islice(permutations(range(len(objective.parts)), 2), NUM_DIRECTIONS):
        known = (~vectors[:, j, 0].isnan()).nonzero()[:, 0]
        queries = known[~vectors[known, i, 0].isnan()][:NUM_QUERIES]
        if not len(queries):
            continue
        cosines, nearest = (vectors[queries, i] @ vectors[known, j].T).topk(
            min(NUM_NEAREST, len(known)), dim=1
        )
        right = is_positive(keys[queries], keys[known], i, j).gather(1, nearest)
        examples = []
        for row, query in enumerate(queries.tolist()):
            examples.append(_shown(trained, data, query, "query", only=objective.parts[i]))
            for place, cosine, is_right in zip(
                known[nearest[row]].tolist(), cosines[row], right[row]
            ):
                caption = f"{'✓' if is_right else '✗'} {cosine:.2f}"
                examples.append(_shown(trained, data, place, caption, only=objective.parts[j]))
        title = f"Nearest examples: {objective.parts[i]} → {objective.parts[j]}"
        sections.append(
            Section(title, note, examples=examples, points=72, per_row=1 + nearest.shape[1])
        )
        note = ""
    return sections


# ── examples ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def example(batch: TokenBatch, index: int) -> Tokens:
    """One example of a batch, without padding and without adjacency."""
    return batch.replace(adjacency=None).example(index)


def _first_examples(data: DataModule, count: int) -> tuple[TokenBatch, Tensor | None]:
    """The first test examples in the data's order; the loader begins with the shortest."""
    examples = data.test_dataloader().examples
    return examples[0, list(range(min(count, len(examples))))]


def _outputs(
    trained: TrainedModel, data: DataModule
) -> Iterator[tuple[list[int], Any, LossOutput]]:
    """Batches of the test split: places of their examples in it, labels (None without), and the step's output."""
    loader = data.test_dataloader()
    for places, (batch, label) in zip(loader.batch_indices(), loader):
        yield places, label, trained.predictor.step(trained.objective, (batch, label))


def _largest(
    title: str, note: str, trained: TrainedModel, data: DataModule, errors: Sequence[Error]
) -> list[Section]:
    """A gallery of the largest errors; none where there is no error."""
    largest = sorted(errors, key=lambda error: -error[0])[:NUM_SHOWN]
    return _gallery(
        title,
        note,
        trained,
        [_shown(trained, data, place, caption) for _, caption, place in largest],
    )


def _gallery(
    title: str, note: str, trained: TrainedModel, examples: Sequence[Shown], *, pictures: int = 1
) -> list[Section]:
    """A section of examples, with how to read them; none without examples. pictures: of an example, side by side."""
    if examples and all(one.cells and not (one.figures or one.sound) for one in examples):
        return [_rows(title, note, examples)]
    renderer = find_renderer(trained.tokenizer)
    is_drawn = any(one.figures for one in examples)
    if is_drawn and renderer.note:
        note += f" {renderer.note}"
    if any(one.sound for one in examples):
        note += f" A player has at most the first {MAX_SECONDS:g} seconds."
    points = 72 * renderer.size[0] * pictures if is_drawn else 0
    if examples:
        return [Section(title, note, examples=examples, points=points)]
    return []


def _rows(title: str, note: str, examples: Sequence[Shown]) -> Section:
    """Examples that are rows of a table, below each other."""
    names = list(dict.fromkeys(name for one in examples for name, _ in one.cells))
    found = [dict(one.cells) for one in examples]
    rows = [
        (one.caption, *(row.get(name, DASH) for name in names), Path(one.origin).name)
        for one, row in zip(examples, found)
    ]
    return Section(title, note, columns=("prediction", *names, "from"), rows=rows, points=WHOLE)


def _shown(
    trained: TrainedModel,
    data: DataModule,
    place: int,
    caption: str,
    *,
    only: str = "",
    without: str = "",
) -> Shown:
    """A test example under a caption, with where it is from; of joined tokens one part alone, or all but one."""
    batch, _ = data.test_dataloader().examples[0, [place]]
    runs = find_renderer(trained.tokenizer).runs(data.splits().test[place].raw, example(batch, 0))
    kept = [
        run
        for run in runs
        if (run.name == only or not only) and (run.name != without or not without)
    ]
    return _drawn(kept, caption, "" if only else _origin(trained, data, place))


def _drawn(runs: Sequence[Run], caption: str, origin: str) -> Shown:
    """The parts of an example: texts as text, cells as a table, others as small pictures, and sound to be heard."""
    figures = list[str]()
    spans = list[Span]()
    cells = list[tuple[str, str]]()
    sound = ""
    is_row = any(isinstance(run.renderer.tokenizer, Cells) for run in runs)
    for name, renderer, raw, tokens in runs:
        tokenizer: Any = renderer.tokenizer
        if isinstance(tokenizer, Cells):
            cells += [
                (column, written(value)) for column, value in raw.items() if value is not None
            ]
        elif renderer.is_text or (isinstance(raw, str) and type(renderer) is Renderer):
            text = raw if isinstance(raw, str) else str(tokenizer.decode(tokens))
            if is_row:
                cells.append((name, text[:MAX_CHARACTERS]))
            else:
                spans.append(
                    (
                        f"{name}: {text[:MAX_CHARACTERS]}\n" if runs[1:] else text[:MAX_CHARACTERS],
                        "",
                    )
                )
        else:
            figures.append(renderer.small_svg(raw, tokens))
        sound = sound or (player_source(raw) if isinstance(raw, Waveform) else "")
    return Shown(caption, origin, figures, sound, spans, cells)


def _origin(trained: TrainedModel, data: DataModule, place: int) -> str:
    """Where a test example is from, as its data source says; a path begins in the folder that the source was given."""
    source = trained.config["data"]["source"]
    name = data.test_dataloader().examples.name(place)
    given = source.values() if isinstance(source, Mapping) else ()
    for path in (Path(one).expanduser() for one in given if isinstance(one, str)):
        name = name.removeprefix(f"{path if path.is_dir() else path.parent}/")
    return name
