"""Text as bytes, characters or words: one id per token, positions count tokens.

n tokens
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.tokenizers.given import counted
from seqkit.tokenizers.settings import check_choice, check_counts

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
"""Text that `decode` gives for the id of unknown characters or words."""

WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
"""A word, or a punctuation mark."""

_CLOSING = frozenset(".,;:!?)]}")
_OPENING = frozenset("([{")


class Text(Tokenizer):
    """Base class of text tokenizers: a `str` to ids and back. unit: name of what an id stands for, for messages."""

    unit: ClassVar[str] = "characters"

    @property
    def spec(self) -> TokenSpec:
        """Ids below `vocab_size` on one axis. Raises ValueError if it must be fitted first."""
        return TokenSpec(vocab_size=self.vocab_size)

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of ids. Raises ValueError if it must be fitted first."""

    @property
    def unknown_id(self) -> int | None:
        """Id that all unknown characters or words share; None if there is none. Raises ValueError as `spec`."""
        return None

    def reserve_unknown(self) -> None:
        """Gives unknown characters an id, if the tokenizer was built to have one where the data need it."""

    @abstractmethod
    def _ids(self, text: str) -> np.ndarray:
        """Ids [n] of a text that is not empty, of any integer type."""

    @abstractmethod
    def _text(self, ids: np.ndarray) -> str:
        """The text of ids [n] that lie inside the vocabulary."""

    def encode(self, raw: Any, /) -> Tokens:
        """A text as ids [n]; positions [n 1] count tokens from 0.

        Raises DataError if `raw` is not a `str`, is empty, or holds what the tokenizer cannot encode.
        """
        ids = self._ids(checked(raw)).astype(np.int64)
        return Tokens(torch.from_numpy(ids), counted(len(ids)))

    def missing(self, text: str) -> tuple[Counter[str], int]:
        """Counts of each `unit` of a text that has no id of its own, and the number of units of the text."""
        return Counter(), len(text)

    def share_unknown(self, raws: Iterable[Any]) -> list[str]:
        """Lets what held-out texts have and the vocabulary lacks share an id; a sentence about it, or none."""
        missing = Counter[str]()
        num_all = 0
        for raw in raws:
            if isinstance(raw, str):
                found, number = self.missing(raw)
                missing.update(found)
                num_all += number
        if missing:
            self.reserve_unknown()
        if not missing or self.unknown_id is None:  # None: they are refused where they are encoded
            return []
        most = ", ".join(repr(name) for name, _ in missing.most_common(3))
        return [
            f"{missing.total():,} of {num_all:,} {self.unit} ({len(missing):,} kinds, such as {most}) are not in the "
            "vocabulary; they share one id"
        ]

    def decode(self, tokens: Tokens | Tensor | Sequence[int]) -> str:
        """The text of ids [n], given as such or inside `Tokens`. Raises ValueError on an id outside the vocabulary."""
        content = tokens.content if isinstance(tokens, Tokens) else tokens
        if isinstance(content, Tensor):
            content = content.cpu()
        ids = np.asarray(content)
        if ids.size == 0:
            return ""
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ValueError(
                f"ids are {list(ids.shape)} {ids.dtype}; decode takes one sequence of integers [n]"
            )
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise ValueError(
                f"id {wrong} is outside the vocabulary; ids go from 0 to {self.vocab_size - 1}"
            )
        return self._text(ids)


class Bytes(Text):
    """UTF-8 bytes, 256 ids.

    When: any language, nothing to fit, sequences may be long (one token per byte, up to four per character).
    """

    @property
    def vocab_size(self) -> int:
        return 256

    def _ids(self, text: str) -> np.ndarray:
        return np.frombuffer(utf8(text), np.uint8)

    def _text(self, ids: np.ndarray) -> str:
        # a model may stop inside a character, so what is not UTF-8 becomes U+FFFD and is no error
        return ids.astype(np.uint8).tobytes().decode("utf-8", errors="replace")


