"""Tables of mixed columns: each column becomes what it is, gaps are absent, and each fault is said in one line."""

import csv
import io
import json
import os
import re
import wave

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from seqkit.data import MixedTable
from seqkit.data.tables.files import read_tables
from seqkit.errors import DataError
from seqkit.tokenizers import Bytes, Cells, Join, LogMel, Patches


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))


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


def products(folder, n=23):
    """Rows with a column of every kind, each with gaps, and their files."""
    rows = []
    for i in range(n):
        (folder / f"{i}.png").write_bytes(image_bytes(10 * i))
        (folder / f"{i}.wav").write_bytes(sound_bytes(i + 3))
        row = {
            "number of row": i, "code": f"AB{i:03}", "title": f"a thing of size {i}", "photo": f"{i}.png",
            "sound": f"{i}.wav", "smiles": "C" * (i + 1), "price": i * 1.5, "made": f"20{10 + i}-03-07",
            "colour": ("red", "blue")[i % 2], "maker": "us", "empty": "", "label": ("old", "new")[i // 3 % 2],
        }  # fmt: skip
        for j, name in enumerate(["title", "photo", "sound", "smiles", "price", "made", "colour"]):
            if i % 7 == j:
                row[name] = ""
        rows.append(row)
    return rows


def written(folder, rows, name="products.csv"):
    path = folder / name
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return str(path)


def samples(source):
    splits = source.splits()
    return [*splits.train, *splits.test]


KINDS = {
    "number of row": "unused", "code": "unused", "title": "text", "photo": "image", "sound": "audio",
    "smiles": "smiles", "price": "number", "made": "date", "colour": "category", "maker": "unused", "empty": "unused",
}  # fmt: skip


def test_each_column_becomes_what_it_is_and_one_line_says_all(tmp_path, caplog):
    kinds, columns = MixedTable(written(tmp_path, products(tmp_path))).settled()
    assert kinds == KINDS
    assert columns.targets == ["label"]
    (line,) = caplog.messages
    for name, kind in KINDS.items():
        assert re.search(rf"{kind}: [^;]*'{name}'", line)
    for fact in ("target: 'label' (classes)", "counts the rows", "each of its 23 words", "'us'", "--data.columns"):
        assert fact in line


def test_repeated_notes_of_several_words_are_texts_where_the_recipe_reads_texts(tmp_path):
    notes = ["came back with pain", "waits for lab results", "sent home after one day"]
    rows = [{"note": notes[i % 3], "town": ["New York", "Rome"][i % 2], "y": i % 2} for i in range(24)]
    source = MixedTable(written(tmp_path, rows), target="y")
    assert source.settled()[0] == {"note": "text", "town": "category"}
    assert source.settled(has_text=False)[0] == {"note": "category", "town": "category"}


@pytest.mark.parametrize(
    ("days", "first"),
    [
        (["02.03.2022", "21.03.2022"], "2022-03-02"),
        (["02/03/2022", "21/03/2022 14:30"], "2022-03-02"),
        (["02/03/2022", "02/21/2022"], "2022-02-03"),
        (["2022-03-02", "21.03.2022"], "2022-03-02"),
    ],
)
def test_dates_of_a_column_are_read_in_the_one_form_that_fits_all(days, first, tmp_path):
    rows = [{"day": days[i % 2], "price": i / 7, "y": i % 4 / 2} for i in range(24)]
    source = MixedTable(written(tmp_path, rows), target="y")
    assert source.settled()[0]["day"] == "date"
    found = {str(raw["cells"]["day"]): raw["cells"]["day"] for raw, _, *_ in samples(source)}
    assert first in found
    assert found[first] == pytest.approx(52 + int(first[5:7]) / 12, abs=0.2), "years since 1970"


def test_dates_that_may_be_of_either_order_are_not_guessed(tmp_path, caplog):
    rows = [{"day": f"0{1 + i % 9}/0{1 + i % 7}/2022", "price": i / 7, "y": i % 4 / 2} for i in range(24)]
    assert MixedTable(written(tmp_path, rows), target="y").settled()[0]["day"] == "unused"
    assert "'day' ('01/01/2022' may be day/month or month/day; write dates as 2022-02-21)" in caplog.text
    with pytest.raises(DataError, match=r"2022-02-21, 21\.02\.2022"):
        MixedTable(written(tmp_path, rows), target="y", columns={"day": "date"}).splits()


def test_what_is_given_is_neither_guessed_nor_said(tmp_path, caplog):
    path = written(tmp_path, products(tmp_path))
    given = {**KINDS, "code": "text", "price": "category", "colour": "unused"}
    kinds, _ = MixedTable(path, target="label", target_kind="classes", columns=given).settled()
    assert kinds == given
    assert not caplog.records


def test_a_row_is_its_filled_cells(tmp_path):
    """Every row that was written is a sample, with a part for each filled cell and with no other."""
    rows = products(tmp_path)
    found = samples(MixedTable(written(tmp_path, rows)))
    assert len(found) == len(rows)
    by_photo = {}
    for sample in found:
        raw = sample.raw
        cells = raw.get("cells", {})
        number = round(cells["price"] / 1.5) if "price" in cells else len(raw["smiles"]) - 1
        by_photo[number] = raw
    for i, row in enumerate(rows):
        raw = by_photo[i]
        filled = {name for name in KINDS if row[name] != "" and KINDS[name] != "unused"}
        assert set(raw) - {"cells"} == filled & {"title", "photo", "sound", "smiles"}
        assert set(raw["cells"]) == filled & {"price", "made", "colour"}
        if "photo" in raw:
            assert_shade(raw["photo"], 10 * i)
        if "made" in raw["cells"]:
            assert int(raw["cells"]["made"]) == 40 + i, "years since 1970"


def assert_shade(image, shade):
    torch.testing.assert_close(image, torch.full((3, 8, 8), shade / 255))


def test_bytes_in_parquet_are_files(tmp_path):
    rows = [
        {"picture": image_bytes(i), "clip": {"bytes": sound_bytes(i + 2), "path": None}, "y": i / 2} for i in range(20)
    ]
    rows[3]["picture"] = None
    pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    source = MixedTable(str(tmp_path / "rows.parquet"), target="y")
    assert source.settled()[0] == {"picture": "image", "clip": "audio"}
    for raw, label, *_ in samples(source):
        assert ("picture" in raw) == (label != 1.5)
        if "picture" in raw:
            assert_shade(raw["picture"], round(2 * label))
        assert raw["clip"].sample_rate == 8000
    rows[5]["picture"] = b"no image"
    pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="picture") as error:
        samples(MixedTable(str(tmp_path / "bad.parquet"), target="y"))
    assert "/tmp" not in str(error.value).replace(str(tmp_path), "")


