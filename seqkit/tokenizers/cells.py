"""Numbers and categories of a row of a table: one token for each cell that is filled.

n tokens
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqkit.errors import DataError, one_line, shortened, suggest
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.tokenizers.text import most_frequent

MAX_NUMBER = 1e18
"""Largest number of a cell: the square of a larger one, as the spread takes it, is too near the end of float32."""

MAX_BINNED = 128
"""Most columns of a table whose numbers have bins: the memory of a batch grows by columns squared, times bins."""

UNKNOWN = 1
"""Id of words that training lacks, or has too seldom; 0 is the word of a number."""

Row = Mapping[str, Any]
"""Cells of a row by the name of their column."""


@dataclass(frozen=True, slots=True)
class _Column:
    """Column as it was learned. words: id of each word; None: it holds numbers, of this mean and spread, in bins
    with these edges, between these ends; None: they are not known.
    """

    mean: float = 0.0
    std: float = 1.0
    edges: tuple[float, ...] = ()
    words: Mapping[str, int] | None = None
    ends: tuple[float, float] | None = None

    def state(self, name: str) -> dict[str, object]:
        """The learned state, as plain JSON."""
        if self.words is not None:
            return {"name": name, "words": list(self.words)}
        found = {"name": name, "mean": self.mean, "std": self.std, "edges": list(self.edges)}
        if self.ends is not None:
            found["ends"] = list(self.ends)
        return found


State = dict[str, list[Any]]
"""The columns as they were learned, below the key `columns`."""


class Cells(Tokenizer):
    """Numbers and categories of a row, a token for each filled cell; a missing cell has none.

    A raw example maps names of columns to a number, a word, or None. A token has two ids, column and word, and numbers
    beside them at the column's own place: that of its cell, less the column's mean in training and divided by its
    standard deviation, and its piecewise-linear encoding, the share of each bin that lies below it, 0 to 1. So each
    column of numbers has directions of its own in the embedding, as in FT-Transformer (Gorishniy et al. 2021, section
    3.3; bins: Gorishniy et al. 2022, section 3.2). Positions count the columns in the order of their names.
    min_count: number of training rows from which on a word has an id of its own; the others share one id, and so do
    words that training lacks. max_words: most words of a column with ids of their own, the most frequent ones.
    num_bins: bins of a column between quantiles of its numbers in training, fewer where quantiles are equal; 0: none.
    A table of more than 128 columns has none.
    When: tables of numbers and categories, with gaps. Raises ValueError for counts below 1.

    >>> cells = Cells(min_count=1, num_bins=2)
    >>> cells.fit([{"size": 1.0, "kind": "a"}, {"size": 3.0, "kind": "b"}])
    >>> tokens = cells.encode({"size": 3.0, "kind": None})
    >>> tokens.content.tolist(), tokens.features.tolist()
    ([[1, 0]], [[1.0, 1.0, 1.0]])
    """

    def __init__(self, *, min_count: int = 2, max_words: int = 1000, num_bins: int = 8) -> None:
        if min_count < 1 or max_words < 1 or num_bins < 0:
            given = f"min_count={min_count}, max_words={max_words}, num_bins={num_bins}"
            raise ValueError(
                f"{given}; they count rows, words and bins: give 1 or more, or no bins"
            )
        self.min_count = min_count
        self.max_words = max_words
        self.num_bins = num_bins
        self._columns: dict[str, _Column] = {}

    @property
    def spec(self) -> TokenSpec:
        """Ids of column and word; 1 + num_bins numbers at most for a column. Raises ValueError before `fit`."""
        if not self._columns:
            raise ValueError("Cells knows no columns yet; call fit(rows)")
        num_words = 0
        num_numbers = 0
        places = []
        for column in self._columns.values():
            if column.words is None:
                places.append(num_numbers)
                num_numbers += 1
            else:
                places.append(-1)
                num_words += len(column.words)
        return TokenSpec(
            vocab_sizes=(len(self._columns), UNKNOWN + 1 + num_words),
            num_features=num_numbers * self._width,
            number_places=tuple(places) if num_numbers else (),
        )

    @property
    def _width(self) -> int:
        """Numbers of a token: one, and a bin less than the edges of the column that has most."""
        return max(1, *(len(column.edges) for column in self._columns.values()))

    @property
    def columns(self) -> list[str]:
        """Names of the columns, by the first id of their tokens."""
        return list(self._columns)

    def fit(self, raws: Sequence[Row]) -> None:
        """Learn the columns: mean, spread and quantiles of numbers, words of categories.

        Raises DataError for a column with numbers and words, and where no cell is filled.
        """
        for raw in raws:
            _check_row(raw)
        learned = {}
        first_word = UNKNOWN + 1
        names = sorted(set().union(*raws))
        num_bins = self.num_bins if len(names) <= MAX_BINNED else 0
        for name in names:
            values = [
                value for raw in raws if (value := raw.get(name)) is not None and value == value
            ]
            if values:
                learned[name] = self._learned(name, values, first_word, num_bins)
                first_word += len(learned[name].words or ())
        if not learned:
            raise DataError("no training row has a number or a category; leave Cells out")
        self._columns = learned

    def encode(self, raw: Any, /) -> Tokens:
        """A row as ids [n 2] and numbers [n w], 0 for words; positions [n 1] are places of the columns.

        w is 1 + num_bins at most. Raises DataError where no cell is filled, for a column that training lacks, and a
        cell of another kind than its column.
        """
        given = _filled(raw)
        places = {name: i for i, name in enumerate(self._columns)}
        if not given:
            raise DataError(
                "no cell of the row is filled; leave the row out, or Cells of this example"
            )
        for name in given:
            if name not in places:
                raise DataError(
                    f"no training row has a cell in column {name!r}; {suggest(name, places)}"
                )
        ids = []
        numbers = np.zeros((len(given), self._width), dtype=np.float32)
        for i, name in enumerate(sorted(given, key=places.__getitem__)):
            column = self._columns[name]
            word = 0
            if column.words is None:
                number = _number(name, given[name])
                numbers[i, 0] = (number - column.mean) / column.std
                edges = column.edges or (0.0,)
                bins_below = np.interp(number, edges, range(len(edges)))
                numbers[i, 1:] = (bins_below - np.arange(self._width - 1)).clip(0.0, 1.0)
            else:
                word = column.words.get(_word(given[name]), UNKNOWN)
            ids.append((places[name], word))
        content = torch.tensor(ids)
        features = None
        if any(column.words is None for column in self._columns.values()):
            features = torch.from_numpy(numbers)
        return Tokens(content, content[:, :1].float(), features=features)

    def unknown(self, raw: Row) -> dict[str, str]:
        """By column, the words of a row that have no id of their own: they share one, whatever they are."""
        found = {}
        for name, value in _filled(raw).items():
            column = self._columns.get(name, _Column())
            if column.words is not None and (word := _word(value)) not in column.words:
                found[name] = word
        return found

    def outside(self, raw: Row) -> dict[str, tuple[float, float, float]]:
        """By column, each number of a row beyond all numbers of training, with the least and the largest of these.

        A run that was trained before these were kept knows them of columns with bins alone.
        """
        found = {}
        for name, value in _filled(raw).items():
            ends = self._columns.get(name, _Column()).ends
            if ends is not None and not ends[0] <= (number := _number(name, value)) <= ends[1]:
                found[name] = (number, *ends)
        return found

    def state(self) -> State:
        """Each column in its order, with mean, spread, quantiles and ends or with its words; empty before `fit`."""
        if not self._columns:
            return {}
        return {"columns": [column.state(name) for name, column in self._columns.items()]}

    def load_state(self, state: State) -> None:
        """Take back what `state` gave. Raises ValueError if it is not that."""
        learned: dict[str, _Column] = {}
        first_word = UNKNOWN + 1
        for column in state.get("columns", []):
            name = column["name"]
            words = column.get("words")
            edges = column.get("edges", [])
            ends = column.get("ends") or edges[:: max(1, len(edges) - 1)]
            numbers = [column.get("mean"), column.get("std"), *edges, *ends]
            if words is not None and all(isinstance(word, str) for word in words):
                learned[name] = _Column(
                    words={word: first_word + i for i, word in enumerate(words)}
                )
                first_word += len(words)
            elif all(isinstance(x, float) and math.isfinite(x) for x in numbers) and numbers[1] > 0:
                if sorted(set(edges)) != edges or len(edges) > 1 + self.num_bins:
                    raise ValueError(
                        f"the state of column {name!r} has no {self.num_bins} rising bins; write it again"
                    )
                known = (ends[0], ends[1]) if len(ends) == 2 else None
                learned[name] = _Column(numbers[0], numbers[1], tuple(edges), ends=known)
            else:
                raise ValueError(
                    f"the state of column {name!r} has neither words nor mean and std; write it again"
                )
        if state and not learned:
            raise ValueError(
                f"state holds {sorted(state)}; the state of Cells is {{'columns': list}}"
            )
        self._columns = learned

    def _learned(self, name: str, values: Sequence[Any], first_word: int, num_bins: int) -> _Column:
        """A column by its filled cells, all at once."""
        kinds = {kind: _is_word(name, kind) for kind in dict.fromkeys(map(type, values))}
        if not any(kinds.values()):
            numbers = _numbers(name, values)
            mean = float(numbers.mean())
            std = float(numbers.std(correction=0))
            ends = (float(numbers.min()), float(numbers.max()))
            is_constant = std <= 1e-9 * abs(mean)  # rounding of equal numbers is no spread
            if is_constant or std == 0:
                return _Column(mean, ends=ends)
            edges: set[float] = set()
            if num_bins:
                edges.update(np.quantile(numbers.numpy(), np.linspace(0, 1, 1 + num_bins)).tolist())
            return _Column(mean, std, tuple(sorted(edges)), ends=ends)
        if not all(kinds.values()):
            number, word = (
                next(value for value in values if kinds[type(value)] is one)
                for one in (False, True)
            )
            raise DataError(
                f"column {name!r} holds number {number!r} and {_shown(word)}; write all in one type"
            )
        counts: Counter[str] = Counter()
        for value, count in Counter(values).items():
            counts[_word(value)] += count
        known = most_frequent(counts, self.max_words) if counts else []
        own = [word for word in known if counts[word] >= self.min_count]
        return _Column(words={word: first_word + i for i, word in enumerate(sorted(own))})


def _check_row(raw: Any) -> None:
    if not isinstance(raw, Mapping):
        raise DataError(
            f"the row is of type {type(raw).__name__}; give a mapping from columns to numbers or words"
        )


def _is_word(name: str, kind: type) -> bool:
    """Whether cells of a type are words; others are numbers. Raises DataError for a type that is neither."""
    if not issubclass(kind, str | Real):
        raise DataError(f"column {name!r} holds a {kind.__name__}; give a number, a word or None")
    return issubclass(kind, str | bool)


def _filled(raw: Any) -> dict[str, Any]:
    """The cells of a row that are filled. Raises DataError where it is no row."""
    _check_row(raw)
    # NaN is a gap
    found = {name: value for name, value in raw.items() if value is not None and value == value}
    for name, value in found.items():
        if not isinstance(value, str | float):  # which are known without asking each abstract class
            _is_word(name, type(value))
    return found


def _numbers(name: str, values: Sequence[Any]) -> Tensor:
    """The cells of a column of numbers [n], in float64. Raises DataError where one is too large."""
    try:
        numbers = torch.tensor([*map(float, values)], dtype=torch.float64)
        if bool((numbers.abs() <= MAX_NUMBER).all()):
            return numbers
    except OverflowError:
        pass
    # which names the first one that is too large
    return torch.tensor([_number(name, value) for value in values])


def _number(name: str, value: Any) -> float:
    """A cell of a column of numbers. Raises DataError where it is none, or too large."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise DataError(
            f"column {name!r} holds numbers, and this is {_shown(value)}; give a number or None"
        ) from None
    if not abs(number) <= MAX_NUMBER:
        raise DataError(
            f"column {name!r} holds {number:g}, and {MAX_NUMBER:g} is the largest number; correct it"
        )
    return number


def _word(value: Any) -> str:
    """A cell of a column of categories; 4 and 4.0 are one word."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.strip()
    return f"{float(value):.15g}"


def _shown(value: Any) -> str:
    return one_line(shortened(repr(value), 60))
