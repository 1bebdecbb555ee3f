"""Prediction intervals of a regression hold their share of new examples, and are where a user looks for them."""

import csv
import io
import json
import math

import numpy as np
import pytest
import torch

import seqkit
from seqkit.cli.main import main
from seqkit.errors import DataError
from seqkit.objectives import Regress
from seqkit.report.page import write_report
from seqkit.runs.intervals import conformal_quantile, half_widths, intervals, told
from seqkit.runs.summary import Interval, read_summary

QUICK = {"trainer.enable_progress_bar": False, "trainer.accelerator": "cpu"}


@pytest.mark.parametrize("n", [9, 23, 47])
def test_the_interval_holds_its_share_of_exchangeable_examples(n):
    """The theorem: the share is ceil((n + 1) · 0.9) / (n + 1), whatever the errors are distributed like."""
    draws, generator = 2_000, torch.Generator().manual_seed(n)
    errors = torch.distributions.Pareto(1.0, 1.3).icdf(
        torch.rand(draws, n + 1, generator=generator)
    )
    held = sum(
        bool(new <= conformal_quantile(known)) for known, new in zip(errors[:, :n], errors[:, n])
    )
    share = math.ceil((n + 1) * 9 / 10) / (n + 1)
    assert share >= 0.9
    assert held / draws == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / draws))


def test_the_quantile_is_the_smallest_error_that_is_large_enough():
    """The 45th of 49 errors, so that a rounding of 50 · 0.9 would show; of 8, none is large enough."""
    assert conformal_quantile(torch.arange(49.0).flip(0)) == 44
    with pytest.raises(ValueError, match="8 errors"):
        conformal_quantile(torch.arange(8.0))


def test_errors_are_in_the_unit_of_each_target_and_unknown_targets_have_none():
    objective = Regress()
    objective.fit([[0.0, 10.0], [2.0, 50.0]], None)
    prediction, target = (
        torch.tensor([[0.0, 1.0], [3.0, torch.inf]]),
        torch.tensor([[1.5, math.nan], [1.0, 30.0]]),
    )
    torch.testing.assert_close(
        objective.absolute_errors(prediction, target),
        torch.tensor([[0.5, math.nan], [3.0, math.inf]]),
        equal_nan=True,
    )


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ([], "the test split has 0 examples with a known target"),
        (
            [torch.ones(40), torch.ones(19)],
            "has 19 examples with a known target, and 20 are needed",
        ),
        ([torch.full((40,), torch.inf)] * 2, "not finite"),
    ],
)
def test_why_a_run_has_no_intervals_is_said(errors, reason, caplog):
    assert intervals(errors, []) == []
    assert caplog.messages[0].startswith("no prediction intervals: ")
    assert reason in caplog.text


def test_the_line_names_each_of_several_targets_and_the_rows_that_it_is_from():
    errors = torch.arange(1.0, 30.0)  # the 27th of 29
    assert told({"intervals": intervals([errors], [])}) == (
        "90 % of predictions are within ± 27 of the target, from 29 test examples"
    )
    assert told({"intervals": intervals([errors, errors / 8], ["logS", "logP"])}) == (
        "90 % of predictions are within ± 27 of logS, ± 3.375 of logP, from 29 test examples"
    )
    steps = [errors * step for step in range(1, 10)]
    assert told({"intervals": intervals(steps, [])}) == (
        "90 % of predictions are within ± 27 (the narrowest of 9 targets) to ± 243 (the widest), from 29 test examples"
    )
    assert told({"metrics": {}}) is None
    older = {"half_width": 2.0, "num_valid": 40, "test_coverage": 0.8, "num_test": 55}
    assert told({"intervals": [older]}) == (
        "90 % of predictions are within ± 2 of the target, from 40 validation examples, which chose the weights, too"
    )


