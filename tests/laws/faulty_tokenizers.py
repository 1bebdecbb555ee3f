"""Tokenizers with one fault each: those that are known to have passed once (`KNOWN`), and others (`INVENTED`).

Each has the law that catches it, with words of the sentence that it says. They stand in a module, so that another
process can import them.
"""

import datetime
import itertools
import locale
import logging
import os
import random
import sys
import threading
import warnings

import numpy as np
import torch
from torch import nn

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec

RAWS = ["abc", "cabba"]
SERIES = [torch.tensor([1.0, 3.0, -2.0]), torch.tensor([0.5, 7.0, 2.0, 4.0])]


class Sound(Tokenizer):
    """Letters a to c, without a fault; it needs no fitting."""

    def __init__(self):
        self.shift = 0
        self.count = 0

    @property
    def spec(self):
        return TokenSpec(vocab_size=3)

    def encode(self, raw):
        if not isinstance(raw, str) or not raw or set(raw) - set("abc"):
            raise DataError("not a text of a, b and c")
        ids = torch.tensor(["abc".index(letter) for letter in raw])
        return Tokens((ids + self.shift) % 3, torch.arange(float(len(raw)))[:, None])

    def decode(self, tokens):
        return "".join("abc"[(int(i) - self.shift) % 3] for i in getattr(tokens, "content", tokens))

    def state(self):
        return {"shift": self.shift}

    def load_state(self, state):
        self.shift = state["shift"]


class Scaled(Tokenizer):
    """Numbers divided by their largest in training, without a fault."""

    raws = SERIES

    def __init__(self, margin=1.0):
        self.margin, self.largest = margin, None

    @property
    def spec(self):
        if self.largest is None:
            raise ValueError("Scaled has no scale yet; call fit(series)")
        return TokenSpec(num_features=1)

    def fit(self, raws):
        self.largest = max(float(raw.abs().max()) for raw in raws)

    def state(self):
        return {} if self.largest is None else {"largest": self.largest}

    def load_state(self, state):
        self.largest = state.get("largest")

    def encode(self, raw):
        content = raw[:, None] / (self.margin * self.largest)
        return Tokens(content, torch.arange(float(len(raw)))[:, None])


class Learned(Sound):
    """Letters in the order in which training has them first, without a fault."""

    def __init__(self):
        self.letters = []

    @property
    def spec(self):
        if not self.letters:
            raise ValueError("no letters yet; call fit(texts)")
        return TokenSpec(vocab_size=len(self.letters))

    def fit(self, raws):
        self.letters = sorted({letter for raw in raws for letter in raw})

    def encode(self, raw):
        if not isinstance(raw, str) or not raw or set(raw) - set(self.letters):
            raise DataError("not a text of known letters")
        ids = torch.tensor([self.letters.index(letter) for letter in raw])
        return Tokens(ids, torch.arange(float(len(raw)))[:, None])

    def decode(self, tokens):
        return "".join(self.letters[int(i)] for i in getattr(tokens, "content", tokens))

    def state(self):
        return {"letters": list(self.letters)} if self.letters else {}

    def load_state(self, state):
        self.letters = list(state.get("letters", []))


# ── known to have passed once ────────────────────────────────────────────────────────────────────────────────────────

BUFFER = torch.zeros(64, 1)


class GivesAViewOfABuffer(Scaled):
    def encode(self, raw):
        BUFFER[: len(raw), 0] = raw / self.largest
        return Tokens(BUFFER[: len(raw)], torch.arange(float(len(raw)))[:, None])


class LosesItsState(Scaled):
    def load_state(self, state):
        self.largest = 1.0


class SavesNothing(Scaled):
    """`fit` with a constant spec."""

    def __init__(self):
        self.largest = 1.0
        self.margin = 1.0

    spec = property(lambda self: TokenSpec(num_features=1))

    def state(self):
        return {}

    def load_state(self, state):
        pass


class HashesWords(Sound):
    spec = property(lambda self: TokenSpec(vocab_size=1_000))

    def encode(self, raw):
        ids = torch.tensor([hash(letter) % 1_000 for letter in raw])
        return Tokens(ids, torch.arange(float(len(raw)))[:, None])

    decode = None

    def __getattribute__(self, name):
        if name == "decode":
            raise AttributeError(name)
        return super().__getattribute__(name)


class ChangesTheRawInput(Scaled):
    def encode(self, raw):
        raw /= self.largest
        return super().encode(raw)


