"""`seqkit attention RUN --input …`: who reads whom in a trained model, as pictures and one page.

n tokens · h heads · l layers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from seqkit.contract import IGNORE, DataError, TokenBatch, Tokens
from seqkit.maps import AttentionMap, attention_maps, entropy, rollout
from seqkit.objectives.translate import Translate
from seqkit.recipe import UsageError
from seqkit.report.figures import png, svg
from seqkit.report.overlays import names_of, overlay
from seqkit.report.page import render
from seqkit.report.pictures import pieces
from seqkit.report.weights import entropies, grid
from seqkit.run import Loaded, load
from seqkit.tokenizers.text import Text

MAX_TOKENS = 64
"""Of a longer text only so many tokens are looked at; more cannot be read in a picture."""


@dataclass(frozen=True)
class View:
    """A figure and what is said of it. name: of its PNG."""

    name: str
    title: str
    note: str
    figure: Figure


def view_attention(folder: Path, name: str, raw: Any, out: Path) -> Path:
    """Draw all attention of a run on one raw example: a PNG a picture and `attention.html` with all of them, in `out`.

    name: of the example. Returns the page's path.
    Raises UsageError where the run has no attention to show; DataError where the example cannot be read.
    """
    loaded = load(folder)
    try:
        tokens = loaded.tokenizer.encode(raw)
    except DataError as error:
        raise error if name in str(error) else DataError(f"{name}: {error}") from error
    notes = [f"Run {folder}: {loaded.summary['recipe']}, {loaded.summary['backbone']}. Input: {name}"]
    if len(tokens) > MAX_TOKENS and loaded.tokenizer.spec.ids:
        notes.append(f"Of {len(tokens):,} tokens the first {MAX_TOKENS} are looked at.")
        tokens = Tokens(tokens.content[:MAX_TOKENS], tokens.positions[:MAX_TOKENS])
    batch = TokenBatch.collate([tokens])
    names = {"": names_of(loaded.tokenizer, tokens)}
    if isinstance(loaded.objective, Translate):
        batch, written = _written(loaded, loaded.objective, batch)
        notes.append(f"Written: {' '.join(written[1:])}")
        names = {"encoder": names[""], "decoder": written}
    try:
        maps = attention_maps(loaded.model, batch)
    except ValueError as error:
        raise UsageError(str(error)) from error
    views = list(_views(loaded, raw, tokens, maps, names))
    for view in views:
        png(view.figure, out / f"{view.name}.png")
    sections = [{"title": view.title, "note": view.note, "figures": [svg(view.figure)]} for view in views]
    return render(
        "attention.html",
        out / "attention.html",
        title=f"Attention · {loaded.summary['recipe']}",
        subtitle=f"seqkit {loaded.summary['versions']['seqkit']}",
        notes=notes,
        sections=sections,
    )


def _written(loaded: Loaded, objective: Translate, source: TokenBatch) -> tuple[TokenBatch, list[str]]:
    """What the model reads when it has written its answer: that answer beside the source; and the answer's tokens."""
    answer = objective.predict(loaded.model, source)
    ids = answer[0][answer[0] != IGNORE]
    label = ids[None, None] if len(ids) else torch.full((1, 1, 1), IGNORE)
    batch = objective.prepare(source, label).batch
    if isinstance(objective.target, Text):
        texts = pieces(objective.target, Tokens(ids, torch.zeros(len(ids), 1))) if len(ids) else []
    else:
        texts = [objective.target.decode(ids[i : i + 1]) for i in range(len(ids))]
    return batch, ["begin", *(text.strip("␣ ") or text for text in texts)]


def _views(
    loaded: Loaded, raw: Any, tokens: Tokens, maps: Sequence[AttentionMap], names: dict[str, list[str]]
) -> list[View]:
    """Of each part of the model: all heads of all layers, their entropies; rollout over the example itself."""
    views = []
    for part in dict.fromkeys(one.part for one in maps):
        own = [one for one in maps if one.part == part]
        weights = [one.weights[0] for one in own]
        readers = names["decoder"] if part == "across" else names[part]
        read = names["encoder"] if part == "across" else names[part]
        what = {"": "Attention", "across": "Attention across: what is written reads what was read"}.get(
            part, f"Attention of the {part}"
        )
        label = part or "attention"
        note = (
            "Row: the token that reads; column: the token that is read; the darker, the more. "
            "Each row sums to 1. Above each head, its entropy in nats (0: one token; "
            f"{np.log(weights[0].shape[-1]):.2f}: all alike)."
        )
        valid = torch.ones(1, weights[0].shape[1], dtype=torch.bool)
        spread = np.stack([entropy(one.weights[:1], valid)[0].numpy() for one in own])
        views.append(View(label, what, note, grid([w.numpy() for w in weights], readers, read, spread)))
        if spread.size > 1:
            note = "How widely each head reads, the mean over tokens; a head near 0 copies one token."
            views.append(View(f"{label}-entropy", f"{what}: entropy", note, entropies(spread)))
        if part in ("", "encoder"):
            views += _on_the_example(loaded, raw, tokens, own)
    return views


def _on_the_example(loaded: Loaded, raw: Any, tokens: Tokens, maps: Sequence[AttentionMap]) -> list[View]:
    """How much each token is read, drawn on the picture, the sound, the graph or the text itself."""
    received = np.stack([one.weights[0].mean(dim=1).numpy() for one in maps])  # [l h n], over all who read
    through: Tensor = rollout(maps)[0].mean(dim=0)
    figure = overlay(loaded.tokenizer, raw, tokens, through.numpy(), received)
    note = (
        "How much of each token reaches the mean output through all layers and the paths around them (rollout; "
        "Abnar and Zuidema 2020), and what each layer's heads read on average. Attention shows where a model looks, "
        "not why it answers."
    )
    return [View("rollout", "What is read of the example", note, figure)]
