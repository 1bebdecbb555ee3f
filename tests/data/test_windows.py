"""Windows of documents: each token predicted once, positions as measured, and from the disk as from memory."""

from dataclasses import dataclass

import pytest
import torch
from data_records import records

from seqkit.data import DataModule, TextFiles, encoding, module, windows
from seqkit.data.batching import LengthGroupedBatchSampler
from seqkit.data.windows import TextWindows
from seqkit.errors import DataError
from seqkit.interfaces import Adjacency, TokenBatch, Tokens
from seqkit.objectives import NextToken
from seqkit.tokenizers import BPE, Bytes, Characters, Words


def document(n, start=0):
    return Tokens(torch.arange(start, start + n), torch.arange(n, dtype=torch.float32)[:, None])


def read(windows, batch_size, epoch=0):
    sampler = LengthGroupedBatchSampler(windows.lengths, batch_size, shuffle=windows.shuffle)
    return [windows[epoch, batch][0] for batch in sampler.batches(epoch)]


@pytest.mark.parametrize("sizes", [[101], [2], [71, 7, 1, 8, 3], [15, 14, 13]])
def test_evaluation_predicts_every_token_but_a_documents_first_exactly_once(sizes):
    documents = [document(n, 1000 * i) for i, n in enumerate(sizes)]
    seen = []
    for batch in read(TextWindows(documents, 7, "test", shuffle=False), 3):
        for row, valid in zip(batch.content, batch.valid, strict=True):
            row = row[valid]
            assert (row[1:] - row[:-1] == 1).all()  # neighbours in their document
            seen += row[1:].tolist()
    assert sorted(seen) == [int(t) for d in documents for t in d.content[1:]]


