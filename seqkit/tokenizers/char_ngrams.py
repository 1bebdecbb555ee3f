"""Words as bags of character n-grams.

b batch · n tokens (words) · k ids of a word · d width
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.tokenizers.given import counted
from seqkit.tokenizers.settings import check_counts
from seqkit.tokenizers.text import (
    UNKNOWN,
    WORD,
    checked,
    checked_words,
    each_text,
    most_frequent,
    texts_of_state,
)

PIECE = 16
LONGEST = 5
"""Most characters of a token (longer words, and scripts without spaces, are divided) and of an n-gram in a word."""


class CharNGrams(Tokenizer):
    """A token for each word, punctuation apart: the ids of its character n-grams and of the word itself.

    As in fastText (Bojanowski et al. 2017, section 3.2, here without hashing), n-grams include a space on either side
    of the word, so prefixes and suffixes differ from what is inside, and words that training lacks share n-grams with
    others. A token's content is k ids, first that of the word; 0 is none, for n-grams that training lacks.
    max_ngrams: number of n-grams that get an id, the most frequent; n is 2 to 5, or a whole word's length.
    The case is dropped. Words of more than 16 characters are several tokens.
    `decode` puts spaces between words; words that training lacks (U+FFFD), spacing and case are lost.
    When: few labelled texts, short texts, names. No objective predicts its tokens.
    Raises ValueError for a number below 1.

    >>> tokenizer = CharNGrams()
    >>> tokenizer.fit(["a b", "a"])
    >>> tokenizer.encode("b a?").content[:, :4].tolist()  # "b" is " b ", " b" and "b "; of "?" nothing is known
    [[5, 4, 6, 0], [2, 1, 3, 0], [0, 0, 0, 0]]
    """

    def __init__(self, max_ngrams: int = 30_000) -> None:
        check_counts(max_ngrams=max_ngrams)
        self.max_ngrams = max_ngrams
        self._ids_of: dict[str, int] = {}

    @property
    def spec(self) -> TokenSpec:
        """k ids of one table. Raises ValueError before `fit`."""
        if not self._ids_of:
            raise ValueError("CharNGrams has no n-grams yet; call fit(texts)")
        size = 1 + len(self._ids_of)
        k = 1 + sum(PIECE + 3 - n for n in range(2, LONGEST + 1))
        return TokenSpec(vocab_sizes=(size,) * k, embedder=partial(BagEmbedding, size))

    def fit(self, raws: Iterable[str]) -> None:
        """Takes the most frequent n-grams of the training texts. Raises DataError where there are no words."""
        words = Counter(word for text in each_text(raws) for word in self._words(text))
        counts = Counter[str]()
        for word, times in words.items():
            counts.update(dict.fromkeys(self._ngrams(word), times))
        self._learn(most_frequent(counts, self.max_ngrams))

    def state(self) -> dict[str, list[str]]:
        """The n-grams in the order of their ids."""
        if self._ids_of:
            return {"ngrams": list(self._ids_of)}
        return {}

    def load_state(self, state: dict[str, list[str]]) -> None:
        """Take back what `state` gave. Raises ValueError if it is not that."""
        if state:
            self._learn(texts_of_state(state, "ngrams", self))

    def encode(self, raw: Any, /) -> Tokens:
        """A text as ids [n k]; positions [n 1] count words from 0.

        Raises DataError if `raw` is not a `str`, is empty, or holds no words.
        """
        words = checked_words(self._words(checked(raw)), raw)
        ids = torch.zeros(len(words), len(self.spec.vocab_sizes), dtype=torch.int64)
        for row, word in zip(ids, words):
            found = [self._ids_of.get(ngram, 0) for ngram in self._ngrams(word)]
            row[: len(found)] = torch.tensor(found)
        return Tokens(ids, counted(len(words)))

    def decode(self, tokens: Tokens | Tensor) -> str:
        """The words of ids [n k], given as such or inside `Tokens`, with a space between them."""
        content = torch.as_tensor(tokens.content if isinstance(tokens, Tokens) else tokens)
        return " ".join(self._ngrams_of[i].strip() for i in content[:, 0].tolist())

    def _learn(self, ngrams: list[str]) -> None:
        self._ids_of = {ngram: i for i, ngram in enumerate(ngrams, start=1)}
        self._ngrams_of = [UNKNOWN, *ngrams]

    def _words(self, text: str) -> list[str]:
        words = WORD.findall(text.lower())
        return [word[i : i + PIECE] for word in words for i in range(0, len(word), PIECE)]

    def _ngrams(self, word: str) -> dict[str, None]:
        """The word between spaces, and its n-grams, each once."""
        word = f" {word} "
        found = (word[i : i + n] for n in range(2, LONGEST + 1) for i in range(len(word) - n + 1))
        return dict.fromkeys((word, *found))


class BagEmbedding(nn.Module):
    """Sum of the embeddings of a token's ids, 0 being none, divided by the square root of their number."""

    def __init__(self, num_ids: int, dim: int):
        super().__init__()
        self.table = nn.Embedding(num_ids, dim, padding_idx=0)
        nn.init.normal_(self.table.weight, std=0.01)

    def forward(self, content: Tensor) -> Tensor:
        """Embeddings [b n d] of ids [b n k]."""
        weight = self.table.weight
        known = content > 0
        if torch.compiler.is_compiling():  # export fixes the number of bags
            total = (self.table(content) * rearrange(known, "b n k -> b n k 1")).sum(dim=2)
        else:  # does not keep the embedding of each id
            bags = F.embedding_bag(
                rearrange(content, "b n k -> (b n) k"), weight, mode="sum", padding_idx=0
            )
            total = rearrange(bags, "(b n) d -> b n d", b=len(content))
        return total * known.sum(dim=-1, keepdim=True).clamp(min=1).to(weight.dtype).rsqrt()
