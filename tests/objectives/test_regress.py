"""Regress: errors of standardised targets over those that are known; predictions in the target's own unit."""

import json
import math

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import LSTM
from seqkit.data import DataModule, DataSource, Loading, Sample, Selection, Splits
from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Regress
from seqkit.tokenizers import Bytes
from seqkit.training.module import TrainingModule
from seqkit.training.optim import AdamW
from seqkit.training.trainer import make_trainer, silence_lightning, train

# means 6 and 20, standard deviations sqrt(26/3) and 10
LABELS = [[3.0, 10.0], [5.0, 30.0], [10.0, math.nan]]
MEANS, STDS = [6.0, 20.0], [math.sqrt(26 / 3), 10.0]


@pytest.fixture
def batch():
    return TokenBatch.collate(
        [Tokens(torch.randn(n, 5), torch.arange(float(n))[:, None]) for n in (3, 2)]
    )


def fitted(**settings):
    objective = Regress(**settings)
    objective.fit([torch.tensor(label) for label in LABELS], None)
    return objective


@pytest.mark.parametrize("pool", ["mean", "sum", "max", "last", "first"])
def test_a_sequence_is_pooled_as_asked(pool):
    assert Model(TokenSpec(num_features=5), LSTM(12), fitted(pool=pool)).head.pool == pool


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_in_training_the_loss_is_the_same_and_nothing_is_selected(loss):
    objective, target = fitted(loss=loss), torch.tensor([[math.nan, 1.0], [2.0, math.nan]])
    prediction = torch.randn(2, 2, requires_grad=True)
    training, evaluation = (
        objective.loss(prediction, target, training=True),
        objective.loss(prediction, target),
    )
    assert_close(training.loss, evaluation.loss)
    assert int(training.count) == int(evaluation.count) == len(evaluation.preds) == 2
    assert (training.preds, training.target) == (None, None)
    (gradient,) = torch.autograd.grad(training.loss, prediction)
    assert (gradient != 0).tolist() == [[False, True], [True, False]]


def test_mean_and_std_are_those_of_the_known_training_targets():
    objective = fitted()
    assert objective.mean == pytest.approx(MEANS)
    assert objective.std == pytest.approx(STDS)


@pytest.mark.parametrize(
    ("loss", "error"),
    [("squared", lambda e: e * e), ("huber", lambda e: e * e / 2 if abs(e) < 1 else abs(e) - 0.5)],
)
def test_the_loss_is_the_sum_over_known_targets(batch, loss, error):
    objective = fitted(loss=loss)
    target = objective.prepare(batch, torch.tensor([[7.0, math.nan], [-2.0, 65.0]])).target
    preds = torch.tensor([[0.3, 9.0], [-0.7, 0.1]])
    loss = objective.loss(preds, target)
    expected = sum(
        error(float(preds[i, k]) - (float(target[i, k]) - MEANS[k]) / STDS[k])
        for i, k in ((0, 0), (1, 0), (1, 1))
    )
    assert float(loss.loss) == pytest.approx(expected, rel=1e-5)
    assert int(loss.count) == 3
    assert loss.target.tolist() == [7.0, -2.0, 65.0]
    assert loss.preds.tolist() == pytest.approx(
        [6 + 0.3 * STDS[0], 6 - 0.7 * STDS[0], 20 + 0.1 * STDS[1]]
    )


def test_a_missing_target_has_no_gradient(batch):
    preds = torch.zeros(2, 2, requires_grad=True)
    fitted().loss(preds, torch.tensor([[math.nan, 1.0], [2.0, math.nan]])).loss.backward()
    assert preds.grad.isfinite().all()
    assert (preds.grad == 0).tolist() == [[True, False], [False, True]]


def test_a_single_target_per_example_needs_no_axis(batch):
    objective = Regress()
    objective.fit([1.0, 3.0], None)
    assert (objective.mean, objective.std) == ([2.0], [1.0])
    assert objective.prepare(batch, torch.tensor([1.0, 3.0])).target.tolist() == [[1.0], [3.0]]
    assert objective.decode(torch.tensor([[0.5], [-1.0]])) == [2.5, 1.0]


