"""`seqkit attention RUN --input …`: the attention of a trained model on one example, as one page.

n queries · m keys · h heads · l layers
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from seqkit.analysis.attention_maps import AttentionMap, attention_maps, entropy, rollout
from seqkit.data.inputs import Input, first_input, schema_of
from seqkit.errors import DataError, UsageError, one_line, shortened
from seqkit.interfaces import IGNORE, TokenBatch, Tokenizer, Tokens
from seqkit.objectives import Classify, MultiLabel, Regress
from seqkit.objectives.next_token import NextToken
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.report.attention_heatmaps import heatmaps, is_even
from seqkit.report.figures import svg
from seqkit.report.inspect import shorten
from seqkit.report.modality import Renderer, attended, find_renderer
from seqkit.report.templates import write_page
from seqkit.runs.answers import predictions
from seqkit.runs.joined import network_alone
from seqkit.runs.reopened import reopened, with_data
from seqkit.runs.test_split import target_in_words
from seqkit.runs.trained_model import TrainedModel, load_one
from seqkit.tokenizers.image import Patches

log = logging.getLogger("seqkit")

MAX_TOKENS = 64
"""A text is cut to at most this many tokens; a picture could not show more."""

MAX_VECTORS = 512
"""Largest number of tokens of a sequence of vectors, such as sound."""

MAX_UNCUT = 1024
"""Images and graphs cannot be cut: one of more tokens is refused, since every pair of them has a weight."""

MIN_SCALE = 0.7
FITS = 330
"""A figure shrinks with the page to that share of its width, and then scrolls; below so many points it fits a phone."""

MAX_SHOWN_INPUT = 300
"""Characters of the input that the page repeats."""

Names = tuple[list[str], list[str]]
"""Names of queries and of keys."""


class View(NamedTuple):
    """A figure as the page shows it. min_width: points below which it does not shrink; 0: it shrinks to any width."""

    title: str
    note: str
    figure: str
    min_width: int

    @classmethod
    def of(cls, title: str, note: str, figure: Figure) -> View:
        """A drawn figure with its heading and explanation."""
        drawn = svg(figure, title)
        width = re.search(r'<svg[^>]* width="([\d.]+)pt"', drawn)
        least = 0 if width is None else round(MIN_SCALE * float(width[1]))
        return cls(title, note, drawn, least if least > FITS else 0)


def view_input(folder: Path, given: str, out: Path) -> tuple[Path, str | None]:
    """View of an input of the command line: a file or table, of which the first example is shown, a text or SMILES
    itself, or `image=a.png,text=…`.

    Returns the page's path, and the sentence on what the model predicts; None where it says no class or number.
    Raises what `view_attention` raises.
    """
    trained = load_one(folder)
    name, raw, number = first_input(given, trained.tokenizer, schema_of(trained.config))
    said = _predicted(trained, name, raw, None)
    first = f"The first of {number:,} examples in it is shown." if number > 1 else None
    return view_attention(trained, name, raw, out, notes=[first, said]), said


def view_example(
    folder: Path, number: int, out: Path, moved_to: str | None = None
) -> tuple[Path, str | None]:
    """View of an example of the run's own test split, numbered from 0.

    moved_to: where the run's files are now; None: where it says.
    Returns the page's path, and the sentence on what the model predicts and what is true, as `view_input` does.
    Raises UsageError where there is none of that number; DataError where the data is gone.
    """
    trained = with_data(load_one(folder), moved_to)
    data, doubt = reopened(trained, words=("attention", "--example", str(number)))
    if doubt:
        log.warning("%s", doubt)
    samples = data.splits().test
    if not 0 <= number < len(samples):
        raise UsageError(
            f"there is no test example {number}; the run's data has {len(samples):,}, numbered from 0"
        )
    sample = samples[number]
    name = f"test data, {samples.name(number)}"
    said = _predicted(trained, name, sample.raw, target_in_words(trained.objective, sample.label))
    raw = shorten(sample.raw, data.window)
    return view_attention(trained, name, raw, out, notes=[said]), said


def view_attention(
    trained: TrainedModel, name: str, raw: Any, out: Path, *, notes: Sequence[str | None] = ()
) -> Path:
    """Write `attention.html` into the folder `out`: all attention of a model on one raw example. Returns its path.

    name: name of the example. notes: sentences for the top of the page; None: none.
    Raises UsageError where the model has no attention weights, or `out` is no folder; DataError where the example
    cannot be encoded or has too many tokens.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give a folder as --out")
    try:
        tokens = trained.encode(raw)
    except DataError as error:
        raise error if name in str(error) else DataError(f"{name}: {error}") from error
    alone = network_alone(trained.summary, "Attention")
    lines = [f"Input: {shortened(name, MAX_SHOWN_INPUT)}", *filter(None, [*notes, alone])]
    tokens = _cut(trained.tokenizer, tokens, lines)
    batch = TokenBatch.collate([tokens]).to(trained.predictor.device)
    renderer = find_renderer(trained.tokenizer)
    own = renderer.token_names(raw, tokens)
    names: dict[str, Names] = {"": (own, own)}
    if isinstance(trained.objective, Seq2Seq):
        batch, generated, next_token = _generate(trained, trained.objective, batch)
        lines.append(f"Generated: {' '.join(generated) or '(nothing)'}")
        decoder = ["bos", *generated]
        names = {
            "encoder": (own, own),
            "decoder": (decoder, decoder),
            "cross": ([*generated, next_token], own),
        }
    if isinstance(trained.objective, NextToken) and trained.objective.part is not None:
        # with the reach of its prefix
        batch, _ = trained.objective.first_call(trained.model, (batch, None))
    if any("␣" in text for pair in names.values() for texts in pair for text in texts):
        lines.append("␣ is a space, ↵ the end of a line.")
    try:
        maps = [
            replace(one, weights=one.weights.float().cpu())
            for one in attention_maps(trained.model, batch)
        ]
    except ValueError as error:
        raise UsageError(str(error)) from error
    last_query = "" in names and trained.model.causal and batch.reach is None
    summary = trained.summary
    return write_page(
        "attention.html",
        out / "attention.html",
        title=f"Attention · {summary['recipe']}",
        subtitle=f"{summary['backbone']} · {trained.folder} · {summary.made_by}",
        notes=lines,
        sections=list(_views(renderer, raw, tokens, maps, names, last_query=last_query)),
    )


