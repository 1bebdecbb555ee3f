"""Tokenizers whose fault shows in other examples than the given ones, each with the law that alone names it."""

import torch
from laws.faulty_tokenizers import RAWS, Learned, Scaled, Sound

from seqkit.interfaces import Adjacency, Tokenizer, Tokens, TokenSpec
from seqkit.raw import GraphData


class KeepsEarlierFits(Learned):
    def fit(self, raws):
        self.letters = sorted({*self.letters, *(letter for raw in raws for letter in raw)})


class UnknownIsTheFirst(Learned):
    def encode(self, raw):
        known = "".join(x if x in self.letters else self.letters[0] for x in raw)
        return super().encode(known)


class UnknownWordIsTheFirst(Tokenizer):
    raws = ("to be or not to be", "or to go")

    def __init__(self):
        self.words = []

    @property
    def spec(self):
        return TokenSpec(vocab_size=max(1, len(self.words)))

    def fit(self, raws):
        self.words = sorted({word for raw in raws for word in raw.split()})

    def state(self):
        return {"words": list(self.words)} if self.words else {}

    def load_state(self, state):
        self.words = list(state.get("words", []))

    def encode(self, raw):
        ids = [self.words.index(x) if x in self.words else 0 for x in raw.split()]
        return Tokens(torch.tensor(ids), torch.arange(float(len(ids)))[:, None])


class UnknownIdIsOneTooHigh(Learned):
    def encode(self, raw):
        ids = [self.letters.index(x) if x in self.letters else len(self.letters) for x in raw]
        return Tokens(torch.tensor(ids), torch.arange(float(len(ids)))[:, None])


class LearnsLettersThatItEncodes(Learned):
    def encode(self, raw):
        self.letters += [x for x in dict.fromkeys(raw) if x not in self.letters]
        return super().encode(raw)


class KnowsNoOtherLetter(Learned):
    def encode(self, raw):
        ids = {letter: i for i, letter in enumerate(self.letters)}
        return Tokens(torch.tensor([ids[x] for x in raw]), torch.arange(float(len(raw)))[:, None])


class StartsAnewAt512(Sound):
    def encode(self, raw):
        tokens = super().encode(raw)
        return Tokens(tokens.content, tokens.positions % 512)


class EndsAt512(Sound):
    def encode(self, raw):
        return super().encode(raw[:512])


class RoundsTimes(Tokenizer):
    raws = ([(0.2, 1.0), (1.4, 3.0), (7.9, -2.0)], [(0.0, 0.5), (2.6, 7.0)])
    spec = TokenSpec(num_features=1)

    def encode(self, raw):
        times, values = torch.tensor(raw).T
        return Tokens(values[:, None], times.round()[:, None])


class LosesCapitals(Tokenizer):
    raws = ("Abc", "CaBba")
    spec = TokenSpec(vocab_size=256)

    def encode(self, raw):
        ids = torch.tensor(list(raw.lower().encode()))
        return Tokens(ids, torch.arange(float(len(ids)))[:, None])

    def decode(self, tokens):
        return "".join(map(chr, getattr(tokens, "content", tokens).tolist()))


def _graph(*pairs):
    edges = torch.tensor(pairs).T
    return GraphData(torch.arange(2.0 * edges.max() + 2).reshape(-1, 2), edges)


class HasEdgesOneWay(Tokenizer):
    raws = (_graph((0, 1), (1, 2)), _graph((0, 3), (3, 1), (2, 1)))
    spec = TokenSpec(num_features=2, num_axes=0, num_edge_types=1)

    def encode(self, raw):
        edges = Adjacency(raw.edges, torch.ones(raw.edges.shape[1], dtype=torch.int64))
        return Tokens(raw.nodes, torch.zeros(len(raw.nodes), 0), edges)


class DependsOnTheLast(Scaled):
    last = 0.0

    def encode(self, raw):
        tokens = super().encode(raw + self.last)
        self.last = float(raw[-1])
        return tokens


class HasAFeatureTooMany(Scaled):
    @property
    def spec(self):
        return TokenSpec(num_features=1 + super().spec.num_features)


UNSEEN = {
    KeepsEarlierFits: "fit_learns_what_state_saves",
    UnknownIsTheFirst: "unknown_is_no_known_token",
    UnknownWordIsTheFirst: "unknown_is_no_known_token",
    UnknownIdIsOneTooHigh: "encodes_the_rest_of_the_data",
    LearnsLettersThatItEncodes: "encodes_the_rest_of_the_data",
    KnowsNoOtherLetter: "encodes_the_rest_of_the_data",
    StartsAnewAt512: "long_examples_go_on",
    EndsAt512: "long_examples_go_on",
    RoundsTimes: "moved_times_move_positions",
    LosesCapitals: "decode_keeps_letters",
    HasEdgesOneWay: "undirected_edges_go_both_ways",
}
"""Those that one law alone names."""

ALSO_SEEN = {HasAFeatureTooMany: "keeps_its_spec", DependsOnTheLast: "is_deterministic"}
"""Those that several laws name."""

HALVES = {
    UnknownIdIsOneTooHigh: ("ab", "cab"),
    LearnsLettersThatItEncodes: ("ab", "cab"),
    KnowsNoOtherLetter: ("ab", "cab"),
    KeepsEarlierFits: ("ab", "ca"),
}
"""Raw examples of which fit on the first half does not know all letters of the others."""


def raws_of(cls):
    return list(HALVES.get(cls) or getattr(cls, "raws", RAWS))
