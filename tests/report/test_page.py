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
import yaml
from browser_checks import VIEWS, faults
from pages import Page

import seqkit
from seqkit.data import Table
from seqkit.errors import DataError, UsageError
from seqkit.objectives import MultiLabel
from seqkit.raw import Waveform
from seqkit.report.figures import FEW_CLASSES, Series, curves, reliability
from seqkit.report.modality import find_renderer
from seqkit.report.page import _collect, _data, last_parts, write_overview, write_report
from seqkit.report.samples import MAX_CLASSES, NUM_SHOWN, _by_class, _confused, _shown, class_sections, samples
from seqkit.report.sound import MAX_SECONDS, player_source
from seqkit.report.templates import write_page
from seqkit.runs.trained_model import load_one
from seqkit.tokenizers import Bytes

KINDS = {
    "classify": "Confusion matrix",
    "nodes": "Confusion matrix",
    "regress": "Predictions and targets",
    "next token": "Sample",
    "masked ids": "Masked and predicted",
    "masked vectors": "Masked and predicted",
    "sounds": "Confusion matrix",
    "retrieval": "Nearest examples",
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
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind == "retrieval" else ()) for kind in KINDS]
)
def test_a_report_is_one_well_formed_file_that_fetches_nothing(reported, kind):
    text = reported(kind)
    page = Page(text)
    assert not page.open
    assert all(re.match(r"#|data:(image/png|audio/wav);base64,", address) for address in page.addresses)
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
    shown = {name: (f"{value:.3f}", f"{summary['baseline'][name]:.3f}") for name, value in summary["metrics"].items()}
    tiles = re.findall(r'<div class="tile[^"]*"><b>(.*?)</b><span>(.*?)</span>', page.source)
    assert tiles[:2] == list(zip(shown["rmse"], ("test rmse", "the best constant prediction")))
    assert {name for name in shown if [name, *shown[name]] in rows} == set(shown) - {"rmse"}, "nothing is said twice"
    assert ["torch", summary["versions"]["torch"]] in [row[:2] for row in rows]
    assert (folder / "config.yaml").read_text(encoding="utf-8").strip() in page.text


def test_the_confusion_matrix_agrees_with_the_measured_accuracy(trained, reported):
    folder = trained("classify")
    page = Page(reported("classify"))
    right, total = map(int, re.search(r"(\d+) of (\d+) test examples are right", page.text).groups())
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert total == 37
    assert right / total == pytest.approx(summary["metrics"]["accuracy"], abs=1e-6)


def test_wrongly_classified_images_have_captions(copy):
    folder = copy("classify")
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    state["objective"]["names"] = [f"a class with a name of many words, number {i}" for i in range(10)]
    change(folder, "state", json.dumps(state))
    path = write_report(folder)
    page = Page(path.read_text(encoding="utf-8"))
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page.source)
    assert len(captions) == NUM_SHOWN
    assert all(re.search(r"number \d \(\d+ %\), not .* number \d<small>sample \d+<", caption) for caption in captions)


def test_a_report_says_that_a_limit_cut_the_test_split(trained, reported):
    summary = json.loads((trained("classify") / "summary.json").read_text(encoding="utf-8"))
    assert (summary["limit"], summary["num_test"]) == (37, 37)
    assert "The metrics are of 37 test examples only (data.limit=37)." in Page(reported("classify")).text
    summary = json.loads((trained("nodes") / "summary.json").read_text(encoding="utf-8"))
    assert "limit" not in summary
    assert "test examples only" not in Page(reported("nodes")).text


def test_without_its_data_a_report_says_so_and_shows_the_rest(copy):
    folder = copy("next token")
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    change(folder, "config", re.sub(r"path: .*text\.txt", "path: gone.txt", config))
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "The data cannot be read, so no examples are shown: " in page.text
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


