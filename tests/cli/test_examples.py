"""The examples of every command's help run, one after another, in a folder with the files that they name."""

import shlex

import pytest
from foreign_models import kept
from test_suits import _save

from seqkit.cli.main import main
from seqkit.cli.parser import COMMANDS, EXAMPLES

ORDER = [*sorted(set(COMMANDS) - {"scale"}, key=list(COMMANDS).index), "scale"]
SHORTER = {
    "fit": "--trainer.max_steps 4",
    "compare": "--trainer.max_steps 4 --lr-trials 0 --seeds 1 --no-measure --no-depths",
}
"""Words of a command that make it shorter here, and change nothing of what it does."""


def test_every_command_has_examples():
    assert list(EXAMPLES) == list(COMMANDS)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with `reviews.csv` and `bert-tiny`, a folder that transformers saved."""
    monkeypatch.chdir(tmp_path)
    rows = [f"a {['fine', 'awful'][i % 2]} film {i},{['good', 'bad'][i % 2]}" for i in range(60)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    kept(tmp_path / "bert-tiny", _save, "bert")
    return tmp_path


@pytest.mark.slow
def test_the_examples_run_in_their_order(place, monkeypatch, capsys):
    # a server that answers is what tests/serve has
    monkeypatch.setattr("seqkit.serve.server.RunServer.run", lambda *given, **settings: None)
    for name in ORDER:
        for words in EXAMPLES[name]:
            code = main([name, *shlex.split(f"{words} {SHORTER.get(name, '')}")])
            said = capsys.readouterr()
            assert code == 0 or name == "doctor", (name, words, said.err)
            assert not said.err.startswith("seqkit"), (name, words, said.err)
    assert (place / "answers.csv").read_text().count("\n") == 61
    assert (place / "digits.onnx").stat().st_size > 1000
    assert {"both.html", "digits.onnx"} <= {path.name for path in place.iterdir()}
