"""Words of Shakespeare's plays without punctuation or capitals, and the marks that stood behind them as labels."""

import re
from collections.abc import Callable, Iterator

import torch

from seqkit.data import DataSource, Sample, Splits
from seqkit.recipes.text.shakespeare import Shakespeare

TAGS = ["none", "comma", "stop", "question", "exclamation", "colon"]
ENDS = ["stop", "question", "exclamation"]
MARKS = {",": "comma", ".": "stop", "?": "question", "!": "exclamation", ":": "colon", ";": "colon"}
LONGEST = 64
"""Most words of a sample; a longer speech is several."""

_SPEAKER = re.compile(r"^[^a-z\n]+:$", re.MULTILINE)
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


class Punctuation(DataSource):
    """`punctuation`: speeches of 38 plays of Shakespeare, lower case and bare; the tag is the mark behind each word.

    Split: as `shakespeare`, four whole plays of four genres are test.
    """

    def splits(self) -> Splits:
        """raw: words with spaces between; label: tags [n] int64. Raises DataError as `Shakespeare.splits`."""
        return _of_speeches(parts, TAGS)


class SentenceEnds(DataSource):
    """`sentence-ends`: sentences of 38 plays of Shakespeare, lower case and bare; the class is the mark behind each.

    Split: as `shakespeare`, four whole plays of four genres are test.
    """

    def splits(self) -> Splits:
        """raw: words with spaces between. Raises DataError as `Shakespeare.splits`."""
        return _of_speeches(sentences, ENDS)


def _of_speeches(samples: Callable[[str], Iterator[Sample]], names: list[str]) -> Splits:
    """Samples of each speech of each play, in the splits of `shakespeare`."""
    plays = Shakespeare().splits()
    speeches = (
        [speech for play in split for speech in _SPEAKER.split(play.raw)]
        for split in (plays.train, plays.test)
    )
    train, test = ([sample for speech in split for sample in samples(speech)] for split in speeches)
    return Splits(train, test, names=names)


def sentences(speech: str) -> Iterator[Sample]:
    """The sentences of a speech as bare words, with the class of their last mark."""
    words, tags = tagged(speech)
    begins = 0
    for i, tag in enumerate(tags, start=1):
        if tag in ENDS:
            yield Sample(" ".join(words[begins:i]), ENDS.index(tag))
            begins = i


def parts(speech: str) -> Iterator[Sample]:
    """A speech as bare words with their tags, at most `LONGEST` a sample."""
    words, tags = tagged(speech)
    for start in range(0, len(words), LONGEST):
        part = slice(start, start + LONGEST)
        yield Sample(" ".join(words[part]), torch.tensor([TAGS.index(tag) for tag in tags[part]]))


def tagged(text: str) -> tuple[list[str], list[str]]:
    """The words of a text in lower case, and of each the name of the first mark between it and the next, or none."""
    found = list(_WORD.finditer(text))
    ends = [*(word.start() for word in found[1:]), len(text)]
    between = (text[word.end() : end] for word, end in zip(found, ends))
    tags = [next((MARKS[letter] for letter in gap if letter in MARKS), "none") for gap in between]
    return [word[0].lower() for word in found], tags
