"""The front door: exit codes, and one line for what a user can get wrong."""

import pytest

from seqkit.cli import main


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("broken.py", "def x(:\n", "SyntaxError"),
        ("fails.py", "1 / 0\n", "ZeroDivisionError"),
        ("json.py", "", "there is a module json already"),
        ("my-parts.py", "", "whose name could be imported"),
        ("parts.txt", "", "whose name could be imported"),
        (
            "twice.py",
            "import seqkit\n@seqkit.register('tokenizer', 'Bytes')\nclass B(seqkit.Tokenizer): ...\n",
            "tokenizer 'Bytes' is already",
        ),
    ],
)
def test_a_plug_in_that_does_not_run_is_said_in_one_line(tmp_path, capsys, name, content, said):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert main(["fit", "text/char-lm", "--plugin", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit", "text/charlm"], "did you mean text/char-lm"),
        (["fit", "text/char-lm", "--preset", "debgu"], "did you mean debug"),
        (["predict", "nosuch", "x"], "nosuch is no run"),
        (["generate", "nosuch", "--tokens", "0"], "--max-new-tokens 0"),
        (["list", "nosuch"], "nothing called 'nosuch'"),
        (["test", "nosuch", "--foo"], "it takes no --foo"),
        (["fit", "text/char-lm", "--plugin", "nosuch.py"], "nosuch.py is no file"),
    ],
)
def test_a_wrong_command_ends_with_2_and_one_line(capsys, words, said):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
