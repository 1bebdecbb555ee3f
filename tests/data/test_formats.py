import subprocess
import sys
from pathlib import Path

import pytest

from seqkit.data.formats import FORMATS, IMAGE, UNREAD, format_of, readable_suffixes, source_for
from seqkit.errors import UsageError
from seqkit.registry import components


def make(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("content")
    return folder


def test_a_suffix_belongs_to_one_format_whatever_its_case():
    suffixes = [suffix for known in FORMATS for suffix in known.suffixes]
    # which may move
    assert {suffix for suffix in suffixes if suffixes.count(suffix) > 1} == {".gif"}
    for known in FORMATS:
        for suffix in known.suffixes:
            assert suffix.startswith(".")
            found = format_of(Path(f"a{suffix}"))
            assert found is format_of(Path(f"a{suffix.upper()}"))
            assert found is (IMAGE if suffix == ".gif" else known)
    assert format_of(Path("a.none")) is format_of(Path("a")) is None


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.suffixes[0])
def test_readers_and_data_sources_exist(known, tmp_path):
    assert {known.file_source, known.folder_source} - {None} <= set(components("data_source"))
    if known.reader is not None:
        with pytest.raises(ValueError, match=r"nothing\.here"):
            known.read_for(tmp_path / "nothing.here", None)
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
    assert source_for(folder) == (
        "TextFiles",
        {"path": [str(folder / "a.md"), str(folder / "b" / "1.txt")]},
    )


def test_a_file_is_a_text_or_a_table(tmp_path):
    make(tmp_path, "a.txt", "b.CSV", "c.jsonl")
    assert source_for(tmp_path / "a.txt") == ("TextFiles", {"path": [str(tmp_path / "a.txt")]})
    assert source_for(tmp_path / "b.CSV") == ("Table", {"path": str(tmp_path / "b.CSV")})
    assert source_for(tmp_path / "c.jsonl") == ("Table", {"path": str(tmp_path / "c.jsonl")})


def test_what_no_source_reads_is_refused_with_what_one_does(tmp_path):
    make(tmp_path, "a.wav", "a.smi", "licence", "own/b.bin")
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("empty", "it holds no files"),
        ("own", r"give a folder of \.wav.*'\S*own/\*\*/\*\.py' for texts of another suffix"),
        ("a.wav", "a single one has no class"),
        ("a.smi", r"give a file that ends in \.txt"),
        ("licence", "a text of another suffix is read by --data.source TextFiles"),
    ):
        with pytest.raises(UsageError, match=f"{name}.*{message}"):
            source_for(tmp_path / name)


@pytest.mark.parametrize("suffix", [suffix for suffixes in UNREAD for suffix in suffixes])
def test_known_formats_that_are_not_read_are_refused_with_what_converts_them(tmp_path, suffix):
    make(tmp_path, f"own/a{suffix.upper()}")
    for path in (tmp_path / "own", tmp_path / "own" / f"a{suffix.upper()}"):
        with pytest.raises(UsageError, match=rf"\{suffix} is not read, convert it: \S"):
            source_for(path)


def test_hidden_copies_do_not_double_a_folder(tmp_path):
    folder = make(tmp_path / "own", "a.txt", ".ipynb_checkpoints/a-checkpoint.txt")
    assert source_for(folder) == ("TextFiles", {"path": [str(folder / "a.txt")]})


@pytest.mark.parametrize(
    ("names", "source"), [(["edges.csv", "nodes.tsv"], "GraphFile"), (["edges.csv"], "Table")]
)
def test_a_folder_of_edges_and_nodes_is_a_graph(tmp_path, names, source):
    assert source_for(make(tmp_path / "own", *names))[0] == source


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
