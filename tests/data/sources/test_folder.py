from collections import Counter

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

from seqkit.data import AudioFolder, DataModule, ImageFolder, Loading, Selection, TextFolder
from seqkit.data.notes import Caution
from seqkit.data.sources.folder import ClassFolder
from seqkit.errors import DataError
from seqkit.objectives import Classify, Masked
from seqkit.tokenizers import LogMel, Patches
from seqkit.tokenizers.resize import Resize


class Words(ClassFolder):
    """Texts of which the word "bad" cannot be read, and an empty one has no header."""

    suffixes = (".txt",)

    def read(self, path):
        return read(path)

    def header(self, path):
        return header(path)

    def described(self, headers):
        return f"{len(headers)} told"


def fill(folder, counts, suffix="txt"):
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            (folder / name / f"{i}.{suffix}").write_text(f"{name} {i}")


def read(path):
    text = path.read_text()
    if text == "bad":
        raise DataError(f"{path} is bad")
    return text


def header(path):
    if path.read_text() == "":
        raise DataError(f"{path} is empty")
    return len(path.read_text())


def split(path, **options):
    return Words(str(path), **options).splits()


def everything(splits):
    return [*splits.train, *splits.test, *(splits.valid or [])]


def test_the_folder_is_the_label_and_what_is_not_read_is_counted(tmp_path, caplog):
    fill(tmp_path, {"dog": 10, "cat": 5})
    (tmp_path / "cat" / "notes.MD").write_text("not a sample")
    (tmp_path / "cat" / "none").write_text("not a sample")
    (tmp_path / "loose.txt").write_text("in no class")
    (tmp_path / "cat" / "lost.txt").symlink_to(tmp_path / "nothing")
    (tmp_path / ".hidden").mkdir()
    splits = split(tmp_path)
    assert splits.names == ["cat", "dog"]
    assert caplog.messages == [
        f"{tmp_path}: 12 training, 3 test files of 2 classes; 20 % of each class are test, SHA-256 with seed 0; "
        "15 told",
        f"{tmp_path}: not read are 1 broken link, 1 hidden, 1 without a suffix, 1 .md, 1 in no class folder",
    ]
    assert Counter(s.label for s in splits.test) == {0: 1, 1: 2}
    assert len({s.raw for s in everything(splits)}) == 15
    assert all(s.raw.startswith(splits.names[s.label]) for s in everything(splits))


@pytest.mark.parametrize(
    "words",
    [("train", "test", "valid"), ("Training", "testing", "validation"), ("train", "test", "dev")],
)
def test_a_split_of_folders_is_kept_and_its_labels_agree(tmp_path, caplog, words):
    fill(tmp_path / words[0], {"ant": 3, "bee": 5, "cow": 2})
    fill(tmp_path / words[1], {"cow": 2, "bee": 1})
    fill(tmp_path / words[2], {"ant": 1})
    fill(tmp_path, {"old": 1})
    splits = split(tmp_path)
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (10, 1, 3)
    assert all(s.raw.startswith(splits.names[s.label]) for s in everything(splits))
    assert "not read are 1 outside the folders of the splits" in caplog.text


def test_a_folder_val_beside_train_alone_is_the_test_split(tmp_path, caplog):
    fill(tmp_path / "train", {"ant": 3, "bee": 5})
    fill(tmp_path / "val", {"ant": 1, "bee": 1})
    splits = split(tmp_path)
    assert (len(splits.train), len(splits.test), splits.valid) == (8, 2, None)
    assert "8 training, 2 test files of 2 classes; split by the folders train, val" in caplog.text


def test_train_beside_bus_is_a_class_and_alone_it_is_the_data(tmp_path):
    fill(tmp_path / "vehicles", {"train": 3, "bus": 2})
    assert split(tmp_path / "vehicles").names == ["bus", "train"]
    fill(tmp_path / "only" / "train", {"ant": 3, "bee": 2})
    assert split(tmp_path / "only").names == ["ant", "bee"]


def test_in_deep_folders_the_class_is_the_one_that_a_file_is_in(tmp_path, caplog):
    fill(tmp_path / "2020", {"cat": 2, "dog": 2})
    fill(tmp_path / "2021", {"cat": 2})
    assert split(tmp_path).names == ["cat", "dog"]
    assert "seed 0; the class is the folder that a file is in" in caplog.text


def test_files_in_no_folder_have_no_class(tmp_path):
    for i in range(5):
        (tmp_path / f"{i}.txt").write_text(str(i))
    splits = split(tmp_path)
    assert (len(splits.train), len(splits.test), splits.names) == (4, 1, None)


