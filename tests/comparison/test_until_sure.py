"""Comparisons that add seeds until each candidate is decided: which runs follow, what is kept, what the page says."""

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest

from seqkit import compare
from seqkit.cli.compare import _settings
from seqkit.cli.main import main
from seqkit.cli.parser import parser
from seqkit.comparison.candidates import Candidate
from seqkit.comparison.cells import Ended
from seqkit.comparison.compare import check_folder
from seqkit.comparison.results import read_results, summarise
from seqkit.comparison.scores import METRICS, ExampleScores
from seqkit.comparison.settings import MOST_SEEDS, Settings
from seqkit.comparison.stages import Plan, train
from seqkit.comparison.types import Run
from seqkit.config import complete
from seqkit.errors import UsageError
from seqkit.report.comparison import comparison_markdown
from seqkit.report.sentences import answers
from tests.comparison.conftest import SMALL

EXAMPLES = 2000
LEVELS = {"LSTM": (0.9, 0.002), "GRU": (0.7, 0.002), "TCN": (0.9, 0.01), "S4D": (0.96, 0.03)}
"""Accuracy of each candidate, and how far its seeds differ."""


def plan_of(names=("LSTM", "GRU", "TCN", "S4D"), broken=(), **changes):
    config = complete("image/digits", None, ["--model.backbone=LSTM"])
    found = [
        Candidate(
            name=name,
            config=config,
            num_steps=40,
            broken=["it reads the future"] * (name in broken),
        )
        for name in names
    ]
    words = {"lr_trials": 0, "until_sure": 1.0, "seeds": 9, "measure": False, **changes}
    settings = Settings(recipe="image/digits", backbones=list(names), **words)
    return Plan(settings, found, METRICS["accuracy"])


def ended(cell, failed):
    """A run whose answers to the test examples follow from candidate and seed alone."""
    seed = cell.config["seed"]
    if (cell.candidate, seed) in failed or (cell.candidate, None) in failed:
        return Ended(error="loss is NaN")
    level, sd = LEVELS[cell.candidate]
    own = np.random.default_rng(7).random(EXAMPLES)
    rng = np.random.default_rng([sum(cell.candidate.encode()), seed])
    other = np.random.default_rng(sum(cell.candidate.encode())).random(EXAMPLES)
    mixed = np.where(rng.random(EXAMPLES) < 0.8, own, other)
    right = (mixed < level + sd * rng.normal()).astype(float).tolist()
    ones = [1.0] * EXAMPLES
    scores = ExampleScores(numerator=right, denominator=ones, tokens=[4] * EXAMPLES)
    run = Run(seed=seed, folder=f"runs/{cell.id}", steps=5000)
    return Ended(run=run, scores=scores)


def trained(plan, failed=(), order=1):
    """Results of a plan, and the cells that each round asked for. order: -1: they end in the other order."""
    rounds = []

    def execute(cells):
        rounds.append([(cell.candidate, cell.config["seed"]) for cell in cells])
        return {cell.id: ended(cell, failed) for cell in cells[::order]}

    found = train(plan, execute)
    return summarise(plan, found, started="2026-11-30")[0], rounds


def words_of(results):
    return {one.a: (one.verdict, one.seeds) for one in results.differences}


@pytest.fixture(scope="module")
def four():
    return trained(plan_of())


def test_three_seeds_of_all_run_and_then_those_that_are_undecided_and_the_reference(four):
    results, rounds = four
    assert rounds[0] == [(name, seed) for seed in (1, 2, 3) for name in LEVELS]
    decided = words_of(results)
    assert decided["GRU"][0] == "worse"
    assert decided["S4D"] == ("undecided", 9)
    for seed, asked in enumerate(rounds[1:], start=4):
        left = [name for name, (_, used) in decided.items() if used >= seed]
        assert asked == [("LSTM", seed), *((name, seed) for name in left)]
    assert len(rounds) == 7
    assert results.seeds == list(range(1, 10))
    assert len(results.by_name["GRU"].runs) == decided["GRU"][1] < 9


def test_results_do_not_depend_on_the_order_in_which_runs_end(four):
    results, rounds = four
    again, others = trained(plan_of(), order=-1)
    assert rounds == others
    assert again.differences == results.differences


