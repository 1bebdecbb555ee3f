"""A stream gives the windows that map-style training gives, in another order, and goes on exactly where it stood."""

from collections import Counter
from itertools import pairwise

import pytest
import torch

from seqkit.data import DataModule, TextFiles
from seqkit.data.windows import TextWindows
from seqkit.errors import UsageError
from seqkit.interfaces import Tokens
from seqkit.objectives import NextToken
from seqkit.tokenizers import Bytes, Characters

TEXT = "".join(f"word {i * i % 1009}, and\n" for i in range(2003))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch, tmp_path):
    monkeypatch.setattr("seqkit.data.documents.STREAMED_PIECE_BYTES", 1021)
    monkeypatch.setattr("seqkit.data.text_stream.SHUFFLED_PIECES", 3)
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")


def loader(folder, tokenizer=None, num_workers=0, batches=50, **options):
    source = TextFiles(str(folder / "a.txt"), streaming=True, batches_per_epoch=batches)
    options = {"window": 17, "valid_fraction": 0.0, "batch_size": 5, "seed": 3, "num_workers": num_workers} | options
    data = DataModule(source, tokenizer or Bytes(), NextToken(), **options)
    data.setup()
    return data, data.train_dataloader()


def contents(batches):
    return [batch.content.tolist() for batch, _ in batches]


def test_a_pass_has_the_windows_that_map_style_training_has_in_that_epoch(tmp_path):
    data, found = loader(tmp_path)
    documents = [Bytes().encode(sample.raw) for sample in data.splits().train]
    windows = TextWindows(documents, 17, "training", shuffle=True, seed=3)
    rows = found.stream._rows(0, [0, 0, 0])
    for epoch in range(2):
        ours = Counter(tuple(next(rows)[0].tolist()) for _ in range(len(windows)))
        theirs = Counter(map(tuple, windows[epoch, list(range(len(windows)))][0].content.tolist()))
        assert ours == theirs


def test_windows_are_shuffled_anew_in_every_pass(tmp_path):
    data, found = loader(tmp_path)
    number = 40
    rows = found.stream._rows(0, [0, 0, 0])
    first = [tuple(next(rows)[0].tolist()) for _ in range(number)]
    again = [tuple(row.tolist()) for row, _ in zip_first(found.stream._rows(0, [1, 0, 0]), number)]
    assert first != again
    text = Bytes().encode("".join(sample.raw for sample in data.splits().train)).content.tolist()
    starts = [find(text, row) for row in first]
    assert sum(a < b for a, b in pairwise(starts)) < 0.8 * number


def zip_first(rows, number):
    return [next(rows) for _ in range(number)]


def find(text, row):
    return next(i for i in range(len(text)) if text[i : i + len(row)] == list(row))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("taken", [1, 20, 49, 50])
def test_a_stream_resumes_with_the_batch_that_it_would_have_had(tmp_path, num_workers, taken):
    _, whole = loader(tmp_path, num_workers=num_workers)
    expected = contents(whole) + contents(whole)
    _, stopped = loader(tmp_path, num_workers=num_workers)
    batches = iter(stopped)
    seen = [next(batches)[0].content.tolist() for _ in range(taken)]
    state = stopped.state_dict()
    _, resumed = loader(tmp_path, num_workers=num_workers)
    resumed.load_state_dict(state)
    rest = contents(resumed)
    assert len(rest) == (50 - taken or 50)
    assert (seen + rest + contents(resumed))[:100] == expected


def test_ranks_and_readers_share_a_pass_without_a_window_twice(tmp_path):
    data, found = loader(tmp_path, num_workers=2)
    stream = found.stream
    stream.world_size = 2
    documents = [Bytes().encode(sample.raw) for sample in data.splits().train]
    expected = len(TextWindows(documents, 17, "training", shuffle=True, seed=3))
    seen = Counter()
    for lane in range(4):
        for row, position in stream._rows(lane, [0, 0, 0]):
            if position[0] > 0:
                break
            seen[tuple(row.tolist())] += 1
    whole = Counter(
        map(tuple, TextWindows(documents, 17, "t", shuffle=True, seed=3)[0, list(range(expected))][0].content.tolist())
    )
    assert seen == whole


def test_characters_that_the_sample_lacks_share_an_id(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(TEXT + "😀" * 50 + TEXT, encoding="utf-8")
    monkeypatch.setattr("seqkit.data.module.STREAM_SAMPLE_BYTES", 5000)
    tokenizer = Characters()
    _, found = loader(tmp_path, tokenizer)
    rows = found.stream._rows(0, [0, 0, 0])
    seen = {token for _ in range(5000) for token in next(rows)[0].tolist()}
    assert tokenizer.unknown_id in seen


class Halves(Bytes):
    """Bytes at positions that a stream, which reads ids alone, would not give."""

    def encode(self, raw, /):
        tokens = super().encode(raw)
        return Tokens(tokens.content, tokens.positions / 2)


def test_what_a_stream_cannot_do_is_refused(tmp_path):
    for options in ({"window": None}, {"tokens_per_batch": 90}, {"tokenizer": Halves()}):
        with pytest.raises(UsageError, match=r"stream"):
            loader(tmp_path, **options)
    _, found = loader(tmp_path)
    found.stream.num_readers = 64
    with pytest.raises(UsageError, match="pieces of text for 64 readers"):
        next(found.stream._rows(0, [0, 0, 0]))
    with pytest.raises(UsageError, match=r"leave --data\.streaming out"):
        found.batch_indices()
    _, found = loader(tmp_path, num_workers=2)
    with pytest.raises(UsageError, match=r"resume with --data\.num_workers 1"):
        found.load_state_dict({"epoch": 0, "yielded": 1, "readers": [[[[0, 0, 5]], 0]]})


def test_a_window_longer_than_a_piece_leaves_whole_pieces(tmp_path):
    _, found = loader(tmp_path, window=5000)
    batch, _ = next(iter(found))
    assert torch.equal(batch.valid.sum(dim=1), torch.tensor([len(row) for row in batch_sizes(found)]))


def batch_sizes(found):
    rows = found.stream._rows(0, [0, 0, 0])
    return [next(rows)[0] for _ in range(5)]
