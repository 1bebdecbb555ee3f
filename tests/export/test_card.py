"""Model cards: their metadata as the hub reads it, their Markdown as a renderer reads it, and hostile texts in both."""

import json
import re

import pytest
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from seqkit.errors import DataError, UsageError
from seqkit.export.card import card
from seqkit.files import to_yaml

SHA = "5" * 64
SUMMARY = {
    "recipe": "text/classify", "backbone": "TCN", "objective": "Classify", "main_metric": "accuracy", "seed": 7,
    "num_parameters": 14_834, "tokens_seen": 4_400, "steps": 310, "wall_seconds": 47.6, "sha256": SHA,
    "state": "finished",
    "metrics": {"loss": 0.0523, "accuracy": 0.9875, "macro_f1": 0.97},
    "baseline": {"loss": 0.394, "accuracy": 0.866, "macro_f1": 0.464},
    "strong_baseline": {"name": "TF-IDF", "metrics": {"accuracy": 0.9892}, "num_train": 4_014, "seconds": 1.5},
    "versions": {"python": "3.11.7", "seqkit": "0.1.0", "torch": "2.11.0"},
    "num_train": 4_014, "num_valid": 446, "num_test": 1_114, "date": "2026-11-25T07:52:52", "data": "sms-spam",
    "split_rule": "a fifth is test, by class", "data_sha256": {"test": "2:abc", "training": "2:def"},
    "weights": "best, of step 300",
}  # fmt: skip
CONFIG = {
    "recipe": "text/classify", "data": {"source": {"type": "sms-spam"}}, "tokenizer": {"type": "BPE"},
    "model": {"objective": {"type": "Classify", "level": "sequence"}, "backbone": {"type": "TCN"}},
}  # fmt: skip
STATE = {"objective": {"names": ["ham", "spam"]}, "tokenizer": {}}


@pytest.fixture
def run(tmp_path):
    def written(summary=(), config=(), state=STATE):
        (tmp_path / "config.yaml").write_text(to_yaml({**CONFIG, **dict(config)}))
        (tmp_path / "state.json").write_text(json.dumps(state))
        (tmp_path / "summary.json").write_text(json.dumps({**SUMMARY, **dict(summary)}))
        return tmp_path

    return written


def without(*keys):
    """A summary without these keys, as the value that `run` merges cannot say."""
    return {key: value for key, value in SUMMARY.items() if key not in keys}


def metadata(text):
    front = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    return yaml.safe_load(front[1])


def html(text):
    """The card as the hub shows it: without its metadata, HTML allowed."""
    body = re.sub(r"\A---\n.*?\n---\n", "", text, count=1, flags=re.DOTALL)
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(body)


# ── metadata ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_hub_reads_task_library_and_license(run):
    data = ModelCard(card(run())).data
    assert (data.library_name, data.license, data.pipeline_tag) == (
        "seqkit",
        "unknown",
        "text-classification",
    )
    assert (data.base_model, data.eval_results) == (None, None)


def test_the_library_that_loads_the_folder_is_named_and_shown(run):
    text = card(run(), library="transformers")
    assert metadata(text)["library_name"] == "transformers"
    assert "AutoModelForSequenceClassification.from_pretrained" in text
    assert "seqkit.load" not in text


@pytest.mark.parametrize(
    ("objective", "tokenizer", "task"),
    [
        ("Classify", "Words", "text-classification"),
        ("Classify", "Patches", "image-classification"),
        ("Classify", "LogMel", "audio-classification"),
        ("Classify", "Cells", "tabular-classification"),
        ("Regress", "Molecule", "graph-ml"),
        ("Regress", "Cells", "tabular-regression"),
        ("NextToken", "FromFile", "text-generation"),
        ("Masked", "BPE", "fill-mask"),
        ("Masked", "Patches", None),
        ("Contrastive", "Join", None),
        ("Mine", "Morse", None),
    ],
)
def test_the_task_of_the_hub_follows_objective_and_input(run, objective, tokenizer, task):
    config = {"tokenizer": {"type": tokenizer}, "model": {"objective": {"type": objective}}}
    assert metadata(card(run({"objective": objective}, config))).get("pipeline_tag") == task


