"""Joined tokens, part by part: each run drawn as its own tokenizer's renderer draws it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seqkit.interfaces import Tokens
from seqkit.report.modality.base import Renderer, Run
from seqkit.tokenizers.join import Join


class JoinRenderer(Renderer):
    """Finds the renderer of each part; pages draw the runs that it gives."""

    tokenizer: Join
    note = ""

    def runs(self, raw: Any, tokens: Tokens) -> Iterator[Run]:
        """The runs of the joined tokens, with the positions that each has alone."""
        from seqkit.report.modality import find_renderer

        parts = tokens.alone()
        if raw is None:
            raws = [None] * len(parts)
        else:
            raws = [part for _, part in self.tokenizer.runs(raw)]
        for (name, run), part in zip(parts, raws, strict=True):
            yield Run(name, find_renderer(self.tokenizer.parts[name]), part, run)

    def token_names(self, raw: Any, tokens: Tokens) -> list[str]:
        """Names of the tokens of each run, the first of each after the part's."""
        found: list[str] = []
        for name, renderer, part, run in self.runs(raw, tokens):
            first, *others = renderer.token_names(part, run)
            found += [f"{name} {first}", *others]
        return found
