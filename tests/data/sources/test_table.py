"""The data source of a user's own tables: the splits hold what they promise, and each line that is said is true."""

import json
import os
import shlex
from collections import Counter
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from seqkit.data import Table
from seqkit.data.notes import Caution
from seqkit.data.sources.table import Division
from seqkit.data.tables import text as text_files
from seqkit.data.tables.schema import Given
from seqkit.errors import DataError
from seqkit.files import load_yaml
from seqkit.interfaces import Tokenizer
from seqkit.tokenizers import Bytes, Cells, Join, Patches, Series


def written(folder, rows, name="t.jsonl"):
    """A file of rows, each a dictionary."""
    path = folder / name
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return str(path)


def texts(n=30, **columns):
    return [
        {"text": f"text {i}", "label": "ab"[i % 2]}
        | {name: column(i) for name, column in columns.items()}
        for i in range(n)
    ]


def divided(
    path, tokenizer: Tokenizer | None = None, given=None, skip_bad=0, folder=None, **division
):
    """Splits of a table, and the lines that are said of them."""
    table = Table(
        str(path), Given(**given or {}), Division(**division), skip_bad=skip_bad, folder=folder
    )
    table.read_for(tokenizer)
    said = []
    return table.divided(said.append), said


def raws(samples):
    return [sample.raw for sample in samples]


def test_columns_are_inferred_once_and_decided(tmp_path, caplog, monkeypatch):
    opened, once = [], text_files._opened
    monkeypatch.setattr(text_files, "_opened", lambda file: opened.append(file) or once(file))
    table = Table(written(tmp_path, texts(3_000, day=lambda i: f"{1 + i % 27:02}/02/2022")))
    assert [(column.name, column.kind) for column in table.schema().inputs] == [
        ("text", "text"),
        ("day", "date"),
    ]
    splits = table.splits()
    assert len(opened) == 1
    assert len(caplog.messages) == 5, "a line for each column, for the date, and for the split"
    assert all(str(tmp_path) in line for line in caplog.messages)
    decided = table.decided()
    assert decided["columns"] == {"text": "text", "day": "date"}
    assert decided["forms"] == {"day": "%d/%m/%Y"}
    again = Table(table.path, Given(**decided)).splits()
    assert [list(part)[:50] for part in (again.train, again.test)] == [
        list(part)[:50] for part in (splits.train, splits.test)
    ]
    assert Table(table.path, Given(**decided)).schema().lines()


def test_a_tokenizer_says_which_column_is_read(tmp_path):
    Image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / "a.png")
    rows = texts(12, photo=lambda i: "a.png", size=lambda i: i / 2, steps=lambda i: [0.5 * i, 1.0])
    path, given = written(tmp_path, rows), {"target": "label"}
    for tokenizer, kind in (
        (Bytes(), str),
        (Patches(4, channels=3), torch.Tensor),
        (Series(), list),
        (None, dict),
    ):
        assert type(divided(path, tokenizer, given)[0].train[0].raw) is kind
    joined = Join({"text": Bytes(), "photo": Patches(4, channels=1), "cells": Cells()})
    raw = divided(path, joined, given | {"columns": {"steps": "unused"}})[0].train[0].raw
    assert raw.keys() == {"text", "photo", "cells"}
    assert raw["photo"].shape == (1, 8, 8)


# ── splits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_split_is_that_of_sha256_by_class(tmp_path):
    rows = [{"text": f"text {i}", "label": "ab"[i % 5 == 0]} for i in range(50)]
    splits, said = divided(written(tmp_path, rows), test_fraction=0.3, seed=4)
    # the definition: of each class, the first in the order of SHA-256 of "seed index"
    order = sorted(range(50), key=lambda i: sha256(f"4 {i}".encode()).digest())
    wanted = {
        i
        for name in "ab"
        for i in [i for i in order if rows[i]["label"] == name][: {"a": 12, "b": 3}[name]]
    }
    assert {*raws(splits.test)} == {f"text {i}" for i in wanted}
    assert {*raws(splits.train)} == {f"text {i}" for i in range(50) if i not in wanted}
    assert (
        "35 training, 15 test rows; 30 % of the rows are test, by class, SHA-256 with seed 4"
        in said[-1]
    )