def test_more_seeds_later_go_on_with_those_there_are(four):
    results, _ = four
    more, _ = trained(plan_of(seeds=12))
    assert words_of(more)["GRU"] == words_of(results)["GRU"]
    assert plan_of(seeds=12).sha256 == plan_of().sha256
    assert plan_of(seeds=12).settings.digest == plan_of().settings.digest


def test_a_folder_takes_more_seeds_but_no_other_margin(tmp_path):
    started = check_folder(tmp_path, plan_of())
    assert check_folder(tmp_path, plan_of(seeds=30)) == started
    cell = tmp_path / "cells" / "LSTM" / "seed-7.json"
    cell.parent.mkdir(parents=True)
    cell.touch()
    with pytest.raises(UsageError, match="has 7 seeds, of which none may be left out"):
        check_folder(tmp_path, plan_of(seeds=6))
    assert check_folder(tmp_path, plan_of(seeds=7)) == started
    for other in (plan_of(until_sure=0.5), plan_of(until_sure=None)):
        with pytest.raises(UsageError, match=r"holds a comparison with until_sure 1\.0, not"):
            check_folder(tmp_path, other)
    with pytest.raises(UsageError, match="with tuning_seeds 2, not 1"):
        check_folder(tmp_path, plan_of(tuning_seeds=1))


def test_what_breaks_a_law_or_never_finishes_gets_three_seeds_and_no_verdict():
    for changes in (
        {"plan": plan_of(broken=["S4D"])},
        {"plan": plan_of(), "failed": [("S4D", None)]},
    ):
        results, rounds = trained(**changes)
        assert ("S4D", 3) in rounds[0]
        assert all(name != "S4D" for asked in rounds[1:] for name, _ in asked)
        assert all("S4D" not in (one.better or "") for one in results.differences)
    results, rounds = trained(plan_of(broken=["LSTM"]))
    assert len(rounds) == 1
    assert not any(one.better for one in results.differences)


def test_a_candidate_with_a_failed_seed_is_judged_worse_but_never_better():
    names = ("GRU", "LSTM")
    results, _ = trained(plan_of(names, lr_trials=0), failed=[("LSTM", 2)])
    (pair,) = results.differences
    assert pair.verdict == "better"
    assert pair.better is None
    assert answers(results).text.endswith("LSTM is not settled.")
    assert "failed, so its mean leaves out its worst runs" in " ".join(answers(results).doubts)
    results, _ = trained(plan_of(names, lr_trials=0), failed=[("GRU", 2)])
    assert results.differences[0].better == "LSTM"


def test_the_page_says_what_was_decided_when_and_shows_no_p_value(four):
    results, _ = four
    assert all(one.p is one.p_holm is None for one in results.differences)
    assert all(row.interval is None for row in results.candidates)
    text = answers(results).text
    assert text.startswith(
        "Against LSTM, by a margin of 1 percentage point, with up to 9 seeds: GRU is worse; "
    )
    assert "TCN and S4D are undecided. S4D is better than LSTM, by more or less than that." in text
    page = comparison_markdown(results)
    assert "## Verdicts" in page
    used = words_of(results)["GRU"][1]
    assert re.search(rf"\| GRU \| −[^|]+ \| worse \| {used} \|", page)
    assert "hold at all these rounds" in page
    assert not any(word in page for word in ("p =", "p <", "Holm"))
    assert not any(one.what == "seeds" for one in results.unmatched)


@pytest.mark.parametrize(
    ("interval", "words"), [((0.002, 0.03), "better"), ((-0.03, -0.002), "worse"), ((-0.01, 0.02), None)]
)  # fmt: skip
def test_an_undecided_candidate_that_differs_from_zero_is_said_to(four, interval, words):
    results, _ = four
    differences = [
        replace(one, interval=interval) if one.verdict == "undecided" else one
        for one in results.differences
    ]
    name = next(one.a for one in differences if one.verdict == "undecided")
    told = answers(replace(results, differences=differences)).text
    assert (f"{name} is {words} than LSTM, by more or less than that." in told) is bool(words)
    assert ("more or less" in told) is bool(words)


