"""Tables as people have them: each is refused, or its oddity counted, with the file, the line and the flag."""

import gzip
import json
import logging
import math
import os
import re

import pytest

from seqkit.data import Table
from seqkit.errors import DataError

WORDS = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "koi", "lark")
ROWS = [f"a text about the {word},{'odd' if i % 2 else 'even'}" for i, word in enumerate(WORDS)]
TEXTS = [row.partition(",")[0] for row in ROWS]
OBJECTS = [{"text": text, "label": row.partition(",")[2]} for text, row in zip(TEXTS, ROWS)]
NUMBERS = [f"the text {word},{i * 0.5}" for i, word in enumerate(WORDS)]
COMMAS = [row.replace(",", ";").replace(".", ",") for row in NUMBERS]
BITS = [f"{text},{i % 2}" for i, text in enumerate(TEXTS)]


def csv(*rows, head="text,label", end="\n"):
    return end.join([head, *rows]) + end


def jsonl(*records):
    return "".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)


def zipped(text, codec="utf-8"):
    return gzip.compress(text.encode(codec))


def is_(kind, **given):
    return {"target_kind": kind, **given}


BROKEN = f"byte 0x{{}} at offset {len(csv(*ROWS)) + len('caf')}, line 14"
REFUSED = {
    # ── the file ──
    "it is not there": (None, {}, "not exist"),
    "it is empty": ("", {}, "0 bytes"),
    "blank lines alone": ("\n\n  \n", {}, "blank"),
    "a header alone": (csv(), {}, r"header \(text, label\)"),
    "Latin 1": (csv(*ROWS, "caf\xe9,odd").encode("latin1"), {}, BROKEN.format("e9")),
    "UTF-16": (csv(*ROWS).encode("utf-16"), {}, "offset 0, line 1; .*utf-16"),
    "cut inside a letter": (csv(*ROWS).encode() + "caf\xe9".encode()[:-1], {}, BROKEN.format("c3")),
    "NUL bytes": (csv(*ROWS, "a\0b,odd"), {}, "line 14 .*NUL"),
    "an unknown suffix": ("t.xyz", csv(*ROWS), {}, r"\.xyz; .*\.csv, \.tsv"),
    "a known format": ("t.xlsx", csv(*ROWS), {}, r"pandas\.read_excel"),
    "no Parquet": ("t.parquet", csv(*ROWS), {}, "Parquet"),
    "no Arrow": ("t.arrow", csv(*ROWS), {}, "Arrow"),
    "a compressed file that is cut": ("t.csv.gz", zipped(csv(*ROWS))[:-9], {}, "damaged"),
    "text that calls itself compressed": ("t.csv.gz", csv(*ROWS), {}, "damaged"),
    "Latin 1, compressed": ("t.csv.gz", zipped(csv(*ROWS, "caf\xe9,odd"), "latin1"), {}, "line 14"),
    # ── rows and cells ──
    "more broken rows than allowed": (csv(*ROWS, "one", "two"), {"skip_bad": 1}, "line 14 .*2 rows"),
    "more unusable rows than allowed": (
        csv(*NUMBERS, "the text,high", "the text,low"), is_("numbers", skip_bad=1), "line 14: .*2 of 14 .*skip_bad 2",
    ),
    "a row that is too long": (csv(*ROWS, "one, two,odd"), {}, "line 14 has 3 cells.* 2;"),
    "a row that is too short": (csv(*ROWS, "one"), {}, "line 14 has 1 cell, .* 2"),
    "a quote that is not closed": (csv(*ROWS, '"one,odd', "two,even"), {}, "line 14 to 15: a quote"),
    "text behind a closed quote": (csv(*ROWS, '"one" two,odd'), {}, "line 14: .*double the quotes"),
    "a ragged table of tabs": ("t.tsv", "text\tlabel\na\tb\nc\td\te\n", {}, "line 3 has 3 cells"),
    "two columns of one name": (csv(*ROWS, head="text,text"), {}, r"two .*'text'; .*--data\.columns"),
    "as many commas as semicolons": (csv(*ROWS, head="a,b;c"), {}, "1 commas and 1 semicolons; .*separator ','"),
    "a separator of two characters": (csv(*ROWS), {"separator": "::"}, "separator is '::'"),
    "the wrong separator": (csv(*ROWS), {"separator": ";"}, r"--data\.target"),
    "no header": (csv(*ROWS[1:], head=ROWS[0]), {}, r"line 1 .*'even' .*--data\.columns"),
    # ── columns ──
    "an input that is not there": (csv(*ROWS), {"input": "txt"}, r"'txt'; did you mean text\? .*\.input"),
    "a target that is not there": (csv(*ROWS), {"target": "lable"}, r"'lable'; did you mean label\? .*\.target"),
    "a split that is not there": (csv(*ROWS), {"split": "part"}, r"'part'; .*\.split"),
    "a group that is not there": (csv(*ROWS), {"group": "author"}, r"'author'; .*\.group"),
    "input and target the same": (csv(*ROWS), {"input": "text", "target": "text"}, "'text' is both"),
    "two inputs that fit": (
        csv(*(f"{text},{row}" for text, row in zip(TEXTS, ROWS)), head="title,lead,tone"), {"target": "tone"},
        r"'title', 'lead' .*--data\.input",
    ),
    "two targets that fit": (
        csv(*(f"{row},{'ab'[i % 2]}" for i, row in enumerate(ROWS)), head="text,tone,place"), {"input": "text"},
        r"'tone', 'place' .*--data\.target$",
    ),
    "one column": (csv(*WORDS, head="text"), {}, "columns text, and none"),
    "all inputs empty": (csv(*(f",{'ab'[i % 2]}" for i in range(9))), {"input": "text"}, "none of the 9 rows"),
    # ── targets ──
    "one class": (csv(*(row.replace("even", "odd") for row in ROWS)), {}, "'odd' in all 12 rows"),
    "all different": (csv(*(f"{row}{i}" for i, row in enumerate(ROWS))), {"target": "label"}, "12 .*target_kind text"),
    "measurements as classes": (csv(*NUMBERS), is_("classes"), r"--data\.target_kind numbers"),
    "a word among numbers": (csv(*NUMBERS, "the text,high"), {}, "line 14: label is 'high', .*most"),
    "a word among numbers, told": (csv(*NUMBERS, "the text,high"), is_("numbers"), "line 14: label is 'high', not"),
    "a number that float32 does not hold": (csv(*NUMBERS, "the text,-1e39"), {}, r"line 14: .*'-1e39', beyond 1e\+18"),
    "decimal commas": (csv(*COMMAS, head="text;label"), {}, r"line 2: .*'0,0', .*--data\.decimal , .*_kind classes"),
    "decimal commas with a thousand": (
        csv(*(f"the text {word};1.{i:03},5" for i, word in enumerate(WORDS)), head="text;label"), {},
        r"line 2: label is '1\.000,5', .*--data\.decimal ,",
    ),
    "decimal commas of what is said to be numbers": (
        csv(*(f"the text {word};{i},5" for i, word in enumerate(WORDS)), head="text;label"), is_("numbers"),
        r"line 2: label is '0,5', not .*--data\.decimal ,",
    ),
    "decimal points where commas are said": (csv(*NUMBERS), {"decimal": ","}, r"line 2: .*'0\.0', .*data\.decimal \."),
    "a decimal point among commas": (
        csv(*COMMAS, "the text;7.5", head="text;label"), is_("numbers", decimal=","), r"line 14: label is '7\.5', not",
    ),
    "infinity": (csv(*NUMBERS, "the text,inf"), {}, "line 14: label is 'inf'"),
    "a constant number": (csv(*(f"{text},7.5" for text in TEXTS)), is_("numbers"), r"7\.5 in all rows"),
    "several targets of words": (
        csv(*(f"{row},x{i % 2}" for i, row in enumerate(ROWS)), head="text,a,b"), {"target": ["a", "b"]},
        r"\(a, b\) are for numbers",
    ),
    "one row": (csv(ROWS[0]), is_("text"), r"1 usable row; .*--data\.test"),
    "a number where a text is due": ("t.jsonl", jsonl(*OBJECTS, {"text": 7, "label": "odd"}), {}, "line 13: text is 7"),
    "a class in training that is a list": (
        "t.jsonl", jsonl(*OBJECTS, {"text": "a", "label": ["odd"]}), is_("classes"), r"line 13: label is \['odd'\]",
    ),
    "numbers and texts in one column": (
        "t.jsonl", jsonl(*OBJECTS, {"text": "a", "label": 1}), {}, "line 13: label is 1, and from line 1 .*texts",
    ),
    "true and 1 in one column": (
        "t.jsonl",
        jsonl(*({"text": text, "label": i % 2 == 0} for i, text in enumerate(TEXTS)), {"text": "a", "label": 1}),
        is_("classes"), "line 13: label is 1, and from line 1 .*true",
    ),
    "a class that is a number in two spellings": (
        csv(*BITS, "the text,1.0", "a text,1.0"), {}, r"line 14: .*'1\.0', and in line 3 .*'1', .* \(2 of 14 rows",
    ),
    "versions that are one number": (
        csv(*(f"{text},{('1.0', '2.1')[i % 2]}" for i, text in enumerate(TEXTS)), "the text,1.00"), is_("classes"),
        r"line 14: label is '1\.00', and in line 2 .*'1\.0', .*v1\.00",
    ),
    "a zero before a class": (csv(*BITS, "the text,01"), is_("classes"), "'01', and in line 3"),
    "an integer and a float in JSON": (
        "t.jsonl", jsonl(*(o | {"label": i % 2} for i, o in enumerate(OBJECTS)), {"text": "the text", "label": 1.0}),
        is_("classes"), r"line 13: label is 1\.0, and in line 2 .*'1'",
    ),
    # ── JSON Lines ──
    "a broken line": ("t.jsonl", jsonl(*OBJECTS, '{"text": "a", '), {}, "line 13 is no JSON"),
    "a list of objects": ("t.jsonl", json.dumps(OBJECTS), {}, "line 1 holds no object"),
    "objects without fields": ("t.jsonl", "{}\n{}\n", {}, "no objects with fields"),
    "a key twice": ("t.jsonl", jsonl(*OBJECTS, '{"text": "a", "text": "b", "label": "odd"}'), {}, "line 13"),
    "half a letter": ("t.jsonl", jsonl(*OBJECTS, '{"text": "\\ud800", "label": "odd"}'), {}, "line 13"),
    "nested without end": ("t.jsonl", "[" * 100_000 + "\n", {}, "line 1 is no JSON"),
    # ── tags ──
    "a tag too few": ("t.jsonl", jsonl({"words": ["a", "b"], "tags": ["X"]}), is_("tags"), "line 1: .* 2 .* 1"),
    "a tag that is a list": ("t.jsonl", jsonl({"words": ["a"], "tags": [["X"]]}), is_("tags"), "line 1: tags .*no tag"),
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
    "a class of test alone": (
        csv(*ROWS), {"test": csv("a,odd", "b,none", "c,none")}, r"test\.csv, line 3: .*'none' \(2 rows\)",
    ),
    "a class of test in another Unicode form": (
        csv(*(row.replace("odd", "caf\xe9") for row in ROWS)), {"test": csv("a,cafe\u0301")},
        r"it has 'caf\\xe9', and this is 'cafe\\u0301'",
    ),
    "a number of test in another spelling": (
        csv(*BITS), {"test": csv("a,1.0")}, r"'1\.0' \(1 rows\), .*it has '1', and this is '1\.0'",
    ),
    "other columns in test": (csv(*ROWS), {"test": csv("a,odd", head="body,label")}, r"test\.csv has no column 'text'"),
}  # fmt: skip
"""What it is: the content of t.csv (or name and content), arguments, and what the error says beside the file."""

