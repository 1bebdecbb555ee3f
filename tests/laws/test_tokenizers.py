"""Every law of `check_tokenizer` notices a planted fault."""

import logging
import threading
from contextlib import nullcontext

import pytest
import torch
from laws.faulty_tokenizers import (
    INVENTED,
    KNOWN,
    OF_THE_PROCESS,
    RAWS,
    BuildsInTheOrderOfASet,
    FitsInTheOrderOfASet,
    HashesWords,
    Learned,
    RenamesItsSettings,
    Scaled,
    Sound,
    StemDropsOut,
)
from laws.faulty_unseen import ALSO_SEEN, UNSEEN, raws_of
from laws.sound_tokenizers import SOUND

from seqkit.errors import DataError
from seqkit.interfaces import Tokens, TokenSpec
from seqkit.registry import components
from seqkit.testing import BrokenLawsError, another_process, check_tokenizer
from seqkit.testing.another_process import Made, is_the_same_in_another_process
from seqkit.testing.unseen import OF_OTHERS


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """What the check names and does not put back: the faulty tokenizers change it for the tests that follow, too."""
    monkeypatch.setenv("ENCODED", "0")
    level, num_threads = logging.root.level, torch.get_num_threads()
    yield
    logging.root.setLevel(level)
    torch.set_num_threads(num_threads)


class DecodesNothing(Sound):
    decode = None


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


class _Any(TokenSpec):
    def check(self, tokens):
        pass


class ChangesItsAxes(Sound):
    @property
    def spec(self):
        return _Any(vocab_size=3)

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


class DropsEveryOtherLetter(Sound):
    def encode(self, raw):
        return super().encode(raw[::2] if isinstance(raw, str) else raw)


class AcceptsAnything(Sound):
    def encode(self, raw):
        return super().encode(raw or "a")


class RaisesIndexError(Sound):
    def encode(self, raw):
        return super().encode("".join(raw)) if raw else torch.zeros(1)[2]


class RefusesInTwoLines(Sound):
    def encode(self, raw):
        if raw:
            return super().encode(raw)
        raise DataError("the text\nis empty")


@pytest.mark.slow
def test_a_sound_tokenizer_passes():
    checked = check_tokenizer(Sound(), RAWS, unfitted=Sound(), bad=["", "d", 7])
    assert {"is_the_same_in_another_process", "decodes_any_id"} <= {law.__name__ for law in checked}
    assert repr(checked).startswith(f"{len(checked)} laws are kept: ")
    assert "decodes_any_id" in repr(checked)


@pytest.mark.parametrize("sound", [Scaled, Learned, StemDropsOut])
def test_a_sound_tokenizer_that_is_fitted_passes_without_an_unfitted_one(sound):
    assert "fit_learns_what_state_saves" in {
        law.__name__ for law in check(sound, other_process=False)
    }


def test_a_law_that_is_expected_to_fail_may_fail_and_must():
    reason = {"decodes_what_it_encodes": "it is for display"}
    checked = check_tokenizer(DecodesWrongly(), RAWS, quick=True, expected_failures=reason)
    assert checked.left_out["decodes_what_it_encodes"] == "expected to fail"
    assert checked.left_out["keeps_no_buffer"] == "takes long"
    with pytest.raises(AssertionError, match=r"decodes_what_it_encodes: .* it is kept"):
        check_tokenizer(Sound(), RAWS, quick=True, expected_failures=reason)


@pytest.mark.parametrize("sound", SOUND)
def test_an_unusual_tokenizer_that_is_sound_passes(sound):
    check(sound, other_process=False)


class Timed(Sound):
    """Letters with times, such as a@0 b@1.5, of which ids alone cannot be decoded."""

    def encode(self, raw):
        letters, times = zip(*(word.split("@") for word in raw.split()))
        return Tokens(
            super().encode("".join(letters)).content,
            torch.tensor([float(t) for t in times])[:, None],
        )

    def decode(self, tokens):
        letters = super().decode(tokens.content)
        return " ".join(
            f"{letter}@{t:g}" for letter, t in zip(letters, tokens.positions[:, 0].tolist())
        )


class Continued(Sound):
    """Letters that decode as `Tokens` alone, which a `continues` of its own makes of ids."""

    def continues(self, tokens, content):
        return super().continues(tokens, content)

    def decode(self, tokens):
        return super().decode(tokens.content)


class ForgetsTimes(Timed):
    def decode(self, tokens):
        return " ".join(f"{letter}@0" for letter in super().decode(tokens)[::2])


TIMES = ["a@0 b@1.5 c@2", "c@0 a@7", "b@0.5 b@1"]


@pytest.mark.parametrize(("sound", "raws"), [(Timed, TIMES), (Continued, RAWS)])
def test_tokens_that_do_not_go_on_by_ids_alone_are_decoded_from_tokens_alone(sound, raws):
    checked = {law.__name__ for law in check_tokenizer(sound(), raws, other_process=False)}
    assert {"decodes_what_it_encodes", "decodes_any_id"} <= checked
    with pytest.raises(AssertionError, match="decoded and encoded again"):
        check_tokenizer(ForgetsTimes(), TIMES, other_process=False)


def test_a_tokenizer_whose_decode_is_none_passes_without_the_laws_of_decode():
    checked = {law.__name__ for law in check_tokenizer(DecodesNothing(), RAWS, other_process=False)}
    assert "can_be_pickled" in checked
    assert not checked & {"decodes_what_it_encodes", "decodes_any_id"}


