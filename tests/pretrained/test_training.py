"""A training that begins with a foreign model: it needs the folder once, and a recipe may name it."""

import shutil
import wave

import numpy as np
import pytest
import transformers
from foreign_models import BERT, CONTEXT, saved
from PIL import Image

from seqkit.cli.main import main
from seqkit.config import complete, load_yaml
from seqkit.pretrained.folder import weights
from seqkit.runs.exported import to_hf
from seqkit.runs.mixture import load
from seqkit.runs.run import run

QUIET = {"trainer.enable_progress_bar": False}


@pytest.fixture
def table(tmp_path):
    rows = [f"w{i % 9} w{i % 5} w{i % 7},{('good', 'bad')[i % 2]}" for i in range(60)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def test_a_run_needs_the_folder_once(tmp_path, table):
    saved(tmp_path / "bert", "Bert", BERT)
    settings = {
        "data": str(table),
        "model.init": str(tmp_path / "bert"),
        "data.limit": None,
        **QUIET,
    }
    config = complete("text/classify", "debug", settings)
    summary = run(config, tmp_path / "run")
    assert summary["initial"]["taken"] == ["backbone", "embedder"]
    assert summary["initial"]["left_out"] == ["pooler"]
    before = load(tmp_path / "run").predict(["w1 w2", "w3"])
    shutil.rmtree(tmp_path / "bert")
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = load(tmp_path / "moved")
    assert moved.predict(["w1 w2", "w3"]) == before
    assert complete(load_yaml((tmp_path / "moved" / "config.yaml").read_text())) == moved.config


@pytest.mark.slow
def test_a_new_head_is_exported_where_transformers_has_such_a_one(tmp_path, table):
    saved(tmp_path / "bert", "Bert", BERT)
    settings = {
        "data": str(table),
        "model.init": str(tmp_path / "bert"),
        "data.limit": None,
        **QUIET,
    }
    run(complete("text/classify", "debug", settings), tmp_path / "other")
    assert to_hf(load(tmp_path / "other"), tmp_path / "without")
    given = {"model.objective.pool": "first", "model.objective.transform": {"activation": "Tanh"}}
    run(complete("text/classify", "debug", {**settings, **given}), tmp_path / "same")
    assert to_hf(load(tmp_path / "same"), tmp_path / "with") == []


def test_texts_end_where_the_learned_positions_do(tmp_path, table, caplog):
    saved(tmp_path / "bert", "Bert", BERT)
    table.write_text(table.read_text() + "w1 " * 200 + ",good\n" + "w2 " * 200 + ",bad\n")
    settings = {
        "data": str(table),
        "model.init": str(tmp_path / "bert"),
        "data.limit": None,
        **QUIET,
    }
    config = complete("text/classify", "debug", settings)
    assert config["data"]["max_tokens"] == CONTEXT
    assert run(config, tmp_path / "run")["state"] == "finished"
    assert f"have {CONTEXT} tokens or more and end there" in caplog.text
    assert (
        complete("text/classify", "debug", {**settings, "data.max_tokens": 9})["data"]["max_tokens"]
        == 9
    )


def test_a_recipe_that_names_the_folder_gets_what_it_leaves_out(tmp_path, table):
    saved(tmp_path / "bert", "Bert", BERT)
    written = {
        "data": str(table),
        "model": {"init": str(tmp_path / "bert"), "objective": "Classify", "dropout": 0.4},
    }
    config = complete(written)
    assert config["tokenizer"]["type"] == "FromFile"
    assert config["model"]["backbone"]["dim"] == 24
    assert config["model"]["dropout"] == 0.4
    by_override = complete(
        "text/classify", None, {"data": str(table), "model.init": str(tmp_path / "bert")}
    )
    assert config["model"]["backbone"] == by_override["model"]["backbone"]


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        ({}, 5e-5),
        ({"trainer.fine_tuning": "LoRA"}, 1e-3),
        ({"trainer.fine_tuning": {"type": "Freeze", "parts": ["embedder"]}}, 1e-3),
        ({"trainer.fine_tuning": None}, 5e-5),
        ({"optimizer": "AdamW", "optimizer.layer_decay": 0.8}, 5e-5),
        ({"optimizer.lr": 0.01}, 0.01),
    ],
)
@pytest.mark.parametrize("recipe", ["text/classify", "own/classify"])
def test_trained_weights_get_a_learning_rate_that_keeps_them(tmp_path, table, recipe, given, rate):
    """The recipes begin with random weights, for which their rates are 40 times as high or more."""
    saved(tmp_path / "bert", "Bert", BERT)
    config = complete(
        recipe, None, {"data": str(table), "model.init": str(tmp_path / "bert"), **given}
    )
    assert config["optimizer"]["type"] == "AdamW"
    assert config["optimizer"]["lr"] == rate
    assert config["trainer"]["min_steps"] == 100


def bert_and_texts(place):
    saved(place / "model", "Bert", BERT)
    rows = [f"w{i % 9} w{i % 5} w{i % 7},{'ab'[i % 2]}" for i in range(40)]
    (place / "data.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return "text/classify", place / "data.csv"


def dinov2_and_pictures(place):
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "patch_size": 5}
    config = transformers.Dinov2Config(**sizes, image_size=40, mlp_ratio=2)
    transformers.Dinov2Model(config).save_pretrained(place / "model")
    size = {"height": 20, "width": 20}
    processor = transformers.BitImageProcessor(size={"shortest_edge": 24}, crop_size=size)
    processor.save_pretrained(place / "model")
    rng = np.random.default_rng(0)
    for i in range(40):
        path = place / "data" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (25, 30, 3), np.uint8)).save(path)
    return "image/classify", place / "data"


def wav2vec2_and_clips(place):
    config = transformers.Wav2Vec2Config(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, conv_dim=[5, 7],
        conv_kernel=[10, 8], conv_stride=[10, 8], num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    transformers.Wav2Vec2Model(config).save_pretrained(place / "model")
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(place / "model")
    rng = np.random.default_rng(0)
    for i in range(40):
        path = place / "data" / "ab"[i % 2] / f"{i}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes(rng.integers(-9000, 9000, 2000 + i, np.int16).tobytes())
    return "audio/classify", place / "data"


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, "LoRA", "Freeze"])
@pytest.mark.parametrize("make", [bert_and_texts, dinov2_and_pictures, wav2vec2_and_clips])
def test_one_command_fine_tunes_a_model_and_keeps_what_it_knows(tmp_path, make, method):
    recipe, data = make(tmp_path)
    before, _, _ = weights(tmp_path / "model", None)
    command = ["fit", recipe, "--data", str(data), "--model.init", str(tmp_path / "model")]
    how = [] if method is None else ["--trainer.fine_tuning", method]
    assert main([*command, *how, "--out", str(tmp_path / "run"), "--classical", "off"]) == 0
    after = load(tmp_path / "run").model.state_dict()
    changes = {
        name: float((after[name] - x).norm() / x.norm())
        for name, x in before.items()
        if name in after and x.ndim > 1
    }
    in_blocks = [change for name, change in changes.items() if ".blocks." in name]
    if method == "Freeze":
        assert max(changes.values()) == 0
    else:
        # about 100 steps of 0.00005, or of low-rank changes; a recipe's own rate would leave little of the weights
        assert 0 < max(in_blocks) < (0.3 if method is None else 1.0), changes
    if method == "LoRA":
        assert max(x for name, x in changes.items() if ".blocks." not in name) == 0
