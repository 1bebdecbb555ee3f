"""Classify: cross-entropy over known labels, per sequence or per token; class names are saved as JSON."""

import json
import math

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import LSTM
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Classify

NAMES = ["ant", "bee", "cow"]
SPEC = TokenSpec(num_features=5)


@pytest.fixture
def batch():
    return TokenBatch.collate(
        [Tokens(torch.randn(n, 5), torch.arange(float(n))[:, None]) for n in (3, 2)]
    )


def fitted(**settings):
    objective = Classify(**settings)
    objective.fit([0, 2], NAMES)
    return objective


@pytest.mark.parametrize(
    ("share", "training"), [(0.0, False), (0.0, True), (0.3, False), (0.3, True)]
)
def test_the_loss_is_the_sum_over_known_labels_and_smoothed_in_training_alone(
    batch, share, training
):
    objective = fitted(level="token", label_smoothing=share)
    smoothing = share if training else 0.0
    label = torch.tensor([[2, IGNORE, 0], [1, 1, IGNORE]])
    task = objective.prepare(batch, label)
    assert task.batch is batch
    logits = torch.randn(2, 3, 3, requires_grad=True)  # an evaluation may be differentiated too
    loss = objective.loss(logits, task.target, training=training)
    expected = 0.0
    for i, t in (label != IGNORE).nonzero().tolist():
        weights = [math.exp(s) for s in logits[i, t].tolist()]
        shares = [smoothing / 3 + (1 - smoothing) * (k == int(label[i, t])) for k in range(3)]
        expected -= sum(w * math.log(x / sum(weights)) for w, x in zip(shares, weights))
    assert float(loss.loss.detach()) == pytest.approx(expected, rel=1e-5)
    assert int(loss.count) == 4
    if training:
        assert (loss.preds, loss.target) == (None, None)
        return
    assert loss.target.tolist() == [2, 0, 1, 1]
    assert loss.preds.tolist() == [
        int(logits[i, t].argmax()) for i, t in ((0, 0), (0, 2), (1, 0), (1, 1))
    ]


@pytest.mark.parametrize("pool", ["mean", "sum", "max", "last", "first"])
def test_a_sequence_is_pooled_as_asked(batch, pool):
    assert Model(SPEC, LSTM(12), fitted(pool=pool)).head.pool == pool


def test_labels_that_are_all_unknown_have_no_loss(batch):
    loss = fitted().loss(torch.randn(2, 3), torch.full((2,), IGNORE))
    assert (float(loss.loss), int(loss.count)) == (0.0, 0)


@pytest.mark.parametrize(("level", "shape"), [("sequence", (2, 3)), ("token", (2, 3, 3))])
def test_the_head_has_a_logit_for_each_class(batch, level, shape):
    model = Model(SPEC, LSTM(12), fitted(level=level))
    assert model(batch).shape == shape


def test_classes_are_counted_where_they_have_no_names():
    objective = Classify(level="token")
    objective.fit([torch.tensor([0, IGNORE]), torch.tensor([3, 1])], None)
    assert objective.names == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([0, 3], NAMES, "class 3.* 0 to 2"),
        ([0, 0], None, "hold 1 class"),
        ([0.5, 1.5], None, "use Regress"),
        ([], None, "hold 0 class"),
    ],
)
def test_labels_that_do_not_make_classes_are_refused(labels, names, message):
    with pytest.raises(DataError, match=message):
        Classify().fit(labels, names)


@pytest.mark.parametrize(
    ("level", "label", "message"),
    [
        ("sequence", None, r"none.* integers \[2\]"),
        ("sequence", torch.zeros(2), r"labels are \[2\] torch.float32"),
        ("sequence", torch.zeros(2, 3).long(), r"labels are \[2, 3\]"),
        ("token", torch.zeros(2).long(), r"integers \[2, 3\]"),
        ("sequence", torch.tensor([0, 3]), "from 0 to 3"),
        ("sequence", torch.tensor([-1, 1]), "labels run from -1 to 1"),
    ],
)
def test_labels_of_a_wrong_shape_or_dtype_are_refused(batch, level, label, message):
    with pytest.raises(DataError, match=message):
        fitted(level=level).prepare(batch, label)


def test_class_names_are_saved_as_json():
    other = Classify()
    other.load_state(json.loads(json.dumps(fitted().state())))
    assert other.names == NAMES


def test_predictions_decode_to_class_names():
    logits = torch.tensor([[[0.0, 1.0, 0.5], [2.0, 0.0, 0.0]]])
    assert fitted(level="token").decode(logits) == [["bee", "ant"]]
    assert fitted().decode(logits[0]) == ["bee", "ant"]


def test_the_baseline_predicts_the_class_frequencies():
    objective, target = fitted(), torch.tensor([0, 0, 2, IGNORE])
    logits = objective.baseline([target], SPEC)(target)
    assert_close(logits.exp(), torch.tensor([3 / 6, 1 / 6, 2 / 6]).expand(4, 3))
    assert objective.loss(logits, target).preds.tolist() == [0, 0, 0]


@pytest.mark.parametrize("share", [-0.1, 1.0, 3.0])
def test_smoothing_by_more_than_the_target_is_refused(share):
    with pytest.raises(ValueError, match=f"label_smoothing={share}"):
        Classify(label_smoothing=share)


@pytest.mark.parametrize(
    ("given", "weights"), [("balanced", [2.0, 2 / 3]), ([3.0, 0.5], [3.0, 0.5]), (None, None)]
)
def test_class_weights_are_factors_of_the_loss_in_training_alone(given, weights):
    objective = Classify(class_weights=given)
    objective.fit([0, 1, 1, 1], None)
    logits, target = torch.tensor([[0.3, 1.0], [2.0, -0.5], [0.1, 0.2]]), torch.tensor([0, 1, 1])
    each = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    factors = torch.ones(3) if weights is None else torch.tensor(weights)[target]
    assert_close(objective.loss(logits, target, training=True).loss, (each * factors).sum())
    assert_close(objective.loss(logits, target).loss, each.sum())
