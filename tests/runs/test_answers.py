"""Answers to many inputs: read batch by batch, and a fault stays with its own example."""

from types import SimpleNamespace

import pytest
import torch

from seqkit.data.inputs import Input
from seqkit.errors import UsageError
from seqkit.interfaces import Tokens, TokenSpec
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.runs.answers import BATCH_SIZE, predictions


class Letters:
    """A token a letter, all of them 1; some letters cannot be encoded."""

    spec = TokenSpec(num_features=1)

    def encode(self, raw):
        if raw == "bug":
            raise KeyError("mine")
        return Tokens(torch.ones(len(raw), 1), torch.arange(float(len(raw)))[:, None])


def model_of(classes=("short", "long"), most=10):
    """Classifies by the number of tokens; refuses more than `most`."""

    def forward(batch, masked=None):
        n = batch.valid.sum(dim=1)
        if int(n.max()) > most:
            raise ValueError(f"{int(n.max())} tokens are more than {most}")
        return torch.stack([(n < 4).float(), (n >= 4).float()], dim=1)

    objective = Classify()
    objective.fit([0, 1], list(classes))
    tokenizer = Letters()
    return SimpleNamespace(
        model=forward, tokenizer=tokenizer, objective=objective, encode=tokenizer.encode, unlike_training=lambda _: "",
        device=torch.device("cpu"),
    )  # fmt: skip


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

    trained = model_of()
    for objective in (NextToken(), Masked()):
        trained.objective = objective
        with pytest.raises(UsageError, match="predicts nothing for a raw example"):
            next(predictions(trained, never()))
    trained.objective = Regress()
    with pytest.raises(UsageError, match="Regress predicts no classes"):
        next(predictions(trained, never(), probabilities=True))
