"""The data source of a user's own tables: what is read is what was written, and the splits hold what they promise."""

import json
import logging
import random
import re
import shlex
import socket
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from seqkit.config import complete
from seqkit.data import Table
from seqkit.data.sources.table import alike_classes
from seqkit.data.tables.columns import option
from seqkit.data.tables.files import read_tables
from seqkit.errors import DataError
from seqkit.files import load_yaml


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))


def records(n=37):
    """Rows with all that a text file must keep: quotes, separators, line breaks, letters of other scripts."""
    words = ['a "quoted" word', "one, two; three", "two\nlines", "tab\there", "naïve čeština 漢字 🎉", "plain"]
    return [{"text": f"{words[i % 6]} {i}", "label": ("low", "high", "mid")[i % 3]} for i in range(n)]


def written(folder, rows, suffix):
    """The same rows in a file of that format."""
    import csv

    path = folder / f"rows{suffix}"
    if suffix in (".csv", ".tsv"):
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if suffix == ".csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    elif suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        table = pa.Table.from_pylist(rows)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return str(path)


def content(splits):
    return {(sample.raw, splits.names[sample.label]) for part in (splits.train, splits.test) for sample in part}


@pytest.mark.parametrize("in_memory", [True, False])
def test_every_format_gives_the_rows_that_were_written(in_memory, tmp_path, own_folder, monkeypatch, subtests):
    """No socket is opened for files at hand."""
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it connects"))
    if not in_memory:
        monkeypatch.setattr("seqkit.data.tables.files.IN_MEMORY_BYTES", 0)
    rows = records()
    for suffix in (".csv", ".tsv", ".jsonl", ".parquet", ".arrow"):
        with subtests.test(suffix):
            splits = Table(written(tmp_path, rows, suffix)).splits()
            assert content(splits) == {(row["text"], row["label"]) for row in rows}
            assert splits.names == ["high", "low", "mid"]
            assert list(splits.train.labels) == [sample.label for sample in splits.train]


def test_a_file_that_changed_is_read_anew(tmp_path, own_folder, monkeypatch):
    monkeypatch.setattr("seqkit.data.tables.files.IN_MEMORY_BYTES", 0)
    for suffix in (".csv", ".parquet"):
        for n in (20, 31):
            splits = Table(written(tmp_path, records(n), suffix)).splits()
            assert len(splits.train) + len(splits.test) == n
    assert len(list(tmp_path.glob("cache/*/rows.arrow"))) == 4, "what is parsed once is kept"
    assert not own_folder.exists(), "the data folder holds data"


def test_faulty_rows_of_a_large_file_are_counted_each_time_it_is_read(tmp_path, own_folder, monkeypatch, caplog):
    monkeypatch.setattr("seqkit.data.tables.files.IN_MEMORY_BYTES", 0)
    path = Path(written(tmp_path, records(), ".csv"))
    path.write_text(path.read_text() + "one,two,three\n")
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "seqkit"):
            Table(str(path), skip_bad=1).splits()
        assert "1 of 38 rows" in caplog.text
    with pytest.raises(DataError, match="3 cells"):
        Table(str(path)).splits()


def test_the_rows_of_a_large_file_lie_on_disk_and_not_in_memory(tmp_path, own_folder, monkeypatch):
    monkeypatch.setattr("seqkit.data.tables.files.IN_MEMORY_BYTES", 0)
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"{'x' * 999}{i},{'ab'[i % 2]}\n" for i in range(20_000)))
    before = pa.total_allocated_bytes()
    rows = read_tables(str(path))
    assert len(rows) == 20_000
    assert rows.column("text")[19_999] == "x" * 999 + "19999"
    assert pa.total_allocated_bytes() - before < path.stat().st_size / 20


def test_shards_are_one_table_and_each_row_knows_its_file(tmp_path):
    rows = records(30)
    (tmp_path / "shards").mkdir()
    for i in range(3):
        part = written(tmp_path, rows[10 * i : 10 * i + 10], ".jsonl")
        (tmp_path / "shards" / f"part-{i}.jsonl").write_bytes(Path(part).read_bytes())
    for path in (str(tmp_path / "shards"), str(tmp_path / "shards" / "*.jsonl")):
        splits = Table(path).splits()
        assert content(splits) == {(row["text"], row["label"]) for row in rows}
        for i, sample in enumerate(splits.train):
            number = int(sample.raw.rsplit(" ", 1)[1])
            assert splits.train.name(i).endswith(f"part-{number // 10}.jsonl, line {number % 10 + 1}")