@pytest.mark.parametrize("sizes", [[101], [71, 7, 1, 8, 3, 2]])
def test_training_windows_stay_in_their_document_and_hardly_overlap(sizes):
    documents = [document(n, 1000 * i) for i, n in enumerate(sizes)]
    windows = TextWindows(documents, 7, "training", shuffle=True, seed=3)
    for epoch in range(23):
        rows = [
            row[valid]
            for b in read(windows, 3, epoch)
            for row, valid in zip(b.content, b.valid, strict=True)
        ]
        assert len(rows) == len(windows)
        targets = [int(t) for row in rows for t in row[1:]]
        assert len(set(targets)) == len(targets)
        for row in rows:
            assert (row[1:] - row[:-1] == 1).all()
            assert int(row[-1]) % 1000 < sizes[int(row[0]) // 1000]


def test_every_epoch_cuts_elsewhere_until_all_tokens_were_predicted():
    windows = TextWindows([document(101)], 7, "training", shuffle=True)
    starts = [
        frozenset(int(row[0]) for b in read(windows, 5, epoch) for row in b.content)
        for epoch in range(97)
    ]
    assert len(set(starts)) == 101 - 13 * 7
    assert set().union(*starts) == set(range(101 - 7))
    assert read(windows, 5, 3)[0].content.tolist() == read(windows, 5, 3)[0].content.tolist()


def first_starts(windows, epoch):
    """Where the first window of each document begins in it."""
    rows = [int(row[0]) for batch in read(windows, 13, epoch) for row in batch.content]
    return [
        min(start % 1000 for start in rows if start // 1000 == i)
        for i in range(len({x // 1000 for x in rows}))
    ]


def test_every_document_has_a_shift_of_its_own_which_follows_from_the_seed():
    documents = [document(101, 1000 * i) for i in range(11)]
    shifts = {
        seed: [
            first_starts(TextWindows(documents, 7, "training", shuffle=True, seed=seed), epoch)
            for epoch in range(5)
        ]
        for seed in (0, 1)
    }
    assert all(len(set(each)) > 3 for each in [*shifts[0], *shifts[1]])
    assert not any(one == other for one, other in zip(shifts[0], shifts[1]))


def test_index_positions_of_a_window_start_again_and_padding_is_zero():
    windows = TextWindows([document(17, 50)], 7, "test", shuffle=False)
    batch, label = windows[0, [0, 2]]
    assert label is None
    assert batch.valid.sum(dim=1).tolist() == [8, 3]
    assert batch.positions[0, :, 0].tolist() == list(range(8))
    assert batch.positions[1, :, 0].tolist() == [0, 1, 2, 0, 0, 0, 0, 0]
    assert batch.content[1].tolist() == [64, 65, 66, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("origin", [0.0, 1.0, 5.25])
def test_measured_positions_of_a_window_keep_their_distances_and_begin_as_their_document_does(
    origin,
):
    onsets = origin + torch.tensor([0.0, 0.25, 0.375, 2, 3.5, 3.75, 4, 9, 11, 16])[:, None]
    documents = [document(3), Tokens(torch.arange(10), onsets)]
    windows = TextWindows(documents, 3, "test", shuffle=False)
    batch, _ = windows[0, [0, 1, 2, 3]]
    assert batch.positions[0, :, 0].tolist() == [0, 1, 2, 0]
    expected = torch.stack(
        [onsets[start : start + 4] - onsets[start] + origin for start in (0, 3, 6)]
    )
    assert torch.equal(batch.positions[1:], expected)


def test_only_the_first_axis_of_positions_is_moved():
    grid = torch.cartesian_prod(torch.arange(5.0), torch.arange(3.0))
    batch, _ = TextWindows([Tokens(torch.arange(15), grid)], 4, "test", shuffle=False)[0, [1]]
    assert batch.positions[0].tolist() == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


def test_features_are_cut_as_content_is():
    ids, features = torch.randint(5, (17, 2)), torch.randn(17, 3)
    tokens = Tokens(ids, document(17).positions, features=features)
    batch, _ = TextWindows([tokens], 7, "test", shuffle=False)[0, [1, 2]]
    assert torch.equal(batch.features[0], features[7:15])
    assert torch.equal(batch.features[1, :3], features[14:])
    assert torch.equal(batch.content[1, :3], ids[14:])


@dataclass(frozen=True, slots=True)
class Weighed(Tokens):
    weight: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class WeighedBatch(TokenBatch):
    weight: torch.Tensor | None = None


def test_a_field_that_tokens_get_later_is_in_windows_and_in_their_digest(monkeypatch):
    monkeypatch.setattr(windows, "TokenBatch", WeighedBatch)
    given = [
        Weighed(torch.arange(9), document(9).positions, weight=torch.arange(9.0) + i)
        for i in range(2)
    ]
    found = [TextWindows([tokens], 4, "test", shuffle=False) for tokens in given]
    assert found[1][0, [1]][0].weight.tolist() == [[5, 6, 7, 8, 9]]
    assert found[0].sha256 != found[1].sha256


def test_documents_with_edges_are_refused():
    edges = Adjacency(torch.tensor([[0], [1]]), torch.tensor([1]))
    with pytest.raises(DataError, match="adjacency"):
        TextWindows([Tokens(torch.arange(5), torch.zeros(5, 0), edges)], 2, "test", shuffle=False)


def test_windows_of_vectors_are_cut_alike():
    content = torch.randn(17, 3)
    windows = TextWindows([Tokens(content, document(17).positions)], 7, "test", shuffle=False)
    batch, _ = windows[0, [1, 2]]
    assert torch.equal(batch.content[0], content[7:15])
    assert torch.equal(batch.content[1, :3], content[14:])
    assert batch.content[1, 3:].abs().sum() == 0


def test_windows_are_limited_and_their_faults_named():
    assert len(TextWindows([document(101)], 7, "test", shuffle=False, limit=5)) == 5
    with pytest.raises(DataError, match="no document of two tokens"):
        TextWindows([document(1), document(1)], 7, "test", shuffle=False)


def test_a_window_that_no_training_document_fills_is_refused():
    assert len(TextWindows([document(3), document(8)], 7, "training", shuffle=True)) == 2
    with pytest.raises(ValueError, match="7 tokens"):
        TextWindows([document(3), document(7)], 7, "training", shuffle=True)
    assert len(TextWindows([document(7)], 7, "test", shuffle=False)) == 1


# ── long texts, kept on disk ─────────────────────────────────────────────────────────────────────────────────────────

TEXT = "".join(f"A word, {i * i} of them; né à Zürich 😀.\n" for i in range(997))


@pytest.fixture
def long_text(monkeypatch, tmp_path):
    """A text of many pieces that is kept on disk."""
    monkeypatch.setattr("seqkit.data.documents.PIECE_BYTES", 4093)
    monkeypatch.setattr(module, "MIN_TEXT", 1)
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path / "a.txt"


def data(path, tokenizer, **options):
    options = {"window": 17, "valid_fraction": 0.0, "batch_size": 5, "seed": 3} | options
    made = DataModule(TextFiles(str(path)), tokenizer, NextToken(), **records(**options))
    made.setup()
    return made


class Timed(Bytes):
    """Bytes at the times at which a reader comes to them."""

    def encode(self, raw, /):
        tokens = super().encode(raw)
        return Tokens(
            tokens.content, (0.25 + 0.5 * (tokens.content % 3)).float().cumsum(0)[:, None]
        )


@pytest.mark.parametrize("make", [Bytes, Characters, Words, lambda: BPE(300), Timed])
def test_windows_from_the_disk_equal_those_from_memory(long_text, make):
    made = data(long_text, make())
    found = made.train_dataloader()
    documents = [made.tokenizer.encode(sample.raw) for sample in made.splits().train]
    assert len(documents) > 5
    windows = TextWindows(documents, 17, "training", shuffle=True, seed=3)
    assert (list(found.examples.lengths), found.examples.sha256) == (
        list(windows.lengths),
        windows.sha256,
    )
    assert found.examples.count(7) == windows.count(7)
    for epoch in (0, 2):
        for batch in list(found.batch_indices())[:7]:
            ours, theirs = found.examples[epoch, batch][0], windows[epoch, batch][0]
            assert torch.equal(ours.content, theirs.content)
            assert torch.equal(ours.positions, theirs.positions)


def test_a_long_text_takes_a_byte_for_each_on_disk(long_text, tmp_path):
    data(long_text, Bytes()).train_dataloader()
    size = sum(file.stat().st_size for file in (tmp_path / "cache").rglob("*.arrow"))
    assert size < 1.2 * len(TEXT.encode())  # of which 500 bytes a piece are Arrow's


def test_of_a_long_text_only_what_is_asked_for_is_encoded_and_the_second_time_nothing(
    long_text, tmp_path, monkeypatch
):
    first = data(long_text, Bytes())
    first.train_dataloader()
    assert len(list((tmp_path / "cache").iterdir())) == 1
    first.test_dataloader()
    monkeypatch.setattr(encoding, "_chunks", lambda *_: pytest.fail("it was encoded again"))
    second = data(long_text, Bytes())
    second.train_dataloader(), second.test_dataloader()
    assert first.sha256() == second.sha256()
    monkeypatch.undo()
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))
    long_text.write_text(TEXT[1:], encoding="utf-8")
    changed = data(long_text, Bytes())
    changed.train_dataloader()
    assert changed.sha256()["training"] != first.sha256()["training"]


def test_a_character_that_cannot_be_encoded_is_named_with_split_and_place(long_text, tmp_path):
    tokenizer = Characters("".join(sorted(set(TEXT) - {"😀"})))
    tokenizer.unknown = "error"
    with pytest.raises(DataError, match=r"training data, .*a\.txt: character '😀'"):
        data(long_text, tokenizer).train_dataloader()
    assert not list((tmp_path / "cache").iterdir())


def test_windows_of_many_documents_are_grouped_by_document_and_those_of_a_text_by_stretches():
    # one has nothing to predict
    documents = [document(n) for n in (9, 4, 1, 9, 9, 9, 9, 9, 9, 9, 9)]
    found = TextWindows(documents, 4, "test", shuffle=False)
    assert found.groups == [0, 0, 1, *(i for i in range(3, 11) for _ in range(2))]
    assert TextWindows(documents, 4, "test", shuffle=False, limit=3).groups == [0, 1, 2]
    text = TextWindows([document(4 * 90 + 1), document(3)], 4, "test", shuffle=False)
    assert text.groups == [i * 30 // 91 for i in range(91)]
