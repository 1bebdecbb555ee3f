"""Processes that torchrun or srun started and that a trainer does not expect are refused before anything is written."""

import pytest

from seqkit.cli.main import main
from seqkit.errors import UsageError
from seqkit.runs.launcher import check_world

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "LOCAL_RANK": "0"}
SRUN = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_JOB_NAME": "train"}


@pytest.fixture
def environment(monkeypatch):
    """Sets the variables of a launcher, and no others of one."""
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "SLURM_NNODES", *TORCHRUN, *SRUN):
        monkeypatch.delenv(name, raising=False)
    return lambda given: [monkeypatch.setenv(name, value) for name, value in given.items()]


def trainer(devices, num_nodes=1):
    return {"devices": devices, "num_nodes": num_nodes, "accelerator": "cpu"}


@pytest.mark.parametrize(
    ("given", "devices", "said"),
    [
        (
            TORCHRUN | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
            "auto",
            "add --trainer.devices 2",
        ),
        (
            TORCHRUN | {"WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3"},
            3,
            "add --trainer.devices 3 --trainer.num_nodes 2",
        ),
        (TORCHRUN | {"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}, 2, "torchrun started 1 process, and"),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "3"}, [0, 1], "the launcher started 3 processes"),
        (SRUN | {"SLURM_NTASKS": "4", "SLURM_NNODES": "2"}, "2", "add --trainer.devices 2 --trainer.num_nodes 2"),
    ],
)
def test_another_number_of_processes_is_refused_with_what_to_add(environment, given, devices, said):
    environment(given)
    with pytest.raises(UsageError) as refused:
        check_world(trainer(devices))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "devices", "num_nodes"),
    [
        ({}, 2, 1),
        (TORCHRUN | {"WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3"}, 3, 2),
        (SRUN | {"SLURM_NTASKS": "2"}, "0,1", 1),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_NAME": "train"}, 1, 1),  # sbatch, without srun
        (SRUN | {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "bash"}, 1, 1),
        ({"WORLD_SIZE": "2"}, 1, 1),
    ],
)
def test_the_same_number_or_no_launcher_passes(environment, given, devices, num_nodes):
    environment(given)
    check_world(trainer(devices, num_nodes))


def test_a_command_under_torchrun_without_devices_writes_nothing(environment, tmp_path, monkeypatch, capsys):
    environment(TORCHRUN | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"})
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "image/digits", "--preset", "debug", "--trainer.accelerator", "cpu"]) == 2
    assert capsys.readouterr().err.startswith("seqkit fit: torchrun started 2 processes")
    assert main(["fit", "image/digits", "--preset", "debug", "--trainer.accelerator", "cpu", "--out", "run"]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_goes_on_says_how_many_to_start(environment):
    environment(TORCHRUN | {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"})
    with pytest.raises(UsageError, match="start 2"):
        check_world(trainer(2), resume=True)