def test_files_of_a_folder_that_are_called_train_and_test_are_these(tmp_path):
    rows = records(30)
    for name, part in (("train", rows[:20]), ("test", rows[20:25]), ("validation", rows[25:])):
        path = written(tmp_path, part, ".jsonl")
        (tmp_path / "own").mkdir(exist_ok=True)
        (tmp_path / "own" / f"{name}.jsonl").write_bytes(Path(path).read_bytes())
    splits = Table(str(tmp_path / "own")).splits()
    assert [sample.raw for sample in splits.train] == [row["text"] for row in rows[:20]]
    assert [sample.raw for sample in splits.test] == [row["text"] for row in rows[20:25]]
    assert [sample.raw for sample in splits.valid] == [row["text"] for row in rows[25:]]
    (tmp_path / "own" / "other.jsonl").write_text('{"text": "a", "label": "b"}\n')
    with pytest.raises(DataError, match="split is not clear"):
        Table(str(tmp_path / "own")).splits()


def test_a_text_file_as_a_table_has_a_row_a_line(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {i}\n\n" for i in range(10)))
    splits = Table(str(tmp_path / "a.txt"), target_kind="none").splits()
    assert sorted(sample.raw for part in (splits.train, splits.test) for sample in part) == [
        f"line {i}" for i in range(10)
    ]
    assert {sample.label for sample in splits.train} == {None}


# ── elsewhere ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_addresses_of_other_kinds_are_refused(tmp_path, own_folder, subtests):
    own = written(tmp_path, records(), ".csv")
    for path in ("file:///t.csv", "http://host/t.csv", "https://host/t.csv", "s3://b/a.csv::file://t.csv"):
        for given in ({"path": path}, {"path": own, "test": path}):
            with subtests.test(str(given)), pytest.raises(DataError, match="is not read"):
                Table(**given).splits()


def test_a_file_of_an_object_store_is_read_by_its_suffix(tmp_path, own_folder, monkeypatch):
    import datasets

    asked = []

    def load(builder, **options):
        asked.append((builder, options["data_files"]))
        return datasets.Dataset.from_list(records(20))

    monkeypatch.setattr(datasets, "load_dataset", load)
    path = "s3://bucket/rows.parquet"
    splits = Table(path).splits()
    assert asked == [("parquet", path)]
    assert content(splits) == {(row["text"], row["label"]) for row in records(20)}
    assert splits.train.name(0).startswith("s3://")
    for other in ("s3://bucket/x.zip", "hf://../owner", "hf:///etc"):
        with pytest.raises(DataError, match="elsewhere"):
            Table(other).splits()


def test_a_hub_name_without_its_extra_is_answered_with_the_extra(own_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"seqkit\[hub\]"):
        Table("hf://owner/name").splits()


def test_a_hub_name_is_asked_for_its_splits_and_never_for_code(tmp_path, own_folder, monkeypatch):
    import datasets

    asked = []

    def load(path, **options):
        asked.append((path, options["split"]))
        assert "trust_remote_code" not in options
        n = {"train": 20, "test": 6}[options["split"]]
        rows = {"text": [f"{options['split']} {i}" for i in range(n)], "label": [i % 2 for i in range(n)]}
        return datasets.Dataset.from_dict(rows)

    monkeypatch.setattr(datasets, "load_dataset", load)
    splits = Table("hf://owner/name", test="test").splits()
    assert asked == [("owner/name", "train"), ("owner/name", "test")]
    assert (len(splits.train), len(splits.test)) == (20, 6)
    assert splits.train.name(2) == "hf://owner/name, row 3"


def test_a_hub_that_cannot_be_reached_is_said_in_one_line(own_folder, monkeypatch):
    import datasets

    def fail(*_, **__):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(DataError, match=r"hf://owner/name .*no route to host"):
        Table("hf://owner/name").splits()


# ── splits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_split_is_that_of_sha256_by_class(tmp_path):
    rows = [{"text": f"text {i}", "label": "ab"[i % 5 == 0]} for i in range(50)]
    splits = Table(written(tmp_path, rows, ".csv"), test_fraction=0.3, seed=4).splits()
    # the definition: of each class, the first in the order of SHA-256 of "seed index"
    order = sorted(range(50), key=lambda i: sha256(f"4 {i}".encode()).digest())
    wanted = {i for name in "ab" for i in [i for i in order if rows[i]["label"] == name][: {"a": 12, "b": 3}[name]]}
    assert {sample.raw for sample in splits.test} == {f"text {i}" for i in wanted}
    assert {sample.raw for sample in splits.train} == {f"text {i}" for i in range(50) if i not in wanted}


def test_rows_of_a_group_stay_in_one_split(tmp_path):
    rows = [{"text": f"text {i}", "label": "ab"[i % 2], "who": f"author {i % 7}"} for i in range(70)]
    splits = Table(written(tmp_path, rows, ".csv"), group="who", target="label").splits()
    who = {row["text"]: row["who"] for row in rows}
    train, test = ({who[sample.raw] for sample in part} for part in (splits.train, splits.test))
    assert not train & test
    assert len(train | test) == 7
    assert len(splits.test) == 20, "whole groups of 10, until there are 14 rows"
    assert splits.test.groups == [repr(who[sample.raw]) for sample in splits.test]


def test_a_column_names_the_split(tmp_path):
    names = ["train", "Train", "training", "valid", "dev", "test"]
    rows = [{"text": f"text {i}", "label": "ab"[i % 2], "part": names[i % 6]} for i in range(24)]
    splits = Table(written(tmp_path, rows, ".jsonl"), split="part").splits()
    for part, chosen in ((splits.train, (0, 1, 2)), (splits.valid, (3, 4)), (splits.test, (5,))):
        assert [sample.raw for sample in part] == [row["text"] for i, row in enumerate(rows) if i % 6 in chosen]


def test_the_rule_and_the_guess_are_each_said_in_one_line(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "seqkit"):
        Table(written(tmp_path, records(), ".csv")).splits()
    guess, rule = (record.getMessage() for record in caplog.records)
    for fact in ("'text' (text)", "'label' (classes)", "--data.input --data.target"):
        assert fact in guess
    for fact in ("30 training, 7 test", "20 %", "seed 0"):
        assert fact in rule
    caplog.clear()
    told = {"input": "text", "target": "label", "kind": "text", "target_kind": "classes"}
    with caplog.at_level(logging.WARNING, "seqkit"):
        Table(written(tmp_path, records(), ".csv"), **told).splits()
    assert len(caplog.records) == 1, "nothing was guessed"


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


GUESSED = [
    ({"id": 1, "review": "a long text {i}", "tone": "{ab}"}, {}, ("review", "tone", "text", "classes")),
    ({"tone": "{ab}", "remark": "a long text of {i}"}, {}, ("remark", "tone", "text", "classes")),
    ({"title": "{i}th", "body": "a far longer text {i}", "stars": "{n}"}, {}, ("body", "stars", "text", "numbers")),
    ({"body": "text {i}", "stars": "{n}"}, {"target_kind": "classes"}, ("body", "stars", "text", "classes")),
    ({"smiles": "{i}C", "logS": "{n}.5"}, {}, ("smiles", "logS", "smiles", "numbers")),
    ({"smiles": "{i}C", "toxic": "{ab}"}, {}, ("smiles", "toxic", "smiles", "classes")),
    ({"file": "a/{i}.PNG", "kind": "{ab}"}, {}, ("file", "kind", "image", "classes")),
    ({"clip": "{i}.flac", "word": "{ab}"}, {}, ("clip", "word", "audio", "classes")),
    ({"english": "a {i}", "german": "ein {i}"}, {"target_kind": "text"}, ("english", "german", "text", "text")),
    ({"target": "ein {i}", "source": "a {i}"}, {"target_kind": "text"}, ("source", "target", "text", "text")),
    ({"label": "{ab}", "text": "a {i}"}, {"target_kind": "none"}, ("text", None, "text", "none")),
    ({"text": "a {i}", "label": "{ab}", "year": "{n}"}, {}, ("text", "label", "text", "classes")),
]
"""Cells of row i, arguments, and (input, target, kind, target_kind)."""


def test_columns_are_guessed_by_name_and_by_what_they_hold(tmp_path, subtests):
    for row, arguments, found in GUESSED:
        with subtests.test(str(row)):
            cells = [{"i": i, "ab": "ab"[i % 2], "n": i % 4} for i in range(24)]
            rows = [{name: str(value).format(**cell) for name, value in row.items()} for cell in cells]
            columns = Table(written(tmp_path, rows, ".csv"), **arguments).settled()
            target = columns.targets[0] if columns.targets else None
            assert (columns.input, target, columns.kind, columns.target_kind) == found


def test_several_targets_are_measurements_and_gaps_are_nan(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("smiles,a,b\n" + "".join(f"{'C' * i},{i},{'' if i == 3 else -i}\n" for i in range(1, 12)))
    splits = Table(str(path), target=["a", "b"], test_fraction=0.1).splits()
    labels = {sample.raw: sample.label for part in (splits.train, splits.test) for sample in part}
    assert labels["CC"] == [2.0, -2.0]
    assert labels["CCC"][0] == 3.0
    assert np.isnan(labels["CCC"][1])


def test_classes_that_are_numbers_are_in_their_order(tmp_path):
    rows = [{"text": f"a {i}", "stars": (10, 2, 1)[i % 3]} for i in range(30)]
    assert Table(written(tmp_path, rows, ".jsonl"), target_kind="classes").splits().names == ["1", "2", "10"]


def test_classes_that_look_like_numbers_keep_their_spelling(tmp_path, subtests):
    """Labels with gaps are floats in pandas; identifiers of 17 digits are one float."""
    for names in (["0.0", "1.0"], ["1.0", "v1.0"], ["10000000000000001", "10000000000000002"]):
        with subtests.test(str(names)):
            rows = [{"text": f"a {i}", "label": names[i % 2]} for i in range(20)]
            assert Table(written(tmp_path, rows, ".csv"), target_kind="classes").splits().names == names


def test_classes_that_look_alike_are_named_so_that_one_sees_the_difference():
    for one, other, shown in (
        ("ham", "Ham", "'Ham' (2) and 'ham' (1)"),
        ("stra\xdfe", "STRASSE", "'STRASSE' (2) and 'stra\xdfe' (1)"),
        ("new york", "new  york", "'new  york' (2) and 'new york' (1)"),
        ("new york", "new\xa0york", r"'new york' (1) and 'new\xa0york' (2)"),
        ("ham", "ham\u200b", r"'ham' (1) and 'ham\u200b' (2)"),
        ("ham", "\ufeffham", r"'ham' (1) and '\ufeffham' (2)"),
        ("caf\xe9", "cafe\u0301", r"'cafe\u0301' (2) and 'caf\xe9' (1)"),
        ("\uff21", "A", "'A' (2) and '\uff21' (1)"),
        ("ham", "'ham'", """"'ham'" (2) and 'ham' (1)"""),
        ("\u201cham\u201d", "ham", "'ham' (2) and '\u201cham\u201d' (1)"),
        ("1", "1.0", "'1' (1) and '1.0' (2)"),
        ("1000", "1\u202f000", r"'1000' (1) and '1\u202f000' (2)"),
    ):
        said = alike_classes({one: 1, other: 2, "else": 3})
        assert shown in said
        assert "else" not in said
    numbers = ["-1", "1", "10000000000000001", "10000000000000002"]
    assert alike_classes(dict.fromkeys(["'", '"', "``", "''", ".", "...", "a", "\xe4", "b", "", *numbers], 1)) == ""


def test_names_of_a_hubs_classes_are_kept(tmp_path):
    """As `datasets` writes them: numbers in the column, names in the metadata of the file."""
    import datasets

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    rows = {"text": [f"a {i}" for i in range(20)], "label": [i % 2 for i in range(20)]}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "a.parquet")
    splits = Table(str(tmp_path / "a.parquet")).splits()
    assert splits.names == ["neg", "pos"]
    assert content(splits) == {(f"a {i}", ["neg", "pos"][i % 2]) for i in range(20)}


def test_images_are_read_from_beside_the_table(tmp_path):
    (tmp_path / "own" / "a").mkdir(parents=True)
    for i in range(10):
        Image.new("RGB", (3, 5), (25 * i, 0, 255)).save(tmp_path / "own" / "a" / f"{i}.png")
    table = tmp_path / "own" / "labels.csv"
    table.write_text("file,label\n" + "".join(f"a/{i}.png,{'dark' if i < 5 else 'light'}\n" for i in range(10)))
    splits = Table(str(table)).splits()
    for sample in splits.train:
        assert sample.raw.shape == (3, 5, 3)
        assert (float(sample.raw[0].mean()) > 0.45) == (splits.names[sample.label] == "light")
    table.write_text(table.read_text() + "a/none.png,dark\n")
    with pytest.raises(DataError, match=r"line 12: a/none\.png .*1 of 11 rows"):
        Table(str(table)).splits()
    (tmp_path / "own" / "a" / "none.png").write_bytes(b"torn")
    splits = Table(str(table), skip_bad=1).splits()
    assert len(splits.train) + len(splits.test) == 10


def test_molecules_that_cannot_be_read_may_be_left_out(tmp_path, caplog):
    pytest.importorskip("rdkit")
    from seqkit.tokenizers import Molecule

    path = tmp_path / "a.csv"
    path.write_text("smiles,x\n" + "".join(f"{'C' * (i + 1)},{i}\n" for i in range(10)) + "C1CC,3\n")
    table = Table(str(path), skip_bad=1)
    table.read_for(Molecule())
    with caplog.at_level(logging.WARNING, "seqkit"):
        splits = table.splits()
    assert len(splits.train) + len(splits.test) == 10
    assert "line 12" in caplog.text


def test_tags_are_the_same_with_spaces_around_them(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"words": ["a", "b"], "tags": ["X", " X"[i % 2 :]]}) + "\n" for i in range(9)))
    assert Table(str(path), target_kind="tags").splits().names == ["X"]


