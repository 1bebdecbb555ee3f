"""Every law of `check_tokenizer` notices a planted fault."""

import pytest
import torch

from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.registry import components
from seqkit.testing import check_tokenizer

RAWS = ["abc", "cabba"]


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
        return "".join("abc"[(int(i) - self.shift) % 3] for i in tokens.content)

    def state(self):
        return {"shift": self.shift}

    def load_state(self, state):
        self.shift = state["shift"]


class DeclaresAWrongVocabulary(Sound):
    @property
    def spec(self):
        return TokenSpec(vocab_size=2)


class ReturnsATensor(Sound):
    def encode(self, raw):
        return super().encode(raw).content


class ChangesItsSpec(Sound):
    @property
    def spec(self):
        return TokenSpec(vocab_size=3 + self.count)

    def encode(self, raw):
        self.count += 1
        return super().encode(raw)


class HasRandomPositions(Sound):
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


class CannotBePickled(Sound):
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


class StateIsNotJson(Sound):
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


class AcceptsAnything(Sound):
    def encode(self, raw):
        return super().encode(raw or "a")


class RaisesIndexError(Sound):
    def encode(self, raw):
        return super().encode("".join(raw)) if raw else torch.zeros(1)[2]


def test_a_sound_tokenizer_passes():
    check_tokenizer(Sound(), RAWS, unfitted=Sound(), bad=["", "d", 7])


@pytest.mark.parametrize(
    ("faulty", "law"),
    [
        (DeclaresAWrongVocabulary, "keeps_its_spec: example 0: content holds id 2"),
        (ReturnsATensor, "keeps_its_spec: encode gave a Tensor"),
        (ChangesItsSpec, "keeps_its_spec: encoding changed the spec"),
        (HasRandomPositions, "is_deterministic: example 1 encoded again has other positions"),
        (ChangesItsAxes, "can_be_batched: examples do not collate into one batch"),
        (CannotBePickled, "can_be_pickled: it cannot be pickled"),
        (ForgetsWhenCopied, "can_be_pickled: example 0 encoded by a copy has other content"),
        (DecodesWrongly, "decodes_what_it_encodes: example 0"),
        (StateIsNotJson, r"state_is_json_and_enough: state\(\) is not plain JSON"),
        (StateChangesInJson, "state_is_json_and_enough: state.. comes back from JSON changed"),
        (ForgetsItsState, "state_is_json_and_enough: example 0 encoded by a tokenizer that loaded the state"),
        (AcceptsAnything, "refuses_with_a_reason: bad example 0 is encoded; raise DataError"),
        (RaisesIndexError, "refuses_with_a_reason: bad example 0 raises IndexError"),
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
    assert len(components("tokenizer")) >= 8