SAID = {
    "no label": (csv(*ROWS, "unlabelled,", "another, "), {}, "2 of 14 rows .*no label: 2, the first in line 14"),
    "no input": (csv(*ROWS, ",odd"), {}, "1 of 13 rows .*no text: 1, the first in line 14"),
    "null in JSON": (
        "t.jsonl", jsonl(*OBJECTS, {"text": None, "label": "odd"}, {"label": "odd"}), {},
        "2 of 14 rows .*no text: 2, the first in line 13",
    ),
    "NaN among numbers": (csv(*NUMBERS, "the text,nan", "the text,N/A"), {}, "2 of 14 .*no label: 2, .*line 14"),
    "equal inputs, other targets": (
        csv(*ROWS, ROWS[0].replace("even", "odd")), {}, "1 rows .* another row.*first: .*t.csv, line",
    ),
    "test rows that are in training": (
        csv(*ROWS), {"test": csv(ROWS[3], "new,odd")}, r"1 of 2 test inputs .*first: .*test\.csv, line 2",
    ),
    "a class of one row": (csv(*ROWS, "lonely,none"), {}, r"1 of 3 classes .*\(none\)"),
    "classes by case": (csv(*ROWS, "x,Odd", "y,Odd"), {}, r"'Odd' \(2\) and 'odd' \(6\)"),
    "tags by case": (
        "t.jsonl",
        jsonl(*({"words": ["a", "b", word], "tags": ["X", "y", "xY"[i % 2]]} for i, word in enumerate(WORDS))),
        is_("tags"), r"'X' \(12\) and 'x' \(6\); 'Y' \(6\) and 'y' \(12\)",
    ),
    "semicolons": (csv(*(row.replace(",", ";") for row in ROWS), head="text;label"), {}, "semicolons"),
    "tabs in a .csv": (csv(*(row.replace(",", "\t") for row in ROWS), head="text\tlabel"), {}, "tabs"),
    "NaN among classes": (
        csv(*ROWS, "first,NaN", "second,nan", "third,N/A", "fourth,null"), {}, "4 of 16 .*no label: 4, .*line 14",
    ),
    "NaN among zeros and ones": (csv(*BITS, "last,nan"), {}, r"'label' \(classes\)"),
    "a class that may mean none": (csv(*ROWS, "x,NA", "y,NA"), {}, "NA counts as a class"),
    "columns that are not used": (
        csv(*(f"{i},{row},red,{i}" for i, row in enumerate(ROWS)), head="id,text,label,colour,price"),
        {"target": "label"}, "'id', 'colour', 'price' are not used",
    ),
    "an input of training with another target in a file of its own": (
        csv(*ROWS), {"test": csv("new,odd", ROWS[3].replace("odd", "even"))},
        r"1 rows of the test split .*first: .*test\.csv, line 3",
    ),
    "a broken row, allowed": (csv(*ROWS, "one, two,odd"), {"skip_bad": 1}, "1 of 13 rows .*line 14 has 3"),
    "a broken object, allowed": ("t.jsonl", jsonl(*OBJECTS, '{"text": '), {"skip_bad": 2}, "1 of 13 rows .*line 13"),
    "a word among numbers, allowed": (
        csv(*NUMBERS, "the text,high"), is_("numbers", skip_bad=1), "1 of 13 rows .*'high'",
    ),
    "zeros and ones": (csv(*BITS), {}, r"'label' \(classes\); .*--data\.target_kind"),
}  # fmt: skip
"""What is read, with a line that counts it."""

