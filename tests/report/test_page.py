"""The report of a run: one file, nothing from outside, everything in it."""

import csv
import hashlib
import io
import json
import logging
import math
import re
import shutil
import wave
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest
import torch
from browser_checks import VIEWS, faults
from pages import Page

import seqkit
from seqkit.data import Table
from seqkit.files import read_mapping, write_json
from seqkit.interfaces import LossOutput
from seqkit.objectives import MultiLabel
from seqkit.objectives.metric import find_metric
from seqkit.report import page
from seqkit.report.modality import find_renderer
from seqkit.report.modality.audio import MAX_SECONDS
from seqkit.report.page import _collect, _data, write_overview, write_report
from seqkit.report.samples.by_objective import samples
from seqkit.report.samples.classes import MAX_CLASSES, _by_class, class_sections
from seqkit.report.samples.picker import NUM_SHOWN, Picker, _rows
from seqkit.report.samples.section import Shown
from seqkit.report.templates import write_page
from seqkit.runs.trained_model import load_one
from seqkit.tokenizers import Bytes

KINDS = {
    "classify": "Confusion matrix",
    "nodes": "Confusion matrix",
    "regress": "Predictions and targets",
    "forecast": "Forecasts",
    "next token": "Sample",
    "masked ids": "Masked and predicted",
    "masked vectors": "Masked and predicted",
    "sounds": "Confusion matrix",
    "retrieval": "Nearest examples: image → word",
}


@pytest.fixture
def copy(trained, tmp_path, undrawn):
    """A run's folder that a test may change; figures of its page are empty."""
    return lambda kind: shutil.copytree(trained(kind), tmp_path / "run")


def change(folder, name, text):
    """Another content of a run's config.yaml or state.json, and the SHA-256 of it in the summary."""
    (path,) = folder.glob(f"{name}.*")
    path.write_text(text, encoding="utf-8")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary[f"{name}_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.slow if kind == "retrieval" else ()) for kind in KINDS],
)
def test_a_report_is_one_well_formed_file_that_fetches_nothing(reported, kind):
    text = reported(kind)
    page = Page(text)
    assert not page.open
    assert all(
        re.match(r"#|data:(image/png|audio/wav);base64,", address) for address in page.addresses
    )
    assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search(r"@import|url\((?!#)", text)
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(("kind", "heading"), KINDS.items())
def test_a_report_has_curves_and_the_samples_of_its_objective(reported, kind, heading):
    page = Page(reported(kind))
    assert {"Learning curves", heading, "Other test metrics"} <= set(page.headings)
    assert "The data cannot be read" not in page.text


def test_a_report_shows_every_metric_beside_the_baseline(trained, reported):
    folder = trained("regress")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    page = Page(reported("regress"))
    rows = [page.cells[i : i + 3] for i in range(len(page.cells))]
    shown = {
        find_metric(name).words: (f"{value:.3f}", f"{summary['baseline'][name]:.3f}")
        for name, value in summary["metrics"].items()
    }
    tiles = re.findall(r'<div class="tile[^"]*"><b>(.*?)</b><span>(.*?)</span>', page.source)
    value, constant = shown.pop("RMSE")
    low, high = summary["main_interval"]
    said = f"test RMSE, 95&nbsp;% interval [{low:.3f}, {high:.3f}]"
    assert tiles[:2] == [(value, said), (constant, "the constant that is best in training")]
    assert low < summary["metrics"]["rmse"] < high
    assert {name for name in shown if [name, *shown[name]] in rows} == set(shown), (
        "nothing is said twice"
    )
    assert ["torch", summary["versions"]["torch"]] in [row[:2] for row in rows]
    assert (folder / "config.yaml").read_text(encoding="utf-8").strip() in page.text


def test_the_confusion_matrix_agrees_with_the_measured_accuracy(trained, reported):
    folder = trained("classify")
    page = Page(reported("classify"))
    right, total = map(
        int, re.search(r"(\d+) of (\d+) test examples are right", page.text).groups()
    )
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert total == 37
    assert right / total == pytest.approx(summary["metrics"]["accuracy"], abs=1e-6)


