"""Runs of two processes with sharded weights on the CPU: the numbers of DDP, and resume points of whole tensors."""

import signal

import pytest
import torch
from runs.stopping import Kick
from runs.two_processes import (
    DDP,
    FSDP,
    SMALL,
    WORDS,
    check_alike,
    fitted,
    logged,
    needs_forks,
    stopped,
    weights,
)

from seqkit.cli.main import main
from seqkit.files import read_mapping

pytestmark = [pytest.mark.slow, needs_forks]

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
    return [
        "--plugin",
        str(tmp_path / "faults.py"),
        "--trainer.callbacks",
        "[Poison]",
        "--trainer.skip_nonfinite",
        "1",
    ]


def test_weights_log_and_guard_are_those_of_ddp(text_file, plugin, tmp_path):
    """With clipping, accumulation, a step left out for a NaN in one process's part, activation checkpointing, and
    three validation batches for two processes."""
    words = [
        *WORDS,
        "--data",
        text_file,
        "--trainer.max_steps",
        "7",
        "--trainer.gradient_clip_val",
        "0.5",
        *plugin,
    ]
    words += [
        "--trainer.accumulate_grad_batches",
        "2",
        "--data.batch_size",
        "3",
        "--model.backbone.depth",
        "2",
    ]
    words += [
        "--data.valid_fraction",
        "0.042",
        "--optimizer",
        "torch.optim.SGD",
        "--optimizer.lr",
        "0.1",
    ]
    fitted([*words, *DDP, "--out", str(tmp_path / "ddp")])
    said = fitted(
        [
            *words,
            *FSDP,
            "--trainer.activation_checkpointing",
            "true",
            "--out",
            str(tmp_path / "fsdp"),
        ]
    )
    assert "left out, 1 of 1" in said
    check_alike(weights(tmp_path / "fsdp"), weights(tmp_path / "ddp"))
    one_log, other_log = logged(tmp_path / "ddp"), logged(tmp_path / "fsdp")
    assert any(name == "valid/loss" for _, name in one_log)
    assert other_log == pytest.approx(one_log, rel=1e-4, nan_ok=True)
    summaries = [read_mapping(tmp_path / name / "summary.json") for name in ("ddp", "fsdp")]
    for key in ("steps", "skipped_steps", "tokens_seen", "num_parameters"):
        assert summaries[0][key] == summaries[1][key]
    assert summaries[0]["metrics"] == pytest.approx(summaries[1]["metrics"], rel=1e-4)


def test_a_stopped_run_goes_on_and_ends_as_the_whole_one(text_file, tmp_path):
    words = [*WORDS, *SMALL, *FSDP, "--data", text_file, "--trainer.max_steps", "12"]
    words += [
        "--trainer.checkpoint_every_n_steps",
        "3",
        "--trainer.weights",
        "best",
        "--optimizer",
        "AdamW",
    ]
    fitted([*words, "--out", str(tmp_path / "whole")])
    folder = tmp_path / "stopped"
    code, said = stopped([*words, "--out", str(folder)], 0, Kick(5, number=signal.SIGUSR1))
    assert code == 128 + signal.SIGUSR1, said
    (point,) = folder.glob("checkpoints/resume-*.ckpt")
    assert point.is_file()
    assert not list(folder.glob("checkpoints/.*.part"))
    fitted(["--resume", str(folder)])
    one, other = weights(tmp_path / "whole"), weights(folder)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert logged(tmp_path / "whole") == logged(folder)
    assert main(["evaluate", str(folder)]) == 0
