from dataclasses import dataclass

import pytest
import torch

from seqkit.data import Noise, Shift, SpeedPerturb
from seqkit.data.dataset import Augmentation, TokenizedDataset, collate_targets
from seqkit.data.sample import Sample, Samples
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, Adjacency, TokenBatch, Tokenizer, Tokens, TokenSpec
from seqkit.raw import Waveform
from seqkit.tokenizers import Patches


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
    several = [
        Sample("abcdef", torch.tensor([0.5, 1.5, 2.5])),
        Sample("ab", torch.tensor([1.0, 2.0, 3.0])),
    ]
    whole = TokenizedDataset(several, Letters(), "training", max_tokens=2)
    assert whole.targets[0].tolist() == [0.5, 1.5, 2.5], "targets of the example, not of its tokens"


class Points(Letters):
    spec = TokenSpec(vocab_size=128, is_set=True)


def test_a_set_is_not_cut():
    with pytest.raises(DataError, match=r"a set.*5; .*--data.max_tokens"):
        TokenizedDataset(SAMPLES, Points(), "training", max_tokens=5)


def test_tokens_with_edges_or_on_several_axes_are_not_cut():
    edges = Adjacency(torch.tensor([[0, 1], [1, 0]]), torch.ones(2, dtype=torch.int64))
    graph = Tokens(torch.zeros(3, 1), torch.zeros(3, 0), edges)
    image = Tokens(torch.zeros(3, 1), torch.zeros(3, 2))
    for tokens, why in ((graph, "edges"), (image, "several axes")):
        assert tokens.first(3) is tokens
        with pytest.raises(DataError, match=rf"3 tokens with .*{why}.* 2"):
            tokens.first(2)


def test_an_example_that_is_much_longer_than_the_others_is_named(caplog):
    TokenizedDataset([*SAMPLES, Sample("y" * 999, 1)], Letters(), "training")
    assert "longest" not in caplog.text
    TokenizedDataset([*SAMPLES, Sample("y" * 1000, 1)], Letters(), "training")
    assert (
        "the longest training example, sample 5, has 1,000 tokens and the median 6" in caplog.text
    )
    assert "--data.max_tokens N cuts examples" in caplog.text


def test_without_a_cache_each_batch_is_encoded_anew():
    tokenizer = Letters()
    encoded = TokenizedDataset(SAMPLES, tokenizer, "training", cache=False)
    encoded[0, [1, 2]]
    assert tokenizer.asked == len(SAMPLES) + 2


def test_augmentation_depends_on_seed_epoch_and_example_alone():
    encoded = TokenizedDataset(
        SAMPLES, Letters(), "training", augment=Augmentation([Repeat(101)], 3)
    )
    alone, together = encoded[2, [1]][0], encoded[2, [0, 1, 4]][0]
    n = int(alone.valid.sum())
    assert n > 7
    assert torch.equal(together.content[1, : int(together.valid[1].sum())], alone.content[0])
    sizes = {int(encoded[epoch, [1]][0].valid.sum()) for epoch in range(7)}
    assert len(sizes) > 4
    assert (
        int(
            TokenizedDataset(
                SAMPLES, Letters(), "training", augment=Augmentation([Repeat(101)], 4)
            )[2, [1]][0].valid.sum()
        )
        != n
    )


def test_an_image_that_is_augmented_is_read_once_and_stays_as_it_was():
    asked, images = [], torch.rand(2, 1, 4, 4)

    def read(index):
        asked.append(index)
        return images[index].clone()

    samples, augment = (
        Samples(read, [0, 1]),
        Augmentation([lambda image: image.mul_(torch.rand(()))]),
    )
    encoded = TokenizedDataset(samples, Patches(2), "training", augment=augment)
    first = encoded[0, [1]][0].content
    encoded[1, [0, 1]]
    assert torch.equal(encoded[0, [1]][0].content, first)
    assert asked == [0, 1]


def test_examples_of_one_batch_are_augmented_independently_of_each_other():
    encoded = TokenizedDataset(
        [Sample("abc")] * 11, Letters(), "training", augment=Augmentation([Repeat(101)])
    )
    assert len(set(encoded[0, list(range(11))][0].valid.sum(dim=1).tolist())) > 5


def test_augmentation_leaves_the_callers_random_numbers_alone():
    encoded = TokenizedDataset(SAMPLES, Letters(), "training", augment=Augmentation([Repeat()]))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    encoded[0, [0, 1]]
    assert torch.equal(torch.rand(3), expected)


