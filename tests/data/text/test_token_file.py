"""Text encoded in pieces on disk is what it is in memory: ids, windows, faults, and the second time."""

import pytest
import torch

from seqkit.data import DataModule, TextFiles
from seqkit.data import module as data_module
from seqkit.data.dataset import TextWindows
from seqkit.errors import DataError
from seqkit.objectives import NextToken
from seqkit.tokenizers import BPE, Bytes, Characters, Words

TEXT = "".join(f"A word, {i * i} of them; né à Zürich 😀.\n" for i in range(997))


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch, tmp_path):
    monkeypatch.setattr("seqkit.data.text.documents.PIECE_BYTES", 4093)
    monkeypatch.setattr(data_module, "MIN_BYTES", 1)
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")


def data(folder, tokenizer, **options):
    options = {"window": 17, "valid_fraction": 0.0, "batch_size": 5, "seed": 3} | options
    made = DataModule(TextFiles(str(folder / "a.txt")), tokenizer, NextToken(), **options)
    made.setup()
    return made


@pytest.mark.parametrize("make", [Bytes, Characters, Words, lambda: BPE(300)])
def test_windows_from_the_disk_equal_those_from_memory(tmp_path, make):
    made = data(tmp_path, make())
    found = made.train_dataloader()
    documents = [made.tokenizer.encode(sample.raw) for sample in made.splits().train]
    assert len(documents) > 5
    assert found.examples.content.dtype.itemsize <= 2
    windows = TextWindows(documents, 17, "training", shuffle=True, seed=3)
    assert found.examples.lengths == windows.lengths
    for epoch in (0, 2):
        for batch in list(found.epoch_batches.all())[:7]:
            ours, theirs = found.examples[epoch, batch][0], windows[epoch, batch][0]
            assert torch.equal(ours.content, theirs.content)
            assert torch.equal(ours.positions, theirs.positions)


def test_the_second_time_nothing_is_encoded(tmp_path, monkeypatch):
    tokenizer = Characters()
    first = data(tmp_path, tokenizer)
    first.train_dataloader()
    first.test_dataloader()

    def encode(*_):
        raise AssertionError("it was encoded again")

    monkeypatch.setattr("seqkit.data.text.token_file._encode", encode)
    second = data(tmp_path, tokenizer)
    second.train_dataloader()
    second.test_dataloader()
    assert first.sha256() == second.sha256()
    (tmp_path / "a.txt").write_text(TEXT[1:], encoding="utf-8")
    with pytest.raises(AssertionError, match="encoded again"):
        data(tmp_path, tokenizer).train_dataloader()


def test_where_the_disk_is_full_ids_are_held_in_memory(tmp_path, monkeypatch, caplog):
    kept = data(tmp_path, Bytes()).train_dataloader().examples

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seqkit.data.text.token_file.cached", lambda _: None)
    monkeypatch.setattr("seqkit.data.text.token_file.writing", full)
    held = data(tmp_path, Bytes()).train_dataloader().examples
    assert "No space left" in caplog.text
    assert held.sha256 == kept.sha256
    assert (held.content == kept.content).all()


def test_what_cannot_be_encoded_is_named_with_split_and_place(tmp_path):
    tokenizer = Characters("".join(sorted(set(TEXT) - {"😀"})))
    tokenizer.unknown = "error"
    with pytest.raises(DataError, match=r"training data, .*a\.txt: character '😀'"):
        data(tmp_path, tokenizer).train_dataloader()


def test_a_failed_encoding_leaves_nothing_in_the_cache(tmp_path, monkeypatch):
    def fail(self, raw):
        if "500" in raw:
            raise DataError("a fault")
        return original(self, raw)

    original = Bytes.ids
    monkeypatch.setattr(Bytes, "ids", fail)
    with pytest.raises(DataError, match="a fault"):
        data(tmp_path, Bytes()).train_dataloader()
    assert not list((tmp_path / "cache").iterdir())
