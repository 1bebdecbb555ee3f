"""Tables as people have them: each is refused, or its oddity counted, in one line that names file, line and flag."""

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
HEAD = "text,label"


def csv(*rows, head=HEAD, end="\n"):
    return end.join([head, *rows]) + end


def jsonl(*records):
    return "".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)


OBJECTS = [{"text": row.split(",")[0], "label": row.split(",")[1]} for row in ROWS]
NUMBERS = [f"the text {word},{i * 0.5}" for i, word in enumerate(WORDS)]
BITS = [f"{row.split(',')[0]},{i % 2}" for i, row in enumerate(ROWS)]

WRONG = f"at offset {len(csv(*ROWS)) + len('caf')}, line 14"
REFUSED = {
    # ── the file ──
    "it is not there": (None, {}, r"t\.csv does not exist"),
    "it is empty": ("", {}, r"t\.csv is empty \(0 bytes\)"),
    "blank lines alone": ("\n\n  \n", {}, r"t\.csv holds only blank lines"),
    "a header alone": (csv(), {}, r"t\.csv has a header \(text, label\) and no rows"),
    "Latin 1": (csv(*ROWS, "caf\xe9,odd").encode("latin1"), {}, rf"t\.csv is not UTF-8: byte 0xe9 {WRONG}; "),
    "UTF-16": (
        csv(*ROWS).encode("utf-16"),
        {},
        r"t\.csv is not UTF-8: byte 0xff at offset 0, line 1; it looks like UTF-16; .*iconv -f utf-16",
    ),
    "cut inside a letter": (csv(*ROWS).encode() + "caf\xe9".encode()[:-1], {}, f"not UTF-8: byte 0xc3 {WRONG}"),
    "NUL bytes": (csv(*ROWS, "a\0b,odd"), {}, r"t\.csv, line 14 holds NUL bytes"),
    "an unknown suffix": ("t.xlsx", csv(*ROWS), {}, r"t\.xlsx ends in \.xlsx; tables end in \.csv, \.tsv"),
    "no Parquet": ("t.parquet", csv(*ROWS), {}, r"t\.parquet cannot be read as Parquet"),
    "no Arrow": ("t.arrow", csv(*ROWS), {}, r"t\.arrow cannot be read as Arrow"),
    # ── rows and cells of CSV ──
    "a compressed file that is cut": (
        "t.csv.gz",
        gzip.compress(csv(*ROWS).encode())[:-9],
        {},
        r"t\.csv\.gz is damaged",
    ),
    "text that calls itself compressed": ("t.csv.gz", csv(*ROWS), {}, r"t\.csv\.gz is damaged"),
    "Latin 1, compressed": (
        "t.csv.gz",
        gzip.compress(csv(*ROWS, "caf\xe9,odd").encode("latin1")),
        {},
        r"t\.csv\.gz is not UTF-8: .* line 14",
    ),
    "more broken rows than allowed": (csv(*ROWS, "one", "two"), {"skip_bad": 1}, r"line 14 .*2 rows"),
    "more unusable rows than allowed": (
        csv(*NUMBERS, "the text,high", "the text,low"),
        {"target_kind": "numbers", "skip_bad": 1},
        r"line 14: .*2 of 14 rows .*--data\.skip_bad 2",
    ),
    "a row that is too long": (
        csv(*ROWS, "one, two,odd"),
        {},
        r"t\.csv, line 14 has 3 cells, and the header has 2; .*separator",
    ),
    "a row that is too short": (csv(*ROWS, "one"), {}, r"t\.csv, line 14 has 1 cell, and the header has 2"),
    "a quote that is not closed": (
        csv(*ROWS, '"one,odd', "two,even"),
        {},
        r"line 14 to 15: a quote that opens there is not",
    ),
    "text behind a closed quote": (
        csv(*ROWS, '"one" two,odd'),
        {},
        r"t\.csv, line 14: .*double the quotes inside a cell",
    ),
    "a ragged table of tabs": ("t.tsv", "text\tlabel\na\tb\nc\td\te\n", {}, r"t\.tsv, line 3 has 3 cells"),
    "two columns of one name": (
        csv(*ROWS, head="text,text"),
        {},
        r"two columns called 'text'; .*--data\.columns",
    ),
    "as many commas as semicolons": (
        csv(*ROWS, head="a,b;c"),
        {},
        r"line 1 has 1 commas and 1 semicolons; .*--data\.separator ','",
    ),
    "a separator of two characters": (
        csv(*ROWS),
        {"separator": "::"},
        r"--data\.separator is '::'; give one character",
    ),
    "the wrong separator": (
        csv(*ROWS),
        {"separator": ";"},
        r"none is left for the target; name one with --data\.target",
    ),
    "no header": (
        csv(*ROWS[1:], head=ROWS[0]),
        {},
        r"line 1 looks like a row, not like a header: 'even' .*--data\.columns",
    ),
    # ── columns ──
    "an input that is not there": (
        csv(*ROWS),
        {"input": "txt"},
        r"t\.csv has no column 'txt'; did you mean text\? \(--data\.input\)",
    ),
    "a target that is not there": (
        csv(*ROWS),
        {"target": "lable"},
        r"no column 'lable'; did you mean label\? \(--data\.target\)",
    ),
    "a split that is not there": (csv(*ROWS), {"split": "part"}, r"no column 'part'; .*\(--data\.split\)"),
    "a group that is not there": (csv(*ROWS), {"group": "author"}, r"no column 'author'; .*\(--data\.group\)"),
    "input and target the same": (
        csv(*ROWS),
        {"input": "text", "target": "text"},
        r"'text' is both input and target; .*--data\.target",
    ),
    "two inputs that fit": (
        csv(*(f"{row.split(',')[0]},{row}" for row in ROWS), head="title,lead,tone"),
        {"target": "tone"},
        r"the columns 'title', 'lead' fit equally as input; name one with --data\.input",
    ),
    "two targets that fit": (
        csv(*(f"{row},{'ab'[i % 2]}" for i, row in enumerate(ROWS)), head="text,tone,place"),
        {"input": "text"},
        r"the columns 'tone', 'place' fit equally as target; name one with --data\.target$",
    ),
    "one column": (csv(*WORDS, head="text"), {}, r"has the columns text, and none is left for the target"),
    "all inputs empty": (
        csv(*(f",{'ab'[i % 2]}" for i in range(9))),
        {"input": "text"},
        r"none of the 9 rows has both input and",
    ),
    # ── targets ──
    "one class": (
        csv(*(row.replace("even", "odd") for row in ROWS)),
        {},
        r"label is 'odd' in all 12 rows, .*--data\.target",
    ),
    "all different": (
        csv(*(f"{row}{i}" for i, row in enumerate(ROWS))),
        {"target": "label"},
        r"label has 12 different values in 12 rows.*--data\.target_kind text",
    ),
    "measurements as classes": (csv(*NUMBERS), {"target_kind": "classes"}, r"did you mean --data\.target_kind numbers"),
    "a word among numbers": (
        csv(*NUMBERS, "the text,high"),
        {},
        r"t\.csv, line 14: label is 'high', and most of its cells are numbers; .*--data\.target_kind",
    ),
    "a word among numbers, told": (
        csv(*NUMBERS, "the text,high"),
        {"target_kind": "numbers"},
        r"line 14: label is 'high', not a finite number; ",
    ),
    "a number that float32 does not hold": (
        csv(*NUMBERS, "the text,-1e39"),
        {},
        r"t\.csv, line 14: label is '-1e39', beyond 1e\+18, where float32 has no squares; .*--data\.target",
    ),
    "decimal commas": (
        csv(*(row.replace(",", ";").replace(".", ",") for row in NUMBERS), head="text;label"),
        {},
        r"t\.csv, line 2: label is '0,0', a number with a decimal comma; give --data\.decimal , .*_kind classes",
    ),
    "decimal commas with a thousand": (
        csv(*(f"the text {word};1.{i:03},5" for i, word in enumerate(WORDS)), head="text;label"),
        {},
        r"t\.csv, line 2: label is '1\.000,5', a number with a decimal comma; give --data\.decimal ,",
    ),
    "decimal commas of what is said to be numbers": (
        csv(*(f"the text {word};{i},5" for i, word in enumerate(WORDS)), head="text;label"),
        {"target_kind": "numbers"},
        r"t\.csv, line 2: label is '0,5', not a finite number; give --data\.decimal , for decimal commas, correct it",
    ),
    "decimal points where commas are said": (
        csv(*NUMBERS),
        {"decimal": ","},
        r"t\.csv, line 2: label is '0\.0', a number with a decimal point; give --data\.decimal \. if all",
    ),
    "a decimal point among commas": (
        csv(*(row.replace(",", ";").replace(".", ",") for row in NUMBERS), "the text;7.5", head="text;label"),
        {"decimal": ",", "target_kind": "numbers"},
        r"t\.csv, line 14: label is '7\.5', not a finite number",
    ),
    "infinity": (
        csv(*NUMBERS, "the text,inf"),
        {},
        r"t\.csv, line 14: label is 'inf', not a finite number; .*--data\.target",
    ),
    "a constant number": (
        csv(*(f"{row.split(',')[0]},7.5" for row in ROWS)),
        {"target_kind": "numbers"},
        r"label is 7\.5 in all rows of the training split; .*--data\.target",
    ),
    "several targets of words": (
        csv(*(f"{row},x{i % 2}" for i, row in enumerate(ROWS)), head="text,a,b"),
        {"target": ["a", "b"]},
        r"several targets \(a, b\) are for numbers, .*--data\.target",
    ),
    "one row": (csv(ROWS[0]), {"target_kind": "text"}, r"holds 1 usable row; .*--data\.test FILE"),
    "a number where a text is due": (
        "t.jsonl",
        jsonl(*OBJECTS, {"text": 7, "label": "odd"}),
        {},
        r"t\.jsonl, line 13: text is 7, which is no text",
    ),
    "a class in training that is a list": (
        "t.jsonl",
        jsonl(*OBJECTS, {"text": "a", "label": ["odd"]}),
        {"target_kind": "classes"},
        r"line 13: label is \['odd'\], which is no class; .*tags",
    ),
    "numbers and texts in one column": (
        "t.jsonl",
        jsonl(*OBJECTS, {"text": "a", "label": 1}),
        {},
        r"line 13: label is 1, and from line 1 on it held texts; .*--data\.target",
    ),
    "true and 1 in one column": (
        "t.jsonl",
        jsonl(*({"text": o["text"], "label": i % 2 == 0} for i, o in enumerate(OBJECTS)), {"text": "a", "label": 1}),
        {"target_kind": "classes"},
        r"line 13: label is 1, and from line 1 on it held true and false",
    ),
    "a class that is a number in two spellings": (
        csv(*BITS, "the text,1.0", "a text,1.0"),
        {},
        r"line 14: label is '1\.0', and in line 3 it is '1', the same number; .* \(2 of 14 rows",
    ),
    "versions that are one number": (
        csv(*(f"{row.split(',')[0]},{('1.0', '2.1')[i % 2]}" for i, row in enumerate(ROWS)), "the text,1.00"),
        {"target_kind": "classes"},
        r"line 14: label is '1\.00', and in line 2 it is '1\.0', .*v1\.00",
    ),
    "a zero before a class": (csv(*BITS, "the text,01"), {"target_kind": "classes"}, r"label is '01', and in line 3"),
    "an integer and a float in JSON": (
        "t.jsonl",
        jsonl(*(o | {"label": i % 2} for i, o in enumerate(OBJECTS)), {"text": "the text", "label": 1.0}),
        {"target_kind": "classes"},
        r"line 13: label is 1\.0, and in line 2 it is '1', the same number",
    ),
    # ── JSON Lines ──
    "a broken line": ("t.jsonl", jsonl(*OBJECTS, '{"text": "a", '), {}, r"t\.jsonl, line 13 is no JSON \("),
    "a list of objects": ("t.jsonl", json.dumps(OBJECTS), {}, r"t\.jsonl, line 1 holds no object"),
    "objects without fields": ("t.jsonl", "{}\n{}\n", {}, r"t\.jsonl holds no objects with fields"),
    "a key twice": (
        "t.jsonl",
        jsonl(*OBJECTS, '{"text": "a", "text": "b", "label": "odd"}'),
        {},
        r"t\.jsonl, line 13 is no JSON",
    ),
    "half a letter": (
        "t.jsonl",
        jsonl(*OBJECTS, '{"text": "\\ud800", "label": "odd"}'),
        {},
        r"t\.jsonl, line 13 (is no JSON|has half a surrogate)",
    ),
    "nested without end": ("t.jsonl", "[" * 100_000 + "\n", {}, r"t\.jsonl, line 1 is no JSON"),
    # ── tags ──
    "a tag too few": (
        "t.jsonl",
        jsonl({"words": ["a", "b"], "tags": ["X"]}),
        {"target_kind": "tags"},
        r"line 1: words has 2 words and tags 1; ",
    ),
    "a word without a tag": (
        "t.conll",
        "a X\nb\n",
        {"target_kind": "tags"},
        r"t\.conll, line 2 holds 'b'; give a word and its tag",
    ),
    "a tag that is a list": (
        "t.jsonl",
        jsonl({"words": ["a"], "tags": [["X"]]}),
        {"target_kind": "tags"},
        r"line 1: tags is .* is no tag",
    ),
    # ── splits ──
    "a value that is no split": (
        csv(*(f"{row},{'train' if i else 'maybe'}" for i, row in enumerate(ROWS)), head="text,label,part"),
        {"split": "part"},
        r"line 2: part is 'maybe'; write train, test or valid, .*--data\.split",
    ),
    "a split without test": (
        csv(*(f"{row},train" for row in ROWS), head="text,label,part"),
        {"split": "part"},
        r"no row has the part test; .*--data\.split",
    ),
    "one group": (
        csv(*(f"{row},me" for row in ROWS), head="text,label,who"),
        {"group": "who"},
        r"all rows have the same who; .*--data\.group",
    ),
    "no row has a group": (
        csv(*(f"{row}," for row in ROWS), head="text,label,who"),
        {"group": "who"},
        r"no row has a who; .*--data\.group",
    ),
    "a class of test alone": (
        csv(*ROWS),
        {"test": csv("a,odd", "b,none", "c,none")},
        r"test\.csv, line 3: the test split has the class 'none' \(2 rows\), which training lacks",
    ),
    "a class of test in another Unicode form": (
        csv(*(row.replace("odd", "caf\xe9") for row in ROWS)),
        {"test": csv("a,cafe\u0301")},
        r"which training lacks \(it has 'caf\\xe9', and this is 'cafe\\u0301'\); add",
    ),
    "a number of test in another spelling": (
        csv(*BITS),
        {"test": csv("a,1.0")},
        r"'1\.0' \(1 rows\), which training lacks \(it has '1', and this is '1\.0'\); add",
    ),
    "other columns in test": (
        csv(*ROWS),
        {"test": csv("a,odd", head="body,label")},
        r"test\.csv has no column 'text'; .*--data\.input",
    ),
}
"""What it is: the content of t.csv (or name and content), arguments, and the one line."""