def test_a_run_on_one_graph_counts_its_nodes_and_draws_the_answers(reported):
    page = Page(reported("nodes"))
    assert re.search(r"\d+ training, \d+ test nodes of one example", page.text)
    right, total = map(int, re.search(r"(\d+) of (\d+) test nodes are right", page.text).groups())
    wrong = total - right
    legend = dict(re.findall(r">([^<>]+) \((\d+)\)<", page.source))
    assert int(legend.pop("wrong")) == wrong
    legend.pop("not a test node")
    assert sum(map(int, legend.values())) == total
    assert f"of {wrong} wrong nodes" in page.text
    table = page.source.partition("<th>node</th>")[2].partition("</table>")[0]
    assert table.count("<tr><td") == min(wrong, 20)


def test_wrongly_classified_images_have_captions(copy):
    folder = copy("classify")
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    state["objective"]["names"] = [
        f"a class with a name of many words, number {i}" for i in range(10)
    ]
    change(folder, "state", json.dumps(state))
    path = write_report(folder)
    page = Page(path.read_text(encoding="utf-8"))
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page.source)
    assert len(captions) == NUM_SHOWN
    assert all(
        re.search(r"number \d \(\d+ %\), not .* number \d<small>sample \d+<", caption)
        for caption in captions
    )


@pytest.mark.parametrize(
    ("digest", "said"),
    [
        ("2:" + "0" * 64, "has changed"),
        (None, "is still the same"),
        ("1:" + "0" * 64, "is still the same"),
    ],
)
def test_no_examples_are_drawn_of_data_that_is_not_known_to_be_the_runs(copy, digest, said):
    folder = copy("classify")
    summary = read_mapping(folder / "summary.json")
    summary["data_sha256"]["test"] = digest
    del summary["versions"]["seqkit"]  # which is not known either
    if digest is None:
        del summary["data_sha256"]["test"]
    write_json(folder / "summary.json", summary)
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert said in page.text
    assert "so no examples are shown" in page.text
    assert "Confusion matrix" not in page.headings


def test_without_its_data_a_report_says_so_and_shows_the_rest(copy):
    folder = copy("next token")
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    change(folder, "config", re.sub(r"path: .*text\.txt", "path: gone.txt", config))
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "The data cannot be read, so no examples are shown: " in page.text
    assert "gone.txt" in page.text
    assert "Learning curves" in page.headings
    assert "Sample" not in page.headings


def test_without_metrics_csv_there_are_no_curves(copy):
    folder = copy("classify")
    (folder / "metrics.csv").unlink()
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "Learning curves" not in page.headings


@pytest.mark.slow
def test_names_from_data_are_text_in_the_page(copy):
    folder = copy("classify")
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    state["objective"]["names"][3] = "<img src=x>"
    change(folder, "state", json.dumps(state))
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    (folder / "summary.json").write_text(
        json.dumps(summary | {"recipe": "<b>bold</b>"}), encoding="utf-8"
    )
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "<img src=x>" in page.text
    assert "img" not in page.tags
    assert "<b>bold</b>" in page.text


@pytest.mark.usefixtures("undrawn")
def test_a_report_leaves_the_random_state_alone(trained):
    folder, before = trained("masked ids"), torch.get_rng_state()
    write_report(folder)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("undrawn")
def test_an_overview_holds_each_run(trained, tmp_path):
    folders = [trained("classify"), trained("regress")]
    path = write_overview(folders, tmp_path / "new" / "all.html", title="All of it")
    page = Page(path.read_text(encoding="utf-8"))
    assert page.cells[0].startswith("digits · Transformertest/classify")
    assert "%accuracy[" in page.cells[1], "a result stands right behind its data, with its interval"
    assert not page.open
    assert {"All of it", "Confusion matrix", "Predictions and targets"} <= set(page.headings)
    assert all(str(folder) in page.text for folder in folders)
    assert {"#run1", "#run2"} <= set(page.addresses)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)


