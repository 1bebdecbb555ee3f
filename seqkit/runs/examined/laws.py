"""Laws of a model over the examples that it trains on, each with the size of its break; those of `seqkit.testing.laws`.

b batch · n tokens
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from seqkit.errors import is_out_of_memory
from seqkit.interfaces import TokenBatch, Tokens
from seqkit.model import Model
from seqkit.nn.join_embedder import JoinEmbedder
from seqkit.runs.examined.given import Given, collated
from seqkit.testing.changed_tokens import with_dirty_padding
from seqkit.testing.embedded_backbone import InFloat64, leave_zero
from seqkit.testing.laws import other_order
from seqkit.testing.process import seeded
from seqkit.testing.tolerance import TOLERANCE

OF_FLOAT32 = 1e-3
"""Difference in float32, as a share of the largest output, that may be rounding."""

PADDING = 3
"""Columns of padding that are added."""

FAR = (0, 64, 66, 63, 32, 31, 128, 127, 16, 15, 8, 7)
"""Columns after which tokens change first, where not all can be tried: around the sizes that chunks often have."""

PAD = "padding changes nothing"
MATES = "batch mates change nothing"
FUTURE = "no token attends to the future"
PACKED = "packed sequences stay apart"
MASK = "masked tokens stay hidden"
AGAIN = "evaluation repeats"
CACHE = "a cache gives what one pass gives"
ORDER = "nodes in another order have the same hidden states"
APART = "nothing crosses components"


@dataclass(frozen=True)
class BrokenLaw:
    """A law that a model breaks. module: the first of embedder, backbone and head whose outputs change. share: the
    largest change, as a share of the largest output. where: what was changed, in words."""

    law: str
    share: float
    module: str
    where: str

    def __str__(self) -> str:
        size = f"by {self.share:.2g} of the largest"
        return f"{self.module} breaks the law that {self.law}: {self.where} changes outputs {size}"


Stages = dict[str, tuple[Tensor, bool]]
"""Outputs of embedder, backbone and head in this order, and whether each has one for every token."""

Pair = tuple[int, int, Tensor]
"""Row of an output and row of another, and the tokens [n] of the example at which both must be the same."""

Probe = tuple[str, str, Given, Tensor]
"""A law, what is changed in words, the changed example, and the tokens [n] whose outputs must stay."""


class Subject:
    """A copy of a model in which nothing is zero; of a large one with the same weights.

    is_causal: whether no token may attend to a later one.
    """

    def __init__(self, model: Model, dtype: torch.dtype, *, is_causal: bool, is_large: bool):
        shared: dict[int, Any] = {id(p): p for p in model.parameters()} if is_large else {}
        self.model: Any = copy.deepcopy(model, shared)
        self.is_causal = is_causal
        self.dtype = dtype
        self.tolerance = TOLERANCE if dtype == torch.float64 else OF_FLOAT32
        if not is_large:
            # complex weights stay complex, which `to` would not leave them
            self.model = self.model.double() if dtype == torch.float64 else self.model.float()
            leave_zero(self.model)

    def _train(self) -> None:
        """Training mode, in which no dropout is random."""
        self.model.train()
        for module in self.model.modules():
            for name, value in vars(module).items():
                is_share = name == "p" and isinstance(module, nn.modules.dropout._DropoutNd)
                if isinstance(value, float) and (is_share or "drop" in name):
                    setattr(module, name, 0.0)

    def __call__(
        self, rows: Sequence[Given], padding: int = 0, *, dirty: bool = False, seed: int = 1
    ) -> Stages:
        """Outputs for a batch of examples; dirty: padded inputs are NaN, or the largest id."""
        model = self.model
        batch, masked = collated(rows, padding)
        batch = batch.with_dtype(self.dtype)
        if dirty:
            source = batch.source
            batch = with_dirty_padding(batch, model.spec)
            if source is not None:
                batch = batch.replace(source=with_dirty_padding(source, model.source_embedder.spec))
        with seeded(seed), torch.no_grad():
            embedded = model.embed(batch, masked)
            hidden = model.backbone(embedded)
            prediction = model.head(hidden, embedded)
            if model.shortcut is not None:
                prediction = model.shortcut(prediction, batch)
        found = {"embedder": (embedded.hidden, True), "backbone": (hidden, True)}
        if isinstance(prediction, Tensor) and batch.parts is None:
            by_token = prediction.ndim > 2 and prediction.shape[1] == batch.valid.shape[1]
            found["head"] = (prediction, by_token)
        return found

    def change(self, got: Stages, right: Stages, pairs: Sequence[Pair]) -> tuple[str, float] | None:
        """Class of the first part of the model whose outputs differ, and by which share of the largest; None: none."""
        for stage, (expected, by_token) in right.items():
            largest = float(expected.abs().max()) if expected.numel() else 0.0
            if not (0 < largest < float("inf")):
                continue
            changes = [0.0]
            for i, j, kept in pairs:
                one = got[stage][0][i]
                other = expected[j]
                if by_token:
                    one = one[: len(kept)][kept]
                    other = other[: len(kept)][kept]
                elif not bool(kept.all()) or one.shape != other.shape:
                    continue
                if one.numel():
                    changes.append(float((one - other).abs().max().nan_to_num(largest)))
            if max(changes) > self.tolerance * largest:
                return type(getattr(self.model, stage)).__name__, max(changes) / largest
        return None

    def broken(self, rows: Sequence[Given], cuts: int) -> Iterator[BrokenLaw]:
        """Yield the laws that it breaks, in evaluation and in training mode. cuts: most columns after which tokens
        change."""
        known = set()
        for mode in ("", "in training mode, "):
            if mode:
                self._train()
            else:
                self.model.eval()
            first = self(rows[:1])
            repeated = self.change(self(rows[:1]), first, [_whole(rows[0])])
            drawn = self.change(self(rows[:1], seed=2), first, [_whole(rows[0])])
            if not mode and (again := repeated or drawn):
                # it remembers what it has seen, or a dropout is left on
                yield BrokenLaw(AGAIN, again[1], again[0], "a second pass")
            if repeated:
                # no two passes can be compared
                continue
            draws = drawn is not None
            mates = self._random_mates(rows) if draws else self._mates(rows)
            others = list[BrokenLaw]()
            if not (mode or draws):
                others = [*self._goes_on(rows), *self._of_nodes(rows[0])]
            for one in (
                *self._probed(rows, cuts if not mode else cuts // 2, draws),
                *mates,
                *others,
            ):
                if one.law not in known:
                    known.add(one.law)
                    yield replace(one, where=mode + one.where)

    def _dirty(self, rows: Sequence[Given], padding: int) -> Stages:
        """Outputs with the worst padding that the model takes: some check their inputs, or take one length alone."""
        for dirty in (True, False):
            try:
                return self(rows, padding, dirty=dirty)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
        return self(rows)

    def _mates(self, rows: Sequence[Given]) -> Iterator[BrokenLaw]:
        """Yield the laws on padding and batch mates, by examples alone."""
        longest = max(len(x.tokens) for x in rows)
        together = self._dirty(rows, PADDING)
        for i, x in enumerate(rows):
            alone = self([x])
            kept = torch.ones(len(x.tokens), dtype=torch.bool)
            found = self.change(together, alone, [(i, 0, kept)])
            if found is None:
                continue
            padded = self._dirty([x], longest - len(x.tokens) + PADDING)
            if own := self.change(padded, alone, [(0, 0, kept)]):
                yield BrokenLaw(PAD, own[1], own[0], "padding")
                return
            yield BrokenLaw(MATES, found[1], found[0], "another example in the batch")
            return

    def _random_mates(self, rows: Sequence[Given]) -> Iterator[BrokenLaw]:
        """Yield the same laws of a model that draws random numbers: in batches of one shape it draws the same."""
        kept = [torch.ones(len(x.tokens), dtype=torch.bool) for x in rows]
        right = self(rows, PADDING)
        pairs = [(i, i, own) for i, own in enumerate(kept)]
        if found := self.change(self._dirty(rows, PADDING), right, pairs):
            yield BrokenLaw(PAD, found[1], found[0], "the content of padding")
        others = [x.changed(own, self.model.spec) for x, own in zip(rows, kept, strict=True)][1:]
        if found := self.change(self([rows[0], *others], PADDING), right, pairs[:1]):
            yield BrokenLaw(MATES, found[1], found[0], "another example in the batch")

    def _goes_on(self, rows: Sequence[Given]) -> Iterator[BrokenLaw]:
        """Yield the law on caches: prompts of unlike lengths, and then the rest."""
        plain = [x for x in rows if not (x.beside or x.source or x.tokens.parts)]
        ends = [min(len(x.tokens) // 2 + i, len(x.tokens) - 1) for i, x in enumerate(plain)]
        if not self.model.backbone.causal or min(ends, default=0) < 1:
            return
        try:
            cache = self.model.backbone.init_cache(2 * max(len(x.tokens) for x in plain))
        except ValueError:  # it has none
            return
        hidden = []
        for borders in ([slice(end) for end in ends], [slice(end, None) for end in ends]):
            parts = [x.tokens.at(border) for x, border in zip(plain, borders)]
            batch = TokenBatch.collate(parts).with_dtype(self.dtype)
            with torch.no_grad():
                hidden.append(self.model.backbone(self.model.embed(batch), cache))
        for i, (x, end) in enumerate(zip(plain, ends)):
            n = len(x.tokens)
            joined = torch.cat([hidden[0][i : i + 1, :end], hidden[1][i : i + 1, : n - end]], dim=1)
            right = {"backbone": self([x])["backbone"]}
            if found := self.change({"backbone": (joined, True)}, right, [_whole(x)]):
                yield BrokenLaw(CACHE, found[1], found[0], "to go on from a cache")
                return

    def _of_nodes(self, x: Given) -> Iterator[BrokenLaw]:
        """Yield the laws on a graph: its nodes in another order, and beside a graph that no edge joins to it."""
        has_edges = x.tokens.adjacency is not None and self.model.backbone.supports_adjacency
        if not has_edges or x.tokens.parts or x.beside or self.is_causal:
            return
        order = other_order(len(x.tokens))
        right = {"backbone": self([x])["backbone"]}
        moved, _ = self([replace(x, tokens=x.tokens.at(order))])["backbone"]
        got = {"backbone": (moved[:, order.argsort()], True)}
        if found := self.change(got, right, [_whole(x)]):
            yield BrokenLaw(ORDER, found[1], found[0], "another order")
        two = replace(x, tokens=Tokens.join([x.tokens, x.tokens]))
        other = two.changed(torch.arange(len(two.tokens)) >= len(x.tokens), self.model.spec)
        if found := self.change(self([other]), right, [_whole(x)]):
            yield BrokenLaw(APART, found[1], found[0], "a graph beside it in the example")

    def sees_far(self, x: Given) -> Iterator[BrokenLaw]:
        """Yield the law on the future for an example that is too long to try all its columns, in evaluation mode."""
        self.model.eval()
        yield from self._probed([x], 2, draws=False)

    def _probed(self, rows: Sequence[Given], cuts: int, draws: bool) -> Iterator[BrokenLaw]:
        """Yield the laws on what tokens attend to. draws: the model draws random numbers."""
        probes = list(self._probes(rows[0], cuts))
        if not probes:
            return
        changed = [example for _, _, example, _ in probes]
        right = self([rows[0]] * len(probes)) if draws else self(rows[:1])
        together = self(changed)
        found = []
        for i, (law, where, _, kept) in enumerate(probes):
            if one := self.change(together, right, [(i, i if draws else 0, kept)]):
                found.append((i, BrokenLaw(law, one[1], one[0], where)))
        for i, broken in sorted(found, key=lambda each: -each[1].share):
            # alone, as batch mates may be the reason
            if draws or self.change(self([changed[i]]), right, [(0, 0, probes[i][3])]):
                yield broken
                return

    def _probes(self, x: Given, cuts: int) -> Iterator[Probe]:
        spec = self.model.spec
        n = len(x.tokens)
        column = torch.arange(n)
        reach = column if self.model.backbone.causal else x.reach
        for t in self._cuts(x, cuts) if self.is_causal else ():
            where = f"what follows token {t + 1} of {n}"
            yield FUTURE, where, x.changed(column > t, spec), reach <= t
        if "segments" in x.beside:
            for number in x.beside["segments"].unique()[:3]:
                own = x.beside["segments"] == number
                yield PACKED, "another sequence in the row", x.changed(~own, spec), own
        if "masked" in x.beside:
            masked = x.beside["masked"]
            yield MASK, "the content of masked tokens", x.changed(masked, spec), column >= 0

    def _cuts(self, x: Given, most: int) -> list[int]:
        """Columns after which tokens change: all, or the first of `FAR` and others at equal distances."""
        last = len(x.tokens) - 1
        places = [*range(last)]
        if isinstance(self.model.embedder, JoinEmbedder) and self.model.embedder.encoders:
            # the tokens of a part that is encoded are seen together
            ends = torch.tensor([len(run) for _, run in x.tokens.parts]).cumsum(0) - 1
            places = [t for t in ends.tolist() if t < last]
        if len(places) <= most:
            return places
        known = [t for t in (last - 1, *FAR) if t in places][: max(2, most // 2)]
        step = max(1, len(places) // max(1, most - len(known)))
        return sorted({*known, *places[step // 2 :: step]})


def _whole(x: Given) -> Pair:
    """All tokens of an example that stands alone in its batch."""
    return 0, 0, torch.ones(len(x.tokens), dtype=torch.bool)


def broken_laws(
    model: Model, rows: Sequence[Given], *, is_causal: bool, is_far: bool = False
) -> list[BrokenLaw]:
    """The laws that a model breaks on these examples; is_far: the one on the future alone, on the first of them.

    In float64, in which no difference above `TOLERANCE` is rounding, where the model runs in it; a large one in
    float32, and again in float64 if it seems to break one. Raises what the model raises in float32.
    """
    size = num_multiplied(model)
    cuts = num_cuts(size, len(rows[0].tokens))

    def found(dtype: torch.dtype, *, is_large: bool = False) -> list[BrokenLaw]:
        subject = Subject(model, dtype, is_causal=is_causal, is_large=is_large)
        return list(subject.sees_far(rows[0]) if is_far else subject.broken(rows, cuts))

    if size > LARGE and not found(torch.float32, is_large=True):
        return []
    try:
        broken = found(torch.float64)
        if broken:
            with suppress(Exception), InFloat64():
                return found(torch.float64)
            broken = [one for one in broken if one.share > OF_FLOAT32]
        return broken
    except Exception as error:  # of a module that has only kernels of float32, or the like
        if is_out_of_memory(error):
            raise
        return found(torch.float32)


LARGE = 3e7
"""Weights from which on a model is examined in float32, without a copy of its weights."""

FLOPS = 4e9
"""Work of an examination."""


def num_multiplied(model: nn.Module) -> int:
    """Number of weights, without tables of embeddings, of which a token reads one row."""
    tables = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in tables)


def longest(model: nn.Module) -> int:
    """Number of tokens of an example: two chunks of 64 and more, of a larger model one and more."""
    return 131 if num_multiplied(model) < 3e6 else 70


def farthest(model: nn.Module) -> int:
    """Most tokens of an example on which the law on the future alone is tested, in four passes."""
    return max(longest(model), int(FLOPS / (2 * num_multiplied(model))))


def num_cuts(num_weights: int, n: int) -> int:
    """Number of columns after which tokens change."""
    return max(4, int(FLOPS / (2 * num_weights * n)) - 8)
