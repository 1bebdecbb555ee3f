"""The order of a mixture's tasks and batches: a function of (seed, step), the same on every device."""

from types import SimpleNamespace

import pytest
import torch

from seqkit.data import mixture as module
from seqkit.data.batching import LengthGroupedBatchSampler
from seqkit.data.mixture import DRAWN, MixtureData, TaskBatches, TaskOrder
from seqkit.errors import UsageError


def samplers(**sizes):
    """A sampler of one example a batch for each task, of so many batches."""
    return {
        name: LengthGroupedBatchSampler([3] * size, 1, shuffle=True, seed=4)
        for name, size in sizes.items()
    }


@pytest.mark.parametrize("shares", [None, [1.0, 2.0, 5.0]])
def test_the_task_of_a_step_does_not_depend_on_where_one_begins(shares):
    order, number = TaskOrder(3, shares, seed=7), 2 * DRAWN + 31
    whole = order.steps(0, number)
    for first, last in ((0, 1), (2, 11), (DRAWN - 2, DRAWN + 3), (number - 1, number), (5, 5)):
        assert order.steps(first, last) == whole[first:last]
    for step in (0, 1, 4, DRAWN, number):
        assert order.count(step) == [whole[:step].count(task) for task in range(3)]
    assert TaskOrder(3, shares, seed=8).steps(0, number) != whole


def test_even_shares_give_each_task_one_step_of_every_round_in_an_order_that_changes():
    rounds = torch.tensor(TaskOrder(4, None, seed=1).steps(0, 400)).view(100, 4)
    assert bool((rounds.sort(dim=1).values == torch.arange(4)).all())
    assert len({tuple(one) for one in rounds.tolist()}) == 24  # all orders occur


def test_shares_are_those_of_the_steps_to_chance():
    """Within 4 standard deviations of a binomial distribution."""
    number, shares = 20_000, torch.tensor([1.0, 3.0, 6.0])
    counts = torch.tensor(TaskOrder(3, shares.tolist(), seed=0).count(number), dtype=torch.float64)
    p = shares.double() / shares.sum()
    assert bool(((counts - number * p).abs() < 4 * (number * p * (1 - p)).sqrt()).all())


@pytest.mark.parametrize(
    ("sampling", "right"),
    [
        ("even", None),
        ("proportional", [8.0, 2.0]),
        ({"temperature": 3.0}, [2.0, 2 ** (1 / 3)]),
        ({"b": 1.0, "a": 5.0}, [5.0, 1.0]),
    ],
)
def test_sampling_says_the_shares(sampling, right):
    tasks = {
        name: SimpleNamespace(num_workers=0, train_dataloader=lambda size=size: range(size))
        for name, size in (("a", 8), ("b", 2))
    }
    found = MixtureData(tasks, sampling).shares()
    assert found == right if right is None else found == pytest.approx(right)


def test_batches_of_a_task_come_in_the_order_of_its_own_epochs():
    """Three tasks of unlike lengths over several epochs of the mixture."""
    sizes = {"a": 5, "b": 2, "c": 9}
    batches, seen = (
        TaskBatches(samplers(**sizes), TaskOrder(3, None, seed=3)),
        {name: [] for name in sizes},
    )
    for epoch in range(7):
        keys = batches.batches(epoch)
        assert len(keys) == len(batches) == sum(sizes.values())
        for name, own_epoch, number in keys:
            seen[name].append((own_epoch, number))
    for name, size in sizes.items():
        assert seen[name] == [(i // size, i % size) for i in range(len(seen[name]))]
        assert abs(len(seen[name]) - 7 * 16 / 3) < 2


@pytest.mark.parametrize("accumulate", [1, 3])
def test_all_devices_have_the_same_task_in_every_step_and_no_batch_twice(monkeypatch, accumulate):
    world = 2
    monkeypatch.setattr(module, "rank_and_world_size", lambda: (0, world))
    batches = TaskBatches(samplers(a=13, b=6, c=20), TaskOrder(3, None, seed=3), accumulate)
    keys = batches.batches(0)
    size = accumulate * world
    assert len(keys) == len(batches) == size * sum(n // size for n in (13, 6, 20))
    assert len(set(keys)) == len(keys)
    for step in range(0, len(keys), size):  # rank r takes the batches r, r + world, … of it
        assert len({(name, epoch) for name, epoch, _ in keys[step : step + size]}) == 1


def test_a_task_with_fewer_batches_than_a_step_takes_is_refused():
    with pytest.raises(UsageError, match=r"task b has 2 batches.* 3 "):
        len(TaskBatches(samplers(a=5, b=2), TaskOrder(2, None, seed=0), 3))


def test_one_task_has_all_its_batches_even_those_that_fill_no_step():
    batches = TaskBatches(samplers(a=5), TaskOrder(1, None, seed=0), 3)
    assert batches.batches(2) == [("a", 2, i) for i in range(5)]
