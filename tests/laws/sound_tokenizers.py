"""Tokenizers without a fault that are unusual: the laws must let each of them pass.

`raws` are their examples; without it, those of the letters a to c. They stand in a module, so that another process can
import them.
"""

import base64
import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from einops import rearrange
from laws.faulty_tokenizers import Sound
from torch import nn

from seqkit.errors import DataError
from seqkit.interfaces import Adjacency, Tokenizer, Tokens, TokenSpec


def _drawn(*size, seed=0):
    return torch.rand(*size, generator=torch.Generator().manual_seed(seed))


def _counted(n):
    return torch.arange(float(n))[:, None]


# ── positions ────────────────────────────────────────────────────────────────────────────────────────────────────────


class CountsSeconds(Sound):
    """Positions are seconds since 1970, days apart."""

    def encode(self, raw):
        tokens = super().encode(raw)
        return Tokens(tokens.content, (1.7e9 + 86400.0 * tokens.positions.double() ** 2).float())


class CountsDays(Sound):
    """Positions are days with gaps of years."""

    def encode(self, raw):
        tokens = super().encode(raw)
        return Tokens(tokens.content, 20_000 + 4_000 * tokens.positions)


class FollowsACurve(Tokenizer):
    """The pixels of a square image in the order of Hilbert's curve, with their rows and columns."""

    raws = (_drawn(8, 8), _drawn(4, 4))
    spec = TokenSpec(num_features=1, num_axes=2)

    def encode(self, raw):
        at = self._curve(len(raw))
        return Tokens(raw[at[:, 0], at[:, 1]][:, None], at.float())

    def decode(self, tokens):
        image = torch.zeros(2 * [math.isqrt(len(tokens))])
        image[tuple(tokens.positions.long().T)] = tokens.content[:, 0]
        return image

    def _curve(self, side):
        if side == 1:
            return torch.zeros(1, 2, dtype=torch.int64)
        half, quarter = side // 2, self._curve(side // 2)
        corners = torch.tensor([[0, 0], [0, half], [half, half], [half, 0]])
        turned = [quarter.flip(1), quarter, quarter, half - 1 - quarter.flip(1)]
        return torch.cat([part + corner for part, corner in zip(turned, corners, strict=True)])


class ListsVoxels(Tokenizer):
    """The voxels of a volume that are not empty, a set with positions on three axes."""

    raws = ((_drawn(5, 3, 4) - 0.7).relu(), (_drawn(3, 4, 4, seed=1) - 0.5).relu())
    spec = TokenSpec(num_features=1, num_axes=3, is_set=True)

    def encode(self, raw):
        if not bool(raw.any()):
            raise DataError("all voxels are empty")
        return Tokens(raw[raw != 0][:, None], raw.nonzero().float())


class ScalesTimeByItsLogarithm(Tokenizer):
    """Events from microseconds to years, whose positions are logarithms of seconds."""

    raws = ([(1e-6, 0), (3e-2, 2), (5.0, 1), (3e7, 2)], [(2e-3, 1), (1e5, 0)])
    spec = TokenSpec(vocab_size=3)

    def encode(self, raw):
        seconds, kinds = zip(*raw, strict=True)
        return Tokens(torch.tensor(kinds), torch.tensor(seconds).log10()[:, None])


class DatesBeforeChrist(Tokenizer):
    """Days as two fields and a number, with years that may be negative as positions."""

    raws = (
        np.array(["-0043-03-15", "-0030-09-02", "0014-08-19"], dtype="datetime64[D]"),
        np.array(["-0752-04-21", "0476-09-04"], dtype="datetime64[D]"),
    )
    spec = TokenSpec(vocab_sizes=(12, 31), num_features=1)

    def encode(self, raw):
        year, month = raw.astype("datetime64[Y]"), raw.astype("datetime64[M]")
        fields = np.stack([(month - year).astype(int), (raw - month).astype(int)], axis=1)
        years = torch.tensor(year.astype(int) + 1970.0)[:, None]
        return Tokens(torch.tensor(fields), years / 100, features=(years < 0).float())


class IsOneToken(Tokenizer):
    """A whole example is one token."""

    raws = (_drawn(7), _drawn(7, seed=1))
    spec = TokenSpec(num_features=7)

    def encode(self, raw):
        return Tokens(raw[None], torch.zeros(1, 1))