def test_only_the_first_rows_are_read_to_settle_the_columns(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"a text {i},{'ab'[i % 2]}\n" for i in range(30_000)) + "one cell\n")
    assert Table(str(path)).settled().input == "text"
    with pytest.raises(DataError, match="line 30002"):
        Table(str(path)).splits()


# ── tags ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_tags_are_the_same_from_words_and_from_lists(tmp_path):
    rng = random.Random(0)
    sentences = [[(f"w{i}", rng.choice(["O", "PER", "LOC"])) for i in range(rng.randint(1, 7))] for _ in range(20)]
    lists = tmp_path / "a.jsonl"
    lists.write_text(
        "".join(json.dumps({"tokens": [w for w, _ in s], "tags": [t for _, t in s]}) + "\n" for s in sentences)
    )
    spaces = tmp_path / "a.csv"
    spaces.write_text(
        "text,tags\n" + "".join(f"{' '.join(w for w, _ in s)},{' '.join(t for _, t in s)}\n" for s in sentences)
    )
    wanted = Counter(tuple(s) for s in sentences)
    for path in (lists, spaces):
        splits = Table(str(path), target_kind="tags").splits()
        samples = [*splits.train, *splits.test]
        assert all(sample.label.dtype == torch.int64 for sample in samples)
        found = Counter(tuple(zip(s.raw.split(), [splits.names[i] for i in s.label])) for s in samples)
        assert found == wanted