SAID = {
    "no label": (
        csv(*ROWS, "unlabelled,", "another, "),
        {},
        r"2 of 14 rows are left out \(no label: 2, the first in line 14\)",
    ),
    "no input": (csv(*ROWS, ",odd"), {}, r"1 of 13 rows are left out \(no text: 1, the first in line 14\)"),
    "null in JSON": (
        "t.jsonl",
        jsonl(*OBJECTS, {"text": None, "label": "odd"}, {"label": "odd"}),
        {},
        r"2 of 14 rows are left out \(no text: 2, the first in line 13\)",
    ),
    "NaN among numbers": (
        csv(*NUMBERS, "the text,nan", "the text,N/A"),
        {},
        r"2 of 14 rows are left out \(no label: 2, the first in line 14\)",
    ),
    "equal inputs, other targets": (
        csv(*ROWS, ROWS[0].replace("even", "odd")),
        {},
        r"t\.csv: 1 rows of the \w+ split have the input of another row.* \(first: .*t\.csv, line",
    ),
    "test rows that are in training": (
        csv(*ROWS),
        {"test": csv(ROWS[3], "new,odd")},
        r"1 of 2 test inputs are in training, too \(first: .*test\.csv, line 2\), .*; take them out of one of them$",
    ),
    "a class of one row": (
        csv(*ROWS, "lonely,none"),
        {},
        r"1 of 3 classes of label have one row alone, which stays in training \(none\)",
    ),
    "classes by case": (
        csv(*ROWS, "x,Odd", "y,Odd"),
        {},
        r"classes look alike: 'Odd' \(2\) and 'odd' \(6\); they count",
    ),
    "tags by case": (
        "t.jsonl",
        jsonl(*({"words": ["a", "b", word], "tags": ["X", "y", "xY"[i % 2]]} for i, word in enumerate(WORDS))),
        {"target_kind": "tags"},
        r"classes look alike: 'X' \(12\) and 'x' \(6\); 'Y' \(6\) and 'y' \(12\); they count",
    ),
    "semicolons": (
        csv(*(row.replace(",", ";") for row in ROWS), head="text;label"),
        {},
        r"columns are separated by semicolons",
    ),
    "tabs in a .csv": (
        csv(*(row.replace(",", "\t") for row in ROWS), head="text\tlabel"),
        {},
        r"columns are separated by tabs",
    ),
    "NaN among classes": (
        csv(*ROWS, "first,NaN", "second,nan", "third,N/A", "fourth,null"),
        {},
        r"4 of 16 rows are left out \(no label: 4, the first in line 14\)",
    ),
    "NaN among zeros and ones": (
        csv(*BITS, "last,nan"),
        {},
        r"the target 'label' \(classes\)",
    ),
    "a class that may mean none": (csv(*ROWS, "x,NA", "y,NA"), {}, r"NA counts as a class of label"),
    "columns that are not used": (
        csv(*(f"{i},{row},red,{i}" for i, row in enumerate(ROWS)), head="id,text,label,colour,price"),
        {"target": "label"},
        r"t\.csv: the columns 'id', 'colour', 'price' are not used",
    ),
    "an input of training with another target in a file of its own": (
        csv(*ROWS),
        {"test": csv("new,odd", ROWS[3].replace("odd", "even"))},
        r"test\.csv: 1 rows of the test split have the input of another row.* \(first: .*test\.csv, line 3\)",
    ),
    "a broken row, allowed": (
        csv(*ROWS, "one, two,odd"),
        {"skip_bad": 1},
        r"1 of 13 rows are left out .*line 14 has 3",
    ),
    "a broken object, allowed": (
        "t.jsonl",
        jsonl(*OBJECTS, '{"text": '),
        {"skip_bad": 2},
        r"1 of 13 rows are left out .*line 13 is no JSON",
    ),
    "a word among numbers, allowed": (
        csv(*NUMBERS, "the text,high"),
        {"target_kind": "numbers", "skip_bad": 1},
        r"1 of 13 rows are left out .*label is 'high'",
    ),
    "zeros and ones": (
        csv(*BITS),
        {},
        r"the target 'label' \(classes\); .*--data\.target_kind",
    ),
}
"""What is read, with a line that counts it."""

