"""`seqkit inspect RECIPE`: how one real example of a recipe's data becomes tokens, as a picture and in a few lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from seqkit.configure import instantiate
from seqkit.contract import DataError, Tokenizer, Tokens, TokenSpec
from seqkit.recipe import UsageError
from seqkit.report import graphs  # noqa: F401, it registers its pictures
from seqkit.report.figures import png
from seqkit.report.pictures import picture

MAX_CHARACTERS = 4000
"""A document is looked at up to here: more than is drawn of it."""

ENOUGH = 12
"""An example of so many tokens is looked for among some twenty; if none has, it is the first."""


def inspect(config: Any, path: Path) -> Path:
    """Draw a training example of `config` (from `configure.parse`) as tokens, into a PNG at `path`.

    Also prints a short description. Raises DataError or UsageError as training would.
    """
    raw, tokenizer, tokens = _example(config)
    for line in describe(tokenizer, tokens):
        Console(highlight=False, markup=False).print(line, soft_wrap=True)
    return png(picture(tokenizer, raw, tokens), path)


def describe(tokenizer: Tokenizer, tokens: Tokens) -> list[str]:
    """What the tokens are, in a few lines: tokenizer, content, positions, links."""
    spec, n = tokenizer.spec, len(tokens)
    content = tokens.content[:8] if spec.ids else tokens.content[0, :8]
    values = ", ".join(f"{value:.4g}" for value in content.tolist())
    more = ", …" if (n if spec.ids else spec.num_features) > 8 else ""
    first = f"ids {values}{more}" if spec.ids else f"first vector {values}{more}"
    lines = [f"tokenizer  {tokenizer!r}", f"tokens     {n} {_kind_of_content(spec)}", f"content    {first}"]
    if spec.num_axes:
        rows = [", ".join(f"{p:g}" for p in row) for row in tokens.positions[[0, -1]].tolist()]
        lines.append(f"positions  axes: {spec.num_axes}, from ({rows[0]}) to ({rows[1]})")
    else:
        lines.append("positions  none: these tokens have no order")
    if tokens.links is None:
        lines.append("links      none: every token may read every other")
    else:
        kinds = len(tokens.links.kinds.unique())
        lines.append(f"links      {len(tokens.links):,} of {n * n:,} pairs, {kinds} of {spec.num_links} kinds occur")
    return lines


def _kind_of_content(spec: TokenSpec) -> str:
    return f"ids below {spec.vocab_size:,}" if spec.ids else f"vectors of {spec.num_features}"


def _example(config: Any) -> tuple[Any, Tokenizer, Tokens]:
    """A training sample, the tokenizer (fitted if it needs to be), and the sample's tokens."""
    try:
        built = instantiate(config)
        data, tokenizer = built.data, built.tokenizer
        data.connect(tokenizer, built.model.objective, seed=config.seed)
    except DataError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error
    samples = data.splits().train
    for index in [*range(0, len(samples), max(1, len(samples) // 20)), 0]:  # a molecule of two atoms shows little
        raw = samples[index].raw
        if isinstance(raw, str) and data.window is not None:
            raw = raw[:MAX_CHARACTERS]
        tokens = tokenizer.encode(raw)
        if len(tokens) >= ENOUGH:
            break
    return raw, tokenizer, tokens
