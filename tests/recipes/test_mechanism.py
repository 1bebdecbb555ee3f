"""The diagnostic tasks: every target is what a solver in plain Python finds, splits are disjoint, seeds decide all."""

from collections import Counter

import pytest
import torch

import seqkit
from seqkit.config import read_recipe
from seqkit.interfaces import IGNORE
from seqkit.recipes.mechanism.tasks import (
    Adding,
    AssociativeRecall,
    Copy,
    CylinderBellFunnel,
    InductionHeads,
    Parity,
    SelectiveCopy,
)

SIZES = {"num_train": 97, "num_test": 58}


def solve_copy(ids):
    """With 7 symbols, 3 blanks and the recall token 8."""
    symbols = [i for i in ids if i < 7]
    assert ids[len(symbols) :] == [7] * 3 + [8] * len(symbols)
    return [IGNORE] * (len(symbols) + 3) + symbols


def solve_selective_copy(ids):
    """With 7 symbols, of which 5 are there, and the recall token 8."""
    symbols = [i for i in ids if i < 7]
    assert len(symbols) == 5
    assert ids[-5:] == [8] * 5
    assert 8 not in ids[:-5]
    return [IGNORE] * (len(ids) - 5) + symbols


def solve_induction_heads(ids):
    """With the trigger 10."""
    assert ids.count(10) == 2
    assert ids[-1] == 10
    return [IGNORE] * (len(ids) - 1) + [ids[ids.index(10) + 1]]


def solve_associative_recall(ids):
    """With 3 pairs of keys 1 to 5 and values 6 to 12."""
    known = {ids[i]: ids[i + 1] for i in (0, 2, 4)}
    assert sorted(i for i in ids[6:] if i) == sorted(known)
    assert all(1 <= key < 6 <= value <= 12 for key, value in known.items())
    assert len(set(known.values())) == 3
    return [IGNORE] * 6 + [known.get(i, IGNORE) for i in ids[6:]]