@pytest.mark.usefixtures("undrawn")
def test_an_overview_of_one_run_is_its_report(trained, reported, tmp_path):
    page = Page(
        write_overview([trained("classify")], tmp_path / "one.html", title="All").read_text(
            encoding="utf-8"
        )
    )
    assert page.headings == Page(reported("classify")).headings


def test_a_report_of_two_classes_names_the_positive_one(copy):
    folder = copy("nodes")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    assert summary["positive"] == state["objective"]["names"][state["objective"]["positive"]]
    summary["positive"] = "b<i>"
    summary["metrics"]["average_precision"] = 0.287
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "average precision of b<i>" in page.cells


def test_labels_have_their_names_and_each_its_auroc(monkeypatch):
    label = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, torch.nan], [0.0, 0.0]])
    prediction = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    objective = MultiLabel()
    objective.fit(label.nan_to_num().tolist(), ["toxic", "irritant"])
    output = LossOutput(torch.tensor(0.0), torch.tensor(1), prediction=prediction)
    monkeypatch.setattr(
        "seqkit.report.samples.picker.Picker.outputs", lambda *_: [([0, 1, 2, 3], label, output)]
    )
    (section,) = samples(objective, Picker(None, None))
    assert section.rows == [("toxic", "4", "2", "0.750"), ("irritant", "3", "0", "–")]


def test_curves_follow_metrics_csv(trained, reported):
    folder = trained("regress")
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        columns = csv.DictReader(file).fieldnames
    # what Lightning writes and we read
    assert {"step", "train/loss", "valid/loss", "valid/rmse"} <= set(columns)
    # losses, and the metric on validation data
    assert Page(reported("regress")).text.count("optimizer steps") == 2


def test_a_sample_of_text_continues_the_beginning_of_the_test_split(reported):
    # conftest's, nine tenths of it for training
    text = "To be, or not to be: that is the question.\n" * 37
    assert f'<span class="prompt">{text[int(0.9 * len(text)) :][:18]}</span>' in reported(
        "next token"
    )  # a window of 17


def test_masked_tokens_are_shown_of_the_first_test_examples(reported):
    renderer = find_renderer(Bytes())
    text = "To be, or not to be: that is the question.\n" * 37
    cut, shown = int(0.9 * len(text)), Page(reported("masked ids")).text
    for at in (cut, cut + 17, cut + 34):  # the shortest window is the last
        assert "".join(renderer.pieces(Bytes().encode(text[at : at + 18]))) in shown


def test_the_title_is_the_name_of_the_data_with_date_and_counts(trained, reported):
    summary = json.loads((trained("regress") / "summary.json").read_text(encoding="utf-8"))
    page = Page(reported("regress"))
    assert page.headings[0] == "molecules.csv · Transformer"
    counts = f"{summary['num_train']} training, {summary['num_valid']} validation, {summary['num_test']} test examples"
    assert (
        f"test/regress · predicts target · {summary['date'][:16].replace('T', ' ')} · {counts} · "
        in page.text
    )
    assert Page(reported("classify")).headings[0] == "digits · Transformer"


def test_what_training_said_of_the_data_is_not_said_again(trained, monkeypatch, caplog):
    read, log = Table.splits, logging.getLogger("seqkit")

    def read_aloud(self):
        log.warning("a fifth of the rows is test")
        return read(self)

    folder = trained("regress")  # it may be trained here, and then says other things
    caplog.clear()
    monkeypatch.setattr(Table, "splits", read_aloud)
    write_report(folder)
    assert not caplog.messages
    log.warning("heard again")
    assert caplog.messages == ["heard again"]


def test_each_class_has_its_support_precision_recall_and_f1(trained, reported):
    summary = json.loads((trained("classify") / "summary.json").read_text(encoding="utf-8"))
    cells = Page(reported("classify")).cells
    end = cells.index("mean (macro)")
    rows = {cells[i]: cells[i + 1 : i + 5] for i in range(0, end + 1, 5)}
    assert (
        sum(int(rows[str(c)][0]) for c in range(10) if str(c) in rows)
        == int(rows["mean (macro)"][0])
        == 37
    )
    assert rows["mean (macro)"][3] == f"{100 * summary['metrics']['macro_f1']:.2f} %"


