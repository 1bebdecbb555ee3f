"""Modules of Python's standard library: whole ones are held out, each text once; your own code is learned."""

import ast

import pytest

from seqkit.cli.main import main
from seqkit.recipes.code.modules import StdlibModules, split_of


def test_a_module_is_in_the_split_of_its_path_and_its_text_occurs_once():
    splits = StdlibModules(["json", "email", "os"]).splits()
    parts = {name: getattr(splits, name) for name in ("train", "valid", "test")}
    texts = [sample.raw for part in parts.values() for sample in part]
    assert len(set(texts)) == len(texts) > 20
    for name, part in parts.items():
        assert part
        for sample in part:
            assert split_of(sample.name) == name
            assert sample.name.startswith(("json/", "email/", "os.py"))
            ast.parse(sample.raw)


@pytest.mark.slow
def test_own_code_is_learned_by_a_pattern_and_not_run(tmp_path, capsys):
    for name in ("tree", "list", "map", "heap"):
        code = f"def open_{name}(x):\n    return x.open()\n" * 30
        (tmp_path / f"{name}.py").write_text(f"{code}raise SystemExit\n")
    (tmp_path / "README.md").write_text("About it.")
    run = str(tmp_path / "run")
    quick = ["--preset", "debug", "--trainer.max_steps", "2"]
    fit = ["fit", "code/modules", *quick, "--out", run, "--data"]
    assert main([*fit, f"{tmp_path}/*.py"]) == 0
    assert main(["generate", run, "--prompt", "def open_", "--tokens", "3"]) == 0
    assert "def open_" in capsys.readouterr().out
    assert main([*fit, str(tmp_path / "run" / "checkpoints"), "--force"]) == 2