# ── content ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class KnowsTheirWords(Tokenizer):
    """A dictionary of the words of training, the most frequent first, and one id for all others."""

    raws = ("to be or not to be", "that is the question to be or that")

    def __init__(self):
        self.words = []

    @property
    def spec(self):
        if not self.words:
            raise ValueError("no words yet; call fit(texts)")
        return TokenSpec(vocab_size=1 + len(self.words))

    def fit(self, raws):
        counts = Counter(word for raw in raws for word in raw.split())
        self.words = sorted(counts, key=lambda word: (-counts[word], word))

    def state(self):
        return {"words": list(self.words)} if self.words else {}

    def load_state(self, state):
        self.words = list(state.get("words", []))

    def encode(self, raw):
        ids = {word: 1 + i for i, word in enumerate(self.words)}
        found = [ids.get(word, 0) for word in raw.split()]
        return Tokens(torch.tensor(found), _counted(len(found)))

    def decode(self, tokens):
        return " ".join(["?", *self.words][int(i)] for i in getattr(tokens, "content", tokens))


class CountsItems(Tokenizer):
    """What is in a basket: a set of items, each with its aisle and how many there are."""

    raws = ({"milk": 2, "eggs": 12}, {"bread": 1, "eggs": 6, "milk": 1})
    items = ("bread", "eggs", "milk")
    spec = TokenSpec(vocab_sizes=(3, 2), num_features=1, num_axes=0, is_set=True)

    def encode(self, raw):
        ids = torch.tensor([[self.items.index(item), int(item != "bread")] for item in raw])
        counts = torch.tensor([float(count) for count in raw.values()])[:, None]
        return Tokens(ids, torch.zeros(len(ids), 0), features=counts.log1p())


class WritesBase64(Tokenizer):
    """Bytes as letters of six bits, with the ends that tell how many bytes there are."""

    raws = (b"\x00\xff\x10 bytes", b"PK\x03\x04", b"\xfe")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
    spec = TokenSpec(vocab_size=65)

    def encode(self, raw):
        text = base64.b64encode(raw).decode()
        return Tokens(
            torch.tensor([self.letters.index(letter) for letter in text]), _counted(len(text))
        )

    def decode(self, tokens):
        text = "".join(self.letters[int(i)] for i in getattr(tokens, "content", tokens)).replace(
            "=", ""
        )
        text = text[: len(text) - (len(text) % 4 == 1)]
        return base64.b64decode(text + "=" * (-len(text) % 4))


class IsBlackOrWhite(Tokenizer):
    """Pixels above a half, and the others."""

    raws = ((_drawn(5, 7) > 0.5).float(), (_drawn(4, 3, seed=1) > 0.5).float())
    spec = TokenSpec(vocab_size=2, num_axes=2)

    def encode(self, raw):
        at = torch.cartesian_prod(*(torch.arange(float(side)) for side in raw.shape))
        return Tokens((raw > 0.5).flatten().long(), at)


class MarksWhatIsMissing(Tokenizer):
    """A sensor that is silent half of the time: NaN becomes a zero and a mark."""

    raws = tuple(
        _drawn(n, seed=n).masked_fill(_drawn(n, seed=n + 1) < 0.5, torch.nan) for n in (30, 17)
    )
    spec = TokenSpec(num_features=2)

    def encode(self, raw):
        return Tokens(
            torch.stack([raw.nan_to_num(0.0), raw.isnan().float()], dim=1), _counted(len(raw))
        )


class ReadsPurines(Tokenizer):
    """DNA in two letters: A and G are purines, C and T are pyrimidines."""

    raws = ("ACGTACGTTAGGCATTACG", "TTAGGGTTAGGGCC")
    spec = TokenSpec(vocab_size=2)

    def encode(self, raw):
        if not isinstance(raw, str) or not raw or set(raw) - set("ACGT"):
            raise DataError("not a text of A, C, G and T")
        return Tokens(torch.tensor([int(base in "CT") for base in raw]), _counted(len(raw)))


class LooksThroughAStem(Tokenizer):
    """Patches of 3 × 3 pixels, some of them blank, through a convolution, norms and, at times, no layer at all."""

    raws = (torch.cat([torch.zeros(4, 3, 3), _drawn(3, 3, 3)]), _drawn(5, 3, 3, seed=1))

    @property
    def spec(self):
        return TokenSpec(num_features=9, embedder=_Stem)

    def encode(self, raw):
        return Tokens(rearrange(raw, "n h w -> n (h w)"), _counted(len(raw)))


