"""Inputs of requests as raw examples. A client names no file: images and sounds are bytes in the request."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from seqkit.data.formats import AUDIO, IMAGE, own_reader
from seqkit.data.inputs import example_of, schema_of
from seqkit.data.io import audio_header, image_header
from seqkit.data.sources.table import KIND_OF_TOKENIZER
from seqkit.data.tables.schema import FILES
from seqkit.errors import DataError, UsageError, one_line
from seqkit.interfaces import Tokens
from seqkit.raw import GraphData
from seqkit.runs.trained_model import TrainedModel
from seqkit.serve.limits import Limits

UPLOAD = "the upload"
"""Name of a client's file in errors."""

EXAMPLES: dict[str, Any] = {
    "text": "some text",
    "smiles": "CCO",
    "image": {"base64": "iVBORw0KGgo…"},
    "audio": {"base64": "UklGRiQAAABXQVZF…"},
    "graph": {"nodes": [[0.5], [1.0]], "edges": [[0], [1]]},
    "file": {"base64": "…"},
    "values": [1, 2, 3],
}
"""Input of each kind, as the page shows it."""


class InputReader:
    """Raw examples of a run, and their tokens, from the inputs of requests.

    kind: `text`, `smiles`, `image`, `audio`, `graph`, `file` (the tokenizer reads files itself), `parts` (an object
    with a value for each column) or `values` (as the tokenizer takes them). columns: kind of each column of `parts`.
    Raises UsageError for a run on a graph file, whose examples are nodes of one graph.
    """

    def __init__(self, trained: TrainedModel, limits: Limits):
        source = trained.config["data"].get("source")
        if isinstance(source, dict) and source.get("type") == "GraphFile":
            raise UsageError(f"{trained.folder} is a run on one graph, which no request holds; use `seqkit predict`")
        self.trained, self.limits = trained, limits
        self.schema = schema_of(trained.config) if hasattr(trained.tokenizer, "parts") else None
        self.columns = None if self.schema is None else {column.name: column.kind for column in self.schema.inputs}
        known = KIND_OF_TOKENIZER.get(trained.config["tokenizer"]["type"], "values")
        if self.columns is not None:
            self.kind = "parts"
        elif own_reader(trained.tokenizer) is not None:
            self.kind = "file"
        else:
            self.kind = "graph" if trained.config["tokenizer"]["type"] == "Graph" else known

    @property
    def example(self) -> Any:
        """An input, to show its form."""
        if self.columns is None:
            return EXAMPLES[self.kind]
        of_cells = {"number": 1.5, "category": "word", "date": "2026-01-31"}
        return {name: of_cells.get(kind, EXAMPLES.get(kind)) for name, kind in self.columns.items()}

    def tokens(self, value: Any) -> Tokens:
        """Tokens of an input, as many as the run's data had and the server takes. Raises DataError, or as the
        tokenizer."""
        tokens = self.trained.encode(self.raw(value))
        if len(tokens) > self.limits.tokens:
            raise DataError(f"the input has {len(tokens):,} tokens, and {self.limits.tokens:,} are the most")
        return tokens

    def raw(self, value: Any) -> Any:
        """The raw example of an input: a JSON value, or the bytes of a file. Raises DataError where it is none."""
        if self.kind == "parts":
            return self._parts(value)
        if self.kind in ("image", "audio", "file"):
            return self._file(self._bytes(value), self.kind, self.trained.tokenizer)
        if isinstance(value, bytes):
            raise DataError(f"this run takes no files; send JSON, such as {EXAMPLES[self.kind]!r}")
        if self.kind in ("text", "smiles"):
            return self._text(value)
        if self.kind == "graph":
            return _graph(value)
        if not isinstance(value, list | str) or len(value) > self.limits.tokens:
            raise DataError(f"give a list of values, at most {self.limits.tokens:,}")
        return value

    def _text(self, value: Any) -> str:
        is_words = getattr(self.trained.objective, "level", "") == "token" and isinstance(value, list)
        if is_words and value and all(isinstance(word, str) for word in value):
            value = " ".join(value)
        if not isinstance(value, str):
            raise DataError(f"the input is {_named(value)}; give a text")
        if not value.strip():
            raise DataError("the text is empty; give one")
        self._check_length("the input", value, self.kind)
        return value.strip() if self.kind == "smiles" else value

    def _parts(self, value: Any) -> Any:
        assert self.schema is not None, "a run of parts has a schema"
        assert self.columns is not None
        if not isinstance(value, Mapping):
            raise DataError(f"the input is {_named(value)}; give an object with some of {', '.join(self.columns)}")
        tokenizer: Any = self.trained.tokenizer
        names = {part: column for part, column in tokenizer.reads.items() if column in self.columns}
        tokenizers = {column: tokenizer.parts[part] for part, column in names.items()} | tokenizer.parts
        cells: dict[str, Any] = {}
        for name, cell in value.items():
            column = str(name if name in self.columns else names.get(name, name))
            kind = self.columns.get(column, "")
            if isinstance(cell, list | dict) and kind not in FILES:
                raise DataError(f"{one_line(name)[:60]} is {_named(cell)}; give a text or a number")
            if cell is None:
                cells[column] = None
            elif kind in FILES:
                content = self._bytes(cell)
                self._check_size(content, kind, tokenizers.get(column))
                cells[column] = content
            else:
                self._check_length(one_line(name)[:60], str(cell), kind)
                cells[column] = cell if kind in ("number", "category") else str(cell)
        return example_of(cells, self.schema, tokenizer)

    def _check_length(self, name: str, text: str, kind: str | None) -> None:
        most = self.limits.smiles_characters if kind == "smiles" else self.limits.characters
        if len(text) > most:
            raise DataError(f"{name} has {len(text):,} characters, and {most:,} are the most")

    def _bytes(self, value: Any) -> bytes:
        """Content of a file. Raises DataError for anything else, a name of a file above all."""
        if isinstance(value, bytes):
            return value
        if not isinstance(value, dict) or list(value) != ["base64"] or not isinstance(value["base64"], str):
            raise DataError(f'the input is {_named(value)}; give the content of the file: {{"base64": "…"}}')
        try:
            content = b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise DataError(f"the upload is not base64 ({one_line(error)})") from None
        if not content:
            raise DataError("the upload is empty")
        return content

    def _check_size(self, content: bytes, kind: str | None, tokenizer: Any) -> None:
        self._file(content, str(kind), tokenizer, read=False)

    def _file(self, content: bytes, kind: str, tokenizer: Any, *, read: bool = True) -> Any:
        """The raw example of a file's content, whose size its header tells before it is unpacked."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "upload"
            path.write_bytes(content)
            try:
                if kind == "image":
                    height, width, _ = image_header(path)
                    if height * width > self.limits.pixels:
                        most = f"{self.limits.pixels:,} pixels are the most"
                        raise DataError(f"the image has {height} × {width} pixels, and {most}")
                elif kind == "audio":
                    samples, _, channels = audio_header(path)
                    if samples * channels > self.limits.audio_values:
                        most = f"{self.limits.audio_values:,} are the most"
                        raise DataError(f"the sound has {samples:,} samples of {channels} channels, and {most}")
                if not read:
                    return None
                own = own_reader(tokenizer)
                return own(path) if own is not None else (IMAGE if kind == "image" else AUDIO).read_for(path, tokenizer)
            except (DataError, OSError) as error:
                raise DataError(str(error).replace(str(path), UPLOAD)) from None


def _graph(value: Any) -> GraphData:
    """A graph of `nodes` (features or categories), `edges` ([2 e]), and if it has them `edge_types`, `directed`."""
    fields = ("nodes", "edges", "edge_types", "directed")
    if not isinstance(value, dict) or not {"nodes", "edges"} <= set(value) <= set(fields):
        raise DataError(f"the input is {_named(value)}; give an object of {', '.join(fields)}, the first two at least")
    try:
        nodes = torch.tensor(value["nodes"])
        edges = torch.tensor(value["edges"], dtype=torch.int64) if value["edges"] else torch.zeros(2, 0).long()
        types = value.get("edge_types")
        types = None if types is None else torch.tensor(types, dtype=torch.int64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise DataError(f"the graph holds something else than numbers ({one_line(error)[:100]})") from None
    nodes = nodes.float() if nodes.ndim == 2 else nodes
    return GraphData(nodes, edges, types, value.get("directed") is True)


def _named(value: Any) -> str:
    """Type of a JSON value in words."""
    names = {str: "a text", dict: "an object", list: "a list", bool: "true or false", bytes: "a file"}
    return "nothing" if value is None else names.get(type(value), "a number")
