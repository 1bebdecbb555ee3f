"""A signal to every process of a run, as batch systems and terminals send it, stops the run as one to the first."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SECONDS = 120

KEYS = {
    "data.num_workers": 2,
    "data.batch_size": 1,  # an epoch lasts longer than the test
    "trainer.max_steps": 100_000,
    "trainer.max_epochs": -1,
    "trainer.checkpoint_every_n_steps": 5,
    "trainer.enable_progress_bar": False,
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_to_the_workers_too_ends_the_run_with_a_checkpoint_and_one_line(tmp_path, number):
    words = [word for key, value in KEYS.items() for word in (f"--{key}", str(value))]
    process = subprocess.Popen(
        [sys.executable, "-m", "seqkit", "fit", "image/digits", *words, "--out", str(tmp_path / "run")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGTERM, signal.SIGINT)],
    )  # fmt: skip
    deadline = time.monotonic() + SECONDS
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not list(tmp_path.glob("run/checkpoints/resume-*.json")) or len(children.read_text().split()) < 2:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for worker in children.read_text().split():
        os.kill(int(worker), number)
    time.sleep(0.3)
    os.kill(process.pid, number)
    said = process.communicate(timeout=SECONDS)[1]
    assert process.returncode == 128 + number, said
    announced, end = said.splitlines()
    assert announced.startswith(f"{number.name}: a checkpoint is written")
    assert end.endswith(f"go on with: seqkit fit --resume {tmp_path / 'run'}")


START = """
import sys
import seqkit.training.interrupt
from seqkit.cli.main import main
installed = seqkit.training.interrupt.StopSignals.install_again
def told(self):
    installed(self)
    print("ready", flush=True)
seqkit.training.interrupt.StopSignals.install_again = told
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_a_resumed_run_that_is_stopped_before_its_first_step_says_so_in_one_line(tmp_path, delay):
    command = [sys.executable, "-c", START, "fit", "--resume", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay)
        os.kill(process.pid, signal.SIGTERM)
        error = process.communicate(timeout=SECONDS)[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert "SIGTERM: stopped while starting, before the first step; the same command goes on\n" in error
    assert error.count("\n") == 1, error
