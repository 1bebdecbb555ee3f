"""Features: vectors of a model without a head, and a refusal of all that would need a loss."""

import json

import pytest
import torch
import torch.nn.functional as F
from foreign_models import BERT, saved
from pyarrow.parquet import read_table
from torch.testing import assert_close

from seqkit.backbones import LSTM
from seqkit.cli.main import main
from seqkit.config import complete
from seqkit.errors import UsageError
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Features
from seqkit.runs.imported import import_model
from seqkit.runs.prepare import prepare
from seqkit.runs.trained_model import load_one

SPEC = TokenSpec(vocab_size=7)
TEXTS = {"w3 w7 w11": [3, 7, 11], "w5": [5]}
NOTHING = "Features has nothing to learn, and no loss to test; give --model.objective Masked, NextToken, Classify or"


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A BERT of sentence-transformers, and the run that it was imported to."""
    folder = tmp_path_factory.mktemp("minilm")
    theirs = saved(folder, "Bert", BERT)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"pooling_mode_mean_tokens": True})
    )
    import_model(folder, folder / "run", "minilm")
    return theirs, folder / "run"


def right_vectors(theirs):
    """Mean of the hidden states of each text, of length 1."""
    with torch.no_grad():
        means = [
            theirs(torch.tensor([ids])).last_hidden_state[0].mean(dim=0) for ids in TEXTS.values()
        ]
    return torch.stack([x / x.square().sum().sqrt() for x in means])


def test_embed_writes_the_sentence_vectors_of_an_imported_model(imported, tmp_path, capsys):
    theirs, run = imported
    assert load_one(run).config["model"]["objective"] == {
        "type": "Features", "pool": "mean", "normalize": True, "projection": None, "dim": None
    }  # fmt: skip
    out = tmp_path / "vectors.parquet"
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    (tmp_path / "texts.csv").write_text("\n".join(["text", *TEXTS]))
    assert (
        main(
            [
                "predict",
                str(run),
                str(tmp_path / "texts.csv"),
                "--input",
                "text",
                "--embed",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    assert "2 vectors of 24 numbers: hidden states, mean of the tokens" in capsys.readouterr().out
    assert_close(
        torch.tensor(read_table(out)["vector"].to_pylist()),
        right_vectors(theirs),
        rtol=0,
        atol=1e-5,
    )


def test_the_models_own_output_is_the_vector(imported):
    theirs, run = imported
    trained = load_one(run)
    with torch.no_grad():
        got = trained.model(TokenBatch.collate([trained.encode(text) for text in TEXTS]))
    assert_close(got, right_vectors(theirs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("pool", ["mean", "sum", "max", "last", "first"])
def test_vectors_are_pooled_as_the_objective_says(pool):
    model = Model(SPEC, LSTM(12), Features(pool=pool, normalize=True)).eval()
    batch = TokenBatch.collate(
        [Tokens(torch.arange(n), torch.arange(float(n))[:, None]) for n in (5, 2)]
    )
    with torch.no_grad():
        hidden = model.backbone(model.embed(batch))
        got = model(batch)
    for row, states in zip(got, (hidden[0], hidden[1, :2])):
        right = {
            "mean": states.mean(0),
            "sum": states.sum(0),
            "max": states.amax(0),
            "last": states[-1],
        }
        assert_close(row, F.normalize(right.get(pool, states[0]), dim=0))


def test_parts_are_pooled_only_where_there_are_some():
    with pytest.raises(ValueError, match="pool=parts"):
        Model(SPEC, LSTM(12), Features(pool="parts"))


# ── refusals, each in one line ────────────────────────────────────────────────────────────────────────────────────────


def test_training_is_refused_before_data_is_read(monkeypatch):
    def reads(*_):
        raise LookupError

    monkeypatch.setattr("seqkit.runs.prepare._data", reads)
    with pytest.raises(LookupError):
        prepare(complete("text/char-lm", "debug"))
    with pytest.raises(UsageError, match=NOTHING):
        prepare(complete("text/char-lm", "debug", {"model.objective": "Features"}))


def test_a_mixture_with_it_is_refused():
    config = complete("mixture/four", "debug", may_mix=True)
    task = next(iter(config["tasks"].values()))
    task["model"]["objective"] = {"type": "Features", "pool": "mean", "normalize": False}
    with pytest.raises(UsageError, match=NOTHING):
        prepare(config)


def test_fit_test_and_predict_say_what_to_do_instead(imported, tmp_path, capsys):
    _, run = imported
    (tmp_path / "notes.txt").write_text("to be or not to be " * 50)
    given = [
        "text/char-lm",
        "--preset",
        "debug",
        "--data",
        str(tmp_path / "notes.txt"),
        "--model.objective",
        "Features",
    ]
    said = {}
    for command in (
        ["fit", *given, "--out", str(tmp_path / "run")],
        ["evaluate", str(run)],
        ["predict", str(run), "w3"],
    ):
        assert main(command) == 2
        said[command[0]] = capsys.readouterr().err.strip()
    assert NOTHING in said["fit"]
    assert NOTHING in said["evaluate"]
    assert "or `seqkit predict --embed` for vectors" in said["predict"]
    assert all("\n" not in line for line in said.values())
    assert not (tmp_path / "run").exists()


def test_a_step_is_refused():
    with pytest.raises(UsageError, match=NOTHING):
        Features().step(torch.nn.Identity(), (None, None))
