"""The classical method that joins a network: the run predicts with both wherever it predicts, and from data alone."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import seqkit
from seqkit.classical.method import finite, metrics_of
from seqkit.cli.main import main
from seqkit.errors import DataError, UsageError
from seqkit.files import write_json
from seqkit.objectives import Classify
from seqkit.runs.evaluate import evaluate
from seqkit.runs.joined import FILE
from seqkit.runs.reopened import reopened
from seqkit.runs.summary import read_summary
from seqkit.runs.trained_model import load_one

pytest.importorskip("skops")

SMALL = {
    "model.backbone": "MeanPool",
    "model.backbone.dim": 8,
    "data.batch_size": 16,
    "tokenizer.vocab_size": 300,
    "trainer.max_steps": 60,
    "trainer.max_epochs": -1,
    "trainer.val_check_interval": 20,
    "trainer.check_val_every_n_epoch": None,
    "trainer.enable_progress_bar": False,
    "schedule.warmup_steps": 2,
}


def fit(path, out, target, **more):
    keys = {**SMALL, "data": str(path), "data.input": "text", "data.target": target, **more}
    if target == "height":
        keys["model.objective"] = "Regress"
    return seqkit.fit("text/classify", keys, out=out, report=False)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Texts of very different lengths, in which a word tells class and height, most of the time."""
    draw = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("texts") / "own.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "kind", "height"])
        for _ in range(320):
            tall = int(draw.integers(2))
            words = [f"w{i}" for i in draw.integers(30, size=draw.integers(2, 25))]
            words.insert(
                int(draw.integers(len(words))), ["low", "high"][tall ^ (draw.random() < 0.1)]
            )
            rows.writerow([" ".join(words), ["short", "tall"][tall], 10 * tall + draw.normal()])
    return path


@pytest.fixture(scope="module", params=["kind", pytest.param("height", marks=pytest.mark.slow)])
def run(request, table, tmp_path_factory):
    return fit(table, tmp_path_factory.mktemp("joined") / "run", request.param).folder


def texts(trained):
    data, _ = reopened(trained)
    return [sample.raw for sample in data.splits().test], data


def assert_same(found, wanted):
    """Classes are equal, numbers up to rounding: padding is other."""
    assert found == (wanted if isinstance(wanted[0], str) else pytest.approx(wanted, rel=1e-5))


def with_weights(run, place, network, classical):
    """A copy of a run in which network and method have other weights."""
    shutil.copytree(run, place)
    summary = json.loads((place / "summary.json").read_text())
    summary["joined"] |= {"network_weight": network, "classical_weight": classical}
    write_json(place / "summary.json", summary)
    return load_one(place)


def outputs(trained, raws):
    """What the network gives, and what the run gives, [m k]."""
    tokens = seqkit.interfaces.TokenBatch.collate([trained.encode(raw) for raw in raws])
    with torch.inference_mode():
        return trained.model(tokens), trained.outputs(tokens, raws)


def test_the_summary_says_what_joins_with_which_weights_and_what_each_has_alone(run):
    summary = read_summary(run)
    joined = summary.joined
    assert joined.name == summary.strong_baseline.name
    assert joined.network_weight >= 0
    assert joined.classical_weight > 0
    main = summary.main_metric
    values = [
        one[main] for one in (summary.metrics, joined.metrics, summary.strong_baseline.metrics)
    ]
    assert np.isfinite(values).all()
    for difference, other in (
        (joined.difference, values[1]),
        (summary.strong_baseline.difference, values[2]),
    ):
        assert difference[0] == pytest.approx(values[0] - other, abs=1e-3)
        assert difference[1] <= difference[0] <= difference[2]


def test_predict_evaluate_and_the_summary_agree_row_by_row(run, tmp_path):
    trained = load_one(run)
    summary = trained.summary
    raws, data = texts(trained)
    alone = [trained.predict([raw])[0] for raw in raws[:9]]
    assert_same(trained.predict(raws[:9], batch_size=4), alone)
    found = evaluate(run, "test")
    for name, value in summary.metrics.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name
    answers = trained.predict(raws)
    if summary.main_metric == "accuracy":
        labels = [data.objective.names[sample.label] for sample in data.splits().test]
        assert np.mean([a == b for a, b in zip(answers, labels)]) == pytest.approx(
            found["accuracy"]
        )
    else:
        errors = [a - sample.label for a, sample in zip(answers, data.splits().test)]
        assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(found["rmse"], rel=1e-5)
        widths = summary.intervals[0].half_width
        assert np.mean(np.abs(errors) <= widths * (1 + 1e-6)) >= 0.9
    assert main(["predict", str(run), "--test", "--out", str(tmp_path / "t.csv")]) == 0
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = [row["prediction"] for row in csv.DictReader(file)]
    if summary.main_metric == "accuracy":
        assert rows == answers
    else:
        assert [float(x) for x in rows] == pytest.approx(answers, rel=1e-4)


def test_the_server_answers_as_predict_does(run):
    pytest.importorskip("litserve")
    from seqkit.serve.answers import ServedRun

    trained = load_one(run)
    raws, _ = texts(trained)
    served = ServedRun(trained, 60.0).answers([("predict", raw) for raw in raws[:7]])
    assert_same([one["prediction"] for one in served], trained.predict(raws[:7]))


def test_weight_zero_gives_the_network_bit_for_bit_and_the_other_one_the_method(run, tmp_path):
    trained = with_weights(run, tmp_path / "network", 1.0, 0.0)
    raws, _ = texts(trained)
    network, both = outputs(trained, raws[:20])
    assert both.equal(network)
    trained = with_weights(run, tmp_path / "method", 0.0, 1.0)
    assert_close(outputs(trained, raws[:20])[1], trained.joined.member.predict(raws[:20]))
    metrics = evaluate(tmp_path / "method", "test")
    alone = trained.summary.strong_baseline.metrics
    assert metrics[trained.summary.main_metric] == pytest.approx(
        alone[trained.summary.main_metric], rel=1e-5
    )


