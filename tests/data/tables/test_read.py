"""Rows of files are those that were written, in every format, and each has its file and line."""

import bz2
import csv
import datetime
import decimal
import gzip
import json
import lzma
import socket
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from seqkit.data.tables import text as text_files
from seqkit.data.tables.read import read_tables
from seqkit.errors import DataError

WORDS = [
    'a "quoted" word',
    "one, two; three",
    "two\nlines",
    "tab\there",
    "naïve čeština 漢字 🎉",
    "line\u2028separator",
]
RECORDS = [
    {"text": f"{WORDS[i % 6]} {i}", "label": ("low", "high", "mid")[i % 3]} for i in range(37)
]


def delimited(records, separator=",", end="\r\n"):
    from io import StringIO

    text = StringIO(newline="")
    writer = csv.DictWriter(text, list(records[0]), delimiter=separator, lineterminator=end)
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def lines(records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def ipc(new):
    def write(path):
        table = pa.Table.from_pylist(RECORDS)
        with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)

    return write


CSV, JSONL = delimited(RECORDS), lines(RECORDS)
FILES = {
    "t.csv": CSV, "t.CSV": CSV.replace("\r\n", "\n"), "t.tsv": delimited(RECORDS, "\t"),
    "t.json.gz": gzip.compress(json.dumps(RECORDS).encode()), "t.csv.gz": gzip.compress(CSV.encode()),
    "t.csv.bz2": bz2.compress(CSV.encode()), "t.jsonl.xz": lzma.compress(JSONL.encode()), "t.jsonl": JSONL,
    "t.ndjson": JSONL, "t.json": json.dumps(RECORDS, indent=1), "of-lines.json": JSONL,
    "wrapped.json": json.dumps({"tags": ["a"], "data": RECORDS}), "bom.csv": b"\xef\xbb\xbf" + CSV.encode(),
    "utf16.csv": CSV.encode("utf-16"), "bom.json": b"\xef\xbb\xbf" + json.dumps(RECORDS).encode(),
    "semicolons.csv": delimited(RECORDS, ";"),
    "tabs.csv": delimited(RECORDS, "\t"), "bars.csv": delimited(RECORDS, "|"),
    "sep.csv": "sep=;\n" + delimited(RECORDS, ";"), "notes.csv": "# of 2022\n# in metres\n" + CSV,
    "t.parquet": lambda path: pyarrow.parquet.write_table(pa.Table.from_pylist(RECORDS), path),
    "t.arrow": ipc(pa.ipc.new_file), "t.feather": ipc(pa.ipc.new_stream),
}  # fmt: skip


def written(folder, name, content):
    path = folder / name
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def records_of(rows):
    return [dict(zip(rows.names, cells)) for cells in zip(*rows.columns.values())]


def test_every_format_gives_the_rows_that_were_written(tmp_path, monkeypatch, subtests):
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it connects"))
    for name, content in FILES.items():
        with subtests.test(name):
            rows = read_tables(path := written(tmp_path, name, content))
            assert records_of(rows) == RECORDS
            assert (len(rows), rows.faults) == (37, [])
            assert rows.place(0).startswith(path)


def test_a_row_has_the_line_in_which_it_begins(tmp_path):
    rows = read_tables(written(tmp_path, "t.csv", CSV))
    text = CSV.replace("\r\n", "\n").split("\n")
    for i, record in enumerate(RECORDS):
        number = int(rows.place(i).rpartition("line ")[2])
        assert csv_cell(text[number - 1]).startswith(record["text"].partition("\n")[0])
    assert read_tables(written(tmp_path, "t.jsonl", "\n\n" + JSONL)).place(4).endswith(", line 7")
    assert (
        read_tables(written(tmp_path, "t.parquet", FILES["t.parquet"])).place(4).endswith(", row 5")
    )


def csv_cell(line):
    return next(csv.reader([line]))[0]


def test_quotes_that_enclose_no_cell_of_a_table_of_tabs_are_letters(tmp_path):
    rows = read_tables(written(tmp_path, "t.tsv", 'text\tlabel\n"to be\tx\nor "not"\ty\n'))
    assert list(rows.columns["text"]) == ['"to be', 'or "not"']


def test_a_header_may_be_given_and_texts_are_no_table(tmp_path):
    with pytest.raises(DataError, match=r"ends in \.txt; tables end in \.arrow, \.csv"):
        read_tables(written(tmp_path, "t.txt", "to be\n\nor not\n"))
    rows = read_tables(written(tmp_path, "t.csv", "1,2\n3,4\n"), header=["a", "b"])
    assert records_of(rows) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


