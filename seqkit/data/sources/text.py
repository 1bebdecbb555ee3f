"""Your own texts: one sample a document, a `str`; or a text and its class."""

from __future__ import annotations

import codecs
import logging
from hashlib import sha256
from pathlib import Path

from seqkit.data.documents import PIECE_CHARACTERS, document_of, held_out, num_characters, place
from seqkit.data.io import read_text
from seqkit.data.sample import Sample, Samples, Splits
from seqkit.data.source import DataSource, check_test_fraction
from seqkit.data.walk import matching
from seqkit.errors import DataError
from seqkit.progress import track

log = logging.getLogger("seqkit")


class TextFiles(DataSource):
    """Your own UTF-8 text, each file one document.

    path: one file, a list of files, or a pattern such as `notes/**/*.txt`. test_fraction: share of all characters that
    is test, at most `MAX_HELD_OUT` of them: of several documents whole ones, in an order by SHA-256 of their
    text; of one its end. A document longer than `PIECE_CHARACTERS` is several samples, one behind the other.
    """

    def __init__(self, path: str | list[str], *, test_fraction: float = 0.1):
        check_test_fraction(test_fraction)
        self.path = path
        self.test_fraction = test_fraction

    def splits(self) -> Splits:
        """Raises DataError where a file is missing, empty, too short to be cut in two or not UTF-8, or none matches.

        Empty files among several are left out, and counted in the log, which also has the rule of the split.
        """
        paths = self._paths()
        if len(paths) > 1:
            filled = [path for path in paths if not Path(path).is_file() or _has_text(path)]
            if 0 < len(filled) < len(paths):
                empty = next(path for path in paths if path not in set(filled))
                log.warning(
                    "%s",
                    f"{len(paths) - len(filled):,} of {len(paths):,} files are empty (such as {empty})",
                )
                paths = filled
        samples = []
        for path in track(paths, "reading text", len(paths)):
            texts = _pieces(path)
            start = 0
            group = _sha256(texts) if len(paths) > 1 else path
            for text in texts:
                samples.append(Sample(text, group=group, name=place(path, start)))
                start += len(text)
        documents = Samples.of(samples)
        train, test, rule = held_out(documents, self.test_fraction, seed=0)
        kept = {sample.name for sample in train}
        for sample in samples:
            if not rule.startswith("the end") or document_of(sample.name) != sample.name:
                continue
            if sample.name not in kept or not test:
                count = len(sample.raw)
                raise DataError(
                    f"{sample.name} has {count} character{'s' * (count > 1)}, which leaves none to train on beside its "
                    f"test split ({self.test_fraction:g} of it); give a longer text or take it out"
                )
        log.warning(
            "%d document%s, %s characters: %s are held out for the test (%s)",
            len(paths), "s" * (len(paths) > 1), f"{num_characters(documents):,}", f"{num_characters(test):,}", rule,
        )  # fmt: skip
        return Splits(train=train, test=test, rule=rule)

    def _paths(self) -> list[str]:
        if isinstance(self.path, str):
            return matching(self.path)
        if not self.path:
            raise ValueError("path is an empty list; give at least one text file")
        return [file for path in self.path for file in matching(path)]


def _pieces(path: str) -> list[str]:
    """The text of a file, in pieces of at most `PIECE_CHARACTERS`. Raises DataError as `read_text`."""
    file = Path(path)
    if not file.is_file() or file.stat().st_size <= PIECE_CHARACTERS:
        return [read_text(path)]
    try:
        # as it is: no line ends are changed
        with file.open(encoding="utf-8-sig", newline="") as lines:
            found = list(iter(lambda: lines.read(PIECE_CHARACTERS), ""))
    except (OSError, UnicodeDecodeError):
        found = []
    # which says what is wrong
    if all(map(str.isspace, found)):
        return [read_text(path)]
    return found


def _sha256(texts: list[str]) -> str:
    digest = sha256()
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()


def _has_text(path: str) -> bool:
    """Whether the beginning of a file holds more than white space."""
    try:
        with Path(path).open("rb") as file:
            return file.read(2**16).strip() not in (b"", codecs.BOM_UTF8)
    except OSError:
        return True  # reading it says why it cannot be read