@pytest.mark.usefixtures("undrawn")
def test_a_report_leaves_the_random_state_alone(trained):
    folder, before = trained("masked ids"), torch.get_rng_state()
    write_report(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="config"):
        write_report(tmp_path)


def test_damaged_weights_are_refused(copy):
    folder = copy("classify")
    weights = folder / "checkpoints" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(DataError, match="damaged"):
        write_report(folder)


@pytest.mark.usefixtures("undrawn")
def test_an_overview_holds_each_run(trained, tmp_path):
    folders = [trained("classify"), trained("regress")]
    path = write_overview(folders, tmp_path / "new" / "all.html", title="All of it")
    page = Page(path.read_text(encoding="utf-8"))
    assert page.cells[0].startswith("test/classify")
    assert page.cells[1].endswith("%accuracy"), "a result stands right behind its recipe"
    assert not page.open
    assert {"All of it", "Confusion matrix", "Predictions and targets"} <= set(page.headings)
    for name, place in zip(("classify", "regress"), last_parts(list(map(str, folders)))):
        assert f"test/{name} · {place}" in "".join(page.headings)
    assert {"#run1", "#run2"} <= set(page.addresses)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)


@pytest.mark.usefixtures("undrawn")
def test_an_overview_of_one_run_is_its_report(trained, reported, tmp_path):
    page = Page(write_overview([trained("classify")], tmp_path / "one.html", title="All").read_text(encoding="utf-8"))
    assert page.headings == Page(reported("classify")).headings


def test_a_report_of_two_classes_names_the_positive_one_and_draws_its_calibration(copy):
    folder = copy("nodes")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    assert summary["positive"] == state["objective"]["names"][state["objective"]["positive"]]
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    assert "Calibration" not in Page(write_report(folder).read_text(encoding="utf-8")).headings
    config["model"]["objective"]["metrics"] = ["AveragePrecision"]
    change(folder, "config", yaml.safe_dump(config))
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary |= {"positive": "b<i>"}
    summary["metrics"]["average_precision"] = 0.287
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "Calibration" in page.headings
    assert "average_precision of b<i>" in page.cells


def test_a_reliability_diagram_has_the_probability_and_the_share_of_each_bin():
    shares, right = np.array([0.1, 0.15, 0.6, 0.7, 1.0]), np.array([False, True, True, False, True])
    axes = reliability(shares, right, 2, ("x", "y")).axes[0]
    (dots,) = (line for line in axes.lines if line.get_label() == "test")
    np.testing.assert_allclose(dots.get_xydata(), [[0.125, 0.5], [2.3 / 3, 2 / 3]])
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([0.4, 0.6])


def test_labels_have_their_names_and_each_its_auroc(monkeypatch):
    label = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, torch.nan], [0.0, 0.0]])
    prediction = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    objective = MultiLabel()
    objective.fit(label.nan_to_num().tolist(), ["toxic", "irritant"])
    monkeypatch.setattr("seqkit.report.samples._predictions", lambda *_: [([0, 1, 2, 3], None, label, prediction)])
    (section,) = samples(objective, None, object())
    first, second = section.rows
    assert (first[0], first[1], first[2], first[-1]) == ("toxic", "4", "2", "0.750")
    assert (second[0], second[1], second[2], second[-1]) == ("irritant", "3", "0", "–")


def test_curves_follow_metrics_csv(trained, reported):
    folder = trained("regress")
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        columns = csv.DictReader(file).fieldnames
    assert {"step", "train/loss", "valid/loss", "valid/rmse"} <= set(columns)  # what Lightning writes and we read
    # losses, the metric on validation data, and the note of a trial
    assert Page(reported("regress")).text.count("optimizer steps") == 3


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