class DecodesTokensOnly(Sound):
    def decode(self, tokens):
        return super().decode(tokens.content)


class PickleLosesIt(Scaled):
    def __getstate__(self):
        return {"margin": self.margin, "largest": 1.0}


class RenamesItsSettings(Scaled):
    """Sound, but no attribute has the name of the setting."""

    def __init__(self, width=1.0):
        super().__init__(width)


COUNT = itertools.count(1)


def other_locale():
    return "C" if locale.setlocale(locale.LC_ALL) != "C" else "C.UTF-8"


def changing(name, change):
    """A sound tokenizer that changes the process each time that it encodes."""

    def encode(self, raw):
        change()
        return Sound.encode(self, raw)

    return type(name, (Sound,), {"encode": encode})


OF_THE_PROCESS = [
    (changing(name, change), f"leaves_the_process_alone: example 0: encode {sentence}")
    for name, sentence, change in (
        ("Prints", "prints 'encoding'", lambda: print("encoding")),
        (
            "ResetsTheGenerator",
            "changes the state of torch's global generator",
            lambda: torch.manual_seed(0),
        ),
        (
            "DrawsFromNumPy",
            "changes the state of NumPy's global generator",
            lambda: np.random.rand(),  # noqa: NPY002
        ),
        ("SetsThreads", "changes the number of torch's threads", lambda: torch.set_num_threads(3)),
        (
            "ChangesTheDefaultDtype",
            "changes torch's default dtype",
            lambda: torch.set_default_dtype(torch.float64),
        ),
        (
            "TurnsGradientsOff",
            "changes whether torch records gradients",
            lambda: torch.set_grad_enabled(False),
        ),
        ("ChangesTheFolder", "changes the working folder", lambda: os.chdir("/")),
        (
            "SetsTheEnvironment",
            "changes an environment variable",
            lambda: os.environ.update(ENCODED=str(next(COUNT))),
        ),
        (
            "ConfiguresLogging",
            "changes the level or the handlers",
            lambda: logging.root.setLevel(next(COUNT)),
        ),
        (
            "StartsThreads",
            "changes the number of threads that run",
            lambda: threading.Timer(2.0, dict).start(),
        ),
        ("LeavesPython", r"ends Python \(SystemExit: 3\)", lambda: sys.exit(3)),
        (
            "ChangesTheLocale",
            "changes the locale",
            lambda: locale.setlocale(locale.LC_ALL, other_locale()),
        ),
        (
            "SilencesNumPy",
            "changes what NumPy does about overflow",
            lambda: np.seterr(over="raise"),
        ),
        (
            "MultipliesCoarsely",
            "changes the precision of",
            lambda: torch.set_float32_matmul_precision("medium"),
        ),
        (
            "LooksForAnomalies",
            "changes whether torch looks for",
            lambda: torch.autograd.set_detect_anomaly(True),
        ),
        (
            "RecursesDeeply",
            "changes the recursion limit",
            lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
        ),
        (
            "IgnoresWarnings",
            "changes Python's filters",
            lambda: warnings.filterwarnings("ignore", str(next(COUNT))),
        ),
    )
]

KNOWN = [
    (GivesAViewOfABuffer, "keeps_no_buffer: example 0 changed while others were encoded"),
    (
        LosesItsState,
        "state_is_json_and_enough: example 0 encoded by a tokenizer that loaded the state",
    ),
    (SavesNothing, r"fit_learns_what_state_saves: state\(\) is empty after fit"),
    (HashesWords, r"is_the_same_in_another_process: example 0 .* hash\(\)"),
    (ChangesTheRawInput, "leaves_raw_examples_alone: example 0: encode changes the raw example"),
    (
        DecodesTokensOnly,
        r"decodes_what_it_encodes: example 0: decode of ids \[n\].* raises AttributeError",
    ),
    (PickleLosesIt, "can_be_pickled: example 0 encoded by a pickled copy has other content"),
]


# ── invented ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class DrawsNoise(Scaled):
    def encode(self, raw):
        return super().encode(
            raw
            + 1e-3
            * torch.randn(raw.shape, generator=torch.Generator().manual_seed(random.getrandbits(9)))
        )


class RunningMean(Scaled):
    """Every example is centred by those before it."""

    def encode(self, raw):
        self.sum = getattr(self, "sum", 0.0) + float(raw.sum())
        return super().encode(raw - self.sum)