def test_json_lines_are_parsed_once(tmp_path, monkeypatch):
    parsed, loads = [], json.loads
    monkeypatch.setattr(
        text_files.json, "loads", lambda text, **hook: parsed.append(text) or loads(text, **hook)
    )
    read_tables(written(tmp_path, "t.jsonl", JSONL))
    assert len(parsed) == 37


def test_fields_of_objects_may_be_absent_and_faulty_rows_are_kept_as_errors(tmp_path):
    text = (
        '{"a": 1}\n{"b": [2]}\n{"a": \n3\n{"a": "\\ud800"}\n{"a": {"b": null}}\n{"a": 1, "a": 2}\n'
    )
    rows = read_tables(path := written(tmp_path, "t.jsonl", text))
    assert records_of(rows) == [
        {"a": 1, "b": None},
        {"a": None, "b": [2]},
        {"a": {"b": None}, "b": None},
    ]
    assert [fault.removeprefix(f"{path}, ").split(" (")[0].split(";")[0] for fault in rows.faults] == [
        "line 3 is no JSON", "line 4 holds no object", "line 5 is no JSON",
        "line 7 is no JSON",
    ]  # fmt: skip


def test_wide_tables_are_read_in_one_pass(tmp_path, monkeypatch):
    opened, once = [], text_files._opened
    monkeypatch.setattr(text_files, "_opened", lambda file: opened.append(file) or once(file))
    header = ",".join(f"gene {i}" for i in range(4_000))
    rows = read_tables(
        written(tmp_path, "t.csv", "\n".join([header, *[",".join(["0.5"] * 4_000)] * 30]))
    )
    assert (len(rows.names), len(rows)) == (4_000, 30)
    assert len(opened) == 1


# ── columnar files ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_decimals_and_durations_are_numbers_and_the_index_of_pandas_is_no_column(tmp_path):
    import pandas as pd

    frame = pd.DataFrame({
        "price": [decimal.Decimal("1.25"), None, decimal.Decimal("-7.50")],
        "took": [datetime.timedelta(seconds=90), datetime.timedelta(milliseconds=5), None],
        "day": [datetime.date(2022, 2, 21)] * 3, "user": [10**18 + 1, 10**18 + 2, 10**18 + 1],
    }, index=[3, 1, 2])  # fmt: skip
    frame.to_parquet(tmp_path / "t.parquet")
    rows = read_tables(str(tmp_path / "t.parquet"))
    assert rows.names == ["price", "took", "day", "user"]
    assert list(rows.columns["price"]) == [1.25, None, -7.5]
    assert list(rows.columns["took"]) == [90.0, 0.005, None]
    assert rows.columns["user"][1] == 10**18 + 2


def test_names_of_a_hubs_classes_are_kept(tmp_path):
    """As `datasets` writes them: numbers in the column, names in the metadata of the file."""
    datasets = pytest.importorskip("datasets")

    features = datasets.Features({"label": datasets.ClassLabel(names=["neg", "pos"])})
    datasets.Dataset.from_dict({"label": [0, 1, None, -1]}, features=features).to_parquet(
        tmp_path / "a.parquet"
    )
    assert list(read_tables(str(tmp_path / "a.parquet")).columns["label"]) == [
        "neg",
        "pos",
        None,
        None,
    ]


# ── several files ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_shards_are_one_table_and_hidden_copies_are_not_read(tmp_path):
    for i in range(3):
        written(tmp_path, f"part-{i}.jsonl", lines(RECORDS[12 * i : 12 * i + 12]))
    for folder in (".ipynb_checkpoints", "__MACOSX"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, "part-0.jsonl", lines(RECORDS))
    written(tmp_path, ".hidden.jsonl", lines(RECORDS))
    shards = [str(path) for path in sorted(tmp_path.glob("part-*"))]
    for path in (str(tmp_path), str(tmp_path / "*.jsonl"), shards):
        rows = read_tables(path)
        assert records_of(rows) == RECORDS[:36]
        assert [rows.place(i) for i in (0, 12, 35)] == [
            f"{shards[0]}, line 1",
            f"{shards[1]}, line 1",
            f"{shards[2]}, line 12",
        ]
    column = read_tables(shards).columns[next(iter(RECORDS[0]))]
    assert [column[i] for i in range(36)] == list(column)
    with pytest.raises(IndexError):
        column[36]