READ = {
    "a byte-order mark": (b"\xef\xbb\xbf" + csv(*ROWS).encode(), {}),
    "CR LF": (csv(*ROWS, end="\r\n"), {}),
    "quoted line breaks and commas": (csv(*ROWS[:-1], '"a, ""text""\nof two lines",odd'), {}),
    "blank lines between": (csv(*ROWS[:5], "", "  ", *ROWS[5:]), {}),
    "a cell of 200,000 characters": (csv(*ROWS[:-1], "x" * 200_000 + ",odd"), {}),
    "spaces around names and classes": (csv(*(f"{row} " for row in ROWS), head=" text , label"), {}),
    "quoted classes behind a space": (csv(*ROWS[:6], *(row.replace(",", ', "') + '"' for row in ROWS[6:])), {}),
    "quoted names behind a space": (csv(*ROWS, head='text, "label"'), {}),
    "compressed CSV": ("t.csv.gz", gzip.compress(csv(*ROWS).encode()), {}),
    "compressed JSON Lines": ("t.jsonl.gz", gzip.compress(jsonl(*OBJECTS).encode()), {}),
    "a compressed table of tabs": (
        "t.tsv.gz",
        gzip.compress(csv(*ROWS).replace(",", "\t").encode()),
        {},
    ),
    "single quotes in a table of tabs": (
        "t.tsv",
        csv(*('"' + row.replace(",", "\t") for row in ROWS), head="text\tlabel"),
        {},
    ),
    "an index as pandas writes it": (csv(*(f"{i},{row}" for i, row in enumerate(ROWS)), head=",text,label"), {}),
    "no header, with names": (csv(*ROWS[1:], head=ROWS[0]), {"columns": ["text", "label"]}),
    "JSON Lines with U+2028": (
        "t.jsonl",
        "".join(json.dumps(o | {"text": o["text"] + "\u2028"}, ensure_ascii=False) + "\n" for o in OBJECTS),
        {},
    ),
}
"""What is read without a word about it: 12 rows of two classes."""