def test_columns_of_a_test_file_that_are_not_used_are_named_too(tmp_path):
    (tmp_path / "train.csv").write_text("text,label,colour\n" + "ab ab,x,red\nba ba,y,red\n" * 9, encoding="utf-8")
    (tmp_path / "test.csv").write_text("text,label,colour,rank\nab,x,red,1\nba,y,red,2\n", encoding="utf-8")
    given = {"test": str(tmp_path / "test.csv"), "input": "text", "target": "label"}
    _, said = lines_said(Table(str(tmp_path / "train.csv"), **given))
    unused = [line for line in said if "not used" in line]
    assert ["'colour'" in line for line in unused] == [True, False]
    assert ["'rank'" in line for line in unused] == [False, True]


def test_files_that_a_table_names_are_compared_by_content(tmp_path, caplog):
    for name, grey in (("a", 0), ("b", 50), ("c", 0), ("d", 100)):
        Image.new("L", (4, 4), grey).save(tmp_path / f"{name}.png")
    (tmp_path / "train.csv").write_text("file,label\na.png,x\nb.png,y\n", encoding="utf-8")
    (tmp_path / "test.csv").write_text("file,label\nd.png,x\nc.png,y\n", encoding="utf-8")
    Table(str(tmp_path / "train.csv"), test=str(tmp_path / "test.csv")).splits()
    assert re.search(r"1 of 2 test inputs .*test\.csv, line 3\)", caplog.text)
    assert "1 rows of the test split" in caplog.text


