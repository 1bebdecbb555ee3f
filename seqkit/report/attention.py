"""`seqkit attention RUN --input …`: the attention of a trained model on one example, as pictures and one page.

n queries · m keys · h heads · l layers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from seqkit.analysis.attention_maps import AttentionMap, attention_maps, entropy, rollout
from seqkit.data.inputs import Input, first_input, schema_of
from seqkit.errors import DataError, UsageError, one_line
from seqkit.interfaces import IGNORE, TokenBatch, Tokenizer, Tokens
from seqkit.objectives import Classify, MultiLabel, Regress
from seqkit.objectives.next_token import NextToken
from seqkit.objectives.seq2seq import Seq2Seq
from seqkit.progress import track
from seqkit.report.attention_heatmaps import heatmaps, uniform_entropy
from seqkit.report.figures import png, svg
from seqkit.report.inspect import shorten
from seqkit.report.modality import AttentionSummary, Renderer, find_renderer
from seqkit.report.modality.join import JoinRenderer
from seqkit.report.numbers import amount
from seqkit.report.templates import write_page
from seqkit.runs.answers import predictions
from seqkit.runs.prepare import data_module
from seqkit.runs.test_split import target_in_words
from seqkit.runs.trained_model import TrainedModel, load_one
from seqkit.tokenizers.image import Patches

MAX_TOKENS = 64
"""A text is cut to at most this many tokens; a picture could not show more."""

MAX_VECTORS = 512
"""Largest number of tokens of a sequence of vectors, such as sound."""

MAX_UNCUT = 1024
"""Images and graphs cannot be cut: one of more tokens is refused, since every pair of them has a weight."""

UNIFORM_SHARE = 0.98
"""A head with at least this share of the entropy of uniform attention is said to be uniform."""

MIN_SCALE = 0.7
"""A figure shrinks with the page to that share of its width; on a narrower one, such as a phone, it scrolls."""

FITS = 330
"""Points: a figure that would not shrink below this width shrinks to fit a phone all the same."""

MAX_SHOWN_INPUT = 300
"""Characters of the input that the page repeats."""

OVERLAY_NOTES = {
    last_query: "The colours show how much attention a token receives, in times the average: through all layers and "
    f"residual connections (rollout; Abnar and Zuidema 2020), and from each layer. It is {queries}. Attention shows "
    "where a model looks, and not why it predicts what it does."
    for last_query, queries in (
        (False, "the mean over all queries"),
        (True, "that of the last query, from which the next token is predicted"),
    )
}
"""Explanations of the overlay, for the mean over all queries and for the last query alone."""

PARTS_NOTE = (
    "A picture belongs to one token of the shortest part. The colours show how much it attends to the tokens of "
    "another part, through all layers (rollout), in times the average of that part. A strip has a column for each "
    "token."
)

_PAGE = "attention.html"
_PICTURES = {
    "": "attention", "encoder": "encoder", "decoder": "decoder", "cross": "cross", "rollout": "rollout",
    "parts": "parts",
}  # fmt: skip
_TITLES = {"": "Attention", "cross": "Cross-attention of the decoder"}


class View(NamedTuple):
    """A figure with its heading and explanation. name: name of its PNG."""

    name: str
    title: str
    note: str
    figure: Figure


def view_attention(folder: Path, name: str, raw: Any, out: Path) -> Path:
    """Draw all attention of a run on one raw example: PNGs and `attention.html` with all of them, in the folder `out`.

    name: name of the example. An earlier view in `out` is replaced. Returns the page's path.
    Raises UsageError where the model has no attention weights, or `out` is no folder; DataError where the example
    cannot be encoded or has too many tokens.
    """
    return _view(folder, load_one(folder), name, raw, [], out)


def view_input(folder: Path, given: str, out: Path, *, say: Callable[[str], None] | None = None) -> Path:
    """View of an input of the command line: a file or table, of which the first example is shown, a text or SMILES
    itself, or `image=a.png,text=…`. say: gets the sentence on what the model predicts for it."""
    trained = load_one(folder)
    name, raw, number = first_input(given, trained.tokenizer, schema_of(trained.config))
    notes = [f"The first of {number:,} examples in it is shown."] if number > 1 else []
    return _view(folder, trained, name, raw, [*notes, *_predicted(trained, name, raw, None, say)], out)


def view_example(folder: Path, number: int, out: Path, *, say: Callable[[str], None] | None = None) -> Path:
    """View of an example of the run's own test split, numbered from 0.

    say: gets the sentence on what the model predicts for it, and what is true.
    Raises UsageError where there is none of that number; DataError where the data is gone.
    """
    trained = load_one(folder)
    data = data_module(trained.config, trained.tokenizer, trained.objective)
    samples = data.splits().test
    if not 0 <= number < len(samples):
        raise UsageError(f"there is no test example {number}; the run's data has {len(samples):,}, numbered from 0")
    sample, name = samples[number], f"test data, {samples.name(number)}"
    notes = _predicted(trained, name, sample.raw, target_in_words(trained.objective, sample.label), say)
    return _view(folder, trained, name, shorten(sample.raw, data.window), notes, out)


def _predicted(trained: TrainedModel, name: str, raw: Any, target: Any, say: Callable[[str], None] | None) -> list[str]:
    """A note on the model's prediction for the whole example, and on its target; none where it says no class or number.

    `say` gets it, too. An example that cannot be encoded has no note: the view refuses it.
    """
    objective = trained.objective
    if not isinstance(objective, Classify | MultiLabel | Regress) or getattr(objective, "level", "") == "token":
        return []
    (answer,) = predictions(trained, [Input(name, raw)], probabilities=bool(objective.classes))
    if answer.error is not None:
        return []
    names = objective.label_names if isinstance(objective, MultiLabel) else []
    share = "" if answer.probabilities is None else f" (probability {float(answer.probabilities.max()):.2f})"
    true = "" if target is None else f"; true: {_in_words(target, names)}"
    note = f"Predicted: {_in_words(answer.prediction, names)}{share}{true}"
    if say is not None:
        say(note)
    return [note]


def _in_words(value: Any, names: Sequence[str]) -> str:
    """A class, a number, or several numbers with their names, in one line."""
    if isinstance(value, list):
        texts = [_in_words(one, ()) for one in value]
        return ", ".join(f"{name} {text}" for name, text in zip(names, texts)) if names else ", ".join(texts)
    return "unknown" if value is None else one_line(amount(value) if isinstance(value, float) else value)


def _view(folder: Path, trained: TrainedModel, name: str, raw: Any, notes: list[str], out: Path) -> Path:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give a folder as --out")
    try:
        tokens = trained.encode(raw)
    except DataError as error:
        raise error if name in str(error) else DataError(f"{name}: {error}") from error
    shown = name if len(name) <= MAX_SHOWN_INPUT else f"{name[:MAX_SHOWN_INPUT]}…"
    notes = [f"Input: {shown}", *notes]
    tokens = _cut(trained.tokenizer, tokens, notes)
    batch = TokenBatch.collate([tokens]).to(trained.predictor.device)
    renderer = find_renderer(trained.tokenizer)
    own = renderer.token_names(raw, tokens)
    names = {"": (own, own)}
    if isinstance(trained.objective, Seq2Seq):
        batch, generated, next_token = _generate(trained, trained.objective, batch)
        notes.append(f"Generated: {' '.join(generated) or '(nothing)'}")
        decoder = ["bos", *generated]
        names = {"encoder": (own, own), "decoder": (decoder, decoder), "cross": ([*generated, next_token], own)}
    if isinstance(trained.objective, NextToken) and trained.objective.part is not None:
        batch, _ = trained.objective.first_call(trained.model, (batch, None))  # with the reach of its prefix
    if any("␣" in text for pair in names.values() for texts in pair for text in texts):
        notes.append("␣ is a space, ↵ the end of a line.")
    try:
        maps = [replace(one, weights=one.weights.cpu()) for one in attention_maps(trained.model, batch)]
    except ValueError as error:
        raise UsageError(str(error)) from error
    last_query = "" in names and trained.model.causal and batch.reach is None
    drawn = _views(renderer, raw, tokens, maps, names, last_query=last_query)
    views = list(track(drawn, "drawing attention", None))
    # no picture of an earlier example stays beside the new page
    for name in (_PAGE, *(f"{name}.png" for name in _PICTURES.values())):
        (out / name).unlink(missing_ok=True)
    sections = []
    for view in track(views, "writing pictures", len(views)):
        png(view.figure, out / f"{view.name}.png")
        view.figure.set_layout_engine("none")  # the PNG was laid out, the SVG need not be again
        width = round(MIN_SCALE * 72 * view.figure.get_figwidth())
        width = width if width > FITS else 0
        sections.append({"title": view.title, "note": view.note, "figure": svg(view.figure), "min_width": width})
    title, version = f"Attention · {trained.summary['recipe']}", f"seqkit {trained.summary['versions']['seqkit']}"
    subtitle = f"{trained.summary['backbone']} · {folder} · {version}"
    return write_page("attention.html", out / _PAGE, title=title, subtitle=subtitle, notes=notes, sections=sections)


def _cut(tokenizer: Tokenizer, tokens: Tokens, notes: list[str]) -> Tokens:
    """The tokens that a picture can show, with a note if these are not all.

    Raises DataError for an example of too many tokens that cannot be cut.
    """
    spec = tokenizer.spec
    n, limit = len(tokens), MAX_TOKENS if spec.ids else MAX_VECTORS
    if spec.num_axes == 1 and tokens.adjacency is None and not isinstance(tokenizer, Patches):
        if n > limit:
            notes.append(f"The first {limit} of {n:,} tokens are shown.")
            return tokens.first(limit)
    elif n > MAX_UNCUT:
        raise DataError(f"the example has {n:,} tokens, too many to draw all pairs of; give one of {MAX_UNCUT:,}")
    return tokens


def _generate(trained: TrainedModel, objective: Seq2Seq, source: TokenBatch) -> tuple[TokenBatch, list[str], str]:
    """The decoder's input once it has generated all, beside the source; the generated tokens; the token after them."""
    prediction = objective.predict(trained.model, source)
    ids = prediction[0][prediction[0] != IGNORE]
    label = ids[None, None] if len(ids) else prediction.new_full((1, 1, 1), IGNORE)
    batch, _ = objective.first_call(trained.model, (source, label))
    texts = [_target_name(objective, i) for i in ids.tolist()]
    return batch, texts, "eos" if len(ids) < objective.longest else "…"


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
    names: dict[str, tuple[list[str], list[str]]],
    *,
    last_query: bool,
) -> Iterator[View]:
    """For each stack of the model: heatmaps of all heads with their entropies, and rollout on the example itself.

    names: names of queries and keys, by stack. last_query: True: the next token is predicted from the last query alone.
    """
    stacks: dict[str, list[AttentionMap]] = {}
    for one in maps:
        stack = one.stack if one.stack in names else "decoder"  # a backbone without an encoder is a decoder
        stacks.setdefault(stack, []).append(one)
    for stack, own in stacks.items():
        weights = [one.weights[0].float().numpy() for one in own]
        signed = any(bool((layer < 0).any()) for layer in weights)
        name, title = _PICTURES[stack], _TITLES.get(stack, f"Attention of the {stack}")
        valid = torch.ones(1, weights[0].shape[1], dtype=torch.bool)
        nats = np.stack([entropy(one.weights[:1].float(), valid)[0].numpy() for one in own])
        uniform = uniform_entropy(weights)
        note = _heatmap_note(stack, uniform, signed=signed) + ("" if signed else uniform_heads(nats, uniform))
        yield View(name, title, note, heatmaps(weights, *names[stack], nats))
        if stack in ("", "encoder") and not signed:
            layers = np.stack(weights)
            summary = AttentionSummary(layers, rollout(own)[0].float().numpy(), last_query)
            note = f"{OVERLAY_NOTES[last_query]} {renderer.overlay_note}".rstrip()
            yield View("rollout", "Attention on the example", note, renderer.overlay(raw, tokens, summary))
            if (
                isinstance(renderer, JoinRenderer)
                and (figure := renderer.from_tokens(raw, tokens, summary)) is not None
            ):
                yield View("parts", "From each token to the other parts", PARTS_NOTE, figure)


