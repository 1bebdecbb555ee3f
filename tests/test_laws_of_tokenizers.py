"""Every law of `check_tokenizer` notices a planted fault."""

import pytest
import torch

from seqkit.conformance import check_tokenizer
from seqkit.contract import DataError, Tokenizer, Tokens, TokenSpec
from seqkit.registry import parts

RAWS = ["abc", "cabba"]


class Sound(Tokenizer):
    """Letters a to c, fitted to nothing, without a fault."""

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
        return "".join("abc"[(int(i) - self.shift) % 3] for i in tokens.content)

    def state(self):
        return {"shift": self.shift}

    def load_state(self, state):
        self.shift = state["shift"]


class LiesAboutItsVocabulary(Sound):
    @property
    def spec(self):
        return TokenSpec(vocab_size=2)


class GivesNoTokens(Sound):
    def encode(self, raw):
        return super().encode(raw).content


class ChangesItsSpec(Sound):
    @property
    def spec(self):
        return TokenSpec(vocab_size=3 + self.count)

    def encode(self, raw):
        self.count += 1
        return super().encode(raw)


class IsRandom(Sound):
    def encode(self, raw):
        tokens = super().encode(raw)
        return Tokens(tokens.content, tokens.positions + torch.rand(1))


class ChangesItsAxes(Sound):
    @property
    def spec(self):
        return type("Any", (), {"check": lambda self, tokens: None, "__eq__": lambda self, other: True})()

    def encode(self, raw):
        tokens = super().encode(raw)
        return Tokens(tokens.content, torch.zeros(len(tokens), len(tokens)))


class CannotBeSent(Sound):
    def __init__(self):
        super().__init__()
        self.lookup = lambda letter: letter


class ForgetsWhenCopied(Sound):
    def __init__(self):
        super().__init__()
        self.shift = 1

    def __deepcopy__(self, memo):
        return Sound()


class DecodesWrongly(Sound):
    def decode(self, tokens):
        return super().decode(tokens)[::-1]


class StateIsNoJson(Sound):
    def state(self):
        return {"shift": torch.tensor(0)}


class StateChangesInJson(Sound):
    def state(self):
        return {0: self.shift}


class ForgetsItsState(Sound):
    def __init__(self):
        super().__init__()
        self.shift = 1

    def load_state(self, state):
        self.shift = 0


class TakesAnything(Sound):
    def encode(self, raw):
        return super().encode(raw or "a")


class FailsInTheDepths(Sound):
    def encode(self, raw):
        return super().encode("".join(raw)) if raw else torch.zeros(1)[2]


def test_a_sound_tokenizer_passes():
    check_tokenizer(Sound(), RAWS, unfitted=Sound(), bad=["", "d", 7])


@pytest.mark.parametrize(
    ("faulty", "law"),
    [
        (LiesAboutItsVocabulary, "keeps_its_spec: example 0: content holds id 2"),
        (GivesNoTokens, "keeps_its_spec: encode gave a Tensor"),
        (ChangesItsSpec, "keeps_its_spec: encoding changed the spec"),
        (IsRandom, "repeats_itself: example 1 encoded again has other positions"),
        (ChangesItsAxes, "batches: examples do not make one batch"),
        (CannotBeSent, "goes_to_workers: it cannot be sent"),
        (ForgetsWhenCopied, "goes_to_workers: example 0 encoded by a copy has other content"),
        (DecodesWrongly, "decodes_what_it_encodes: example 0"),
        (StateIsNoJson, r"state_is_json_and_enough: state\(\) is not plain JSON"),
        (StateChangesInJson, "state_is_json_and_enough: state.. comes back from JSON changed"),
        (ForgetsItsState, "state_is_json_and_enough: example 0 encoded by one that took the state"),
        (TakesAnything, "refuses_with_a_reason: bad example 0 is encoded without a word"),
        (FailsInTheDepths, "refuses_with_a_reason: bad example 0 raises IndexError"),
    ],
)
def test_a_law_notices_a_planted_fault_in_a_tokenizer(faulty, law):
    with pytest.raises(AssertionError, match=f"{faulty.__name__}: {law}"):
        check_tokenizer(faulty(), RAWS, unfitted=faulty(), bad=[""])


def test_one_example_is_too_few():
    with pytest.raises(ValueError, match="1 raw examples"):
        check_tokenizer(Sound(), ["a"])


def test_every_registered_tokenizer_has_raw_examples(sample):
    assert len(sample.raws) >= 2
    assert sample.bad
    assert len(parts("tokenizer")) >= 8