def test_an_unreadable_file_is_an_error_or_a_counted_absence_and_never_black(tmp_path, caplog):
    rows = products(tmp_path)
    (tmp_path / "4.png").write_bytes(image_bytes(1)[:40])
    (tmp_path / "6.wav").unlink()
    rows[8]["smiles"] = "not a molecule"
    path = written(tmp_path, rows)
    with pytest.raises(DataError, match=r"line 8: 6\.wav .*1 of 23"):
        MixedTable(path).splits()
    (tmp_path / "6.wav").write_bytes(sound_bytes(9))
    with pytest.raises(DataError, match=r"4\.png"):
        samples(MixedTable(path))
    (tmp_path / "6.wav").write_bytes(b"RIFF")
    parts = {"title": Bytes(), "photo": Patches(4, channels=3), "sound": LogMel(8000), "cells": Cells()}
    source = MixedTable(path, skip_bad=True)
    source.read_for(Join(parts))
    found = samples(source)
    assert "cells that count as empty: 2 (the first: " in caplog.text
    assert "line 6: " in caplog.text
    assert len(found) == len(rows)
    whole = sum(row["photo"] != "" for row in rows)
    assert sum("photo" in raw for raw, _, *_ in found) == whole - 1
    assert all(raw["photo"].max() > 0 for raw, _, *_ in found if "photo" in raw and raw["cells"].get("price", 1) != 0)


def test_images_are_read_with_the_channels_of_their_part(tmp_path):
    rows = [row for row in products(tmp_path) if row["photo"]]
    source = MixedTable(written(tmp_path, rows), columns={"sound": "unused"})
    source.read_for(Join({"view": Patches(4, channels=1), "cells": Cells()}, reads={"view": "photo"}))
    assert {raw["photo"].shape[0] for raw, _, *_ in samples(source)} == {1}


