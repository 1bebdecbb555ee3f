"""Runs of two processes with sharded weights on the CPU: the numbers of DDP, and resume points of whole tensors."""

import os
import signal
import sys

import pytest
import torch
from runs.test_distributed import WORDS, fitted_by_forks, logged, stopped_by_fork, text, weights, without

from seqkit.cli.main import main
from seqkit.files import read_mapping

__all__ = ["text"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or (os.cpu_count() or 1) < 2, reason="needs two cores on Linux"),
]

FSDP = ["--trainer.devices", "2", "--trainer.strategy", "fsdp"]
DDP = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
FAULTS = '''
import torch
from pytorch_lightning import Callback

from seqkit.registry import register
from seqkit.training.parallel import local_part


@register("callback")
class Poison(Callback):
    """After 3 steps one gradient is NaN: in DDP on all processes, where weights are sharded in the part of one."""

    def on_before_optimizer_step(self, trainer, module, optimizer):
        parts = [local_part(p.grad) for p in module.parameters() if p.grad is not None]
        is_whole = all(part is p.grad for part, p in zip(parts, module.parameters()))
        if trainer.global_step == 3 and (is_whole or trainer.global_rank == 1):
            next(part for part in parts if part.numel()).fill_(torch.nan)
'''


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "faults.py").write_text(FAULTS)
    return ["--plugin", str(tmp_path / "faults.py"), "--trainer.callbacks", "[Poison]", "--trainer.skip_nonfinite", "1"]


def test_weights_log_and_guard_are_those_of_ddp(text, plugin, tmp_path):
    """With clipping, accumulation, a step left out for a NaN in one process's part, activation checkpointing, and
    three validation batches for two processes."""
    words = without(WORDS, "--data.batch_size", "--data.valid_fraction", "--model.backbone.depth")
    words += ["--data", text, "--trainer.max_steps", "7", "--trainer.gradient_clip_val", "0.5", *plugin]
    words += ["--trainer.accumulate_grad_batches", "2", "--data.batch_size", "3", "--model.backbone.depth", "2"]
    words += ["--data.valid_fraction", "0.028", "--optimizer", "torch.optim.SGD", "--optimizer.lr", "0.1"]
    fitted_by_forks(*words, *DDP, "--out", str(tmp_path / "ddp"))
    said = fitted_by_forks(*words, *FSDP, "--trainer.activation_checkpointing", "true", "--out", str(tmp_path / "fsdp"))
    assert "the step was left out, 1 of 1" in said
    one, other = weights(tmp_path / "ddp"), weights(tmp_path / "fsdp")
    for name in one:
        torch.testing.assert_close(other[name], one[name], rtol=0, atol=1e-5, msg=name)
    one_log, other_log = logged(tmp_path / "ddp"), logged(tmp_path / "fsdp")
    assert one_log.keys() == other_log.keys()
    assert any(name == "valid/loss" for _, name in one_log)
    finite = {key: value for key, value in one_log.items() if value == value}
    assert {key: other_log[key] for key in finite} == pytest.approx(finite, rel=1e-4)
    summaries = [read_mapping(tmp_path / name / "summary.json") for name in ("ddp", "fsdp")]
    for key in ("steps", "skipped_steps", "tokens_seen", "num_parameters"):
        assert summaries[0][key] == summaries[1][key]
    assert summaries[0]["metrics"] == pytest.approx(summaries[1]["metrics"], rel=1e-4)


def test_a_stopped_run_goes_on_and_ends_as_the_whole_one(text, tmp_path):
    words = [*WORDS, "--data", text, "--trainer.max_steps", "60", "--trainer.checkpoint_every_n_steps", "7", *FSDP]
    words += ["--trainer.weights", "best", "--optimizer", "AdamW"]
    fitted_by_forks(*words, "--out", str(tmp_path / "whole"))
    stopped = tmp_path / "stopped"
    code, said = stopped_by_fork(0, stopped, *words, "--out", str(stopped), signum=signal.SIGUSR1)
    assert code == 128 + signal.SIGUSR1, said
    (point,) = stopped.glob("checkpoints/resume-*.ckpt")
    assert point.is_file()
    assert not list(stopped.glob("checkpoints/.*.part"))
    fitted_by_forks("--resume", str(stopped))
    one, other = weights(tmp_path / "whole"), weights(stopped)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert logged(tmp_path / "whole") == logged(stopped)
    assert main(["test", str(stopped)]) == 0
