"""What a checkpoint adds to Lightning's: random numbers of each process, facts, and where it may be written."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqkit.errors import DataError
from seqkit.training import resume
from seqkit.training.checkpoint_files import Checkpoint
from seqkit.training.resume import FORMAT, KEY, RandomState, RunFacts, _rng, check_resumable


def trainer(**settings):
    """What is asked of a trainer, which is in the middle of an epoch."""
    loop = SimpleNamespace(_should_accumulate=lambda: settings.get("accumulates", False))
    return SimpleNamespace(
        **{"global_rank": 0, "world_size": 1, "global_step": 3, **settings},
        fit_loop=SimpleNamespace(epoch_loop=loop),
    )


@pytest.fixture(autouse=True)
def _random_numbers():
    """Leave the generators as they were."""
    before, numpy_before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    yield
    torch.set_rng_state(before)
    np.random.set_state(numpy_before)  # noqa: NPY002


def drawn():
    return float(torch.rand(())), float(np.random.rand())  # noqa: NPY002


@pytest.mark.parametrize("rank", [0, 1])
def test_each_process_goes_on_with_its_own_random_numbers(rank):
    states, right = [], []
    for seed in (5, 6):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        states.append(_rng())
        right.append(drawn())
    resumed = RandomState()
    state = {"rng": states, "validation_follows": False, "epoch_ends": False, "epoch": 0}
    resumed.on_load_checkpoint(None, None, {KEY: state})
    drawn()  # whatever runs before training draws its own
    resumed.on_train_start(trainer(global_rank=rank, world_size=2), None)
    assert drawn() == right[rank]
    assert right[0] != right[1]


def test_processes_draw_different_numbers_for_dropout_and_one_process_those_of_its_seed():
    facts, module = RunFacts(dict), SimpleNamespace(seed=1)
    numbers = []
    for rank in range(3):
        torch.manual_seed(1)
        facts.on_fit_start(trainer(global_rank=rank, world_size=3), module)
        numbers.append(float(torch.rand(())))
    assert len(set(numbers)) == 3
    torch.manual_seed(1)
    right = float(torch.rand(()))
    torch.manual_seed(1)
    facts.on_fit_start(trainer(), module)
    assert float(torch.rand(())) == right


@pytest.mark.parametrize("before", [0.0, 1000.0])
def test_seconds_before_a_resume_are_counted(monkeypatch, before):
    clock = iter([2.0, 5.0, 12.0])
    monkeypatch.setattr(resume, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    facts, checkpoint = RunFacts(lambda: {"config_sha256": "abc"}), {}
    if before:
        facts.on_load_checkpoint(None, None, {"run": {"seconds": before}})
    facts.on_fit_start(trainer(), None)
    facts.on_save_checkpoint(
        trainer(is_global_zero=False), SimpleNamespace(num_steps=7), checkpoint
    )
    found = checkpoint["run"]
    assert found["seconds"] == before + 7
    assert (found["format"], found["num_steps"], found["config_sha256"]) == (FORMAT, 7, "abc")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"run": {"format": 2}}, f"has format 2, .* {FORMAT}"),
        ({"run": {}}, "has format None"),
        ({"global_step": 4}, "step 3 by its name, but of step 4"),
    ],
)
def test_a_checkpoint_of_another_format_or_step_is_refused(wrong, message):
    found = Checkpoint(Path("resume-step=3.ckpt"), 3)
    right = {"run": {"format": FORMAT}, KEY: {}, "global_step": 3}
    check_resumable(right, found)
    with pytest.raises(DataError, match=message):
        check_resumable(right | wrong, found)


@pytest.mark.parametrize(
    ("settings", "is_point"),
    [
        ({}, True),
        ({"accumulates": True}, False),
        ({"global_step": 9}, False),
        ({"global_step": 8}, True),
    ],
)
def test_a_point_is_after_an_optimizer_step_that_is_not_the_last(settings, is_point):
    assert resume.is_point(trainer(**settings), SimpleNamespace(num_steps=9)) is is_point


def test_a_checkpoint_that_was_saved_without_the_callback_is_refused():
    with pytest.raises(DataError, match="RandomState from the start"):
        RandomState().on_load_checkpoint(None, None, {"state_dict": {}})