def test_a_file_that_cannot_be_read_is_named_before_training_or_left_out_and_counted(
    tmp_path, caplog
):
    fill(tmp_path, {"cat": 5, "dog": 5})
    (tmp_path / "cat" / "1.txt").write_text("")
    (tmp_path / "dog" / "2.txt").write_text("bad")
    with pytest.raises(DataError, match=r"cat/1\.txt .*1 of 10"):
        split(tmp_path)
    with pytest.raises(DataError, match=r"cat/1\.txt .*2 of 10 .*--data\.skip_bad 2"):
        split(tmp_path, skip_bad=1)
    splits = split(tmp_path, skip_bad=2)
    assert len(everything(splits)) == 8
    assert (
        f"2 of 10 files cannot be read and are left out; the first: {tmp_path}/cat/1.txt is empty"
        in caplog.text
    )
    with pytest.raises(ValueError, match="skip_bad is -1"):
        split(tmp_path, skip_bad=-1)


def test_the_split_is_the_same_whatever_else_is_in_the_folder(tmp_path):
    fill(tmp_path / "a", {"cat": 7, "dog": 11})
    fill(tmp_path / "b", {"cat": 7, "dog": 11})
    (tmp_path / "b" / "cat" / "x.md").write_text("x")
    first, second = split(tmp_path / "a"), split(tmp_path / "b")
    assert [s.raw for s in first.test] == [s.raw for s in second.test]


# ── images ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def photos(folder, sizes=((7, 5), (9, 13), (20, 4), (6, 6))):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for i, size in enumerate(sizes):
            Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(
                folder / name / f"{i}.PNG"
            )
    return str(folder)


def test_images_are_resized_and_a_faulty_one_is_named_never_replaced(tmp_path):
    source = ImageFolder(photos(tmp_path), test_fraction=0.5)
    source.read_for(Patches(1, channels=1, resize=(11, 13)))
    splits = source.splits()
    assert {s.raw.shape for s in everything(splits)} == {(1, 11, 13)}
    for path in tmp_path.rglob("*.PNG"):
        path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DataError, match=rf"{splits.train.name(0)}"):
        splits.train[0]


@pytest.mark.parametrize(
    ("resize", "crop", "is_small", "said"),
    [
        ((6, 8), True, True, "their middle is resized to 6 × 8"),
        (Resize((6, 8), interpolation="lanczos"), False, True, "they are resized to 6 × 8"),
        (Resize((8, 11), (6, 8), "bicubic"), False, False, "their middle is resized to 6 × 8"),
    ],
)
def test_what_is_read_for_a_tokenizer_is_what_the_tokenizer_makes_of_the_file(
    resize, crop, is_small, said, tmp_path, caplog
):
    """So that training and `predict`, which has the tokenizer alone, see the same image."""
    path = photos(tmp_path)
    tokenizer = Patches(2, channels=1, resize=resize, crop=crop)
    data = DataModule(
        ImageFolder(path, test_fraction=0.5),
        tokenizer,
        Masked(),
        selection=Selection(valid_fraction=0),
    )
    splits = data.splits()
    source = ImageFolder(path, test_fraction=0.5)
    source.read_for(Patches(1, channels=1))
    whole = source.splits()
    assert ({s.raw.shape for s in everything(splits)} == {(1, 6, 8)}) is is_small
    for mine, theirs in zip(everything(splits), everything(whole)):
        assert torch.equal(tokenizer.encode(mine.raw).content, tokenizer.encode(theirs.raw).content)
    size = f"{said} (--tokenizer.resize)"
    assert f"from 7 × 5 to 9 × 13 pixels, read in grey; {size}" in caplog.text