def test_a_class_for_each_token_is_another_task(run):
    config = {"model": {"objective": {"type": "Classify", "level": "token"}}}
    assert metadata(card(run(config=config)))["pipeline_tag"] == "token-classification"


def test_the_model_that_training_began_with_is_named(run):
    text = card(run({"initial": {"run": f"hf:owner/bert@{'a' * 40}", "taken": [], "new": []}}))
    assert metadata(text)["base_model"] == "owner/bert"
    assert f"began with the weights of hf:owner/bert@{'a' * 40}" in text
    assert "may bind it" in text
    text = card(run({"initial": {"run": "/data/somebody/minilm", "taken": [], "new": []}}))
    assert "base_model" not in metadata(text)
    assert "began with the weights of minilm" in text


@pytest.mark.parametrize("trial", [{"steps": 3}, {"limit": 200}])
def test_figures_of_a_trial_are_said_to_be_that(run, trial):
    assert "This is a trial run" in card(run(trial))


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def rows(page):
    """Cells of all tables of a page, row by row."""
    return [
        re.findall(r"<t[hd]>(.*?)</t[hd]>", row)
        for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    ]


def test_each_metric_stands_beside_the_constant_and_the_specialist(run):
    found = rows(html(card(run())))
    assert ["metric", "this model", "constant that is best in training", "TF-IDF"] in found
    assert ["accuracy", "98.75 %", "86.60 %", "98.92 %"] in found
    assert ["loss", "0.052", "0.394", "–"] in found


def test_without_a_specialist_its_column_is_missing_and_that_is_said(run, tmp_path):
    run()
    (tmp_path / "summary.json").write_text(json.dumps(without("strong_baseline")))
    text = card(tmp_path)
    assert ["accuracy", "98.75 %", "86.60 %"] in rows(html(text))
    assert "none was set beside it" in text
    assert "none was set beside it" not in card(run())


def test_a_model_that_is_worse_than_its_rivals_says_so(run):
    assert "TF-IDF (fit on 4,014 examples) is better" in card(run())
    assert "no better than the constant" in card(run({"metrics": {"accuracy": 0.5}}))


def test_of_a_network_alone_the_figures_are_its_own(run):
    """The folder of another library has no classical method, and the run's metrics are of both."""
    joined = {
        "name": "TF-IDF", "num_train": 4014, "seconds": 1.0, "network_weight": 0.5, "classical_weight": 0.5,
        "sha256": SHA, "metrics": {"loss": 0.5, "accuracy": 0.9},
    }  # fmt: skip
    folder = run({"joined": joined})
    assert ["accuracy", "90.00 %", "86.60 %", "98.92 %"] in rows(
        html(card(folder, library="transformers"))
    )
    own = card(folder)
    assert ["accuracy", "98.75 %", "86.60 %", "98.92 %"] in rows(html(own))
    assert "together with a classical method (TF-IDF)" in html(own).replace("&#39;", "'")


FACTS = [
    "14,834 parameters", "sms-spam: 4,014 training, 446 validation, 1,114 test", "a fifth is test, by class",
    "2:abc", "one of these: ham, spam", "seed 7", "310 optimizer steps", "4,400 tokens", "48 s", "2026-11-25",
    SHA, "torch 2.11.0", "best, of step 300", "a class per sequence or per token", "until the author sets it",
    "What it is meant for is not recorded", "seqkit fit config.yaml", "Calibration", "there is one seed",
]  # fmt: skip


def test_facts_of_the_run_are_in_the_text(run):
    page = re.sub(r"<.*?>", "", html(card(run())))
    assert [fact for fact in FACTS if fact not in page] == []


def test_what_was_measured_is_not_said_to_be_missing(run):
    assert "Calibration" not in card(run({"metrics": {"accuracy": 0.9, "calibration_error": 0.1}}))


def test_the_configuration_is_in_the_card_and_reads_back(run):
    block = re.search(r"^```yaml\n(.*?)\n```$", card(run()), re.DOTALL | re.MULTILINE)
    assert yaml.safe_load(block[1]) == CONFIG


