"""Numbers, times and lists as people write them."""

import math
from datetime import date

import pytest

from seqkit.data.tables.cells import number, years
from seqkit.data.tables.examples import Examples
from seqkit.data.tables.infer import infer
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
        ("12:30 am", "", 30), ("1:15 PM", "", 795), ("2 days 00:00:01", "", 172801), ("-7-", "", None), ("(x)", "", None),
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
        ([f"Q{i % 4 + 1} {2000 + i}" for i in range(20)], "date", ""), ([f"{i % 9 + 1:02}/2021" for i in range(20)], "date", "%m/%Y"),
        ([20210300 + i for i in range(1, 21)], "date", "%Y%m%d"), ([20214300 + i * 7 for i in range(1, 21)], "number", ""),
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
