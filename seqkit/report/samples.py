"""What a trained model does, in samples: sections of a report, by objective.

b batch · n tokens · k classes · m predictions · f features
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from torch import Tensor

from seqkit.data.module import DataModule
from seqkit.errors import one_line
from seqkit.generation import Sampling, stream_text
from seqkit.interfaces import IGNORE, Objective, TokenBatch, Tokens
from seqkit.objectives.classify import Classify
from seqkit.objectives.masked import Masked
from seqkit.objectives.next_token import NextToken
from seqkit.objectives.regress import Regress
from seqkit.report.figures import INK, STYLE, confusion, new_figure, scatter, svg
from seqkit.report.modality import Renderer, find_renderer
from seqkit.runs.trained_model import TrainedModel

MAX_EXAMPLES = 2000
"""A confusion matrix or a scatter plot shows at most this many test examples."""

NUM_SHOWN = 8
NUM_SHOWN_TEXTS = 3
NUM_PROMPT_TOKENS = 24
NUM_GENERATED = 400
MAX_CHARACTERS = 600

Span = tuple[str, str]
"""A piece of text and its class in the page's style: "", "prompt", "masked", "right" or "wrong"."""


@dataclass(frozen=True)
class Passage:
    """Text with marked pieces under a caption."""

    caption: str
    spans: Sequence[Span]


@dataclass(frozen=True)
class Section:
    """A section of a report. figures: SVG elements."""

    title: str
    note: str
    figures: Sequence[str] = ()
    passages: Sequence[Passage] = ()


@singledispatch
def samples(_objective: Objective, _trained: TrainedModel, _data: DataModule | None) -> list[Section]:
    """Sections of a report, by a run's objective: from the trained model and its data, None where that is absent.

    An objective that is not known here has none.
    """
    return []


# ── next token ───────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(_objective: NextToken, trained: TrainedModel, data: DataModule | None) -> list[Section]:
    if not find_renderer(trained.tokenizer).is_text:
        return []
    prompt = _prompt(trained, data)
    text = "".join(stream_text(trained, prompt, NUM_GENERATED, sampling=Sampling(temperature=0.8, seed=1)))
    passage = Passage("prompt (underlined) and continuation", ((prompt, "prompt"), (text, "")))
    return [Section("Sample", f"{NUM_GENERATED} tokens sampled at temperature 0.8, seed 1.", passages=[passage])]


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
    counts, errors = np.zeros((k, k), np.int64), []
    for batch, label, prediction in _predictions(trained, data):
        preds, known = prediction.argmax(dim=-1), label != IGNORE
        np.add.at(counts, (label[known].numpy(), preds[known].numpy()), 1)
        if objective.level == "sequence":
            confidence = prediction.softmax(dim=-1).amax(dim=-1)
            errors += [
                (float(confidence[i]), i, batch, label[i], preds[i]) for i in (known & (preds != label)).nonzero()[:, 0]
            ]
    right, total = int(np.trace(counts)), int(counts.sum())
    note = f"{right:,} of {total:,} test {'examples' if objective.level == 'sequence' else 'tokens'} are right."
    sections = [Section("Confusion matrix", note, [svg(confusion(counts, objective.names))])]
    errors = sorted(errors, key=lambda error: -error[0])[:NUM_SHOWN]
    if errors:
        titles = [
            f"{objective.names[pred]}, not {objective.names[target]} ({100 * confidence:.0f} %)"
            for confidence, _, _, target, pred in errors
        ]
        examples = [example(batch, int(i)) for _, i, batch, _, _ in errors]
        note = "Predicted class, target class, and the predicted probability."
        sections.append(_gallery("Most confident errors", note, trained, examples, titles))
    return sections


# ── regression ───────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Regress, trained: TrainedModel, data: DataModule | None) -> list[Section]:
    if data is None:
        return []
    outputs = [
        objective.loss(prediction, objective.prepare(batch, label).target)
        for batch, label, prediction in _predictions(trained, data)
    ]
    target = torch.cat([output.target for output in outputs if output.target is not None]).numpy()
    preds = torch.cat([output.preds for output in outputs if output.preds is not None]).numpy()
    rmse = float(np.sqrt(np.mean((target - preds) ** 2)))
    largest = float(np.abs(target - preds).max())
    note = f"{len(target):,} test targets; the largest error is {largest:.3g}."
    return [Section("Predictions and targets", note, [svg(scatter(target, preds, rmse=rmse))])]


# ── masked ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Masked, trained: TrainedModel, data: DataModule | None) -> list[Section]:
    if data is None:
        return []
    batch, label = _first_examples(data, NUM_SHOWN)
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(1)
        model_input = objective.prepare(batch, label)
        prediction = trained.model(model_input.batch, model_input.masked)
    masked = model_input.masked
    assert masked is not None
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
    if batch.content.ndim == 2:
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


# ── examples ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def example(batch: TokenBatch, index: int) -> Tokens:
    """One example of a batch, without padding and without adjacency."""
    valid = batch.valid[index]
    return Tokens(batch.content[index][valid], batch.positions[index][valid])


def _first_examples(data: DataModule, count: int) -> tuple[TokenBatch, Tensor | None]:
    """The first test examples in the data's order; the loader begins with the shortest."""
    examples = data.test_dataloader().examples
    return examples[0, list(range(min(count, len(examples))))]


@torch.inference_mode()
def _predictions(trained: TrainedModel, data: DataModule) -> Iterator[tuple[TokenBatch, Tensor, Tensor]]:
    """Batches of the test split, their labels and the model's predictions."""
    for batch, label in data.test_dataloader():
        assert label is not None
        yield batch, label, trained.model(batch)


def _gallery(
    title: str, note: str, trained: TrainedModel, examples: Sequence[Tokens], titles: Sequence[str]
) -> Section:
    """Examples as texts, or as thumbnails in rows of four."""
    renderer = find_renderer(trained.tokenizer)
    if renderer.is_text:
        tokenizer: Any = trained.tokenizer
        texts = [str(tokenizer.decode(one))[:MAX_CHARACTERS] for one in examples]
        passages = [Passage(caption, [(text, "")]) for text, caption in zip(texts, titles)]
        return Section(title, note, passages=passages)
    with rc_context(STYLE):
        rows = -(-len(examples) // 4)
        figure, axes = new_figure(6.4, 1.75 * rows, rows=rows, columns=4)
        for ax in axes:
            ax.set_axis_off()
        for one, caption, ax in zip(examples, titles, axes):
            renderer.thumbnail(one, ax)
            ax.set_title(one_line(caption), fontsize=7.5, loc="center")
    return Section(title, note, [svg(figure)])
