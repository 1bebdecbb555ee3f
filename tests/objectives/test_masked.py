"""Masked: only masked tokens have a loss; ids by cross-entropy, vectors by squared error."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import LSTM
from seqkit.interfaces import IGNORE, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.embedder import EmbeddingSettings
from seqkit.nn.mlp import Transform
from seqkit.nn.position.absolute import Learned, Sinusoidal
from seqkit.objectives import Masked
from seqkit.tokenizers import Ids, Join


def examples(lengths, ids):
    content = (lambda n: torch.randint(7, (n,))) if ids else (lambda n: torch.randn(n, 3))
    return TokenBatch.collate(
        [Tokens(content(n), torch.arange(float(n))[:, None]) for n in lengths]
    )


IDS, VECTORS = TokenSpec(vocab_size=7), TokenSpec(num_features=3)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.floats(0.01, 0.99), st.booleans())
def test_the_given_share_of_real_tokens_is_masked_and_at_least_one(lengths, fraction, ids):
    batch = examples(lengths, ids)
    task = Masked(fraction=fraction).prepare(batch, None)
    assert task.batch is batch
    for i, n in enumerate(lengths):
        assert int(task.masked[i].sum()) == max(1, round(float(torch.tensor(n) * fraction)))
        assert not task.masked[i, n:].any()


def test_different_tokens_are_masked_each_time_and_the_same_for_the_same_seed():
    batch, objective = examples([31, 31], True), Masked(fraction=0.4)
    masked = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        masked.append(objective.prepare(batch, None).masked)
    assert masked[0].equal(masked[1])
    assert not masked[0].equal(masked[2])
    assert not masked[0][0].equal(masked[0][1])
    share = sum(objective.prepare(batch, None).masked.float() for _ in range(200)) / 200
    # five deviations; no column is left out or favoured
    assert float((share - 0.4).abs().max()) < 0.2


def test_the_loss_of_ids_is_the_sum_of_cross_entropies_over_masked_tokens():
    batch, objective = examples([5, 3], True), Masked(fraction=0.4)
    task = objective.prepare(batch, None)
    logits = torch.randn(2, 5, 7)
    loss = objective.loss(logits, task.target)
    expected = 0.0
    for i, t in task.masked.nonzero().tolist():
        weights = [math.exp(float(s)) for s in logits[i, t]]
        expected -= math.log(weights[int(batch.content[i, t])] / sum(weights))
    assert float(loss.loss) == pytest.approx(expected, rel=1e-5)
    assert int(loss.count) == int(task.masked.sum())
    assert (task.target[~task.masked] == IGNORE).all()


def test_the_loss_of_vectors_is_the_sum_of_mean_squared_errors_over_masked_tokens():
    batch, objective = examples([5, 3], False), Masked(fraction=0.4)
    task = objective.prepare(batch, None)
    preds = torch.randn(2, 5, 3)
    loss = objective.loss(preds, task.target)
    places = task.masked.nonzero().tolist()
    expected = sum(float(((preds[i, t] - batch.content[i, t]) ** 2).sum()) / 3 for i, t in places)
    assert float(loss.loss) == pytest.approx(expected, rel=1e-5)
    assert int(loss.count) == len(places)
    assert_close(loss.preds, torch.stack([preds[i, t] for i, t in places]))
    assert_close(loss.target, torch.stack([batch.content[i, t] for i, t in places]))


def test_the_baselines_are_frequencies_or_the_mean():
    objective, target = Masked(fraction=0.4), torch.tensor([[2, IGNORE, 2]])
    assert_close(objective.baseline([target], IDS)(target).exp()[0, 0, 2], torch.tensor(3 / 9))
    batch = examples([31, 31], False)
    target = objective.prepare(batch, None).target
    known = target[~target[..., 0].isnan()]
    preds = objective.baseline([target], VECTORS)(target)
    assert preds.shape == target.shape
    assert_close(preds[0, 0], known.mean(dim=0))
    loss = objective.loss(preds, target)
    explained = objective.metrics(VECTORS)["explained"]
    explained.update(loss.preds, loss.target)
    assert float(explained.compute()) == pytest.approx(0.0, abs=1e-5)


def test_explained_variance_is_one_without_error_and_half_for_half_the_error():
    explained = Masked().metrics(VECTORS)["explained"]
    target = torch.randn(31, 3)
    for half in target[:17], target[17:]:
        explained.update(half, half)
    assert float(explained.compute()) == pytest.approx(1.0)
    explained.reset()
    centred = target - target.mean(dim=0)
    explained.update(target - centred * 0.5**0.5, target)
    assert float(explained.compute()) == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize(("spec", "names"), [(IDS, {"accuracy"}), (VECTORS, {"explained"})])
def test_the_head_the_metrics_and_the_loss_are_those_of_the_tokens(spec, names):
    """Of one objective, which keeps nothing of the model that was built last."""
    objective = Masked(fraction=0.4)
    for each in (spec, VECTORS if spec.ids else IDS):
        Model(each, LSTM(12), objective)
    assert set(objective.metrics(spec)) == names
    task = objective.prepare(examples([5, 3], spec.ids), None)
    prediction = Model(spec, LSTM(12), objective)(task.batch, task.masked)
    assert objective.baseline([task.target], spec)(task.target).shape == prediction.shape
    assert vars(objective) == vars(Masked(fraction=0.4))


@pytest.mark.parametrize("ids", [True, False])
def test_in_training_the_loss_is_the_same_and_nothing_is_selected(ids):
    objective, prediction = (
        Masked(fraction=0.4),
        torch.randn(2, 5, 7 if ids else 3, requires_grad=True),
    )
    target = objective.prepare(examples([5, 3], ids), None).target
    training, evaluation = (
        objective.loss(prediction, target, training=True),
        objective.loss(prediction, target),
    )
    assert_close(training.loss, evaluation.loss)
    assert int(training.count) == int(evaluation.count) == len(evaluation.preds)
    assert (training.preds, training.target) == (None, None)
    (gradient,) = torch.autograd.grad(training.loss, prediction)
    assert bool(gradient.isfinite().all())
    unmasked = target == IGNORE if ids else target[..., 0].isnan()
    assert not gradient[unmasked].any()
    assert gradient[~unmasked].abs().amax(dim=-1).min() > 0


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5])
def test_a_fraction_that_masks_nothing_or_all_is_refused(fraction):
    with pytest.raises(ValueError, match=f"fraction={fraction}"):
        Masked(fraction=fraction)


@pytest.mark.parametrize("embedding_dim", [None, 5])
def test_a_tied_head_is_the_embedding_table_with_a_bias_for_each_id(embedding_dim):
    """After a transform to the width of a narrow table, too (ELECTRA, ALBERT)."""
    transform = (
        None
        if embedding_dim is None
        else partial(Transform, width=embedding_dim, norm=nn.LayerNorm)
    )
    objective = Masked(tied=True, transform=transform)
    model = Model(
        IDS,
        LSTM(12),
        objective,
        embedding=EmbeddingSettings(embedding_dim=embedding_dim),
        position=partial(Learned, sizes=[5]),
    )
    assert model.head.table is model.embedder.content
    assert model.head.bias.shape == (7,)
    objective.step(model, (examples([5, 3], True), None), training=True).loss.backward()
    assert all(bool((p.grad != 0).any()) for p in model.head.parameters())


def test_tied_logits_start_at_about_1_where_the_entries_of_the_table_do():
    """Beside sinusoids: the factor is that of the table's width."""
    for width, settings in ((12, {}), (6, {"embedding": EmbeddingSettings(embedding_dim=6)})):
        objective = Masked(tied=True, transform=partial(Transform, width=width))
        assert (
            Model(IDS, LSTM(12), objective, position=Sinusoidal, **settings).head.scale
            == width**-0.5
        )


