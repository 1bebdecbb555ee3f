"""What is measured is complete, and random examples are like the data's."""

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch

from seqkit.analysis.speed import TOKENS_TIMED, _example, measure, step_seconds, token_latencies
from seqkit.backbones import GRU, Transformer
from seqkit.config import complete
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.runs.prepare import prepare

VOCAB, DIM = 11, 6
SMALL = ["--trainer.accelerator", "cpu", "--data.batch_size", "4"]


def prepared(recipe, *words):
    return prepare(complete(recipe, "debug", [*SMALL, *words]))


@pytest.fixture(autouse=True)
def one_round(monkeypatch):
    monkeypatch.setattr("seqkit.analysis.speed.NUM_ROUNDS", 1)


@pytest.mark.slow
def test_every_model_is_measured_at_every_length_that_it_takes():
    """A learned table of 64 positions is too short for 71 tokens."""
    short = "{type: Learned, sizes: [64]}"
    models = {
        "short": prepared(
            "text/char-lm", "--model.backbone", "Transformer", "--model.position", short
        ),
        "GRU": prepared("text/char-lm", "--model.backbone", "GRU"),
    }
    costs = measure(models, lengths=(13, 5, 71))
    for name, cost in costs.items():
        assert cost.tokens_per_second > 0 < cost.step_seconds
        for rows in (cost.seconds_by_length, cost.memory_by_length, cost.latency_by_context):
            assert [n for n, _ in rows] == ([5, 13] if name == "short" else [5, 13, 71])
            assert all(value > 0 for _, value in rows)
        weights = sum(p.nbytes for p in models[name].model.parameters())
        assert cost.memory_by_length[0][1] >= 3 * weights, "weights, gradients and moments"
        json.dumps(asdict(cost))


def test_a_graph_has_no_lengths():
    cost = measure({"one": prepared("graph/karate", "--data.batch_size", "1")}, lengths=(5,))["one"]
    assert (cost.seconds_by_length, cost.memory_by_length, cost.latency_by_context) == (
        None,
        None,
        None,
    )


def test_each_step_trains_the_model():
    one = prepared("image/digits")
    before = [p.clone() for p in one.model.parameters()]
    assert (
        len(step_seconds(one, [_example(one, next(iter(one.data.train_dataloader())), 5)] * 3)) == 3
    )
    assert any(not torch.equal(p, old) for p, old in zip(one.model.parameters(), before))


def batch_of(*lengths):
    return TokenBatch.collate(
        [Tokens(torch.arange(n) % VOCAB, torch.arange(float(n))[:, None]) for n in lengths]
    )


@pytest.mark.parametrize(
    ("objective", "label"),
    [
        (Classify(), torch.tensor([1, 0])),
        (Classify(level="token"), torch.randint(2, (2, 7))),
        (Regress(), torch.tensor([[0.5], [1.5]])),
        (Masked(), None),
    ],
)
def test_labels_are_fitted_to_every_length(objective, label):
    if isinstance(objective, Classify):
        objective.fit([0, 1], None)
    if isinstance(objective, Regress):
        objective.fit([0.5, 1.5], None)
    model = Model(TokenSpec(vocab_size=VOCAB), GRU(DIM, 1), objective)
    one = SimpleNamespace(model=model, data=SimpleNamespace(objective=objective))
    for n in (3, 11):
        output = objective.step(model, _example(one, (batch_of(7, 5), label), n), training=True)
        assert output.loss.isfinite()
    assert token_latencies(model, [5]) is None, "it is not causal"


@pytest.mark.parametrize("n", [3, 5, TOKENS_TIMED + 3, 29])
def test_the_last_timed_token_has_the_whole_context_before_it(n):
    model = Model(
        TokenSpec(vocab_size=VOCAB),
        Transformer(DIM, 1, num_heads=2, causal=True),
        NextToken(tied=False),
    )
    read = []
    model.register_forward_pre_hook(lambda _, args: read.append(args[0].valid.shape[1]))
    ((length, seconds),) = token_latencies(model, [n])
    prompt, *steps = read[-(2 + min(TOKENS_TIMED, n - 2)) :]
    assert set(steps) == {1}
    assert prompt + len(steps) == n
    assert length == n
    assert seconds > 0
    assert token_latencies(model, [2]) == []
