"""Documents of text in files, read piece by piece when asked for: size on disk is not size in memory."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from seqkit.data.cache import fingerprint
from seqkit.data.io import read_text
from seqkit.data.source import Sample, Subset
from seqkit.errors import DataError

PIECE_BYTES = 2**22
"""Longer documents are samples of about so many bytes each: a tokenizer encodes one whole, in a process of its own."""

STREAMED_PIECE_BYTES = 2**20
"""As `PIECE_BYTES`, where text is streamed: a few are encoded before the first step."""

MAX_HELD_OUT = 1_000_000
"""Characters that are held out by a share of a text: of a larger test split a loss is known no better."""

MAX_SHARE = 1 / 3
"""Of all text, that whole documents may take when they are held out."""

_CHUNK = 2**22


@dataclass(frozen=True, slots=True)
class Span:
    """A document: bytes `start` to `end` of a file. sha256: of the file's text. num_characters: as counted, or bytes
    where the text was not read."""

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
    path = Path(path)
    try:
        size = path.stat().st_size if path.is_file() else 0
    except OSError:
        size = 0
    if size <= _CHUNK:
        text = read_text(path)
        data = text.encode("utf-8")
        return Span(str(path), path.stat().st_size - len(data), path.stat().st_size, len(text), _digest(data))
    digest, decoder, num_characters, offset, start = sha256(), codecs.getincrementaldecoder("utf-8")(), 0, 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            if offset == 0 and chunk.startswith(codecs.BOM_UTF8):
                chunk, start, offset = chunk[3:], 3, 3
            pending = len(decoder.getstate()[0])
            try:
                num_characters += len(decoder.decode(chunk, final=offset + len(chunk) >= size))
            except UnicodeDecodeError as error:
                raise _not_utf8(path, offset - pending + error.start) from None
            digest.update(chunk)
            offset += len(chunk)
    return Span(str(path), start, offset, num_characters, digest.hexdigest())


def unread(path: str | Path) -> Span:
    """A file as one document, known by its name and size alone. Raises DataError where it is none or empty."""
    path = Path(path)
    if not path.is_file() or path.stat().st_size == 0:
        read_text(path)  # says what is wrong
    size = path.stat().st_size
    return Span(str(path), 0, size, size, _digest(f"{path.name}\0{size}".encode(errors="surrogatepass")))


class TextDocuments(Sequence[Sample]):
    """Documents in files as samples, each piece read when it is asked for.

    streamed: True: training reads them in passes over the files, without encoding them beforehand.
    batches_per_epoch: of a stream, whose end is not waited for.
    """

    def __init__(self, spans: Sequence[Span], *, streamed: bool = False, batches_per_epoch: int = 1000):
        self.spans, self.streamed, self.batches_per_epoch = list(spans), streamed, batches_per_epoch
        self._pieces: list[tuple[Span, int, int]] = []
        most = STREAMED_PIECE_BYTES if streamed else PIECE_BYTES
        for span in self.spans:
            number = max(1, -(-span.num_bytes // most))
            cuts = [span.start + span.num_bytes * k // number for k in range(number + 1)]
            self._pieces += [(span, start, end) for start, end in pairwise(cuts)]

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Subset(self, range(*index.indices(len(self))))
        span, start, end = self._pieces[index]
        return Sample(_read(span, start, end))

    @property
    def labels(self) -> list[None]:
        """None for each."""
        return [None] * len(self)

    @cached_property
    def num_bytes(self) -> int:
        """Of all documents."""
        return sum(span.num_bytes for span in self.spans)

    @cached_property
    def num_characters(self) -> int:
        """Of all documents; bytes where they were not read."""
        return sum(span.num_characters for span in self.spans)

    @property
    def raws(self) -> Raws:
        """The texts without labels, read when asked for."""
        return Raws(self)

    def sample_name(self, index: int) -> str:
        """File of a piece, and where it begins there if that is not at its beginning."""
        span, start, _ = self._pieces[index]
        return span.path if start == span.start else f"{span.path} from byte {start:,} on"

    def fingerprint(self) -> str:
        """Of their content."""
        return fingerprint(len(self), *(f"{span.sha256} {span.start} {span.end}" for span in self.spans))

    def held_out(self, fraction: float, seed: int) -> tuple[TextDocuments, TextDocuments | None, str]:
        """What is left, what is held out (None: nothing), and the rule in words.

        Whole documents go out in the order of SHA-256(seed, text), equal ones together, as long as they are at most
        `fraction` of all characters and `MAX_HELD_OUT`; where none is that short, the shortest, up to `MAX_SHARE`.
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
            return self._of(rest), self._of(out), f"{number}, by SHA-256 of the text"
        share = min(fraction, MAX_HELD_OUT / max(1, self.num_characters))
        cuts = [int(span.num_characters * (1 - share)) for span in self.spans]
        parts = [_cut(span, cut) for span, cut in zip(self.spans, cuts)]
        back = [part for _, part in parts if part.num_bytes]
        where = "the end" if len(self.spans) == 1 else "the end of each document"
        return self._of([part for part, _ in parts if part.num_bytes]), self._of(back) if back else None, where

    def beginnings(self, share: float) -> TextDocuments:
        """That share of each document, from its beginning."""
        cuts = [max(1, round(span.num_characters * share)) for span in self.spans]
        return self._of([_cut(span, cut)[0] for span, cut in zip(self.spans, cuts)])

    def sampled(self, num_bytes: int) -> TextDocuments:
        """Pieces from all over the text, of about so many bytes together."""
        step = max(1, self.num_bytes // num_bytes)
        chosen = TextDocuments([], streamed=self.streamed, batches_per_epoch=self.batches_per_epoch)
        chosen._pieces = self._pieces[::step]
        return chosen

    def _of(self, spans: Sequence[Span]) -> TextDocuments:
        return TextDocuments(spans, streamed=self.streamed, batches_per_epoch=self.batches_per_epoch)


class Raws(Sequence[str]):
    """Texts of documents, read when asked for."""

    def __init__(self, documents: TextDocuments):
        self.documents = documents

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.documents[index].raw


def _read(span: Span, start: int, end: int) -> str:
    """The characters that begin between two bytes. Raises DataError where the file is not what it was."""
    try:
        with Path(span.path).open("rb") as file:
            file.seek(start)
            data = file.read(end - start + 3)  # the last character may end behind
    except OSError as error:
        raise DataError(f"{span.path} cannot be read any more ({error.strerror or error}); bring it back") from error
    first, last = 0, min(end - start, len(data))
    while start > span.start and first < last and _continues(data[first]):
        first += 1
    while last < min(len(data), end - start + 3) and end < span.end and _continues(data[last]):
        last += 1
    try:
        text = data[first:last].decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(Path(span.path), start + first + error.start) from None
    return text.removeprefix("\ufeff") if start == 0 else text


def _continues(byte: int) -> bool:
    """Whether a byte of UTF-8 belongs to the character that began before it."""
    return byte & 0xC0 == 0x80


def _cut(span: Span, num_characters: int) -> tuple[Span, Span]:
    """A document in two, the first part of so many characters."""
    at = _offset(span, num_characters)
    back = replace(span, start=at, num_characters=span.num_characters - num_characters)
    return replace(span, end=at, num_characters=num_characters), back


def _offset(span: Span, num_characters: int) -> int:
    """The byte at which a character begins, counted in the document; in text that was not read, near that byte."""
    at, left = span.start, num_characters
    with Path(span.path).open("rb") as file:
        if span.num_characters == span.num_bytes:  # ASCII, or not read
            at += num_characters
            file.seek(at)
            ahead = file.read(4)
            return at + next((i for i, byte in enumerate(ahead) if not _continues(byte)), len(ahead))
        file.seek(at)
        decoder = codecs.getincrementaldecoder("utf-8")()
        while left > 0:
            known = file.tell() - len(decoder.getstate()[0])
            chunk = file.read(min(_CHUNK, 4 * left))
            if not chunk:
                raise DataError(f"{span.path} is shorter than when it was read first; start again")
            text = decoder.decode(chunk)
            if len(text) >= left:
                return known + len(text[:left].encode("utf-8"))
            left -= len(text)
    return at


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def _not_utf8(path: Path, offset: int) -> DataError:
    return DataError(
        f"{path} is not UTF-8: the byte at offset {offset:,} fits no character; "
        f"save it as UTF-8 (for instance: iconv -f latin1 -t utf-8 {path.name} > new.txt)"
    )