class Characters(Text):
    """One id per character of an alphabet, given or fitted: the sorted set of the characters in the training texts.

    alphabet: characters in the order of their ids; None: `fit` takes them from the training texts.
    unknown: "error" refuses a character outside the alphabet; "unk" gives all of them one more id, the last, which
    `decode` gives as U+FFFD. None means "unk" if held-out text has characters that the training text lacks
    (`DataModule` then calls `reserve_unknown` before training), and "error" otherwise.
    When: small corpora, character models.
    """

    def __init__(
        self, alphabet: str | None = None, unknown: Literal["error", "unk"] | None = None
    ) -> None:
        check_choice("unknown", unknown, "error", "unk", None)
        self.unknown = unknown
        self._is_reserved = unknown == "unk"
        self._alphabet = alphabet
        self._characters: str | None = None
        if alphabet is not None:
            self._learn(alphabet)

    @property
    def alphabet(self) -> str:
        """Characters of the alphabet in the order of their ids. Raises ValueError before `fit`."""
        if self._characters is None:
            raise ValueError(
                "Characters has no alphabet yet; call fit(texts), or give it one: Characters(alphabet)"
            )
        return self._characters

    @property
    def vocab_size(self) -> int:
        return len(self.alphabet) + self._is_reserved

    @property
    def unknown_id(self) -> int | None:
        return len(self.alphabet) if self._is_reserved else None

    def reserve_unknown(self) -> None:
        """Give unknown characters an id of their own, unless `unknown` is "error"."""
        self._is_reserved = self._is_reserved or self.unknown is None

    def missing(self, text: str) -> tuple[Counter[str], int]:
        """Counts of each character of a text that is not in the alphabet, and the length of the text."""
        unknown = _characters_of(text) - set(self.alphabet)
        return Counter({character: text.count(character) for character in unknown}), len(text)

    def fit(self, raws: Iterable[str]) -> None:
        """Take the characters of the training texts as alphabet. Raises DataError if a text is empty or not a `str`."""
        if self._alphabet is not None:
            return
        found: set[str] = set()
        for text in each_text(raws):
            found |= _characters_of(text)
        self._learn("".join(sorted(found)))

    def state(self) -> dict[str, str | bool]:
        if self._characters is None:
            return {}
        found: dict[str, str | bool] = {"alphabet": self._characters}
        if self._is_reserved and self.unknown is None:
            found["unk"] = True
        return found

    def load_state(self, state: dict[str, str | bool]) -> None:
        """Take back what `state` gave. Raises ValueError if it is not that, or another alphabet than was given."""
        if not state:
            return
        alphabet = state.get("alphabet")
        if not {"alphabet"} <= set(state) <= {"alphabet", "unk"} or not isinstance(alphabet, str):
            raise ValueError(
                f"state holds {sorted(state)}; the state of Characters is {{'alphabet': text}}"
            )
        if "unk" in state and (state["unk"] is not True or self.unknown is not None):
            raise ValueError(
                "state is of Characters with an id for what is unknown; leave `unknown` out"
            )
        if self._alphabet not in (None, alphabet):
            raise ValueError(
                "state holds another alphabet than was given to Characters; leave `alphabet` out"
            )
        self._learn(alphabet)
        self._is_reserved = self.unknown == "unk" or "unk" in state

    def _learn(self, alphabet: str) -> None:
        if not alphabet:
            raise ValueError(
                "the alphabet is empty; give at least one character, or None to fit it"
            )
        twice = [character for character, times in Counter(alphabet).items() if times > 1]
        if twice:
            raise ValueError(
                f"the alphabet holds {twice[0]!r} more than once; each character has one id"
            )
        self._characters = alphabet
        self._codes = _code_points(alphabet)
        # id of each code point up to the highest of the alphabet, and one row for all above it
        unknown = len(alphabet)
        self._table = np.full(int(self._codes.max()) + 2, unknown, np.min_scalar_type(unknown))
        self._table[self._codes] = np.arange(len(alphabet))

    def _ids(self, text: str) -> np.ndarray:
        unknown = len(self.alphabet)
        ids = self._table.take(_code_points(text), mode="clip")
        if not self._is_reserved and (ids == unknown).any():
            at = int((ids == unknown).argmax())
            raise DataError(
                f"character {text[at]!r} (U+{ord(text[at]):04X}) at index {at} is not in the alphabet of {unknown}; "
                "remove it, train on text that has it, or with --tokenizer.unknown unk"
            )
        return ids

    def _text(self, ids: np.ndarray) -> str:
        codes = np.append(self._codes, np.uint32(ord(UNKNOWN)))
        return codes[ids].tobytes().decode("utf-32-le", errors="surrogatepass")