def lines_said(table):
    said = []
    return table.divided(said.append), said


def test_molecules_that_are_written_otherwise_are_equal_and_in_one_group(tmp_path):
    pytest.importorskip("rdkit")
    (tmp_path / "train.csv").write_text("smiles,y\nCCO,1\nc1ccccc1,2\nCCN,3\n", encoding="utf-8")
    (tmp_path / "test.csv").write_text("smiles,y\nOCC,1\nC1=CC=CC=C1,2\nCCC,3\n", encoding="utf-8")
    given = {"input": "smiles", "target": "y"}
    _, said = lines_said(Table(str(tmp_path / "train.csv"), test=str(tmp_path / "test.csv"), **given))
    assert any("2 of 3 test inputs" in line for line in said)
    rows = "".join(f"{smiles},{i}\n" for i, smiles in enumerate(["CCO", "OCC", "CCN", "NCC", "CCC", "C(C)C"] * 3))
    (tmp_path / "all.csv").write_text(f"smiles,y\n{rows}", encoding="utf-8")
    for seed in range(3):
        splits, said = lines_said(Table(str(tmp_path / "all.csv"), group="smiles", seed=seed, **given))
        assert any("1 of 3 groups by 'smiles'" in line for line in said)
        assert not any("in training, too" in line for line in said)
        assert len(splits.test) == 6
        assert {sample.raw for sample in splits.test} in ({"CCO", "OCC"}, {"CCN", "NCC"}, {"CCC", "C(C)C"})


