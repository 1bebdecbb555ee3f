"""`--out` never replaces an input or a file of the user's; `--force` replaces what seqkit wrote, and nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import seqkit
from seqkit.cli.main import main

QUICK = {"trainer.enable_progress_bar": False, "trainer.accelerator": "cpu"}
TABLE = "text,label\n" + "ab ab,x\nba ba,y\n" * 20


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run on a table, which stands beside it as mine.csv."""
    place = tmp_path_factory.mktemp("text")
    (place / "mine.csv").write_text(TABLE, encoding="utf-8")
    backbone = {"type": "Transformer", "depth": 1, "num_heads": 2}
    keys = {
        **QUICK,
        "data": str(place / "mine.csv"),
        "tokenizer": "Bytes",
        "model.backbone": backbone,
    }
    return seqkit.fit("text/classify", keys, preset="debug", out=place / "run").folder


@pytest.fixture
def here(run, tmp_path, monkeypatch):
    """A folder with a table and a text of the user's, from which the commands are run."""
    (tmp_path / "mine.csv").write_text(TABLE, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("ab", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys, *words):
    assert main([str(word) for word in words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_a_table_is_not_replaced_by_its_predictions(run, here, capsys):
    assert "mine.csv is an input" in refused(
        capsys, "predict", run, "mine.csv", "--out", "mine.csv"
    )
    assert "mine.csv is an input" in refused(
        capsys, "predict", run, "mine.csv", "--out", "mine.csv", "--force"
    )
    assert (here / "mine.csv").read_text(encoding="utf-8") == TABLE


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        *((given, "soft.csv") for given in ("mine.csv", "m*.csv", ".", "{here}", "notes.txt")),
        *(
            ("mine.csv", out)
            for out in ("./mine.csv", "{here}/mine.csv", "../{here.name}/mine.csv", "hard.csv")
        ),
        *((given, "hard.csv") for given in (".", "notes.txt")),
    ],
)
def test_an_input_is_recognised_through_links_and_other_spellings(
    run, here, capsys, given, spelled
):
    """The table looks like an output of ours, so that nothing but being an input protects it."""
    (here / "mine.csv").write_text("name,prediction,error\nab,x,\n", encoding="utf-8")
    (here / "soft.csv").symlink_to("mine.csv")
    os.link(here / "mine.csv", here / "hard.csv")
    words = ["predict", run, given.format(here=here), "--out", spelled.format(here=here), "--force"]
    if given == "notes.txt":  # the table is no input
        assert main([str(word) for word in words]) == 0
        assert (
            (here / spelled.format(here=here))
            .read_text(encoding="utf-8")
            .splitlines()[1]
            .startswith("notes.txt,")
        )
    else:
        assert "is an input" in refused(capsys, *words)
        assert (here / "mine.csv").read_text(encoding="utf-8").endswith("ab,x,\n")


@pytest.mark.slow
@pytest.mark.parametrize("out", ["", "--out kept.csv --force"])
def test_a_closed_standard_input_is_an_empty_one(run, here, out):
    (here / "kept.csv").write_text("name,prediction,error\nab,x,\n", encoding="utf-8")
    script = f'"{sys.executable}" -m seqkit predict "{run}" - {out} <&-'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "standard input is empty" in done.stderr
    assert done.stderr.count("\n") == 1


OURS = {
    "new.csv": ["mine.csv", "--input", "text"],
    "kept.csv": ["mine.csv", "--input", "text", "--keep", "label"],
    "kept.jsonl": ["mine.csv", "--input", "text", "--keep", "label", "--probabilities"],
    "kept.tsv": ["mine.csv", "--input", "text", "--keep", "label"],
    "tested.csv": ["--test"],
    "new.jsonl": ["mine.csv", "--input", "text"],
    "new.parquet": ["mine.csv", "--input", "text", "--embed"],
}


@pytest.mark.parametrize("name", OURS)
def test_force_replaces_an_output_of_ours_and_without_it_nothing(run, here, capsys, name):
    words = ["predict", run, *OURS[name], "--out", name]
    assert main([str(word) for word in words]) == 0
    first = (here / name).read_bytes()
    assert "add --force" in refused(capsys, *words)
    assert (here / name).read_bytes() == first
    shutil.copy(here / name, here / f"other{(here / name).suffix}")
    assert main([str(word) for word in [*words, "--force"]]) == 0
    others = {"mine.csv", "notes.txt", f"other{Path(name).suffix}"}
    assert {path.name for path in here.iterdir()} == {name, *others}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("kept.csv", b"name,prediction\n"),
        ("kept.jsonl", b'{"name": "x", "text": "y"}\n'),
        ("kept.jsonl", b'{"prediction": 1}\n'),
        ("kept.txt", b"a\tb\n"),
        ("kept.parquet", b"PAR1"),
        ("kept.html", b"<!doctype html><title>mine</title>"),
        ("kept.bin", bytes(range(64))),
    ],
)
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_file_of_the_users_is_kept(run, here, capsys, name, content, force):
    (here / name).write_bytes(content)
    words = {".html": ["report", run], ".parquet": ["predict", run, "notes.txt", "--embed"]}
    words = words.get(Path(name).suffix, ["predict", run, "notes.txt"])
    assert name in refused(capsys, *words, "--out", name, *force)
    assert (here / name).read_bytes() == content


