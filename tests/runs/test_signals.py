"""A signal to every process of a run, as batch systems and terminals send it, stops the run as one to the first."""

import os
import signal
import subprocess
import sys
import warnings

import pytest
import torch
from reliability.forked import SECONDS, command, forked
from runs.two_processes import end_of, needs_forks, sends, start

WORDS = [
    "image/digits", "--data.num_workers", "2", "--data.limit", "40", "--data.batch_size", "2", "--model.backbone.dim",
    "16", "--model.backbone.depth", "1", "--trainer.checkpoint_every_n_steps", "5", "--trainer.accelerator", "cpu",
    "--trainer.enable_progress_bar", "false",
]  # fmt: skip


def check_stopped(ended, number, folder):
    code, said = ended
    assert code == 128 + number, said
    announced, end = said.splitlines()
    assert announced.startswith(f"{number.name}: a checkpoint is written")
    assert f"--resume {folder / 'run'} --plugin " in end


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_signal_to_the_workers_too_ends_the_run_with_a_checkpoint_and_one_line(tmp_path):
    words = [*WORDS, *sends(tmp_path), "--out", str(tmp_path / "run")]
    process = start(words, tmp_path, SENT="SIGTERM", SENT_TO="0", WORKERS="yes")
    check_stopped(end_of(process), signal.SIGTERM, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking where torch's threads wait
@needs_forks
def test_an_interrupt_to_the_workers_too_ends_the_run_with_a_checkpoint_and_one_line(tmp_path):
    """Ctrl-C in a terminal, whose handler in the workers is Python's own."""

    def work():
        torch.set_num_threads(1)
        warnings.simplefilter("default")
        os.environ |= {"SENT": "SIGINT", "SENT_TO": "0", "WORKERS": "yes"}
        return command("fit", *WORDS, *sends(tmp_path), "--out", str(tmp_path / "run"))()

    check_stopped(forked(work, tmp_path), signal.SIGINT, tmp_path)


START = """
import os, signal, sys
import seqkit.training.interrupt
from seqkit.cli.main import main
class AtImport:
    def find_spec(self, name, *rest):
        if name == "torch":
            os.kill(os.getpid(), signal.SIGTERM)
installed = seqkit.training.interrupt.StopSignals.install_again
def and_send(self):
    installed(self)
    if sys.argv[1] == "first":
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        sys.meta_path.insert(0, AtImport())
seqkit.training.interrupt.StopSignals.install_again = and_send
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("when", ["first", "in an import"])
def test_a_resumed_run_that_is_stopped_before_its_first_step_says_so_in_one_line(tmp_path, when):
    (tmp_path / "config.yaml").write_text("recipe: image/digits\n")
    words = [sys.executable, "-c", START, when, "fit", "--resume", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert (
        "SIGTERM: stopped while starting, before the first step; the same command goes on\n"
        in done.stderr
    )
    assert done.stderr.count("\n") == 1, done.stderr
