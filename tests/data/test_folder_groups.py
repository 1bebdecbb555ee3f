"""Folders with files of the same patients or speakers: it is said, and the printed flag keeps them in one split."""

import re
import shlex
from itertools import product

import numpy as np
import pytest
import soundfile
from PIL import Image

from seqkit.config import complete
from seqkit.data import AudioFolder, DataModule, ImageFolder, Loading, Selection
from seqkit.data.folder_groups import told
from seqkit.errors import DataError
from seqkit.objectives import Classify
from seqkit.runs.prepare import untrained
from seqkit.tokenizers import Patches

RNG = np.random.default_rng(0)
PATIENTS = [f"patient{i}" for i in range(5)]


def images(root, names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RNG.integers(0, 256, (4, 4, 3), dtype=np.uint8)).save(root / name)
    return str(root)


def paths(*levels, files=4):
    return ["/".join(parts) for parts in product(*levels, [f"{i}.png" for i in range(files)])]


LAYOUTS = {
    "above": paths(PATIENTS, ["ill", "well"]),
    "above, each in one class": [f"s{i:02d}/{'ab'[i % 2]}/{j}.png" for i in range(9) for j in range(3)],
    "below": paths(["ill", "well"], PATIENTS),
    "below, each in one class": [f"{'ab'[i % 2]}/p-{i}/{j}.png" for i in range(9) for j in range(3)],
    "two levels above": paths(["clinic"], PATIENTS, ["ill", "well"]),
    "scans below": paths(["ill", "well"], PATIENTS, files=3),
    "grades, as numbered as they are": paths([f"id{i}" for i in range(7)], ["grade1", "grade2", "grade3"]),
    "persons": paths(["anna", "bob", "carl", "dora"], ["no", "yes"]),
    "names of files": [f"{c}/p{i:02d}_{side}.png" for c in "ab" for i in range(6) for side in "lr"],
    "names with a word": [f"{c}/sub-{i}_{j}.png" for c in "ab" for i in range(6) for j in "xy"],
    "behind the number of the scan": [
        f"{c}/scan_{i}_subject{j:02}.png" for c in "ab" for i in range(3) for j in range(9)
    ],
    "the same, with marks": [f"{c}/{i}-subject_{j}-x.png" for c in "ab" for i in range(3) for j in range(9)],
    "names with a letter": [f"{c}/patient{letter}_{i}.png" for c in "ab" for i in range(4) for letter in "ABCDE"],
    "names with a letter, each in one class": [
        f"{'ab'[i % 2]}/patient{'ABCDEF'[i]}_{j}.png" for i in range(6) for j in range(4)
    ],
    "names of persons": [
        f"{c}/{who}_{i}.png" for c in "ab" for i in range(4) for who in ("anna", "bob", "carl", "dora")
    ],
    "both splits": [f"{s}/{path}" for s in ("train", "test") for path in paths(PATIENTS[:3], ["a", "b"])]
    + [f"train/{path}" for path in paths(PATIENTS[3:], ["a", "b"])],
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_printed_flag_keeps_patients_in_one_split(tmp_path, caplog, layout):
    root = images(tmp_path / "p", LAYOUTS[layout])
    ImageFolder(root).splits()
    (line,) = [line for line in caplog.messages if "--data.group" in line]
    assert re.search(r"(\d) of \1 (folders|parts of names) .* in test are in training", line)
    _, pattern = shlex.split(line[line.index("--data.group") :])
    caplog.clear()
    data = DataModule(
        ImageFolder(root, group=pattern), Patches(2, channels=3), Classify(),
        Loading(batch_size=2), Selection(valid_fraction=0.2),
    )  # fmt: skip
    splits = data.splits()
    of = [{*part.groups} for part in (splits.train, splits.valid, splits.test)]
    assert all(of)
    together = of[0] | of[1] | of[2]
    assert len(together) == sum(map(len, of))
    assert len(splits.names) < len(together), "patients are no classes"
    assert not [line for line in caplog.messages if "--data.group" in line]


@pytest.mark.parametrize(
    "names",
    [
        *(
            [*below, *above]
            for kind in (["2019", "2020", "2021"], ["32", "64", "128"], ["32x32", "64x64", "9x9"],
                         ["40X", "100X", "200X"], ["2020-01", "2020-02", "2020-03"], ["small", "medium", "large"])
            for below, above in ((paths(["cat", "dog"], kind), []), ([], paths(kind, ["cat", "dog"])))
        ),
        paths(["cat", "dog"], files=9),
        [f"{c}/img_{i:03d}.png" for c in "ab" for i in range(9)],
        [f"{c}/2020010{day}_{i:03d}.png" for c in "ab" for day in range(1, 6) for i in range(4)],
        [f"n0{c}/n0{c}_{i}.png" for c in range(5) for i in range(4)],
        [f"{c}/scan_{i}_{side}.png" for c in "ab" for i in range(6) for side in "lr"],
        [f"{c}/{side}_{i}.png" for c in "ab" for i in range(9) for side in ("left", "right")],
        [f"{c}/photo_{i}_v{j}.png" for c in "ab" for i in range(4) for j in range(5)],
        [f"{c}/IMG_{i}_{j}.png" for c in "ab" for i in range(4) for j in range(5)],
        [f"{kind}/{c}/{i}.png" for kind, cs in (("pet", "abc"), ("car", "def")) for c in cs for i in range(4)],
    ],
)  # fmt: skip
def test_years_sizes_and_hierarchies_of_classes_are_no_groups(names):
    assert told(names, names) == ""


def test_a_folder_for_each_file_and_a_class_that_training_lacks_name_the_folder_above(tmp_path):
    each = images(
        tmp_path / "each", [f"{c}/{c}{i}/0.png" for c in ("cat", "dog") for i in range(9)]
    )
    given = images(
        tmp_path / "given",
        paths(["train"], ["a", "b"], PATIENTS[:3]) + paths(["test"], ["a", "b"], PATIENTS[3:]),
    )
    for root in (each, given):
        with pytest.raises(DataError, match=r"the folder above: --data\.group class/group$"):
            ImageFolder(root).splits()
        assert len(ImageFolder(root, group="class/group").splits().names) == 2


def test_sounds_have_groups_too(tmp_path, caplog):
    for speaker, word, i in product("ABCDE", ["no", "yes"], range(3)):
        folder = tmp_path / f"speaker{speaker}" / word
        folder.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / f"{i}.wav", 0.1 * RNG.standard_normal(90), 8000)
    AudioFolder(str(tmp_path)).splits()
    assert "folders (speakerA, speakerB, speakerC, …; classes no, yes) in test are" in caplog.text
    splits = AudioFolder(str(tmp_path), group="group/class").splits()
    assert not {*splits.train.groups} & {*splits.test.groups}