def test_encoding_leaves_the_number_of_threads_alone():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        TokenizedDataset(SAMPLES, Letters(), "training", augment=Augmentation([Repeat()]))[0, [0]]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_sample_that_cannot_be_encoded_is_named_with_its_split():
    with pytest.raises(DataError, match="test data, sample 1: text is empty"):
        TokenizedDataset([Sample("a"), Sample("")], Letters(), "test")


def test_extents_are_the_last_positions_by_axis():
    assert TokenizedDataset([Sample("abc"), Sample("abcde")], Letters(), "training").extents == [
        [2.0, 4.0]
    ]


def test_labels_per_token_must_be_as_many_as_tokens():
    with pytest.raises(DataError, match=r"training data, sample 0 .*2 labels for 3"):
        TokenizedDataset([Sample("abc", torch.tensor([0, 1]))], Letters(), "training")
    with pytest.raises(DataError, match=r"training data, sample 0 .*2 labels for 3"):
        TokenizedDataset([Sample("abc", torch.zeros(2, 1))], Letters(), "training")


class Spelled:
    """An objective whose labels are texts."""

    def __init__(self):
        self.asked = []

    def encode_target(self, label):
        self.asked.append(label)
        return Letters().encode(label).content

    def check_target(self, target, num_tokens):
        pass


def test_the_objective_encodes_each_label_once_and_to_any_length():
    objective = Spelled()
    encoded = TokenizedDataset(
        [Sample("abc", "de"), Sample("f", "ghijk")],
        Letters(),
        "training",
        objective=objective,
    )
    for epoch in range(2):
        _, labels = encoded[epoch, [1, 0]]
        assert labels.tolist() == [[103, 104, 105, 106, 107], [100, 101, IGNORE, IGNORE, IGNORE]]
    assert objective.asked == ["de", "ghijk"]


def test_a_label_that_cannot_be_encoded_is_named_with_its_split():
    samples = [Sample("abc", "d"), Sample("e", "")]
    with pytest.raises(DataError, match="test data, sample 1: text is empty"):
        TokenizedDataset(samples, Letters(), "test", objective=Spelled())


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
        (
            [torch.tensor([0.5, 1.5]), torch.tensor([2.5])],
            torch.tensor([[0.5, 1.5], [2.5, torch.nan]]),
        ),
        (
            [torch.ones(1, 3), torch.zeros(2, 3)],
            torch.tensor([[[1.0] * 3, [torch.nan] * 3], [[0.0] * 3] * 2]),
        ),
    ],
)
def test_targets_are_collated_to_one_tensor(targets, expected):
    torch.testing.assert_close(collate_targets(targets), expected, equal_nan=True)


def test_no_targets_are_none_and_mixed_ones_an_error():
    assert collate_targets([None, None]) is None
    for targets in ([3, None], [[0.5], [0.5, 1.5]], ["cat", "dog"]):
        with pytest.raises(DataError, match="which are incompatible"):
            collate_targets(targets)


class Hundreds(Tokenizer):
    """A token for each 100 samples of sound, and for the rest."""

    spec = TokenSpec(vocab_size=2)

    def encode(self, raw, /):
        n = -(-raw.samples.shape[-1] // 100)
        return Tokens(
            torch.zeros(n, dtype=torch.int64), torch.arange(n, dtype=torch.float32)[:, None]
        )


SOUNDS = [Sample(Waveform(0.1 * torch.ones(1, 811 + 37 * i), 8000)) for i in range(31)]


def test_augmented_sounds_are_sorted_by_how_long_they_become():
    encoded = TokenizedDataset(
        SOUNDS, Hundreds(), "training", augment=Augmentation([SpeedPerturb(), Shift(), Noise()], 3)
    )
    for epoch in range(3):
        state = torch.get_rng_state()
        keys = encoded.sort_keys(epoch)
        assert torch.equal(torch.get_rng_state(), state)
        lengths = encoded[epoch, list(range(31))][0].valid.sum(dim=1)
        assert lengths.tolist() == [-(-round(8000 * seconds) // 100) for seconds in keys]
    assert encoded.sort_keys(0) != encoded.sort_keys(1)


def test_what_follows_an_augmentation_of_unknown_draws_is_not_foreseen():
    encoded = TokenizedDataset(
        SOUNDS, Hundreds(), "training", augment=Augmentation([Noise(), Shift()])
    )
    assert encoded.sort_keys(0) == [len(sample.raw.samples[0]) / 8000 for sample in SOUNDS]
    texts = TokenizedDataset(SAMPLES, Letters(), "training", augment=Augmentation([Repeat()]))
    assert texts.sort_keys(0) == texts.lengths == [3, 7, 2, 5, 11]
