"""The page of a comparison: one file that says everything that results.json says, whatever is missing in it."""

import json
import re

import pytest
from browser_checks import VIEWS, faults
from pages import Page
from synthetic_results import HOSTILE, NAMES, RESULTS, candidate, comparison

from seqkit.errors import DataError
from seqkit.files import write_json
from seqkit.report.comparison import write_comparison

SECTIONS = [
    "Candidates", "Every seed", "All pairs", "What was not matched", "Failures", "Results by length of training",
    "Results by length of the example", "Learning curves", "Cost by length", "Gradient flow", "Tuning",
    "Configurations", "Reproduce",
]  # fmt: skip


@pytest.fixture
def written(tmp_path, undrawn):
    def write(results):
        write_json(tmp_path / "results.json", results)
        return Page(write_comparison(tmp_path).read_text(encoding="utf-8"))

    return write


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """kind → the path of the page of these synthetic results, written once."""
    paths = {}

    def path(kind):
        if kind not in paths:
            folder = tmp_path_factory.mktemp(kind)
            write_json(folder / "results.json", RESULTS[kind]())
            paths[kind] = write_comparison(folder)
        return paths[kind]

    return path


@pytest.fixture
def by_hand():
    """Three candidates with round numbers: GRU beats Transformer, LSTM failed."""
    results = comparison(3, failed=(1,))
    transformer, _, gru = results["candidates"]
    transformer |= {"mean": 0.97, "std": 0.0025, "interval": [0.96, 0.98], "parameters": 200_003, "budget_gap": None}
    gru |= {"mean": 0.978, "std": 0.005, "interval": [0.971, 0.985], "parameters": 201_007, "budget_gap": 0.005,
            "training_flops": 3.4e9, "chosen": {"optimizer.lr": 0.003}}  # fmt: skip
    transformer["cost"]["tokens_per_second"], gru["cost"]["tokens_per_second"] = 40_000, 52_000
    results["differences"] = [
        {"a": "GRU", "b": "Transformer", "difference": 0.008, "interval": [0.001, 0.014], "better": "GRU",
         "pairs": "3 seeds x 1000 test examples"},
    ]  # fmt: skip
    return results


QUICK = ("none", "null", "hostile")


