"""Functions of Python: whole modules of the standard library are held out; your own files are learned and named."""

import ast

import pytest

from seqkit.cli.main import main
from seqkit.recipes.code.functions import StdlibFunctions, split_of


def test_a_module_and_its_code_are_in_one_split():
    splits = StdlibFunctions(["json", "email"]).splits()
    samples = [
        (name, sample) for name in ("train", "valid", "test") for sample in getattr(splits, name)
    ]
    assert len(splits.train) > 50
    assert len({sample.raw for _, sample in samples}) == len(samples)
    for name, sample in samples:
        assert split_of(sample.group) == name
        ast.parse(sample.raw)


@pytest.mark.slow
def test_own_files_are_learned_and_each_function_of_a_file_is_named(tmp_path, capsys):
    """Files of two functions each beside a text, in one folder; none of them is run."""
    for name in ("tree", "list", "map", "heap"):
        code = f"def open_{name}(x):\n    return x.open()\ndef close_{name}(x): x.close()\nraise SystemExit\n"
        (tmp_path / f"{name}.py").write_text(code)
    (tmp_path / "README.md").write_text("About it.")
    words = [
        "--preset",
        "debug",
        "--trainer.max_steps",
        "2",
        "--trainer.enable_progress_bar",
        "false",
    ]
    assert (
        main(["fit", "code/names", "--data", str(tmp_path), *words, "--out", str(tmp_path / "run")])
        == 0
    )
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "empty.py").write_text("")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "tree.py")]) == 0
    assert [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()] == [
        f"{tmp_path}/tree.py:1 open_tree", f"{tmp_path}/tree.py:3 close_tree",
    ]  # fmt: skip
    for name, fact in (("broken", "line 2"), ("empty", "no example")):
        assert main(["predict", str(tmp_path / "run"), str(tmp_path / f"{name}.py")]) == 3
        assert fact in capsys.readouterr().err