def test_a_page_says_where_one_class_is_all_that_is_predicted():
    matrix, _ = class_sections(np.array([[0, 3], [0, 4]]), ["a", "b"], "examples")
    assert matrix.note.startswith("All 7 predictions are b. 4 of 7 test examples are right.")
    matrix, _ = class_sections(np.array([[1, 2], [0, 4]]), ["a", "b"], "examples")
    assert matrix.note.startswith("5 of 7")


def test_columns_of_rows_with_gaps_stand_as_in_the_table():
    rows = [
        Shown("1", cells=[("a", "1"), ("c", "3")]),
        Shown("2", cells=[("a", "1"), ("b", "2"), ("c", "3")]),
    ]
    assert _rows("", "", rows).columns == ("prediction", "a", "b", "c", "from")


def test_the_table_of_classes_counts_as_one_does_by_hand():
    counts = np.array([[3, 1, 0], [2, 4, 0], [0, 0, 0]])
    section = _by_class(counts, ["a", "b", "never"])
    assert section.rows == [
        ("a", "4", "60.00 %", "75.00 %", "66.67 %"),
        ("b", "6", "80.00 %", "66.67 %", "72.73 %"),
        ("mean (macro)", "10", "70.00 %", "70.83 %", "69.70 %"),
    ]
    many = _by_class(
        np.eye(MAX_CLASSES + 2, dtype=int)[:, ::-1], [str(i) for i in range(MAX_CLASSES + 2)]
    )
    assert len(many.rows) == MAX_CLASSES
    assert f"{MAX_CLASSES} classes with the lowest F1, of {MAX_CLASSES + 2}." in many.note


def test_a_task_of_a_mixture_is_evaluated_and_drawn_once(trained, tmp_path, monkeypatch, undrawn):
    tasks = {kind: trained(kind) for kind in ("classify", "regress")}
    collected, collect = [], page._collect
    monkeypatch.setattr(page, "task_folders", lambda folder: tasks if folder == tmp_path else {})
    monkeypatch.setattr(
        page, "_collect", lambda folder, _: collected.append(folder) or collect(folder, None)
    )
    summary = (tasks["classify"] / "summary.json").read_text(encoding="utf-8")
    (tmp_path / "summary.json").write_text(summary, encoding="utf-8")
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert collected == list(tasks.values())
    assert "Confusion matrix" in text
    assert "Predictions and targets" in text
    assert all(
        "· 2 tasks" not in (folder / "report.html").read_text(encoding="utf-8")
        for folder in tasks.values()
    )


@pytest.mark.slow
def test_a_translation_shows_source_output_and_references_and_tags_show_each_word(trained_on):
    pairs = "source\ttarget\n" + "\n".join(f"day {i}\tTag {i}" for i in range(23))
    tags = "\n".join(json.dumps({"tokens": ["a", "cat"], "tags": ["D", "N"]}) for _ in range(23))
    page = Page(trained_on("text/translate", "pairs.tsv", pairs))
    assert "Generated" in page.headings
    assert re.search(r"day \d+\n.*\nTag \d+", page.text)
    page = Page(trained_on("text/tag", "tags.jsonl", tags))
    assert "First test examples" in page.headings
    assert re.search(r"a/(D|N, not D) cat/(N|D, not N) ", page.text)


@pytest.fixture
def trained_on(tmp_path, undrawn):
    """(recipe, name, content) → the page of a run of it on that file."""

    def train(recipe, name, content):
        (tmp_path / name).write_text(content, encoding="utf-8")
        quick = {
            "trainer.enable_progress_bar": False,
            "trainer.accelerator": "cpu",
            "data": str(tmp_path / name),
        }
        run = seqkit.fit(recipe, quick, preset="debug", out=tmp_path / recipe)
        return (run.folder / "report.html").read_text(encoding="utf-8")

    return train