class GrowsItsVocabulary(Learned):
    """Letters get ids when they are first seen, and state is forgotten."""

    spec = property(lambda self: TokenSpec(vocab_size=4))

    def fit(self, raws):
        self.letters = ["x"]

    def encode(self, raw):
        self.letters += [letter for letter in dict.fromkeys(raw) if letter not in self.letters]
        return super().encode(raw)

    def state(self):
        return {"letters": self.letters[:1]}


class RingOfBuffers(Scaled):
    """Three buffers that are filled in turn."""

    buffers = itertools.cycle([torch.zeros(64, 1) for _ in range(3)])

    def __deepcopy__(self, memo):
        copied = type(self)()
        copied.largest = self.largest
        return copied

    def encode(self, raw):
        buffer = next(self.buffers)
        buffer[: len(raw), 0] = raw / self.largest
        return Tokens(buffer[: len(raw)], torch.arange(float(len(raw)))[:, None])


class SortsTheTrainingData(Learned):
    def fit(self, raws):
        raws.sort(key=len, reverse=True)
        super().fit(raws)


class ConsumesTheTrainingData(Learned):
    def fit(self, raws):
        self.letters = []
        while raws:
            self.letters = sorted({*self.letters, *raws.pop()})


class FitAddsUp(Learned):
    def fit(self, raws):
        self.letters += [letter for raw in raws for letter in raw if letter not in self.letters]
        self.letters.append(str(len(self.letters)))


class StateIsAlive(Learned):
    def state(self):
        return {"letters": self.letters} if self.letters else {}


class KeepsTheLoadedList(Learned):
    def load_state(self, state):
        self.letters = state.get("letters", [])


class LoadsTwice(Learned):
    def load_state(self, state):
        self.letters = self.letters + state.get("letters", [])


class FailsBeforeFit(Scaled):
    @property
    def spec(self):
        return TokenSpec(num_features=int(self.largest / self.largest))


class DecodesSomeIdsOnly(Sound):
    spec = property(lambda self: TokenSpec(vocab_size=5))  # ids 3 and 4 stand for nothing

    def decode(self, tokens):
        return "".join({0: "a", 1: "b", 2: "c"}[int(i)] for i in getattr(tokens, "content", tokens))


class DecodesIdsToAnotherType(Sound):
    def decode(self, tokens):
        text = super().decode(tokens)
        return text if isinstance(tokens, Tokens) else list(text)


class IgnoresItsInput(Sound):
    def encode(self, raw):
        return super().encode("abca")


class HasNoOrder(Sound):
    def encode(self, raw):
        return Tokens(super().encode(raw).content, torch.zeros(len(raw), 1))


class CountsInNanoseconds(Sound):
    def encode(self, raw):
        tokens = super().encode(raw)
        return Tokens(tokens.content, tokens.positions * 1e9)


class HasWeights(Scaled):
    """Content with a gradient."""

    def encode(self, raw):
        return super().encode(raw * nn.Parameter(torch.ones(())))


class SpecIsAMethod(Sound):
    def spec(self):
        return TokenSpec(vocab_size=3)


