"""Raw examples that are named on the command line."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from seqkit.data.inputs import Inputs, first_input, read_inputs, schema_of
from seqkit.data.tables.read import Tables
from seqkit.data.tables.schema import Column, Schema
from seqkit.errors import DataError, UsageError
from seqkit.tokenizers import Bytes, Cells, Join, LogMel, Molecule, Patches, Series


def test_an_image_has_the_channels_of_the_tokenizer(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(np.zeros((7, 5, 3), np.uint8)).save(path)
    for tokenizer, channels in ((Patches(5), 1), (Patches(5, channels=3), 3), (LogMel(8000), 3)):
        ((name, image),) = read_inputs(str(path), tokenizer)
        assert name == str(path)
        assert image.shape == (channels, 7, 5)
    with pytest.raises(DataError, match="is a Waveform"):
        LogMel(8000).encode(image)


def test_a_string_is_itself_and_a_smi_file_one_molecule_a_line(tmp_path):
    assert list(read_inputs("CCO", Molecule())) == [("CCO", "CCO")]
    (tmp_path / "a.smi").write_text("CCO ethanol\n\nC\n", encoding="utf-8")
    assert [raw for _, raw in read_inputs(str(tmp_path / "a.smi"), Molecule())] == ["CCO", "C"]


def test_a_text_file_is_one_example_and_a_long_text_no_path(tmp_path):
    path = tmp_path / "a.TXT"
    path.write_text("to be", encoding="utf-8")
    assert list(read_inputs(str(path), Bytes())) == [(str(path), "to be")]
    assert list(read_inputs("or not to be " * 1000, Bytes())) == [("or not to be " * 1000,) * 2]


def test_a_file_of_another_format_is_refused_with_those_there_are(tmp_path):
    for name, ending in (("a.csv", r"\.csv"), ("b", "nothing")):
        (tmp_path / name).write_text("content", encoding="utf-8")
        with pytest.raises(DataError, match=rf"ends in {ending}"):
            list(read_inputs(str(tmp_path / name), Bytes()))


@pytest.mark.parametrize(
    ("given", "what"), [("nosuch.png", "no file"), ("", "nothing"), (".", "a folder here")]
)
def test_a_name_without_a_file_is_refused(given, what):
    with pytest.raises(DataError, match=f"'{given}' is {what}"):
        list(read_inputs(given, Patches(5)))


def run_of(*columns, **settings):
    return Schema(tuple(columns), "none", **settings)


def test_a_row_of_a_table_is_an_example_by_the_column_that_is_named_known_or_guessed(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "id,body,other\n1,one text that is long,a\n2,,b\n3,another text that is,c\n",
        encoding="utf-8",
    )
    body = ["one text that is long", None, "another text that is"]
    for schema, column, values in (
        (None, None, body), (None, "other", ["a", "b", "c"]), (run_of(Column("other", "text")), None, ["a", "b", "c"]),
        (run_of(Column("gone", "text")), None, body), (run_of(Column("other", "text")), "body", body),
    ):  # fmt: skip
        inputs = Inputs([str(path)], Bytes(), schema, column=column)
        assert inputs.total == 3
        assert [one.raw for one in inputs] == values
    _, second, _ = Inputs([str(path)], Bytes())
    assert (second.name, second.error) == (f"{path}, line 3", f"{path}, line 3: body is empty")
    assert first_input(str(path), Bytes()) == (f"{path}, line 2", body[0], 3)
    (missing,) = Inputs([str(tmp_path / "no.csv")], Bytes())
    assert "does not exist" in missing.error
    with pytest.raises(UsageError, match=r"no column 'bdy'.*--input"):
        Inputs([str(path)], Bytes(), column="bdy")
    with pytest.raises(UsageError, match="none is given"):
        Inputs(["a text"], Bytes(), column="body")


SETTINGS = {
    "columns": {"day": "date", "price": "number", "sex": "category", "note": "text", "id": "unused"},
    "forms": {"day": "%d/%m/%Y", "price": ","}, "missing": ["na"], "target": "y", "target_kind": "numbers",
}  # fmt: skip


def test_rows_are_read_as_those_of_training_were(tmp_path):
    """Dates keep their order, numbers their commas, and NA is missing where training had it among numbers."""
    path = tmp_path / "t.csv"
    path.write_text('price,day,sex,note\n"1,5",02/05/2022,NA,NA\n"1,234",03/25/2022,f,null\n')
    schema = schema_of({"data": {"source": {"type": "Table", **SETTINGS}}})
    first, second = Inputs([str(path)], Join({"note": Bytes(), "cells": Cells()}), schema)
    assert {name: str(value) for name, value in first.raw["cells"].items()} == {
        "day": "2022-05-02",
        "price": "1.5",
    }
    assert "note" not in first.raw
    assert (
        second.error
        == f"{path}, line 3: day is '03/25/2022', which is no date as the others are (%d/%m/%Y)"
    )


def test_faulty_rows_of_a_table_are_answered_with_their_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,other\none text,a\nbroken\nanother text,b\n")
    inputs = Inputs([str(path)], Bytes())
    assert inputs.total == 3
    assert [one.raw for one in inputs] == ["one text", "another text", None]
    assert [*inputs][2].error.startswith(f"{path}, line 3 has 1 cell")


def test_configurations_of_tables_have_a_schema():
    def of(**source):
        return schema_of({"data": {"source": {"type": "Table", **source}}})

    assert of(target_kind="classes", input="body").inputs == [Column("body", "text")]
    assert of(target_kind="classes", input=["s0", "s1"]).steps == (
        Column("s0", "number"),
        Column("s1", "number"),
    )
    assert of(columns={"a": "text"}, header=["a", "b"]).header == ("a", "b")
    assert schema_of({"data": {"source": {"type": "TextFiles"}}}) is None
    join = {
        "type": "Join",
        "parts": {"view": {"type": "Patches"}, "cells": {"type": "Cells"}},
        "reads": {"view": "image"},
    }
    assert schema_of({"tokenizer": join}).inputs == [Column("image", "image")]


def test_a_series_is_read_from_the_columns_of_the_run(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('s1,s0,s2\n1,"2,5",3\n4,,6\n', encoding="utf-8")

    def of(*names):
        return run_of(
            Column("x", "series"), steps=tuple(Column(name, "number", form=",") for name in names)
        )

    first, second = Inputs([str(path)], Series(), of("s0", "s1"))
    assert first.raw == [2.5, 1]
    assert (
        second.error == f"{path}, line 3: s0 is empty, and each column of a series holds a number"
    )
    (missing,) = Inputs([str(path)], Series(), of("s0", "s3"))
    assert "lacks columns of the run (s3)" in missing.error


# ── several parts ────────────────────────────────────────────────────────────────────────────────────────────────────

PARTS = run_of(Column("note", "text"), Column("photo", "image"), Column("size", "number"))
JOINED = Join({"note": Bytes(), "view": Patches(5), "cells": Cells()}, reads={"view": "photo"})


def test_parts_may_be_absent_and_columns_that_are_not_used_are_said(tmp_path):
    (tmp_path / "t.csv").write_text("note,sise\na b,3\n,4\n")
    inputs = Inputs([str(tmp_path / "t.csv")], JOINED, PARTS)
    good, bad = inputs
    assert (good.raw, bad.error) == (
        {"note": "a b"},
        f"{tmp_path / 't.csv'}, line 3: note is empty",
    )
    assert (
        "has no column photo, size, so these are absent; it has columns that are not used: sise"
        in inputs.notes[0]
    )
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (none,) = Inputs([str(tmp_path / "t.csv")], JOINED, PARTS)
    assert "lacks columns of the run (note, photo, size)" in none.error


def test_an_example_may_be_written_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.full((5, 5), 255, np.uint8)).save("a.png")
    for given in (
        "view=a.png, size=$3,note=to be, or not",
        '{"photo": "a.png", "size": 3, "note": "to be, or not"}',
    ):
        (one,) = Inputs([given], JOINED, PARTS)
        assert (one.error, one.raw["note"], one.raw["cells"]) == (
            None,
            "to be, or not",
            {"size": 3.0},
        )
        assert float(one.raw["photo"].min()) == 1
    for given, fact in (("sise=3", "did you mean size"), ("size=many", "size is 'many', which is no number"),
                        ("hello", "names no part of an example; give a table, or note=…"), ("note=", "is filled|empty"),
                        ("photo=b.png", r"b\.png does not exist"), ("{", "JSON|Expecting")):  # fmt: skip
        (one,) = Inputs([given], JOINED, PARTS)
        assert re.search(fact, one.error), one.error


def test_images_that_a_table_names_are_read_beside_it(tmp_path):
    Image.fromarray(np.full((5, 5), 255, np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text("path,label\na.png,x\nb.png,y\n", encoding="utf-8")
    good, bad = Inputs([str(tmp_path / "t.csv")], Patches(5))
    assert float(good.raw.min()) == 1
    assert "b.png does not exist" in bad.error


def test_a_folder_is_its_files_of_the_first_format_and_the_others_are_counted_by_suffix(tmp_path):
    (tmp_path / "below").mkdir()
    for name in ("b.txt", "below/a.md", "c.csv", "d.csv", "e"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    inputs = Inputs([str(tmp_path)], Bytes())
    assert [one.raw for one in inputs] == ["b.txt", "below/a.md"]
    assert inputs.notes == [f"{tmp_path}: 3 of 5 files are skipped (.csv: 2, no suffix: 1)"]
    assert [one.raw for one in Inputs([str(tmp_path / "**" / "*.md")], Bytes())] == ["below/a.md"]
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataError, match="holds no file to read"):
        Inputs([str(tmp_path / "nothing")], Bytes())


def test_of_a_mixed_folder_the_files_are_taken_that_the_tokenizer_reads(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(800), 8_000)
    Image.new("L", (8, 8)).save(tmp_path / "b.png")
    (tmp_path / "c.png").write_bytes(b"torn")
    (tmp_path / "d.txt").write_text("text", encoding="utf-8")
    for tokenizer, names in (
        (Patches(4), ["b.png", "c.png"]),
        (LogMel(8_000, normalize=False), ["a.wav"]),
    ):
        inputs = Inputs([str(tmp_path)], tokenizer)
        assert [Path(one.name).name for one in inputs] == names
        assert f"{4 - len(names)} of 4 files are skipped" in inputs.notes[0]
    assert [one.raw for one in Inputs([str(tmp_path)], Bytes())] == ["text"]


def test_hidden_files_of_a_folder_are_left_out_and_counted_as_in_training(tmp_path):
    (tmp_path / "__MACOSX").mkdir()
    for name in ("b.txt", "._b.txt", ".c.txt", "__MACOSX/b.txt"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    inputs = Inputs([str(tmp_path)], Bytes())
    assert [one.raw for one in inputs] == ["b.txt"]
    assert inputs.notes == [f"{tmp_path}: 3 of 4 files are skipped (hidden: 3)"]


def test_a_smiles_string_with_brackets_is_no_pattern():
    (one,) = Inputs(["C[C@@H](N)C(=O)O"], Molecule())
    assert one.raw == "C[C@@H](N)C(=O)O"


def test_lines_are_texts_except_those_that_name_images_or_recordings(tmp_path):
    (tmp_path / "a.txt").write_text("content", encoding="utf-8")
    lines = [f"{tmp_path / 'a.txt'}\n".encode(), b"gone.png\r\n", b"to be"]
    inputs = Inputs(["-"], Bytes(), stdin=io.BytesIO(b"".join(lines)))
    assert inputs.total is None
    text, image, last = inputs
    # what a text says is not opened
    assert (text.raw, last.raw) == (str(tmp_path / "a.txt"), "to be")
    assert "'gone.png' is no file" in image.error
    (nothing,) = Inputs(["-"], Bytes(), stdin=io.BytesIO())
    assert "standard input is empty" in nothing.error


def test_a_line_without_an_end_is_not_read_whole(monkeypatch):
    monkeypatch.setattr("seqkit.data.inputs.MAX_LINE_BYTES", 9)
    stream = io.BytesIO("aé".encode() * 20 + b"\nto be\n" + b"x" * 30)
    long, short, last = Inputs(["-"], Bytes(), stdin=stream)
    assert long.error == "standard input, line 1 has more than 16 MB"
    assert (short.raw, last.error) == ("to be", "standard input, line 3 has more than 16 MB")


def test_a_tokenizer_that_reads_files_itself_gets_every_path(tmp_path):
    class Mine(Bytes):
        def read(self, path):
            if path.suffix == ".bad":
                raise IndexError("short")
            return path.read_bytes().decode("latin-1")

    for name in ("a.eeg", "b.bad"):
        (tmp_path / name).write_bytes(b"\xe9")
    good, bad = Inputs([str(tmp_path)], Mine())
    assert good.raw == "é"
    assert bad.error == f"{tmp_path / 'b.bad'}: Mine.read raised IndexError: short"
    assert list(read_inputs(str(tmp_path / "a.eeg"), Mine())) == [(str(tmp_path / "a.eeg"), "é")]


class Reads(Bytes):
    """Texts, and files of a format of its own."""

    def read(self, path):
        return path.read_text(encoding="utf-8")


PATHS = ["gone.eeg", "no/such", "*.eeg", "nowhere/", "a[0].eeg"]


@pytest.mark.parametrize("given", PATHS)
def test_what_looks_like_a_path_is_no_text_where_the_tokenizer_reads_files(given):
    (one,) = Inputs([given], Reads())
    assert one.error.startswith(
        f"{given!r} is no file, and looks like a path; give a file that exists, or a text"
    )
    (line,) = Inputs(["-"], Reads(), stdin=io.BytesIO(given.encode()))
    assert line.error == one.error
    assert [one.raw for one in Inputs([given], Bytes())] == [given]
    assert [one.raw for one in Inputs(["to be. Or not", "to\n/be"], Reads())] == [
        "to be. Or not",
        "to\n/be",
    ]


def test_a_run_on_texts_of_a_table_takes_every_text():
    for given in (*PATHS, "C/C=C.CC>>O"):
        assert list(read_inputs(given, Reads(), kind="smiles")) == [(given, given)]


def test_a_text_that_looks_like_a_path_stands_in_a_table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,body\n1,no/such.eeg\n2,*.eeg\n", encoding="utf-8")
    assert [one.raw for one in Inputs([str(path)], Reads(), column="body")] == [
        "no/such.eeg",
        "*.eeg",
    ]


def test_a_cell_is_refused_that_training_refuses(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"body": "a b"}\n{"body": ["a", "b"]}\n{"body": 3}\n{"body": {"a": 1}}\n', encoding="utf-8"
    )
    text, *rest = Inputs([str(path)], Bytes(), run_of(Column("body", "text")))
    assert text.raw == "a b"
    for one, cell in zip(rest, ("['a', 'b']", "3", "{'a': 1}")):
        assert one.error == f"{one.name}: body is {cell}, which is no text; write it in quotes"
    words = list(Inputs([str(path)], Bytes(), run_of(Column("body", "words"))))
    assert [one.raw for one in words] == ["a b", "a b", None, None]
    assert words[2].error == f"{path}, line 3: body is 3, which is no list of words without spaces"


def test_tables_that_were_read_already_are_not_read_again(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,id\nto be,1\nor not,2\n", encoding="utf-8")
    tables = Tables()
    kept = tables.read(str(path))
    path.unlink()
    inputs = Inputs([str(path)], Bytes(), run_of(Column("text", "text")), tables=tables)
    assert [one.raw for one in inputs] == ["to be", "or not"]
    assert kept.columns["id"] == ["1", "2"]


def test_a_sentence_that_ends_as_a_file_does_is_a_text_to_texts_alone():
    given = "listen to this.wav"
    assert [*read_inputs(given, Bytes())] == [(given, given)]
    with pytest.raises(DataError, match="is no file"):
        next(read_inputs("this.wav", Bytes()))
