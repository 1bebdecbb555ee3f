"""What columns hold: inferred from their cells and names, and saved: later tables are read alike."""

import datetime
import math
import shlex
from pathlib import Path

import pytest

from seqkit.data.inputs import schema_of
from seqkit.data.tables.cells import AMBIGUOUS, is_missing, number, truth
from seqkit.data.tables.infer import infer
from seqkit.data.tables.rows import Rows
from seqkit.data.tables.schema import Column, Given, option
from seqkit.errors import DataError
from seqkit.files import load_yaml
from seqkit.raw import Years

N = 40


def cells(of):
    return [of(i) for i in range(N)]


def letters(i):
    return "".join("klmnopqrst"[int(digit)] for digit in str(100 + i))


def rows(**columns):
    """A table of columns: lists of cells, or functions from the row to its cell."""
    made = {
        name: column if isinstance(column, list) else cells(column)
        for name, column in columns.items()
    }
    return Rows(made, [("t.csv", len(next(iter(made.values()))))])


def kinds(schema):
    return {column.name: column.kind for column in schema.columns if column.role == "input"}


SIZE, PRICE, LABEL, TEXT = (
    (lambda i: f"{i * 1.5}"),
    (lambda i: f"{15 * (7 * i % N) + i % 2}"),
    (lambda i: "ab"[i % 2]),
    "a text of {}".format,
)

COLUMNS = {
    "a column of one value": (lambda i: "USA", "unused"),
    "one value, and gaps": (lambda i: "yes" if i % 2 else "", "category"),
    "a code for each row": ("AB{:03}".format, "text"),
    "a name for each row": (letters, "text"),
    "a counter": (str, "unused"),
    "a counter from 1": (lambda i: i + 1, "unused"),
    "few words": (lambda i: ("casein", "soy", "linseed")[i % 3], "category"),
    "postcodes": (lambda i: f"{501 + i % 3:05}", "category"),
    "a code that begins with zero": (lambda i: f"0{i * i}", "text"),
    "identifiers of 19 digits": (lambda i: str(10**18 + i % 9), "category"),
    "the same as numbers": (lambda i: 10**18 + i % 9, "category"),
    "numbers among texts": (lambda i: i if i % 2 else f"{i}x", "unused"),
    "times of a day": (lambda i: datetime.time(3, i), "unused"),
    "few times of a day": (lambda i: datetime.time(3, i % 5), "category"),
    "texts": (TEXT, "text"),
    "true and false": (lambda i: i % 2 == 0, "category"),
    "nothing": (lambda i: "", "unused"),
    "numbers": (SIZE, "number"),
    "numbers, some missing": (lambda i: "n/a" if i % 9 == 0 else i / 7, "number"),
    "numbers in words of a program": (lambda i: f"{i}_000", "text"),
    "days": (lambda i: datetime.date(2022, 3, 1 + i % 28), "date"),
    "objects": (lambda i: {"a": i}, "unused"),
    "lists of numbers": (lambda i: [i, 0.5], "series"),
    "lists of steps": (lambda i: [[i, 0.5], [1, 2]], "series"),
    "lists of words": (lambda i: ["to", "be"], "words"),
    "lists of texts": (lambda i: ["to be", "or not"], "unused"),
    "messages": (lambda i: [{"role": "user", "content": f"what is {i}?"}], "text"),
    "messages of another kind": (lambda i: [{"from": "human", "value": f"what is {i}?"}], "text"),
    "names of images": ("a/{}.PNG".format, "image"),
    "names of sounds": ("{}.flac".format, "audio"),
    "content of images": (lambda i: {"bytes": b"\x89PNG", "path": None}, "image"),
    "content of sounds": (lambda i: b"RIFF", "audio"),
}  # fmt: skip
"""Cells of row i, and the kind of their column."""


def test_a_column_is_what_its_cells_are(subtests):
    for what, (column, kind) in COLUMNS.items():
        with subtests.test(what):
            schema = infer(rows(x=column, size=SIZE, y=PRICE), Given(target="y"))
            assert kinds(schema).get("x", "unused") == kind
            assert all(c.why for c in schema.columns if c.role == "unused"), "a reason"
            read = [
                c.read(column(i), schema.missing)
                for c in schema.inputs[:1]
                for i in range(N)
                if c.name == "x"
            ]
            values = {str(column(i)) for i in range(N) if not is_missing(column(i))}
            assert kind != "category" or len({*read} - {None}) == len(values), "each its own"


