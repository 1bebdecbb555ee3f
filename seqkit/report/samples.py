"""Samples of what a trained model predicts: sections of a report, by objective.

b batch · n tokens · k classes · m predictions · f features
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from itertools import islice, permutations
from textwrap import fill, shorten
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from seqkit.analysis.missing_parts import RATES, missing_parts
from seqkit.data.module import DataModule
from seqkit.generation import Sampling, stream_text
from seqkit.generation.parts import before_last_run
from seqkit.interfaces import IGNORE, LossOutput, Objective, TokenBatch, Tokens
from seqkit.objectives.classify import Classify
from seqkit.objectives.contrastive import Contrastive
from seqkit.objectives.losses import is_positive
from seqkit.objectives.masked import Masked
from seqkit.objectives.multi_label import MultiLabel
from seqkit.objectives.next_token import NextToken
from seqkit.objectives.regress import Regress
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.report.figures import GREEN, INK, STYLE, VERMILION, confusion, new_figure, scatter, svg
from seqkit.report.headline import SHARES
from seqkit.report.modality import Renderer, find_renderer
from seqkit.runs.trained_model import TrainedModel

MAX_EXAMPLES = 2000
"""A confusion matrix or a scatter plot shows at most this many test examples."""

NUM_SHOWN = 8
NUM_SHOWN_TEXTS = 3
NUM_PROMPT_TOKENS = 24
NUM_GENERATED = 400
MAX_CHARACTERS = 600
NUM_QUERIES, NUM_NEAREST, NUM_DIRECTIONS = 3, 5, 6
"""Queries of each direction of retrieval that are shown, how many of the nearest, and most directions."""

MAX_CAPTION = 84
"""Characters of a text that is drawn as a thumbnail."""

MAX_CLASSES = 100
"""Rows of the table of classes."""

Span = tuple[str, str]
"""A piece of text and its class in the page's style: "", "prompt", "masked", "right" or "wrong"."""


@dataclass(frozen=True)
class Passage:
    """Text with marked pieces under a caption."""

    caption: str
    spans: Sequence[Span]


@dataclass(frozen=True)
class Section:
    """A section of a report. figures: SVG elements. captions: one for each figure, or none at all.

    columns, rows: a table whose first column is a name.
    """

    title: str
    note: str
    figures: Sequence[str] = ()
    captions: Sequence[str] = ()
    passages: Sequence[Passage] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


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
    passage = Passage("prompt (underlined) and continuation", ((prompt, "prompt"), (text, "")))
    return [Section("Sample", f"{NUM_GENERATED} tokens sampled at temperature 0.8, seed 1.", passages=[passage])]


def _captions(objective: NextToken, trained: TrainedModel, data: DataModule) -> list[Section]:
    """The first test examples, each with what is generated behind its other parts, and the reference if it differs."""
    batch, _ = _first_examples(data, NUM_SHOWN)
    found = objective.decode(trained.predictor.run(partial(objective.predict, trained.model), batch))
    right = objective.decode(objective.references((batch, None))[:, 0])
    renderer, figures, captions = find_renderer(trained.tokenizer), [], []
    for i, (text, reference) in enumerate(zip(found, right)):
        with rc_context(STYLE):
            figure, (axes,) = new_figure(1.6, 1.6)
            axes.set_axis_off()
            renderer.thumbnail(before_last_run(example(batch, i), str(objective.part)), axes)
        figures.append(svg(figure))
        captions.append(str(text) if text == reference else f"{text} (reference: {reference})")
    note = f"The first test examples, and the {objective.part} that is generated behind them."
    return [Section("Generated", note, figures, captions)]


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
    counts, errors = np.zeros((k, k), np.int64), list[Error]()
    for indices, batch, label, prediction in _predictions(trained, data):
        preds, known = prediction.argmax(dim=-1), label != IGNORE
        np.add.at(counts, (label[known].numpy(), preds[known].numpy()), 1)
        if objective.level == "sequence":
            confidence = prediction.softmax(dim=-1).amax(dim=-1)
            for i in (known & (preds != label)).nonzero()[:, 0].tolist():
                names = objective.names[preds[i]], objective.names[label[i]]
                caption = f"{names[0]}, not {names[1]} ({100 * confidence[i]:.0f} %)"
                errors.append(Error(float(confidence[i]), caption, example(batch, i), indices[i]))
            errors = _largest(errors)
    right, total = int(np.trace(counts)), int(counts.sum())
    note = f"{right:,} of {total:,} test {'examples' if objective.level == 'sequence' else 'tokens'} are right."
    sections = [
        Section("Confusion matrix", note, [svg(confusion(counts, objective.names))]),
        _by_class(counts, objective.names),
    ]
    if objective.level == "token" and find_renderer(trained.tokenizer).is_text:
        sections.append(_tagged(objective, trained, data))
    note = "Predicted class, target class, and the predicted probability."
    return [
        *sections,
        *_missing(trained, data, "accuracy"),
        *_gallery("Most confident errors", note, trained, data, errors),
    ]


