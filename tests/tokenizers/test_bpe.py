"""BPE: any Unicode text decodes to itself; merges shorten the training text; state is JSON of its own format only."""

import json
import os
import pickle
import random
import sys
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.tokenizers import BPE
from seqkit.tokenizers.bpe import _vocab_size_for

pytest.importorskip("tokenizers")
TEXT = "the cat that sat on the mat; that hat, that is. " * 70


@pytest.fixture(scope="module")
def bpe():
    tokenizer = BPE(271)
    tokenizer.fit([TEXT, "naïve 😀"])
    return tokenizer


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_unicode_text_decodes_to_itself(bpe, text):
    tokens = bpe.encode(text)
    bpe.spec.check(tokens)
    assert bpe.decode(tokens) == text


@pytest.mark.parametrize(
    "text",
    [
        " leading",
        "trailing \n\t ",
        "\x00",
        "e\u0301 is not \u00e9",
        "don 't , stop .",
        "\u2028\ufeff",
    ],
)
def test_spacing_and_normal_forms_are_kept(bpe, text):
    assert bpe.decode(bpe.encode(text)) == text


def test_vocabulary_has_the_wanted_size_and_shortens_its_text(bpe):
    assert bpe.spec.vocab_size == 271
    assert len(bpe.encode(TEXT)) < len(TEXT.encode()) / 1.7
    assert len(bpe.encode("qzx")) == 3  # bytes where nothing was merged


@given(
    st.lists(
        st.sampled_from([" ", "\n", "cat", "that's", "é", "7", ", ", "\t", "  ", "\r\n", "_"]),
        max_size=40,
    )
)
def test_a_long_text_is_encoded_in_parts_as_it_is_whole(pieces):
    bpe = fitted(271)
    text = "x" + "".join(pieces)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("seqkit.tokenizers.bpe._PART", 3)
        parts = bpe.encode(text).content.tolist()
    assert parts == bpe.encode(text).content.tolist()


@cache
def fitted(size):
    tokenizer = BPE(size)
    tokenizer.fit([TEXT, "naïve 😀"])
    return tokenizer


def test_the_vocabulary_grows_with_the_text_and_a_large_one_is_sampled(monkeypatch):
    tokenizer = BPE()
    tokenizer.fit([TEXT])
    assert [_vocab_size_for(10**n) for n in (2, 6, 9, 12)] == [512, 1024, 32768, 32768]
    monkeypatch.setattr("seqkit.tokenizers.bpe.MAX_TRAINING_BYTES", 30)
    small = BPE(257)
    small.fit(["ab ab ab"] * 50)
    assert small.vocab_size == 257


def test_state_is_json_and_gives_the_same_tokenizer(bpe):
    loaded = BPE(271)
    loaded.load_state(json.loads(json.dumps(bpe.state())))
    for twin in (loaded, pickle.loads(pickle.dumps(bpe))):
        assert twin.was_fitted
        assert twin.spec == bpe.spec
        assert_close(twin.encode(TEXT).content, bpe.encode(TEXT).content)


def test_training_does_not_change_the_environment(bpe, monkeypatch):
    for before in ("true", None):
        if before is None:
            monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
        else:
            monkeypatch.setenv("TOKENIZERS_PARALLELISM", before)
        BPE(257).fit(["ab"])
        assert os.environ.get("TOKENIZERS_PARALLELISM") == before


def test_generated_bytes_that_are_not_utf8_become_the_replacement_character(bpe):
    half = bpe.encode("\N{GREEK SMALL LETTER ALPHA}").content[:1]
    assert bpe.decode(half) == "\ufffd"


def test_an_unfitted_tokenizer_is_refused_with_what_to_do():
    for use in (lambda: BPE().spec, lambda: BPE().encode("a"), lambda: BPE().decode([0])):
        with pytest.raises(ValueError, match=r"call fit\(texts\)"):
            use()
    assert BPE().state() == {}
    BPE().load_state({})


@pytest.mark.parametrize(
    ("raw", "reason"), [(3, "given int"), ("", "empty"), ("a\udc00", "surrogate")]
)
def test_what_is_not_text_is_refused(bpe, raw, reason):
    with pytest.raises(DataError, match=reason):
        bpe.encode(raw)
    with pytest.raises(DataError, match=reason):
        BPE().fit(["fine", raw])


def test_wrong_use_is_refused_with_its_reason(bpe):
    with pytest.raises(ValueError, match="starts from the 256 bytes"):
        BPE(255)
    with pytest.raises(ValueError, match="outside the vocabulary"):
        bpe.decode([271])
    with pytest.raises(ValueError, match="not the JSON of a tokenizer"):
        BPE().load_state({"model": {"type": "BPE"}})
    with pytest.raises(ValueError, match="loads only what its own"):
        BPE().load_state({**bpe.state(), "pre_tokenizer": None})


@pytest.mark.parametrize(
    "change",
    [
        {"padding": {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_id": 0, "pad_token": "x"}},
        {"truncation": {"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}},
        {"added_tokens": [{"id": 9, "content": "a", "special": True}]},
        {"normalizer": {"type": "Lowercase"}},
        {"post_processor": {"type": "ByteLevel"}},
    ],
)  # fmt: skip
def test_what_another_tokenizer_has_is_refused_before_the_library_makes_it(bpe, change):
    with pytest.raises(ValueError, match=f"state has {next(iter(change))}"):
        BPE().load_state({**bpe.state(), **change})


@pytest.mark.parametrize(
    "change",
    [
        {"continuing_subword_prefix": "9" * 50},
        {"dropout": 0.5},
        {"unk_token": "a"},
        {"byte_fallback": True},
    ],
)
def test_a_model_of_another_kind_is_refused_before_the_library_makes_it(bpe, change, capfd):
    """The library ends with a stack on standard error where a prefix is longer than a token."""
    state = bpe.state()
    state["model"] |= change
    with pytest.raises(ValueError, match=f"state has {next(iter(change))}"):
        BPE().load_state(state)
    assert capfd.readouterr().err == ""


def test_a_state_whose_ids_have_gaps_is_refused(bpe):
    state = bpe.state()
    last = max(state["model"]["vocab"], key=state["model"]["vocab"].get)
    state["model"]["vocab"][last] = 4_000_000_000
    with pytest.raises(ValueError, match="271 tokens"):
        BPE().load_state(state)


def test_a_missing_library_is_an_error_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r'pip install "seqkit\[text\]"'):
        BPE()


def test_the_repr_is_the_constructor_as_it_was_called():
    fitted = BPE(300)
    fitted.fit(["a text"])
    assert (repr(fitted), repr(BPE())) == ("BPE(vocab_size=300)", "BPE()")


def test_a_small_text_gives_pieces_of_words_and_not_whole_words():
    words = ["".join(random.Random(i).choices("abcdef", k=9)) for i in range(40)]
    tokenizer = BPE(2000)
    tokenizer.fit(words)
    assert tokenizer.vocab_size < 320
    assert all(len(tokenizer.encode(word)) > 3 for word in words)
