"""Masked: what is hidden is predicted, nothing else counts; ids by cross-entropy, vectors by squared error."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from seqkit.backbones import LSTM
from seqkit.contract import IGNORE, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Masked


def examples(lengths, ids):
    content = (lambda n: torch.randint(7, (n,))) if ids else (lambda n: torch.randn(n, 3))
    return TokenBatch.collate([Tokens(content(n), torch.arange(float(n))[:, None]) for n in lengths])


def fitted(ids, fraction=0.4):
    objective = Masked(fraction=fraction)
    Model(TokenSpec(vocab_size=7) if ids else TokenSpec(num_features=3), LSTM(12), objective)
    return objective


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.floats(0.01, 0.99), st.booleans())
def test_the_asked_share_of_real_tokens_is_hidden_and_at_least_one(lengths, fraction, ids):
    batch = examples(lengths, ids)
    task = fitted(ids, fraction).prepare(batch, None)
    assert task.batch is batch
    for i, n in enumerate(lengths):
        assert int(task.hide[i].sum()) == max(1, round(float(torch.tensor(n) * fraction)))
        assert not task.hide[i, n:].any()


def test_different_tokens_are_hidden_each_time_and_the_same_for_the_same_seed():
    batch, objective = examples([31, 31], True), fitted(True)
    hidden = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        hidden.append(objective.prepare(batch, None).hide)
    assert hidden[0].equal(hidden[1])
    assert not hidden[0].equal(hidden[2])
    assert not hidden[0][0].equal(hidden[0][1])
    often = sum(objective.prepare(batch, None).hide.float() for _ in range(200)) / 200
    assert float((often - 0.4).abs().max()) < 0.2  # five deviations; no column is left out or favoured


def test_the_loss_of_ids_is_the_sum_of_cross_entropies_over_hidden_tokens():
    batch, objective = examples([5, 3], True), fitted(True)
    task = objective.prepare(batch, None)
    scores = torch.randn(2, 5, 7)
    score = objective.score(scores, task.target)
    right = 0.0
    for i, t in task.hide.nonzero().tolist():
        weights = [math.exp(float(s)) for s in scores[i, t]]
        right -= math.log(weights[int(batch.content[i, t])] / sum(weights))
    assert float(score.loss) == pytest.approx(right, rel=1e-5)
    assert int(score.count) == int(task.hide.sum())
    assert (task.target[~task.hide] == IGNORE).all()


def test_the_loss_of_vectors_is_the_sum_of_mean_squared_errors_over_hidden_tokens():
    batch, objective = examples([5, 3], False), fitted(False)
    task = objective.prepare(batch, None)
    guess = torch.randn(2, 5, 3)
    score = objective.score(guess, task.target)
    at = task.hide.nonzero().tolist()
    right = sum(float(((guess[i, t] - batch.content[i, t]) ** 2).sum()) / 3 for i, t in at)
    assert float(score.loss) == pytest.approx(right, rel=1e-5)
    assert int(score.count) == len(at)
    assert_close(score.predicted, torch.stack([guess[i, t] for i, t in at]))
    assert_close(score.truth, torch.stack([batch.content[i, t] for i, t in at]))


def test_the_baselines_say_frequencies_or_the_mean():
    objective, target = fitted(True), torch.tensor([[2, IGNORE, 2]])
    assert_close(objective.constant([target])(target).exp()[0, 0, 2], torch.tensor(3 / 9))
    objective = fitted(False)
    batch = examples([31, 31], False)
    target = objective.prepare(batch, None).target
    known = target[~target[..., 0].isnan()]
    guess = objective.constant([target])(target)
    assert guess.shape == target.shape
    assert_close(guess[0, 0], known.mean(dim=0))
    score = objective.score(guess, target)
    explained = objective.metrics()["explained"]
    explained.update(score.predicted, score.truth)
    assert float(explained.compute()) == pytest.approx(0.0, abs=1e-5)


def test_explained_is_one_for_perfection_and_half_for_half_the_error():
    explained = fitted(False).metrics()["explained"]
    truth = torch.randn(31, 3)
    for half in truth[:17], truth[17:]:
        explained.update(half, half)
    assert float(explained.compute()) == pytest.approx(1.0)
    explained.reset()
    centred = truth - truth.mean(dim=0)
    explained.update(truth - centred * 0.5**0.5, truth)
    assert float(explained.compute()) == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5])
def test_a_fraction_that_hides_nothing_or_all_is_refused(fraction):
    with pytest.raises(ValueError, match=f"fraction={fraction} should lie between 0 and 1"):
        Masked(fraction=fraction)