@pytest.mark.parametrize("kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in RESULTS])
def test_a_page_is_one_well_formed_file_that_fetches_nothing(page_of, kind):
    page = Page(page_of(kind).read_text(encoding="utf-8"))
    assert not page.open
    assert all(address.startswith("#") for address in page.addresses)
    assert not {"script", "link", "iframe", "object", "embed", "img", "image"} & set(page.tags)
    assert not re.search(r"@import|url\((?!#)", page.source)
    assert "prefers-color-scheme: dark" in page.source
    ids = re.findall(r'\sid="([^"]+)"', page.source)
    assert {address[1:] for address in page.addresses} <= set(ids)
    assert not re.findall(r"\b(?:nan|inf|none|null|undefined)\b", page.text.replace("loss is NaN", ""), re.IGNORECASE)


def test_the_sections_come_in_their_order(written):
    page = written(comparison(4, failed=(3,)))
    assert [heading for heading in page.headings if heading in SECTIONS] == SECTIONS


def test_the_answer_stands_first(written, by_hand):
    page = written(by_hand | {"answer": "GRU <wins>.", "answers": ["LSTM failed."]})
    assert 0 < page.text.index("GRU <wins>.") < page.text.index("LSTM failed.") < page.text.index("Candidates")


def test_the_table_has_the_numbers(written, by_hand):
    cells = written(by_hand).cells
    gru, transformer, lstm = (cells[i : i + 8] for i in (0, 8, 16))
    assert gru[0].split() == ["1", "GRUwidth", "112,", "depth", "3"]  # on two lines
    assert gru[1:] == [
        "97.80 ± 0.50[97.10, 98.50]", "+0.80[+0.10, +1.40]", "201,007", "+0.5 %", "3.4G", "0.003", "52k1.30 ×",
    ]  # fmt: skip
    assert transformer[0].split()[0] == "2"
    assert transformer[1:5] == ["97.00 ± 0.25[96.00, 98.00]", "reference", "200,003", "–"]
    assert lstm[0].split()[0] == "–"
    assert lstm[1] == "failedno seed finished: loss is NaN at step 12"  # over two columns


def test_two_chosen_learning_rates_have_columns_of_their_own(written, by_hand):
    by_hand["candidates"][2]["chosen"] = {"optimizer.lr": 0.003, "optimizer.adamw.lr": 0.0007}
    page = written(by_hand)
    heads = re.findall(r'<th class="number">([^<]+)</th>', page.source)
    assert heads[5:7] == ["learning rate", "adamw learning rate"]
    assert page.cells[6:8] == ["0.003", "0.0007"]


def test_the_matrix_is_row_minus_column_and_coloured_for_the_better(written, by_hand):
    gru_lstm = {"a": "GRU", "b": "LSTM", "difference": 0.002, "interval": [-0.001, 0.005], "p_holm": 0.2}
    by_hand["differences"][0]["p_holm"] = 0.012
    page = written(by_hand | {"differences": [*by_hand["differences"], gru_lstm | {"better": None}]})
    matrix = page.source[page.source.index('class="matrix"') :].partition("</table>")[0]
    cells = re.findall(r'<td class="number([^"]*)">(.*?)</td>', matrix)
    assert cells == [
        ("", ""),
        (" right", "+0.80<small>[+0.10, +1.40]</small><small>p = 0.012</small>"),
        ("", "+0.20<small>[−0.10, +0.50]</small><small>p = 0.200</small>"),
        (" wrong", "−0.80<small>[−1.40, −0.10]</small><small>p = 0.012</small>"),
        ("", ""),
        ("", "–"),
        ("", "−0.20<small>[−0.50, +0.10]</small><small>p = 0.200</small>"),
        ("", "–"),
        ("", ""),
    ]


def test_one_pair_stands_in_the_answer_and_the_table_alone(written, by_hand):
    assert "All pairs" not in written(by_hand).headings


def test_what_was_not_matched_is_always_there_warnings_first(written, by_hand):
    page = written(by_hand)
    section = page.text[page.text.index("What was not matched") :]
    assert section.index("Warning: learning-rate trials") < section.index("Each candidate has the dropout")
    matched = "Each candidate was matched to the number of parameters of Transformer. The largest deviation is +0.5 %."
    assert page.text.index(by_hand["answer"]) < page.text.index(matched) < page.text.index("Candidates")
    bare = written(by_hand | {"unmatched": [], "match": "none"}).text
    assert "The checks found no difference between the candidates." in bare
    assert "No budget was matched" in bare


def test_failures_are_listed_and_counted_at_the_top(written, by_hand):
    page = written(by_hand)
    assert ["LSTM", "seed", "lr 0.03, seed 2", "loss is NaN"] in [page.cells[i : i + 4] for i in range(len(page.cells))]
    assert {"#failures", "#unmatched"} <= set(page.addresses)
    assert "Failures" not in written(by_hand | {"failures": []}).headings


def test_configurations_versions_machine_and_command_are_there(written, by_hand):
    page = written(by_hand)
    assert page.tags.count("details") == 5  # trials, each candidate, and versions with the machine
    for one in by_hand["candidates"]:
        assert one["config"].strip() in page.text
    assert "AMD EPYC 9654 96-Core Processor" in page.text
    assert by_hand["command"] in page.text[page.text.index("Reproduce") :]
    assert "data.limit=200" in page.text
    assert "--data.limit=200" in written(by_hand | {"overrides": ["--data.limit=200"]}).text


def test_every_figure_says_in_words_what_it_shows(written, by_hand):
    page = written(by_hand)
    assert len(page.labels) == page.tags.count("figure") == 17
    assert page.labels[0].endswith("with mean and interval: GRU 97.80, Transformer 97.00")
    assert "validation loss against training FLOPs, mean over seeds, one line a candidate" in page.labels


def test_a_candidate_has_the_same_colour_and_marker_all_over_the_page(written):
    page = written(comparison(3))
    marks = re.findall(r'(<svg class="mark".*?</svg>) <span>(.*?)</span>', page.source)
    looks = {name: {mark for mark, other in marks if other == name} for _, name in marks}
    assert set(looks) == set(NAMES[:3])
    assert all(len(found) == 1 for found in looks.values())
    assert len(set.union(*looks.values())) == 3


@pytest.mark.slow
def test_groups_are_apart_and_say_whether_the_ranking_changed(written):
    page = written(comparison(3, group="masked pretraining"))
    assert "The ranking by means is the same without pretraining and with masked pretraining" in page.text
    assert page.source.count('<tr class="group">') == 2
    assert "group" not in re.findall(r'<tr class="(\w+)">', written(comparison(3)).source)


def test_figures_go_where_there_is_nothing_to_draw(written):
    results = comparison(2)
    for one in results["candidates"]:
        one |= {"by_length": [], "by_steps": [], "gradient_flow": None, "cost": None, "trials": [], "runs": []}
    page = written(results)
    assert [heading for heading in page.headings if heading in SECTIONS] == [
        "Candidates", "Every seed", "What was not matched", "Tuning", "Configurations", "Reproduce",
    ]  # fmt: skip
    assert page.tags.count("figure") == 1


def test_no_candidates_are_still_a_page(written):
    page = written(comparison(0))
    assert "There are no candidates." in page.text


def test_names_are_text_and_never_markup(page_of):
    page = Page(page_of("hostile").read_text(encoding="utf-8"))
    assert page.text.count(HOSTILE) > 10
    assert "<img src=x>" in page.text
    assert not {"script", "img"} & set(page.tags)


def test_twelve_candidates_fit_on_one_page(written):
    page = written(RESULTS["twelve"]())
    assert [page.cells[8 * i].split()[0] for i in range(12)] == [str(i + 1) for i in range(12)]


@pytest.mark.slow
def test_the_page_is_the_same_each_time_and_nothing_is_left_beside_it(tmp_path):
    write_json(tmp_path / "results.json", comparison(1, seeds=(7,)))
    path = write_comparison(tmp_path)
    first = path.read_bytes()
    assert write_comparison(tmp_path).read_bytes() == first
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "results.json", "results.md"]


