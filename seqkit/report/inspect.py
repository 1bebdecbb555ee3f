"""`seqkit inspect RECIPE`: how one training example of a recipe becomes tokens, as a picture and in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from seqkit.config import build
from seqkit.data.inputs import first_input, schema_of
from seqkit.errors import UsageError, one_line
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.report.figures import png
from seqkit.report.modality import find_renderer, picture
from seqkit.runs.prepare import data_module

MAX_CHARACTERS = 4000
"""At most this many of a document that training cuts into windows are encoded: more than is drawn of it."""


def inspect(config: Mapping[str, Any], path: Path, given: str | None = None) -> Path:
    """Draw a training example of a complete configuration as tokens, into a PNG at `path`.

    given: an example to draw in its place: a file, the text or SMILES itself, or `image=a.png,text=…`. Also prints a
    short description.
    Raises DataError or UsageError as training would, and UsageError where the picture's folder is a file.
    """
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file; give a folder for the picture")
    raw, tokenizer, tokens = _example(config, given)
    for line in describe(tokenizer, tokens):
        Console(highlight=False, markup=False, emoji=False).print(one_line(line), soft_wrap=True)
    return png(picture(find_renderer(tokenizer), raw, tokens), path)


def describe(tokenizer: Tokenizer, tokens: Tokens) -> list[str]:
    """Tokenizer, content, positions and adjacency in a few lines; of joined tokens, of each run."""
    spec = tokenizer.spec
    n = len(tokens)
    if tokens.parts:
        lines = [f"joined     {n:,} tokens of {len(tokens.parts)} runs"]
        parts = getattr(tokenizer, "parts", {})
        for name, run in tokens.parts:
            lines += [f"part {name}", *(f"  {line}" for line in describe(parts[name], run))]
        return lines
    content = tokens.content[:8] if spec.ids else tokens.content[0, :8]
    values = ", ".join(f"{value:.4g}" for value in content.tolist())
    size = tokens.content.shape[-1]
    if spec.ids:
        size = n
        kind = "ids"
    elif spec.vocab_sizes:
        kind = "ids of the first token"
    else:
        kind = "first vector"
    more = ", …" if size > 8 else ""
    first = f"{kind} {values}{more}"
    lines = [
        f"tokenizer  {tokenizer!r}",
        f"tokens     {n:,} {_describe_content(spec)}",
        f"content    {first}",
    ]
    if spec.num_axes:
        rows = [", ".join(f"{p:g}" for p in row) for row in tokens.positions[[0, -1]].tolist()]
        lines.append(f"positions  axes: {spec.num_axes}, from ({rows[0]}) to ({rows[1]})")
    else:
        lines.append("positions  none: these tokens have no order")
    if tokens.adjacency is None:
        lines.append("adjacency  none: every token may attend to every other")
    else:
        num_types = len(tokens.adjacency.edge_type.unique())
        types = f"{num_types} of {spec.num_edge_types} edge types occur"
        lines.append(f"adjacency  {len(tokens.adjacency):,} of {n * n:,} pairs, {types}")
    return lines


def shorten(raw: Any, window: int | None) -> Any:
    """The beginning of a document that training cuts into windows; anything else as it is."""
    if isinstance(raw, str) and window is not None:
        return raw[:MAX_CHARACTERS]
    return raw


def _describe_content(spec: TokenSpec) -> str:
    if spec.vocab_sizes:
        beside = f", and {spec.num_features} numbers" if spec.num_features else ""
        return f"of {len(spec.vocab_sizes)} ids, below {', '.join(f'{size:,}' for size in spec.vocab_sizes)}{beside}"
    if spec.ids:
        return f"ids below {spec.vocab_size:,}"
    return f"vectors of {spec.num_features}"


def _example(config: Mapping[str, Any], given: str | None) -> tuple[Any, Tokenizer, Tokens]:
    """A training sample or the given example, the tokenizer (fitted if it needs to be), and the sample's tokens."""
    built = build(config)
    tokenizer = built.tokenizer
    data = data_module(config, tokenizer, built.model["objective"])
    if given is not None:
        _, raw, _ = first_input(
            given, tokenizer, schema_of({**config, "tokenizer": built.tokenizer_section})
        )
        return raw, tokenizer, tokenizer.encode(raw)
    raw = shorten(data.splits().train[0].raw, data.window)
    return raw, tokenizer, tokenizer.encode(raw)