class RemembersObjects(Scaled):
    """Tokens by the identity of the raw example, so that an equal one gets others."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def encode(self, raw):
        order = self.seen.setdefault(id(raw), len(self.seen))
        return super().encode(raw + order)


class StemReadsTheBatch(Scaled):
    """Its embedder normalises over the batch."""

    @property
    def spec(self):
        return TokenSpec(num_features=super().spec.num_features, embedder=_BatchStem)


class _BatchStem(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(1, dim)

    def forward(self, content):
        return self.linear(content - content.mean())


class StemNormalisesBatches(Scaled):
    """In training mode alone, vectors depend on the batch."""

    @property
    def spec(self):
        return TokenSpec(num_features=super().spec.num_features, embedder=_TrainingStem)


class _TrainingStem(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(1, dim)

    def forward(self, content):
        hidden = self.linear(content)
        return hidden - hidden.mean(dim=(0, 1)) if self.training else hidden


class StemReadsNeighbours(Scaled):
    """It subtracts the first token of all."""

    @property
    def spec(self):
        return TokenSpec(num_features=super().spec.num_features, embedder=_FirstStem)


class _FirstStem(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(1, dim)

    def forward(self, content):
        return self.linear(content - content[..., :1, :])


class StemDropsOut(Scaled):
    """It is random in training, without a fault."""

    @property
    def spec(self):
        def embedder(dim):
            return nn.Sequential(nn.Linear(1, dim), nn.Dropout(0.3))

        return TokenSpec(num_features=super().spec.num_features, embedder=embedder)


class StemHasOneWidth(Scaled):
    @property
    def spec(self):
        return TokenSpec(
            num_features=super().spec.num_features, embedder=lambda dim: nn.Linear(1, 24)
        )


class PlaceOfSettingsIsForgotten(Scaled):
    """The state holds no margin, which fit chose."""

    def __init__(self):
        super().__init__()

    def fit(self, raws):
        super().fit(raws)
        self.margin = 2.0

    def load_state(self, state):
        super().load_state(state)
        self.margin = 1.0


class ReadsTheClock(Scaled):
    def encode(self, raw):
        return super().encode(raw + datetime.datetime.now(tz=datetime.UTC).microsecond)


class RoundsToNothing(Sound):
    """The state survives JSON, and is a rounded one."""

    def __init__(self):
        super().__init__()
        self.shift = 1

    def state(self):
        return {"shift": self.shift // 2}


class StateOfNan(Scaled):
    def state(self):
        return super().state() | {"spread": float("nan")}


class LearnsInTheOrderOfReading(Learned):
    """Ids by first sight, with a state that holds only those of `fit`; its vocabulary is full after that order."""

    spec = property(lambda self: TokenSpec(vocab_size=4))

    def __init__(self):
        self.letters, self.seen = [], {}

    def encode(self, raw):
        ids = torch.tensor([self.seen.setdefault(letter, len(self.seen)) for letter in raw])
        return Tokens(ids, torch.arange(float(len(raw)))[:, None])

    def decode(self, tokens):
        letters = [*self.seen, "x", "y", "z", "w"]
        return "".join(letters[int(i)] for i in getattr(tokens, "content", tokens))


class ChangesItsInputOnce(Scaled):
    """It centres a recording in place, so that a second time nothing changes."""

    def encode(self, raw):
        raw -= raw[0].clone()
        return super().encode(raw)


class DecodesByWhatFitSaw(Learned):
    """What decode needs is not in the state."""

    def __init__(self):
        super().__init__()
        self.names = "abcdef"

    def fit(self, raws):
        super().fit(raws)
        self.names = "".join(self.letters).upper()

    def encode(self, raw):
        return super().encode(raw.lower())

    def decode(self, tokens):
        return "".join(self.names[int(i)] for i in getattr(tokens, "content", tokens))


class LongRingOfBuffers(RingOfBuffers):
    buffers = itertools.cycle([torch.zeros(64, 1) for _ in range(150)])


class RoundsItsScale(Scaled):
    """The state has four digits, and the tokens differ in the sixth."""

    def fit(self, raws):
        super().fit(raws)
        self.largest *= 1.000001

    def state(self):
        return {} if self.largest is None else {"largest": round(self.largest, 4)}

    def load_state(self, state):
        self.largest = state.get("largest")


class ForgetsWhatItDoesNotUse(Learned):
    """A part of the state that no token needs, and that a second run does not have."""

    def state(self):
        return super().state() | {"counted": getattr(self, "counted", 0)} if self.letters else {}

    def fit(self, raws):
        super().fit(raws)
        self.counted = len(raws)


class BuildsInTheOrderOfASet(Sound):
    """A pickled one takes its order along."""

    def __init__(self):
        super().__init__()
        self.letters = list({letter * 3 for letter in "abcdefghijklm"})

    @property
    def spec(self):
        return TokenSpec(vocab_size=13)

    def encode(self, raw):
        super().encode(raw)
        ids = torch.tensor([self.letters.index(letter * 3) for letter in raw])
        return Tokens(ids, torch.arange(float(len(raw)))[:, None])

    decode = None


class FitsInTheOrderOfASet(Learned):
    """Letters have the order of their hashes, which this process keeps, and the next does not."""

    def fit(self, raws):
        self.letters = list(
            {letter * 3 for raw in raws for letter in raw} | {f"unused {i}" for i in range(9)}
        )

    def encode(self, raw):
        ids = torch.tensor([self.letters.index(letter * 3) for letter in raw])
        return Tokens(ids, torch.arange(float(len(raw)))[:, None])

    decode = None


class CountsSecondsClosely(Sound):
    """Positions are seconds since 1970, ten minutes apart: float32 holds them to 128."""

    def encode(self, raw):
        tokens = super().encode(raw)
        return Tokens(tokens.content, (1.7e9 + 600.0 * tokens.positions.double()).float())


INVENTED = [
    (LongRingOfBuffers, "keeps_no_buffer: example 0 changed while others were encoded"),
    (
        RoundsItsScale,
        "state_is_json_and_enough: example 0 encoded by a tokenizer that loaded the state has other content",
    ),
    (
        ForgetsWhatItDoesNotUse,
        "state_is_json_and_enough: a tokenizer that loaded the state has another state",
    ),
    (
        FitsInTheOrderOfASet,
        "is_the_same_in_another_process: fit in another process gives another state",
    ),
    (
        BuildsInTheOrderOfASet,
        "is_the_same_in_another_process: example 0 encoded by one that another process builds",
    ),
    (DrawsNoise, "changes the state of Python's global generator"),
    (RunningMean, "is_deterministic: example 1 encoded again has other content"),
    (GrowsItsVocabulary, "any_order_gives_the_same: example 1 encoded before those above it"),
    (RingOfBuffers, "keeps_no_buffer: example 0 changed while others were encoded"),
    (SortsTheTrainingData, "fit_learns_what_state_saves: fit changes the examples, or their order"),
    (
        ConsumesTheTrainingData,
        "fit_learns_what_state_saves: fit changes the examples, or their order",
    ),
    (
        FitAddsUp,
        "fit_learns_what_state_saves: fitting again on the same examples gives another state",
    ),
    (StateIsAlive, r"state_is_a_copy: example 0, after what state\(\) gave was changed"),
    (KeepsTheLoadedList, r"state_is_a_copy: example 0, after what load_state\(\) took was changed"),
    (
        LoadsTwice,
        "state_is_json_and_enough: a tokenizer that loaded the state a second time has the spec",
    ),
    (
        FailsBeforeFit,
        "fit_learns_what_state_saves: spec raises TypeError.* before fit; raise ValueError",
    ),
    (DecodesSomeIdsOnly, r"decodes_any_id: decode of ids \[3\] raises KeyError"),
    (
        DecodesIdsToAnotherType,
        r"decodes_what_it_encodes: example 0: decode gives 'abc' for Tokens, and \['a'",
    ),
    (IgnoresItsInput, "tells_examples_apart: examples 0 to 1 all give the same tokens"),
    (HasNoOrder, "tells_examples_apart: example 0: all 3 tokens have one position"),
    (
        CountsSecondsClosely,
        r"tells_examples_apart: example 0: positions up to 1.7e\+09 are rounded to .* subtract the first",
    ),
    (CountsInNanoseconds, "tells_examples_apart: example 0: positions of 3 tokens go from 0 to 2e"),
    (HasWeights, "keeps_its_spec: example 0: content requires a gradient"),
    (SpecIsAMethod, "leaves_the_process_alone: spec is a method; give a seqkit.TokenSpec"),
    (RemembersObjects, "is_deterministic: an equal copy of example 0 has other content"),
    (
        StemReadsTheBatch,
        "its_embedder_keeps_tokens_apart: (a packed sequence|padding or the other examples)",
    ),
    (
        StemNormalisesBatches,
        "its_embedder_keeps_tokens_apart: in training mode, padding or the other examples",
    ),
    (StemReadsNeighbours, "its_embedder_keeps_tokens_apart: a packed sequence changes another one"),
    (StemHasOneWidth, "its_embedder_keeps_tokens_apart: hidden states are .*24.*, not .*40"),
    (
        PlaceOfSettingsIsForgotten,
        "state_is_json_and_enough: example 0 encoded by a tokenizer that loaded the state",
    ),
    (ReadsTheClock, "is_deterministic: example 1 encoded again has other content"),
    (
        RoundsToNothing,
        "state_is_json_and_enough: example 0 encoded by a tokenizer that loaded the state",
    ),
    (StateOfNan, r"state_is_json_and_enough: state\(\) is not plain JSON"),
    (
        LearnsInTheOrderOfReading,
        "any_order_gives_the_same: example 1 encoded before those above it",
    ),
    (ChangesItsInputOnce, "leaves_raw_examples_alone: example 0: encode changes the raw example"),
    (
        DecodesByWhatFitSaw,
        "state_is_json_and_enough: example 0 decoded by a tokenizer that loaded the state",
    ),
]