def test_other_files_are_refused_in_one_line(tmp_path):
    with pytest.raises(DataError, match=r"results\.json is missing"):
        write_comparison(tmp_path)
    for text, message in (
        ("{", "damaged"),
        ('{"kind": "summary"}', "'summary'"),
        (json.dumps({"kind": "comparison", "title": "t"}), "answer, metric, candidates, differences"),
    ):
        (tmp_path / "results.json").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=message) as caught:
            write_comparison(tmp_path)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()


def test_the_synthetic_results_have_the_keys_of_the_schema():
    assert set(candidate(0)) == {
        "name", "group", "error", "parameters", "training_flops", "width", "depth", "budget_gap", "chosen", "trials",
        "runs", "mean", "std", "interval", "by_length", "by_steps", "cost", "gradient_flow", "config",
    }  # fmt: skip


# ── in a browser ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "width", "scheme"),
    [("hostile", 360, "light"), ("twelve", *VIEWS[1]), ("groups", *VIEWS[0]), ("null", *VIEWS[1])],
)
def test_a_browser_finds_no_fault(browser, page_of, kind, width, scheme):
    assert faults(browser, page_of(kind), width, scheme) == []


@pytest.mark.slow
def test_text_and_figures_follow_the_colour_scheme(browser, page_of):
    path = page_of("four")
    seen = {}
    for scheme in ("light", "dark"):
        browser.show(path, 700, scheme)
        seen[scheme] = browser.evaluate(
            "[getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('figure svg text')).fill]"
        )
    assert seen["light"] == ["rgb(255, 255, 255)", "rgb(27, 39, 51)"]
    assert seen["dark"] == ["rgb(18, 23, 29)", "rgb(228, 233, 238)"]


def test_the_subtitle_counts_seeds_and_the_tuning_names_each_optimizer(tmp_path, undrawn):
    results = comparison(2)
    results["tuning"] |= {"lr_trials": 3, "optimizers": ["Muon", "AdamW"]}
    write_json(tmp_path / "results.json", results)
    page = write_comparison(tmp_path).read_text(encoding="utf-8")
    assert "3 seeds · " in page
    assert "Each candidate was tuned with 3 learning rates each of Muon and AdamW" in page


def test_the_first_is_bold_only_where_it_is_better_than_every_other(written, by_hand):
    assert '<tr class="best">' in written(by_hand).source
    by_hand["differences"][0]["better"] = None
    assert '<tr class="best">' not in written(by_hand).source


def test_shorter_trainings_have_their_verdicts(written):
    results = comparison(3)
    pair = {"a": "GRU", "b": "LSTM", "difference": 0.02, "interval": [0.01, 0.03], "better": "GRU"}
    even = {**pair, "b": "Transformer", "better": None}
    results["differences_by_steps"] = [{"steps": 63, **pair}, {"steps": 63, **even}, {"steps": 126, **even}]
    text = written(results).text
    told = "GRU is better than LSTM by 2.00 percentage points; there is no significant difference in 1 other pair."
    assert f"After 63 steps, {told}" in text
    assert "After 126 steps, there is no significant difference in 1 pair." in text
    assert "corrected for 3 pairs (Holm 1979)" in text
