"""What a checkpoint adds to Lightning's: random numbers of each process, seconds, and where it may be written."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqkit.errors import DataError
from seqkit.training import resume
from seqkit.training.interrupt import StopSignals
from seqkit.training.resume import FORMAT, KEY, REQUIRED, ResumeState, _rng, check_complete


def trainer(**settings):
    """What is asked of a trainer, which is in the middle of an epoch."""
    loop = SimpleNamespace(_should_accumulate=lambda: settings.get("accumulates", False))
    return SimpleNamespace(
        **{"global_rank": 0, "world_size": 1, "global_step": 3, **settings}, fit_loop=SimpleNamespace(epoch_loop=loop)
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
    resumed = ResumeState(dict, StopSignals())
    state = {"rng": states, "validation_follows": False, "epoch_ends": False, "epoch": 0, "step": 3}
    checkpoint = {KEY: state, "run": {"seconds": 0}}
    resumed.on_load_checkpoint(None, None, checkpoint)
    drawn()  # whatever runs before training draws its own
    resumed.on_train_start(trainer(global_rank=rank, world_size=2), None)
    assert drawn() == right[rank]
    assert right[0] != right[1]


def test_processes_draw_different_numbers_for_dropout_and_one_process_those_of_its_seed():
    facts, module = ResumeState(dict, StopSignals()), SimpleNamespace(seed=1)
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


def test_seconds_before_a_resume_are_counted(monkeypatch):
    monkeypatch.setattr(ResumeState, "_state", lambda *_: {})
    state, checkpoint = ResumeState(lambda: {"training": "abc"}, StopSignals()), {}
    state.on_load_checkpoint(None, None, {KEY: {}, "run": {"seconds": 1000.0}})
    state.on_fit_start(trainer(), None)
    state.on_save_checkpoint(trainer(is_global_zero=False), SimpleNamespace(num_steps=7), checkpoint)
    assert checkpoint["run"].pop("seconds") >= 1000
    assert checkpoint["run"] == {"format": FORMAT, "num_steps": 7, "data_sha256": {"training": "abc"}}


def complete():
    """What a checkpoint that can be resumed holds at least."""
    return {key: {} for key in REQUIRED} | {
        "optimizer_states": [{}], "lr_schedulers": [{}], "run": {"format": FORMAT}, "loops": {"fit_loop": {}},
        "state_dict": {"weight": 0},
    }  # fmt: skip


def test_a_checkpoint_of_another_format_or_without_what_lightning_would_leave_out_silently_is_refused():
    path = Path("resume-step=3.ckpt")
    check_complete(complete(), path, num_schedulers=1)
    for key in REQUIRED:
        without = complete()
        del without[key]
        with pytest.raises(DataError, match=rf"{path}.*{key}"):
            check_complete(without, path, num_schedulers=1)
    for key, value in (("optimizer_states", []), ("lr_schedulers", []), ("loops", {}), ("run", {"format": 1})):
        with pytest.raises(DataError, match="format" if key == "run" else key):
            check_complete(complete() | {key: value}, path, num_schedulers=1)


@pytest.mark.parametrize(
    ("settings", "is_point"),
    [({}, True), ({"accumulates": True}, False), ({"global_step": 9}, False), ({"global_step": 8}, True)],
)
def test_a_point_is_after_an_optimizer_step_that_is_not_the_last(settings, is_point):
    assert resume.is_point(trainer(**settings), SimpleNamespace(num_steps=9)) is is_point
