"""A row is an example of its filled cells, with a label; what cannot be used is counted or named by file and line."""

import io
import os
import wave

import numpy as np
import pytest
import torch
from PIL import Image

from seqkit.data.tables.examples import Examples, UsableRows
from seqkit.data.tables.infer import infer
from seqkit.data.tables.rows import Rows
from seqkit.data.tables.schema import Given
from seqkit.errors import DataError
from seqkit.tokenizers import Bytes, Cells, Join, LogMel, Molecule, Patches


def image_bytes(shade):
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), shade, np.uint8)).save(file, "PNG")
    return file.getvalue()


def sound_bytes(pitch):
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes((8000 * np.sin(np.arange(1600) * pitch / 100)).astype("<i2").tobytes())
    return file.getvalue()


def table(**columns):
    return Rows(columns, [("t.csv", len(next(iter(columns.values()))))])


def examples(folder, given, *, reads=None, tokenizer=None, **columns):
    rows = table(**columns)
    return Examples(rows, infer(rows, Given(**given), reads=reads), folder, tokenizer)


def usable(made, **settings):
    said = []
    return UsableRows(made, say=said.append, **settings), said


def test_a_row_is_its_filled_cells(tmp_path):
    """A part for each filled cell of a column of every kind, numbers and dates together, and nothing else."""
    n = 23
    columns = {
        "title": [f"a thing of size {i}" for i in range(n)], "photo": [f"{i}.png" for i in range(n)],
        "sound": [f"{i}.wav" for i in range(n)], "smiles": ["C" * (i + 1) for i in range(n)],
        "price": [f"{i * 1.5}" for i in range(n)], "made": [f"20{10 + i}-03-07" for i in range(n)],
        "colour": [("red", "blue")[i % 2] for i in range(n)],
    }  # fmt: skip
    for i in range(n):
        (tmp_path / f"{i}.png").write_bytes(image_bytes(10 * i))
        (tmp_path / f"{i}.wav").write_bytes(sound_bytes(i + 3))
        columns[[*columns][i % 7]][i] = ""
    made = examples(
        tmp_path, {"target": "y"}, **columns, maker=["us"] * n, y=[f"{i}.5" for i in range(n)]
    )
    assert made.faults == {}
    for i in range(n):
        raw, filled = made.raw(i), {name for name, cells in columns.items() if cells[i] != ""}
        assert set(raw) - {"cells"} == filled & {"title", "photo", "sound", "smiles"}
        assert set(raw["cells"]) == filled & {"price", "made", "colour"}
        if "photo" in raw:
            torch.testing.assert_close(raw["photo"], torch.full((3, 8, 8), 10 * i / 255))
        if "made" in raw["cells"]:
            assert str(raw["cells"]["made"]) == f"20{10 + i}-03-07"


def test_true_and_false_are_the_same_categories_in_every_letter_case():
    """JSON has true, pandas writes True and spreadsheets TRUE; a word that training lacks moves predictions."""
    target = {"target": "y"}
    for own in (["true", "false"], ["TRUE", "FALSE"], [True, False]):
        made = examples(None, target, paid=own * 10, size=["1.5", "2"] * 10, y=["p", "q"] * 10)
        learned = Cells()
        learned.fit([made.raw(row)["cells"] for row in range(20)])
        for cells in (["True", "False"], ["true", "FALSE"], [True, False]):
            asked = Examples(table(paid=cells, size=["1.5", "2"]), made.schema, None)
            assert [asked.raw(row) for row in range(2)] == [made.raw(row) for row in range(2)]
            assert learned.unknown(asked.raw(0)["cells"]) == {}
    other = examples(None, target, town=["NO", "No"] * 9, size=["1.5", "2"] * 9, y=["p", "q"] * 9)
    assert other.raw(0)["cells"]["town"] == "NO"


def test_files_are_read_as_their_part_reads_them(tmp_path):
    columns = {
        "photo": [image_bytes(i) for i in range(4)],
        "n": [0.5, 1.5, 2.5, 4.0],
        "y": [1.5, 2.0, 3.0, 4.5],
    }
    joined = Join({"view": Patches(4, channels=1), "cells": Cells()}, reads={"view": "photo"})
    assert examples(tmp_path, {}, tokenizer=joined, **columns).raw(2)["photo"].shape == (1, 8, 8)
    alone = examples(tmp_path, {}, reads="image", tokenizer=Patches(4, channels=3), **columns)
    torch.testing.assert_close(alone.raw(3), torch.full((3, 8, 8), 3 / 255))