def _predicted(trained: TrainedModel, name: str, raw: Any, target: Any) -> str | None:
    """A sentence on the model's prediction for the whole example, and on its target; None: no class or number.

    An example that cannot be encoded has none: the view refuses it.
    """
    objective = trained.objective
    is_answered = isinstance(objective, Classify | MultiLabel | Regress)
    if not is_answered or getattr(objective, "level", "") == "token":
        return None
    (answer,) = predictions(trained, [Input(name, raw)], probabilities=bool(objective.classes))
    if answer.error is not None:
        return None
    names = objective.label_names if isinstance(objective, MultiLabel) else []
    said = f"Predicted: {_in_words(answer.prediction, names)}"
    if answer.probabilities is not None:
        said += f" (probability {float(answer.probabilities.max()):.2f})"
    if target is not None:
        said += f"; true: {_in_words(target, names)}"
    return said


def _in_words(value: Any, names: Sequence[str]) -> str:
    """A class, a number, or several numbers with their names, in one line."""
    if isinstance(value, list):
        texts = [_in_words(one, ()) for one in value]
        if names:
            return ", ".join(f"{name} {text}" for name, text in zip(names, texts))
        return ", ".join(texts)
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.4g}"
    return one_line(value)


def _cut(tokenizer: Tokenizer, tokens: Tokens, notes: list[str]) -> Tokens:
    """The tokens that a picture can show, with a note if these are not all.

    Raises DataError for an example of too many tokens that cannot be cut.
    """
    spec = tokenizer.spec
    n = len(tokens)
    limit = MAX_TOKENS if spec.ids else MAX_VECTORS
    if spec.num_axes == 1 and tokens.adjacency is None and not isinstance(tokenizer, Patches):
        if n > limit:
            notes.append(f"The first {limit} of {n:,} tokens are shown.")
            return tokens.first(limit)
    elif n > MAX_UNCUT:
        raise DataError(
            f"the example has {n:,} tokens, too many to draw all pairs of; give one of {MAX_UNCUT:,}"
        )
    return tokens