class Words(Text):
    """One id per word, punctuation apart, for the `max_words` most frequent; id 0 is every other (unknown) word.

    max_words: number of words that get an id of their own.
    lowercase: True drops the case.
    split: "punctuation" ends words at spaces and punctuation; "spaces" at spaces alone, for texts with a tag for each
    word.
    `decode` puts single spaces between words and none before closing punctuation: line breaks, other spacing, dropped
    case and unknown words (U+FFFD) are lost.
    When: small closed vocabularies, classic baselines.
    """

    unit = "words"

    def __init__(
        self,
        max_words: int = 10_000,
        *,
        lowercase: bool = False,
        split: Literal["punctuation", "spaces"] = "punctuation",
    ) -> None:
        check_counts(max_words=max_words)
        check_choice("split", split, "punctuation", "spaces")
        self.max_words = max_words
        self.lowercase = lowercase
        self.split = split
        self._words: list[str] | None = None

    @property
    def words(self) -> list[str]:
        """The word of each id from 1 on, most frequent first. Raises ValueError before `fit`."""
        if self._words is None:
            raise ValueError("Words has no vocabulary yet; call fit(texts)")
        return self._words

    @property
    def vocab_size(self) -> int:
        return 1 + len(self.words)

    @property
    def unknown_id(self) -> int | None:
        return 0

    def missing(self, text: str) -> tuple[Counter[str], int]:
        """Counts of each word of a text that is not in the vocabulary, and the number of words."""
        words = self._split(text)
        return Counter(word for word in words if word not in self._ids_of), len(words)

    def fit(self, raws: Iterable[str]) -> None:
        """Take the most frequent words of the training texts. Raises DataError where there are none."""
        counts = Counter(word for text in each_text(raws) for word in self._split(text))
        self._learn(most_frequent(counts, self.max_words))

    def state(self) -> dict[str, list[str]]:
        if self._words is None:
            return {}
        return {"words": self._words}

    def load_state(self, state: dict[str, list[str]]) -> None:
        """Take back what `state` gave. Raises ValueError if it is not that."""
        if state:
            self._learn(texts_of_state(state, "words", self))

    def _learn(self, words: list[str]) -> None:
        self._words = list(words)
        self._ids_of = {word: i for i, word in enumerate(words, start=1)}

    def _split(self, text: str) -> list[str]:
        text = text.lower() if self.lowercase else text
        if self.split == "spaces":
            return text.split()
        return WORD.findall(text)

    def _ids(self, text: str) -> np.ndarray:
        _ = self.words  # raises before `fit`
        words = checked_words(self._split(text), text)
        return np.array([self._ids_of.get(word, 0) for word in words])

    def _text(self, ids: np.ndarray) -> str:
        known = [UNKNOWN, *self.words]
        words = [known[i] for i in ids.tolist()]
        if self.split == "spaces":
            return " ".join(words)
        pieces = []
        spaced = False
        for word in words:
            if spaced and word not in _CLOSING:
                pieces.append(" ")
            pieces.append(word)
            spaced = word not in _OPENING
        return "".join(pieces)


def most_frequent(counts: Counter[str], most: int) -> list[str]:
    """The most frequent words. Raises DataError where there are none."""
    if not counts:
        raise DataError("the training text holds no words, only spaces; give text")
    # ties by spelling, so that the order of the texts does not matter
    return sorted(counts, key=lambda word: (-counts[word], word))[:most]


def checked_words(words: list[str], text: str) -> list[str]:
    """The words of a text. Raises DataError where there are none."""
    if not words:
        raise DataError(f"a text of {len(text)} characters holds no words, only spaces; drop it")
    return words


def texts_of_state(state: dict[str, list[str]], key: str, owner: Tokenizer) -> list[str]:
    """The list of texts that a state holds under its one key. Raises ValueError for another state."""
    texts = state.get(key)
    if (
        set(state) != {key}
        or not isinstance(texts, list)
        or not all(isinstance(text, str) for text in texts)
    ):
        name = type(owner).__name__
        raise ValueError(
            f"state holds {sorted(state)}; the state of {name} is {{{key!r}: [text, …]}}"
        )
    return texts


def utf8(text: str) -> bytes:
    """The text in UTF-8. Raises DataError where it holds half of a surrogate pair."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"character {text[error.start]!r} at index {error.start} is half of a surrogate pair, which UTF-8 "
            "cannot hold; read the file again with the encoding in which it was saved"
        ) from None


def _characters_of(text: str) -> set[str]:
    """Set of its characters. Deleting known ASCII characters finds the others 20 times as fast as `set(text)`."""
    data = text.encode("utf-8", errors="surrogatepass")
    found = set(data.translate(None, bytes(range(128))).decode("utf-8", errors="surrogatepass"))
    data = data.translate(None, bytes(range(128, 256)))
    while data:
        known = bytes(set(data[:1000]))
        found |= set(known.decode())
        data = data.translate(None, known)
    return found


def _code_points(text: str) -> np.ndarray:
    """[n] uint32; half surrogate pairs are allowed, so that every `str` has its code points."""
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), np.uint32)


def checked(raw: Any) -> str:
    if not isinstance(raw, str):
        raise DataError(
            f"a text tokenizer takes a str, but was given {type(raw).__name__}; decode or join it first"
        )
    if not raw:
        raise DataError("the text is empty; an example needs at least one character")
    return raw


def each_text(raws: Iterable[str]) -> Iterator[str]:
    """The training texts, one by one, checked. Raises DataError where there are none."""
    if isinstance(raws, str):
        raise ValueError(
            "fit takes several texts, but was given one str; put it in a list: fit([text])"
        )
    is_empty = True
    for raw in raws:
        is_empty = False
        yield checked(raw)
    if is_empty:
        raise DataError("fit was given no texts; give at least one")
