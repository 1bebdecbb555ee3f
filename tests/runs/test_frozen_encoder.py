"""FrozenEncoder: vectors of `predict --embed` as tokens; another model is refused; each example goes through once."""

import json
import shutil

import pytest
import torch
from torch.testing import assert_close
from trained_runs import TEXT, kept_run

import seqkit
from seqkit.data import DataModule, Loading, encoding
from seqkit.data.inputs import Input
from seqkit.data.sources.table import Table
from seqkit.errors import DataError
from seqkit.objectives import Classify
from seqkit.runs.answers import hidden_states, vectors
from seqkit.runs.frozen_encoder import FrozenEncoder
from seqkit.runs.trained_model import load_one
from seqkit.tokenizers.join import Join

QUICK = {"preset": "debug", "report": False, "strong_baseline": False}
TEXTS = ["to be, or not", "a sea", "the question: to be"]


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_the_hidden_states_of_the_run_alone(text):
    run, tokens = load_one(kept_run()), FrozenEncoder(kept_run()).encode(text)
    own = run.encode(text)
    with torch.no_grad():
        right = hidden_states(run.model, seqkit.TokenBatch.collate([own]))[0]
    assert_close(tokens.content, right, rtol=0, atol=0)
    assert tokens.positions.equal(own.positions)
    assert not tokens.content.requires_grad


@pytest.mark.parametrize("pool", ["mean", "max", "first", "last"])
def test_pooled_tokens_are_one_vector(pool):
    tokenizer = FrozenEncoder(kept_run(), pool=pool)
    each, one = FrozenEncoder(kept_run()).encode(TEXTS[0]).content, tokenizer.encode(TEXTS[0])
    right = {"mean": each.mean(dim=0), "max": each.amax(dim=0), "first": each[0], "last": each[-1]}[
        pool
    ]
    assert_close(one.content, right[None])
    assert (tokenizer.spec.num_features, tokenizer.spec.num_axes) == (each.shape[1], 1)
    if pool == "mean":
        (vector,) = vectors(load_one(kept_run()), [Input("one", TEXTS[0])])
        assert_close(one.content[0], vector.values)


def another(folder, change):
    """A copy of the run with other weights."""
    from safetensors.torch import load_file, save_file

    from seqkit.runs.folder import sha256

    shutil.copytree(kept_run(), folder)
    path = folder / "checkpoints" / "model.safetensors"
    held = load_file(path)
    for x in held.values():
        change(x)
    save_file(held, path)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "sha256": sha256(path)}))
    return str(folder)


def test_another_model_in_its_place_is_refused(tmp_path):
    state = FrozenEncoder(kept_run()).state()
    other = FrozenEncoder(another(tmp_path / "run", lambda x: x.mul_(2)))
    other.load_state(state)
    with pytest.raises(DataError, match="other weights"):
        other.encode("to be")


@pytest.mark.parametrize(
    ("place", "said"),
    [("gone", "FrozenEncoder: gone"), (".", "FrozenEncoder: ")],
)
def test_a_model_that_is_not_there_is_a_line(place, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=said) as refused:
        FrozenEncoder(place).encode("to be")
    assert "\n" not in str(refused.value)


def test_a_state_of_something_else_is_refused():
    with pytest.raises(ValueError, match="sha256"):
        FrozenEncoder(kept_run()).load_state({"alphabet": "abc"})
    FrozenEncoder(kept_run()).load_state({})


def labelled(folder):
    rows = [f"{'to be or' if i % 2 else 'a sea of'} not,{'yn'[i % 2]}" for i in range(60)]
    (folder / "rows.csv").write_text("text,label\n" + "\n".join(rows))
    return str(folder / "rows.csv")


@pytest.mark.slow
def test_a_run_trains_on_the_vectors_and_reads_raw_texts_again(tmp_path):
    settings = {
        "data": labelled(tmp_path),
        "tokenizer": "FrozenEncoder",
        "tokenizer.model": kept_run(),
    }
    run = seqkit.fit(
        "text/classify",
        settings,
        preset="debug",
        out=tmp_path / "run",
        report=False,
        classical="off",
    )
    assert run.tokenizer.spec.num_features == load_one(kept_run()).model.backbone.dim
    again = seqkit.load(tmp_path / "run")
    assert again.predict(TEXTS) == run.predict(TEXTS)
    assert (
        json.loads((tmp_path / "run" / "state.json").read_text())["tokenizer"]
        == FrozenEncoder(kept_run()).state()
    )


def test_vectors_are_kept_on_disk_where_they_take_long(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(encoding, "MIN_SECONDS", 0.0)
    path = labelled(tmp_path)
    data = DataModule(Table(path), FrozenEncoder(kept_run()), Classify(), Loading(batch_size=7))
    data.setup()
    first, _ = next(iter(data.val_dataloader()))
    kept = sorted((tmp_path / "cache").iterdir())
    assert kept
    monkeypatch.setattr(FrozenEncoder, "encode", lambda *_: pytest.fail("it was encoded again"))
    again = DataModule(Table(path), FrozenEncoder(kept_run()), Classify(), Loading(batch_size=7))
    again.setup()
    second, _ = next(iter(again.val_dataloader()))
    assert first.content.equal(second.content)
    assert sorted((tmp_path / "cache").iterdir()) == kept


@pytest.mark.slow
def test_a_part_of_joined_tokens_may_be_frozen(tmp_path):
    joined = Join(
        {"text": FrozenEncoder(kept_run()), "letters": seqkit.tokenizers.Characters("abeost, ")}
    )
    assert joined.is_slow
    words = TEXT.replace(",", "").replace(".", "").split()
    texts = [" ".join(words[j % len(words)] for j in range(i, i + 5 + i % 4)) for i in range(60)]
    rows = [f"{text},{i % 7}.5,{'yn'[i % 2]}" for i, text in enumerate(texts)]
    (tmp_path / "rows.csv").write_text("text,size,label\n" + "\n".join(rows))
    part = {"type": "FrozenEncoder", "model": kept_run(), "pool": "mean"}
    settings = {"data": str(tmp_path / "rows.csv"), "tokenizer.parts.text": part}
    run = seqkit.fit(
        "multimodal/table",
        settings,
        preset="debug",
        out=tmp_path / "run",
        report=False,
        classical="off",
    )
    assert isinstance(run.tokenizer.parts["text"], FrozenEncoder)
    assert len(run.predict([{"text": "to be", "cells": {"size": 2.5}}, {"text": "a sea"}])) == 2
