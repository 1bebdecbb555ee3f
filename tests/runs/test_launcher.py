"""Processes that torchrun or srun started and that a trainer does not expect are refused."""

import pytest

from seqkit.cli.main import main
from seqkit.errors import UsageError
from seqkit.runs.launcher import check_world

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "LOCAL_RANK": "0"}
SRUN = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_JOB_NAME": "train"}


@pytest.fixture
def environment(monkeypatch):
    """Sets the variables of a launcher, and no others of one."""
    for name in (
        "WORLD_SIZE",
        "MASTER_PORT",
        "LOCAL_WORLD_SIZE",
        "SLURM_NTASKS",
        "SLURM_NNODES",
        *TORCHRUN,
        *SRUN,
    ):
        monkeypatch.delenv(name, raising=False)
    return lambda given: [monkeypatch.setenv(name, value) for name, value in given.items()]


@pytest.mark.parametrize("given", [TORCHRUN | {"WORLD_SIZE": "2"}, SRUN | {"SLURM_NTASKS": "2"}])
def test_another_number_of_processes_is_refused(environment, given):
    environment(given)
    check_world(2)
    with pytest.raises(UsageError, match=r"2 processes were started, and .* is 1"):
        check_world(1)


@pytest.mark.parametrize(
    "given", [{}, {"SLURM_NTASKS": "4"}, SRUN | {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "bash"}]
)
def test_processes_that_lightning_starts_itself_pass(environment, given):
    """Also in a batch script that calls no srun, and in an interactive job."""
    environment(given)
    check_world(3)


def test_a_command_under_torchrun_without_devices_leaves_nothing(
    environment, tmp_path, monkeypatch, capsys
):
    environment(TORCHRUN | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"})
    monkeypatch.chdir(tmp_path)
    words = [
        "fit",
        "image/digits",
        "--preset",
        "debug",
        "--trainer.accelerator",
        "cpu",
        "--classical",
        "off",
        "--out",
        "run",
    ]
    assert main([*words, "--out", "run"]) == 2
    assert "2 processes were started" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