def test_bits_per_byte_are_the_loss_of_all_predictions_over_the_bytes_of_the_test_split(trained):
    summary = json.loads((trained("next token") / "summary.json").read_text(encoding="utf-8"))
    text = "To be, or not to be: that is the question.\n" * 37
    num_bytes = len(text) - int(0.9 * len(text))
    for found in (summary["metrics"], summary["baseline"]):
        bits = found["loss"] / math.log(2) * (num_bytes - 1)  # the first character is not predicted
        assert found["bits_per_byte"] == pytest.approx(bits / num_bytes, rel=1e-5)
        assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-4)


# ── in a browser ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "width", "scheme"),
    [
        ("classify", *VIEWS[0]),
        ("next token", *VIEWS[1]),
        ("sounds", *VIEWS[1]),
        ("retrieval", *VIEWS[0]),
    ],
)
def test_a_browser_shows_a_report_without_faults(browser, trained, reported, kind, width, scheme):
    reported(kind)
    assert faults(browser, trained(kind) / "report.html", width, scheme) == []


@pytest.mark.slow
def test_a_browser_shows_an_overview_without_faults(browser, trained, tmp_path):
    overview = write_overview(
        [trained(kind) for kind in ("classify", "regress")], tmp_path / "all.html", title="All"
    )
    assert faults(browser, overview, *VIEWS[1]) == []


@pytest.mark.slow
@pytest.mark.parametrize("k", [10, 100])
def test_a_browser_shows_confusion_matrices_of_any_size_without_faults(
    browser, trained, reported, tmp_path, k
):
    """The class sections of a report are those of k classes with long names; each name can be told from the others."""
    counts = np.random.default_rng(k).integers(0, 7, (k, k)) + 53 * np.eye(k, dtype=np.int64)
    names = [f"Lepidoptera papilionidae, species number {i}" for i in range(k)]
    run = _collect(trained("classify")) | {"sections": class_sections(counts, names, "examples")}
    path = write_page(
        "page.html", tmp_path / "page.html", title="classes", subtitle="test", runs=[run]
    )
    for width, scheme in VIEWS:
        assert faults(browser, path, width, scheme) == []
        sizes = browser.evaluate(
            "[...document.querySelectorAll('.sections svg')].flatMap(one => [...one.querySelectorAll('text')])"
            ".filter(one => one.textContent.startsWith('Lepi'))"
            ".map(one => parseFloat(getComputedStyle(one).fontSize)"
            " * Math.hypot(one.getScreenCTM().a, one.getScreenCTM().b))"
        )
        assert len(sizes) == 2 * k
        assert min(sizes) > 5.5


def test_a_picture_of_an_error_says_where_it_is_from_and_a_sound_can_be_heard(trained):
    run = load_one(trained("sounds"))
    data = _data(run, [])
    folder = Path(run.config["data"]["source"]["path"])
    seconds = []
    for place, sample in enumerate(data.splits().test):
        shown = Picker(run, data).shown(place, "a caption")
        heard = io.BytesIO(b64decode(shown.sound.removeprefix("data:audio/wav;base64,")))
        with wave.open(str(folder / shown.origin), "rb") as own, wave.open(heard, "rb") as heard:
            assert heard.getframerate() == 8000
            seconds.append(heard.getnframes() / 8000)
            own, heard = (
                np.frombuffer(one.readframes(heard.getnframes()), "<i2") for one in (own, heard)
            )
            np.testing.assert_allclose(own, heard, atol=1)
        assert data.splits().names[sample.label] == shown.origin.partition("/")[0]
        assert {"seconds", "kHz"} <= set(re.findall(r"<text[^>]*>(.*?)</text>", shown.figures[0]))
    assert max(seconds) <= MAX_SECONDS


def test_a_molecule_is_drawn_and_its_line_is_named(trained):
    run = load_one(trained("regress"))
    data = _data(run, [])
    lines = (Path(run.config["data"]["source"]["path"])).read_text(encoding="utf-8").splitlines()
    for place, sample in enumerate(data.splits().test):
        shown = Picker(run, data).shown(place)
        assert lines[int(shown.origin.removeprefix("molecules.csv, line ")) - 1].startswith(
            f"{sample.raw},"
        )
        assert shown.figures[0].count("class='bond-") >= sample.raw.count("C")
        assert "currentColor" in shown.figures[0]
        assert "#000000" not in shown.figures[0]