@pytest.mark.parametrize("kept", ["bytes", "bytes and path", "path"])
def test_files_may_stand_in_the_table_or_beside_it(tmp_path, kept):
    photos, sounds = [image_bytes(9 * i) for i in range(6)], [sound_bytes(i + 2) for i in range(6)]
    for i in range(6):
        (tmp_path / f"{i}.png").write_bytes(photos[i])
        (tmp_path / f"{i}.wav").write_bytes(sounds[i])
    if kept != "bytes":
        holds = kept == "bytes and path"
        photos = [
            {"bytes": cell if holds else None, "path": f"{i}.png"} for i, cell in enumerate(photos)
        ]
        sounds = [
            {"bytes": cell if holds else None, "path": f"{i}.wav"} for i, cell in enumerate(sounds)
        ]
    kinds = {"columns": {"photo": "image", "sound": "audio"}, "target": "y"}
    made = examples(tmp_path, kinds, photo=photos, sound=sounds, y=[0.5, 1.5, 2.5, 3.5, 4.5, 5.5])
    for i in range(6):
        torch.testing.assert_close(made.raw(i)["photo"], torch.full((3, 8, 8), 9 * i / 255))
        assert made.raw(i)["sound"].sample_rate == 8000


OUTSIDE = ["/etc/hostname", "../secret.png", "a/../../secret.png", "link.png", "folder/secret.png"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_table_reads_no_file_outside_its_folder(name, tmp_path):
    (own := tmp_path / "own" / "a").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(image_bytes(7))
    (own.parent / "link.png").symlink_to(tmp_path / "secret.png")
    (own.parent / "folder").symlink_to(tmp_path)
    made = examples(
        own.parent, {"columns": {"photo": "image"}}, photo=[name] * 3, y=[0.5, 1.5, 2.5]
    )
    assert set(made.faults) == {0, 1, 2}
    assert "is not below" in made.faults[0]
    assert "--data.folder FOLDER" in made.faults[0]
    if "secret" in name:  # which a folder lets in that is given
        path = os.path.relpath(
            os.path.normpath(own.parent / name.replace("folder/", "../")), tmp_path
        )
        allowed = examples(
            tmp_path, {"columns": {"photo": "image"}}, photo=[path] * 3, y=[0.5, 1.5, 2.5]
        )
        assert allowed.faults == {}
        assert allowed.raw(0).shape == (3, 8, 8)


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    names = ["pipe.png", "nothing.png", "x" * 5000 + ".png", "a\0b.png", "."]
    made = examples(
        tmp_path, {"columns": {"photo": "image"}}, photo=names, y=[0.5, 1.5, 2.5, 3.5, 4.5]
    )
    assert set(made.faults) == set(range(5))
    assert not any("\n" in fault or len(fault) > 1100 for fault in made.faults.values())


def test_a_name_without_its_suffix_is_answered_with_the_file(tmp_path):
    (tmp_path / "7.png").write_bytes(image_bytes(7))
    made = examples(tmp_path, {}, image=["7", "8"], y=[0.5, 1.5])
    assert made.faults[0].startswith(f"7 does not exist in {tmp_path}; there is 7.png")


# ── rows that cannot be used ─────────────────────────────────────────────────────────────────────────────────────────


def test_rows_without_input_or_target_are_left_out_and_counted():
    made = examples(None, {}, text=["a b", "", "c d", "e f", None], label=["x", "y", "", "x", "y"])
    rows, (said,) = usable(made)
    assert rows.indices == [0, 3]
    assert (
        said
        == "t.csv: 3 of 5 rows are left out (no text: 2, the first: t.csv, row 2; no label: 1, the first: t.csv, row 3)"
    )


def test_faulty_rows_are_an_error_or_left_out_up_to_a_number():
    columns = {"size": ["1.5", "many", "2", "3", "few"], "y": ["1.5", "2", "3", "x", "4"]}
    given = {"columns": {"size": "number"}, "target_kind": "numbers", "target": "y"}
    with pytest.raises(
        DataError,
        match=r"t\.csv, row 2: size is 'many', .* \(3 of 5 rows .*--data\.skip_bad 3 leaves",
    ):
        usable(examples(None, given, **columns))
    rows, (said,) = usable(examples(None, given, **columns), skip_bad=3)
    assert rows.labels == [1.5, 3.0]
    assert (
        "3 of 5 rows are left out (cannot be used: 3, the first: t.csv, row 2: size is 'many'"
        in said
    )
    with pytest.raises(DataError, match="none of the 2 rows has both"):
        usable(examples(None, {"columns": {"size": "number"}}, size=["", ""], y=["1", "2"]))


def test_files_and_molecules_that_cannot_be_read_are_found_where_rows_may_be_left_out(tmp_path):
    cells = [image_bytes(7), image_bytes(8)[:40], image_bytes(9)]
    made = examples(
        tmp_path, {}, reads="image", tokenizer=Patches(4), photo=cells, y=[0.5, 1.5, 2.5]
    )
    with pytest.raises(DataError, match="the file in photo"):
        made.raw(1)
    assert usable(made, skip_bad=1)[0].indices == [0, 2]
    (tmp_path / "torn.wav").write_bytes(b"RIFF")
    (tmp_path / "fine.wav").write_bytes(sound_bytes(3))
    names = ["fine.wav", "torn.wav", "fine.wav"]
    made = examples(
        tmp_path, {}, reads="audio", tokenizer=LogMel(8000), sound=names, y=[0.5, 1.5, 2.5]
    )
    assert usable(made, skip_bad=1)[0].indices == [0, 2]
    pytest.importorskip("rdkit")
    made = examples(None, {"columns": {"smiles": "smiles"}, "target": "y"}, reads="smiles", tokenizer=Molecule(),
                    smiles=["CCO", "C1CC", "CC"], y=[0.5, 1.5, 2.5])  # fmt: skip
    assert usable(made, skip_bad=1)[0].indices == [0, 2]


def test_a_huge_cell_is_a_text_as_any_other():
    made = examples(None, {}, text=["word " * 40_000, "a b"], label=["x", "y"])
    assert len(made.raw(0)) == 200_000


# ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────────

LABELS = [
    (
        "classes",
        ["ham", " spam ", '"ham"', True, "n/a", 1.0, 7],
        ["ham", "spam", "ham", "true", None, "1", "7"],
    ),
    ("numbers", ["1.5", 2, "n/a", "-1e3"], [1.5, 2.0, None, -1000.0]),
    ("text", ["zero", "null", "", ["one", "une"]], ["zero", "null", None, ["one", "une"]]),
    ("tags", ["X Y", ["X", " Y"], ""], [["X", "Y"], ["X", "Y"], None]),
]


@pytest.mark.parametrize(("kind", "cells", "labels"), LABELS)
def test_a_label_is_what_the_target_holds(kind, cells, labels):
    made = examples(
        None,
        {"target": "y", "target_kind": kind},
        text=[f"to {i}" for i in range(len(cells))],
        y=cells,
        reads="text",
    )
    rows, _ = usable(made)
    found = dict(zip(rows.indices, rows.labels))
    assert [found.get(i) for i in range(len(cells))] == labels


def test_several_targets_have_gaps():
    made = examples(
        None,
        {"target": ["a", "b"]},
        text=["to be", "or not", "to see"],
        a=["1.5", "", "2"],
        b=["", "", "7.5"],
    )
    rows, (said,) = usable(made)
    assert rows.labels[0][0] == 1.5
    assert np.isnan(rows.labels[0][1])
    assert rows.labels[1] == [2.0, 7.5]
    assert "no a or b: 1, the first: t.csv, row 2" in said
    given = {"target": ["a", "b"], "target_kind": "labels"}
    rows, _ = usable(
        examples(
            None, given, text=["to be", "or not", "to see"], a=["yes", "no", ""], b=[1, 0, True]
        )
    )
    assert rows.labels[:2] == [[1, 1], [0, 0]]
    assert np.isnan(rows.labels[2][0])


@pytest.mark.parametrize(
    ("kind", "cell", "fact"),
    [
        ("classes", ["a"], "is no class; for a class of each word give --data.target_kind tags"),
        ("numbers", "high", r"y is 'high', which is no number; .*--data\.target_kind classes"),
        ("numbers", "-1e39", r"beyond 1e\+18"),
        ("text", 7, "is no text"),
        ("labels", "2", "write yes or no"),
        ("tags", "X", "text has 2 words and y 1; give a tag for each word"),
    ],
)
def test_a_label_of_another_kind_is_named(kind, cell, fact):
    first = {"classes": "a", "numbers": "1.5", "text": "a", "labels": "yes", "tags": "X Y"}[kind]
    made = examples(
        None,
        {"target": "y", "target_kind": kind},
        text=["to be", "or not"],
        y=[first, cell],
        reads="text",
    )
    with pytest.raises(DataError, match=f"t.csv, row 2: .*{fact}"):
        usable(made)


def test_classes_and_tags_have_numbers_and_one_that_training_lacks_is_named():
    rows, _ = usable(examples(None, {}, text=["a b", "c d"], label=["ham", "spam"]))
    rows.number(["ham", "spam"], "train")
    assert rows.labels == [0, 1]
    rows, _ = usable(
        examples(
            None,
            {"target_kind": "tags"},
            text=["a b", "c d"],
            tags=["X Y", "Y Y"],
            tokenizer=Bytes(),
        )
    )
    rows.number(["X", "Y"], "train")
    assert [label.tolist() for label in rows.labels] == [[0, 1], [1, 1]]
    rows, _ = usable(examples(None, {}, text=["a b", "c d"], label=["ham", "eggs"]))
    with pytest.raises(
        DataError, match=r"t\.csv, row 2: the test split has the class 'eggs', which training lacks"
    ):
        rows.number(["ham"], "test")


def test_a_series_over_columns_is_a_list_of_numbers():
    columns = {"s0": ["1", "4", "7"], "s1": ["2,5", "", "x"], "y": ["a", "b", "a"]}
    made = examples(None, {"input": ["s1", "s0"], "target": "y", "forms": {"s1": ","}}, **columns)
    assert made.raw(0) == [2.5, 1.0]
    assert made.faults == {
        1: "s1 is empty, and each column of a series holds a number", 2: "s1 is 'x', which is no number",
    }  # fmt: skip