def test_a_target_per_token_has_a_prediction_per_token(batch):
    objective = Regress(level="token")
    objective.fit([torch.tensor([1.0, 3.0]), torch.tensor([math.nan, 5.0])], None)
    assert objective.mean == [3.0]
    assert objective.prepare(batch, torch.zeros(2, 3)).target.shape == (2, 3, 1)
    model = Model(TokenSpec(num_features=5), LSTM(12), objective)
    assert model(batch).shape == (2, 3, 1)


class Depths(DataSource):
    """Texts, and two targets for each character: its index, and twice its index where that is known."""

    texts = ("abc", "defghij", "kl", "mnopq", "rstuvwx")

    def splits(self):
        def label(text):
            twice = [math.nan if i % 3 == 1 else 2.0 * i for i in range(len(text))]
            return torch.tensor([*zip(map(float, range(len(text))), twice)])

        samples = [Sample(text, label(text)) for text in self.texts]
        return Splits(samples[1:], samples)


def test_numbers_per_token_of_texts_of_differing_length_are_learned():
    objective = Regress(level="token")
    data = DataModule(
        Depths(), Bytes(), objective, Loading(batch_size=5), Selection(valid_fraction=0.0), seed=1
    )
    data.setup()
    model = Model(Bytes().spec, LSTM(14), objective)
    batch, label = next(iter(data.test_dataloader()))
    assert label.shape == (5, 7, 2)
    task = objective.prepare(batch, label)
    prediction = model(task.batch).detach()
    loss = objective.loss(prediction, task.target)
    errors = [
        (
            float(prediction[b, n, k])
            - (float(label[b, n, k]) - objective.mean[k]) / objective.std[k]
        )
        for b, text in enumerate(sorted(Depths.texts, key=len))
        for n in range(len(text))
        for k in range(2)
        if k == 0 or n % 3 != 1
    ]
    assert int(loss.count) == len(errors) == len(loss.target)
    assert float(loss.loss) == pytest.approx(sum(e * e for e in errors), rel=1e-4)
    rmse = objective.metrics(Bytes().spec)["rmse"]
    rmse.update(loss.preds, loss.target)
    assert math.isfinite(float(rmse.compute()))

    module = TrainingModule(model, objective, optimizer=AdamW(0.01))
    before = [p.detach().clone() for p in model.parameters()]
    settings = {"max_steps": 1, "accelerator": "cpu", "enable_progress_bar": False}
    trainer = make_trainer(settings, logger=False)
    with silence_lightning():
        train(trainer, module, data.train_dataloader(), None)
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert any(not torch.equal(p, q) for p, q in zip(model.parameters(), before))


@pytest.mark.parametrize(
    ("level", "label", "message"),
    [
        ("sequence", [1.0, 2.0, 3.0], "label has 3 targets; give 2"),
        ("token", torch.zeros(5, 3), "label has 3 targets; give 2"),
        ("token", 1.0, "one for each token"),
        ("sequence", "much", "much"),
    ],
)
def test_labels_that_do_not_fit_the_training_targets_are_refused(level, label, message):
    objective = Regress(level=level)
    objective.load_state({"mean": MEANS, "std": STDS})
    with pytest.raises(DataError, match=message):
        objective.encode_target(label)


def test_constant_targets_keep_their_unit():
    objective = Regress()
    objective.fit([4.0, 4.0], None)
    assert objective.std == [1.0]


def test_a_target_without_any_value_is_refused():
    with pytest.raises(DataError, match="no value"):
        Regress().fit([torch.tensor([1.0, math.nan]), torch.tensor([2.0, math.nan])], None)


@pytest.mark.parametrize("label", [None, torch.zeros(2), torch.zeros(2, 3), torch.zeros(3, 2)])
def test_labels_of_a_wrong_shape_are_refused(batch, label):
    with pytest.raises(DataError, match=r"\[2, 2\]"):
        fitted().prepare(batch, label)


