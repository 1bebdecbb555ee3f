"""Text as bytes, characters or words: one id per token, positions count tokens.

n tokens
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
"""The text of the id that all unknown characters or words share, in `decode`."""

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
_CLOSING, _OPENING = frozenset(".,;:!?)]}"), frozenset("([{")


class Text(Tokenizer):
    """Base class of text tokenizers: a `str` to ids and back."""

    @property
    def spec(self) -> TokenSpec:
        """Ids below `vocab_size` on one axis. Raises ValueError if it must be fitted first."""
        return TokenSpec(vocab_size=self.vocab_size)

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of ids. Raises ValueError if it must be fitted first."""

    @abstractmethod
    def _ids(self, text: str) -> Tensor:
        """Ids [n] int64 of a text that is not empty."""

    @abstractmethod
    def _text(self, ids: np.ndarray) -> str:
        """The text of ids [n] that lie inside the vocabulary."""

    def encode(self, raw: Any, /) -> Tokens:
        """A text as ids [n]; positions [n 1] count tokens from 0.

        Raises DataError if `raw` is not a `str`, is empty, or holds what the tokenizer cannot encode.
        """
        ids = self._ids(_checked(raw))
        positions = rearrange(torch.arange(len(ids), dtype=torch.float32), "n -> n 1")
        return Tokens(ids, positions)

    def decode(self, tokens: Tokens | Tensor | Sequence[int]) -> str:
        """The text of ids [n], given as such or inside `Tokens`. Raises ValueError on an id outside the vocabulary."""
        content = tokens.content if isinstance(tokens, Tokens) else tokens
        ids = np.asarray(content.cpu() if isinstance(content, Tensor) else content)
        if ids.size == 0:
            return ""
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ValueError(f"ids are {list(ids.shape)} {ids.dtype}; decode takes one sequence of integers [n]")
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise ValueError(f"id {wrong} is outside the vocabulary; ids go from 0 to {self.vocab_size - 1}")
        return self._text(ids)


class Bytes(Text):
    """UTF-8 bytes, 256 ids.

    When: any language, nothing to fit, sequences may be long (one token per byte, up to four per character).
    """

    def __repr__(self) -> str:
        return "Bytes()"

    @property
    def vocab_size(self) -> int:
        return 256

    def _ids(self, text: str) -> Tensor:
        return torch.from_numpy(np.frombuffer(utf8(text), np.uint8).astype(np.int64))

    def _text(self, ids: np.ndarray) -> str:
        # a model may stop inside a character, so what is not UTF-8 becomes U+FFFD and is no error
        return ids.astype(np.uint8).tobytes().decode("utf-8", errors="replace")


