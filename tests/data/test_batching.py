import pytest
import torch

from seqkit.data.batching import CHUNK, LengthGroupedBatchSampler, fold_seed

LENGTHS = torch.randint(2, 97, (5003,), generator=torch.Generator().manual_seed(0)).tolist()


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_example_is_in_one_batch_and_none_is_dropped(shuffle):
    batches = LengthGroupedBatchSampler(LENGTHS, 13, shuffle=shuffle).batches(epoch=2)
    assert sorted(i for batch in batches for i in batch) == list(range(5003))
    assert len(batches) == len(LengthGroupedBatchSampler(LENGTHS, 13, shuffle=shuffle)) == 385
    assert sorted(map(len, batches))[:2] == [5003 % 13, 13]


@pytest.mark.parametrize("lengths", [LENGTHS, [7] * 101])
def test_the_order_follows_from_seed_and_epoch(lengths):
    sampler, again, other = (
        LengthGroupedBatchSampler(lengths, 13, shuffle=True, seed=seed) for seed in (3, 3, 4)
    )
    assert list(sampler.batches(0)) == list(again.batches(0))
    assert list(sampler.batches(0)) != list(sampler.batches(1))
    assert list(sampler.batches(0)) != list(other.batches(0))


def padding(batches):
    longest = sum(len(batch) * max(LENGTHS[i] for i in batch) for batch in batches)
    return 1 - sum(LENGTHS) / longest


def test_batches_hold_similar_lengths_in_no_order_of_length():
    batches = LengthGroupedBatchSampler(LENGTHS, 13, shuffle=True).batches(0)
    assert padding(batches) < 0.03
    assert padding([batch.tolist() for batch in torch.randperm(5003).split(13)]) > 0.4
    means = torch.tensor([sum(LENGTHS[i] for i in batch) / len(batch) for batch in batches])
    assert abs(torch.corrcoef(torch.stack([means, torch.arange(len(means)).float()]))[0, 1]) < 0.2
    rises = (means[1:] > means[:-1]).float().mean()
    assert 0.4 < float(rises) < 0.6  # neighbours too


def test_an_example_has_other_batch_mates_in_other_epochs():
    sampler = LengthGroupedBatchSampler(LENGTHS, 13, shuffle=True)
    mates = [
        next(set(batch) for batch in sampler.batches(epoch) if 0 in batch) for epoch in range(3)
    ]
    assert len(mates[0] & mates[1] & mates[2]) < 13 // 2
    assert CHUNK * 13 < 5003


def test_evaluation_is_sorted_by_length():
    lengths = [
        LENGTHS[i]
        for batch in LengthGroupedBatchSampler(LENGTHS, 13, shuffle=False).batches(0)
        for i in batch
    ]
    assert lengths == sorted(lengths)


@pytest.mark.parametrize(
    ("seed", "first"), [(0, 0xE220A8397B1DCDAF), (1234567, 6457827717110365317)]
)
def test_one_number_is_folded_as_by_splitmix64(seed, first):
    """The upper half of the first number of that generator (Steele et al. 2014, as published by Vigna)."""
    assert fold_seed(seed) == first >> 32


def test_folded_seeds_differ_in_every_number():
    seeds = [fold_seed(a, b, c) for a in range(7) for b in range(11) for c in range(13)]
    assert len(set(seeds)) == 7 * 11 * 13
    assert all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize("how", [{"batch_size": 13}, {"batch_size": 999, "tokens_per_batch": 1024}])
def test_batches_are_grouped_by_the_lengths_of_the_epoch(how):
    def keys(epoch):
        order = torch.randperm(5003, generator=torch.Generator().manual_seed(epoch))
        return torch.tensor(LENGTHS)[order].tolist()

    sampler = LengthGroupedBatchSampler(LENGTHS, shuffle=True, sort_keys=keys, **how)
    for epoch in range(2):
        batches, now = sampler.batches(epoch), keys(epoch)
        assert sorted(i for batch in batches for i in batch) == list(range(5003))
        assert len(batches) == len(sampler)
        assert sum(now) / sum(len(batch) * max(now[i] for i in batch) for batch in batches) > 0.95
        assert padding(batches) > 0.3  # by what the lengths were