def _generate(
    trained: TrainedModel, objective: Seq2Seq, source: TokenBatch
) -> tuple[TokenBatch, list[str], str]:
    """The decoder's input once it has generated all, beside the source; the generated tokens; the token after them."""
    prediction = objective.predict(trained.model, source)
    ids = prediction[0][prediction[0] != IGNORE]
    label = ids[None, None] if len(ids) else prediction.new_full((1, 1, 1), IGNORE)
    batch, _ = objective.first_call(trained.model, (source, label))
    texts = [_target_name(objective, i) for i in ids.tolist()]
    after = "eos" if len(ids) < objective.longest else "…"
    return batch, texts, after


def _target_name(objective: Seq2Seq, token: int) -> str:
    """A short name for a generated token."""
    if not objective.is_text(torch.tensor(token)):
        return "bos"  # an untrained model may generate even that
    one = Tokens(torch.tensor([token]), torch.zeros(1, 1))
    text = find_renderer(objective.target).pieces(one)[0]
    return text.strip("␣ ") or text


def _views(
    renderer: Renderer,
    raw: Any,
    tokens: Tokens,
    maps: Sequence[AttentionMap],
    names: dict[str, Names],
    *,
    last_query: bool,
) -> Iterator[View]:
    """For each stack of the model: heatmaps of all heads with their entropies, and rollout on the example itself.

    names: of queries and keys, by stack. last_query: True: the next token is predicted from the last query alone.
    """
    titles = {"": "Attention", "cross": "Cross-attention of the decoder"}
    stacks: dict[str, list[AttentionMap]] = {}
    for one in maps:
        # a backbone without an encoder is a decoder
        stack = one.stack if one.stack in names else "decoder"
        stacks.setdefault(stack, []).append(one)
    for stack, own in stacks.items():
        weights = [one.weights[0].numpy() for one in own]
        is_signed = any(bool((layer < 0).any()) for layer in weights)
        valid = torch.ones(1, weights[0].shape[1], dtype=torch.bool)
        nats = np.stack([entropy(one.weights[:1], valid)[0].numpy() for one in own])
        title = titles.get(stack, f"Attention of the {stack}")
        note = _heatmap_note(stack, is_signed=is_signed)
        if not is_signed:
            note += _evenness(weights)
        yield View.of(title, note, heatmaps(weights, *names[stack], nats))
        if stack in ("", "encoder") and not is_signed:
            rows = rollout(own)[0].numpy()
            received = rows.mean(axis=0)
            queries = "the mean over all queries"
            if last_query:
                received = rows[-1]
                queries = "that of the last query, from which the next token is predicted"
            note = (
                "The colours show how much attention a token receives through all layers and residual connections "
                f"(rollout; Abnar and Zuidema 2020): 1 is the average token, 2 twice as much. It is {queries}. "
                "Attention shows where a model looks, and not why it predicts what it does."
            )
            figure = attended(renderer, raw, tokens, received * len(rows))
            yield View.of("Attention on the example", note, figure)


def _evenness(weights: Sequence[np.ndarray]) -> str:
    """A sentence on heads that attend to all columns alike; empty: there is none. weights: [h n m] of each layer."""
    heads = [head for layer in weights for head in layer]
    even = sum(map(is_even, heads))
    if not even:
        return ""
    attend = "attends" if even == 1 else "attend"
    found = f" {even} of the {len(heads)} heads {attend} about evenly, as an untrained one does"
    return f"{found}: such a picture says nothing about the example."


def _heatmap_note(stack: str, *, is_signed: bool) -> str:
    """Explanation of a figure of heatmaps."""
    query = "query"
    key = "key"
    if stack == "cross":
        query = "generated token"
        key = "source token"
    note = (
        f"Each picture is a head, with a row for each {query} and a column for each {key}. The darker a cell is, the "
        "more attention goes from its row to its column; the colour follows the square root of the weight. "
    )
    if is_signed:
        return (
            f"{note}Columns are mixtures of keys: weights may be below 0 (red), and have no entropy, "
            "and no rollout."
        )
    return (
        f"{note}Each row sums to 1, and to less where the rest goes to a sink of the head. Above a head is the mean "
        "entropy of its rows, 0 nats if each attends to one column, and the largest that it could be."
    )