def test_a_file_of_the_method_that_is_damaged_missing_or_foreign_is_refused(run, tmp_path):
    place = tmp_path / "run"
    shutil.copytree(run, place)
    content = (place / FILE).read_bytes()
    (place / FILE).write_bytes(content[:-5] + b"xxxxx")
    with pytest.raises(DataError, match="SHA-256"):
        load_one(place).predict(["w1 high"])
    (place / FILE).unlink()
    with pytest.raises(DataError, match=f"{FILE} is missing"):
        load_one(place).predict(["w1 high"])
    assert load_one(place).encode("w1 high"), "the network is at hand"


def test_no_input_is_blamed_for_a_damaged_file(run, tmp_path, capsys):
    place = tmp_path / "run"
    shutil.copytree(run, place)
    (place / FILE).write_bytes(b"no zip")
    out = tmp_path / "answers.csv"
    assert main(["predict", str(place), "w1 high", "w2 low", "--out", str(out)]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"seqkit predict: {place / FILE} has changed since training")
    assert said.count("\n") == 1
    assert not out.exists()


def test_on_validation_rows_to_which_the_method_was_fitted_the_network_is_measured(run, caplog):
    trained = load_one(run)
    found = evaluate(run, "valid")
    assert "of the network alone" in caplog.text
    data, _ = reopened(trained)
    network, _ = outputs(trained, [sample.raw for sample in data.splits().valid])
    target = torch.tensor([sample.label for sample in data.splits().valid])
    if trained.summary.main_metric == "rmse":
        target = target[:, None].float()
    alone = metrics_of(trained.objective, network, target)
    assert found[trained.summary.main_metric] == pytest.approx(
        alone[trained.summary.main_metric], rel=1e-4
    )


@pytest.mark.slow
def test_a_method_that_fails_is_said_where_the_result_stands(table, tmp_path, monkeypatch):
    def broken(data):
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr("seqkit.classical.strong_baseline.strong_baseline", broken)
    trained = fit(table, tmp_path / "run", "kind")
    summary = read_summary(trained.folder)
    assert summary.joined is None
    assert "no classical method: Unable to allocate 9 TiB" in summary.data_cautions
    assert summary.machine["threads"] == torch.get_num_threads()


def test_a_metric_that_is_undefined_stays_one_of_a_run():
    objective = Classify(main="AUROC")
    objective.fit([0, 1], None)
    found = metrics_of(objective, torch.randn(8, 2), torch.zeros(8, dtype=torch.long))
    assert np.isnan(found["auroc"])
    assert "auroc" not in finite(found)


def test_a_run_that_was_stopped_after_training_is_tested_with_its_method(run, tmp_path):
    place = tmp_path / "run"
    shutil.copytree(run, place)
    whole = read_summary(place)
    summary = json.loads((place / "summary.json").read_text())
    for key in ("strong_baseline", "intervals", "main_interval"):
        summary.pop(key, None)
    summary["joined"] = {
        key: x for key, x in summary["joined"].items() if key not in ("metrics", "difference")
    }
    write_json(place / "summary.json", summary | {"state": "trained", "metrics": {}})
    assert main(["evaluate", str(place)]) == 0
    again = read_summary(place)
    assert again.metrics == pytest.approx(whole.metrics)
    assert again.joined == whole.joined
    assert again.strong_baseline.metrics == pytest.approx(whole.strong_baseline.metrics)


@pytest.mark.slow
def test_the_method_stands_beside_or_is_off_where_that_is_said(table, tmp_path):
    beside = fit(table, tmp_path / "beside", "kind", classical="beside")
    off = fit(table, tmp_path / "off", "kind", classical="off")
    assert beside.summary.joined is None
    assert off.summary.joined is None
    assert beside.summary.strong_baseline.difference is not None
    assert off.summary.strong_baseline is None
    assert not (beside.folder / FILE).exists()
    assert beside.summary.metrics == off.summary.metrics


def test_the_network_trains_as_it_does_alone(run, table, tmp_path):
    summary = read_summary(run)
    target = "kind" if summary.main_metric == "accuracy" else "height"
    alone = fit(table, tmp_path / "alone", target, classical="off")
    assert alone.summary.metrics == pytest.approx(summary.joined.metrics)
    assert alone.summary.sha256 == summary.sha256


def test_a_comparison_refuses_it(table, tmp_path, capsys):
    words = [
        "--data",
        str(table),
        "--data.input",
        "text",
        "--data.target",
        "kind",
        "--classical",
        "join",
    ]
    words += ["--backbones", "MeanPool,LSTM", "--out", str(tmp_path / "c")]
    assert main(["compare", "text/classify", *words]) == 2
    assert "leave out --classical" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["yes", "true"])
def test_another_value_is_refused_by_name(table, tmp_path, key):
    with pytest.raises(UsageError, match="classical"):
        fit(table, tmp_path / "run", "kind", classical=key)


def test_what_is_of_the_network_alone_says_so(run, tmp_path, capsys):
    assert main(["export", str(run), "--to", "torch", "--out", str(tmp_path / "m.pt2")]) == 0
    assert "network alone" in capsys.readouterr().out


def test_a_folder_to_publish_holds_the_method(run, tmp_path):
    assert main(["export", str(run), "--to", "safetensors", "--out", str(tmp_path / "out")]) == 0
    raws = ["w3 high w4", "low"]
    assert load_one(tmp_path / "out").predict(raws) == load_one(run).predict(raws)