class _Stem(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.convolution = nn.LayerNorm(9), nn.Conv2d(1, dim, 2)
        self.layer, self.last = nn.Linear(dim, dim), nn.LayerNorm(dim)

    def forward(self, content):
        images = rearrange(self.norm(content), "b n (h w) -> (b n) 1 h w", h=3)
        hidden = rearrange(
            self.convolution(images).relu().amax((-1, -2)), "(b n) d -> b n d", b=len(content)
        )
        keep = (torch.rand(()) < 0.5) / 0.5 if self.training else 1.0
        return self.last(hidden + keep * self.layer(hidden))


# ── edges ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Web:
    """Who trusts whom, in percent, which may be negative, and oneself."""

    names: tuple[str, ...]
    trust: dict[tuple[str, str], float]


class TrustsItself(Tokenizer):
    """A directed graph of a dataclass: the sign is the type of an edge, and some nodes have an edge to themselves."""

    raws = (
        Web(
            ("ann", "bob", "eve"), {("ann", "ann"): 0.9, ("ann", "bob"): 0.5, ("eve", "ann"): -1.0}
        ),
        Web(("bob", "eve"), {("eve", "eve"): -0.2, ("bob", "eve"): 0.1}),
    )
    spec = TokenSpec(num_features=2, num_axes=0, num_edge_types=2)

    def encode(self, raw):
        edges = torch.tensor([[raw.names.index(name) for name in pair] for pair in raw.trust]).T
        kinds = torch.tensor([1 + (value < 0) for value in raw.trust.values()])
        given = [
            sum(abs(v) for (one, _), v in raw.trust.items() if one == name) for name in raw.names
        ]
        content = torch.tensor(
            [[total, float(len(name))] for total, name in zip(given, raw.names, strict=True)]
        )
        return Tokens(content, torch.zeros(len(content), 0), Adjacency(edges, kinds))


# ── how it works inside ──────────────────────────────────────────────────────────────────────────────────────────────


class RemembersWhatItEncoded(Sound):
    """It keeps what it encoded by the text, gives copies, and leaves all that out of a pickle."""

    def __init__(self):
        super().__init__()
        self.known = {}

    def __getstate__(self):
        return vars(self) | {"known": {}}

    def encode(self, raw):
        if raw not in self.known:
            self.known[raw] = super().encode(raw)
        tokens = self.known[raw]
        return Tokens(tokens.content.clone(), tokens.positions.clone())


class LoadsItsTableLate(Sound):
    """Its table is made when the first example comes, by a library that is imported then."""

    @cached_property
    def table(self):
        from unicodedata import name

        return {name(letter): i for i, letter in enumerate("abc")}

    def encode(self, raw):
        from unicodedata import name

        ids = torch.tensor([self.table[name(letter)] for letter in raw])
        return Tokens(ids, _counted(len(raw)))


class Steps:
    """Numbers that are made while they are read, as often as they are."""

    def __init__(self, *sizes):
        self.sizes = sizes

    def __iter__(self):
        for i, size in enumerate(self.sizes):
            yield from (i + j / size for j in range(size))


class ReadsAsItComes(Tokenizer):
    """Examples that are no lists: each is read once, from its start to its end."""

    raws = (Steps(2, 5), Steps(3, 1, 4), range(3, 19, 5))
    spec = TokenSpec(num_features=1)

    def encode(self, raw):
        values = torch.tensor([float(value) for value in raw])[:, None]
        return Tokens(values.sin(), values)


class ReadsSparseMatrices(Tokenizer):
    """Raw examples that are sparse tensors: a token for each value."""

    raws = (_drawn(4, 5).mul(2).floor().to_sparse(), torch.eye(3).to_sparse())
    spec = TokenSpec(num_features=1, num_axes=2, is_set=True)

    def encode(self, raw):
        raw = raw.coalesce()
        return Tokens(raw.values()[:, None], raw.indices().T.float())


@dataclass(frozen=True)
class IsFrozen(Tokenizer):
    """A dataclass whose settings cannot be changed: numbers of a text."""

    raws = ("7 12 9", "3.5 41")
    pattern: str = r"[0-9.]+"

    @property
    def spec(self):
        return TokenSpec(num_features=1, embedder=partial(nn.Linear, 1))

    def encode(self, raw):
        given = [(float(found[0]), found.start()) for found in re.finditer(self.pattern, raw)]
        if not given:
            raise DataError("there is no number in it")
        values, places = torch.tensor(given).split(1, dim=1)
        return Tokens(values, places)


SOUND = [
    CountsSeconds,
    CountsDays,
    FollowsACurve,
    ListsVoxels,
    ScalesTimeByItsLogarithm,
    DatesBeforeChrist,
    IsOneToken,
    KnowsTheirWords,
    CountsItems,
    WritesBase64,
    IsBlackOrWhite,
    MarksWhatIsMissing,
    ReadsPurines,
    LooksThroughAStem,
    TrustsItself,
    RemembersWhatItEncoded,
    LoadsItsTableLate,
    ReadsAsItComes,
    ReadsSparseMatrices,
    IsFrozen,
]
