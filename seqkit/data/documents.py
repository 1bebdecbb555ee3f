"""Documents of text in files, read piece by piece when asked for: size on disk is not size in memory."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from seqkit.data.cache import fingerprint
from seqkit.data.io import read_text
from seqkit.data.sample import Samples
from seqkit.errors import DataError

PIECE_BYTES = 2**22
"""Size of the samples into which longer documents are cut: a tokenizer encodes one whole, in a process of its own."""

MAX_HELD_OUT = 1_000_000
"""Most characters that are held out: a larger test split tells the loss no better."""

MAX_SHARE = 1 / 3
"""Largest share of all text that whole documents may take when they are held out."""

_CHUNK = 2**22


@dataclass(frozen=True, slots=True)
class Span:
    """A document: bytes `start` to `end` of a file.

    sha256: digest of the file's text. num_characters: number of characters of the document.
    """

    path: str
    start: int
    end: int
    num_characters: int
    sha256: str

    @property
    def num_bytes(self) -> int:
        return self.end - self.start


def scanned(path: str | Path) -> Span:
    """A UTF-8 file as one document, read once from end to end. Raises DataError as `read_text`."""
    path, digest, num_characters = Path(path), sha256(), 0
    if not path.is_file() or path.stat().st_size <= _CHUNK:
        chunks: Iterable[str] = [read_text(path)]
    else:
        chunks = _chunks(path)
    try:
        for text in chunks:
            num_characters += len(text)
            digest.update(text.encode())
    except UnicodeDecodeError:
        read_text(path)  # says where
        raise
    with path.open("rb") as file:
        start = 3 if file.read(3) == codecs.BOM_UTF8 else 0
    return Span(str(path), start, path.stat().st_size, num_characters, digest.hexdigest())


class TextDocuments(Samples):
    """Documents in files as samples, each piece read when it is asked for."""

    def __init__(self, spans: Sequence[Span]):
        self.spans = list(spans)
        self._pieces: list[tuple[Span, int, int]] = []
        for span in self.spans:
            number = max(1, -(-span.num_bytes // PIECE_BYTES))
            cuts = [_begin(span, span.start + span.num_bytes * k // number) for k in range(number + 1)]
            self._pieces += [(span, start, end) for start, end in pairwise(cuts)]
        super().__init__(self._text, [None] * len(self._pieces), name=self._name, key=self._key)

    def _text(self, index: int) -> str:
        """The text of a piece."""
        return _read(*self._pieces[index])

    @cached_property
    def num_bytes(self) -> int:
        """Size of all documents."""
        return sum(span.num_bytes for span in self.spans)

    @cached_property
    def num_characters(self) -> int:
        """Characters of all documents."""
        return sum(span.num_characters for span in self.spans)

    @property
    def raws(self) -> Raws:
        """The texts without labels, read when asked for."""
        return Raws(self)

    def _name(self, index: int) -> str:
        """File of a piece, with the byte at which it begins there if that is not the first."""
        span, start, _ = self._pieces[index]
        return span.path if start == span.start else f"{span.path} from byte {start:,} on"

    def _key(self) -> str:
        """Fingerprint of the content."""
        return fingerprint(len(self), *(f"{span.sha256} {span.start} {span.end}" for span in self.spans))

    def held_out(self, fraction: float, seed: int) -> tuple[TextDocuments, TextDocuments | None, str]:
        """Split the documents: those that stay, those held out (None: nothing is), and the rule in words.

        Whole documents go out in the order of SHA-256(seed, text), equal ones together, up to `fraction` of all
        characters and `MAX_HELD_OUT` of them; if none is that short, the shortest goes, up to `MAX_SHARE`.
        Else, as for a single document, the end of each is held out.
        """
        quota = min(fraction * self.num_characters, MAX_HELD_OUT)
        sizes: dict[str, int] = {}
        for span in self.spans:
            sizes[span.sha256] = sizes.get(span.sha256, 0) + span.num_characters
        order = sorted((d for d in sizes if sizes[d] > 1), key=lambda d: sha256(f"{seed} {d}".encode()).digest())
        chosen: set[str] = set()
        held = 0
        for digest in order:
            if held + sizes[digest] <= quota:
                chosen.add(digest)
                held += sizes[digest]
        shortest = min((d for d in order if d not in chosen), key=lambda d: sizes[d], default="")
        if shortest and held < quota / 2 and held + sizes[shortest] <= MAX_SHARE * self.num_characters:
            chosen.add(shortest)
            held += sizes[shortest]
        if len(self.spans) > 1 and chosen and held >= quota / 2:
            rest = [span for span in self.spans if span.sha256 not in chosen]
            out = [span for span in self.spans if span.sha256 in chosen]
            number = f"{len(out)} of {len(self.spans)} whole documents" if len(out) > 1 else "a whole document"
            return TextDocuments(rest), TextDocuments(out), f"{number}, by SHA-256 of the text"
        share = min(fraction, MAX_HELD_OUT / max(1, self.num_characters))
        cuts = [int(span.num_characters * (1 - share)) for span in self.spans]
        parts = [_cut(span, cut) for span, cut in zip(self.spans, cuts)]
        back = [part for _, part in parts if part.num_bytes]
        where = "the end" if len(self.spans) == 1 else "the end of each document"
        front = TextDocuments([part for part, _ in parts if part.num_bytes])
        return front, TextDocuments(back) if back else None, where

    def beginnings(self, share: float) -> TextDocuments:
        """The beginning of each document, of that share of its characters."""
        cuts = [max(1, round(span.num_characters * share)) for span in self.spans]
        return TextDocuments([_cut(span, cut)[0] for span, cut in zip(self.spans, cuts)])


class Raws(Sequence[str]):
    """Texts of documents, read when asked for."""

    def __init__(self, documents: TextDocuments):
        self.documents = documents

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.documents.read(index)


def _read(span: Span, start: int, end: int) -> str:
    """The text between two bytes. Raises DataError if the file is no longer what it was."""
    with _opened(span) as file:
        file.seek(start)
        data = file.read(end - start)
    try:
        return data.decode().removeprefix("\ufeff" if start == 0 else "")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{span.path} is not UTF-8: the byte at offset {start + error.start:,} fits no character; save it as UTF-8"
        ) from None


@contextmanager
def _opened(span: Span) -> Iterator[BinaryIO]:
    try:
        with Path(span.path).open("rb") as file:
            yield file
    except OSError as error:
        raise DataError(f"{span.path} cannot be read any more ({error.strerror or error}); bring it back") from error


def _begin(span: Span, at: int) -> int:
    """The first byte from that one on at which a character begins, or the document ends."""
    if at in (span.start, span.end):
        return at
    with _opened(span) as file:
        file.seek(at)
        ahead = file.read(4)
    return at + next((i for i, byte in enumerate(ahead) if byte & 0xC0 != 0x80), len(ahead))


def _chunks(path: Path, num_characters: int = sys.maxsize, start: int = 0) -> Iterator[str]:
    """So many characters of a file, from a byte on. A byte-order mark is dropped."""
    with path.open(encoding="utf-8-sig" if start == 0 else "utf-8", newline="") as file:
        file.seek(start)
        while num_characters > 0 and (text := file.read(min(_CHUNK, num_characters))):
            num_characters -= len(text)
            yield text


def _cut(span: Span, num_characters: int) -> tuple[Span, Span]:
    """A document in two, the first part of so many characters."""
    at = _offset(span, num_characters)
    back = replace(span, start=at, num_characters=span.num_characters - num_characters)
    return replace(span, end=at, num_characters=num_characters), back


def _offset(span: Span, num_characters: int) -> int:
    """The byte at which a character begins, counted in the document."""
    if span.num_characters == span.num_bytes:  # ASCII
        return span.start + num_characters
    return span.start + sum(len(text.encode()) for text in _chunks(Path(span.path), num_characters, span.start))
