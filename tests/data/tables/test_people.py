"""Numbers, times and lists as people write them."""

import json
import math
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqkit.data import Table
from seqkit.data.tables.cells import number, years
from seqkit.data.tables.examples import Examples
from seqkit.data.tables.infer import infer
from seqkit.data.tables.read import read_tables
from seqkit.data.tables.rows import Rows
from seqkit.data.tables.schema import Given
from seqkit.errors import DataError
from seqkit.raw import Years


def column(cells, name="x", given=None):
    rows = Rows({name: cells, "y": ["p", "q"] * (len(cells) // 2)}, [("t.csv", len(cells))])
    return infer(rows, given or Given(target="y")).column(name)


@pytest.mark.parametrize(
    ("cell", "form", "wanted"),
    [
        ("(3,000)", "", -3000), ("7.25-", "", -7.25), ("\u2212 0.5", "", -0.5), ("$2.5M", "", 2.5e6), ("12K", "", 12e3),
        ("1.250,5 km/h", "#,# km/h", 1250.5), ("EUR 3", "EUR #", 3), ("4:05", "", 245), ("1:04:05.5", "", 3845.5),
        ("12:30 am", "", 30), ("1:15 PM", "", 795), ("2 days 00:00:01", "", 172801), ("-7-", "", None),
        ("(x)", "", None),
        ("3:1", "", None), ("1:60:00", "", None), ("k", "", None), ("5 a", "", None),
    ],
)  # fmt: skip
def test_a_number_is_read_as_it_is_meant(cell, form, wanted):
    assert number(cell, form) == (None if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize(
    ("cells", "kind", "form"),
    [
        ([f"{i}.5 °C" for i in range(20)], "number", "# °C"), ([f"{i},25 kn" for i in range(20)], "number", "#,# kn"),
        ([f"CHF {i}.50" for i in range(20)], "number", "CHF #"), ([f"{i} cm" for i in range(19)] + ["3 m"], "text", ""),
        ([f"P{i:03}" for i in range(20)], "text", ""), ([f"room {i}" for i in range(20)], "text", ""),
        ([f"Q{i % 4 + 1} {2000 + i}" for i in range(20)], "date", ""),
        ([f"{i % 9 + 1:02}/2021" for i in range(20)], "date", "%m/%Y"),
        ([20210300 + i for i in range(1, 21)], "date", "%Y%m%d"),
        ([20214300 + i * i for i in range(1, 21)], "number", ""),
        ([f"555 123 45{i:02}" for i in range(20)], "text", ""), (["[1.5, -2]", "[3 4 5]"] * 10, "series", ""),
        (["A", "a", "O", "B"] * 5, "category", ""),
    ],
)  # fmt: skip
def test_a_column_is_what_people_mean_by_it(cells, kind, form):
    found = column(cells)
    assert (found.kind, found.form) == (kind, form)


def test_quarters_begin_in_their_first_month_and_sentinels_are_empty():
    assert years("Q3 1999") == Years.of(date(1999, 7, 1))
    assert years("1999Q5") is None
    cells = [f"{i:02}.01.2020" for i in range(1, 21)]
    cells[3] = "00.00.0000"
    found = column(cells)
    assert (found.kind, found.form, found.read(cells[3])) == ("date", "%d.%m.%Y", None)
    assert math.isclose(found.read(cells[0]), Years.of(date(2020, 1, 1)))


def test_a_moment_keeps_its_time_zone_and_fractions_of_a_second():
    west, east = years("2024-01-05T23:30:00-08:00"), years("2024-01-05T23:30:00+14:00")
    assert (west - east) * 365.2425 * 24 == pytest.approx(22)
    assert str(west) == "2024-01-06 07:30:00"
    assert (
        west
        == years("2024-01-06T07:30:00Z")
        == years("06.01.2024 07:30:00 +0000", "%d.%m.%Y %H:%M:%S %z")
    )
    assert years("0001-01-01T00:00:00+14:00") < years("0001-01-01")
    early, late = years("2024-01-05T10:00:00.120"), years("2024-01-05T10:00:00.870")
    assert (late - early) * 365.2425 * 86400 == pytest.approx(0.75, abs=1e-5)
    assert str(early) == "2024-01-05 10:00:00.120000"
    assert str(years("2024-01-05T10:00:00")) == "2024-01-05 10:00:00"


def test_a_column_says_that_times_without_a_zone_count_as_utc_beside_others():
    zoned = [f"2024-01-{i:02}T10:00:00+02:00" for i in range(1, 21)]
    local = [f"2024-01-{i:02}T10:00:00" for i in range(1, 21)]
    assert column(zoned).why == column(local).why == ""
    found = column([*zoned[:10], *local[10:]])
    assert found.kind == "date"
    assert found.why == "'2024-01-11T10:00:00' has no time zone, others have; it counts as UTC"


def test_few_odd_dates_are_named_and_the_kind_that_cures_them_leaves_their_rows_out():
    cells = [f"{i:02}.01.2020" for i in range(1, 31)]
    cells[0] = "end of May"
    assert "dates but for 'end of May'" in column(cells).why
    given = Given(target="y", columns={"x": "date"})
    found = column(cells, given=given)
    assert found.form == "%d.%m.%Y"
    rows = Rows({"x": cells, "y": ["p", "q"] * 15}, [("t.csv", 30)])
    assert [*Examples(rows, infer(rows, given), None).faults] == [0]


def test_null_inside_lists_is_named():
    with pytest.raises(DataError, match="hold null"):
        column([[1.0, None], [2.0, 3.0]] * 5)


def test_folders_with_keys_are_columns(tmp_path):
    for kind, day in (("p", "a%20b"), ("q", "__HIVE_DEFAULT_PARTITION__")):
        folder = tmp_path / "x=1" / "t" / f"kind={kind}" / f"day={day}"
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text("size\n1\n2\n")
    rows = read_tables(str(tmp_path / "x=1" / "t"))
    assert {name: [*cells] for name, cells in rows.columns.items()} == {
        "size": ["1", "2"] * 2, "kind": ["p", "p", "q", "q"], "day": ["a b", "a b", None, None],
    }  # fmt: skip
    again = read_tables(str(tmp_path / "x=1" / "t" / "*" / "*" / "*.csv"))
    assert [*again.columns["kind"]] == [*rows.columns["kind"]]


def test_tables_in_folders_of_splits_are_the_splits_and_a_test_without_target_is_for_predict(
    tmp_path,
):
    for split, n in (("train", 30), ("validation", 6), ("test", 8)):
        (tmp_path / "a" / split).mkdir(parents=True)
        cells = "".join(f"word{i} here,{'pq'[i % 2]}\n" for i in range(n))
        (tmp_path / "a" / split / "data-00000.csv").write_text(f"text,label\n{cells}")
    splits = Table(str(tmp_path / "a")).splits()
    assert [len(splits.train), len(splits.valid), len(splits.test)] == [30, 6, 8]
    (tmp_path / "a" / "test" / "data-00000.csv").write_text("text\nword here\n")
    with pytest.raises(DataError, match="has no target, 'label', so it may be for seqkit predict"):
        Table(str(tmp_path / "a")).splits()


def test_json_as_pandas_writes_it_by_index_is_named(tmp_path):
    file = tmp_path / "t.json"
    file.write_text(json.dumps({str(i): {"text": "a b", "label": "p"} for i in range(9)}))
    with pytest.raises(DataError, match="orient='records'"):
        read_tables(str(file))
    file.write_text(json.dumps({"meta": {"of": "us"}, "rows": [{"text": "a"}, {"text": "b"}]}))
    assert len(read_tables(str(file))) == 2


def test_a_dictionary_of_words_is_a_category_and_one_of_numbers_is_none(tmp_path):
    words = pa.array(["10", "20", "20", "30"] * 5).dictionary_encode()
    table = {"plan": words, "age": pa.array(["10", "20", "20", "30"] * 5), "y": ["p", "q"] * 10}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    schema = infer(read_tables(str(tmp_path / "t.parquet")), Given(target="y"))
    assert [schema.column(name).kind for name in ("plan", "age")] == ["category", "number"]


@pytest.mark.parametrize(
    ("header", "row", "fault"),
    [
        ("a,b,c,,,,", "1,x y,z,,,,", ""), ("400.5,402.5,404.5,moisture", "0.1,0.2,0.3,7", ""),
        ("How old are you?,Do you like tea?", "34,yes", ""),
        ("Sales of 2020,,", "shop,size,kind", "looks like a title"),
        ("0.1,0.2,0.3,a", "0.1,0.4,0.3,b", "looks like a row"), ("NA,2.5", "3,4.5", "looks like a row"),
        (",2.5", "3,4.5", "looks like a row"),
    ],
)  # fmt: skip
def test_a_header_is_known_by_the_rows_below_it(tmp_path, header, row, fault):
    file = tmp_path / "t.csv"
    file.write_text("\n".join([header, *[row] * 12]))
    if fault:
        with pytest.raises(DataError, match=fault):
            read_tables(str(file))
    else:
        assert len(read_tables(str(file))) == 12