def test_rows_of_a_group_stay_together_and_what_names_splits_is_no_input(tmp_path):
    rows = [{"who": f"p{i % 5}", "text": f"words number {i}", "part": ("train", "test")[i % 3 == 0], "y": i % 4 / 2}
            for i in range(30)]  # fmt: skip
    path = written(tmp_path, rows)
    splits = MixedTable(path, target="y", group="who", columns={"part": "unused"}).splits()
    assert set(splits.test.groups).isdisjoint({rows[i]["who"] for i in range(30)} - {"p0", "p1", "p2", "p3", "p4"})
    assert len(splits.test) in (6, 12)
    source = MixedTable(path, target="y", split="part", columns={"who": "category"})
    assert "part" not in source.settled()[0]
    splits = source.splits()
    assert (len(splits.train), len(splits.test)) == (20, 10)


def test_test_files_need_the_same_columns(tmp_path):
    rows = products(tmp_path)
    path = written(tmp_path, rows)
    less = written(tmp_path, [{k: v for k, v in row.items() if k != "price"} for row in rows], "less.csv")
    with pytest.raises(DataError, match=r"less\.csv .*'price'"):
        MixedTable(path, test=less).splits()
    more = written(tmp_path, [{**row, "weight": 7} for row in rows], "more.csv")
    assert len(MixedTable(path, test=more).splits().test) == len(rows)


def test_a_hostile_table_is_answered_in_one_line(tmp_path, subtests):
    def rows(n=12, **cells):
        return [{name: cell.format(i=i) if isinstance(cell, str) else cell(i) for name, cell in cells.items()}
                for i in range(n)]  # fmt: skip

    for given, arguments, fact in (
        (rows(y=lambda i: i % 3), {"target": "y"}, "no column is left"),
        (rows(a="x", y=lambda i: i % 3), {"target": "y"}, "no column is left"),
        (rows(a="{i}", y=lambda i: i % 3), {"target": "y"}, "no column is left"),
        (rows(a=lambda i: "many" if i == 4 else i, y="{i}"), {"target": "y"}, "line 6: a is 'many'"),
        (rows(a="{i},5", y="{i}"), {"target": "y"}, "decimal comma"),
        (rows(a=lambda i: i / 7, y="{i}"), {"target": "z"}, "'z'"),
        (rows(a=lambda i: i / 7, y="{i}"), {"target": "y", "columns": {"b": "text"}}, "'b'"),
        (rows(a=lambda i: i / 7, y="{i}"), {"target": "y", "columns": {"y": "text"}}, "both|target, and an"),
        (rows(a=lambda i: i / 7, b=lambda i: -i / 7, c=lambda i: i / 3), {"columns": {"a": "number"}}, "--data.target"),
        (rows(cells="some words {i}", y="{i}"), {"target": "y"}, "'cells'"),
        (rows(a="", y="{i}"), {"target": "y", "columns": {"a": "number"}}, "no filled cell: 12"),
        (rows(a=lambda i: i / 7, y=""), {"target": "y"}, "none of the 12 rows"),
        (rows(a="{i}e300", y="{i}"), {"target": "y"}, r"1e\+18"),
        (rows(a="x{i}", y="{i}"), {"target": "y", "columns": {"a": "number"}}, "no number"),
        (rows(a="x{i}", y="{i}"), {"target": "y", "columns": {"a": "date"}}, "no date"),
        (rows(a="x{i}", y="{i}"), {"target": "y", "columns": {"a": "image"}}, "does not exist"),
    ):
        path = written(tmp_path, given)
        with subtests.test(f"{arguments}: {fact}"), pytest.raises(DataError, match=fact) as error:
            MixedTable(path, **arguments).splits()
        assert "\n" not in str(error.value)
    (tmp_path / "products.csv").write_text("a,y\n", encoding="utf-8")
    with pytest.raises(DataError, match="no rows"):
        MixedTable(str(tmp_path / "products.csv")).splits()


def test_a_word_that_is_no_kind_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(ValueError, match="did you mean number"):
        MixedTable("rows.csv", columns={"a": "numbers"})


