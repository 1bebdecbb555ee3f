"""`seqkit attention RUN --input …`: who reads whom in a trained model, as pictures and one page.

n tokens · h heads · l layers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from seqkit.configure import instantiate, parse
from seqkit.contract import IGNORE, DataError, TokenBatch, Tokens, TokenSpec
from seqkit.data.raw import read_raws
from seqkit.data.source import where
from seqkit.maps import AttentionMap, attention_maps, entropy, rollout
from seqkit.objectives.translate import Translate
from seqkit.recipe import UsageError
from seqkit.report.figures import png, svg
from seqkit.report.inspect import MAX_CHARACTERS
from seqkit.report.overlays import Reach, names_of, overlay
from seqkit.report.page import render
from seqkit.report.pictures import pieces
from seqkit.report.weights import entropies, grid, most_entropy
from seqkit.run import Loaded, load
from seqkit.tokenizers.graph import Graph
from seqkit.tokenizers.molecule import Molecule
from seqkit.tokenizers.text import Text

MAX_TOKENS = 64
"""Of a longer text only so many tokens are looked at; more cannot be read in a picture."""

MAX_VECTORS = 512
"""Of a longer sequence of vectors, such as sound, so many."""

MAX_PAIRED = 1024
"""An image or graph cannot be cut: one of more tokens, all of whose pairs have a weight, is refused."""

LEAST = 0.7
"""A figure shrinks with the page to such a share of its width; on a narrower one, such as a phone, it scrolls."""

_PAGE = "attention.html"
_PICTURES = ("attention", "encoder", "decoder", "across", "rollout")


@dataclass(frozen=True)
class View:
    """A figure and what is said of it. name: of its PNG."""

    name: str
    title: str
    note: str
    figure: Figure


def view_attention(folder: Path, name: str, raw: Any, out: Path) -> Path:
    """Draw all attention of a run on one raw example: a PNG a picture and `attention.html` with all of them, in `out`.

    name: of the example. An earlier view in `out` is replaced. Returns the page's path.
    Raises UsageError where the run has no attention to show, or `out` is no folder; DataError where the example cannot
    be read or has too many tokens.
    """
    return _view(folder, load(folder), name, raw, [], out)


def view_input(folder: Path, given: str, out: Path) -> Path:
    """The same of what a user names: a file, or the text or SMILES itself; of a file of several, the first."""
    loaded = load(folder)
    found = list(read_raws(given, loaded.tokenizer))
    notes = [f"Of {len(found):,} examples in it the first is looked at."] if len(found) > 1 else []
    return _view(folder, loaded, *found[0], notes, out)


def view_example(folder: Path, number: int, out: Path) -> Path:
    """The same of an example of the run's own test data, numbered from 0: for those who have no file at hand, and for
    graphs, which no file holds. Raises UsageError where there is none of that number; DataError where the data is gone.
    """
    loaded = load(folder)
    data = instantiate(parse(loaded.config)).data
    samples = data.splits().test
    if not 0 <= number < len(samples):
        raise UsageError(f"there is no test example {number}; the run's data has {len(samples):,}, numbered from 0")
    raw = samples[number].raw
    if isinstance(raw, str) and data.window is not None:
        raw = raw[:MAX_CHARACTERS]
    return _view(folder, loaded, f"test data, {where(samples, number)}", raw, [], out)


def _view(folder: Path, loaded: Loaded, name: str, raw: Any, notes: list[str], out: Path) -> Path:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give a folder as --out")
    try:
        tokens = loaded.tokenizer.encode(raw)
    except DataError as error:
        raise error if name in str(error) else DataError(f"{name}: {error}") from error
    shown = name if len(name) <= 300 else f"{name[:300]}…"
    notes = [f"Run {folder}: {loaded.summary['recipe']}, {loaded.summary['backbone']}. Input: {shown}", *notes]
    tokens = _cut(loaded.tokenizer.spec, tokens, notes)
    batch = TokenBatch.collate([tokens])
    names = {"": names_of(loaded.tokenizer, raw, tokens)}
    if isinstance(loaded.objective, Translate):
        batch, written, last = _written(loaded, loaded.objective, batch)
        notes.append(f"Written: {' '.join(written) or '(nothing)'}")
        names = {"encoder": names[""], "decoder": ["begin", *written], "across": [*written, last]}
    if any("␣" in text for texts in names.values() for text in texts):
        notes.append("␣ is a space, ↵ the end of a line.")
    try:
        maps = attention_maps(loaded.model, batch)
    except ValueError as error:
        raise UsageError(str(error)) from error
    views = list(_views(loaded, raw, tokens, maps, names))
    _clear(out)
    for view in views:
        png(view.figure, out / f".{view.name}.part.png").replace(out / f"{view.name}.png")
        view.figure.set_layout_engine("none")  # laid out once is enough
    sections = [
        {
            "title": v.title,
            "note": v.note,
            "figure": svg(v.figure),
            "least": round(LEAST * 72 * v.figure.get_figwidth()),
        }
        for v in views
    ]
    return render(
        "attention.html",
        out / _PAGE,
        title=f"Attention · {loaded.summary['recipe']}",
        subtitle=f"seqkit {loaded.summary['versions']['seqkit']}",
        notes=notes,
        sections=sections,
    )


def _cut(spec: TokenSpec, tokens: Tokens, notes: list[str]) -> Tokens:
    """So many tokens as can be looked at, and a note if these are not all. Raises DataError where no part will do."""
    n, most = len(tokens), MAX_TOKENS if spec.ids else MAX_VECTORS
    if spec.num_axes == 1 and tokens.links is None:
        if n > most:
            notes.append(f"Of {n:,} tokens the first {most} are looked at.")
            tokens = Tokens(tokens.content[:most], tokens.positions[:most])
    elif n > MAX_PAIRED:
        raise DataError(f"the example has {n:,} tokens, too many to draw all pairs of; give one of {MAX_PAIRED:,}")
    return tokens


def _clear(out: Path) -> None:
    """Take away an earlier view, so that no picture of another example stays beside the new page."""
    for name in (_PAGE, *(f"{name}{more}.png" for name in _PICTURES for more in ("", "-entropy"))):
        (out / name).unlink(missing_ok=True)


def _written(loaded: Loaded, objective: Translate, source: TokenBatch) -> tuple[TokenBatch, list[str], str]:
    """What the model reads when it has written its answer: that answer beside the source; the answer's tokens; and what
    is said after the last of them."""
    answer = objective.predict(loaded.model, source)
    ids = answer[0][answer[0] != IGNORE]
    label = ids[None, None] if len(ids) else torch.full((1, 1, 1), IGNORE)
    batch = objective.prepare(source, label).batch
    texts = [_text(objective, i) for i in ids.tolist()]
    return batch, texts, "end" if len(ids) < objective.longest else "…"


def _text(objective: Translate, token: int) -> str:
    """A short name for a token of what is written."""
    if token >= objective.begin:
        return "begin"  # a model that is not trained may say even that
    one = Tokens(torch.tensor([token]), torch.zeros(1, 1))
    text: str = pieces(objective.target, one)[0] if isinstance(objective.target, Text) else objective.target.decode(one)
    return text.strip("␣ ") or text


def _views(
    loaded: Loaded, raw: Any, tokens: Tokens, maps: Sequence[AttentionMap], names: dict[str, list[str]]
) -> Iterator[View]:
    """Of each part of the model: all heads of all layers, their entropies; rollout over the example itself."""
    for part in dict.fromkeys(one.part for one in maps):
        own = [one for one in maps if one.part == part]
        weights = [one.weights[0].float().numpy() for one in own]
        signed = any(bool((layer < 0).any()) for layer in weights)
        what = {"": "Attention", "across": "Alignment: what is written reads what was read"}.get(
            part, f"Attention of the {part}"
        )
        label, read = part or "attention", names["encoder" if part == "across" else part]
        valid = torch.ones(1, weights[0].shape[1], dtype=torch.bool)
        spread = np.stack([entropy(one.weights[:1].float(), valid)[0].numpy() for one in own])
        most = most_entropy(weights)
        note = _note(part, most, signed=signed)
        yield View(label, what, note, grid(weights, names[part], read, spread))
        if spread.size > 1 and not signed:
            note = (
                f"How widely each head reads, in nats, the mean over tokens: 0 where each reads one token, {most:.2f} "
                "where each reads all that it may alike."
            )
            yield View(f"{label}-entropy", f"{what}: entropy", note, entropies(spread, most))
        if part in ("", "encoder") and not signed:
            yield _on_the_example(loaded, raw, tokens, own, last=part == "" and loaded.model.backbone.causal)


def _note(part: str, most: float, *, signed: bool) -> str:
    """How a figure of matrices is to be read."""
    reader = "the token that is written" if part == "across" else "the token that reads"
    note = f"Row: {reader}; column: the token that is read; the darker, the more (by the square root). "
    if signed:
        return f"{note}Weights of mixtures: they may be below 0 (red) and have no entropy, and no rollout."
    return (
        f"{note}Each row sums to 1. Above each head its entropy, the mean over rows: 0 nats if each reads one token, "
        f"{most:.2f} if each reads all that it may alike."
    )


def _on_the_example(loaded: Loaded, raw: Any, tokens: Tokens, maps: Sequence[AttentionMap], *, last: bool) -> View:
    """How much each token is read, drawn on the picture, the sound, the graph or the text itself."""
    layers = np.stack([one.weights[0].float().numpy() for one in maps])
    figure = overlay(loaded.tokenizer, raw, tokens, Reach(layers, rollout(maps)[0].float().numpy(), last))
    whose = "what the last token reads, from which the next is said" if last else "the mean over all tokens"
    note = (
        f"How much of each token comes through all layers and the paths around them (rollout; Abnar and Zuidema 2020), "
        f"and how much each layer reads it: {whose}. Attention shows where a model looks, not why it answers."
    )
    if isinstance(loaded.tokenizer, (Graph, Molecule)):
        note += " A line between two nodes is the wider, the more they read each other."
    return View("rollout", "What is read of the example", note, figure)
