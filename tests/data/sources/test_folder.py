from collections import Counter

import numpy as np
import pytest
import soundfile
from PIL import Image

from seqkit.data import AudioFolder, ImageFolder
from seqkit.data.sources.folder import class_folder
from seqkit.errors import DataError


def fill(folder, counts, suffix="txt"):
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            (folder / name / f"{i}.{suffix}").write_text(f"{name} {i}")


def read(path):
    return path.read_text()


def test_the_folder_is_the_label(tmp_path, caplog):
    fill(tmp_path, {"dog": 10, "cat": 5})
    (tmp_path / "cat" / "notes.md").write_text("not a sample")
    (tmp_path / "loose.txt").write_text("in no class")
    (tmp_path / ".hidden").mkdir()
    splits = class_folder(tmp_path, (".txt",), 0.2, read)
    assert splits.names == ["cat", "dog"]
    assert [f"{tmp_path}: 2 files are not read; only TXT files in a class folder are"] == caplog.messages
    assert Counter(s.label for s in splits.test) == {0: 1, 1: 2}
    everything = [*splits.train, *splits.test]
    assert len({s.raw for s in everything}) == 15
    assert all(s.raw.startswith(splits.names[s.label]) for s in everything)


def test_a_split_of_folders_is_kept_and_its_labels_agree(tmp_path):
    fill(tmp_path / "train", {"ant": 3, "bee": 5, "cow": 2})
    fill(tmp_path / "test", {"cow": 2, "bee": 1})
    fill(tmp_path / "valid", {"ant": 1})
    splits = class_folder(tmp_path, (".txt",), 0.2, read)
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (10, 1, 3)
    for samples in (splits.train, splits.valid, splits.test):
        assert all(s.raw.startswith(splits.names[s.label]) for s in samples)


def test_faulty_folders_are_named(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        class_folder(tmp_path / "none", (".txt",), 0.2, read)
    with pytest.raises(DataError, match="holds no folders"):
        class_folder(tmp_path, (".txt",), 0.2, read)
    fill(tmp_path / "train", {"ant": 2})
    fill(tmp_path / "test", {"anti": 2})
    with pytest.raises(DataError, match="'anti', which the training split does not have; it has: ant"):
        class_folder(tmp_path, (".txt",), 0.2, read)
    fill(tmp_path / "other", {"ant": 2, "bee": 0})
    with pytest.raises(DataError, match="bee holds no TXT files"):
        class_folder(tmp_path / "other", (".txt",), 0.2, read)


def test_images_are_resized_and_a_faulty_one_is_named_never_replaced(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(2):
            Image.fromarray(np.full((7, 5, 3), 60 * i, dtype=np.uint8)).save(tmp_path / name / f"{i}.PNG")
    splits = ImageFolder(str(tmp_path), channels=1, size=(11, 13), test_fraction=0.5).splits()
    assert {s.raw.shape for s in [*splits.train, *splits.test]} == {(1, 11, 13)}
    for path in tmp_path.rglob("*.PNG"):
        path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DataError, match=rf"{splits.train.sample_name(0)} cannot be read"):
        splits.train[0]


def test_recordings_keep_their_rate(tmp_path):
    for name, rate in (("a", 8000), ("b", 16000)):
        (tmp_path / name).mkdir()
        for i in range(3):
            soundfile.write(tmp_path / name / f"{i}.flac", np.full(101 + i, 0.1), rate)
    splits = AudioFolder(str(tmp_path), test_fraction=0.3).splits()
    assert {(s.label, s.raw.sample_rate) for s in splits.train} == {(0, 8000), (1, 16000)}
