from dataclasses import dataclass

import pytest
import torch

from seqkit.data import Noise, Shift, SpeedPerturb
from seqkit.data.batching import LengthGroupedBatchSampler
from seqkit.data.dataset import TextWindows, TokenizedDataset, collate_targets
from seqkit.data.source import Sample
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, Adjacency, TokenBatch, Tokenizer, Tokens, TokenSpec
from seqkit.raw import Waveform


class Letters(Tokenizer):
    """Character codes; counts the calls of `encode`."""

    def __init__(self):
        self.asked = 0

    @property
    def spec(self):
        return TokenSpec(vocab_size=128)

    def encode(self, raw, /):
        self.asked += 1
        if not raw:
            raise DataError("text is empty")
        content = torch.tensor([ord(c) for c in raw])
        return Tokens(content, torch.arange(len(raw), dtype=torch.float32)[:, None])


@dataclass
class Repeat:
    """Appends a random number of z."""

    most: int = 11

    def __call__(self, raw):
        return raw + "z" * int(torch.randint(1, self.most, ()))


SAMPLES = [Sample("abcdefghijklm"[:n], n) for n in (3, 7, 2, 5, 11)]


# ── whole samples ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_the_collated_samples_encoded_once():
    tokenizer = Letters()
    encoded = TokenizedDataset(SAMPLES, tokenizer, "training")
    expected = TokenBatch.collate([Letters().encode(SAMPLES[i].raw) for i in (4, 0, 3)])
    for epoch in range(3):
        batch, labels = encoded[epoch, [4, 0, 3]]
        assert torch.equal(batch.content, expected.content)
        assert torch.equal(batch.valid, expected.valid)
        assert labels.tolist() == [11, 3, 5]
    assert tokenizer.asked == len(SAMPLES)
    assert encoded.lengths == [3, 7, 2, 5, 11]


def test_longer_examples_end_at_max_tokens_with_their_labels_and_are_counted(caplog):
    labels = [torch.arange(len(sample.raw)) for sample in SAMPLES]
    samples = [Sample(sample.raw, label) for sample, label in zip(SAMPLES, labels)]
    encoded = TokenizedDataset(samples, Letters(), "training", max_tokens=5)
    assert encoded.lengths == [3, 5, 2, 5, 5]
    assert "3 of 5 training examples have 5 tokens or more and end there" in caplog.text
    batch, found = encoded[0, [1, 4]]
    assert batch.content.tolist() == [[ord(c) for c in "abcde"]] * 2
    assert found.tolist() == [[0, 1, 2, 3, 4]] * 2
    several = [Sample("abcdef", torch.tensor([0.5, 1.5, 2.5])), Sample("ab", torch.tensor([1.0, 2.0, 3.0]))]
    whole = TokenizedDataset(several, Letters(), "training", max_tokens=2)
    assert whole.targets[0].tolist() == [0.5, 1.5, 2.5], "targets of the example, not of its tokens"


def test_tokens_with_edges_or_on_several_axes_are_not_cut():
    edges = Adjacency(torch.tensor([[0, 1], [1, 0]]), torch.ones(2, dtype=torch.int64))
    graph = Tokens(torch.zeros(3, 1), torch.zeros(3, 0), edges)
    image = Tokens(torch.zeros(3, 1), torch.zeros(3, 2))
    for tokens, why in ((graph, "edges"), (image, "several axes")):
        assert tokens.first(3) is tokens
        with pytest.raises(
            DataError, match=rf"3 tokens with .*{why}.* cannot be cut to 2; leave --data\.max_tokens out"
        ):
            tokens.first(2)


def test_an_example_that_is_much_longer_than_the_others_is_named(caplog):
    TokenizedDataset([*SAMPLES, Sample("y" * 999, 1)], Letters(), "training")
    assert "longest" not in caplog.text
    TokenizedDataset([*SAMPLES, Sample("y" * 1000, 1)], Letters(), "training")
    assert "the longest training example, sample 5, has 1,000 tokens and the median 6" in caplog.text
    assert "--data.max_tokens N cuts it" in caplog.text