def _by_class(counts: np.ndarray, names: Sequence[str]) -> Section:
    """Support, precision, recall and F1 of each class from counts [k k] of (target, predicted); of many, the worst."""
    right, support, predicted = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    known = np.flatnonzero(support + predicted)  # F1 is not defined for the others
    f1 = np.zeros(len(names))
    f1[known] = 2 * right[known] / (support + predicted)[known]
    note = "Support: test examples of the class. F1: harmonic mean of precision and recall; a dash: undefined."
    shown = known
    if len(known) > MAX_CLASSES:
        shown = known[np.argsort(f1[known], kind="stable")[:MAX_CLASSES]]
        note = f"The {MAX_CLASSES} classes with the lowest F1, of {len(known):,}. {note}"

    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.2f} %" if whole else "–"

    rows = []
    for c in shown.tolist():
        precision, recall = share(right[c], predicted[c]), share(right[c], support[c])
        rows.append((names[c], f"{support[c]:,}", precision, recall, f"{100 * f1[c]:.2f} %"))
    if len(rows) > 1 and len(shown) == len(known):
        rows.append(("mean (macro)", f"{support.sum():,}", "", "", f"{100 * f1[known].mean():.2f} %"))
    return Section("By class", note, columns=("class", "support", "precision", "recall", "F1"), rows=rows)


def _tagged(objective: Classify, trained: TrainedModel, data: DataModule) -> Section:
    """The first test examples, each token with its predicted class."""
    batch, label = _first_examples(data, NUM_SHOWN)
    assert label is not None
    preds = trained.predictor.run(trained.model, batch).argmax(dim=-1).cpu()
    renderer, passages = find_renderer(trained.tokenizer), []
    for i in range(len(batch)):
        spans: list[Span] = []
        for piece, pred, target in zip(renderer.pieces(example(batch, i)), preds[i], label[i]):
            name = objective.names[int(pred)]
            if target == IGNORE or pred == target:
                spans.append((f"{piece}/{name} ", "" if target == IGNORE else "right"))
            else:
                spans.append((f"{piece}/{name}, not {objective.names[int(target)]} ", "wrong"))
        passages.append(Passage(f"test example {i + 1}", spans))
    return Section("First test examples", "Each token with its predicted class.", passages=passages)


# ── several labels ───────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(_objective: MultiLabel, trained: TrainedModel, data: DataModule | None) -> list[Section]:
    if data is None:
        return []
    found = [(prediction.sigmoid(), label) for _, _, label, prediction in _predictions(trained, data)]
    chances, labels = (torch.cat(part) for part in zip(*found))
    rows = []
    for i, (chance, label) in enumerate(zip(chances.T, labels.T), start=1):
        known = ~label.isnan()
        yes = label[known] > 0.5
        means = [
            f"{float(part.mean()):.3f}" if len(part) else "–" for part in (chance[known][yes], chance[known][~yes])
        ]
        rows.append((f"label {i}", f"{int(known.sum()):,}", f"{int(yes.sum()):,}", *means))
    note = "Mean probability of yes that the model gives to test examples that are yes, and to those that are no."
    columns = ("label", "known", "yes", "where yes", "where no")
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
    passages = []
    for i, text in enumerate(texts):
        references = [str(objective.decode(row[None])[0]) for row in label[i] if int(row[0]) != IGNORE]
        shown = [_text(tokenizer, example(batch, i))] if renderer.is_text else []
        is_right = text in references
        spans: list[Span] = [(f"{part}\n", "") for part in shown]
        spans.append((text[:MAX_CHARACTERS] or "(nothing)", "right" if is_right else "wrong"))
        if not is_right:
            spans.append((f"\n{' | '.join(references)[:MAX_CHARACTERS]}", ""))
        passages.append(Passage(f"test example {i + 1}", spans))
    note = "The first test examples: the source, the generated text and, if it matches no reference, the references."
    return [Section("Generated", note, passages=passages)]


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
        answers = zip(objective.decode(prediction), label.reshape(-1).tolist()) if has_one_target else ()
        for i, (found, right) in enumerate(answers):
            if right == right:  # NaN: unknown
                errors.append(Error(abs(found - right), f"{found:.3g}, not {right:.3g}", example(batch, i), indices[i]))
        errors = _largest(errors)
    target, preds = torch.cat(targets).numpy(), torch.cat(predicted).numpy()
    rmse = float(np.sqrt(np.mean((target - preds) ** 2)))
    largest = float(np.abs(target - preds).max())
    note = f"{len(target):,} test targets; the largest error is {largest:.3g}."
    sections = [Section("Predictions and targets", note, [svg(scatter(target, preds, rmse=rmse))])]
    sections += _missing(trained, data, "rmse")
    return [*sections, *_gallery("Largest errors", "Prediction and target.", trained, data, errors)]