def place(tmp_path, case):
    """The table of a case, written, and its arguments."""
    name = case[0] if isinstance(case[0], str) and re.fullmatch(r"t\.[\w.]+", case[0]) else "t.csv"
    content, arguments = case[len(case) - (3 if len(case) > 2 and isinstance(case[-1], str) else 2) :][:2]
    written = {name: content, "test.csv": arguments.get("test")}
    for file, text in written.items():
        if text is not None:
            (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    given = {**arguments, **({"test": str(tmp_path / "test.csv")} if "test" in arguments else {})}
    return str(tmp_path / name), given


def test_there_are_sixty_of_them():
    assert len(REFUSED) + len(SAID) + len(READ) >= 60


@pytest.mark.parametrize("what", REFUSED)
def test_a_table_is_refused_in_one_line_that_says_where(what, tmp_path):
    path, arguments = place(tmp_path, REFUSED[what])
    with pytest.raises(DataError) as refused:
        Table(path, **arguments).splits()
    message = str(refused.value)
    assert "\n" not in message
    assert len(message) < 700
    assert re.search(REFUSED[what][-1], message), message


@pytest.mark.parametrize("what", SAID)
def test_an_oddity_is_counted_in_one_line(what, tmp_path, caplog):
    path, arguments = place(tmp_path, SAID[what])
    with caplog.at_level(logging.WARNING, "seqkit"):
        splits = Table(path, **arguments).splits()
    assert len(splits.train) > 1
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if re.search(SAID[what][-1], line)], lines
    assert not [line for line in lines if "\n" in line]


