"""Batches of equal work, and what a loader leaves as it was."""

from itertools import pairwise

import pytest
import torch

from seqkit.data import batching
from seqkit.data.batching import BatchLoader, LengthGroupedBatchSampler

LENGTHS = torch.randint(2, 97, (1009,), generator=torch.Generator().manual_seed(0)).tolist()


class Numbers:
    """A data set whose batch is the epoch and the indices that it was asked for."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, key):
        return key


def loader(number=23, **settings):
    return BatchLoader(
        Numbers([7] * number), LengthGroupedBatchSampler([7] * number, 5, shuffle=True, **settings)
    )


# ── tokens_per_batch ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("batch_size", [13, 10_000])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_batch_has_at_most_so_many_tokens_and_examples_with_padding(shuffle, batch_size):
    sampler = LengthGroupedBatchSampler(LENGTHS, batch_size, shuffle=shuffle, tokens_per_batch=331)
    batches = sampler.batches(epoch=2)
    assert sorted(i for batch in batches for i in batch) == list(range(1009))
    assert len(batches) == len(sampler)
    assert max(len(batch) * max(LENGTHS[i] for i in batch) for batch in batches) <= 331
    assert max(map(len, batches)) <= batch_size


@pytest.mark.parametrize("batch_size", [13, 10_000])
@pytest.mark.parametrize("lengths", [LENGTHS, [5] * 101])
def test_a_batch_is_closed_only_where_one_more_example_would_be_too_much(lengths, batch_size):
    sampler = LengthGroupedBatchSampler(lengths, batch_size, shuffle=False, tokens_per_batch=100)
    for batch, after in pairwise(sampler.batches(0)):
        longest = lengths[after[0]]  # the next one by length
        assert len(batch) == batch_size or (len(batch) + 1) * longest > 100


def test_neighbours_of_equal_length_change_with_the_epoch():
    sampler = LengthGroupedBatchSampler([5] * 101, 10_000, shuffle=True, tokens_per_batch=20)
    groups = [{frozenset(batch) for batch in sampler.batches(epoch)} for epoch in range(2)]
    assert not groups[0] & groups[1]


def test_fewer_tokens_a_batch_than_the_longest_example_has_are_refused():
    with pytest.raises(ValueError, match="tokens_per_batch is 96"):
        LengthGroupedBatchSampler([3, 97], 4, shuffle=True, tokens_per_batch=96)
    assert len(LengthGroupedBatchSampler([3, 97], 4, shuffle=True, tokens_per_batch=97)) == 2


# ── a loader's state ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pass_draws_no_random_number_of_the_process():
    """Dropout would be another with another number of passes."""
    batches = loader()
    torch.manual_seed(5)
    right = torch.rand(3)
    torch.manual_seed(5)
    assert len(list(batches)) == 5
    assert torch.rand(3).equal(right)


def test_what_was_left_out_of_a_resumed_epoch_is_in_the_next_pass_over_it():
    batches = loader()
    batches.load_state_dict({"epoch": 1, "yielded": 2})
    rest = list(batches)
    batches.epoch_batches.set_epoch(1)
    whole = list(batches)
    assert len(whole) == 5
    assert rest == whole[2:]


def test_another_epoch_begins_at_its_first_batch():
    batches, straight = loader(), loader()
    batches.load_state_dict({"epoch": 1, "yielded": 2})
    batches.epoch_batches.set_epoch(3)
    straight.epoch_batches.set_epoch(3)
    assert list(batches) == list(straight)


def test_a_second_stop_in_one_epoch_is_counted_from_its_first_batch():
    batches, once, twice = loader(), loader(), loader()
    batches.epoch_batches.set_epoch(1)
    whole = list(batches)
    once.load_state_dict({"epoch": 1, "yielded": 2})
    assert once.state_dict() == {"epoch": 1, "yielded": 2}  # a stop before the first batch
    assert next(iter(once)) == whole[2]
    assert once.state_dict() == {"epoch": 1, "yielded": 3}
    twice.load_state_dict(once.state_dict())
    assert list(twice) == whole[3:]
    assert len(list(twice)) == 5
    assert twice.state_dict() == {"epoch": 2, "yielded": 5}


def test_every_pass_is_the_next_epoch_in_its_own_order():
    batches, sampler = loader(seed=3), LengthGroupedBatchSampler([7] * 23, 5, shuffle=True, seed=3)
    orders = []
    for epoch in range(3):
        passed = list(batches)
        assert [number for number, _ in passed] == [epoch] * 5
        assert (
            [indices for _, indices in passed]
            == list(sampler.batches(epoch))
            == list(batches.batch_indices())
        )
        orders.append(passed[0][1])
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_batches_made_ahead_in_threads_are_those_of_one_thread_also_after_a_resume(monkeypatch):
    monkeypatch.setattr(batching, "pin_memory", lambda batch: batch)  # which needs an accelerator
    ahead, plain = loader(), loader()
    ahead.threads = 3
    assert list(ahead) == list(plain)
    for _, _ in zip(range(2), ahead):  # left in the middle, with more batches on their way
        pass
    resumed = loader()
    resumed.threads = 3
    resumed.load_state_dict(ahead.state_dict())
    assert list(resumed) == list(plain)[2:]
    monkeypatch.setattr(Numbers, "__getitem__", lambda self, key: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        list(ahead)