class Characters(Text):
    """One id per character of an alphabet, given or fitted: the sorted set of the characters in the training texts.

    unknown: "error": a character outside the alphabet is a DataError; "unk": all share one more id, the last, which
    `decode` gives as U+FFFD. A given alphabet stays: `fit` then changes nothing.
    When: small corpora, character models.
    """

    def __init__(self, alphabet: str | None = None, unknown: Literal["error", "unk"] = "error") -> None:
        if unknown not in ("error", "unk"):
            raise ValueError(f"unknown={unknown!r}; choose 'error' (refuse the text) or 'unk' (one id for them all)")
        self.unknown = unknown
        self._alphabet: str | None = None
        self._given = alphabet is not None
        if alphabet is not None:
            self._learn(alphabet)

    def __repr__(self) -> str:
        known = "not fitted" if self._alphabet is None else f"{len(self._alphabet)} characters"
        return f"Characters({known}, unknown={self.unknown!r})"

    @property
    def fitted(self) -> bool:
        """True: there is an alphabet, given or fitted."""
        return self._alphabet is not None

    @property
    def alphabet(self) -> str:
        """Its characters in the order of their ids. Raises ValueError before `fit`."""
        if self._alphabet is None:
            raise ValueError("Characters has no alphabet yet; call fit(texts), or give it one: Characters(alphabet)")
        return self._alphabet

    @property
    def vocab_size(self) -> int:
        return len(self.alphabet) + (self.unknown == "unk")

    def fit(self, raws: Iterable[str]) -> None:
        """Take the characters of the training texts as alphabet. Raises DataError if a text is empty or not a `str`."""
        if not self._given:
            self._learn("".join(sorted(set().union(*(set(text) for text in checked_texts(raws))))))

    def state(self) -> dict[str, Any]:
        return {} if self._alphabet is None else {"alphabet": self._alphabet}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave. Raises ValueError if it is not that, or another alphabet than was given."""
        if not state:
            return
        alphabet = state.get("alphabet")
        if set(state) != {"alphabet"} or not isinstance(alphabet, str):
            raise ValueError(f"state holds {sorted(state)}; the state of Characters is {{'alphabet': text}}")
        if self._given and alphabet != self._alphabet:
            raise ValueError("state holds another alphabet than was given to Characters; leave `alphabet` out")
        self._learn(alphabet)

    def _learn(self, alphabet: str) -> None:
        if not alphabet:
            raise ValueError("the alphabet is empty; give at least one character, or None to fit it")
        twice = [character for character, times in Counter(alphabet).items() if times > 1]
        if twice:
            raise ValueError(f"the alphabet holds {twice[0]!r} more than once; each character has one id")
        self._alphabet = alphabet
        self._codes = _code_points(alphabet)
        # id of each code point up to the highest of the alphabet, and one row for all above it
        self._table = np.full(int(self._codes.max()) + 2, -1, np.int64)
        self._table[self._codes] = np.arange(len(alphabet))

    def _ids(self, text: str) -> Tensor:
        unk = len(self.alphabet)
        ids = self._table[np.minimum(_code_points(text), len(self._table) - 1)]
        unknown = ids < 0
        if unknown.any():
            if self.unknown == "error":
                at = int(unknown.argmax())
                raise DataError(
                    f"character {text[at]!r} (U+{ord(text[at]):04X}) at index {at} is not in the alphabet of {unk}; "
                    "fit on text that has it, remove it, or set unknown='unk'"
                )
            ids[unknown] = unk
        return torch.from_numpy(ids)

    def _text(self, ids: np.ndarray) -> str:
        codes = np.append(self._codes, np.uint32(ord(UNKNOWN)))
        return codes[ids].tobytes().decode("utf-32-le", errors="surrogatepass")


class Words(Text):
    """One id per word, punctuation apart, for the `max_words` most frequent; id 0 is every other (unknown) word.

    lowercase: True: case is dropped. `decode` puts single spaces between words and none before closing punctuation:
    line breaks, other spacing, dropped case and unknown words (U+FFFD) are lost.
    When: small closed vocabularies, classic baselines.
    """

    def __init__(self, max_words: int = 10_000, *, lowercase: bool = False) -> None:
        if max_words < 1:
            raise ValueError(f"max_words={max_words}; a vocabulary needs at least one word")
        self.max_words, self.lowercase = max_words, lowercase
        self._words: list[str] | None = None

    def __repr__(self) -> str:
        known = "not fitted" if self._words is None else f"{len(self._words)} words"
        return f"Words({known}, lowercase={self.lowercase})"

    @property
    def fitted(self) -> bool:
        """True: there is a vocabulary."""
        return self._words is not None

    @property
    def words(self) -> list[str]:
        """The word of each id from 1 on, most frequent first. Raises ValueError before `fit`."""
        if self._words is None:
            raise ValueError("Words has no vocabulary yet; call fit(texts)")
        return self._words

    @property
    def vocab_size(self) -> int:
        return 1 + len(self.words)

    def fit(self, raws: Iterable[str]) -> None:
        """Take the most frequent words of the training texts. Raises DataError where there are none."""
        counts = Counter(word for text in checked_texts(raws) for word in self._split(text))
        if not counts:
            raise DataError("the training text holds no words, only spaces; give text")
        # ties by spelling, so that the order of the texts does not matter
        self._learn(sorted(counts, key=lambda word: (-counts[word], word))[: self.max_words])

    def state(self) -> dict[str, Any]:
        return {} if self._words is None else {"words": self._words}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave. Raises ValueError if it is not that."""
        if not state:
            return
        words = state.get("words")
        if set(state) != {"words"} or not isinstance(words, list) or not all(isinstance(w, str) for w in words):
            raise ValueError(f"state holds {sorted(state)}; the state of Words is {{'words': [word, …]}}")
        self._learn(words)

    def _learn(self, words: list[str]) -> None:
        self._words = list(words)
        self._ids_of = {word: i for i, word in enumerate(words, start=1)}

    def _split(self, text: str) -> list[str]:
        return _WORD.findall(text.lower() if self.lowercase else text)

    def _ids(self, text: str) -> Tensor:
        if self._words is None:
            raise ValueError("Words has no vocabulary yet; call fit(texts)")
        ids = [self._ids_of.get(word, 0) for word in self._split(text)]
        if not ids:
            raise DataError(f"a text of {len(text)} characters holds no words, only spaces; drop it")
        return torch.tensor(ids)

    def _text(self, ids: np.ndarray) -> str:
        pieces, spaced = [], False
        for i in ids.tolist():
            word = self.words[i - 1] if i else UNKNOWN
            pieces.append(f" {word}" if spaced and word not in _CLOSING else word)
            spaced = word not in _OPENING
        return "".join(pieces)


def utf8(text: str) -> bytes:
    """The text in UTF-8. Raises DataError where it holds half of a surrogate pair."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"character {text[error.start]!r} at index {error.start} is half of a surrogate pair, which UTF-8 "
            "cannot hold; read the file again with the encoding in which it was saved"
        ) from None


def _code_points(text: str) -> np.ndarray:
    """[n] uint32; half surrogate pairs are allowed, so that every `str` has its code points."""
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), np.uint32)


def _checked(raw: Any) -> str:
    if not isinstance(raw, str):
        raise DataError(f"a text tokenizer takes a str, but was given {type(raw).__name__}; decode or join it first")
    if not raw:
        raise DataError("the text is empty; an example needs at least one character")
    return raw


def checked_texts(raws: Iterable[str]) -> list[str]:
    """The training texts, checked."""
    if isinstance(raws, str):
        raise ValueError("fit takes several texts, but was given one str; put it in a list: fit([text])")
    texts = [_checked(raw) for raw in raws]
    if not texts:
        raise DataError("fit was given no texts; give at least one")
    return texts
