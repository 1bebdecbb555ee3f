import pytest

from seqkit.config import complete
from seqkit.data import DataModule, Selection, TextFiles, TextFolder
from seqkit.errors import DataError
from seqkit.objectives import NextToken
from seqkit.tokenizers import Characters


def test_one_text_file_is_cut_and_of_several_whole_ones_are_held_out(tmp_path):
    (tmp_path / "c.md").write_text("not this")
    one = TextFiles([str(tmp_path / "c.md")]).splits()
    assert [s.raw for s in one.train] == ["not thi"]
    assert [s.raw for s in one.test] == ["s"]
    for i in range(10):
        (tmp_path / f"{i}.txt").write_text(f"{i}" * 10)
    splits = TextFiles(str(tmp_path / "*.txt"), test_fraction=0.2).splits()
    assert (len(splits.train), len(splits.test)) == (8, 2)
    assert {s.raw for s in (*splits.train, *splits.test)} == {f"{i}" * 10 for i in range(10)}


def test_empty_files_among_several_are_left_out_and_counted(tmp_path, caplog):
    for i in range(11):
        (tmp_path / f"{i}.txt").write_text(f"{i}" * 10 if i > 1 else "\n" * i)
    splits = TextFiles(str(tmp_path / "*.txt")).splits()
    assert len(splits.train) + len(splits.test) == 9
    assert "2 of 11 files are empty" in caplog.text
    assert "9 documents, 100 characters" in caplog.text


def test_held_out_characters_that_training_lacks_share_an_id(tmp_path, caplog):
    (tmp_path / "a.txt").write_text(
        "to be or not to be " * 20 + "a café, a naïve café", encoding="utf-8"
    )
    tokenizer = Characters()
    data = DataModule(
        TextFiles(str(tmp_path / "a.txt")),
        tokenizer,
        NextToken(),
        selection=Selection(window=7, valid_fraction=0.0),
    )
    data.setup()
    text = "".join(sample.raw for sample in data.splits().train)
    assert tokenizer.vocab_size == len(set(text)) + 1
    unknown = sum(c not in text for sample in data.splits().test for c in sample.raw)
    assert f"test data: {unknown} of 40 characters" in caplog.text
    data.train_dataloader()
    data.test_dataloader()
    assert data.unknown() == {"test": [unknown, 40]}


def test_a_text_without_unknown_characters_has_the_vocabulary_of_its_alphabet(tmp_path):
    (tmp_path / "a.txt").write_text("to be or not to be " * 20, encoding="utf-8")
    tokenizer = Characters()
    DataModule(
        TextFiles(str(tmp_path / "a.txt")),
        tokenizer,
        NextToken(),
        selection=Selection(window=7, valid_fraction=0.0),
    ).setup()
    assert tokenizer.vocab_size == len(set("to be or not to be "))


def test_text_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(DataError, match=r"no file matches .*\.rst"):
        TextFiles(str(tmp_path / "*.rst")).splits()
    with pytest.raises(DataError, match=r"none\.txt does not exist"):
        TextFiles(str(tmp_path / "none.txt")).splits()
    with pytest.raises(ValueError, match="empty list"):
        TextFiles([]).splits()
    with pytest.raises(ValueError, match="test_fraction is 1"):
        TextFiles("x", test_fraction=1).splits()


def test_a_text_too_short_to_be_cut_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    (tmp_path / "b.txt").write_text("to be or not to be", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.txt has 1 character"):
        TextFiles(str(tmp_path / "*.txt")).splits()


def test_the_splits_of_a_text_have_the_name_of_its_file(tmp_path):
    (tmp_path / "b.txt").write_text("to be or not to be", encoding="utf-8")
    source, tokenizer = TextFiles(str(tmp_path / "b.txt")), Characters()
    splits = DataModule(
        source, tokenizer, NextToken(), selection=Selection(window=3, valid_fraction=0.3)
    ).splits()
    for samples in (splits.train, splits.valid, splits.test):
        assert samples.name(0) == samples[:1].name(0) == str(tmp_path / "b.txt")
    assert splits.train[0].raw + splits.valid[0].raw + splits.test[0].raw == "to be or not to be"


# ── texts by class ───────────────────────────────────────────────────────────────────────────────────────────────────


def reviews(folder, suffix=".txt"):
    for label, word in (("neg", "bad"), ("pos", "good")):
        for i in range(10):
            path = folder / label / f"{i}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"a {word} film, number {i}\nand a second line")
    return folder


@pytest.mark.parametrize("suffix", [".txt", ".md"])
def test_a_folder_of_texts_by_class(tmp_path, suffix):
    splits = TextFolder(str(reviews(tmp_path, suffix))).splits()
    assert splits.names == ["neg", "pos"]
    assert (len(splits.train), len(splits.test)) == (16, 4)
    for sample in splits.train:
        assert ("good" in sample.raw) == (sample.label == 1)


def test_a_text_that_is_not_utf8_is_named(tmp_path):
    (reviews(tmp_path) / "pos" / "3.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"3\.txt is not UTF-8"):
        TextFolder(str(tmp_path)).splits()
    assert len(TextFolder(str(tmp_path), skip_bad=1).splits().train) == 15


def test_a_classifier_takes_a_folder_of_texts_by_class_and_a_language_model_takes_them_as_documents(
    tmp_path,
):
    for recipe, source in (("text/classify", "TextFolder"), ("text/char-lm", "TextFiles")):
        config = complete(recipe, "debug", {"data": str(reviews(tmp_path))})
        assert config["data"]["source"]["type"] == source


def test_files_of_a_folder_that_are_not_read_are_counted_once(tmp_path, caplog):
    reviews(tmp_path)
    for name in ("a.pdf", "b.pdf", "c.docx"):
        (tmp_path / name).write_bytes(b"%\0")
    complete("text/char-lm", "debug", {"data": str(tmp_path)})
    assert [record.message for record in caplog.records] == [
        f"{tmp_path}: not read are 2 .pdf, 1 .docx"
    ]


@pytest.mark.parametrize("names", [["a.txt"], ["a.txt", "b.txt"]])
def test_a_long_file_is_read_in_pieces_and_split_as_a_whole_one(tmp_path, monkeypatch, names):
    whole = {name: f"\ufeffa line, zürich {name}\r\n" * 97 for name in names}
    for name, text in whole.items():
        (tmp_path / name).write_bytes(text.encode())
    source = TextFiles([str(tmp_path / name) for name in names])
    expected = source.splits()
    monkeypatch.setattr("seqkit.data.sources.text.PIECE_CHARACTERS", 101)
    found = source.splits()
    assert len(found.train) > len(expected.train)
    assert found.rule == expected.rule
    for own, other in ((found.train, expected.train), (found.test, expected.test)):
        assert "".join(sample.raw for sample in own) == "".join(sample.raw for sample in other)
    assert found.train.name(1).endswith("a.txt from character 101 on")
    (tmp_path / "a.txt").write_bytes(b"text " * 97 + b"\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        source.splits()