NUMBERS = {
    "money": ("${},234.50", "", 5234.5), "money behind": ("{}234,50 €", ",", 5234.5), "per cent": ("{}.5%", "", 5.5),
    "thousands": ("{}'234'567", "", 5234567.0), "thin spaces": ("{}\u202f234", "", 5234.0),
    "decimal commas": ("-{}.234.567,25", ",", -5234567.25), "a sign before money": ("-${}", "", -5.0),
    "exponents": ("{}e-2", "", 0.05), "no digit before": (".{}", "", 0.5),
}  # fmt: skip

DATES = {
    "ISO": ("2012-01-{:02}", ""), "ISO with a time": ("2012-01-{:02}T13:45:10", ""),
    "slashes": ("2012/01/{:02}", "%Y/%m/%d"),
    "slashes and a clock": ("2012/01/{:02} 13:45", "%Y/%m/%d %H:%M"), "points": ("{:02}.01.2012", "%d.%m.%Y"),
    "two digits": ("{:02}.01.12", "%d.%m.%y"), "month first": ("01/{:02}/2012", "%m/%d/%Y"),
    "day first": ("{:02}/01/2012", "%d/%m/%Y"), "a month's name": ("Jan {} 2012", "%b %d %Y"),
    "day and name": ("{} Jan 2012", "%d %b %Y"), "a name in full": ("January {}, 2012", "%B %d, %Y"),
    "dashes": ("{:02}-01-2012", "%d-%m-%Y"), "a name between dashes": ("{:02}-Jan-2012", "%d-%b-%Y"),
    "a comma": ("Jan {}, 2012", "%b %d, %Y"), "two digits and slashes": ("1/{}/12", "%m/%d/%y"),
    "afternoon": ("01/{:02}/2012 1:45 PM", "%m/%d/%Y %I:%M %p"),
}  # fmt: skip


@pytest.mark.parametrize("what", NUMBERS)
def test_numbers_are_read_as_people_write_them(what):
    written, form, value = NUMBERS[what]
    (column,) = infer(
        rows(a=lambda i: written.format(1 + i % 9), y=PRICE), Given(target="y")
    ).inputs
    assert (column.kind, column.form) == ("number", form)
    assert column.read(written.format(5)) == value


@pytest.mark.parametrize("what", DATES)
def test_dates_have_one_form_and_keep_it(what):
    written, form = DATES[what]
    (column,) = infer(
        rows(a=lambda i: written.format(1 + i % 28), y=PRICE), Given(target="y")
    ).inputs
    assert (column.kind, column.form) == ("date", form)
    assert str(column.read(written.format(5))).startswith("2012-01-05")
    with pytest.raises(ValueError, match="no date as the others are"):
        column.read("5 janvier 2012")


def test_months_are_dates():
    (column,) = infer(
        rows(a=lambda i: f"20{i % 20:02}-{1 + i % 12:02}", y=PRICE), Given(target="y")
    ).inputs
    assert (column.kind, str(column.read("2012-05"))) == ("date", "2012-05-01")


def test_a_day_that_may_be_a_month_is_asked_for():
    table = rows(day=lambda i: f"{1 + i % 12:02}/{1 + 5 * i % 12:02}/2020", size=SIZE, y=PRICE)
    day = infer(table, Given(target="y")).columns[0]
    assert (day.role, "may be day/month or month/day" in day.why) == ("unused", True)
    flag, value = shlex.split(
        day.why.rpartition(": ")[2] if "--data" not in day.why else day.why.partition("which: ")[2]
    )
    assert flag == "--data.forms"
    given = infer(table, Given(target="y", forms=load_yaml(value)))
    assert given.inputs[0].read("02/03/2020") == Years.of(datetime.date(2020, 3, 2))


def test_a_word_among_numbers_is_missing_in_the_whole_table():
    for word in (word.upper() for word in AMBIGUOUS):
        sex = [("f", "m", word)[i % 3] for i in range(N)]
        wing = [word if i % 5 == 0 else f"{i}.5" for i in range(N)]
        schema = infer(rows(sex=sex, wing=wing, y=PRICE), Given(target="y"))
        assert schema.missing == (word.lower(),)
        assert [column.read(word, schema.missing) for column in schema.inputs] == [None, None]
        assert any(f"{word} counts as an empty cell" in line for line in schema.lines())
        assert infer(rows(sex=sex, wing=SIZE, y=PRICE)).missing == (), (
            "a value where no number column has it"
        )
    schema = infer(
        rows(a=lambda i: "-999" if i % 3 else f"{i}", y=PRICE), Given(missing=["-999 ", "Unknown"])
    )
    assert schema.missing == ("-999", "unknown")


