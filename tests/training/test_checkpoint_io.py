"""Checkpoint files: which are kept, which is taken, and that a write that fails harms none."""

import errno
import logging
import os

import pytest
import torch

from seqkit.errors import DataError, StorageError
from seqkit.training import checkpoint_io, weights
from seqkit.training.checkpoint_files import (
    BEST,
    RESUME,
    checkpoints,
    manifest_of,
    newest_good,
    sweep,
)
from seqkit.training.checkpoint_io import VerifiedCheckpointIO, read_checkpoint
from seqkit.training.weights import load_weights


def state(step):
    return {"global_step": step, "weights": torch.full((101,), float(step))}


def save(folder, *steps, family=RESUME, keep=99):
    files = VerifiedCheckpointIO(keep)
    for step in steps:
        files.save_checkpoint(state(step), folder / f"{family}-step={step}.ckpt")
    return files


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_of_each_family_stay_with_their_manifests(tmp_path, keep):
    save(tmp_path, 4, family=BEST, keep=keep)
    (tmp_path / "user-epoch=0-step=3.ckpt").touch()  # of a callback of the user's
    save(tmp_path, 3, 9, 10, 12, keep=keep)  # 9 before 10: by number, not by name
    left = [12, 10, 9][:keep]
    assert [one.step for one in checkpoints(tmp_path)] == left
    ours = [f"resume-step={step}.ckpt" for step in left] + ["best-step=4.ckpt"]
    names = {*ours, *(f"{name}.json" for name in ours), "user-epoch=0-step=3.ckpt"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_best_weights_of_an_attempt_that_ended_before_are_not_taken(tmp_path):
    """It had come to step 80, was killed, and the run went on from step 60: of it are the best of step 70 alone."""
    save(tmp_path, 50, 70, 80, family=BEST)
    assert newest_good(tmp_path, BEST, until="best-step=70.ckpt").step == 70
    (tmp_path / "best-step=70.ckpt").unlink()
    assert newest_good(tmp_path, BEST, until="best-step=70.ckpt").step == 50
    assert newest_good(tmp_path, BEST).step == 80


def test_the_newest_good_checkpoint_is_taken_and_those_passed_over_are_said(tmp_path, caplog):
    save(tmp_path, 2, 9, 10, 11, 12)
    assert newest_good(tmp_path).step == 12
    for step, harm in ((12, manifest_of), (11, lambda path: path)):
        harm(tmp_path / f"resume-step={step}.ckpt").unlink()
    content = bytearray((tmp_path / "resume-step=10.ckpt").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "resume-step=10.ckpt").write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="seqkit"):
        found = newest_good(tmp_path)
    assert found.step == 9
    assert torch.equal(read_checkpoint(found.path)["weights"], state(9)["weights"])
    assert ["step=12" in caplog.messages[0], "step=10" in caplog.messages[-1]] == [True, True]
    assert "it was not written to its end" in caplog.messages[0]
    with pytest.raises(DataError, match="SHA-256"):
        read_checkpoint(tmp_path / "resume-step=10.ckpt")


@pytest.mark.parametrize("call", ["fsync", "replace", "manifest"])
def test_a_write_that_fails_is_said_and_leaves_the_checkpoint_before(
    tmp_path, monkeypatch, caplog, call
):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files = save(tmp_path, 1, keep=1)
    whole = (tmp_path / "resume-step=1.ckpt").read_bytes()
    with monkeypatch.context() as patch:
        if call == "fsync":
            patch.setattr(checkpoint_io.os, "fsync", fail)
        elif call == "replace":
            patch.setattr(checkpoint_io.Path, "replace", fail)
        else:
            patch.setattr(checkpoint_io, "write_json", fail)
        files.save_checkpoint(state(2), tmp_path / "resume-step=2.ckpt")
    assert isinstance(files.failure, StorageError)
    assert "no checkpoint after step 2: " in caplog.text
    assert "No space left on device" in caplog.text
    assert newest_good(tmp_path).step == 1
    assert (tmp_path / "resume-step=1.ckpt").read_bytes() == whole
    assert not list(tmp_path.glob(".*"))
    files.save_checkpoint(state(3), tmp_path / "resume-step=3.ckpt")
    assert files.failure is None
    assert newest_good(tmp_path).step == 3


def test_a_file_is_replaced_only_by_one_that_reads_back_as_it_was_written(tmp_path, monkeypatch):
    path = tmp_path / "resume-step=1.ckpt"
    save(tmp_path, 1)
    whole = path.read_bytes()
    monkeypatch.setattr(checkpoint_io, "sha256_of", lambda _: "another")
    with pytest.raises(StorageError, match="reads back otherwise"):
        checkpoint_io.write_checkpoint(state(2), path)
    monkeypatch.undo()
    assert path.read_bytes() == whole
    assert newest_good(tmp_path).step == 1


def test_the_manifest_is_of_a_file_that_is_there_already(tmp_path, monkeypatch):
    """Killed before it is written, a process leaves a file that is not taken; after it, one that is whole."""
    seen, write = [], checkpoint_io.write_json

    def look(path, value):
        seen.append(
            checkpoint_io.sha256_of(path.with_name(path.name.removesuffix(".json")))
            == value["sha256"]
        )
        write(path, value)

    monkeypatch.setattr(checkpoint_io, "write_json", look)
    save(tmp_path, 1)
    assert seen == [True]


def test_temporary_files_of_killed_processes_are_swept_and_nothing_else(tmp_path):
    save(tmp_path, 1)
    before = set(tmp_path.iterdir())
    (tmp_path / ".resume-step=2.ckpt.77.part").touch()
    sweep(tmp_path)
    assert set(tmp_path.iterdir()) == before
    sweep(tmp_path / "missing")


def test_a_good_checkpoint_is_not_written_again_and_a_damaged_one_is(tmp_path, monkeypatch):
    path = tmp_path / "resume-step=4.ckpt"
    save(tmp_path, 4)
    # a disk that is full by now must not cost the checkpoint that is there
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_io, "write_checkpoint", lambda *_: pytest.fail("written again"))
        save(tmp_path, 4)
    assert newest_good(tmp_path).step == 4
    path.write_bytes(path.read_bytes()[:-1])
    save(tmp_path, 4)
    assert torch.equal(read_checkpoint(path)["weights"], state(4)["weights"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_a_manifest_or_weights_that_are_no_regular_file_are_refused_and_not_waited_for(tmp_path):
    path = tmp_path / "resume-step=4.ckpt"
    save(tmp_path, 4)
    manifest_of(path).unlink()
    os.mkfifo(manifest_of(path))
    with pytest.raises(DataError, match="is damaged"):
        read_checkpoint(path)
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(DataError, match="is a FIFO"):
        load_weights(torch.nn.Linear(2, 3), tmp_path / "model.safetensors", "")


def test_weights_that_are_larger_than_the_model_could_have_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "MAX_HEADER_BYTES", 100)
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    with pytest.raises(DataError, match="too large"):
        load_weights(torch.nn.Linear(2, 3), tmp_path / "model.safetensors", "")
