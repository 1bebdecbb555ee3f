"""Weights and the small files of a run are loaded as they were saved, or refused."""

import hashlib
from contextlib import nullcontext

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import S4D, Mamba
from seqkit.errors import DataError
from seqkit.files import read_mapping, write_json
from seqkit.training.weights import load_weights, save_weights


def test_weights_are_loaded_as_saved_and_a_changed_bit_is_refused(tmp_path):
    path, ours, theirs = tmp_path / "weights", nn.Linear(3, 5), nn.Linear(3, 5)
    digest = save_weights(ours, path)
    load_weights(theirs, path, digest)
    assert torch.equal(ours.weight, theirs.weight)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="SHA-256"):
        load_weights(theirs, path, digest)


def test_a_save_that_fails_leaves_the_old_weights(tmp_path, monkeypatch):
    path, model = tmp_path / "weights", nn.Linear(3, 5)
    digest = save_weights(model, path)

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr("seqkit.files.os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        save_weights(nn.Linear(3, 5), path)
    load_weights(nn.Linear(3, 5), path, digest)
    assert list(tmp_path.iterdir()) == [path]


def test_weights_of_another_model_are_refused(tmp_path):
    path = tmp_path / "weights"
    digest = save_weights(nn.Linear(3, 5), path)
    for other in (nn.Linear(3, 7), nn.Linear(3, 5, bias=False), nn.Bilinear(3, 2, 5)):
        with pytest.raises(DataError, match="fit"):
            load_weights(other, path, digest)


def test_weights_of_earlier_versions_that_nothing_reads_are_left_out(tmp_path):
    ours = nn.Linear(3, 5)
    for name, refused in (("shares", False), ("bias", True)):
        theirs = nn.Linear(3, 5)
        theirs.shortcut = nn.Module()
        theirs.shortcut.register_buffer(name, torch.ones(2))
        digest = save_weights(theirs, tmp_path / name)
        with pytest.raises(DataError, match=r"shortcut\.bias") if refused else nullcontext():
            load_weights(ours, tmp_path / name, digest)
            assert torch.equal(ours.weight, theirs.weight)


@pytest.mark.parametrize("kind", [Mamba, S4D])
def test_weights_that_were_named_without_their_mixer_are_read(kind, tmp_path):
    ours, theirs = nn.Module(), nn.Module()
    for model in (ours, theirs):
        model.backbone = kind(8)
    written = {name.replace(".mixer.", "."): x for name, x in theirs.state_dict().items()}
    save_file(written, tmp_path / "weights")
    digest = hashlib.sha256((tmp_path / "weights").read_bytes()).hexdigest()
    load_weights(ours, tmp_path / "weights", digest)
    assert_close(ours.state_dict(), theirs.state_dict())


def test_a_mapping_is_read_with_its_keys(tmp_path):
    write_json(tmp_path / "a.json", {"sha256": "ü"})
    assert read_mapping(tmp_path / "a.json", "sha256") == {"sha256": "ü"}
    with pytest.raises(DataError, match=r"a\.json is damaged"):
        read_mapping(tmp_path / "a.json", "sha256", "seed")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.json", b"{oops"), ("a.json", b""), ("a.json", b"[1]"), ("a.json", b"\xff"), ("a.yaml", b"a: [b")],
)  # fmt: skip
def test_a_damaged_mapping_is_refused_in_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="is damaged") as caught:
        read_mapping(tmp_path / name, "seed")
    assert "\n" not in str(caught.value)


def test_a_missing_mapping_is_refused(tmp_path):
    with pytest.raises(DataError, match="is missing"):
        read_mapping(tmp_path / "a.json", "seed")