def _heatmap_note(stack: str, uniform: float, *, signed: bool) -> str:
    """Explanation of a figure of heatmaps."""
    query, key = ("generated token", "source token") if stack == "cross" else ("query", "key")
    note = (
        f"Each picture is a head, with a row for each {query} and a column for each {key}. The darker a cell is, the "
        "more attention goes from its row to its column; the colour follows the square root of the weight. "
    )
    if signed:
        return f"{note}Columns are mixtures of keys: weights may be below 0 (red), and have no entropy, and no rollout."
    return (
        f"{note}Each row sums to 1. The number above a head is its entropy, the mean over rows: 0 nats if each attends "
        f"to one column, {uniform:.2f} for uniform attention."
    )


def uniform_heads(entropies: np.ndarray, uniform: float) -> str:
    """A sentence that names the heads with nearly the entropy of uniform attention; entropies [l h]; may be empty.

    They average their values, whatever the query: the head has learned nothing, or this example asks nothing of it.
    """
    places = np.argwhere(entropies >= UNIFORM_SHARE * uniform)
    if uniform <= 0 or len(places) == 0:
        return ""
    heads = f"{len(places):,} of {entropies.size:,}" if len(places) < entropies.size else "All"
    named = ", ".join(f"layer {layer} head {head}" for layer, head in places)
    which = f": {named}" if len(places) <= 8 and heads != "All" else ""
    return f" {heads} heads attend almost uniformly here ({100 * UNIFORM_SHARE:.0f} % of that entropy or more){which}."