READ = {
    "a byte-order mark": b"\xef\xbb\xbf" + csv(*ROWS).encode(),
    "CR LF": csv(*ROWS, end="\r\n"),
    "quoted line breaks and commas": csv(*ROWS[:-1], '"a, ""text""\nof two lines",odd'),
    "blank lines between": csv(*ROWS[:5], "", "  ", *ROWS[5:]),
    "a cell of 200,000 characters": csv(*ROWS[:-1], "x" * 200_000 + ",odd"),
    "spaces around names and classes": csv(*(f"{row} " for row in ROWS), head=" text , label"),
    "quoted classes behind a space": csv(*ROWS[:6], *(row.replace(",", ', "') + '"' for row in ROWS[6:])),
    "quoted names behind a space": csv(*ROWS, head='text, "label"'),
    "compressed CSV": ("t.csv.gz", zipped(csv(*ROWS))),
    "compressed JSON Lines": ("t.jsonl.gz", zipped(jsonl(*OBJECTS))),
    "a compressed table of tabs": ("t.tsv.gz", zipped(csv(*ROWS).replace(",", "\t"))),
    "single quotes in a table of tabs": ("t.tsv", csv(*('"' + row for row in ROWS)).replace(",", "\t")),
    "an index as pandas writes it": csv(*(f"{i},{row}" for i, row in enumerate(ROWS)), head=",text,label"),
    "no header, with names": (csv(*ROWS[1:], head=ROWS[0]), {"columns": ["text", "label"]}),
    "JSON Lines with U+2028": (
        "t.jsonl", "".join(json.dumps(o | {"text": o["text"] + "\u2028"}, ensure_ascii=False) + "\n" for o in OBJECTS),
    ),
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
                Table(path, **arguments).splits()
            assert "\n" not in str(refused.value)
            assert re.search(r"\b(t|test)\.\w+|--data\.separator is", str(refused.value))
            assert len(str(refused.value)) < 700


def test_an_oddity_is_counted_in_one_line(place, caplog, subtests):
    for what, case in SAID.items():
        with subtests.test(what), caplog.at_level(logging.WARNING, "seqkit"):
            caplog.clear()
            path, arguments = place(case)
            assert len(Table(path, **arguments).splits().train) > 1
            assert [line for line in caplog.messages if re.search(case[-1], line)], caplog.messages
            assert not [line for line in caplog.messages if "\n" in line]


def test_an_ordinary_oddity_changes_nothing(place, caplog, subtests):
    for what, case in READ.items():
        with subtests.test(what), caplog.at_level(logging.WARNING, "seqkit"):
            caplog.clear()
            path, arguments = place(case)
            splits = Table(path, **arguments).splits()
            assert len(splits.train) + len(splits.test) == 12
            assert splits.names == ["even", "odd"]
            assert {type(label) for label in splits.train.labels} == {int}
            assert not [line for line in caplog.messages if not re.search("column 'text'|20 % of the rows", line)]


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


def test_shards_of_other_columns_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text(csv(*ROWS))
    (tmp_path / "b.csv").write_text(csv(*ROWS, head="text,tone"))
    with pytest.raises(DataError, match=r"b\.csv .*text, tone"):
        Table(str(tmp_path / "*.csv")).splits()
    (tmp_path / "c.jsonl").write_text(jsonl(*OBJECTS))
    with pytest.raises(DataError, match=r"\.csv, \.jsonl"):
        Table(str(tmp_path)).splits()


def test_arguments_that_contradict_each_other_are_refused(subtests):
    for given, fact in (
        ({"test_fraction": 1.0}, "test_fraction is 1.0"), ({"test_fraction": math.nan}, "test_fraction is nan"),
        ({"split": "part", "test": "x.csv"}, "test and valid"), ({"target": ["a", "a"]}, "different"),
        ({"target": []}, "one column"), ({"separator": ""}, "separator"), ({"decimal": ";"}, "decimal is ';'"),
        ({"skip_bad": -1}, "skip_bad is -1"),
    ):  # fmt: skip
        with subtests.test(str(given)), pytest.raises(ValueError, match=fact):
            Table("t.csv", **given)