def test_the_title_is_the_name_of_the_data_with_date_and_counts(trained, reported):
    summary = json.loads((trained("regress") / "summary.json").read_text(encoding="utf-8"))
    page = Page(reported("regress"))
    assert page.headings[0] == "molecules.csv · Transformer"
    counts = f"{summary['num_train']} training, {summary['num_valid']} validation, {summary['num_test']} test examples"
    assert f"test/regress · {summary['date'][:16].replace('T', ' ')} · {counts} · " in page.text
    assert Page(reported("classify")).headings[0] == "digits · Transformer"


def test_the_rule_of_the_split_is_on_the_page_of_a_table(copy):
    folder = copy("regress")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    (folder / "summary.json").write_text(json.dumps(summary | {"split_rule": "every seventh"}), encoding="utf-8")
    assert " · every seventh · seqkit" in Page(write_report(folder).read_text(encoding="utf-8")).text


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
    assert sum(int(rows[str(c)][0]) for c in range(10) if str(c) in rows) == int(rows["mean (macro)"][0]) == 37
    assert rows["mean (macro)"][3] == f"{100 * summary['metrics']['macro_f1']:.2f} %"


def test_the_table_of_classes_counts_as_one_does_by_hand():
    counts = np.array([[3, 1, 0], [2, 4, 0], [0, 0, 0]])
    section = _by_class(counts, ["a", "b", "never"])
    assert section.rows == [
        ("a", "4", "60.00 %", "75.00 %", "66.67 %"),
        ("b", "6", "80.00 %", "66.67 %", "72.73 %"),
        ("mean (macro)", "10", "", "", "69.70 %"),
    ]
    many = _by_class(np.eye(MAX_CLASSES + 2, dtype=int)[:, ::-1], [str(i) for i in range(MAX_CLASSES + 2)])
    assert len(many.rows) == MAX_CLASSES
    assert f"{MAX_CLASSES} classes with the lowest F1, of {MAX_CLASSES + 2}." in many.note


def test_a_run_worse_than_a_constant_and_a_trial_say_so(copy):
    folder = copy("classify")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    for accuracy, steps, limit, said in ((0.05, 2, 37, 2), (0.5, 5000, 5000, 0)):
        changed = summary | {"steps": steps, "limit": limit, "metrics": summary["metrics"] | {"accuracy": accuracy}}
        changed["baseline"] = summary["baseline"] | {"accuracy": 0.1}
        (folder / "summary.json").write_text(json.dumps(changed), encoding="utf-8")
        text = Page(write_report(folder).read_text(encoding="utf-8")).text
        assert ("(accuracy: 5.00 % against 10.00 %)" in text) == (said == 2)
        assert ("2 optimizer steps" in text) == (said == 2)


def test_training_and_validation_have_their_colours_in_every_figure():
    alone = curves([Series([1, 2], [1, 2], "validation")], unit="accuracy")
    both = curves([Series([1, 2], [1, 2], name) for name in ("training", "validation")], unit="loss")
    colors = [{line.get_label(): line.get_color() for line in figure.axes[0].lines} for figure in (alone, both)]
    assert colors[0]["validation"] == colors[1]["validation"] != colors[1]["training"]


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
        quick = {"trainer.enable_progress_bar": False, "trainer.accelerator": "cpu", "data": str(tmp_path / name)}
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
    [("classify", *VIEWS[0]), ("next token", *VIEWS[1]), ("sounds", *VIEWS[1]), ("retrieval", *VIEWS[0])],
)
def test_a_browser_shows_a_report_without_faults(browser, trained, reported, kind, width, scheme):
    reported(kind)
    assert faults(browser, trained(kind) / "report.html", width, scheme) == []


@pytest.mark.slow
def test_a_browser_shows_an_overview_without_faults(browser, trained, tmp_path):
    overview = write_overview([trained(kind) for kind in ("classify", "regress")], tmp_path / "all.html", title="All")
    assert faults(browser, overview, *VIEWS[1]) == []


