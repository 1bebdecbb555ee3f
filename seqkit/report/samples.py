"""What a trained model does, in samples: sections of a report, by objective.

b batch · n tokens · m predictions · f features
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

from seqkit.contract import IGNORE, Objective, TokenBatch, Tokens
from seqkit.generate import Sampling, stream_text
from seqkit.objectives.classify import Classify
from seqkit.objectives.masked import Masked
from seqkit.objectives.next_token import NextToken
from seqkit.objectives.regress import Regress
from seqkit.report.figures import INK, STYLE, blank, confusion, scatter, svg
from seqkit.report.pictures import pieces, thumbnail
from seqkit.run import Loaded
from seqkit.tokenizers.text import Text

MAX_EXAMPLES = 2000
"""So many test examples at most stand behind a confusion matrix or a scatter plot."""

NUM_SHOWN = 8
NUM_GENERATED = 400

Span = tuple[str, str]
"""A piece of text and its class in the page's style: "", "given", "hidden", "right" or "wrong"."""


@dataclass(frozen=True)
class Passage:
    """Text with marked pieces under a caption."""

    caption: str
    spans: Sequence[Span]


@dataclass(frozen=True)
class Section:
    """A part of a report. figures: SVG elements."""

    title: str
    note: str
    figures: Sequence[str] = ()
    passages: Sequence[Passage] = ()


@singledispatch
def samples(_objective: Objective, _loaded: Loaded, _data: Any) -> list[Section]:
    """Sections of a report, from a run's objective, the loaded run and its connected `Data`; None where that is absent.

    An objective that is not known here has none.
    """
    return []


# ── next token ───────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(_objective: NextToken, loaded: Loaded, data: Any) -> list[Section]:
    tokenizer = loaded.tokenizer
    if not isinstance(tokenizer, Text):
        return []
    # example 0, not the loader's first: that is the shortest window, maybe two characters from the end of a document
    start = data.test_dataloader().examples[0, [0]][0].content[0][:24] if data is not None else torch.tensor([0])
    prompt = tokenizer.decode(start)
    text = "".join(stream_text(loaded, prompt, NUM_GENERATED, sampling=Sampling(temperature=0.8, seed=1)))
    passage = Passage("prompt (underlined) and continuation", ((prompt, "given"), (text, "")))
    return [Section("Sample", f"{NUM_GENERATED} tokens drawn at temperature 0.8, seed 1.", passages=[passage])]


# ── classification ───────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Classify, loaded: Loaded, data: Any) -> list[Section]:
    if data is None:
        return []
    k = len(objective.names)
    counts, wrong = np.zeros((k, k), np.int64), []
    for batch, label, prediction in _predicted(loaded, data):
        guess, known = prediction.argmax(dim=-1), label != IGNORE
        np.add.at(counts, (label[known].numpy(), guess[known].numpy()), 1)
        if objective.per == "sequence":
            sure = prediction.softmax(dim=-1).amax(dim=-1)
            wrong += [
                (float(sure[i]), i, batch, label[i], guess[i]) for i in (known & (guess != label)).nonzero()[:, 0]
            ]
    right, total = int(np.trace(counts)), int(counts.sum())
    note = f"{right:,} of {total:,} test {'examples' if objective.per == 'sequence' else 'tokens'} are right."
    sections = [Section("Confusion matrix", note, [svg(confusion(counts, objective.names))])]
    wrong = sorted(wrong, key=lambda one: -one[0])[:NUM_SHOWN]
    if wrong:
        titles = [f"{objective.names[g]}, not {objective.names[t]} ({100 * sure:.0f} %)" for sure, _, _, t, g in wrong]
        examples = [example(batch, int(i)) for _, i, batch, _, _ in wrong]
        sections.append(
            _shown("Surest mistakes", "Predicted class, true class, and how sure it was.", loaded, examples, titles)
        )
    return sections


# ── regression ───────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Regress, loaded: Loaded, data: Any) -> list[Section]:
    if data is None:
        return []
    truth, predicted = [], []
    for batch, label, prediction in _predicted(loaded, data):
        score = objective.score(prediction, objective.prepare(batch, label).target)
        truth.append(score.truth)
        predicted.append(score.predicted)
    true, said = torch.cat(truth).numpy(), torch.cat(predicted).numpy()
    rmse = float(np.sqrt(np.mean((true - said) ** 2)))
    far = float(np.abs(true - said).max())
    note = f"{len(true):,} test targets; the largest error is {far:.3g}."
    return [Section("Predicted and true", note, [svg(scatter(true, said, rmse=rmse))])]


