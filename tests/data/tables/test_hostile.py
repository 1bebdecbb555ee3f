"""Tables as people have them: each is refused, or its oddity counted, with the file, the line and the flag."""

import gzip
import json
import logging
import math
import os
import re

import pytest

from seqkit.data import Table
from seqkit.data.sources.table import Division
from seqkit.data.tables.schema import Given
from seqkit.errors import DataError

WORDS = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "koi", "lark")
ROWS = [f"a text about the {word},{'odd' if i % 2 else 'even'}" for i, word in enumerate(WORDS)]
TEXTS = [row.partition(",")[0] for row in ROWS]
OBJECTS = [{"text": text, "label": row.partition(",")[2]} for text, row in zip(TEXTS, ROWS)]
NUMBERS = [f"the text {word},{i * 0.5}" for i, word in enumerate(WORDS)]
BITS = [f"{text},{i % 2}" for i, text in enumerate(TEXTS)]


def csv(*rows, head="text,label", end="\n"):
    return end.join([head, *rows]) + end


def jsonl(*records):
    return "".join(
        (record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records
    )


def zipped(text, codec="utf-8"):
    return gzip.compress(text.encode(codec))


def table(path, given):
    """A table with arguments as they stand behind --data."""
    of = {"columns": {}, "division": {}}
    for name, value in given.items():
        fields = Given.__dataclass_fields__, Division.__dataclass_fields__
        group = "columns" if name in fields[0] else "division" if name in fields[1] else None
        (of if group is None else of[group])[name] = value
    return Table(
        path, **of | {"columns": Given(**of["columns"]), "division": Division(**of["division"])}
    )


BROKEN = f"byte 0x{{}} at offset {len(csv(*ROWS)) + len('caf')}, line 14"
REFUSED = {
    # ── the file ──
    "it is not there": (None, {}, "not exist"),
    "it is empty": ("", {}, "0 bytes"),
    "blank lines alone": ("\n\n  \n", {}, "blank"),
    "a header alone": (csv(), {}, r"header \(text, label\)"),
    "Latin 1": (csv(*ROWS, "caf\xe9,odd").encode("latin1"), {}, BROKEN.format("e9")),
    "cut inside a letter": (csv(*ROWS).encode() + "caf\xe9".encode()[:-1], {}, BROKEN.format("c3")),
    "NUL bytes": (csv(*ROWS, "a\0b,odd"), {}, "line 14 .*NUL"),
    "an unknown suffix": ("t.xlsx", csv(*ROWS), {}, r"\.xlsx; .*\.csv, .*\.tsv"),
    "words with tags in columns": ("t.conll", "a X\nb Y\n", {}, r"ends in \.conll; tables end in \.arrow"),
    "no Parquet": ("t.parquet", csv(*ROWS), {}, "Parquet"),
    "no Arrow": ("t.arrow", csv(*ROWS), {}, r"t\.arrow cannot be read"),
    "a compressed file that is cut": ("t.csv.gz", zipped(csv(*ROWS))[:-9], {}, "damaged"),
    "text that calls itself compressed": ("t.csv.gz", csv(*ROWS), {}, "damaged"),
    "Latin 1, compressed": ("t.csv.gz", zipped(csv(*ROWS, "caf\xe9,odd"), "latin1"), {}, "line 14"),
    # ── rows and cells ──
    "a row that is too long": (csv(*ROWS, "one, two,odd"), {}, "line 14 has 3 cells.* 2;"),
    "a row that is too short": (csv(*ROWS, "one"), {}, "line 14 has 1 cell, .* 2"),
    "a quote that is not closed": (csv(*ROWS, '"one,odd', "two,even"), {}, "line 14 to 15: a quote"),
    "text behind a closed quote": (csv(*ROWS, '"one" two,odd'), {}, "line 14: .*double the quotes"),
    "a ragged table of tabs": ("t.tsv", "text\tlabel\na b\tb\nc d\td\nf\tg\te\n", {}, "line 4 has 3 cells"),
    "the header again": (csv(*ROWS, "text,label", *ROWS), {}, "line 14 is the header again"),
    # ── header and columns ──
    "two columns of one name": (csv(*ROWS, head="text,text"), {}, "two columns called 'text'; rename one"),
    "no header": (csv(*ROWS[1:], head=ROWS[0]), {}, r"line 1 .*'even'.*names for all 2: --data\.columns"),
    "sentences without a header": (
        "t.tsv", "the first text\tder erste Text\n" * 9, {}, r"line 1 looks like a row.*--data\.columns",
    ),
    "numbers without a header": ("0.5,1,7\n" * 9, {}, "line 1 looks like a row"),
    "names for too few columns": (csv(*ROWS), {"columns": ["text"]}, "line 1 .* the list of columns has 1"),
    "a split that is not there": (csv(*ROWS), {"split": "part"}, r"'part'; .*\.split"),
    "a group that is not there": (csv(*ROWS), {"group": "author"}, r"'author'; .*\.group"),
    # ── targets ──
    "one class": (csv(*(row.replace("even", "odd") for row in ROWS)), {}, "'odd' in all 12 rows"),
    "all different": (
        csv(*(f"{row}{i}" for i, row in enumerate(ROWS))), {"target_kind": "classes"}, "12 .*target_kind text",
    ),
    "measurements as classes": (csv(*NUMBERS), {"target_kind": "classes"}, r"--data\.target_kind numbers"),
    "a constant number": (csv(*(f"{text},7.5" for text in TEXTS)), {"target_kind": "numbers"}, r"7\.5 in all rows"),
    "a later cell of another kind": (
        csv(*(f"{i}.5,{i}" if i < 2_050 else "many,3" for i in range(2_060)), head="size,price"),
        {"columns": {"size": "number"}}, r"line 2052: size is 'many', .*10 of 2,060 rows.*--data\.skip_bad 10",
    ),
    # ── JSON Lines ──
    "a list of objects": ("t.jsonl", json.dumps(OBJECTS), {}, "line 1 holds no object"),
    "objects without fields": ("t.jsonl", "{}\n{}\n", {}, "no objects with fields"),
    "nested without end": ("t.jsonl", "[" * 100_000 + "\n", {}, "line 1 is no JSON"),
    "an array that is cut": ("t.json", '[{"text": "a"}, ', {}, r"t\.json is no JSON"),
    # ── splits ──
    "a value that is no split": (
        csv(*(f"{row},{'train' if i else 'maybe'}" for i, row in enumerate(ROWS)), head="text,label,part"),
        {"split": "part"}, "line 2: part is 'maybe'",
    ),
    "a split without test": (
        csv(*(f"{row},train" for row in ROWS), head="text,label,part"), {"split": "part"}, "no row has the part test",
    ),
    "one group": (csv(*(f"{row},me" for row in ROWS), head="text,label,who"), {"group": "who"}, "same who"),
    "no row has a group": (csv(*(f"{row}," for row in ROWS), head="text,label,who"), {"group": "who"}, "no row"),
    "a class of test alone": (csv(*ROWS), {"test": csv("a,odd", "b,none")}, r"test\.csv, line 3: .*'none', which"),
    "other columns in test": (csv(*ROWS), {"test": csv("a,odd", head="body,label")}, r"test\.csv has no column 'text'"),
}  # fmt: skip
"""What it is: the content of t.csv (or name and content), arguments, and what the error says beside the file."""

SAID = {
    "null in JSON": (
        "t.jsonl", jsonl(*OBJECTS, {"text": None, "label": "odd"}, {"label": "odd"}), {},
        "2 of 14 rows .*no text: 2, the first: .*line 13",
    ),
    "a class of one row": (csv(*ROWS, "lonely,none"), {}, r"1 of 3 classes .*\(none\)"),
    "semicolons": (csv(*(row.replace(",", ";") for row in ROWS), head="text;label"), {}, "semicolons"),
    "notes at the top": (csv(*ROWS, head="# of 2022\ntext,label"), {}, "1 lines at the top"),
    "a column of test alone": (
        csv(*ROWS), {"test": csv("a,odd,7", head="text,label,rank")}, r"test\.csv: 'rank' is in no row of training",
    ),
    "a large group": (
        csv(*(f"{text},{i % 2},{'me' if i < 9 else i}" for i, text in enumerate(TEXTS)), head="text,label,who"),
        {"group": "who", "test_fraction": 0.01}, "2 of 12 rows are test, not 1 %: by 'who' groups stay whole",
    ),
}  # fmt: skip
"""What is read, with a line that counts it."""

READ = {
    "blank lines between": csv(*ROWS[:5], "", "  ", *ROWS[5:]),
    "a cell of 200,000 characters": csv(*ROWS[:-1], "x" * 200_000 + ",odd"),
    "spaces around names and classes": csv(*(f"{row} " for row in ROWS), head=" text , label"),
    "quoted classes behind a space": csv(*ROWS[:6], *(row.replace(",", ', "') + '"' for row in ROWS[6:])),
    "quoted names behind a space": csv(*ROWS, head='text, "label"'),
    "an index as pandas writes it": csv(*(f"{i},{row}" for i, row in enumerate(ROWS)), head=",text,label"),
    "no header, with names": (csv(*ROWS[1:], head=ROWS[0]), {"columns": ["text", "label"]}),
    "a header that is also a class": csv(*ROWS, head="text,odd"),
}  # fmt: skip
"""What is read without a word about it: 12 rows of two classes."""


@pytest.fixture
def place(tmp_path):
    """Writes the table of a case into a folder of its own, and gives its path and arguments."""

    def write(case):
        case = list(case) if isinstance(case, tuple) else [case]
        name = case.pop(0) if re.fullmatch(r"t\.[\w.]+", str(case[0])) else "t.csv"
        content, given = case[0], dict(case[1]) if case[1:] and isinstance(case[1], dict) else {}
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for file, text in ((name, content), ("test.csv", given.get("test"))):
            if text is not None:
                (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
        if "test" in given:
            given["test"] = str(folder / "test.csv")
        return str(folder / name), given

    return write


def test_a_table_is_refused_in_one_line_that_says_where(place, subtests):
    for what, case in REFUSED.items():
        with subtests.test(what):
            path, arguments = place(case)
            with pytest.raises(DataError, match=case[-1]) as refused:
                table(path, arguments).splits()
            assert "\n" not in str(refused.value)
            assert re.search(r"\b(t|test)\.\w+", str(refused.value))
            assert len(str(refused.value)) < 700


def test_an_oddity_is_counted_in_one_line(place, caplog, subtests):
    for what, case in SAID.items():
        with subtests.test(what), caplog.at_level(logging.WARNING, "seqkit"):
            caplog.clear()
            path, arguments = place(case)
            assert len(table(path, arguments).splits().train) > 1
            assert [line for line in caplog.messages if re.search(case[-1], line)], caplog.messages
            assert not [line for line in caplog.messages if "\n" in line]


def test_an_ordinary_oddity_changes_nothing(place, caplog, subtests):
    for what, case in READ.items():
        with subtests.test(what), caplog.at_level(logging.WARNING, "seqkit"):
            caplog.clear()
            path, arguments = place(case)
            splits = table(path, arguments).splits()
            assert len(splits.train) + len(splits.test) == 12
            assert splits.names == ["even", "odd"]
            assert {type(label) for label in splits.train.labels} == {int}
            assert not [
                line
                for line in caplog.messages
                if not re.search("target|text: '|column 1|20 % of the rows", line)
            ]


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "t.csv")
    (tmp_path / "empty").mkdir()
    for path, fact in (
        (tmp_path / "t.csv", "FIFO"), (tmp_path / "none" / "*.csv", r"\*\.csv"), (tmp_path / "empty", "no table"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=fact):
            Table(str(path)).splits()
    with pytest.raises(DataError, match="empty list"):
        Table([]).splits()


def test_arguments_that_contradict_each_other_are_refused(subtests):
    for given, fact in (
        ({"test_fraction": 1.0}, "test_fraction is 1.0"), ({"test_fraction": math.nan}, "test_fraction is nan"),
        ({"split": "part", "test": "x.csv"}, "test and valid"), ({"skip_bad": -1}, "skip_bad is -1"),
    ):  # fmt: skip
        with subtests.test(str(given)), pytest.raises(ValueError, match=fact):
            table("t.csv", given)
