"""Documents in files: pieces join to the text, and what is held out are whole documents or ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqkit.data.documents import TextDocuments, scanned
from seqkit.errors import DataError


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr("seqkit.data.documents.PIECE_BYTES", 7)
    monkeypatch.setattr("seqkit.data.documents._CHUNK", 11)


def text_of(documents):
    return "".join(sample.raw for sample in documents)


def written(folder, **texts):
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return [scanned(folder / name) for name in texts]


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip), cut=st.floats(0.01, 0.99))
def test_pieces_and_parts_join_to_the_text(tmp_path_factory, text, cut):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text("\ufeff" + text, encoding="utf-8", newline="")
    span = scanned(path)
    assert span.num_characters == len(text)
    assert text_of(TextDocuments([span])) == text
    front, back, _ = TextDocuments([span]).held_out(cut, seed=0)
    assert text_of(front) == text[: int(len(text) * (1 - cut))]
    assert text_of(front) + text_of(back) == text


def test_whole_documents_are_held_out_and_equal_ones_together(tmp_path):
    texts = {f"{i}.txt": f"{i} " * (3 + i % 7) for i in range(97)} | {"twin.txt": "3 " * 6, "twin2.txt": "3 " * 6}
    documents = TextDocuments(written(tmp_path, **texts))
    rest, held, rule = documents.held_out(0.2, seed=0)
    assert "whole documents" in rule
    paths = [{span.path for span in part.spans} for part in (rest, held)]
    assert not paths[0] & paths[1]
    assert len(paths[0] | paths[1]) == 99
    assert not {span.sha256 for span in rest.spans} & {span.sha256 for span in held.spans}
    assert 0.1 < held.num_characters / documents.num_characters <= 0.2


def test_what_is_held_out_depends_on_the_texts_and_the_seed_alone(tmp_path):
    (tmp_path / "other").mkdir()
    texts = [f"{i} " * 9 for i in range(31)]
    here = written(tmp_path, **{f"{i}.txt": text for i, text in enumerate(texts)})
    there = written(tmp_path / "other", **{f"x{i}.txt": text for i, text in reversed(list(enumerate(texts)))})
    held = [{sample.raw for sample in TextDocuments(spans).held_out(0.2, seed=1)[1]} for spans in (here, there)]
    assert held[0] == held[1]
    assert held[0] != {sample.raw for sample in TextDocuments(here).held_out(0.2, seed=2)[1]}


def test_few_long_documents_are_cut_at_their_ends(tmp_path):
    documents = TextDocuments(written(tmp_path, a="0123456789", b="abcdefghij"))
    rest, held, rule = documents.held_out(0.1, seed=0)
    assert rule == "the end of each document"
    assert [text_of(part) for part in (rest, held)] == ["012345678abcdefghi", "9j"]


def test_a_document_of_one_character_is_not_all_that_is_held_out(tmp_path):
    rest, held, rule = TextDocuments(written(tmp_path, a="0123456789", b="x")).held_out(0.15, seed=0)
    assert rule == "the end of each document"
    assert [text_of(part) for part in (rest, held)] == ["01234567", "89x"]


def test_of_a_large_text_no_more_than_a_limit_is_held_out(tmp_path, monkeypatch):
    monkeypatch.setattr("seqkit.data.documents.MAX_HELD_OUT", 5)
    _, held, _ = TextDocuments(written(tmp_path, a="é" * 1000)).held_out(0.1, seed=0)
    assert text_of(held) == "é" * 5


@pytest.mark.parametrize("offset", [0, 3, 10, 11, 12, 40])
def test_a_byte_that_is_not_utf8_is_named_by_its_offset(tmp_path, offset):
    path = tmp_path / "a.txt"
    path.write_bytes(("é" * 30).encode()[:offset] + b"\xff" + b"x" * 30)
    with pytest.raises(DataError, match=rf"a\.txt is not UTF-8.*offset {offset - offset % 2}\b"):
        scanned(path)


def test_the_fingerprint_is_of_the_content(tmp_path):
    a, b = written(tmp_path, a="some text", b="some text")
    (c,) = written(tmp_path, c="some tex")
    prints = [TextDocuments([span]).key() for span in (a, b, c)]
    assert prints[0] == prints[1] != prints[2]


def test_a_file_that_has_gone_is_named(tmp_path):
    documents = TextDocuments(written(tmp_path, a="some text"))
    (tmp_path / "a").unlink()
    with pytest.raises(DataError, match="cannot be read any more"):
        documents[0]