def test_a_column_names_the_split(tmp_path):
    names = ["train", "Train", "training", "valid", "dev", "test"]
    splits, _ = divided(
        written(tmp_path, rows := texts(24, part=lambda i: names[i % 6])), split="part"
    )
    for part, chosen in ((splits.train, (0, 1, 2)), (splits.valid, (3, 4)), (splits.test, (5,))):
        assert raws(part) == [row["text"] for i, row in enumerate(rows) if i % 6 in chosen]


def test_files_of_a_folder_that_are_called_train_and_test_are_these(tmp_path):
    rows = texts()
    for name, part in (("train", rows[:20]), ("test", rows[20:25]), ("validation-0", rows[25:])):
        written(tmp_path, part, f"{name}.jsonl")
    splits, said = divided(tmp_path)
    assert [raws(part) for part in (splits.train, splits.test, splits.valid)] == [
        [row["text"] for row in part] for part in (rows[:20], rows[20:25], rows[25:])
    ]
    assert "20 training, 5 validation, 5 test rows; as given" in said[-1]
    assert splits.valid.name(2) == f"{tmp_path / 'validation-0.jsonl'}, line 3"
    written(tmp_path, rows[:2], "other.jsonl")
    with pytest.raises(DataError, match="split is not clear"):
        divided(tmp_path)