class Hundreds(Tokenizer):
    """A token for each 100 samples of sound, and for the rest."""

    spec = TokenSpec(vocab_size=2)

    def encode(self, raw, /):
        n = -(-raw.samples.shape[-1] // 100)
        return Tokens(torch.zeros(n, dtype=torch.int64), torch.arange(n, dtype=torch.float32)[:, None])


SOUNDS = [Sample(Waveform(0.1 * torch.ones(1, 811 + 37 * i), 8000)) for i in range(31)]


def test_augmented_sounds_are_sorted_by_how_long_they_become():
    encoded = TokenizedDataset(SOUNDS, Hundreds(), "training", augment=[SpeedPerturb(), Shift(), Noise()], seed=3)
    for epoch in range(3):
        state = torch.get_rng_state()
        keys = encoded.sort_keys(epoch)
        assert torch.equal(torch.get_rng_state(), state)
        lengths = encoded[epoch, list(range(31))][0].valid.sum(dim=1)
        assert lengths.tolist() == [-(-round(8000 * seconds) // 100) for seconds in keys]
    assert encoded.sort_keys(0) != encoded.sort_keys(1)


def test_what_follows_an_augmentation_of_unknown_draws_is_not_foreseen():
    encoded = TokenizedDataset(SOUNDS, Hundreds(), "training", augment=[Noise(), Shift()])
    assert encoded.sort_keys(0) == [len(sample.raw.samples[0]) / 8000 for sample in SOUNDS]
    texts = TokenizedDataset(SAMPLES, Letters(), "training", augment=[Repeat()])
    assert texts.sort_keys(0) == texts.lengths == [3, 7, 2, 5, 11]


def test_without_a_cache_each_batch_is_encoded_anew():
    tokenizer = Letters()
    encoded = TokenizedDataset(SAMPLES, tokenizer, "training", cache=False)
    encoded[0, [1, 2]]
    assert tokenizer.asked == len(SAMPLES) + 2


def test_augmentation_depends_on_seed_epoch_and_example_alone():
    encoded = TokenizedDataset(SAMPLES, Letters(), "training", augment=[Repeat(101)], seed=3)
    alone, together = encoded[2, [1]][0], encoded[2, [0, 1, 4]][0]
    n = int(alone.valid.sum())
    assert n > 7
    assert torch.equal(together.content[1, : int(together.valid[1].sum())], alone.content[0])
    sizes = {int(encoded[epoch, [1]][0].valid.sum()) for epoch in range(7)}
    assert len(sizes) > 4
    assert (
        int(TokenizedDataset(SAMPLES, Letters(), "training", augment=[Repeat(101)], seed=4)[2, [1]][0].valid.sum()) != n
    )


def test_examples_of_one_batch_are_augmented_independently_of_each_other():
    encoded = TokenizedDataset([Sample("abc")] * 11, Letters(), "training", augment=[Repeat(101)])
    assert len(set(encoded[0, list(range(11))][0].valid.sum(dim=1).tolist())) > 5


def test_augmentation_leaves_the_callers_random_numbers_alone():
    encoded = TokenizedDataset(SAMPLES, Letters(), "training", augment=[Repeat()])
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    encoded[0, [0, 1]]
    assert torch.equal(torch.rand(3), expected)


def test_encoding_leaves_the_number_of_threads_alone():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        TokenizedDataset(SAMPLES, Letters(), "training", augment=[Repeat()])[0, [0]]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_sample_that_cannot_be_encoded_is_named_with_its_split():
    with pytest.raises(DataError, match="test data, sample 1: text is empty"):
        TokenizedDataset([Sample("a"), Sample("")], Letters(), "test")


def test_extents_are_the_last_positions_by_axis():
    assert TokenizedDataset([Sample("abc"), Sample("abcde")], Letters(), "training").extents == [[2.0, 4.0]]


def test_labels_per_token_must_be_as_many_as_tokens():
    with pytest.raises(DataError, match="training data, sample 0 has 2 labels for 3 tokens"):
        TokenizedDataset([Sample("abc", torch.tensor([0, 1]))], Letters(), "training")
    with pytest.raises(DataError, match="training data, sample 0 has 2 labels for 3 tokens"):
        TokenizedDataset([Sample("abc", torch.zeros(2, 1))], Letters(), "training")


def test_the_objective_encodes_each_label_once_and_to_any_length():
    asked = []

    def ids(label):
        asked.append(label)
        return Letters().encode(label).content

    encoded = TokenizedDataset([Sample("abc", "de"), Sample("f", "ghijk")], Letters(), "training", encode_target=ids)
    for epoch in range(2):
        _, labels = encoded[epoch, [1, 0]]
        assert labels.tolist() == [[103, 104, 105, 106, 107], [100, 101, IGNORE, IGNORE, IGNORE]]
    assert asked == ["de", "ghijk"]


def test_a_label_that_cannot_be_encoded_is_named_with_its_split():
    samples = [Sample("abc", "d"), Sample("e", "")]
    with pytest.raises(DataError, match="test data, sample 1: text is empty"):
        TokenizedDataset(samples, Letters(), "test", encode_target=Letters().encode)


# ── targets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ([3, 5], torch.tensor([3, 5])),
        ([0.5, 2], torch.tensor([[0.5], [2.0]])),
        ([[0.5, 1.5], [2.5, 3.5]], torch.tensor([[0.5, 1.5], [2.5, 3.5]])),
        ([torch.tensor([0.5, 1.5])], torch.tensor([[0.5, 1.5]])),
        ([torch.tensor([3, 5]), torch.tensor([7])], torch.tensor([[3, 5], [7, IGNORE]])),
        (
            [torch.tensor([[3, 5, 2]]), torch.tensor([[7], [1]])],
            torch.tensor([[[3, 5, 2], [IGNORE] * 3], [[7, IGNORE, IGNORE], [1, IGNORE, IGNORE]]]),
        ),
        ([torch.tensor([0.5, 1.5]), torch.tensor([2.5])], torch.tensor([[0.5, 1.5], [2.5, torch.nan]])),
        ([torch.ones(1, 3), torch.zeros(2, 3)], torch.tensor([[[1.0] * 3, [torch.nan] * 3], [[0.0] * 3] * 2])),
    ],
)
def test_targets_are_collated_to_one_tensor(targets, expected):
    torch.testing.assert_close(collate_targets(targets), expected, equal_nan=True)


def test_no_targets_are_none_and_mixed_ones_an_error():
    assert collate_targets([None, None]) is None
    for targets in ([3, None], [[0.5], [0.5, 1.5]], ["cat", "dog"]):
        with pytest.raises(DataError, match="which are incompatible"):
            collate_targets(targets)


# ── windows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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
        rows = [row[valid] for b in read(windows, 3, epoch) for row, valid in zip(b.content, b.valid, strict=True)]
        assert len(rows) == len(windows)
        targets = [int(t) for row in rows for t in row[1:]]
        assert len(set(targets)) == len(targets)
        for row in rows:
            assert (row[1:] - row[:-1] == 1).all()
            assert int(row[-1]) % 1000 < sizes[int(row[0]) // 1000]


def test_every_epoch_cuts_elsewhere_until_all_tokens_were_predicted():
    windows = TextWindows([document(101)], 7, "training", shuffle=True)
    starts = [frozenset(int(row[0]) for b in read(windows, 5, epoch) for row in b.content) for epoch in range(97)]
    assert len(set(starts)) == 101 - 13 * 7
    assert set().union(*starts) == set(range(101 - 7))
    assert read(windows, 5, 3)[0].content.tolist() == read(windows, 5, 3)[0].content.tolist()


def first_starts(windows, epoch):
    """Where the first window of each document begins in it."""
    rows = [int(row[0]) for batch in read(windows, 13, epoch) for row in batch.content]
    return [min(start % 1000 for start in rows if start // 1000 == i) for i in range(len({x // 1000 for x in rows}))]


def test_every_document_has_a_shift_of_its_own_which_follows_from_the_seed():
    documents = [document(101, 1000 * i) for i in range(11)]
    shifts = {
        seed: [
            first_starts(TextWindows(documents, 7, "training", shuffle=True, seed=seed), epoch) for epoch in range(5)
        ]
        for seed in (0, 1)
    }
    assert all(len(set(each)) > 3 for each in [*shifts[0], *shifts[1]])
    assert not any(one == other for one, other in zip(shifts[0], shifts[1]))


def test_positions_of_a_window_start_again_and_padding_is_zero():
    windows = TextWindows([document(17, 50)], 7, "test", shuffle=False)
    batch, label = windows[0, [0, 2]]
    assert label is None
    assert batch.valid.sum(dim=1).tolist() == [8, 3]
    assert batch.positions[0, :, 0].tolist() == list(range(8))
    assert batch.positions[1, :, 0].tolist() == [0, 1, 2, 0, 0, 0, 0, 0]
    assert batch.content[1].tolist() == [64, 65, 66, 0, 0, 0, 0, 0]


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
    with pytest.raises(ValueError, match="window is 0"):
        TextWindows([document(5)], 0, "test", shuffle=False)


def test_a_window_that_no_training_document_fills_is_refused():
    assert len(TextWindows([document(3), document(8)], 7, "training", shuffle=True)) == 2
    with pytest.raises(ValueError, match="training data has 7 tokens; give a window of at most 6"):
        TextWindows([document(3), document(7)], 7, "training", shuffle=True)
    assert len(TextWindows([document(7)], 7, "test", shuffle=False)) == 1