def test_files_of_equal_content_are_in_one_group(tmp_path):
    for i in range(12):
        Image.new("L", (4, 4), 10 * (i // 3)).save(tmp_path / f"{i}.png")
    (tmp_path / "t.csv").write_text("file,label\n" + "".join(f"{i}.png,{'ab'[i % 2]}\n" for i in range(12)))
    _, said = lines_said(Table(str(tmp_path / "t.csv"), group="file", input="file", target="label"))
    assert any("1 of 4 groups by 'file'" in line for line in said)
    assert not any("in training, too" in line for line in said)


def test_the_line_of_a_group_or_column_says_how_many_rows_of_each_class_are_test(tmp_path):
    rows = [{"text": f"text {i}", "toxic": int(i % 10 == 0), "who": i % 7} for i in range(70)]
    splits, said = lines_said(Table(written(tmp_path, rows, ".csv"), group="who", input="text", target="toxic"))
    counts = Counter(splits.test.labels)
    shown = f"{counts[0]} of 63 toxic=0, {counts[1]} of 7 toxic=1"
    assert any(shown in line for line in said)
    assert shown in splits.rule
    many = [{"text": f"text {i}", "kind": f"k{i % 11}", "part": "test" if i > 88 else "train"} for i in range(110)]
    few = [row | {"kind": "ab"[i % 2]} for i, row in enumerate(many)]
    for rows, shown in ((many, ""), (few, "10 of 55 kind=a, 11 of 55 kind=b")):
        rule = Table(written(tmp_path, rows, ".csv"), split="part", input="text", target="kind").splits().rule
        assert "'part'" in rule
        assert shown in rule
        assert ("test has" in rule) == bool(shown)


def test_rows_that_are_there_twice_are_said_once_where_no_other_line_says_it(tmp_path, monkeypatch):
    rows = [
        {"id": i, "my text": f"text {i}", "label": "ab"[i % 2], "who": i, "part": "test" if i > 20 else "train"}
        for i in range(30)
    ]
    rows += [{**rows[3], "id": 30}, {**rows[3], "id": 31}, {**rows[5], "who": 99}]
    path = written(tmp_path, rows, ".csv")
    settings = {"input": "my text", "target": "label"}

    def said(**given):
        lines = lines_said(Table(path, **given, **settings))[1]
        return [line for line in lines if "are copies of" in line or "in training, too" in line]

    (line,) = said(split="part")
    assert re.search(rf"\b2 of 33 rows .*{re.escape(path)}, line 32", line)
    assert "--data.group" not in line
    for seed in range(20):
        (line,) = said(seed=seed)
        assert "--data.group 'my text'" in line
    assert not said(group="my text")
    monkeypatch.setattr("seqkit.data.tables.repeated_rows.MAX_REPEATED", 1)
    assert any("at least 1 of 33 rows" in line for line in said(split="part"))


@pytest.mark.parametrize("by", ["column", "file", "folder"])
def test_a_given_split_stays_and_groups_on_both_sides_are_said(tmp_path, by):
    rows = [
        {"text": f"text {i}", "label": "ab"[i % 2], "who is it": f"p{i // 3}" if i != 29 else "", "part": "train"}
        for i in range(30)
    ]
    for i in (0, 1, 2, 3, 10, 29):
        rows[i]["part"] = "test"
    folder = tmp_path / "rows"
    folder.mkdir()
    test = [row for row in rows if row["part"] == "test"]
    named = {"column": rows, "file": [row for row in rows if row["part"] == "train"]}
    path = Path(written(folder, named.get(by, named["file"]), ".csv"))
    settings = {"input": "text", "target": "label", "group": "who is it"}
    if by == "column":
        table = Table(str(path), split="part", **settings)
    elif by == "file":
        table = Table(str(path), test=written(tmp_path, test, ".csv"), **settings)
    else:
        path.rename(folder / "train.csv")
        Path(written(tmp_path, test, ".csv")).rename(folder / "test.csv")
        table = Table(str(folder), **settings)
    splits, said = lines_said(table)
    assert [sample.raw for sample in splits.test] == [row["text"] for row in test]
    groups = splits.test.groups
    assert groups[0] == groups[1] == groups[2]
    assert len(set(groups)) == 4, "p0, p1, p3, and the row without a group"
    (line,) = [line for line in said if "in training, too" in line]
    assert "2 of 4 test groups by 'who is it'" in line
    assert any("1 rows have no who is it" in line for line in said)
    for i in (3, 10):
        rows[i]["who is it"] = f"other {i}"
    if by == "column":
        path = written(folder, rows, ".csv")
        assert not [x for x in lines_said(Table(path, split="part", **settings))[1] if "in training, too" in x]


def test_a_group_is_proposed_only_where_the_split_is_not_given(tmp_path):
    rows = [{"text": f"a {i % 5}", "label": "ab"[i % 2], "part": "test" if i > 20 else "train"} for i in range(30)]
    path = written(tmp_path, rows, ".csv")
    for given, proposed in (({"split": "part"}, False), ({}, True), ({"split": "part", "group": "text"}, False)):
        splits, said = lines_said(Table(path, input="text", target="label", **given))
        (line,) = [line for line in said if "test inputs are in training, too" in line]
        assert ("--data.group text" in line) == proposed
    assert len(set(splits.test.groups)) == 5


def test_the_column_of_groups_is_the_input_where_it_would_have_been_guessed(tmp_path):
    rows = [
        {"smiles": "C" * (1 + i % 9), "note": f"a note {i}", "date": f"2024-{i}", "site": "ab"[i % 2], "logS": i / 2}
        for i in range(30)
    ]
    path = written(tmp_path, rows, ".csv")
    for kind in (None, "smiles"):
        columns = Table(path, target="logS", group="smiles", kind=kind).settled()
        assert (columns.input, columns.kind) == ("smiles", "smiles")
    with pytest.raises(DataError, match="as input"):
        Table(path, input=None, target="logS", kind="text", group="site").settled()
    columns = Table(path, target="logS", group="site").settled()
    assert columns.input == "smiles"
    texts = [{"text": f"a {i}", "who": f"b {i % 3}", "label": "ab"[i % 2]} for i in range(20)]
    assert Table(written(tmp_path, texts, ".csv"), group="text").settled().input == "text"
    assert Table(written(tmp_path, texts, ".csv"), group="who").settled().input == "text"
    twins = [{"one": f"a {i}", "who": f"b {i}", "label": "ab"[i % 2]} for i in range(20)]
    assert Table(written(tmp_path, twins, ".csv"), group="who").settled().input == "one"


def test_no_text_is_offered_as_molecules_where_a_column_holds_some(tmp_path):
    pytest.importorskip("rdkit")
    rows = [{"note": f"a note {i}", "drug": "C" * (i % 9) + "O", "site": "ab"[i % 2], "y": i / 2} for i in range(30)]
    assert Table(written(tmp_path, rows, ".csv"), kind="smiles", target="y").settled().input == "drug"
    named = [{("my SMILES" if key == "drug" else key): value for key, value in row.items()} for row in rows]
    assert Table(written(tmp_path, named, ".csv"), kind="smiles", target="y").settled().input == "my SMILES"


def spread(folder, cells=None):
    """A table with a series of 11 numbers in each row, spread over columns, beside a column that looks like them."""
    rows = [{f"s{j:02}": f"{i * j / 8}" for j in range(11)} | {"site": "x", "kind": "ab"[i % 2]} for i in range(20)]
    for (row, column), cell in (cells or {}).items():
        rows[row][column] = cell
    return written(folder, rows, ".csv")


@pytest.mark.parametrize("columns", [[f"s{j:02}" for j in range(11)], "s??"])
def test_several_columns_are_a_series_in_their_order(columns, tmp_path):
    splits, said = lines_said(Table(spread(tmp_path), input=columns, target="kind"))
    found = {tuple(sample.raw): splits.names[sample.label] for part in (splits.train, splits.test) for sample in part}
    assert found == {tuple(i * j / 8 for j in range(11)): "ab"[i % 2] for i in range(20)}
    assert any("11 columns, s00 … s10" in line for line in said)
    assert any("'site' is not used" in line for line in said)
    settled = Table(spread(tmp_path), input=columns, target="kind").settled()
    assert settled.inputs == [f"s{j:02}" for j in range(11)]
    assert settled.kind == "series"


def test_columns_of_a_series_that_are_given_in_another_order_are_read_in_that(tmp_path):
    splits = Table(spread(tmp_path), input=["s10", "s01"], target="kind").splits()
    assert sorted(sample.raw for sample in [*splits.train, *splits.test])[3] == [30 / 8, 3 / 8]


def test_a_cell_of_a_series_that_is_no_number_is_an_error_with_line_and_column(tmp_path, subtests):
    for cells, columns, fact in (
        ({(3, "s04"): ""}, "s??", "line 5: s04 is empty"),
        ({(3, "s04"): "NaN"}, "s??", "line 5: s04"),
        ({(3, "s04"): "high"}, "s??", "line 5: s04 is 'high'"),
        ({}, "s*", "line 2: site is 'x'"),
        ({}, "t*", r"'t\*'"),
        ({}, ["s00", "s11"], "'s11'; did you mean"),
        ({}, ["s00", "s00"], "once"),
    ):
        with subtests.test(fact), pytest.raises(DataError, match=fact):
            Table(spread(tmp_path, cells), input=columns, target="kind").splits()
    with pytest.raises(DataError, match="--tokenizer Series"):
        Table(spread(tmp_path), input="s??", kind="text", target="kind").splits()


def test_a_hint_with_the_name_of_a_column_can_be_pasted_into_a_shell_and_says_that_column(tmp_path):
    name = "Bemerkung: 'frei', [kurz]"
    rows = [{name: f"a {i % 5}", "label": "ab"[i % 2]} for i in range(30)]
    path = written(tmp_path, rows, ".csv")
    _, said = lines_said(Table(path, input=name, target="label"))
    hint = next(line for line in said if "in training, too" in line).rpartition("; ")[2]
    words = shlex.split(hint.removesuffix(" keeps equal inputs together"))
    config = complete("text/classify", "debug", ["--data", path, "--data.input", name, "--data.target=label", *words])
    assert config["data"]["source"]["group"] == name
    words = shlex.split(option("columns", {name: "text", "plain": "unused"}))
    assert load_yaml(words[1]) == {name: "text", "plain": "unused"}
    assert option("columns", {"plain": "unused"}) == "--data.columns '{plain: unused}'"
    assert option("group", "plain") == "--data.group plain"
    assert load_yaml(shlex.split(option("target", [name, "b"]))[1]) == [name, "b"]


def test_numbers_with_a_decimal_comma_are_read_with_their_thousands_and_texts_are_not_touched(tmp_path):
    cells = ["666,29", "1.234,5", "-12.345.678,25", "1.234", "+7", "3,", ",5", "0,125", "1,5e3"]
    numbers = [666.29, 1234.5, -12345678.25, 1234.0, 7.0, 3.0, 0.5, 0.125, 1500.0]
    path = tmp_path / "rows.csv"
    rows = [f"text {i} 3,5;{cell};{cell}" for i, cell in enumerate(cells)]
    path.write_text("\n".join(["text;y;other", *rows]), encoding="utf-8")
    splits = Table(str(path), target="y", input="text", decimal=",").splits()
    found = {sample.raw: sample.label for part in (splits.train, splits.test) for sample in part}
    assert found == {f"text {i} 3,5": number for i, number in enumerate(numbers)}
    rows = read_tables(str(path), decimal=",").with_series(["y", "other"])[0]
    assert list(rows.column("y … other")) == [[number, number] for number in numbers]
    for cell in ("1.5", "0.123", "1.2345", "1,234,567", "12.34,5"):
        path.write_text("\n".join(["text;y", *(f"text {i};{x}" for i, x in enumerate(cells)), f"a;{cell}"]), "utf-8")
        with pytest.raises(DataError, match=f"line 11: y is '{cell}'"):
            Table(str(path), target="y", input="text", decimal=",").splits()
