"""Diagnostic tasks that separate families of backbones: generated at once from a seed, without any file.

A task is a distribution of inputs and a function from an input to its targets. Raw examples are for the tokenizers
`Ids` ([n] int64) and `Series` ([n f] float).

e examples · n tokens · s symbols · k pairs · q slots of queries
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from torch import Tensor

from seqkit.data import DataSource, Sample, Splits
from seqkit.data.batching import fold_seed
from seqkit.interfaces import IGNORE

MAX_DRAWS = 100
"""Most draws until enough examples are in no other split."""


@dataclass(frozen=True, kw_only=True)
class DiagnosticTask(DataSource):
    """Base class of the diagnostic tasks: how their splits are made.

    num_train: number of training examples. num_test: number of test examples, and of validation examples. length:
    length of an example in training and validation, in the unit that the task names. test_lengths: lengths of the test
    examples, equally many of each; None: `length`. A test example's number of tokens tells its length, so one trained
    model gives a curve of length generalisation. seed: seed of all random numbers.
    The splits are disjoint. Held-out examples are drawn first, so they do not change with `num_train`.
    Raises ValueError for counts that are not positive, or a `num_test` that the test lengths do not divide.
    """

    num_train: int = 10_000
    num_test: int = 1_000
    length: int = 32
    test_lengths: list[int] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        lengths = self._test_lengths
        if not lengths or len(set(lengths)) < len(lengths):
            raise ValueError(f"test_lengths={lengths}; give different lengths, or null for the trained length alone")
        for name, smallest in self.smallest.items():
            value = min(self.length, *lengths) if name == "length" else getattr(self, name)
            if value < smallest:
                raise ValueError(f"{name}={value} is too small for this task; give {smallest} or more")
        if self.num_test % len(lengths):
            raise ValueError(
                f"num_test={self.num_test} examples cannot be equally many of {len(lengths)} lengths; "
                f"make it a multiple of {len(lengths)}"
            )

    @property
    def smallest(self) -> Mapping[str, int]:
        """The smallest value of each setting that has one; of `length`, also for test lengths."""
        return {"num_train": 1, "num_test": 1, "length": 1}

    @property
    def names(self) -> list[str] | None:
        """Names of the classes, which are the ids of a task with a vocabulary; None: targets are numbers."""
        vocab_size = getattr(self, "vocab_size", None)
        return None if vocab_size is None else [str(i) for i in range(vocab_size)]

    @abstractmethod
    def draw(self, num: int, length: int, generator: torch.Generator) -> Tensor:
        """Random inputs [e n] or [e n f], e = num."""

    @abstractmethod
    def solve(self, inputs: Tensor, *, training: bool) -> Tensor:
        """Targets of inputs: [e n] int64, IGNORE where nothing is asked, or [e] float.

        training: True: tokens that have a target in training alone have it.
        """

    def splits(self) -> Splits:
        """The examples of each split. Raises ValueError where a task has too few inputs for disjoint splits."""
        lengths, taken = self._test_lengths, set[bytes]()
        test = [x for length in lengths for x in self._split("test", self.num_test // len(lengths), length, taken)]
        valid = self._split("validation", self.num_test, self.length, taken)
        train = self._split("training", self.num_train, self.length, taken)
        return Splits(train, test, valid, self.names)

    @property
    def _test_lengths(self) -> list[int]:
        return [self.length] if self.test_lengths is None else self.test_lengths

    def _split(self, split: str, num: int, length: int, taken: set[bytes]) -> list[Sample]:
        """Examples whose inputs are not in `taken`, which gets them; within a split an input may come twice."""
        order = ("test", "validation", "training").index(split)
        generator = torch.Generator().manual_seed(fold_seed(self.seed, order, length))
        found: list[Tensor] = []
        own: set[bytes] = set()
        for _ in range(MAX_DRAWS):
            inputs = self.draw(num, length, generator)
            keys = [x.numpy().tobytes() for x in inputs]
            fresh = [i for i, key in enumerate(keys) if key not in taken][: num - sum(map(len, found))]
            found.append(inputs[fresh])
            own.update(keys[i] for i in fresh)
            if sum(map(len, found)) == num:
                break
        else:
            raise ValueError(
                f"the {split} split wants {num} inputs of length {length}, and nearly all there are belong to other "
                "splits; give a greater length, or a smaller num_test"
            )
        taken |= own
        raws = torch.cat(found)
        labels = self.solve(raws, training=split == "training")
        return [Sample(raw, label if label.ndim else float(label)) for raw, label in zip(raws, labels)]


@dataclass(frozen=True, kw_only=True)
class Copy(DiagnosticTask):
    """`copy`: repeat a sequence after a delay (the copying memory task of Arjovsky et al. 2016, section 4.1).

    Input: x_1 … x_s, `delay` blanks, s recall tokens; the target of the i-th recall token is x_i; n = 2 s + delay.
    length: s, symbols to copy. vocab_size: ids in all; the last two are blank and recall, the others symbols, drawn
    uniformly.
    A state of fixed size must hold s log2(vocab_size - 2) bits, where attention looks them up: two layers of attention
    can copy strings of exponential length, and state-space models what their state holds (Jelassi et al. 2024).
    Long delays are hard to learn for recurrent networks (Arjovsky et al. 2016).
    """

    length: int = 16
    vocab_size: int = 10
    delay: int = 0

    @property
    def smallest(self) -> Mapping[str, int]:
        return {**super().smallest, "vocab_size": 4, "delay": 0}

    def draw(self, num: int, length: int, generator: torch.Generator) -> Tensor:
        """Ids [e n]: symbols, blanks, recall tokens."""
        blank, recall = self.vocab_size - 2, self.vocab_size - 1
        symbols = torch.randint(blank, (num, length), generator=generator)
        return torch.cat([symbols, torch.full((num, self.delay), blank), torch.full_like(symbols, recall)], dim=1)

    def solve(self, inputs: Tensor, *, training: bool) -> Tensor:
        """The symbols, at the recall tokens."""
        num_symbols = (inputs.shape[1] - self.delay) // 2
        targets = torch.full_like(inputs, IGNORE)
        targets[:, -num_symbols:] = inputs[:, :num_symbols]
        return targets


@dataclass(frozen=True, kw_only=True)
class SelectiveCopy(DiagnosticTask):
    """`selective-copy`: repeat the symbols that are scattered among blanks (Gu and Dao 2023, section 3.1).

    Input: `length` tokens, `num_symbols` of them symbols at random places and the others blank, then `num_symbols`
    recall tokens; the target of the i-th recall token is the i-th symbol; n = length + num_symbols.
    vocab_size: ids in all; the last two are blank and recall, the others symbols, drawn uniformly.
    What to keep depends on the content, so a state space whose recurrence is the same at every token fails where a
    selective one, a gated network or attention succeeds (Gu and Dao 2023, table 1; Jing et al. 2019, "denoising").
    """

    num_symbols: int = 6
    vocab_size: int = 10

    @property
    def smallest(self) -> Mapping[str, int]:
        return {**super().smallest, "num_symbols": 1, "length": self.num_symbols, "vocab_size": 4}

    def draw(self, num: int, length: int, generator: torch.Generator) -> Tensor:
        """Ids [e n]: symbols among blanks, recall tokens."""
        blank, recall = self.vocab_size - 2, self.vocab_size - 1
        symbols = torch.randint(blank, (num, self.num_symbols), generator=generator)
        places = torch.rand(num, length, generator=generator).argsort(dim=1)[:, : self.num_symbols]
        scattered = torch.full((num, length), blank).scatter_(1, places, symbols)
        return torch.cat([scattered, torch.full_like(symbols, recall)], dim=1)

    def solve(self, inputs: Tensor, *, training: bool) -> Tensor:
        """The symbols in their order, at the recall tokens."""
        targets = torch.full_like(inputs, IGNORE)
        symbols = inputs[inputs < self.vocab_size - 2]
        targets[:, -self.num_symbols :] = rearrange(symbols, "(e s) -> e s", s=self.num_symbols)
        return targets


@dataclass(frozen=True, kw_only=True)
class InductionHeads(DiagnosticTask):
    """`induction-heads`: recall what followed a trigger (Gu and Dao 2023, section 4.1.2; Olsson et al. 2022).

    Input: random ids, of which one, the trigger, comes once at a random place and again as the last token; the target
    of the last token is the id that followed the trigger the first time. length: n.
    vocab_size: ids in all; the last is the trigger.
    Two layers of attention do it by an induction head, which finds the token after an earlier copy of the present one;
    selective state spaces do it far beyond the trained length, attention fails there (Gu and Dao 2023, table 2).
    """

    vocab_size: int = 16

    @property
    def smallest(self) -> Mapping[str, int]:
        return {**super().smallest, "vocab_size": 3, "length": 3}

    def draw(self, num: int, length: int, generator: torch.Generator) -> Tensor:
        """Ids [e n]."""
        trigger = self.vocab_size - 1
        inputs = torch.randint(trigger, (num, length), generator=generator)
        first = torch.randint(length - 2, (num,), generator=generator)
        inputs[torch.arange(num), first] = trigger
        inputs[:, -1] = trigger
        return inputs

    def solve(self, inputs: Tensor, *, training: bool) -> Tensor:
        """The id after the first trigger, at the last token."""
        targets = torch.full_like(inputs, IGNORE)
        first = (inputs == self.vocab_size - 1).int().argmax(dim=1)
        targets[:, -1] = inputs[torch.arange(len(inputs)), first + 1]
        return targets


@dataclass(frozen=True, kw_only=True)
class AssociativeRecall(DiagnosticTask):
    """`associative-recall`: multi-query associative recall, MQAR (Arora et al. 2023, "Zoology").

    Input: `num_pairs` pairs of key and value, then every key once more as a query, among blanks; the target of a query
    is its key's value. length: n, at least 3 num_pairs. vocab_size: ids in all; 0 is blank, the lower half are keys,
    the upper half values; neither comes in two pairs. The slot q = 1, 2, … of a query after the pairs is drawn in
    proportion to q^(power - 1), as near repetitions are more frequent in language (the paper's 0.01; 1 is uniform).
    Attention solves it at any width. Gated convolutions, recurrent networks and state spaces need a width, that is a
    state, that grows with the number of pairs (Arora et al. 2023; Arora et al. 2024, "Based").
    """

    length: int = 64
    num_pairs: int = 8
    vocab_size: int = 64
    power: float = 0.01

    @property
    def smallest(self) -> Mapping[str, int]:
        k = self.num_pairs
        return {**super().smallest, "num_pairs": 1, "length": 3 * k, "vocab_size": 2 * k + 2}

    def draw(self, num: int, length: int, generator: torch.Generator) -> Tensor:
        """Ids [e n]: pairs, then queries among blanks."""
        half, num_slots = self.vocab_size // 2, length - 2 * self.num_pairs
        keys = 1 + _choices(num, half - 1, self.num_pairs, generator)
        values = half + _choices(num, self.vocab_size - half, self.num_pairs, generator)
        weights = torch.arange(1, num_slots + 1, dtype=torch.float64) ** (self.power - 1)
        slots = torch.multinomial(repeat(weights, "q -> e q", e=num), self.num_pairs, generator=generator)
        queries = torch.zeros(num, num_slots, dtype=torch.int64).scatter_(1, slots, keys)
        return torch.cat([rearrange([keys, values], "pair e k -> e (k pair)"), queries], dim=1)

    def solve(self, inputs: Tensor, *, training: bool) -> Tensor:
        """The value of each query's key."""
        pairs, queries = inputs[:, : 2 * self.num_pairs], inputs[:, 2 * self.num_pairs :]
        keys, values = rearrange(pairs, "e (k pair) -> pair e 1 k", pair=2)
        matches = rearrange(queries, "e q -> e q 1") == keys
        found = (matches * values).sum(dim=2).masked_fill(~matches.any(dim=2), IGNORE)
        return torch.cat([torch.full_like(pairs, IGNORE), found], dim=1)


@dataclass(frozen=True, kw_only=True)
class Parity(DiagnosticTask):
    """`parity`: whether a sequence of bits has an odd number of ones.

    Input: random bits; the target of the last token is (x_1 + … + x_n) mod 2. length: n. every_token: True: in training
    every token has a target, the parity up to it; validation and test always ask for the last token alone.
    One bit of state is enough, so recurrent networks with nonlinear gates learn it and generalise to any length.
    Transformers do not beyond the trained length (Hahn 2020; Bhattamishra et al. 2020; Delétang et al. 2023), nor do
    linear recurrences whose decay is between 0 and 1, as Mamba's (Grazzi et al. 2025).
    """

    length: int = 20
    every_token: bool = True

    @property
    def names(self) -> list[str]:
        """Even and odd."""
        return ["even", "odd"]

    def draw(self, num: int, length: int, generator: torch.Generator) -> Tensor:
        """Bits [e n], int64."""
        return torch.randint(2, (num, length), generator=generator)

    def solve(self, inputs: Tensor, *, training: bool) -> Tensor:
        """The parity up to the last token, or to every token."""
        targets = inputs.cumsum(dim=1) % 2
        if not (training and self.every_token):
            targets[:, :-1] = IGNORE
        return targets


@dataclass(frozen=True, kw_only=True)
class Adding(DiagnosticTask):
    """`adding`: the sum of the two numbers that are marked (Hochreiter and Schmidhuber 1997, section 5.4).

    Input: [n 2], a number uniform on [0, 1) and its mark: 1 for one token in each half of the sequence, else 0; target:
    the sum of the two marked numbers, as in Arjovsky et al. 2016, section 4.2 (the original has numbers on [-1, 1] and
    a scaled sum). length: n. Always predicting the mean gives a squared error of 1/6, an RMSE of 0.408.
    LSTM and attention solve it; the Elman network fails at lengths of a hundred and more, whose gradient vanishes.
    """

    @property
    def smallest(self) -> Mapping[str, int]:
        return {**super().smallest, "length": 2}

    def draw(self, num: int, length: int, generator: torch.Generator) -> Tensor:
        """Numbers and marks [e n 2], float32."""
        numbers, marks = torch.rand(num, length, generator=generator), torch.zeros(num, length)
        half, rows = length // 2, torch.arange(num)
        marks[rows, torch.randint(half, (num,), generator=generator)] = 1
        marks[rows, half + torch.randint(length - half, (num,), generator=generator)] = 1
        return torch.stack([numbers, marks], dim=-1)

    def solve(self, inputs: Tensor, *, training: bool) -> Tensor:
        """The sum of the marked numbers [e]."""
        return inputs.prod(dim=-1).sum(dim=1)


def _choices(num: int, num_ids: int, num_chosen: int, generator: torch.Generator) -> Tensor:
    """Different ids below num_ids for each example, in random order: [e k]."""
    return torch.rand(num, num_ids, generator=generator).argsort(dim=1)[:, :num_chosen]
