"""Text tokenizers: decode inverts encode, ids index the alphabet, bad text is refused with its reason."""

import json
import pickle
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from seqkit.errors import DataError
from seqkit.tokenizers import Bytes, Characters, Words

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
ANY = st.text(min_size=1)  # half surrogate pairs too


@given(UNICODE)
def test_bytes_are_utf8_and_decode_to_the_text(text):
    tokens = Bytes().encode(text)
    assert tokens.content.tolist() == list(text.encode())
    assert Bytes().decode(tokens) == text
    Bytes().spec.check(tokens)


def test_bytes_cut_inside_a_character_become_the_replacement_character():
    assert Bytes().decode(torch.tensor(list("né".encode())[:-1])) == "n\ufffd"


def test_bytes_refuse_half_a_surrogate_pair():
    with pytest.raises(DataError, match="index 2"):
        Bytes().encode("ab\ud800")


@given(ANY)
def test_characters_decode_to_any_text_that_was_fitted(text):
    tokenizer = Characters()
    tokenizer.fit([text])
    tokens = tokenizer.encode(text)
    tokenizer.spec.check(tokens)
    assert tokenizer.decode(tokens) == tokenizer.decode(tokens.content.tolist()) == text
    assert tokens.content.tolist() == [sorted(set(text)).index(c) for c in text]


@given(ANY, UNICODE)
def test_unknown_characters_share_one_id_and_the_others_keep_theirs(known, text):
    tokenizer = Characters("".join(dict.fromkeys(known)), unknown="unk")
    tokens = tokenizer.encode(text)
    tokenizer.spec.check(tokens)
    assert tokenizer.decode(tokens) == "".join(c if c in known else "\ufffd" for c in text)


@given(ANY, UNICODE)
def test_a_reserved_id_is_the_last_and_comes_back_with_the_state(known, text):
    tokenizer, loaded = Characters(), Characters()
    tokenizer.fit([known])
    tokenizer.reserve_unknown()
    loaded.load_state(json.loads(json.dumps(tokenizer.state())))
    assert loaded.spec == tokenizer.spec
    assert tokenizer.unknown_id == len(set(known))
    for each in (tokenizer, loaded):
        assert each.decode(each.encode(text)) == "".join(
            c if c in known else "\ufffd" for c in text
        )


@given(ANY, UNICODE)
def test_what_a_text_lacks_is_counted(known, text):
    characters = Characters()
    characters.fit([known])
    missing, number = characters.missing(text)
    assert missing == Counter(c for c in text if c not in known)
    assert number == len(text)


def test_words_count_what_is_not_in_the_vocabulary():
    words = Words(2)
    words.fit(["a a b b c"])
    assert words.missing("a c d, c") == (Counter({"c": 2, "d": 1, ",": 1}), 5)
    assert (words.unknown_id, Bytes().unknown_id) == (0, None)
    assert Bytes().missing("abc") == (Counter(), 3)


def test_an_id_for_the_unknown_is_not_reserved_against_what_was_asked_for():
    refusing, sharing = Characters("ab", unknown="error"), Characters("ab", unknown="unk")
    for tokenizer in (refusing, sharing):
        size = tokenizer.vocab_size
        tokenizer.reserve_unknown()
        assert tokenizer.vocab_size == size
    with pytest.raises(ValueError, match="leave `unknown` out"):
        sharing.load_state({"alphabet": "ab", "unk": True})


@pytest.mark.parametrize("size", [3, 255, 256, 300])
def test_ids_are_places_in_the_alphabet_and_what_is_unknown_has_the_last(size):
    alphabet = "".join(map(chr, range(32, 32 + size)))
    text = alphabet + "\U0001f600" + alphabet[:2]
    ids = Characters(alphabet, unknown="unk").encode(text).content.tolist()
    assert ids == [alphabet.find(c) if c in alphabet else size for c in text]


def test_an_unknown_character_is_named_with_its_index():
    with pytest.raises(DataError, match=r"U\+00E9.*index 3"):
        Characters("abc").encode("abcé")
    # below the highest code point of the alphabet
    with pytest.raises(DataError, match=r"'b'.*index 0"):
        Characters("ac").encode("b")