def test_folders_of_the_users_machine_are_not_published(run):
    source = {
        "type": "Table",
        "path": ["/srv/secret/wards/a.csv", "~/b.csv", "C:\\Users\\me\\c.csv", "d/e.csv"],
    }
    text = card(
        run({"data": "a.csv"}, {"data": {"source": source}, "model": {"init": "../private/minilm"}})
    )
    assert not [word for word in ("secret", "wards", "Users", "private", "~") if word in text]
    for name in ("a.csv", "b.csv", "c.csv", "d/e.csv", "minilm"):
        assert name in text


def test_a_model_that_was_only_imported_claims_no_training(run, tmp_path):
    run(config={"recipe": "imported", "data": {}})
    summary = without(
        "data",
        "num_train",
        "num_valid",
        "num_test",
        "split_rule",
        "data_sha256",
        "date",
        "baseline",
    )
    imported = {
        "recipe": "imported",
        "steps": 0,
        "metrics": {},
        "initial": {"run": "hf:owner/gpt2@v1"},
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary | imported))
    text = card(tmp_path)
    assert "# hf:owner/gpt2@v1\n" in text
    assert "Not measured." in text
    assert "Nothing was trained: the weights are those of hf:owner/gpt2@v1." in text
    assert "The data that it learnt from is not recorded." in text
    assert "one seed" not in text
    assert "seqkit fit config.yaml" not in text


def test_what_is_no_trained_run_is_refused(run, tmp_path):
    with pytest.raises(UsageError, match="is no run"):
        card(tmp_path)
    run()
    (tmp_path / "summary.json").unlink()
    with pytest.raises(UsageError, match="did not train to its end"):
        card(tmp_path)
    with pytest.raises(UsageError, match="is a mixture of tasks"):
        card(run(config={"tasks": {"a": {}}}))
    with pytest.raises(DataError, match="steps"):
        card(run({"steps": "many"}))


# ── hostile texts ────────────────────────────────────────────────────────────────────────────────────────────────────

HOSTILE = [
    "a\n---\nlicense: mit\n---\n# Buy this",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "[click](http://evil.example) ![i](http://evil.example/i.png)",
    "``` \n# Buy this\n```` `````` <b>bold</b>",
    "a\n```\n# Buy this",
    "x | y | z\n| --- | --- |\n| 1 | 2 |",
    "- item\n1. one\n> quote\n===\n***\n    code",
    '": "}, {license: mit}\n&a *a !!python/object/apply:os.system ["id"]',
    "\x1b[31mred\u202etxt.exe",
    "</code></pre>\n<h1>Buy this</h1>",
]


def hostile(text):
    """A run every text of which is this one."""
    summary = {
        **dict.fromkeys(("recipe", "backbone", "objective", "sha256", "data", "split_rule", "date", "weights"), text),
        "metrics": {text: 0.5}, "baseline": {text: 0.25}, "versions": {text: text}, "data_sha256": {text: text},
        "strong_baseline": {"name": text, "metrics": {text: 0.75}, "num_train": 1, "seconds": 1.0},
        "initial": {"run": text}, "unknown": {text: [1, 2]},
    }  # fmt: skip
    config = {
        "recipe": text,
        "tokenizer": {"type": text},
        "model": {"objective": {"type": text, "level": text}},
    }
    return summary, config, {"objective": {"names": [text, text]}, "tokenizer": {}}


def shape(page):
    """Tags of a page, without its texts."""
    return re.findall(r"<(/?\w+)", page)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_of_the_run_breaks_neither_metadata_nor_markdown(run, text):
    harmless, found = (card(run(*hostile(each))) for each in ("harmless", text))
    assert shape(html(found)) == shape(html(harmless))
    assert {c for c in found if not c.isprintable()} == {"\n"}
    assert metadata(found).keys() == metadata(harmless).keys()
    assert metadata(found)["license"] == "unknown"
    assert ModelCard(found).data.license == "unknown"


def test_the_hostile_texts_break_a_page_that_does_not_escape_them():
    plain = [
        MarkdownIt("commonmark", {"html": True}).enable("table").render(f"# {text}\n\n{text}")
        for text in HOSTILE
    ]
    assert sum(shape(page) != ["h1", "/h1", "p", "/p"] for page in plain) >= 7
