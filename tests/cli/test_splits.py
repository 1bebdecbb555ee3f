"""`seqkit fit --splits N`."""

import json
import sys

import pytest

from seqkit.cli.main import main
from seqkit.cli.splits import answer, common_cautions, explained, gathered
from seqkit.files import read_mapping
from seqkit.registry import lookup


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    rows = [f"word{i} hello,a\nwurd{i} bye,b" for i in range(20)]
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    return path


def words(path, out, *more):
    return ["fit", "text/classify", "--preset", "debug", "--data", str(path), "--out", str(out), *more]


def test_each_split_has_its_own_test_rows_and_the_same_command_goes_on(tmp_path, reviews, capsys):
    out = tmp_path / "out"
    assert main(words(reviews, out, "--splits", "2")) == 0
    said = capsys.readouterr().out
    assert "split 2 of 2: data.seed 2, seed 3" in said
    assert "95 % interval" in said
    assert said.count("trial run") == 1
    found = read_mapping(out / "splits.json", "metrics")
    summaries = [json.loads((out / f"split-{i}" / "summary.json").read_text()) for i in (1, 2)]
    assert found["metrics"]["accuracy"]["values"] == [summary["metrics"]["accuracy"] for summary in summaries]
    constant = [summary["baseline"]["accuracy"] for summary in summaries]
    assert found["metrics"]["accuracy"]["baseline"]["values"] == constant
    assert len({summary["data_sha256"]["test"] for summary in summaries}) == 2
    before = (out / "split-1" / "summary.json").stat().st_mtime_ns
    assert main(words(reviews, out, "--splits", "3")) == 0
    assert (out / "split-1" / "summary.json").stat().st_mtime_ns == before
    assert len(read_mapping(out / "splits.json", "metrics")["metrics"]["accuracy"]["values"]) == 3
    assert main(words(reviews, out, "--splits", "2", "--model.backbone", "GRU")) != 0
    assert "split-1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("recipe", "more", "said"),
    [
        ("text/classify", ["--splits", "1"], "--splits is 1"),
        ("image/digits", ["--splits", "3"], "mnist-5k"),
        ("text/classify", ["--splits", "3", "--data.test", "{data}"], "data.test"),
        ("text/classify", ["--splits", "3", "--resume", "auto"], "--resume"),
        ("text/classify", ["--splits", "3", "--trainer.devices", "2"], "--trainer.devices 1"),
        ("mixture/four", ["--splits", "3"], "one task"),
    ],
)
def test_what_has_no_other_split_is_refused(tmp_path, reviews, capsys, recipe, more, said):
    data = ["--data", str(reviews)] if recipe == "text/classify" else []
    assert main(["fit", recipe, *data, "--out", str(tmp_path / "out"), *(x.format(data=reviews) for x in more)]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_folders_of_splits_take_no_seed(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train/a", "train/b", "test/a", "test/b"):
        (tmp_path / "texts" / name).mkdir(parents=True)
        (tmp_path / "texts" / name / "1.txt").write_text(f"a text of {name}")
    assert main(["fit", "text/classify", "--data", str(tmp_path / "texts"), "--splits", "2"]) != 0
    assert "TextFolder does not heed its seed" in capsys.readouterr().err


OWN = """
import random
from seqkit import register
from seqkit.data import DataSource, Sample, Splits


@register("data_source", "greetings")
class Greetings(DataSource):
    def __init__(self, test_fraction: float = 0.25, seed: int = 0):
        self.test_fraction, self.seed = test_fraction, seed

    def splits(self):
        samples = [Sample(f"{('hello', 'bye')[i % 2]} {i}", i % 2) for i in range(40)]
        random.Random({seed}).shuffle(samples)
        number = round(self.test_fraction * len(samples))
        return Splits(train=samples[number:], test=samples[:number], names=["in", "out"])
"""


@pytest.mark.parametrize(("seed", "code"), [("self.seed", 0), ("5", 2)])
def test_a_source_of_ones_own_is_split_anew_by_its_seed(tmp_path, capsys, monkeypatch, seed, code):
    monkeypatch.setattr(lookup, "_REGISTERED", {kind: dict(known) for kind, known in lookup._REGISTERED.items()})
    plugin = tmp_path / f"greetings_{code}.py"
    plugin.write_text(OWN.replace("{seed}", seed), encoding="utf-8")
    given = ["--data", "greetings", "--plugin", str(plugin), "--splits", "2", "--trainer.max_epochs", "1"]
    more = ["--no-baseline", "--out", str(tmp_path / "out")]
    assert main(["fit", "text/classify", "--preset", "debug", *given, *more]) == code
    said = capsys.readouterr()
    expected = "Each of the 2 splits" if code == 0 else "greetings does not heed its seed"
    assert expected in said.out + said.err
    sys.modules.pop(plugin.stem)


def summary_of(accuracy, strong, **more):
    beside = (
        {}
        if strong is None
        else {"strong_baseline": {"name": "a forest", "metrics": {"accuracy": strong}, "num_train": 240}}
    )
    metrics, baseline = {"accuracy": accuracy, "loss": 0.4}, {"accuracy": 0.85, "loss": 0.5}
    known = {"metrics": metrics, "baseline": baseline, "objective": "Classify", "num_train": 240, "num_test": 60}
    return {"main_metric": "accuracy"} | known | beside | more


@pytest.mark.parametrize(
    ("own", "theirs", "said"),
    [
        ([0.91, 0.9, 0.92], [0.8, 0.8, 0.81], "accuracy is better than that of a forest"),
        ([0.8, 0.8, 0.81], [0.91, 0.9, 0.92], "accuracy is worse than that of a forest"),
        ([0.7, 0.9, 0.8], [0.8, 0.8, 0.81], "do not tell the accuracy from that of a forest"),
        ([0.7, 0.9, 0.8], [None, 0.8, 0.81], "Each of the 3 splits"),
        ([0.9, 0.9, 0.9], [0.8, 0.8, 0.8], "do not tell the accuracy from that of a forest"),
    ],
)
def test_the_answer_is_of_the_difference_on_the_same_splits(own, theirs, said):
    results = gathered([summary_of(a, b) for a, b in zip(own, theirs, strict=True)])
    assert said in answer(results)[0]


def test_splits_of_equal_accuracy_have_the_interval_of_the_test_examples_and_an_equal_loss_has_none():
    results = gathered([summary_of(0.85, 0.9)] * 3)
    accuracy = results["metrics"]["accuracy"]
    assert accuracy["low"] < 0.75
    assert accuracy["high"] > 0.92
    assert [accuracy[key]["mean"] for key in ("baseline", "strong_baseline")] == pytest.approx([0.85, 0.9])
    for line, fact in zip(explained(results), ("constant", "a forest", "60 test examples", "same loss"), strict=True):
        assert fact in line
    assert "Nadeau" not in answer(results)[-1]


def test_what_splits_warn_of_is_said_once_for_each_kind_with_the_number_of_splits():
    shared = "sms.csv: {} of 60 test inputs are in training, too (first: sms.csv, line {}), which flatters the result"
    common = {"steps": 5000}
    summaries = [
        summary_of(0.95, None, **common),
        summary_of(0.85, None, **common, data_cautions=[shared.format(1, 7)]),
        summary_of(0.85, None, **common, data_cautions=[shared.format(2, 31)]),
    ]
    unbalanced, repeats = common_cautions(summaries)
    assert unbalanced.startswith("In 2 of 3 splits: With this seed")
    assert repeats.startswith("In 2 of 3 splits")
    assert repeats.endswith(shared.format(1, 7))
    assert common_cautions(summaries[:1]) == []


@pytest.mark.parametrize(("mode", "said"), [("max", "better"), ("min", "worse")])
def test_the_answer_is_by_the_main_metric_in_its_own_direction(mode, said):
    own = {"main_metric": "off_by_one", "main_metric_mode": mode, "num_train": 80, "num_test": 20}
    summaries = [
        {**own, "metrics": {"accuracy": 0.5, "off_by_one": 0.9 + i / 100},
         "strong_baseline": {"name": "a forest", "metrics": {"accuracy": 0.5, "off_by_one": 0.1}}}
        for i in range(3)
    ]  # fmt: skip
    assert f"off_by_one is {said} than" in answer(gathered(summaries))[0]