def _missing(trained: TrainedModel, data: DataModule, metric: str) -> list[Section]:
    """The metric where test examples lack a part of joined tokens, as a figure and a table; none for other tokens."""
    found = missing_parts(trained, data, metric)
    if not found:
        return []
    is_share = metric in SHARES
    with rc_context(STYLE):
        figure, (axes,) = new_figure(5.2, 2.6)
        for name, values in found.items():
            axes.plot(
                [100 * rate for rate in RATES], [100 * x if is_share else x for x in values], marker=".", label=name
            )
        axes.set(xlabel="test examples without the part, %", ylabel=f"{metric}, %" if is_share else metric)
        axes.legend(title="part that is missing")
    note = "The same model, where a part is taken from a share of the test examples; an example keeps its last part."
    columns = ("part", *(f"{rate:.0%} without" for rate in RATES))
    rows = [(name, *(f"{x:.2%}" if is_share else f"{x:.4g}" for x in values)) for name, values in found.items()]
    return [Section("Missing parts", note, [svg(figure)], columns=columns, rows=rows)]


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
        f"{100 * objective.fraction:.0f} % of the tokens of each test example are masked and predicted from the rest."
    )
    renderer = find_renderer(trained.tokenizer)
    if renderer.is_text:
        passages: list[Passage] = []
        for i in range(min(NUM_SHOWN_TEXTS, len(batch))):
            predicted = example(replace(batch, content=prediction.argmax(dim=-1)), i)
            passages += _masked_text(renderer, example(batch, i), predicted, masked[i][batch.valid[i]])
        return [Section(title, note, passages=passages)]
    if not batch.content.is_floating_point():
        return []
    return [Section(title, note, [svg(_masked_pictures(renderer, batch, masked, prediction))])]


def _masked_text(renderer: Renderer, original: Tokens, predicted: Tokens, masked: Tensor) -> Iterator[Passage]:
    preds, target, is_masked = renderer.pieces(predicted), renderer.pieces(original), masked.tolist()
    yield Passage("original", [(text, "") for text in target])
    yield Passage("model input", [("▁" * len(t) if m else t, "masked" if m else "") for t, m in zip(target, is_masked)])
    marks = [("right" if p == t else "wrong") if m else "" for p, t, m in zip(preds, target, is_masked)]
    yield Passage("prediction", [(p if m else t, mark) for p, t, m, mark in zip(preds, target, is_masked, marks)])


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
        known = (~(vectors[:, i, 0].isnan() | vectors[:, j, 0].isnan())).nonzero()[:, 0]
        if not len(known):
            continue
        queries = known[:NUM_QUERIES]
        cosines, nearest = (vectors[queries, i] @ vectors[known, j].T).topk(min(NUM_NEAREST, len(known)), dim=1)
        right = is_positive(keys[queries], keys[known], i, j).gather(1, nearest)
        shown = queries.tolist(), known[nearest].tolist(), cosines.tolist(), right.tolist()
        figures.append(svg(_nearest_pictures(trained, data, (objective.parts[i], objective.parts[j]), *shown)))
    note = (
        f"The first test examples by one part, and the nearest of {len(places):,} test examples by another, with their "
        f"cosines. ✓ and green: {'the same class' if objective.has_classes else 'the same example, or an equal part'}."
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
    examples = data.test_dataloader().examples
    for row, query in enumerate(queries):
        batch, _ = examples[0, [query, *nearest[row]]]
        for column in range(columns):
            ax, name = axes[row * columns + column], names[column > 0]
            _draw_part(trained, name, dict(example(batch, column).alone())[name], ax)
            if column == 0:
                ax.set_title(f"{names[0]} → {names[1]}" if row == 0 else "")
                continue
            is_right = right[row][column - 1]
            ax.set_title(f"{'✓' if is_right else '✗'} {cosines[row][column - 1]:.2f}")
            for spine in ax.spines.values():
                spine.set(visible=True, color=GREEN if is_right else VERMILION, linewidth=2.5)
    return figure


def _draw_part(trained: TrainedModel, name: str, tokens: Tokens, axes: Axes) -> None:
    """A thumbnail of a part of an example; of a text its words."""
    joined: Any = trained.tokenizer
    tokenizer = joined.parts[name]
    renderer = find_renderer(tokenizer)
    if not renderer.is_text:
        renderer.thumbnail(tokens, axes)
        return
    text = shorten(_text(tokenizer, tokens), width=MAX_CAPTION, placeholder="…")
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, fill(text, 12), transform=axes.transAxes, ha="center", va="center", fontsize=8)


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
    """A section of wrongly predicted examples as texts or thumbnails; none where there is no error."""
    if not errors:
        return
    renderer, captions = find_renderer(trained.tokenizer), [error.caption for error in errors]
    raws = [data.splits().test[error.place].raw for error in errors]
    if all(isinstance(raw, str) for raw in raws) or renderer.is_text:
        tokenizer: Any = trained.tokenizer
        texts = [raw if isinstance(raw, str) else _text(tokenizer, error.tokens) for raw, error in zip(raws, errors)]
        passages = [Passage(caption, [(text[:MAX_CHARACTERS], "")]) for text, caption in zip(texts, captions)]
        yield Section(title, note, passages=passages)
        return
    figures = []
    for error in errors:
        with rc_context(STYLE):
            figure, (axes,) = new_figure(1.6, 1.6)
            axes.set_axis_off()
            renderer.thumbnail(error.tokens, axes)
        figures.append(svg(figure))
    yield Section(title, note, figures, captions=captions)