def test_a_folder_of_unlabelled_images_is_enough_to_pretrain(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(7):
        Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    data = DataModule(ImageFolder(str(tmp_path)), Patches(4), Masked(), Loading(batch_size=2))
    data.setup()
    assert sum(batch[0].content.shape[0] for batch in data.train_dataloader()) == 5
    refused = DataModule(ImageFolder(str(tmp_path)), Patches(4), Classify())
    with pytest.raises(DataError, match="has no label"):
        refused.setup()


# ── sound ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def clips(folder, rates=(8000, 16000)):
    rng = np.random.default_rng(0)
    for name, rate in zip(("a", "b"), rates):
        (folder / name).mkdir(parents=True)
        for i in range(3):
            soundfile.write(folder / name / f"{i}.flac", 0.1 * rng.standard_normal(101 + i), rate)
    return str(folder)


def test_recordings_keep_their_rate(tmp_path):
    splits = AudioFolder(clips(tmp_path), test_fraction=0.3).splits()
    assert {(s.label, s.raw.sample_rate) for s in splits.train} == {(0, 8000), (1, 16000)}


def test_the_rate_to_which_the_tokenizer_resamples_is_said(tmp_path, caplog):
    DataModule(
        AudioFolder(clips(tmp_path)),
        LogMel(16000),
        Classify(),
        selection=Selection(valid_fraction=0),
    ).splits()
    assert "mono, at 8000, 16000 Hz, resampled to 16000 Hz (--tokenizer.sample_rate)" in caplog.text


# ── what is said of the content ──────────────────────────────────────────────────────────────────────────────────────


def test_a_file_whose_content_is_in_another_class_or_in_training_too_is_said(tmp_path, caplog):
    for split, names in {
        "train": ("a/1", "a/2", "b/3", "b/4", "b/5", "b/6", "b/7"),
        "test": ("a/1", "b/2"),
    }.items():
        for name in names:
            file = tmp_path / split / f"{name}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{split} {name}")
    for copy, of in (("train/b/3", "train/a/1"), ("test/b/2", "train/a/2")):
        (tmp_path / f"{copy}.txt").write_text((tmp_path / f"{of}.txt").read_text())
    TextFolder(str(tmp_path)).splits()
    said = [str(record.msg) for record in caplog.records if isinstance(record.msg, Caution)]
    assert said == [
        f"{tmp_path}: 1 of 2 test files are in training, too (first: {tmp_path}/test/b/2.txt), which flatters the "
        "result; to keep equal files in one split: --data.group content",
        f"{tmp_path}: train files that another example has, with another target: 1 (first: "
        f"{tmp_path}/train/b/3.txt)",
        f"{tmp_path}: test files that another example has, with another target: 1 (first: "
        f"{tmp_path}/test/b/2.txt)",
    ]


def test_links_do_not_lead_out_of_the_folder(tmp_path, caplog):
    fill(tmp_path / "own", {"cat": 5, "dog": 5})
    (tmp_path / "secret.txt").write_text("root:x:0:0")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key.txt").write_text("a key")
    (tmp_path / "own" / "cat" / "x.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "own" / "dog" / "more").symlink_to(tmp_path / "secrets")
    (tmp_path / "own" / "dog" / "y.txt").symlink_to("0.txt")
    raws = [sample.raw for sample in everything(TextFolder(str(tmp_path / "own")).splits())]
    assert len(raws) == 11
    assert not {"root:x:0:0", "a key"} & set(raws)
    assert "not read are 1 link out of the folder, 1 link to a folder" in caplog.text


@pytest.mark.parametrize(("brightest", "is_said"), [(4095, True), (4096, False)])
def test_dark_images_of_16_bits_are_said_once(tmp_path, caplog, brightest, is_said):
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(30):
            pixels = np.full((3, 5), 9, np.uint16)
            pixels[1, 2] = brightest if i % 2 else 700
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    ImageFolder(str(tmp_path)).splits()
    said = [message for message in caplog.messages if "16 bit" in message]
    assert len(said) == is_said
    if is_said:
        assert "4,095 of 65,535" in said[0]


@pytest.mark.parametrize(("channels", "is_said"), [("mix", True), ("first", False)])
def test_channels_that_cancel_each_other_are_said_where_they_are_mixed(
    tmp_path, caplog, channels, is_said
):
    rng = np.random.default_rng(0)
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(3):
            left = 0.1 * rng.standard_normal(500)
            soundfile.write(
                tmp_path / name / f"{i}.wav", np.stack([left, left if i == 1 else -left], 1), 8000
            )
    DataModule(
        AudioFolder(str(tmp_path)),
        LogMel(8000, channels=channels),
        Classify(),
        selection=Selection(valid_fraction=0),
    ).splits()
    said = [message for message in caplog.messages if "cancel each other" in message]
    assert len(said) == is_said
    if is_said:
        assert "4 of 6 recordings with several channels" in said[0]


def test_a_folder_inside_a_class_and_one_class_alone_are_said(tmp_path, caplog):
    fill(tmp_path / "a", {"ant": 5, "bee": 5, "bee/parts": 5})
    TextFolder(str(tmp_path / "a")).splits()
    assert "bee holds files and the folder bee/parts, which is a class of its own" in caplog.text
    caplog.clear()
    fill(tmp_path / "b", {"2020/ant": 5, "2021/bee": 5})
    TextFolder(str(tmp_path / "b")).splits()
    assert "of its own" not in caplog.text
    fill(tmp_path / "c", {"all": 6})
    TextFolder(str(tmp_path / "c")).splits()
    assert "of 1 class, all (a class is a folder" in caplog.text
