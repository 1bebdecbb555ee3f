"""Answers to many inputs: read batch by batch, and a fault stays with its own example."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import seqkit
from seqkit.backbones import GRU
from seqkit.config import Config
from seqkit.data.inputs import Input
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.runs.answers import BATCH_SIZE, pool_of, predictions, vectors
from seqkit.runs.summary import Summary
from seqkit.runs.trained_model import TrainedModel, load_one
from seqkit.serve.answers import ServedRun
from seqkit.tokenizers import Cells


class Letters:
    """A token a letter, all of them 1; some letters cannot be encoded."""

    spec = TokenSpec(num_features=1)

    def encode(self, raw):
        if raw == "bug":
            raise KeyError("mine")
        return Tokens(torch.ones(len(raw), 1), torch.arange(float(len(raw)))[:, None])


class Computes(nn.Module):
    """A model that is a function of the batch."""

    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.zeros(1))

    def forward(self, batch, masked=None):
        return self.function(batch)


def model_of(classes=("short", "long"), most=10):
    """Classifies by the number of tokens; refuses more than `most`."""

    def forward(batch):
        n = batch.valid.sum(dim=1)
        if int(n.max()) > most:
            raise ValueError(f"{int(n.max())} tokens are more than {most}")
        return torch.stack([(n < 4).float(), (n >= 4).float()], dim=1)

    objective = Classify()
    objective.fit([0, 1], list(classes))
    tokenizer = Letters()
    summary = Summary.model_construct()
    return TrainedModel(Computes(forward), tokenizer, objective, Config({}), summary, Path())


def test_a_fault_of_one_example_leaves_the_others_of_its_batch_their_answers():
    words = ["ab", "abcdef", "x" * 11, "bug", "abc"]
    given = [Input(word, word) for word in words] + [Input("gone", error="gone is no file")]
    found = list(predictions(model_of(), given))
    assert [one.name for one in found] == [*words, "gone"]
    assert [one.prediction for one in found] == ["short", "long", None, None, "short", None]
    assert [bool(one.error) for one in found] == [False, False, True, True, False, True]
    assert "11 tokens are more than 10" in found[2].error
    assert "KeyError" in found[3].error
    assert found[5].error == "gone is no file"


def test_inputs_are_read_batch_by_batch_and_not_all_before_the_first_answer():
    read = []

    def endless():
        while True:
            read.append(1)
            yield Input("a", "a")

    answers = predictions(model_of(), endless())
    for _ in range(BATCH_SIZE + 1):
        next(answers)
    assert len(read) == 2 * BATCH_SIZE


def test_objectives_without_an_answer_or_without_classes_are_refused_before_anything_is_read():
    def never():
        raise AssertionError
        yield

    for objective in (NextToken(), Masked()):
        with pytest.raises(UsageError, match="predicts nothing"):
            next(predictions(replace(model_of(), objective=objective), never()))
    Own = type("Own", (Masked,), {"__module__": "own"})
    with pytest.raises(UsageError, match=r"Own .*decode"):
        next(predictions(replace(model_of(), objective=Own()), never()))
    trained = replace(model_of(), objective=Regress())
    with pytest.raises(UsageError, match="Regress"):
        next(predictions(trained, never(), probabilities=True))


@pytest.mark.parametrize("pool", ["mean", "sum", "max", "last", "first"])
def test_a_vector_is_pooled_as_the_models_head_pools_and_without_padding(pool):
    torch.manual_seed(0)
    objective = Classify(pool=pool)
    objective.fit([0, 1], None)
    trained = replace(model_of(), model=Model(Letters.spec, GRU(6, 1), objective).eval())
    for one, n in zip(
        vectors(trained, [Input(word, word) for word in ("abcdefg", "ab", "a")]), (7, 2, 1)
    ):
        with torch.no_grad():
            hidden = trained.model.backbone(
                trained.model.embedder(TokenBatch.collate([Letters().encode("x" * n)]))
            )[0]
        right = {
            "mean": hidden.mean(0),
            "sum": hidden.sum(0),
            "max": hidden.amax(0),
            "last": hidden[-1],
        }
        torch.testing.assert_close(one.values, right.get(pool, hidden[0]))


def test_a_head_that_does_not_pool_leaves_the_mean():
    objective = Classify(level="token")
    objective.fit([torch.tensor([0, 1])], None)
    assert pool_of(Model(Letters.spec, GRU(6, 1), objective)) == "mean"


def test_tokens_have_predictions_and_probabilities_and_padding_has_none():
    objective = Classify(level="token")
    objective.fit([torch.tensor([0, 1])], ["no", "yes"])
    by_token = Computes(
        lambda batch: torch.stack([batch.positions[..., 0], torch.ones(batch.valid.shape)], -1)
    )
    trained = replace(model_of(), objective=objective, model=by_token)
    words = ["abcde", "ab"]
    for chosen in (True, False):
        found = list(
            predictions(trained, [Input(word, word) for word in words], probabilities=chosen)
        )
        assert [one.prediction for one in found] == [["yes", "no", "no", "no", "no"], ["yes", "no"]]
        assert [
            None if one.probabilities is None else one.probabilities.shape for one in found
        ] == ([(5, 2), (2, 2)] if chosen else [None, None])


@pytest.mark.parametrize(
    ("bad", "said"), [(math.nan, "NaN"), (math.inf, "infinity"), (-math.inf, "infinity")]
)
def test_weights_that_are_not_numbers_give_no_answer(bad, said):
    """Of a batch, only the examples whose own prediction is not finite fail."""
    trained = model_of()
    forward = trained.model.function
    trained.model.function = lambda batch: forward(batch).masked_fill(
        (batch.valid.sum(dim=1) > 3)[:, None], bad
    )
    found = list(predictions(trained, [Input(word, word) for word in ("ab", "abcdef")]))
    assert (found[0].prediction, found[0].error) == ("short", None)
    assert f"computes {said}" in found[1].error


ROW = {"a": 1.0, "word": "u"}


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """A run on numbers, a category and a text."""
    place = tmp_path_factory.mktemp("joined")
    words = ("red", "blue", "fast", "slow")
    lines = [f"{i},{'uv'[i % 2]},{words[i % 4]} it is {i},{i * 0.5}" for i in range(40)]
    (place / "t.csv").write_text("\n".join(["a,word,note,y", *lines]))
    keys = {"data": str(place / "t.csv"), "data.target": "y", "trainer.enable_progress_bar": False}
    keys |= {"data.columns": {"note": "text", "a": "number", "word": "category"}}
    seqkit.fit(
        "multimodal/table", keys | {"model.objective": "Regress"}, preset="debug", out=place / "run"
    )
    return load_one(place / "run")


def test_a_row_is_flat_or_nested_in_python_and_over_http(joined):
    rows = [{**ROW, "note": "red"}, {"cells": ROW, "note": "red"}]
    rows.append({"a": 1.0, "cells": {"word": "u"}, "note": "red"})
    flat, nested, mixed = joined.predict(rows)
    served = ServedRun(joined, 30.0).answers([("predict", row) for row in rows])
    assert [flat, mixed] == pytest.approx([nested] * 2)
    assert [one["prediction"] for one in served] == pytest.approx([nested] * 3, abs=1e-5)
    with pytest.raises(DataError, match=r"example 1: 'b' is no part .* there are: a, note, word"):
        joined.predict([rows[0], {"a": 1.0, "b": 2}])


def test_a_number_outside_its_range_in_training_is_named(joined, caplog):
    """Here by columns of two rows; a number at the end of the range, a gap and an unknown word are not."""
    cells = joined.tokenizer.parts["cells"]
    low, high = cells.outside({"a": -5.0})["a"][1:]
    rows = [{**ROW, "a": x, "note": "red"} for x in (low, high, None, 1e6, -5.0)]
    rows[0]["word"] = "new"
    joined.predict(rows)
    said = [one.getMessage() for one in caplog.records if "range" in one.getMessage()]
    assert said == [
        f"numbers outside their range in training: a 1e+06, in training {low:g} to {high:g} (2)"
    ]
    served = ServedRun(joined, 30.0).answers([("predict", row) for row in rows])
    assert ["warning" in one for one in served] == [False, False, False, True, True]
    assert f"a -5, in training {low:g} to {high:g}" in served[4]["warning"]


def test_ranges_of_an_older_run_are_those_of_its_bins(joined):
    cells = joined.tokenizer.parts["cells"]
    state = cells.state()
    older = Cells(num_bins=8)
    without = [{k: v for k, v in one.items() if k != "ends"} for one in state["columns"]]
    older.load_state({"columns": without})
    assert older.outside({"a": 1e6}) == cells.outside({"a": 1e6}) != {}
    for one in state["columns"]:
        one.pop("ends", None)
        if "edges" in one:
            one["edges"] = []
    older.load_state(state)
    assert older.outside({"a": 1e6}) == {}