@pytest.mark.parametrize(
    ("spec", "settings", "message"),
    [
        (VECTORS, {}, "tied=True"),
        (TokenSpec(vocab_sizes=(3, 5)), {}, "several ids"),
        (IDS, {"transform": partial(Transform, width=5)}, "12 of 5"),
    ],
)
def test_a_head_cannot_be_tied_to_a_table_that_is_not_there_or_of_another_width(
    spec, settings, message
):
    with pytest.raises(ValueError, match=message):
        Model(spec, LSTM(12), Masked(tied=True, **settings))


def test_a_narrow_table_is_answered_with_the_width_of_the_transform():
    with pytest.raises(ValueError, match=r"5 of 12.*width=5"):
        Model(IDS, LSTM(12), Masked(tied=True), embedding=EmbeddingSettings(embedding_dim=5))


def test_each_part_has_a_transform_and_a_table_of_its_own():
    tokenizer = Join({"text": Ids(7), "other": Ids(5)})
    model = Model(tokenizer.spec, LSTM(12), Masked(tied=True, transform=Transform))
    heads = {name: part.head for name, part in model.head.heads.items()}
    assert {name: head.table is model.embedder.parts[name].content for name, head in heads.items()} == {
        "text": True, "other": True
    }  # fmt: skip
    assert heads["text"].transform.linear.weight is not heads["other"].transform.linear.weight


def test_tokens_without_content_are_not_predicted():
    spec = TokenSpec(num_features=5, num_prefix_tokens=2)
    with pytest.raises(ValueError, match="num_prefix_tokens=0"):
        Model(spec, LSTM(8), Masked())