def test_candidates_that_compute_the_same_are_named_though_the_reference_has_more_seeds(
    monkeypatch,
):
    monkeypatch.setitem(LEVELS, "D4S", LEVELS["S4D"])  # its letters add up to the same numbers
    results, _ = trained(plan_of(("S4D", "D4S", "LSTM")))
    assert words_of(results)["D4S"][1] < len(results.by_name["S4D"].runs)
    assert any("compute the same function" in one for one in answers(results).doubts)


def test_a_reference_that_never_left_chance_is_called_so(four):
    results, _ = four
    rows = [
        replace(row, constant=row.mean) if row.name == "LSTM" else row for row in results.candidates
    ]
    told = answers(replace(results, candidates=rows)).text
    assert told.startswith("Against LSTM (near chance), by a margin of 1 percentage point, ")


def test_results_are_the_same_when_they_are_read_again(four):
    results, _ = four
    assert type(results).from_json(json.loads(json.dumps(results.to_json()))) == results


def test_too_few_examples_are_said_after_three_seeds_with_the_margin_that_they_allow(caplog):
    results, _ = trained(plan_of(("LSTM", "TCN"), until_sure=0.1))
    assert "so no number of seeds shows a difference to be within 0.1" in caplog.text
    assert "that takes a margin above" in comparison_markdown(results)
    trained(plan_of(("LSTM", "GRU"), until_sure=1.0))  # one that is decided needs no equality
    assert caplog.text.count("that takes a margin above") == 1


def test_names_with_braces_are_written_as_they_are(four):
    results, _ = four
    name = "mixer={type: Mamba, num_states: 8}"
    rows = [replace(row, name=name) if row.name == "LSTM" else row for row in results.candidates]
    pairs = [replace(one, b=name) for one in results.differences]
    assert (
        f"Against {name}, by" in answers(replace(results, candidates=rows, differences=pairs)).text
    )


def test_settings_of_a_margin_that_mean_nothing_are_refused():
    for wrong, fact in (
        ({"until_sure": 0.0}, "--until-sure is 0"),
        ({"until_sure": -1.0}, "--until-sure is -1"),
        ({"until_sure": float("nan")}, "--until-sure is nan"),
        ({"until_sure": float("inf")}, "--until-sure is inf"),
        ({"until_sure": 1.0, "seeds": 2}, "--seeds is 2; give 3 or more"),
    ):
        with pytest.raises(UsageError, match=fact):
            plan_of(**wrong)


@pytest.mark.parametrize(
    ("words", "seeds"),
    [([], 3), (["--until-sure", "1"], MOST_SEEDS), (["--until-sure", "0.5", "--seeds", "7"], 7)],
)
def test_seeds_are_three_or_twenty_at_most_and_the_command_asks_for_the_same(words, seeds):
    args, args.overrides = parser().parse_known_args(["compare", "image/digits", *words])
    settings = _settings(args)
    assert settings.seeds == seeds
    again, again.overrides = parser().parse_known_args(shlex.split(settings.command())[1:])
    assert _settings(again) == settings


@pytest.mark.slow
def test_a_dry_run_says_that_the_number_of_runs_is_the_most(capsys, tmp_path):
    words = [
        "image/digits",
        "--preset",
        "debug",
        "--backbones",
        "LSTM,GRU",
        "--lr-trials",
        "0",
        "--no-depths",
    ]
    assert main(["compare", *words, "--until-sure", "2", "--dry-run", "--out", str(tmp_path)]) == 0
    assert "up to 41 runs" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_comparison_with_a_margin_runs_and_goes_on(tmp_path):
    words = {**SMALL, "seeds": 3, "until_sure": 90.0, "out": tmp_path / "c"}
    results = compare("image/digits", ["LSTM", "GRU"], **words)
    assert [len(row.runs) for row in results.candidates] == [3, 3]
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "c" / "cells").glob("**/*.json")}
    more = compare("image/digits", ["LSTM", "GRU"], **{**words, "seeds": 4})
    assert cells.items() <= {path: path.stat().st_mtime_ns for path in cells}.items()
    kept = read_results(tmp_path / "c" / "results.json")
    assert kept == more
    assert "--until-sure 90.0" in kept.commands[0]