# ── masked ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@samples.register
def _(objective: Masked, loaded: Loaded, data: Any) -> list[Section]:
    if data is None:
        return []
    examples = data.test_dataloader().examples  # in the data's order: the loader begins with the shortest
    batch, label = examples[0, list(range(min(NUM_SHOWN, len(examples))))]
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(1)
        task = objective.prepare(batch, label)
        prediction = loaded.model(task.batch, task.hide)
    assert task.hide is not None
    note = f"{100 * objective.fraction:.0f} % of the tokens of each test example are hidden and rebuilt from the rest."
    if isinstance(loaded.tokenizer, Text):
        passages: list[Passage] = []
        for i in range(min(3, len(batch))):
            rebuilt = example(replace(batch, content=prediction.argmax(dim=-1)), i)
            passages += _masked_text(loaded.tokenizer, example(batch, i), rebuilt, task.hide[i][batch.valid[i]])
        return [Section("Hidden and rebuilt", note, passages=passages)]
    if batch.content.ndim == 2:
        return []
    return [Section("Hidden and rebuilt", note, [svg(_masked_pictures(loaded, batch, task.hide, prediction))])]


def _masked_text(tokenizer: Text, original: Tokens, rebuilt: Tokens, hide: Tensor) -> Iterator[Passage]:
    said, true, hidden = pieces(tokenizer, rebuilt), pieces(tokenizer, original), hide.tolist()
    yield Passage("original", [(text, "") for text in true])
    yield Passage(
        "read by the model", [("▁" * len(t) if h else t, "hidden" if h else "") for t, h in zip(true, hidden)]
    )
    marks = [("right" if s == t else "wrong") if h else "" for s, t, h in zip(said, true, hidden)]
    yield Passage("rebuilt", [(s if h else t, mark) for s, t, h, mark in zip(said, true, hidden, marks)])


@rc_context(STYLE)
def _masked_pictures(loaded: Loaded, batch: TokenBatch, hide: Tensor, prediction: Tensor) -> Figure:
    """Rows: original, what the model read (hidden tokens at 0), what it made of it."""
    columns = min(NUM_SHOWN, len(batch))
    figure, axes = blank(0.85 * columns + 0.6, 2.9, rows=3, columns=columns)
    where = hide[..., None]
    rows = {
        "original": batch.content,
        "read": batch.content.masked_fill(where, 0.0),
        "rebuilt": torch.where(where, prediction.float(), batch.content),
    }
    for row, (name, content) in enumerate(rows.items()):
        for column in range(columns):
            ax = axes[row * columns + column]
            thumbnail(loaded.tokenizer, example(replace(batch, content=content), column), ax)
            ax.spines[:].set_visible(False)
        axes[row * columns].set_ylabel(name, color=INK)
    return figure


# ── examples ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def example(batch: TokenBatch, index: int) -> Tokens:
    """One example of a batch, without padding and without links."""
    valid = batch.valid[index]
    return Tokens(batch.content[index][valid], batch.positions[index][valid])


@torch.inference_mode()
def _predicted(loaded: Loaded, data: Any) -> Iterator[tuple[TokenBatch, Tensor, Tensor]]:
    """Batches of the test part, their labels and the model's predictions."""
    for batch, label in data.test_dataloader():
        yield batch, label, loaded.model(batch)


def _shown(title: str, note: str, loaded: Loaded, examples: Sequence[Tokens], titles: Sequence[str]) -> Section:
    """Examples as texts, or as thumbnails in rows of four."""
    tokenizer = loaded.tokenizer
    if isinstance(tokenizer, Text):
        passages = [Passage(caption, [(tokenizer.decode(one)[:600], "")]) for one, caption in zip(examples, titles)]
        return Section(title, note, passages=passages)
    with rc_context(STYLE):
        rows = -(-len(examples) // 4)
        figure, axes = blank(6.4, 1.75 * rows, rows=rows, columns=4)
        for ax in axes:
            ax.set_axis_off()
        for one, caption, ax in zip(examples, titles, axes):
            thumbnail(tokenizer, one, ax)
            ax.set_title(caption, fontsize=7.5, loc="center")
    return Section(title, note, [svg(figure)])