def check(cls, **settings):
    """Check a tokenizer of that class, fitted where it has `fit`, and no unfitted one given."""
    tokenizer, raws = (
        cls(),
        [x.clone() if isinstance(x, torch.Tensor) else x for x in getattr(cls, "raws", RAWS)],
    )
    if hasattr(tokenizer, "fit"):
        tokenizer.fit(list(raws))
    return check_tokenizer(tokenizer, raws, **settings)


ELSEWHERE = (HashesWords, FitsInTheOrderOfASet, BuildsInTheOrderOfASet)
"""Faults that only another process shows, which takes two seconds to start."""


@pytest.mark.parametrize(
    ("faulty", "sentence"),
    [
        pytest.param(
            *fault, id=fault[0].__name__, marks=pytest.mark.slow if fault[0] in ELSEWHERE else ()
        )
        for fault in KNOWN + OF_THE_PROCESS + INVENTED
    ],
)
def test_a_fault_is_named_with_class_law_and_example(faulty, sentence):
    # laws that find the same share a line
    sentence = sentence.replace(": ", "[^:]*: ", 1)
    with pytest.raises(AssertionError, match=f"(?m)^{faulty.__name__}: .*{sentence}"):
        check(faulty, other_process=faulty in ELSEWHERE)


@pytest.mark.parametrize("faulty", [*UNSEEN, *ALSO_SEEN])
def test_a_fault_that_other_examples_show_is_named(faulty):
    tokenizer = faulty()
    raws = raws_of(faulty)
    if hasattr(tokenizer, "fit"):
        tokenizer.fit(list(raws))
    with pytest.raises(BrokenLawsError) as raised:
        check_tokenizer(tokenizer, raws, other_process=False)
    broken = {fault.law for fault in raised.value.checked.broken}
    if faulty in ALSO_SEEN:
        assert ALSO_SEEN[faulty] in broken
    else:
        assert broken == {UNSEEN[faulty]}, raised.value


def test_every_law_of_other_examples_has_a_fault_that_it_alone_names():
    laws = {law.__name__ for law in OF_OTHERS} | {"encodes_the_rest_of_the_data"}
    assert laws <= set(UNSEEN.values())


def test_tokens_that_another_process_makes_otherwise_are_noticed(monkeypatch):
    right = [Sound().encode(raw) for raw in RAWS]
    for found in (right, right[::-1], ["an OSError"] * len(RAWS)):
        monkeypatch.setattr(another_process, "run_elsewhere", lambda *_, found=found: Made(found))
        with (
            nullcontext()
            if found is right
            else pytest.raises(AssertionError, match="example 0 encoded in another")
        ):
            is_the_same_in_another_process(Sound(), RAWS)


def test_a_thread_of_others_may_end_while_an_example_is_encoded():
    end, thread = threading.Event(), None

    class Waits(Sound):
        def encode(self, raw):
            self.count += 1
            if self.count == 2:  # from the second on, no import excuses a change
                end.set()
                thread.join()
            return super().encode(raw)

    thread = threading.Thread(target=end.wait)
    thread.start()
    check_tokenizer(Waits(), RAWS, other_process=False, only=["leaves_the_process_alone"])


def test_settings_that_no_attribute_is_named_after_need_an_unfitted_tokenizer():
    tokenizer = RenamesItsSettings(2.0)
    tokenizer.fit(Scaled.raws)
    with pytest.raises(ValueError, match="width"):
        check_tokenizer(tokenizer, Scaled.raws, other_process=False)
    check_tokenizer(tokenizer, Scaled.raws, unfitted=RenamesItsSettings(2.0), other_process=False)


@pytest.mark.parametrize(
    ("faulty", "law"),
    [
        (DeclaresAWrongVocabulary, "keeps_its_spec: example 0: content holds id 2"),
        (ReturnsATensor, "leaves_the_process_alone: encode gave a Tensor"),
        (ChangesItsSpec, "keeps_its_spec: encoding changed the spec"),
        (
            HasRandomPositions,
            "leaves_the_process_alone: example 0: encode changes the state of torch's global generator",
        ),
        (ChangesItsAxes, "can_be_batched: examples do not collate into one batch"),
        (CannotBePickled, "can_be_pickled: it cannot be pickled"),
        (ForgetsWhenCopied, "can_be_pickled: example 0 encoded by a copy has other content"),
        (DecodesWrongly, "decodes_what_it_encodes: example 0"),
        (DropsEveryOtherLetter, "reads_all_of_an_example: a change in .* of the places"),
        (StateIsNotJson, r"state_is_json_and_enough: state\(\) is not plain JSON"),
        (StateChangesInJson, "state_is_json_and_enough: state.. comes back from JSON changed"),
        (
            ForgetsItsState,
            "state_is_json_and_enough: example 0 encoded by a tokenizer that loaded the state",
        ),
        (AcceptsAnything, "refuses_with_a_reason: bad example 0 is encoded; raise DataError"),
        (RaisesIndexError, "refuses_with_a_reason: bad example 0 raises IndexError"),
        (
            RefusesInTwoLines,
            r"refuses_with_a_reason: bad example 0 is refused with 'the text\\nis empty'",
        ),
    ],
)
def test_a_law_notices_a_planted_fault_in_a_tokenizer(faulty, law):
    name, _, fault = law.partition(": ")
    with pytest.raises(AssertionError, match=f"{faulty.__name__}: {name}[^:]*: {fault}"):
        check_tokenizer(faulty(), RAWS, unfitted=faulty(), bad=[""], other_process=False)


def test_one_example_is_too_few():
    with pytest.raises(ValueError, match="1 raw examples"):
        check_tokenizer(Sound(), ["a"])


def test_every_registered_tokenizer_has_raw_examples(sample):
    assert len(sample.raws) >= 2
    assert sample.bad
    assert len(components("tokenizer")) >= 8
