"""Options of the command line: what is wrong with one is said in one line."""

import pytest

from seqkit.cli.parser import COMMANDS, parser


def refused(capsys, *words):
    with pytest.raises(SystemExit, match="2"):
        parser().parse_known_args(words)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("option", ["--seed", "--max-new-tokens", "--top-k", "--samples", "--num-beams"])
@pytest.mark.parametrize("word", ["1e23", "2.5", "seven"])
def test_a_number_that_is_not_whole_is_said(capsys, option, word):
    assert f"{word!r} is not a whole number" in (said := refused(capsys, "generate", "run", option, word))
    assert option in said


def test_a_whole_number_is_taken():
    args, _ = parser().parse_known_args(["generate", "run", "--seed", "7", "--tokens", "11"])
    assert (args.seed, args.max_new_tokens) == (7, 11)


def test_an_unknown_command_shows_the_nearest(capsys):
    assert "there is no command 'fitt'; did you mean fit?" in refused(capsys, "fitt", "run")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_and_a_module_that_runs_it(name):
    from importlib import import_module

    with pytest.raises(SystemExit, match="0"):
        parser().parse_known_args([name, "--help"])
    assert callable(import_module(f"seqkit.cli.{COMMANDS[name]}").run)
