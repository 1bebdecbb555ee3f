import re
import subprocess
import sys
from pathlib import Path

import pytest

from seqkit.data.formats import CONVERTED, FORMATS, format_of, readable_suffixes, source_for
from seqkit.errors import UsageError
from seqkit.registry import components


def make(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("content")
    return folder


def test_a_suffix_belongs_to_one_format_whatever_its_case():
    suffixes = [suffix for known in FORMATS for suffix in known.suffixes]
    assert len(set(suffixes)) == len(suffixes)
    for known in FORMATS:
        for suffix in known.suffixes:
            assert suffix.startswith(".")
            assert format_of(Path(f"a{suffix}")) is format_of(Path(f"a{suffix.upper()}")) is known
    assert format_of(Path("a.none")) is format_of(Path("a")) is None


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.suffixes[0])
def test_readers_and_data_sources_exist(known, tmp_path):
    assert {known.file_source, known.folder_source} - {None} <= set(components("data_source"))
    if known.reader is not None:
        with pytest.raises(ValueError, match=r"nothing\.here"):
            known.read(tmp_path / "nothing.here")
    assert (known.reader is not None) == (known.suffixes[0] in readable_suffixes())


@pytest.mark.parametrize(
    ("names", "source"),
    [
        (["ant/1.WAV", "bee/2.flac"], "AudioFolder"),
        (["ant/1.png", "notes.txt"], "ImageFolder"),
        (["ant/1.png", "bee/2.ogg"], "AudioFolder"),
        (["train/ant/1.jpeg"], "ImageFolder"),
        (["part-0.csv", "part-1.csv"], "Table"),
    ],
)
def test_a_folder_has_the_source_of_its_files(tmp_path, names, source):
    folder = make(tmp_path / "own", *names)
    assert source_for(folder) == (source, {"path": str(folder)})


def test_a_folder_of_texts_is_given_as_its_text_files(tmp_path):
    folder = make(tmp_path / "own", "b/1.txt", "a.md", "table.csv", "c.rst")
    assert source_for(folder) == ("TextFiles", {"path": [str(folder / "a.md"), str(folder / "b" / "1.txt")]})


def test_a_file_is_a_text_or_a_table(tmp_path):
    make(tmp_path, "a.txt", "b.CSV", "c.jsonl")
    assert source_for(tmp_path / "a.txt") == ("TextFiles", {"path": [str(tmp_path / "a.txt")]})
    assert source_for(tmp_path / "b.CSV") == ("Table", {"path": str(tmp_path / "b.CSV")})
    assert source_for(tmp_path / "c.jsonl") == ("Table", {"path": str(tmp_path / "c.jsonl")})


def test_what_no_source_reads_is_refused_with_what_one_does(tmp_path):
    make(tmp_path, "a.wav", "a.smi", "own/b.bin", "deep/a/b/c/d/e.png")
    (tmp_path / "own" / "b.bin").write_bytes(b"\0")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"a\.smi"):
        source_for(tmp_path / "a.smi")
    with pytest.raises(UsageError, match=r"a\.wav: .*no class"):
        source_for(tmp_path / "a.wav")
    for name, message in (("empty", "it holds no files"), ("deep", r"give a folder of \.wav")):
        with pytest.raises(UsageError, match=f"{name}; {message}"):
            source_for(tmp_path / name)
    with pytest.raises(UsageError, match=r"reads .*own"):
        source_for(tmp_path / "own")


@pytest.mark.parametrize("suffix", CONVERTED)
def test_known_formats_that_are_not_read_are_refused_with_how_to_convert_them(suffix, tmp_path):
    (tmp_path / f"a{suffix}").write_text("what looks like text\n")
    with pytest.raises(UsageError, match=re.escape(f"{suffix} files are not read; convert it: {CONVERTED[suffix]}")):
        source_for(tmp_path / f"a{suffix}")


def test_files_without_a_known_suffix_are_text_where_they_begin_so(tmp_path):
    (tmp_path / "licence").write_bytes("the rights of né\n".encode() + b"x" * 4078 + "é".encode())  # cut inside an é
    (tmp_path / "zip").mkdir()
    (tmp_path / "zip" / "a.bin").write_bytes(b"PK\0\1")
    (tmp_path / "zip" / "latin").write_bytes("né né".encode("latin-1"))
    assert source_for(tmp_path / "licence") == ("TextFiles", {"path": [str(tmp_path / "licence")]})
    assert source_for(tmp_path) == ("TextFiles", {"path": [str(tmp_path / "licence")]})
    with pytest.raises(UsageError, match="no data source reads"):
        source_for(tmp_path / "zip")


def test_the_table_imports_no_torch():
    code = "import seqkit.data.formats, sys; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_folder_of_more_files_than_can_be_searched_or_listed_is_refused(tmp_path, monkeypatch):
    make(tmp_path, "a.txt", "b/c.txt", "d.txt")
    assert len(source_for(tmp_path)[1]["path"]) == 3
    monkeypatch.setattr("seqkit.data.formats.MAX_LISTED", 2)
    with pytest.raises(UsageError, match="holds 3 texts"):
        source_for(tmp_path)
    monkeypatch.setattr("seqkit.data.formats.MAX_FILES", 2)
    with pytest.raises(UsageError, match="holds more than 2 files"):
        source_for(tmp_path)
