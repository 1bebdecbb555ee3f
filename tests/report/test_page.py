"""The report of a run: one file, nothing from outside, everything in it."""

import csv
import hashlib
import json
import re
import shutil

import pytest
import torch
from pages import Page

from seqkit.errors import DataError, UsageError
from seqkit.report.modality import find_renderer
from seqkit.report.page import write_overview, write_report
from seqkit.tokenizers import Bytes

KINDS = {
    "classify": "Confusion matrix",
    "nodes": "Confusion matrix",
    "regress": "Predictions and targets",
    "next token": "Sample",
    "masked ids": "Masked and predicted",
    "masked vectors": "Masked and predicted",
}


@pytest.fixture
def copy(trained, tmp_path):
    """A run's folder that a test may change."""
    return lambda kind: shutil.copytree(trained(kind), tmp_path / "run")


def change(folder, name, text):
    """Another content of a run's config.yaml or state.json, and the SHA-256 of it in the summary."""
    (path,) = folder.glob(f"{name}.*")
    path.write_text(text, encoding="utf-8")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary[f"{name}_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_one_well_formed_file_that_fetches_nothing(reported, kind):
    text = reported(kind)
    page = Page(text)
    assert not page.open
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in page.addresses)
    assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search(r"@import|url\((?!#)", text)
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(("kind", "heading"), KINDS.items())
def test_a_report_has_curves_and_the_samples_of_its_objective(reported, kind, heading):
    page = Page(reported(kind))
    assert {"Learning curves", heading, "Test metrics"} <= set(page.headings)
    assert "No samples of the data" not in page.text


def test_a_report_shows_every_metric_beside_the_baseline(trained, reported):
    folder = trained("regress")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    page = Page(reported("regress"))
    rows = [page.cells[i : i + 3] for i in range(len(page.cells))]
    for name, value in summary["metrics"].items():
        assert [name, f"{value:.3f}", f"{summary['baseline'][name]:.3f}"] in rows
    assert ["torch", summary["versions"]["torch"]] in [row[:2] for row in rows]
    assert (folder / "config.yaml").read_text(encoding="utf-8").strip() in page.text


def test_the_confusion_matrix_agrees_with_the_measured_accuracy(trained, reported):
    folder = trained("classify")
    page = Page(reported("classify"))
    right, total = map(int, re.search(r"(\d+) of (\d+) test examples are right", page.text).groups())
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert total == 37
    assert right / total == pytest.approx(summary["metrics"]["accuracy"], abs=1e-6)


def test_a_report_says_that_a_limit_cut_the_test_split(trained, reported):
    summary = json.loads((trained("classify") / "summary.json").read_text(encoding="utf-8"))
    assert (summary["limit"], summary["num_test"]) == (37, 37)
    assert "Measured on 37 examples only: data.limit=37." in Page(reported("classify")).text
    summary = json.loads((trained("nodes") / "summary.json").read_text(encoding="utf-8"))
    assert "limit" not in summary
    assert "Measured on" not in Page(reported("nodes")).text


def test_without_its_data_a_report_says_so_and_shows_the_rest(copy):
    folder = copy("next token")
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    change(folder, "config", re.sub(r"path: .*text\.txt", "path: gone.txt", config))
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "No samples of the data: " in page.text
    assert "gone.txt" in page.text
    assert {"Learning curves", "Sample"} <= set(page.headings)


def test_without_metrics_csv_there_are_no_curves(copy):
    folder = copy("classify")
    (folder / "metrics.csv").unlink()
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "Learning curves" not in page.headings


def test_names_from_data_are_text_in_the_page(copy):
    folder = copy("classify")
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    state["objective"]["names"][3] = "<img src=x>"
    change(folder, "state", json.dumps(state))
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    (folder / "summary.json").write_text(json.dumps(summary | {"recipe": "<b>bold</b>"}), encoding="utf-8")
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "<img src=x>" in page.text
    assert "img" not in page.tags
    assert "<b>bold</b>" in page.text


def test_a_report_leaves_the_random_state_alone(trained):
    folder, before = trained("masked ids"), torch.get_rng_state()
    write_report(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"no config\.yaml"):
        write_report(tmp_path)


def test_damaged_weights_are_refused(copy):
    folder = copy("classify")
    weights = folder / "checkpoints" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(DataError, match="damaged"):
        write_report(folder)


def test_an_overview_holds_each_run_and_the_failures(trained, tmp_path):
    folders = [trained("classify"), trained("regress")]
    path = write_overview(folders, tmp_path / "new" / "all.html", title="All of it", failures=["text/x: <no> data"])
    page = Page(path.read_text(encoding="utf-8"))
    assert not page.open
    assert {"All of it", "test/classify", "test/regress", "Confusion matrix", "Predictions and targets"} <= set(
        page.headings
    )
    assert "text/x: <no> data" in page.text
    assert {"#run1", "#run2"} <= set(page.addresses)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)


def test_an_overview_of_failures_alone_is_still_a_page(tmp_path):
    page = Page(write_overview([], tmp_path / "all.html", title="t", failures=["it broke"]).read_text(encoding="utf-8"))
    assert "it broke" in page.text


def test_curves_follow_metrics_csv(copy):
    folder = copy("regress")
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        columns = csv.DictReader(file).fieldnames
    assert {"step", "train/loss", "valid/loss", "valid/rmse"} <= set(columns)  # what Lightning writes and we read
    text = write_report(folder).read_text(encoding="utf-8")
    assert Page(text).text.count("optimizer steps") == 2  # losses, and the metric on validation data


def test_a_sample_of_text_continues_the_beginning_of_the_test_split(reported):
    text = "To be, or not to be: that is the question.\n" * 37  # conftest's, nine tenths of it for training
    assert f'<span class="prompt">{text[int(0.9 * len(text)) :][:18]}</span>' in reported(
        "next token"
    )  # a window of 17


def test_masked_tokens_are_shown_of_the_first_test_examples(reported):
    renderer = find_renderer(Bytes())
    text = "To be, or not to be: that is the question.\n" * 37
    cut, shown = int(0.9 * len(text)), Page(reported("masked ids")).text
    for at in (cut, cut + 17, cut + 34):  # the shortest window is the last
        assert "".join(renderer.pieces(Bytes().encode(text[at : at + 18]))) in shown
