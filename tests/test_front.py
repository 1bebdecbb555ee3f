"""The words of a command line: what is wrong with one is said in one line."""

import pytest

from seqkit.cli import COMMANDS, CONFIGURED
from seqkit.front import front


def refused(capsys, *words):
    with pytest.raises(SystemExit, match="2"):
        front().parse_known_args(words)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("option", ["--seed", "--max-new-tokens", "--top-k", "--samples", "--num-beams"])
@pytest.mark.parametrize("word", ["1e23", "2.5", "seven"])
def test_a_number_that_is_not_whole_is_said(capsys, option, word):
    assert f"{word!r} is not a whole number" in (said := refused(capsys, "generate", "run", option, word))
    assert option in said


def test_a_whole_number_is_taken():
    args, _ = front().parse_known_args(["generate", "run", "--seed", "7", "--tokens", "11"])
    assert (args.seed, args.max_new_tokens) == (7, 11)


def test_an_unknown_command_shows_the_nearest(capsys):
    assert "there is no command 'fitt'; did you mean fit?" in refused(capsys, "fitt", "run")


def test_each_command_is_one_that_runs():
    for name in (*COMMANDS, *CONFIGURED):
        with pytest.raises(SystemExit, match="0"):
            front().parse_known_args([name, "--help"])
