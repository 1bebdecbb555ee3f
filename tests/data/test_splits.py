"""Splits by class and by group."""

from collections import Counter

import pytest

from seqkit.data.splits import by_group, lost_classes, shuffled, stratified

LABELS = [0] * 31 + [1] * 17 + [2] * 2 + [3]


def test_a_split_has_every_sample_once_and_the_fraction_of_each_class():
    rest, aside = stratified(LABELS, 0.2, seed=3)
    assert sorted(rest + aside) == list(range(len(LABELS)))
    # a class of one stays in the rest
    assert Counter(LABELS[i] for i in aside) == {0: 6, 1: 3, 2: 1}


def test_a_split_is_mixed_and_depends_on_the_seed_alone():
    rest, _ = stratified(LABELS, 0.2, seed=3)
    assert rest != sorted(rest)
    thousand = [c for c in range(10) for _ in range(100)]
    assert (
        min(
            len({thousand[i] for i in indices[:30]})
            for indices in stratified(thousand, 0.2, seed=0)
        )
        >= 8
    )
    assert stratified(LABELS, 0.2, seed=3)[0] == rest
    assert stratified(LABELS, 0.2, seed=5)[0] != rest
    # other samples, not another order alone
    assert set(stratified(LABELS, 0.2, seed=5)[0]) != set(rest)
    assert set(range(31)) & set(stratified(LABELS, 0.2, seed=5)[1]) != set(range(6))


def test_the_published_order_does_not_drift():
    assert shuffled(7, seed=0) == [6, 4, 2, 1, 5, 0, 3]


def test_measurements_are_one_stratum():
    rest, aside = stratified([0.5 * i for i in range(23)], 0.2, seed=0)
    assert (len(rest), len(aside)) == (18, 5)


def test_nothing_is_set_aside_at_fraction_zero_and_one_is_refused():
    assert stratified(LABELS, 0.0, seed=0)[1] == []
    with pytest.raises(ValueError, match=r"fraction is 1\.0"):
        stratified(LABELS, 1.0, seed=0)


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(6))
def test_one_big_group_is_not_the_part_that_is_set_aside(seed):
    groups = ["big"] * 900 + [f"small {i // 5}" for i in range(100)]
    rest, aside = by_group(groups, 0.05, seed)
    assert sorted(rest + aside) == list(range(1000))
    assert 50 <= len(aside) < 55
    assert not {groups[i] for i in rest} & {groups[i] for i in aside}


def test_groups_are_set_aside_in_the_order_of_sha256_and_mixed():
    groups = [f"{i // 10}" for i in range(70)]
    rest, aside = by_group(groups, 0.2, seed=0)
    assert {groups[i] for i in aside} == {str(i) for i in shuffled(7, 0)[:2]}
    assert rest != sorted(rest)
    assert by_group(groups, 0.0, seed=0)[1] == []


def test_a_sample_without_a_group_is_one_by_itself_and_one_of_two_groups_stays():
    rest, aside = by_group([None] * 10, 0.2, seed=0)
    assert (len(rest), len(aside)) == (8, 2)
    assert sorted(map(len, by_group(["a"] * 50 + ["b"] * 50, 0.2, seed=0))) == [50, 50]
    with pytest.raises(ValueError, match="one group"):
        by_group(["a"] * 3, 0.2, seed=0)


def in_both(parts, labels):
    return [{labels[i] for i in part} for part in parts]


@pytest.mark.parametrize("seed", range(9))
def test_groups_of_one_class_each_are_set_aside_from_every_class(seed):
    sizes = [3, 9, 2, 5, 4, 7, 3, 6]
    groups = [f"{number}" for number, size in enumerate(sizes) for _ in range(size)]
    labels = [int(group) % 2 for group in groups]
    parts = by_group(groups, 0.2, seed, labels)
    assert in_both(parts, labels) == [{0, 1}, {0, 1}]
    assert not {groups[i] for i in parts[0]} & {groups[i] for i in parts[1]}
    assert len(parts[1]) <= len(groups) / 2
    every = [i % 2 for i in range(len(groups))]
    assert by_group(groups, 0.2, seed, every) == by_group(groups, 0.2, seed), "no class was lost"
    measured = [0.5 * label for label in labels]
    assert by_group(groups, 0.2, seed, measured) == by_group(groups, 0.2, seed)


@pytest.mark.parametrize("seed", range(9))
def test_the_only_group_of_a_class_stays_in_training(seed):
    groups = [*"aabbccddee"]
    labels = [0] * 8 + [1] * 2
    parts = by_group(groups, 0.2, seed, labels)
    assert in_both(parts, labels) == [{0, 1}, {0}]


def test_splits_of_all_classes_and_of_measurements_lack_none():
    for labels in ([0, 1], [0.5, 1.5], ["a", "b"]):
        assert not [*lost_classes({"train": labels, "test": labels[::-1]}, None)]
    assert not [*lost_classes({"train": [0.5, 1.5], "test": [0.5]}, None)]
