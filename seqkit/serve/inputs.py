"""Inputs of requests as raw examples. A client names no file: images and sounds are bytes in the request."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from seqkit.data.formats import own_reader
from seqkit.data.inputs import example_of, flat, schema_of
from seqkit.data.kinds import KIND_OF_TOKENIZER
from seqkit.data.tables.schema import FILES, Column, Schema
from seqkit.errors import DataError, UsageError, one_line
from seqkit.interfaces import Tokenizer, Tokens
from seqkit.runs.trained_model import TrainedModel

MAX_CHARACTERS = 65_536
"""Most characters of a text."""

MAX_TOKENS = 4096
"""Most tokens of an example, of a prompt, and of a batch, padding included."""

INPUT = "input"
"""Name of the one column of a run whose examples have no parts."""


class InputReader:
    """Raw examples of a run, and their tokens, from the inputs of requests.

    kind: `parts` (an object with a value for each column), else the kind of the one column (`Column.kind`).
    columns: kind of each column of `parts`, or of the one.
    Raises UsageError for a run on a graph file, whose examples are nodes of one graph, and for a run on texts whose
    tokenizer is a plug-in's own: it may take a client's text for the path of a file here.
    """

    def __init__(self, trained: TrainedModel):
        source = trained.config["data"].get("source")
        if isinstance(source, dict) and source.get("type") == "GraphFile":
            raise UsageError(
                f"{trained.folder} is a run on one graph, which no request holds; use `seqkit predict`"
            )
        self.trained = trained
        tokenizer = trained.tokenizer
        self.has_parts = hasattr(tokenizer, "parts")
        schema = schema_of(trained.config)
        if not self.has_parts:
            schema = _one_column(schema, tokenizer)
        if schema is None:
            raise UsageError(
                f"{trained.folder} has parts that no request holds; use `seqkit predict`"
            )
        self.schema: Schema = schema
        self.columns: dict[str, str] = {column.name: column.kind for column in self.schema.inputs}
        self.kind = "parts" if self.has_parts else self.columns[INPUT]
        reads: Mapping[str, str] = getattr(tokenizer, "reads", {})
        parts: Mapping[str, Tokenizer] = getattr(tokenizer, "parts", {INPUT: tokenizer})
        self._column_of: dict[str, str] = {part: reads.get(part, part) for part in parts}
        for part, own in parts.items():
            kind = self.columns.get(self._column_of[part], "")
            if kind in ("text", "words", "smiles", "category") and not _takes_text(own):
                what = f"{type(own).__name__} is a plug-in's own, and may take a client's text for the path of a file"
                raise UsageError(f"{trained.folder} is not served: {what}; use `seqkit predict`")

    def tokens(self, raw: Any) -> Tokens:
        """Tokens of a raw example, as the run's data had them. Raises DataError for too many, or as the tokenizer."""
        tokens = self.trained.encode(raw)
        if len(tokens) > MAX_TOKENS:
            raise DataError(
                f"the input has {len(tokens):,} tokens, and {MAX_TOKENS:,} are the most"
            )
        return tokens

    def raw(self, value: Any) -> Any:
        """The raw example of an input, a JSON value. Raises DataError where it is none."""
        if not self.has_parts:
            value = {INPUT: value}
        if not isinstance(value, Mapping):
            raise DataError(
                f"the input is no object; give one with some of {', '.join(self.columns)}"
            )
        cells: dict[str, Any] = {
            str(self._column_of.get(name, name)): cell
            for name, cell in flat(value, self.trained.tokenizer).items()
        }
        for name, cell in cells.items():
            if self.columns.get(name, "") in FILES and cell is not None:
                cells[name] = _content(cell)
            elif isinstance(cell, str) and len(cell) > MAX_CHARACTERS:
                many = f"{len(cell):,} characters, and {MAX_CHARACTERS:,} are the most"
                raise DataError(f"{one_line(name)[:60]} has {many}")
        return example_of(cells, self.schema, self.trained.tokenizer)


def _one_column(known: Schema | None, tokenizer: Tokenizer) -> Schema:
    """Schema of the one column of a run without parts: that of its table, else by its tokenizer."""
    column = Column(INPUT, _kind(tokenizer))
    if known is None:
        return Schema((column,), "none", ())
    if known.inputs:
        column = replace(known.inputs[0], name=INPUT)
    return Schema((column,), "none", known.missing)


def _kind(tokenizer: Tokenizer) -> str:
    """Kind of the raw examples of a tokenizer, by seqkit's own class among its bases; a series for any other."""
    if own_reader(tokenizer) is not None:
        return "file"
    own = (cls.__name__ for cls in type(tokenizer).__mro__ if cls.__module__.startswith("seqkit."))
    return next((KIND_OF_TOKENIZER[name] for name in own if name in KIND_OF_TOKENIZER), "series")


def _takes_text(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer is seqkit's own, or derived from one of those: their texts are no paths."""
    own = [cls for cls in type(tokenizer).__mro__ if cls.__module__.startswith("seqkit.")]
    return own[0] not in Tokenizer.__mro__


def _content(cell: Any) -> bytes:
    """Content of a file. Raises DataError for anything else, a name of a file above all."""
    if (
        not isinstance(cell, dict)
        or list(cell) != ["base64"]
        or not isinstance(cell["base64"], str)
    ):
        raise DataError('a file is given by its content, {"base64": "…"}, and not by a name')
    try:
        content = b64decode(cell["base64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"the file is not base64 ({one_line(error)})") from None
    if not content:
        raise DataError("the file is empty")
    return content