def test_rows_without_a_target_are_left_out_and_counted(tmp_path, caplog):
    rows = products(tmp_path)
    for row in rows[:4]:
        row["label"] = ""
    assert len(samples(MixedTable(written(tmp_path, rows)))) == len(rows) - 4
    assert "4 of 23 rows are left out (no label: 4, the first in line 2)" in caplog.text


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    for name in ("pipe.png", "/dev/zero", "../../nothing.png", "x" * 5000 + ".png", "a\0b.png"):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps({"photo": name, "n": i / 3, "y": i}) + "\n" for i in range(12)))
        with pytest.raises(DataError, match=r"photo|does not exist|cannot be read") as error:
            samples(MixedTable(str(path), target="y", columns={"photo": "image"}))
        assert "\n" not in str(error.value)


def test_a_huge_cell_is_a_text_as_any_other(tmp_path):
    rows = [{"note": "word " * (40_000 if i == 3 else i + 1), "y": i} for i in range(12)]
    found = samples(MixedTable(written(tmp_path, rows), target="y"))
    assert max(len(raw["note"]) for raw, _, *_ in found) == 200_000


def test_names_that_are_paths_may_lead_out_of_the_folder_as_those_of_a_table(tmp_path):
    (tmp_path / "below").mkdir()
    rows = [{**row, "photo": f"../{row['photo']}"} for row in products(tmp_path) if row["photo"]]
    found = samples(MixedTable(written(tmp_path / "below", rows), columns={"sound": "unused"}))
    assert all("photo" in raw for raw, _, *_ in found)


def test_the_first_rows_decide_and_a_later_one_that_differs_is_named(tmp_path):
    rows = [{"a": i / 7, "y": i % 5} for i in range(2_100)]
    rows[2_050]["a"] = "many"
    path = written(tmp_path, rows)
    assert len(read_tables(path)) == 2_100
    with pytest.raises(DataError, match="line 2052: a is 'many'"):
        MixedTable(path, target="y").splits()
    found = samples(MixedTable(path, target="y", skip_bad=True))
    assert len(found) == 2_099, "a row without any filled cell is no example"


def test_values_that_come_again_with_other_numbers_are_said_by_column(tmp_path):
    """Every row differs from every other; the molecule and the picture come again, the molecule in other words."""
    pytest.importorskip("rdkit")
    for i in range(6):
        (tmp_path / f"{i}.png").write_bytes(image_bytes(40 * (i // 2)))
    ways = ["CCO", "OCC", "CCN", "NCC", "CCCC", "C(C)CC"]
    rows = [
        {"smiles": ways[i % 6], "photo": f"{i % 6}.png", "title": f"title of {i}", "dose": i / 2, "label": "ab"[i % 2]}
        for i in range(36)
    ]
    path, said = written(tmp_path, rows), []
    MixedTable(path).divided(said.append)
    lines = [line for line in said if "in training, too" in line]
    for line, column in zip(lines, ("smiles", "photo"), strict=True):
        assert f"8 of 8 test rows have a value of {column} " in line
    assert "--data.group smiles" in lines[0]
    source, said = MixedTable(path, group="smiles"), []
    assert source.settled()[0]["smiles"] == "smiles", "it stays an input"
    splits = source.divided(said.append)
    assert len({raw["smiles"][0] + raw["smiles"][-1] for raw, _, *_ in splits.test}) <= 2
    assert not [line for line in said if "value of smiles that is in training" in line]
    assert any("1 of 3 groups by 'smiles'" in line for line in said)


def test_a_column_of_names_by_which_rows_are_grouped_is_no_input_unless_it_is_given(tmp_path):
    rows = [{"who": f"patient {i % 7}", "text": f"a long story of {i}", "label": "ab"[i % 2]} for i in range(28)]
    path = written(tmp_path, rows)
    assert "who" not in MixedTable(path, group="who").settled()[0]
    assert MixedTable(path, group="who", columns={"who": "text"}).settled()[0]["who"] == "text"


def test_categories_that_look_alike_and_copies_of_rows_are_said(tmp_path):
    rows = [
        {"price": i / 7, "city": ("Köln", "München", "münchen")[i % 3], "new": ("Ja", "ja ", "nein")[i % 3], "y": i % 2}
        for i in range(30)
    ]
    said = []
    MixedTable(written(tmp_path, [*rows, rows[4]]), target="y", target_kind="classes", seed=3).divided(said.append)
    (line,) = [line for line in said if "look alike" in line]
    assert "city: 'München' (11) and 'münchen' (10); new: 'Ja' (10) and 'ja' (11)" in line
    (line,) = [line for line in said if "copies" in line or "in training, too" in line]
    assert "1 of 31 rows are copies" in line
