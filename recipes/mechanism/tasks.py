"""Diagnostic tasks that separate families of backbones: generated at once from a seed, without any file.

A task draws inputs and their targets. Raw examples are for the tokenizers
`Ids` ([n] int64) and `Series` ([n f] float).

e examples · n tokens · s symbols · k pairs · q slots of queries
"""

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
        lengths = [self.length] if self.test_lengths is None else self.test_lengths
        if not lengths or len(set(lengths)) < len(lengths):
            raise ValueError(
                f"test_lengths={lengths}; give different lengths, or null for the trained length alone"
            )
        for name, smallest in self.smallest.items():
            value = min(self.length, *lengths) if name == "length" else getattr(self, name)
            if value < smallest:
                raise ValueError(
                    f"{name}={value} is too small for this task; give {smallest} or more"
                )
        if self.num_test % len(lengths):
            raise ValueError(
                f"num_test={self.num_test} is for several lengths; make it a multiple of {len(lengths)}"
            )

    @property
    def smallest(self) -> Mapping[str, int]:
        """The smallest value of each setting that has one; of `length`, also for test lengths."""
        return {"num_train": 1, "num_test": 1, "length": 1}

    @property
    def names(self) -> list[str] | None:
        """Names of the classes; by default the ids of a task with a vocabulary, None where targets are numbers."""
        return [str(i) for i in range(self.vocab_size)] if hasattr(self, "vocab_size") else None

    @abstractmethod
    def draw(
        self, num: int, length: int, generator: torch.Generator, *, training: bool
    ) -> tuple[Tensor, Tensor]:
        """Random inputs [e n] or [e n f], e = num, and their targets: [e n] int64, or [e] float.

        A target is IGNORE where nothing is asked. training: True: tokens with a target in training alone have it.
        """

    def splits(self) -> Splits:
        """The examples of each split. Raises ValueError where a task has too few inputs for disjoint splits."""
        lengths, taken = self.test_lengths or [self.length], set[bytes]()
        test = [
            x
            for length in lengths
            for x in self._split("test", self.num_test // len(lengths), length, taken)
        ]
        valid = self._split("validation", self.num_test, self.length, taken)
        train = self._split("training", self.num_train, self.length, taken)
        return Splits(train, test, valid, self.names)

    def _split(self, split: str, num: int, length: int, taken: set[bytes]) -> list[Sample]:
        """Examples whose inputs are not in `taken`, which gets them; within a split an input may come twice."""
        order, found = ("test", "validation", "training").index(split), list[Sample]()
        generator = torch.Generator().manual_seed(fold_seed(self.seed, order, length))
        for _ in range(MAX_DRAWS):
            for raw, label in zip(*self.draw(num, length, generator, training=split == "training")):
                if raw.numpy().tobytes() not in taken:
                    found.append(Sample(raw, label if label.ndim else label.item()))
            if len(found) >= num:
                taken.update(sample.raw.numpy().tobytes() for sample in found[:num])
                return found[:num]
        raise ValueError(
            f"the {split} split wants {num} inputs of length {length}, and nearly all there are belong to other "
            "splits; give a greater length, or a smaller num_test"
        )


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

    def draw(
        self, num: int, length: int, generator: torch.Generator, *, training: bool
    ) -> tuple[Tensor, Tensor]:
        blank, recall = self.vocab_size - 2, self.vocab_size - 1
        symbols = torch.randint(blank, (num, length), generator=generator)
        blanks = torch.full((num, self.delay), blank)
        return torch.cat([symbols, blanks, torch.full_like(symbols, recall)], dim=1), _at_end(
            symbols, self.delay + length
        )


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

    def draw(
        self, num: int, length: int, generator: torch.Generator, *, training: bool
    ) -> tuple[Tensor, Tensor]:
        blank, recall = self.vocab_size - 2, self.vocab_size - 1
        symbols = torch.randint(blank, (num, self.num_symbols), generator=generator)
        places = torch.rand(num, length, generator=generator).argsort(dim=1)[:, : self.num_symbols]
        scattered = torch.full((num, length), blank).scatter_(1, places, symbols)
        in_order = rearrange(scattered[scattered < blank], "(e s) -> e s", e=num)
        return torch.cat([scattered, torch.full_like(symbols, recall)], dim=1), _at_end(
            in_order, length
        )


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

    def draw(
        self, num: int, length: int, generator: torch.Generator, *, training: bool
    ) -> tuple[Tensor, Tensor]:
        trigger = self.vocab_size - 1
        inputs = torch.randint(trigger, (num, length), generator=generator)
        first = torch.randint(length - 2, (num, 1), generator=generator)
        inputs.scatter_(1, first, trigger)[:, -1] = trigger
        return inputs, _at_end(inputs.gather(1, first + 1), length - 1)


@dataclass(frozen=True, kw_only=True)
class AssociativeRecall(DiagnosticTask):
    """`associative-recall`: multi-query associative recall, MQAR (Arora et al. 2023, "Zoology").

    Input: `num_pairs` pairs of key and value, then every key once more as a query, among blanks; the target of a query
    is its key's value. length: n, at least 3 num_pairs. vocab_size: ids in all; 0 is blank, the lower half are keys,
    the upper half values; neither comes in two pairs. The slot q = 1, 2, … of a query after the pairs is drawn in
    proportion to q^(power - 1), as near repetitions are more frequent in language (the paper's 0.01; 1 is uniform).
    joined: a pair is one token, so that one step of attention finds the value, which is learned sooner; length is at
    least 2 num_pairs, and the tokenizer has an id for each of the (vocab_size / 2)² pairs, too.
    Attention solves it at any width. Gated convolutions, recurrent networks and state spaces need a width, that is a
    state, that grows with the number of pairs (Arora et al. 2023; Arora et al. 2024, "Based").
    """

    length: int = 64
    num_pairs: int = 8
    vocab_size: int = 64
    power: float = 0.01
    joined: bool = False

    @property
    def pair_tokens(self) -> int:
        """Number of tokens of a pair."""
        return 1 if self.joined else 2

    @property
    def smallest(self) -> Mapping[str, int]:
        k = self.num_pairs
        length = (self.pair_tokens + 1) * k
        return {**super().smallest, "num_pairs": 1, "length": length, "vocab_size": 2 * k + 2}

    def draw(
        self, num: int, length: int, generator: torch.Generator, *, training: bool
    ) -> tuple[Tensor, Tensor]:
        half = self.vocab_size // 2
        num_before = self.pair_tokens * self.num_pairs
        num_slots = length - num_before
        keys = 1 + _choices(num, half - 1, self.num_pairs, generator)
        values = half + _choices(num, self.vocab_size - half, self.num_pairs, generator)
        weights = torch.arange(1, num_slots + 1, dtype=torch.float64) ** (self.power - 1)
        slots = torch.multinomial(
            repeat(weights, "q -> e q", e=num), self.num_pairs, generator=generator
        )
        queries = torch.zeros(num, num_slots, dtype=torch.int64).scatter_(1, slots, keys)
        asked = torch.full_like(queries, IGNORE).scatter_(1, slots, values)
        if self.joined:
            pairs = keys * (self.vocab_size - half) + values - half
        else:
            pairs = rearrange([keys, values], "pair e k -> e (k pair)")
        return torch.cat([pairs, queries], dim=1), _at_end(asked, num_before)


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
        return ["even", "odd"]

    def draw(
        self, num: int, length: int, generator: torch.Generator, *, training: bool
    ) -> tuple[Tensor, Tensor]:
        inputs = torch.randint(2, (num, length), generator=generator)
        targets = inputs.cumsum(dim=1) % 2
        return inputs, targets if training and self.every_token else _at_end(
            targets[:, -1:], length - 1
        )


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

    def draw(
        self, num: int, length: int, generator: torch.Generator, *, training: bool
    ) -> tuple[Tensor, Tensor]:
        numbers, marks = torch.rand(num, length, generator=generator), torch.zeros(num, length)
        half, rows = length // 2, torch.arange(num)
        marks[rows, torch.randint(half, (num,), generator=generator)] = 1
        marks[rows, half + torch.randint(length - half, (num,), generator=generator)] = 1
        return torch.stack([numbers, marks], dim=-1), (numbers * marks).sum(dim=1)


class CylinderBellFunnel(DiagnosticTask):
    """`cylinder-bell-funnel`: series whose class is the form of an event of any place and length (Saito 1994).

    Input: [n 1], noise of standard deviation 1, and from a random step to another a form of height 6 ± 1: constant,
    rising or falling. length: n.
    """

    @property
    def names(self) -> list[str]:
        return ["cylinder", "bell", "funnel"]

    @property
    def smallest(self) -> Mapping[str, int]:
        return {**super().smallest, "length": 16}

    def draw(
        self, num: int, length: int, generator: torch.Generator, *, training: bool
    ) -> tuple[Tensor, Tensor]:
        kind = torch.randint(3, (num, 1), generator=generator)
        start = length / 8 * (1 + torch.rand(num, 1, generator=generator))
        end = start + length / 4 * (1 + 2 * torch.rand(num, 1, generator=generator))
        share = (torch.arange(length) - start) / (end - start)
        form = torch.where(kind == 0, 1.0, torch.where(kind == 1, share, 1 - share))
        height = 6 + torch.randn(num, 1, generator=generator)
        series = torch.where((share >= 0) & (share <= 1), height * form, 0.0)
        return rearrange(
            series + torch.randn(num, length, generator=generator), "e n -> e n 1"
        ), kind[:, 0]


def _at_end(targets: Tensor, num_before: int) -> Tensor:
    """Targets [e n] of which the last are given, and those of `num_before` tokens before them are IGNORE."""
    return torch.nn.functional.pad(targets, (num_before, 0), value=IGNORE)


def _choices(num: int, num_ids: int, num_chosen: int, generator: torch.Generator) -> Tensor:
    """Different ids below num_ids for each example, in random order: [e k]."""
    return torch.rand(num, num_ids, generator=generator).argsort(dim=1)[:, :num_chosen]