def test_the_state_is_saved_as_json():
    other, objective = Regress(), fitted()
    other.load_state(json.loads(json.dumps(objective.state())))
    assert (other.mean, other.std) == (objective.mean, objective.std)


def test_the_baseline_predicts_the_mean():
    objective, target = fitted(), torch.tensor([[7.0, 1.0]])
    preds = objective.baseline([target], TokenSpec(num_features=5))(target)
    assert_close(objective.loss(preds, target).preds, torch.tensor(MEANS))
    assert objective.decode(preds) == [pytest.approx(MEANS)]


def test_metrics_are_in_the_targets_unit():
    rmse, mae = (fitted().metrics(TokenSpec(num_features=5))[name] for name in ("rmse", "mae"))
    for metric, expected in ((rmse, math.sqrt((9 + 16) / 2)), (mae, 3.5)):
        metric.update(torch.tensor([3.0, 10.0]), torch.tensor([0.0, 14.0]))
        assert float(metric.compute()) == pytest.approx(expected)


OFFSETS = {
    "milliseconds since 1970": [1.7e12 + 20_000 * i for i in range(41)],
    "years": [2000 + i / 365 for i in range(41)],
}


@pytest.mark.parametrize("targets", OFFSETS.values(), ids=OFFSETS)
def test_a_large_offset_of_the_target_takes_no_precision(targets):
    """float32 knows steps of 131,072 beside 1.7e12, a tenth of these targets' spread."""
    objective = Regress()
    objective.fit(targets, None)
    (mean,), (std,) = objective.mean, objective.std
    encoded = torch.stack([objective.encode_target(target) for target in targets])
    exact = torch.tensor([[(target - mean) / std] for target in targets], dtype=torch.float64)
    assert objective.decode(exact.float()) == pytest.approx(targets, abs=1e-5 * std)
    assert objective.in_unit(encoded)[:, 0].tolist() == pytest.approx(targets, abs=1e-5 * std)
    off = exact + 0.25  # each prediction is a quarter of the spread too high
    output = objective.loss(off.float(), encoded)
    assert float(output.loss) / len(targets) == pytest.approx(0.0625, rel=1e-4)
    assert float(objective.absolute_errors(off.float(), encoded).max()) == pytest.approx(
        std / 4, rel=1e-3
    )
    for name, expected in (("rmse", std / 4), ("mae", std / 4), ("r2", 1 - 0.0625)):
        metric = objective.metrics(TokenSpec(num_features=5))[name]
        metric.update(output.preds, output.target)
        assert float(metric.compute()) == pytest.approx(expected, rel=1e-3), name


def test_correlations_do_not_depend_on_the_offset_of_the_target():
    found = []
    for offset in (0.0, 1.7e12):
        objective, targets = (
            Regress(metrics=["SpearmanCorrCoef", "PearsonCorrCoef"]),
            [offset + 1e3 * i for i in range(300)],
        )
        objective.fit(targets, None)
        encoded = torch.stack([objective.encode_target(target) for target in targets])
        exact = torch.linspace(-1.7, 1.7, 300)[:, None] + 0.1 * torch.randn(
            300, 1, generator=torch.Generator().manual_seed(0)
        )
        output = objective.loss(exact, encoded)
        metrics = objective.metrics(TokenSpec(num_features=5))
        for metric in metrics.values():
            metric.update(output.preds, output.target)
        found.append([float(metrics[name].compute()) for name in sorted(metrics) if name != "rmse"])
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_ordinary_targets_are_encoded_as_they_are():
    for targets in ([1.5, -2.0, 7.25], [1900.0, 1950.0, 2000.0], [0.0, 0.0, 1e-3]):
        objective = Regress()
        objective.fit(targets, None)
        assert objective.center == [0.0]
        assert [float(objective.encode_target(target)) for target in targets] == [
            float(torch.tensor(t)) for t in targets
        ]