@pytest.mark.parametrize("n", [20, 60, 200])
def test_intervals_hold_their_share_though_validation_rows_chose_the_epoch(n):
    """Of 60 epochs with independent errors, the worst case; rows of the same number that chose it hold less."""
    random = torch.Generator().manual_seed(n)
    held = {"test": [], "valid": []}
    for _ in range(300):
        scale = 1 + 0.1 * torch.rand(60, generator=random)
        valid, test = (
            scale[:, None] * torch.randn(60, n, generator=random).abs() for _ in range(2)
        )
        best = valid.square().mean(dim=1).argmin()
        for split, errors in (("valid", valid), ("test", test)):
            width = conformal_quantile(errors[best])
            share = torch.erf(torch.tensor(width / float(scale[best]) / 2**0.5))
            held[split].append(float(share))
    mean = {split: float(np.mean(shares)) for split, shares in held.items()}
    assert 0.89 < mean["test"] < 0.93
    assert mean["valid"] < mean["test"] - (0.005 if n == 200 else 0.03)


def test_intervals_of_another_run_are_refused():
    objective = Regress()
    objective.fit([0.0, 1.0], None)
    with pytest.raises(DataError, match="other targets"):
        half_widths(objective, [Interval(half_width=1.0, num_test=40)] * 2)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("intervals") / "own.csv"
    lines = [
        f"{'C' * length}O,{length + rng.normal():.3f},{10 * length}"
        for length in rng.integers(1, 9, 240)
    ]
    path.write_text("\n".join(["smiles,length,other", *lines]), encoding="utf-8")
    return path


def fitted(table, out, **more):
    keys = {key.replace("__", "."): value for key, value in more.items()}
    given = {**QUICK, "data": str(table), "data.target": "length", "trainer.max_epochs": 1, **keys}
    return seqkit.fit(
        "graph/molecules", given, preset="debug", out=out, report=False, classical="off"
    )


@pytest.mark.slow
def test_a_run_says_how_far_its_predictions_are_and_gives_low_and_high_beside_each(
    table, tmp_path, capsys
):
    trained = fitted(table, tmp_path / "run", data__valid_fraction=0.2)
    (known,) = read_summary(trained.folder)["intervals"]
    assert main(["predict", str(trained.folder), "--test", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    columns = ["name", "target", "prediction", "low", "high", "error", "warning"]
    assert list(rows[0]) == columns
    target, prediction, low, high = (
        [float(row[key]) for row in rows] for key in ("target", "prediction", "low", "high")
    )
    assert low == pytest.approx([x - known["half_width"] for x in prediction], abs=1e-5)
    assert high == pytest.approx([x + known["half_width"] for x in prediction], abs=1e-5)
    held = [a - 1e-5 <= x <= b + 1e-5 for a, x, b in zip(low, target, high)]
    assert sum(held) == math.ceil(0.9 * (len(held) + 1))
    assert known["num_test"] == trained.summary["num_test"] == len(rows)
    line = told(trained.summary)
    assert line[1:] in write_report(trained.folder).read_text(encoding="utf-8")
    assert main(["predict", str(trained.folder), "CCO", "no molecule", "--format", "jsonl"]) == 3
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    columns.remove("target")
    assert list(first) == list(second) == columns
    assert first["error"] is second["prediction"] is None


@pytest.mark.slow
def test_several_targets_have_an_interval_each_and_a_server_gives_them(table, tmp_path, capsys):
    pytest.importorskip("litserve")
    from seqkit.serve.answers import ServedRun

    trained = fitted(
        table, tmp_path / "run", data__valid_fraction=0.2, data__target=["length", "other"]
    )
    known = trained.summary["intervals"]
    assert [one["target"] for one in known] == ["length", "other"]
    assert main(["predict", str(trained.folder), "CCO", "--format", "jsonl"]) == 0
    entry = json.loads(capsys.readouterr().out)
    for one in known:
        ends = [entry[one["target"] + end] for end in (" low", "", " high")]
        assert np.diff(ends) == pytest.approx([one["half_width"]] * 2, rel=1e-3)
    (answer,) = ServedRun(trained, 30.0).answers([("predict", "CCO")])
    for key, end in (("low", " low"), ("prediction", ""), ("high", " high")):
        assert answer[key] == pytest.approx(
            {name: entry[name + end] for name in ("length", "other")}, rel=1e-4
        )


def test_numbers_for_each_token_get_no_interval():
    from seqkit.runs.intervals import has_intervals

    assert has_intervals(Regress())
    assert not has_intervals(Regress(level="token"))