def test_positions_count_tokens():
    assert_close(Bytes().encode("abc").positions, torch.tensor([[0.0], [1.0], [2.0]]))


def test_a_given_alphabet_keeps_its_order_through_fit():
    tokenizer = Characters("zya")
    tokenizer.fit(["other text"])
    assert tokenizer.encode("ayz").content.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    "make", [Characters, lambda: Characters(unknown="unk"), Words, lambda: Words(lowercase=True)]
)
def test_state_is_json_and_gives_the_same_tokenizer(make):
    fitted, loaded = make(), make()
    assert not fitted.was_fitted
    fitted.fit(["Thou art, é 😀 thou\nart!", "more \ud800"])
    loaded.load_state(json.loads(json.dumps(fitted.state())))
    for twin in (loaded, pickle.loads(pickle.dumps(fitted))):
        assert twin.was_fitted
        assert twin.spec == fitted.spec
        assert_close(twin.encode("art thou more").content, fitted.encode("art thou more").content)


def test_words_are_ordered_by_frequency_then_spelling():
    tokenizer = Words(3)
    tokenizer.fit(["b a, b", "a c"])
    assert tokenizer.words == ["a", "b", ","]
    assert tokenizer.encode("c b,a").content.tolist() == [0, 2, 3, 1]
    assert tokenizer.decode([0, 2, 3, 1]) == "\ufffd b, a"


def test_words_decode_to_the_text_up_to_spacing():
    tokenizer = Words()
    text = "Don't (really) go, he said; no!"
    tokenizer.fit([text])
    assert tokenizer.decode(tokenizer.encode("Don't\n(really) go ,he said ; no !")) == text
    lower = Words(lowercase=True)
    lower.fit([text])
    assert lower.decode(lower.encode(text)) == text.lower()


@pytest.mark.parametrize("make", [Characters, Words])
def test_an_unfitted_tokenizer_is_refused_with_what_to_do(make):
    for use in (lambda: make().spec, lambda: make().encode("a"), lambda: make().decode([0])):
        with pytest.raises(ValueError, match=r"call fit\(texts\)"):
            use()
    assert make().state() == {}
    make().load_state({})


@pytest.mark.parametrize("tokenizer", [Bytes(), Characters("ab"), Words()], ids=repr)
@pytest.mark.parametrize(
    ("raw", "reason"), [(b"ab", "takes a str, but was given bytes"), ("", "the text is empty")]
)
def test_what_is_not_text_is_refused(tokenizer, raw, reason):
    with pytest.raises(DataError, match=reason):
        tokenizer.encode(raw)
    if isinstance(tokenizer, Words):
        with pytest.raises(DataError, match=reason):
            tokenizer.fit(["fine", raw])


def test_words_refuse_a_text_of_spaces():
    tokenizer = Words()
    with pytest.raises(DataError, match="no words"):
        tokenizer.fit([" \n"])
    tokenizer.fit(["a"])
    with pytest.raises(DataError, match="no words"):
        tokenizer.encode(" \n")


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda: Characters("aba"), "'a' more than once"),
        (lambda: Characters(""), "alphabet is empty"),
        (lambda: Characters("a", unknown="skip"), "give error or unk"),
        (lambda: Characters().fit("text"), r"fit\(\[text\]\)"),
        (lambda: Characters().fit([]), "no texts"),
        (lambda: Characters("ab").load_state({"alphabet": "abc"}), "another alphabet"),
        (lambda: Characters().load_state({"words": ["a"]}), "state of Characters"),
        (lambda: Words().load_state({"words": "ab"}), "state of Words"),
        (lambda: Words(0), "make it at least 1"),
        (lambda: Bytes().load_state({"a": 1}), "no fitted state"),
        (lambda: Bytes().decode([7, 256]), "id 256 is outside"),
        (lambda: Characters("ab").decode([-1]), "id -1 is outside"),
        (lambda: Bytes().decode(torch.tensor([0.5])), "sequence of integers"),
        (lambda: Bytes().decode([[1], [2]]), "sequence of integers"),
    ],
)
def test_wrong_use_is_refused_with_its_reason(use, reason):
    with pytest.raises(ValueError, match=reason):
        use()


def test_no_ids_decode_to_an_empty_text():
    assert Bytes().decode([]) == ""