def solve_joined_recall(ids):
    """With 3 pairs of keys 1 to 5 and values 6 to 12, of which a token has both: 7 ids for each key."""
    known = {pair // 7: 6 + pair % 7 for pair in ids[:3]}
    assert sorted(i for i in ids[3:] if i) == sorted(known)
    assert all(1 <= key < 6 for key in known)
    assert len(set(known.values())) == 3
    return [IGNORE] * 3 + [known.get(i, IGNORE) for i in ids[3:]]


def solve_parity(ids):
    odd = False
    for bit in ids:
        odd = odd != (bit == 1)
    return [IGNORE] * (len(ids) - 1) + [int(odd)]


def solve_adding(rows):
    marked = [i for i, (_, mark) in enumerate(rows) if mark == 1]
    assert {mark for _, mark in rows} == {0, 1}
    first, second = marked
    assert first < len(rows) // 2 <= second
    return rows[first][0] + rows[second][0]


TASKS = {
    "copy": (
        Copy(**SIZES, length=5, test_lengths=[5, 11], vocab_size=9, delay=3),
        solve_copy,
        [13, 25],
    ),
    "selective-copy": (
        SelectiveCopy(**SIZES, length=17, test_lengths=[17, 7], vocab_size=9, num_symbols=5),
        solve_selective_copy,
        [22, 12],
    ),
    "induction-heads": (
        InductionHeads(**SIZES, length=13, test_lengths=[7, 29], vocab_size=11),
        solve_induction_heads,
        [7, 29],
    ),
    "associative-recall": (
        AssociativeRecall(**SIZES, length=17, test_lengths=[11, 31], num_pairs=3, vocab_size=13),
        solve_associative_recall,
        [11, 31],
    ),
    "joined": (
        AssociativeRecall(
            **SIZES, length=9, test_lengths=[6, 9], num_pairs=3, vocab_size=13, joined=True
        ),
        solve_joined_recall,
        [6, 9],
    ),
    "parity": (Parity(**SIZES, length=13, test_lengths=[3, 13]), solve_parity, [3, 13]),
    "adding": (Adding(**SIZES, length=13, test_lengths=[13, 29]), solve_adding, [13, 29]),
}
PRESETS = [name for name in TASKS if name not in ("copy", "joined")]
"""Tasks beside the one that the recipe has without a preset."""


@pytest.fixture(params=TASKS)
def case(request):
    return TASKS[request.param]


def values(samples):
    return [(sample.raw.tolist(), torch.as_tensor(sample.label).tolist()) for sample in samples]


def test_the_targets_are_those_of_a_solver_in_plain_python(case):
    task, solve, _ = case
    splits = task.splits()
    for split in (
        splits.test,
        splits.valid,
        *([splits.train] if not isinstance(task, Parity) else []),
    ):
        for raw, label in values(split):
            assert label == pytest.approx(solve(raw))


def test_training_asks_for_the_parity_up_to_every_token_unless_told_otherwise():
    for ids, label in values(TASKS["parity"][0].splits().train):
        assert label == [solve_parity(ids[: i + 1])[-1] for i in range(len(ids))]
    for ids, label in values(Parity(**SIZES, length=13, every_token=False).splits().train):
        assert label == solve_parity(ids)


def test_the_splits_have_their_sizes_and_each_test_length_its_share(case):
    task, _, num_tokens = case
    splits = task.splits()
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (97, 58, 58)
    assert Counter(len(sample.raw) for sample in splits.test) == dict.fromkeys(num_tokens, 29)
    assert len({len(sample.raw) for sample in [*splits.train, *splits.valid]}) == 1


def test_no_input_is_in_two_splits(case):
    splits = case[0].splits()
    train, valid, test = (
        {str(raw) for raw, _ in values(split)}
        for split in (splits.train, splits.valid, splits.test)
    )
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_inputs_are_shared_out_even_where_there_are_few():
    """Of 32 sequences of 5 bits, the test split and validation have some, and training only the others."""
    splits = Parity(num_train=300, num_test=7, length=5).splits()
    held_out = {str(raw) for raw, _ in values([*splits.test, *splits.valid])}
    train = {str(raw) for raw, _ in values(splits.train)}
    assert len(train) + len(held_out) == 32
    with pytest.raises(ValueError, match="50 inputs of length 2"):
        Parity(num_train=300, num_test=50, length=2).splits()


def test_the_seed_decides_all_random_numbers(case):
    task = case[0]
    arguments = {name: getattr(task, name) for name in task.__dataclass_fields__}
    again, other = type(task)(**arguments), type(task)(**arguments | {"seed": 3})
    for split in ("train", "valid", "test"):
        assert values(getattr(again.splits(), split)) == values(getattr(task.splits(), split))
        assert values(getattr(other.splits(), split)) != values(getattr(task.splits(), split))


def test_what_is_held_out_does_not_depend_on_the_number_of_training_examples(case):
    task = case[0]
    arguments = {name: getattr(task, name) for name in task.__dataclass_fields__}
    more = type(task)(**arguments | {"num_train": 211}).splits()
    assert values(more.test) == values(task.splits().test)
    assert values(more.valid) == values(task.splits().valid)
    assert values(more.train)[:97] != values(more.test)[:97]


def test_every_class_has_a_name(case):
    task = case[0]
    splits = task.splits()
    if splits.names is None:
        assert all(isinstance(sample.label, float) for sample in splits.train)
    else:
        highest = max(int(sample.label.max()) for sample in [*splits.train, *splits.test])
        assert highest < len(splits.names)


@pytest.mark.parametrize(("power", "nearer"), [(0.01, True), (1.0, False)])
def test_queries_are_near_their_pairs_for_a_small_power(power, nearer):
    task = AssociativeRecall(
        num_train=500, num_test=10, length=46, num_pairs=3, vocab_size=13, power=power
    )
    queries = torch.stack([sample.raw for sample in task.splits().train])[:, 6:] > 0
    first, second = queries[:, :20].sum(), queries[:, 20:].sum()
    assert (first > 3 * second) == nearer
    assert first + second == 1500


def test_what_makes_no_task_is_refused(subtests):
    for make, settings, fact in (
        (Parity, {"num_train": 0}, "num_train=0 "),
        (Parity, {"test_lengths": [5, 5]}, "different"),
        (Parity, {"test_lengths": []}, "different"),
        (Parity, {"num_test": 10, "test_lengths": [3, 5, 7]}, "multiple of 3"),
        (AssociativeRecall, {"num_pairs": 5, "length": 14}, "length=14 .* 15 or more"),
        (AssociativeRecall, {"num_pairs": 5, "length": 9, "joined": True}, "length=9 .* 10 or"),
        (SelectiveCopy, {"num_symbols": 5, "test_lengths": [4]}, "length=4 "),
        (SelectiveCopy, {"num_symbols": 0}, "num_symbols=0"),
        (AssociativeRecall, {"num_pairs": 0}, "num_pairs=0"),
        (AssociativeRecall, {"num_pairs": 8, "vocab_size": 17}, "vocab_size=17 .* 18 or more"),
        (Copy, {"vocab_size": 3}, "vocab_size=3 .* 4 or more"),
        (Copy, {"delay": -1}, "delay=-1"),
        (InductionHeads, {"vocab_size": 2}, "vocab_size=2"),
        (InductionHeads, {"length": 2}, "3 or more"),
        (Adding, {"length": 1}, "2 or more"),
    ):
        with subtests.test(f"{make.__name__} {settings}"), pytest.raises(ValueError, match=fact):
            make(**settings)


def test_the_smallest_tasks_exist():
    for task in (
        Copy(num_train=1, num_test=1, length=2, vocab_size=4),
        SelectiveCopy(num_train=1, num_test=1, length=3, num_symbols=3, vocab_size=4),
        InductionHeads(num_train=1, num_test=1, length=3, vocab_size=6),
        AssociativeRecall(num_train=1, num_test=1, length=6, num_pairs=2, vocab_size=6),
        Adding(num_train=1, num_test=1, length=2),
    ):
        assert len(task.splits().train) == 1


@pytest.mark.filterwarnings(
    "ignore:.*(treespec, LeafSpec|does not have many workers|smaller than the logging)"
)
@pytest.mark.parametrize(
    "preset",
    [
        pytest.param(name, marks=() if name == "parity" else pytest.mark.slow)
        for name in ("debug", *PRESETS)
    ],
)
def test_every_preset_runs(preset, tmp_path):
    keys = {"trainer.enable_progress_bar": False, "trainer.max_steps": 2, "data.limit": 64}
    run = seqkit.fit(
        "mechanism/tasks",
        keys,
        preset=preset,
        out=tmp_path / "run",
        report=False,
        classical="off",
    )
    assert run.summary["state"] == "finished"
    assert set(run.summary["metrics"]) == {"loss", *run.objective.metrics(run.model.spec)}


def test_every_task_is_a_preset():
    assert set(PRESETS) <= set(read_recipe("mechanism/tasks")[1])


def test_a_cylinder_is_level_a_bell_rises_and_a_funnel_falls():
    splits, slopes = CylinderBellFunnel(num_train=300, num_test=10, length=128).splits(), {}
    for sample in splits.train:
        smooth = torch.nn.functional.avg_pool1d(sample.raw[None, :, 0], 9, 1)[0]
        (event,) = smooth[smooth > 2][None]
        half = len(event) // 2
        slopes.setdefault(splits.names[sample.label], []).append(
            float(event[half:].mean() - event[:half].mean())
        )
    mean = {name: sum(each) / len(each) for name, each in slopes.items()}
    assert abs(mean["cylinder"]) < 0.3
    assert mean["bell"] > 1
    assert mean["funnel"] < -1