def test_files_that_are_no_table_together_are_refused(tmp_path):
    a, b = written(tmp_path, "a.csv", "x,y\n1,2\n"), written(tmp_path, "b.csv", "x,z\n1,2\n")
    with pytest.raises(DataError, match=r"b\.csv has the columns x, z, and .*a\.csv has x, y"):
        read_tables([a, b])
    written(tmp_path, "c.jsonl", JSONL)
    (tmp_path / "empty").mkdir()
    for path, fact in ((str(tmp_path), r"\.csv, \.jsonl"), (str(tmp_path / "empty"), "no table"), ([], "empty list"),
                       (str(tmp_path / "*.tsv"), r"no file matches .*\*\.tsv")):  # fmt: skip
        with pytest.raises(DataError, match=fact):
            read_tables(path)


def test_a_line_of_comment_that_may_be_the_header_is_refused(tmp_path):
    with pytest.raises(DataError, match="line 1 begins with # and has as many cells as the next"):
        read_tables(written(tmp_path, "t.csv", "#id,smell\n1,a\n2,b\n"))
    with pytest.raises(DataError, match="lines or more of comments"):
        read_tables(written(tmp_path, "long.csv", "# of 2022\n" * 99 + CSV))
    rows = read_tables(written(tmp_path, "t.csv", "#id,smell\n1,a\n"), header=["id", "smell"])
    assert list(rows.columns["id"]) == ["1"]


def test_what_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    for name, limit, content, fact in (
        ("MAX_LINE", 50, ("t.csv.gz", gzip.compress(b"a,b\n" + b"x" * 99)), "line 2 has more than 50 characters"),
        ("MAX_CELL", 50, ("t.csv", "a,b\n" + "x" * 99 + ",1\n"), "line 2: a quote that opens there is not closed"),
        ("MAX_FIELDS", 5, ("t.jsonl", lines([{f"a{i}": 0} for i in range(9)])), "line 6: there are more than 5 fields"),
        ("MAX_FAULTS", 5, ("t.csv", "a,b\n" + "1\n" * 9), "line 2 has 1 cell.* more than 5 rows"),
        ("MAX_ARRAY", 50, ("t.json", json.dumps(RECORDS)), "more than 50 characters"),
    ):  # fmt: skip
        with monkeypatch.context() as limited:
            limited.setattr(text_files, name, limit)
            with pytest.raises(DataError, match=fact):
                read_tables(written(tmp_path, *content))


# ── elsewhere ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that has one data set, and the questions that it was asked."""
    datasets = pytest.importorskip("datasets")

    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    asked = []

    def load(path, **options):
        asked.append((path, options["split"]))
        assert "trust_remote_code" not in options
        if path != "owner/name":
            raise ConnectionError("no route\nto host")
        return datasets.Dataset.from_list(RECORDS[:20])

    monkeypatch.setattr(datasets, "load_dataset", load)
    return asked


def test_a_hub_name_is_read_without_code(hub):
    rows = read_tables("hf://owner/name", split="test")
    assert records_of(rows) == RECORDS[:20]
    assert hub == [("owner/name", "test")]
    assert rows.place(2) == "hf://owner/name, row 3"
    with pytest.raises(DataError, match=r"hf://other/name cannot be read .*no route to host"):
        read_tables("hf://other/name")


def test_a_hub_name_never_reads_a_local_folder(hub, tmp_path):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    with pytest.raises(DataError, match="there is a folder owner/name here"):
        read_tables("hf://owner/name")
    assert hub == []


def test_other_addresses_are_refused(hub):
    for path in (
        "file:///t.csv",
        "http://host/t.csv",
        "s3://b/a.csv::file://t.csv",
        "hf://../owner",
        "hf:///etc",
        "hf://a",
    ):
        with pytest.raises(DataError, match="is not read"):
            read_tables(path)


def test_a_hub_name_without_its_extra_is_answered_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"seqkit\[hub\]"):
        read_tables("hf://owner/name")
    assert not Path("owner").exists()


def test_a_quoted_blank_is_a_row_of_one_column_and_a_blank_line_is_none(tmp_path):
    rows = read_tables(written(tmp_path, "t.csv", 'text\na b\n""\n\n"   "\n   \n"c\n\n"\n'))
    assert [*rows.columns["text"]] == ["a b", "", "   ", "c\n\n"]
    assert rows.place(1).endswith("line 3")
