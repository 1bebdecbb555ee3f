"""Options of the command line: what is wrong with one is said in one line."""

import pytest

from seqkit.cli.parser import COMMANDS, module_of, parser


def refused(capsys, *words):
    with pytest.raises(SystemExit, match="2"):
        parser().parse_known_args(words)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize(
    "option", ["--seed", "--max-new-tokens", "--top-k", "--samples", "--num-beams"]
)
@pytest.mark.parametrize("word", ["1e23", "2.5", "seven"])
def test_a_number_that_is_not_whole_is_said(capsys, option, word):
    assert f"{word!r} is not a whole number" in (
        said := refused(capsys, "generate", "run", option, word)
    )
    assert option in said


def test_a_whole_number_is_taken():
    args, _ = parser().parse_known_args(["generate", "run", "--seed", "7", "--tokens", "11"])
    assert (args.seed, args.max_new_tokens) == (7, 11)


def test_options_that_are_lists_are_given_as_often_as_you_like():
    args, _ = parser().parse_known_args(
        ["compare", "x", "--vary", "a=1,2", "--vary", "b=3", "--plugin", "p", "--plugin", "q"]
    )
    assert (args.vary, len(args.plugin)) == (["a=1,2", "b=3"], 2)


@pytest.mark.parametrize(
    "words",
    [["--seed", "2", "graph/karate"], ["graph/karate", "--seed", "2"], ["--seed=2", "graph/karate"],
     ["--trainer.compile", "graph/karate", "--seed", "2"], ["--preset", "debug", "--seed", "2", "mine.yaml"]],
)  # fmt: skip
def test_the_recipe_is_told_from_the_values_of_keys(words):
    args, keys = parser().parse_known_args(["fit", *words])
    assert args.recipe in ("graph/karate", "mine.yaml")
    assert "--seed=2" in keys


def test_an_unknown_command_shows_the_nearest(capsys):
    assert "there is no command 'fitt'; did you mean fit?" in refused(capsys, "fitt", "run")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_and_a_module_that_runs_it(name):
    with pytest.raises(SystemExit, match="0"):
        parser().parse_known_args([name, "--help"])
    assert callable(module_of(name).run)


def test_inputs_may_stand_after_options():
    words = ["predict", "run", "a", "--format", "csv", "b", "--device", "cpu", "-"]
    args, rest = parser().parse_known_args(words)
    assert (args.inputs, args.format, rest) == (["a", "b", "-"], "csv", [])
    assert parser().parse_known_args(["predict", "run", "--fromat", "3", "-z", "a"])[1] == [
        "--fromat=3",
        "-z=a",
    ]