def test_equal_files_stay_together_or_leave_training(tmp_path, caplog):
    for part in ("one", "train", "test"):
        images(tmp_path / part, paths(["a", "b"], files=9))
    (tmp_path / "two").mkdir()
    for part in ("train", "test"):
        (tmp_path / part).rename(tmp_path / "two" / part)
    for copy, of in (
        ("one/a/x", "one/a/1"),
        ("one/b/x", "one/b/1"),
        ("two/test/b/x", "two/train/b/1"),
    ):
        (tmp_path / f"{copy}.png").write_bytes((tmp_path / f"{of}.png").read_bytes())
    for root in (tmp_path / "one", tmp_path / "two"):
        splits = ImageFolder(str(root), group="content").splits()
        assert not {*splits.train.groups} & {*splits.test.groups}
    assert (
        "1 of 19 test groups by 'content' are in training, too: their 1 images there" in caplog.text
    )
    assert "flatters" not in caplog.text


def test_a_given_split_stays_and_training_goes_without_its_groups(tmp_path, caplog):
    names = paths(["train"], PATIENTS, ["a", "b"]) + paths(["test"], PATIENTS[:2], ["a", "b"])
    root = images(tmp_path, names)
    splits = ImageFolder(root, group="group/class").splits()
    assert ({*splits.test.groups}, {*splits.train.groups}) == ({*PATIENTS[:2]}, {*PATIENTS[2:]})
    assert (
        "2 of 2 test groups by 'group/class' are in training, too: their 16 images" in caplog.text
    )
    for patient in PATIENTS[2:]:
        (tmp_path / "train" / patient).rename(tmp_path / patient)
    with pytest.raises(DataError, match="all of it; give no split"):
        ImageFolder(root, group="group/class").splits()


def test_patterns_that_do_not_fit_are_refused(tmp_path):
    root = images(tmp_path, [f"{c}/p{i}_{j}.png" for c in "ab" for i in range(3) for j in "lr"])
    for wrong in ("class", "group/group", "speaker"):
        with pytest.raises(ValueError, match="the word group once"):
            ImageFolder(root, group=wrong)
    with pytest.raises(
        DataError, match=r"a/p0_l\.png has no group by --data\.group class/group-\*"
    ):
        ImageFolder(root, group="class/group-*").splits()
    with pytest.raises(DataError, match="all images have the same class/group_"):
        images(tmp_path / "one", ["a/p_1.png", "b/p_2.png"])
        ImageFolder(str(tmp_path / "one"), group="class/group_*").splits()


def test_a_pattern_is_read_from_the_command_line(tmp_path):
    root = images(tmp_path, LAYOUTS["names of files"])
    for pattern in ("class/group_*", "*/group_*"):
        words = ["--data", root, "--data.group", pattern, "--tokenizer.resize", "[16,16]"]
        _, data = untrained(complete("image/classify", "debug", words))
        assert data.source.group == pattern
        data.train_dataloader()
        assert len({*data.test_groups()}) == 2


@pytest.mark.parametrize(("num_ill", "said"), [(1, "the test split has 1 of 2 classes"), (3, "")])
def test_a_test_split_by_groups_has_every_class_or_says_which_it_lacks(
    tmp_path, caplog, num_ill, said
):
    names = [f"{'ill' if i < num_ill else 'well'}/p{i}_{j}.png" for i in range(12) for j in "xyz"]
    root = images(tmp_path, names)
    for seed in range(4):
        splits = ImageFolder(root, group="class/group_*", seed=seed).splits()
        assert len({*splits.train.labels}) == 2
        assert len({*splits.test.labels}) == 2 - bool(said)
    lines = [line for line in caplog.messages if "its result says nothing of ill" in line]
    assert len(lines) == 4 * bool(said)
    assert all(said in line for line in lines)