def test_files_of_a_run_are_kept(run, here, capsys):
    for name in ("config.yaml", "summary.json", "checkpoints/model.safetensors", "metrics.csv"):
        before = (run / name).read_bytes()
        for command in (["predict", run, "notes.txt"], ["report", run]):
            refused(capsys, *command, "--out", run / name, "--force")
        assert (run / name).read_bytes() == before


def test_a_default_place_with_a_file_of_the_users_is_refused(run, here, capsys):
    (here / "runs").mkdir(exist_ok=True)
    for name, words in (
        ("report.html", ["report", str(run), str(run / "..")]),
        ("inspect", ["inspect", "image/digits"]),
    ):
        path = (
            here / "runs" / name
            if name.endswith(".html")
            else here / "runs" / name / "image-digits.png"
        )
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        assert main(words) == 2
        assert "seqkit" in capsys.readouterr().err
        assert path.read_text() == "mine"


def test_a_report_replaces_its_own_page_alone(run, here, capsys):
    (here / "page.html").write_text("<!doctype html><title>mine</title>", encoding="utf-8")
    assert "page.html" in refused(capsys, "report", run, "--out", "page.html", "--force")
    assert main(["report", str(run), "--out", "new/page.html"]) == 0
    assert "add --force" in refused(capsys, "report", run, "--out", "new/page.html")
    assert main(["report", str(run), "--out", "new/page.html", "--force"]) == 0
    assert main(["report", str(run)]) == 0, "the run's own page is written again without a flag"


@pytest.mark.slow
def test_pictures_go_to_an_empty_folder_or_beside_pictures_of_ours(run, here, capsys):
    commands = {
        "inspect": ["inspect", "image/digits", "--preset", "debug"],
        "attention": ["attention", run, "--input", "notes.txt"],
    }
    picture = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    for name, words in commands.items():
        (here / name).mkdir()
        assert main([str(word) for word in [*words, "--out", name]]) in (0, 1)
        written = sorted(path.name for path in (here / name).iterdir())[0]
        assert "add --force" in refused(capsys, *words, "--out", name)
        assert main([str(word) for word in [*words, "--out", name, "--force"]]) in (0, 1)
        if name == "inspect":
            Image.fromarray(picture).save(here / name / written)
        else:
            (here / name / written).write_text("<p>mine</p>", encoding="utf-8")
        mine = (here / name / written).read_bytes()
        assert written in refused(capsys, *words, "--out", name, "--force")
        assert (here / name / written).read_bytes() == mine
        for file in ("notes.txt", "new.html"):
            assert f"{file} names a file" in refused(capsys, *words, "--out", file, "--force")


def test_a_comparison_refuses_a_folder_of_something_else_before_it_builds_anything(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "mine.txt").write_text("words", encoding="utf-8")
    monkeypatch.setattr("seqkit.comparison.compare.make_plan", None)
    assert main(["compare", "text/char-lm", "--out", str(tmp_path)]) == 2
    assert "comparison" in capsys.readouterr().err
