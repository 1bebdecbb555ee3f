"""Documents: pieces join to the text, and what is held out are whole documents or ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqkit.data import documents
from seqkit.data.documents import cut, held_out, num_characters, pieces
from seqkit.data.sample import Sample, Samples


def text_of(samples):
    return "".join(sample.raw for sample in samples)


def texts(**given):
    return Samples.of([Sample(text, group=f"of {text}", name=name) for name, text in given.items()])


@given(text=st.text(min_size=1), share=st.floats(0.01, 0.99))
@pytest.mark.slow
def test_pieces_and_parts_join_to_the_text(text, share):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "PIECE_BYTES", 7)
        whole = texts(a=text)
        cut_up = pieces(whole)
        assert text_of(cut_up) == text
        assert all(len(sample.raw.encode(errors="surrogatepass")) <= 7 + 3 for sample in cut_up)
        assert {sample.group for sample in cut_up} == {f"of {text}"}
        front, back, _ = held_out(whole, share, seed=0)
        assert text_of(front) == text[: int(len(text) * (1 - share))]
        assert text_of(front) + text_of(back) == text


def test_a_piece_has_the_name_of_its_document_and_the_place_where_it_begins(monkeypatch):
    monkeypatch.setattr(documents, "PIECE_BYTES", 4)
    found = pieces(texts(a="zürich", b="xy"))
    assert [found.name(i) for i in range(len(found))] == ["a", "a from character 2 on", "b"]


def test_whole_documents_are_held_out_and_equal_ones_together():
    given = {f"{i}.txt": f"{i} " * (3 + i % 7) for i in range(97)} | {
        "twin.txt": "3 " * 6,
        "twin2.txt": "3 " * 6,
    }
    whole = texts(**given)
    rest, held, rule = held_out(whole, 0.2, seed=0)
    assert rule == f"{len(held)} of 99 whole documents, by SHA-256"
    assert {sample.name for sample in rest} | {sample.name for sample in held} == set(given)
    assert not {sample.raw for sample in rest} & {sample.raw for sample in held}
    assert 0.1 < num_characters(held) / num_characters(whole) <= 0.2


def test_what_is_held_out_depends_on_the_texts_and_the_seed_alone():
    each = [f"{i} " * 9 for i in range(31)]
    here = texts(**{f"{i}.txt": text for i, text in enumerate(each)})
    there = texts(**{f"x{i}.txt": text for i, text in reversed(list(enumerate(each)))})
    held = [
        {sample.raw for sample in held_out(samples, 0.2, seed=1)[1]} for samples in (here, there)
    ]
    assert held[0] == held[1]
    assert held[0] != {sample.raw for sample in held_out(here, 0.2, seed=2)[1]}


def test_few_long_documents_are_cut_at_their_ends():
    rest, held, rule = held_out(texts(a="0123456789", b="abcdefghij"), 0.1, seed=0)
    assert rule == "the end of each document"
    assert [text_of(part) for part in (rest, held)] == ["012345678abcdefghi", "9j"]


def test_a_document_of_one_character_is_not_all_that_is_held_out():
    rest, held, rule = held_out(texts(a="0123456789", b="x"), 0.15, seed=0)
    assert rule == "the end of each document"
    assert [text_of(part) for part in (rest, held)] == ["01234567", "89x"]


def test_of_a_large_text_no_more_than_a_limit_is_held_out(monkeypatch):
    monkeypatch.setattr(documents, "MAX_HELD_OUT", 5)
    _, held, _ = held_out(texts(a="é" * 1000), 0.1, seed=0)
    assert text_of(held) == "é" * 5


def test_the_parts_of_a_text_keep_label_group_and_name_and_empty_ones_are_left_out():
    front, back = cut(
        Samples.of([Sample("abcd", 3, "g", "n"), Sample("x", 5)]), lambda size: size // 2
    )
    assert [tuple(sample) for sample in front] == [("ab", 3, "g", "n")]
    assert [sample.raw for sample in back] == ["cd", "x"]