def test_what_pandas_reads_as_missing_is_missing_or_may_be():
    from pandas.io.parsers.readers import STR_NA_VALUES

    programs = {"1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "#N/A N/A"}  # of Windows before 2015
    assert {
        word for word in STR_NA_VALUES if not is_missing(word) and word.lower() not in AMBIGUOUS
    } <= programs
    assert not any(map(is_missing, AMBIGUOUS))


# ── targets ──────────────────────────────────────────────────────────────────────────────────────────────────────────

TARGETS = {
    "the last": ({"size": SIZE, "price": PRICE}, {}, "price", "numbers"),
    "a known name": ({"label": LABEL, "size": SIZE}, {}, "label", "classes"),
    "words": ({"size": SIZE, "feed": lambda i: ("soy", "casein")[i % 2]}, {}, "feed", "classes"),
    "whole numbers called label": ({"size": SIZE, "label": lambda i: i % 4}, {}, "label", "classes"),
    "stars called y": ({"size": SIZE, "y": lambda i: f"{1 + i % 5}"}, {}, "y", "classes"),
    "signs called class": ({"size": SIZE, "class": lambda i: 2 * (i % 2) - 1}, {}, "class", "classes"),
    "whole floats": ({"size": SIZE, "target": lambda i: float(i % 3)}, {}, "target", "classes"),
    "many whole numbers": ({"size": SIZE, "y": lambda i: i % 25}, {}, "y", "numbers"),
    "marks of another name": ({"size": SIZE, "quality": lambda i: i % 9}, {}, "quality", "numbers"),
    "zeros and ones of any name": ({"size": SIZE, "sold": lambda i: i % 2}, {}, "sold", "classes"),
    "leading zeros": ({"size": SIZE, "y": lambda i: ("01", "02", "007")[i % 3]}, {}, "y", "classes"),
    "a counter that is named": ({"size": SIZE, "id": str}, {"target": "id"}, "id", "numbers"),
    "year and level": ({"year": lambda i: 1900 + i, "level": SIZE}, {}, "level", "numbers"),
    "time that counts": ({"time": str, "level": lambda i: f"{i % 7}.5"}, {}, "level", "numbers"),
    "a text of two": ({"instruction": TEXT, "output": "so {}, then".format}, {"target_kind": "text"}, "output", "text"),
    "several that are right": ({"source": TEXT, "target": lambda i: [f"a {i}", f"b {i}"]}, {"target_kind": "text"},
                               "target", "text"),
    "tags": ({"tokens": lambda i: ["a", "b"], "tags": lambda i: ["X", "Y"]}, {}, "tags", "tags"),
    "a target that counts": ({"x": SIZE, "y": str}, {}, "y", "numbers"),
    "a lone text": ({"text": TEXT}, {}, None, "none"),
    "names and what they are": ({"name": letters, "country": LABEL}, {}, "country", "classes"),
    "no target": ({"text": TEXT, "label": LABEL}, {"target_kind": "none", "input": "text"}, None, "none"),
}  # fmt: skip
"""Columns, what is given, the target and what it holds."""


def test_the_target_is_the_named_column_else_a_known_one_else_the_last(subtests):
    for what, (columns, given, target, kind) in TARGETS.items():
        with subtests.test(what):
            schema = infer(rows(**columns), Given(**given))
            assert [column.name for column in schema.targets] == ([target] if target else [])
            assert schema.target_kind == kind
            assert schema.inputs


def test_several_targets_are_numbers_or_yes_and_no():
    table = rows(text=TEXT, a=lambda i: "yn"[i % 2], b=lambda i: i // 2 % 2, c=SIZE, d=PRICE)
    assert infer(table, Given(target=["a", "b"])).target_kind == "labels"
    assert infer(table, Given(target=["c", "d"])).target_kind == "numbers"
    assert [column.name for column in infer(table, Given(target_kind="labels")).targets] == [
        "a",
        "b",
    ]
    with pytest.raises(DataError, match=r"several targets \(a, c\).*--data\.target"):
        infer(table, Given(target=["a", "c"]))


# ── one input, or all ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_recipe_of_texts_reads_one_column():
    table = rows(
        id=str,
        title="{}th".format,
        body="a far longer text {}".format,
        stars=lambda i: i % 5,
        tone=LABEL,
    )
    assert kinds(infer(table)) == {"title": "text", "body": "text", "stars": "number"}
    assert kinds(infer(table, reads="text")) == {"body": "text"}, "the longest"
    assert kinds(infer(table, Given(input="title"), reads="text")) == {"title": "text"}
    for name in ("text", "word"):
        assert kinds(infer(rows(**{name: letters, "tone": LABEL, "age": SIZE}), reads="text")) == {
            name: "text"
        }
    assert kinds(infer(rows(word=lambda i: ("to", "be", "or")[i % 3], y=LABEL), reads="text")) == {
        "word": "text"
    }
    with pytest.raises(DataError, match=r"'one', 'two' fit equally as input; .*--data\.input"):
        infer(rows(one=TEXT, two=TEXT, y=LABEL), reads="text")
    with pytest.raises(DataError, match=r"no column of text left \(size: number\)"):
        infer(rows(size=SIZE, y=LABEL), reads="text")


def test_molecules_are_known_by_name_and_cells():
    pytest.importorskip("rdkit")
    for name in (
        "smiles",
        "Canonical SMILES",
        "IsomericSMILES",
        "Ligand SMILES",
        "mol",
        "smi",
        "Drug",
    ):
        table = rows(**{name: lambda i: "C" * (1 + i % 9) + "O", "note": TEXT, "y": PRICE})
        assert kinds(infer(table))[name] == "smiles"
        assert kinds(infer(table, reads="smiles")) == {name: "smiles"}
        assert (
            kinds(infer(rows(**{name: lambda i: f"aspirin {i % 9}", "y": PRICE})))[name]
            == "category"
        )


def test_a_column_of_images_whose_names_have_no_suffix_is_no_text():
    assert kinds(infer(rows(image="train/{:05}".format, label=LABEL))) == {"image": "image"}


def test_columns_of_numbers_may_be_one_series():
    table = rows(
        **{f"s{j}": (lambda i, j=j: f"{i * j},5") for j in range(3)}, site=lambda i: "x", kind=LABEL
    )
    for given in (["s0", "s1", "s2"], "s?"):
        schema = infer(table, Given(input=given))
        assert [step.name for step in schema.steps] == ["s0", "s1", "s2"]
        assert kinds(schema) == {"s0 … s2": "series"}
    for given, fact in (
        ("t*", r"'t\*'"),
        (["s0", "s0"], "once"),
        (["s0", "sitte"], "did you mean site"),
    ):
        with pytest.raises(DataError, match=fact):
            infer(table, Given(input=given))


def test_a_column_of_groups_is_an_input_where_it_holds_more_than_names_or_nothing_else_is_left():
    names = rows(who=lambda i: f"p{i % 5}", text=TEXT, label=LABEL)
    assert kinds(infer(names, group="who")) == {"text": "text"}
    assert kinds(infer(names, Given(columns={"who": "category"}), group="who")) == {
        "who": "category",
        "text": "text",
    }
    lone = infer(rows(text=lambda i: f"a text {i % 7}", label=LABEL), group="text")
    assert (kinds(lone), lone.targets[0].name) == ({"text": "category"}, "label")
    assert "photo" in kinds(infer(rows(photo="{}.png".format, size=SIZE, y=PRICE), group="photo"))
    assert "part" not in kinds(infer(rows(part=TEXT, size=SIZE, y=PRICE), split="part"))


def test_what_is_given_is_taken_and_not_said():
    table = rows(code="AB{:03}".format, size=SIZE, n=lambda i: i % 3, y=PRICE)
    given = {"code": "text", "size": "unused", "n": "category"}
    schema = infer(table, Given(target="y", target_kind="numbers", columns=given))
    assert kinds(schema) == {"code": "text", "n": "category"}
    assert list(schema.lines()) == []
    said = list(infer(table).lines())
    assert len(said) == 4
    assert "number: 'size', input; to change: --data.columns '{size: category}'" in said[1]
    assert "number: 'y', target (numbers); to change: --data.target n" in said[3]


@pytest.mark.slow
def test_wide_tables_are_inferred_and_counted():
    columns = {f"gene {j}": [f"{j * i % 97}.5" for i in range(20)] for j in range(4_000)}
    schema = infer(rows(**columns, y=[f"{i}.5" for i in range(20)]))
    assert (
        len(schema.inputs) + sum("every cell" in column.why for column in schema.columns) == 4_000
    )
    assert "and 3,971 columns more" in list(schema.lines())[-1]


REFUSED = [
    ({"x": [], "y": []}, {}, r"header \(x, y\) and no rows"),
    ({"x": SIZE, "y": PRICE}, {"target": "z"}, r"'z'.*--data\.target"),
    ({"x": SIZE, "yes": PRICE}, {"target": "yess"}, "did you mean yes"),
    ({"x": SIZE, "y": PRICE}, {"columns": {"b": "text"}}, r"'b'.*--data\.columns"),
    ({"x": SIZE, "y": PRICE}, {"forms": {"b": ","}}, r"'b'.*--data\.forms"),
    ({"x": SIZE, "y": PRICE}, {"input": "z"}, r"'z'.*--data\.input"),
    ({"x": SIZE, "y": PRICE}, {"input": "y", "target": "y"}, "'y' is input and target"),
    ({"x": lambda i: "a", "y": PRICE}, {"target": "y"}, "no column is left as input .*x: every cell is 'a'"),
    ({"cells": TEXT, "y": PRICE}, {}, "cannot be called 'cells'"),
    ({"x": TEXT, "y": lambda i: {"a": i}}, {"target": "y"}, r"y is \{'a': 0\}, which is no target"),
    ({"x": TEXT, "photo": "{}.png".format}, {"target": "photo"}, "photo is '0.png', which is no target"),
    ({"x": TEXT}, {"target_kind": "classes"}, r"no column for the target.*--data\.target"),
]  # fmt: skip


def test_what_is_not_clear_is_an_error_in_one_line(subtests):
    for columns, given, fact in REFUSED:
        with subtests.test(fact), pytest.raises(DataError, match=fact) as error:
            infer(rows(**columns), Given(**given))
        assert "\n" not in str(error.value)
    for given, fact in (
        ({"target": ["a", "a"]}, "different"), ({"target": []}, "one column"),
        ({"forms": {"a": "."}}, "'a' is written"),
        ({"columns": {"a": "numbers"}}, "did you mean number"),
    ):  # fmt: skip
        with subtests.test(fact), pytest.raises(ValueError, match=fact):
            Given(**given)


# ── saved ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_saved_schema_reads_as_the_inferred_one():
    table = rows(
        day=lambda i: f"{1 + i % 28:02}/02/2022", price=lambda i: f"{i},5", sex=lambda i: ("f", "NA")[i % 2],
        age=lambda i: "NA" if i % 7 == 0 else str(i), note=TEXT, id=str, y=PRICE,
    )  # fmt: skip
    schema = infer(table)
    settings = schema.settings()
    again = infer(table, Given(**settings))
    assert [(c.name, c.kind, c.role, c.form) for c in again.columns] == [
        (c.name, c.kind, c.role, c.form) for c in schema.columns
    ]
    saved = schema_of({"data": {"source": {"type": "Table", **settings}}})
    few = {"day": "02/05/2022", "price": "1.234,5", "sex": "na", "age": "7", "note": "null"}
    for column, other in zip(schema.inputs, saved.inputs, strict=True):
        value = column.read(few[column.name], schema.missing)
        assert other.read(few[column.name], saved.missing) == value
    assert str(saved.inputs[0].read("02/05/2022")) == "2022-05-02", (
        "as training, though May has no day 28 here"
    )


def test_cells_that_are_no_value_of_their_column_are_errors(subtests):
    for column, cell, fact in (
        (Column("a", "number"), "many", "a is 'many', which is no number"), (Column("a", "number"), "1e19", r"1e\+18"),
        (Column("a", "number"), "inf", r"1e\+18"), (Column("a", "number"), True, "no number"),
        (Column("a", "text"), 3, "no text; write it in quotes"), (Column("a", "text"), ["b"], "no text"),
        (Column("a", "text"), [{"role": "user", "content": 3}], "no text"),
        (Column("a", "series"), [0.5, "x"], "no list"), (Column("a", "series"), [1, [2, 3]], "no list"),
        (Column("a", "words"), ["two words"], "no list of words"), (Column("a", "image"), 7, "no file"),
        (Column("a", "category"), ["b"], "no category"),
    ):  # fmt: skip
        with subtests.test(f"{column.kind} {cell}"), pytest.raises(ValueError, match=fact):
            column.read(cell)


def test_numbers_and_truths_are_what_they_say():
    for cell, form, value in (
        ("1,234", "", 1234), ("1,234", ",", 1.234), ("0,125", "", None),
        ("0,125", ",", 0.125), ("1,23", "", None), ("12,34.5", "", None), ("1.5e3", "", 1500),
        ("--1", "", None), ("$", "", None), ("5 $", "", 5), ("1 234", "", 1234), ("1 23", "", None), ("٣", "", 3),
        (Column, "", None), (None, "", None), ("1.234.567", ",", 1234567), ("0x1f", "", None),
    ):  # fmt: skip
        assert number(cell, form) == value, cell
    assert [truth(x) for x in ("Yes", "n", True, 0, "T", "jo", 2)] == [1, 0, 1, 0, 1, None, None]


def test_a_hint_with_the_name_of_a_column_can_be_pasted_into_a_shell():
    name = "Bemerkung: 'frei', [kurz]"
    words = shlex.split(option("columns", {name: "text", "plain": "unused"}))
    assert load_yaml(words[1]) == {name: "text", "plain": "unused"}
    assert option("columns", {"plain": "unused"}) == "--data.columns '{plain: unused}'"
    assert option("group", "plain") == "--data.group plain"
    assert load_yaml(shlex.split(option("target", [name, "b"]))[1]) == [name, "b"]


def test_files_that_a_tokenizer_reads_itself_are_known_by_being_there(tmp_path):
    for i in range(N):
        (tmp_path / f"{i}.eeg").touch()
    table = rows(recording="{}.eeg".format, y=LABEL)
    assert kinds(infer(table, folder=tmp_path)) == {"recording": "file"}
    assert kinds(infer(table, folder=Path("/nowhere"))) == {"recording": "text"}


# ── numbers as people write them, and cells that are none ────────────────────────────────────────────────────────────


def kinds_of(**columns):
    size = len(next(iter(columns.values())))
    rows = Rows({**columns, "y": ["a", "b"] * (size // 2)}, [("t.csv", size)])
    return {column.name: column for column in infer(rows).columns}


def test_points_group_thousands_beside_numbers_without_a_point_and_beside_decimal_commas():
    prices = ["999", "1.200", "850", "2.450", "12.500", "70"]
    assert kinds_of(v=prices)["v"].form == ","
    assert kinds_of(v=["3.947", "1.250"] * 3, w=["2,40", "7,1"] * 3)["v"].form == ","
    for decimals in (
        ["0.125", "2.250", "1.375", "2"] * 2,
        ["1.125", "2.500"] * 3,
        ["1.5", "999", "1.200"] * 2,
    ):
        assert kinds_of(v=decimals)["v"].form == ""


def test_a_few_cells_that_are_no_numbers_are_named():
    column = kinds_of(v=[*map(str, range(17, 36)), "<5"] * 2)["v"]
    assert column.kind == "category"
    assert "'<5'" in column.why
    assert "2 of 40" in column.why
    assert kinds_of(v=["red", "blue"] * 20)["v"].why == ""


def test_a_column_is_not_target_and_group():
    rows = Rows({"x": ["1.5", "2.5"] * 5, "who": ["a", "b"] * 5}, [("t.csv", 10)])
    with pytest.raises(DataError, match="'who' is the target"):
        infer(rows, Given(target="who"), group="who")


def test_what_is_wrong_with_a_table_is_a_line_of_its_own(subtests):
    dates = [f"{i:02}/{i + 1:02}/2024" for i in range(1, 11)]
    for columns, given, fact in (
        ({"x": ["1.5"] * 10, "when": dates, "y": ["a", "b"] * 5}, {"columns": {"when": "date"}}, "day/month or month"),
        ({"tokens": ["a b"] * 10, "price": ["1.5", "2.5"] * 5, "tags": ["x y"] * 10},
         {"target": "tags", "target_kind": "tags", "columns": {"tokens": "words"}}, "one input"),
    ):  # fmt: skip
        with subtests.test(fact), pytest.raises(DataError, match=fact):
            infer(Rows(columns, [("t.csv", 10)]), Given(**given))
    for settings, fact in (
        ({"target": ["a", "b"], "target_kind": "classes"}, "names 2 columns"), ({"target_kind": "clases"}, "classes"),
    ):  # fmt: skip
        with subtests.test(fact), pytest.raises(ValueError, match=fact):
            Given(**settings)


def test_a_step_of_a_series_is_not_its_target():
    columns = {"fault": ["a", "b"] * 5, "s1": ["1.5", "2"] * 5, "s2": ["2.5", "1"] * 5}
    schema = infer(Rows(columns, [("t.csv", 10)]), Given(input="s*"))
    assert [target.name for target in schema.targets] == ["fault"]


def test_json_has_whole_numbers_of_any_size_and_words_for_missing_ones():
    assert number(-(10**400)) == -math.inf
    with pytest.raises(ValueError, match="beyond"):
        Column("x", "number").read(10**400)
    assert kinds_of(v=[1, 2, 3.5, "NA"] * 5)["v"].kind == "number"
    assert kinds_of(v=[1.234, 2.345, 3.456, 5] * 5)["v"].form == ""
    assert kinds_of(**{"column width": ["1.5", "2.5"] * 5})["column width"].kind == "number"


def test_dates_of_several_forms_are_no_texts():
    table = rows(day=lambda i: "6/25/2020" if i % 2 else "25/6/2020", size=SIZE, y=PRICE)
    day = infer(table, Given(target="y")).columns[0]
    assert (day.role, day.why) == (
        "unused",
        "it holds dates of several forms, '25/6/2020' and '6/25/2020'; write all in one",
    )


# ── all rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def long_table(of, n=6_000):
    """A table of `n` rows: a column `x` beside one of sizes, and a target."""
    return Rows(
        {
            "x": [of(i) for i in range(n)],
            "size": [f"{i % 89}.5" for i in range(n)],
            "y": [f"{i % 97}.25" for i in range(n)],
        },
        [("t.csv", n)],
    )


LATE = {
    "a shop that opens late": (lambda i: "Rome" if i < 5_000 else "Oslo", "category", ""),
    "a price that is set late": (lambda i: "" if i < 5_990 else f"{i}.5", "number", ""),
    "a day above 12 late": (lambda i: f"0{1 + i % 9}/01/2024" if i < 5_999 else "13/01/2024", "date", "%d/%m/%Y"),
    "a decimal comma late": (lambda i: f"{1 + i % 9},250" if i < 5_999 else "0,5", "number", ","),
    "a thousand late": (lambda i: f"{i % 999}" if i < 5_990 else f"1.{i % 999:03}", "number", ","),
    "one value in all rows": (lambda i: "Rome", "unused", ""),
}  # fmt: skip
"""Cells of row i of 6,000, the kind of their column, and its form."""


@pytest.mark.parametrize("what", LATE)
def test_a_column_is_judged_by_all_its_rows(what):
    cell, kind, form = LATE[what]
    column = infer(long_table(cell), Given(target="y")).column("x")
    assert (column.kind, column.form) == (kind, form)


def test_a_target_is_judged_by_all_its_rows():
    for target, kind in (
        (lambda i: int(i > 5_900), "classes"),
        (lambda i: i // 2_500, "numbers"),
    ):
        table = long_table(target)
        assert infer(table, Given(target="x")).target_kind == kind


def test_decimal_signs_are_those_of_the_whole_table():
    unclear = lambda i: f"{1 + i % 9},{250 + i}"  # noqa: E731
    for other, form, is_said in (
        (lambda i: f"0,{10 + i}", ",", False),
        (lambda i: f"0.{10 + i}", "", False),
        (lambda i: f"{i % 7}", "", True),
    ):
        column = infer(rows(a=unclear, b=other, y=LABEL), Given(target="y")).column("a")
        assert (column.form, bool(column.why)) == (form, is_said)
        if is_said:
            assert "--data.forms '{a: \",\"}'" in column.why
            given = Given(target="a", forms={"a": ","})
            assert infer(rows(a=unclear, y=LABEL), given).targets[0].form == ","


def test_an_amount_says_both_its_currencies_and_its_comma():
    why = infer(rows(a=lambda i: f"{'$€'[i % 2]}1,{200 + i}", y=LABEL)).column("a").why
    assert why.startswith("'$1,200' is read as 1200, '€1,201' is read as 1201; if a comma is")


# ── numbers of rows ──────────────────────────────────────────────────────────────────────────────────────────────────

IDS = {
    "from 300": ("sample", lambda i: 300 + i, "unused"),
    "in steps": ("probe", lambda i: f"{2000 - 5 * i}", "unused"),
    "shuffled": ("no", lambda i: 1 + i * 7 % N, "unused"),
    "with zeros": ("plate", lambda i: f"{i:04}", "unused"),
    "as floats": ("n", float, "unused"),
    "of joined files": ("nr", lambda i: i % (N // 2), "unused"),
    "with gaps, in camel case": ("PassengerId", lambda i: i * i, "unused"),
    "pandas": ("Unnamed: 0", lambda i: i * i, "unused"),
    "R": ("rownames", lambda i: f"{i * i}", "unused"),
    "texts": ("uuid", lambda i: f"{i * i:x}-{i:x}", "unused"),
    "a time": ("t", lambda i: 300 + i, "number"),
    "ids that come again": ("visit_id", lambda i: f"v{i % 8}", "category"),
    "numbers that come again": ("index", lambda i: i % 9, "number"),
    "an index of measures": ("index", lambda i: i / 7, "number"),
    "measures that all differ": ("mass", lambda i: i * i, "number"),
    "codes of wells": ("well", lambda i: f"{1 + i % 3}E{i % 5}", "category"),
    "exponents of a program": ("dose", lambda i: f"{1 + i}.0E{i % 5}", "number"),
}  # fmt: skip
"""Name and cells of a column, and its kind."""


@pytest.mark.parametrize("what", IDS)
def test_a_column_numbers_the_rows_by_its_cells_and_not_by_its_name_alone(what):
    name, cell, kind = IDS[what]
    assert (
        infer(rows(**{name: cell}, size=SIZE, y=LABEL), Given(target="y")).column(name).kind == kind
    )


def test_an_id_that_comes_again_is_no_target_by_its_place():
    schema = infer(rows(size=SIZE, tone=LABEL, user_id=lambda i: f"u{i % 5}"))
    assert [column.name for column in schema.targets] == ["tone"]


def test_equal_steps_before_one_measured_number_are_its_argument_and_an_id_is_not():
    steps = infer(rows(dose=lambda i: 15 * i, response=SIZE))
    assert (kinds(steps), steps.targets[0].name) == ({"dose": "number"}, "response")
    assert kinds(infer(rows(dose=lambda i: 15 * i, response=SIZE), Given(target="response")))
    for names in ({"id": lambda i: i, "size": SIZE}, {"nr": lambda i: i, "text": TEXT}):
        assert infer(rows(**names)).column(next(iter(names))).role == "unused"


AS_READ = {
    "of a match": (lambda i: f"{20 + i % 9}:{30 + i % 7}", "'20:30' is read as 1230"),
    "sizes": (lambda i: ("3M", "6M", "12M")[i % 3], "'3M' is read as 3000000"),
    "marks": (lambda i: ("1", "2-", "3")[i % 3], "'2-' is read as -2"),
    "models": (lambda i: ("320i", "330i")[i % 2], "'320i' is read as 320"),
    "in parentheses": (lambda i: f"({1 + i % 5})", "'(1)' is read as -1"),
    "plain": (lambda i: f"{i}.5", ""),
    "exponents": (lambda i: f"{i}.5e-3", ""),
    "of a price": (lambda i: f"$1,{200 + i}.50", ""),
    "of shares": (lambda i: f"{i}%", ""),
    "of several currencies": (
        lambda i: f"{'$€£'[i % 3]}{5 + i // 3}",
        "'$5' is read as 5, '€5' is read as 5, '£5' is read as 5",
    ),
    "shares beside per cent": (
        lambda i: (f"{50 + i}%", f"0.{50 + i}")[i % 2],
        "'50%' is read as 50, '0.51' is read as 0.51",
    ),
}


@pytest.mark.parametrize("what", AS_READ)
def test_a_number_that_may_be_none_is_said_with_its_value(what):
    cell, said = AS_READ[what]
    column = infer(rows(a=cell, size=SIZE, y=LABEL), Given(target="y")).column("a")
    assert (column.kind, column.why) == ("number", said)
    assert column.flag == "--data.columns '{a: category}'"


def test_rows_of_yes_and_no_alone_are_inputs_and_given_kinds_stay():
    bits = {f"bit{j}": lambda i, j=j: i >> j & 1 for j in range(4)}
    schema = infer(rows(**bits, active=lambda i: i % 2))
    assert len(schema.inputs) == 4
    assert "bit0, bit1, bit2, … hold yes and no, too, and are inputs" in schema.targets[0].why
    given = infer(
        rows(text=TEXT, rude=lambda i: i % 2, spam=LABEL), Given(columns={"rude": "number"})
    )
    assert kinds(given) == {"text": "text", "rude": "number"}
    assert not infer(rows(text=TEXT, length=lambda i: i % 7, y=LABEL)).targets[0].why
    several = Given(target=["rude", "spam"])
    assert (
        infer(rows(text=TEXT, rude=lambda i: i % 2, spam=lambda i: i // 2 % 2), several).target_kind
        == "labels"
    )


@pytest.mark.parametrize(("words", "is_split"), [
    (("Training", "Testing"), True),
    (("train", "val", "test"), True),
    (("dev", "test", "prod"), False),
    (("train", "bus"), False),
    (("train", "val"), False),  # --data.split needs test rows
])  # fmt: skip
def test_a_column_that_names_splits_is_offered_as_the_split(words, is_split):
    table = rows(size=SIZE, dataset=lambda i: words[i % len(words)], y=PRICE)
    schema = infer(table, Given(target="y"))
    said = "not used: 'dataset' (it names splits); to change: --data.split dataset"
    assert any(said in line for line in schema.lines()) == is_split
    assert ("dataset" in kinds(schema)) != is_split
    given = infer(table, Given(target="y", columns={"dataset": "category"}))
    assert "dataset" in kinds(given)
    assert infer(table, Given(target="y"), split="dataset").column("dataset").role == "split"