@pytest.mark.parametrize("what", READ)
def test_an_ordinary_oddity_changes_nothing(what, tmp_path, caplog):
    path, arguments = place(tmp_path, READ[what])
    with caplog.at_level(logging.WARNING, "seqkit"):
        splits = Table(path, **arguments).splits()
    assert len(splits.train) + len(splits.test) == 12
    assert splits.names == ["even", "odd"]
    assert {type(label) for label in splits.train.labels} == {int}
    lines = [record.getMessage() for record in caplog.records]
    assert not [
        line for line in lines if not re.search("the input is column 'text'|rows; 20 % of the rows are test", line)
    ]


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"t\.csv is a FIFO"):
        Table(str(tmp_path / "t.csv")).splits()
    with pytest.raises(DataError, match=r"no file matches .*\*\.csv"):
        Table(str(tmp_path / "none" / "*.csv")).splits()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty holds no table"):
        Table(str(tmp_path / "empty")).splits()
    with pytest.raises(DataError, match="empty list"):
        Table([]).splits()


def test_shards_of_other_columns_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text(csv(*ROWS))
    (tmp_path / "b.csv").write_text(csv(*ROWS, head="text,tone"))
    with pytest.raises(DataError, match=r"b\.csv has the columns text, tone"):
        Table(str(tmp_path / "*.csv")).splits()
    (tmp_path / "c.jsonl").write_text(jsonl(*OBJECTS))
    with pytest.raises(DataError, match=r"holds tables of several formats \(\.csv, \.jsonl\)"):
        Table(str(tmp_path)).splits()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"test_fraction": 1.0}, "test_fraction is 1.0; give a number between 0 and 1"),
        ({"test_fraction": math.nan}, "test_fraction is nan"),
        ({"split": "part", "test": "x.csv"}, "leave test and valid out"),
        ({"target": ["a", "a"]}, "give one column or several different ones"),
        ({"target": []}, "give one column or several different ones"),
        ({"separator": ""}, "separator is empty"),
        ({"decimal": ";"}, "decimal is ';'; give . or ,"),
        ({"skip_bad": -1}, "skip_bad is -1"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Table("t.csv", **arguments)