def test_a_hub_name_is_asked_for_its_splits(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")

    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path))
    load = {"train": texts(20), "test": texts(6)}
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name, split, **_: datasets.Dataset.from_list(load[split])
    )
    splits, _ = divided("hf://owner/name", test="test")
    assert (len(splits.train), len(splits.test), splits.train.key()) == (20, 6, None)


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_group_stay_in_one_split(seed, tmp_path):
    rows = texts(72, who=lambda i: f"author {i % 7}" if i < 70 else "")
    splits, said = divided(written(tmp_path, rows), group="who", seed=seed)
    who = {row["text"]: row["who"] for row in rows}
    train, test = ({who[raw] for raw in raws(part)} - {""} for part in (splits.train, splits.test))
    assert not train & test
    assert len(train | test) == 7
    assert 11 <= len(splits.test) <= 22, "whole groups of 10 or 1, until there are 14 rows"
    assert splits.test.groups == [repr(who[raw]) if who[raw] else None for raw in raws(splits.test)]
    assert "2 rows have no who (first: " in said[0]
    assert "of 9 groups by 'who' are test" in said[-1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_spam", [1, 4])
def test_a_test_split_by_groups_has_each_class_or_is_said_to_lack_it(seed, num_spam, tmp_path):
    rows = [
        {"text": f"text {i}", "label": "spam" if i // 6 < num_spam else "ham", "who": f"p{i // 6}"}
        for i in range(60)
    ]
    splits, said = divided(written(tmp_path, rows), group="who", seed=seed)
    assert {*splits.train.labels} == {0, 1}
    assert len({*splits.test.labels}) == min(num_spam, 2)
    line = "the test split has 1 of 2 classes: its result says nothing of spam"
    assert [isinstance(one, Caution) for one in said if line in one] == [True] * (num_spam == 1)


def test_a_given_test_of_one_class_is_said(tmp_path):
    rows = texts(40, part=lambda i: "test" if i % 10 == 1 else "train")
    _, said = divided(written(tmp_path, rows), split="part")
    assert any("the test split has 1 of 2 classes: its result says nothing of a" in x for x in said)


def test_equal_molecules_and_files_are_one_group_and_one_input(tmp_path):
    pytest.importorskip("rdkit")
    ways = ["CCO", "OCC", "CCN", "NCC", "CCC", "C(C)C"]
    for i in range(6):
        Image.new("L", (4, 4), 10 * (i // 2)).save(tmp_path / f"{i}.png")
    for column, cells in (("smiles", ways), ("photo", [f"{i}.png" for i in range(6)])):
        rows = [{column: cells[i % 6], "y": i % 4 + 0.5} for i in range(18)]
        splits, said = divided(path := written(tmp_path, rows), group=column)
        assert len(splits.test) == 6
        assert "1 of 3 groups" in said[-1]
        assert not any("in training, too" in line for line in said)
        leaks = [line for line in divided(path)[1] if "test inputs are in training, too" in line]
        assert f"4 of 4 test inputs are in training, too (first: {path}, line" in leaks[0]
        assert leaks[0].endswith(f"--data.group {column}")


@pytest.mark.parametrize("by", ["column", "file", "folder"])
def test_a_given_split_stays_and_groups_on_both_sides_are_said(tmp_path, by):
    rows = texts(**{"who is it": lambda i: f"p{i // 3}" if i != 29 else ""})
    chosen = (0, 1, 2, 3, 10, 29)
    rows = [row | {"part": "test" if i in chosen else "train"} for i, row in enumerate(rows)]
    train, test = ([row for row in rows if row["part"] == part] for part in ("train", "test"))
    if by == "column":
        splits, said = divided(
            written(tmp_path, rows), None, {"input": "text"}, split="part", group="who is it"
        )
    else:
        path, other = written(tmp_path, train, "train.jsonl"), written(tmp_path, test, "test.jsonl")
        files = {"test": other} if by == "file" else {}
        splits, said = divided(
            path if by == "file" else tmp_path, None, {"input": "text"}, group="who is it", **files
        )
    assert raws(splits.test) == [row["text"] for row in test]
    assert len(set(splits.test.groups)) == 4, "p0, p1, p3, and the row without a group"
    (line,) = [line for line in said if "in training, too" in line]
    assert "2 of 3 test groups by 'who is it'" in line
    assert "1 rows have no who is it" in said[0]


# ── targets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_classes_that_are_numbers_are_in_their_order_and_keep_their_spelling(tmp_path):
    for cells, names in (([10, 2, 1], ["1", "2", "10"]), (["1.0", "0.0"], ["0.0", "1.0"]), (["01", "02"], ["01", "02"]),
                         (["v1.0", "1.0"], ["1.0", "v1.0"]), ([str(10**16), str(10**16 + 1)],) * 2):  # fmt: skip
        rows = [{"text": f"a {i}", "stars": cells[i % len(cells)]} for i in range(30)]
        splits, _ = divided(written(tmp_path, rows), None, {"target_kind": "classes"})
        assert splits.names == names
        assert {raw: names[label] for raw, label, *_ in splits.test} == {
            row["text"]: str(row["stars"]) for row in rows if row["text"] in raws(splits.test)
        }


def test_tags_are_the_same_of_texts_and_of_lists(tmp_path):
    sentences = [
        [(f"w{i}", ("O", "PER", "LOC")[(i * j) % 3]) for i in range(1 + j % 7)] for j in range(20)
    ]
    lists = [{"tokens": [word for word, _ in s], "tags": [tag for _, tag in s]} for s in sentences]
    spaces = [{name: " ".join(words) for name, words in row.items()} for row in lists]
    for rows in (lists, spaces):
        splits, _ = divided(written(tmp_path, rows), Bytes(), {"target_kind": "tags"})
        samples = [*splits.train, *splits.test]
        assert all(sample.label.dtype == torch.int64 for sample in samples)
        found = Counter(
            tuple(zip(s.raw.split(), [splits.names[i] for i in s.label])) for s in samples
        )
        assert found == Counter(tuple(s) for s in sentences)


def test_labels_have_the_names_of_their_columns(tmp_path):
    rows = texts(
        toxic=lambda i: ("yes", "no")[i % 2], insult=lambda i: None if i == 3 else i % 3 == 0
    )
    splits, _ = divided(
        written(tmp_path, rows), None, {"target": ["toxic", "insult"], "input": "text"}
    )
    assert splits.names == ["toxic", "insult"]
    labels = {raw: label for part in (splits.train, splits.test) for raw, label, *_ in part}
    assert labels["text 0"] == [1, 1]
    assert labels["text 1"] == [0, 0]
    assert np.isnan(labels["text 3"][1])


@pytest.mark.parametrize(
    "both",
    ["ja nein", "J N", "WAHR FALSCH", "oui non", "vrai faux", "sí no", "si NO", "verdadero falso", "sì no",
     "vero falso", "sim não", "Sim Nao", "verdadeiro falso", "si\u0301 no"],
)  # fmt: skip
def test_labels_are_yes_and_no_in_each_language_that_the_page_promises(tmp_path, both):
    page = (Path(__file__).parents[3] / "docs/data/text.md").read_text(encoding="utf-8")
    for language in ("German", "French", "Spanish", "Italian", "Portuguese"):
        assert language in page
    yes, no = both.split()
    rows = texts(rude=lambda i: (yes, no)[i % 2], spam=lambda i: (no, "", yes)[i % 3])
    given = {"input": "text", "target_kind": "labels"}
    for one in (given, given | {"target": ["rude", "spam"]}):
        splits, _ = divided(written(tmp_path, rows), None, one)
        assert splits.names == ["rude", "spam"]
        labels = {raw: label for part in (splits.train, splits.test) for raw, label, *_ in part}
        assert [labels["text 0"], labels["text 5"]] == [[1, 0], [0, 1]]
        assert np.isnan(labels["text 4"][1])


def test_a_text_may_have_several_right_answers(tmp_path):
    rows = [
        {"word": f"wort {i}", "say": [f"a {i}", f"b {i}"] if i % 2 else f"a {i}"} for i in range(20)
    ]
    splits, _ = divided(written(tmp_path, rows), None, {"target": "say", "target_kind": "text"})
    labels = {raw: label for part in (splits.train, splits.test) for raw, label, *_ in part}
    assert labels == {row["word"]: row["say"] for row in rows}


def test_what_cannot_be_learned_is_an_error(tmp_path):
    for rows, given, division, fact in (
        (texts(1), {"target_kind": "none", "input": "text"}, {}, "holds 1 usable row"),
        (texts(30, y=lambda i: 0.5 if i < 25 else i, part=lambda i: "train" if i < 20 else "test"), {"target": "y"},
         {"split": "part"}, r"y is 0\.5 in all rows of the training split"),
        (texts(30, part=lambda i: "train" if i % 2 else "test"), {"target": "label"}, {"split": "part"},
         "is in the test split with class 'a', which training lacks"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=fact):
            divided(written(tmp_path, rows), None, given, **division)


# ── files beside the table, and on disk ──────────────────────────────────────────────────────────────────────────────


def test_files_lie_below_the_folder_of_the_table_or_the_given_one(tmp_path):
    (tmp_path / "own" / "a").mkdir(parents=True)
    for i in range(10):
        Image.new("RGB", (3, 5), (25 * i, 0, 255)).save(tmp_path / "own" / "a" / f"{i}.png")
    rows = [{"file": f"a/{i}.png", "label": ("dark", "light")[i >= 5]} for i in range(10)]
    (tmp_path / "tables").mkdir()
    for path, folder in (
        (written(tmp_path / "own", rows), None),
        (written(tmp_path / "tables", rows), tmp_path / "own"),
    ):
        splits, _ = divided(path, folder=folder and str(folder))
        for sample in splits.train:
            assert sample.raw.shape == (3, 5, 3)
            assert (float(sample.raw[0].mean()) > 0.45) == (splits.names[sample.label] == "light")
    with pytest.raises(DataError, match=r"line 1: a/0\.png does not exist .*--data\.folder"):
        divided(tmp_path / "tables" / "t.jsonl")
    path = written(tmp_path / "own", [*rows, {"file": "a/torn.png", "label": "dark"}])
    (tmp_path / "own" / "a" / "torn.png").write_bytes(b"torn")
    splits, said = divided(path, Patches(1, channels=3), skip_bad=1)
    assert len(splits.train) + len(splits.test) == 10
    assert "line 11: " in said[0]


def test_the_fingerprint_is_of_file_rows_and_columns(tmp_path):
    path = Path(written(tmp_path, texts(photo=lambda i: "a.png")))
    (tmp_path / "a.png").touch()
    first, again = (divided(path)[0] for _ in range(2))
    assert first.train.key() == again.train.key() != first.test.key()
    keys = {samples.key() for samples in (first.train, divided(path, seed=1)[0].train)}
    keys.add(divided(path, None, {"columns": {"text": "category"}})[0].train.key())
    for file in (tmp_path / "a.png", path):
        os.utime(file, (1, 1))
        keys.add(divided(path)[0].train.key())
    assert len(keys) == 5


def test_equal_inputs_are_told_by_their_values_alone(tmp_path):
    """Not by their hashes: -1 and -2 have the same one. Spaces around a text are no difference."""
    rows = [{"note": f"note {i // 2}", "delta": -1 - i % 2, "y": "ab"[i % 2]} for i in range(40)]
    _, said = divided(written(tmp_path, rows), given={"target": "y"})
    assert not [
        line for line in said if "in training" in str(line) or "another example" in str(line)
    ]
    rows = [
        {"text": f"note {i // 2}" + " " * (i % 2), "label": "ab"[i // 2 % 2]} for i in range(40)
    ]
    _, said = divided(written(tmp_path, rows, "spaces.jsonl"))
    assert [line for line in said if "test inputs are in training" in str(line)]


def test_a_split_by_files_is_not_mended_by_a_group(tmp_path):
    for name in ("train", "test"):
        written(tmp_path, texts(8), f"{name}.jsonl")
    _, said = divided(tmp_path)
    (line,) = [str(line) for line in said if "in training" in str(line)]
    assert "--data.group" not in line


def test_files_in_cells_are_read_once_for_the_splits(tmp_path, monkeypatch):
    """They may be larger than memory: what is kept of each is its SHA-256."""
    import pyarrow as pa
    from pyarrow import parquet

    from seqkit.data.tables.arrow import ArrowColumn

    cells = [{"bytes": png(i), "path": None} for i in range(20)]
    parquet.write_table(
        pa.table({"image": cells, "label": ["a", "b"] * 10}), tmp_path / "t.parquet"
    )
    table = Table(str(tmp_path / "t.parquet"), Given(columns={"image": "image"}, target="label"))
    table.read_for(Patches(4, channels=1))
    table.schema()
    read, plain = [], ArrowColumn._plain
    monkeypatch.setattr(ArrowColumn, "_plain", lambda self, x: read.append(x) or plain(self, x))
    splits = table.splits()
    assert sum(isinstance(x, dict) for x in read) == 20
    assert splits.train[0].raw.shape == (1, 4, 4)


def png(grey):
    from io import BytesIO

    from PIL import Image

    data = BytesIO()
    Image.new("L", (4, 4), grey).save(data, "png")
    return data.getvalue()


# ── what tells the target, and what a split at random mixes ──────────────────────────────────────────────────────────


def measured(i):
    """A row of two measures, a grade and what is honest about it: a size that tells it but for some rows."""
    grade = sha256(b"%d" % i).digest()[0] % 3
    return {"width": f"{i * i % 97}.5", "size": grade if i % 11 else 1, "grade": "uvw"[grade]}


TELLING = {
    "its number": (lambda row: 7 * "uvw".index(row["grade"]), True),
    "its name": (lambda row: f"grade {row['grade']}", True),
    "what is filled for one class alone": (lambda row: "x9" if row["grade"] == "u" else "", False),
    "what is filled with classes": (
        lambda row: {"u": "paid"}.get(row["grade"], row["grade"]),
        True,
    ),
    "a strong input": (lambda row: row["size"], False),
    "a number of the row": (lambda row: row["width"] + row["grade"], False),
}
"""A column made of a row, and whether it tells the grade."""


@pytest.mark.parametrize("what", TELLING)
def test_a_column_that_tells_the_target_by_itself_is_named(tmp_path, what):
    column, is_told = TELLING[what]
    rows = [row | {"noted": column(row)} for row in map(measured, range(120))]
    _, said = divided(written(tmp_path, rows), given={"target": "grade"})
    (line,) = [one for one in said if "alone tells" in one] or [""]
    assert bool(line) == is_told
    if is_told:
        assert isinstance(line, Caution)
        assert "'noted' alone tells grade in all 120 rows" in line
        assert line.endswith("--data.columns '{noted: unused}'")


def test_what_repeats_by_chance_or_alone_tells_nothing(tmp_path):
    rare = [measured(i) | {"grade": "no" if i else "yes", "code": i % 20} for i in range(100)]
    lone = [{"word": "ab"[i % 2], "grade": "uv"[i % 2]} for i in range(100)]
    for rows in (rare, lone):
        _, said = divided(written(tmp_path, rows), given={"target": "grade"})
        assert not [line for line in said if "alone tells" in line]


def test_rows_of_one_thing_in_both_splits_are_counted_and_the_advised_group_keeps_them_apart(
    tmp_path,
):
    rows = [measured(i) | {"cow_id": f"c{i % 17}", "town_key": i % 3} for i in range(120)]
    path = written(tmp_path, rows)
    _, said = divided(path, given={"target": "grade"})
    (line,) = [one for one in said if "--data.group cow_id" in one]
    assert "values of 'cow_id' in test are in training, too" in line
    _, said = divided(path, given={"target": "grade"}, group="cow_id")
    assert not [one for one in said if "--data.group cow_id" in one]
    single = [row | {"cow_id": f"c{i}"} for i, row in enumerate(rows)]
    _, said = divided(written(tmp_path, single), given={"target": "grade"})
    assert not [one for one in said if "--data.group cow_id" in one]


def test_dated_rows_that_are_split_at_random_are_said_and_the_advised_split_is_by_time(tmp_path):
    rows = [measured(i) | {"sold": f"2024-{1 + i // 20:02}-11"} for i in range(120)]
    path = written(tmp_path, rows)
    _, said = divided(path, given={"target": "grade"})
    (line,) = [one for one in said if "--data.split" in one]
    assert "24 test rows are not after training by 'sold'" in line
    later = [row | {"part": "test" if i > 100 else "train"} for i, row in enumerate(rows)]
    _, said = divided(written(tmp_path, later), given={"target": "grade"}, split="part")
    assert not [one for one in said if "--data.split" in one]
    years = [measured(i) | {"year": 1990 + i % 9} for i in range(120)]
    _, said = divided(written(tmp_path, years), given={"target": "grade"})
    assert [one for one in said if "'year'" in one and "--data.split" in one]


@pytest.mark.parametrize("kind", ["text", "number"])
def test_equal_rows_of_several_inputs_name_the_column_that_keeps_them_together(tmp_path, kind):
    note = {"text": "a long note of number {}", "number": "{}.25"}[kind]
    rows = [{"side": "lr"[i % 2], "n o": note.format(i), "y": i % 7 + 0.5} for i in range(60)]
    rows += rows[:30]
    path = written(tmp_path, rows)
    _, said = divided(path, given={"target": "y"})
    (line,) = [one for one in said if "are in training, too" in one and "--data.group" in one]
    _, *words = shlex.split(line[line.index("--data.group") :])
    more = {}
    if kind == "number":
        columns = words[2]
        more = {"columns": load_yaml(columns)}
        assert more == {"columns": {"n o": "number"}}
    _, said = divided(path, given={"target": "y", **more}, group=words[0])
    assert not any("test inputs are in training" in one for one in said)


def test_equal_rows_of_few_values_name_no_column(tmp_path):
    rows = [{"side": "lr"[i % 2], "size": "sml"[i % 3], "y": i % 7 + 0.5} for i in range(60)]
    _, said = divided(written(tmp_path, rows), given={"target": "y"})
    assert any("are in training, too" in one and "--data.group" not in one for one in said)