@pytest.mark.slow
@pytest.mark.parametrize("k", [10, 100])
def test_a_browser_shows_confusion_matrices_of_any_size_without_faults(browser, trained, reported, tmp_path, k):
    """The class sections of a report are those of k classes with long names; each name can be told from the others."""
    counts = np.random.default_rng(k).integers(0, 7, (k, k)) + 53 * np.eye(k, dtype=np.int64)
    names = [f"Lepidoptera papilionidae, species number {i}" for i in range(k)]
    run = _collect(trained("classify")) | {"sections": class_sections(counts, names, "examples")}
    page = write_page("page.html", tmp_path / "page.html", title="classes", subtitle="test", runs=[run])
    for width, scheme in VIEWS:
        assert faults(browser, page, width, scheme) == []
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
        shown = _shown(run, data, place, run.tokenizer.encode(sample.raw), "a caption")
        with wave.open(str(folder / shown.origin), "rb") as own, wave.open(_file(shown.sound), "rb") as heard:
            assert heard.getframerate() == 8000
            seconds.append(heard.getnframes() / 8000)
            own, heard = (np.frombuffer(one.readframes(heard.getnframes()), "<i2") for one in (own, heard))
            np.testing.assert_allclose(own, heard, atol=1)
        assert data.splits().names[sample.label] == shown.origin.partition("/")[0]
        assert {"seconds", "kHz"} <= set(re.findall(r"<text[^>]*>(.*?)</text>", shown.figure))
    assert max(seconds) <= MAX_SECONDS


def test_a_long_sound_is_cut_mixed_and_resampled():
    tone = np.sin(2 * np.pi * 440 * np.arange(5 * 44_100) / 44_100, dtype=np.float32)
    with wave.open(_file(player_source(Waveform(torch.tensor(np.stack([tone, 0 * tone])), 44_100))), "rb") as heard:
        assert (heard.getframerate(), heard.getnframes(), heard.getnchannels()) == (16_000, MAX_SECONDS * 16_000, 1)
        samples = np.frombuffer(heard.readframes(heard.getnframes()), "<i2")
    spectrum = np.abs(np.fft.rfft(samples / 32768))
    assert spectrum.argmax() == 440 * MAX_SECONDS
    assert np.abs(samples).max() / 32767 == pytest.approx(0.5, abs=0.02)


def _file(address):
    return io.BytesIO(b64decode(address.removeprefix("data:audio/wav;base64,")))


def test_a_molecule_is_drawn_and_its_line_is_named(trained):
    run = load_one(trained("regress"))
    data = _data(run, [])
    lines = (Path(run.config["data"]["source"]["path"])).read_text(encoding="utf-8").splitlines()
    for place, sample in enumerate(data.splits().test):
        shown = _shown(run, data, place, run.tokenizer.encode(sample.raw), "")
        assert lines[int(shown.origin.removeprefix("molecules.csv, line ")) - 1].startswith(f"{sample.raw},")
        assert shown.figure.count("class='bond-") >= sample.raw.count("C")
        assert "currentColor" in shown.figure
        assert "#000000" not in shown.figure


def test_the_most_frequent_confusions_of_many_classes_are_counted():
    counts = np.eye(FEW_CLASSES + 1, dtype=np.int64) * 5
    counts[3, 7], counts[2, 1] = 15, 2
    (section,) = _confused(counts, [f"c{i}" for i in range(len(counts))])
    assert section.rows == [("c3", "c7", "15", "75.00 %"), ("c2", "c1", "2", "28.57 %")]
    assert not list(_confused(counts[:9, :9], "abcdefghi")), "the matrix has these numbers"


@pytest.mark.parametrize(
    ("folders", "places"),
    [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["runs/mix/tasks/text", "runs/mix/tasks/image"], ["text", "image"]),
        (["runs/mix/tasks/text", "runs/a"], ["mix/tasks/text", "a"]),
        (["/deep/runs/a"], ["a"]),
    ],
)
def test_a_run_of_a_page_is_named_by_what_tells_its_folder_apart(folders, places):
    assert last_parts(folders) == places
