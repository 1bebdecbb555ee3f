"""Several yes-or-no labels: loss and metrics equal those of the known labels alone, by torch and scikit-learn."""

import math

import pytest
import torch
import torch.nn.functional as F

from seqkit.errors import DataError
from seqkit.interfaces import Embedded, TokenBatch, Tokens, TokenSpec
from seqkit.nn.embedder import Embedder
from seqkit.objectives import MultiLabel
from seqkit.objectives.metrics import update

NAN = math.nan
SPEC = TokenSpec(vocab_size=5)


def batch(b):
    return TokenBatch.collate(
        [Tokens(torch.zeros(3, dtype=torch.int64), torch.zeros(3, 1)) for _ in range(b)]
    )


def fitted():
    objective = MultiLabel()
    objective.fit([[1, 0, NAN], [1, NAN, 0], [0, 0, 1], [1, 1, NAN]], None)
    return objective


def test_shares_are_of_the_known_labels_and_travel_with_the_state():
    objective, other = fitted(), MultiLabel()
    assert objective.state() == {"shares": pytest.approx([3 / 4, 1 / 3, 1 / 2])}
    other.load_state(objective.state())
    assert other.shares == objective.shares
    assert MultiLabel().state() == {}


def test_names_of_several_labels_travel_with_the_state_and_name_a_label_that_is_never_known():
    objective, other = MultiLabel(), MultiLabel()
    objective.fit([[1, 0], [0, NAN]], ["toxic", "herg"])
    other.load_state(objective.state())
    assert other.label_names == ["toxic", "herg"]
    with pytest.raises(DataError, match="herg is unknown"):
        MultiLabel().fit([[1, NAN], [0, NAN]], ["toxic", "herg"])
    with pytest.raises(ValueError, match="1 names for 2 labels"):
        MultiLabel().load_state({**objective.state(), "names": ["toxic"]})


def test_the_two_classes_of_a_single_label_are_no_names_of_labels():
    objective = MultiLabel()
    objective.fit([1, 0, 1], ["no", "yes"])
    assert objective.label_names == []


def test_the_loss_is_the_sum_over_known_labels_and_unknown_ones_have_no_gradient():
    objective = fitted()
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target = torch.tensor([[1, NAN, 0], [NAN, NAN, 1], [0, 1, NAN], [NAN, NAN, NAN]])
    out = objective.loss(logits, target, training=True)
    known = ~target.isnan()
    expected = F.binary_cross_entropy_with_logits(logits[known], target[known], reduction="sum")
    assert out.loss.item() == pytest.approx(expected.item())
    assert out.count.item() == 5
    out.loss.backward()
    assert torch.equal(logits.grad != 0, known)


def test_metrics_equal_those_of_scikit_learn_over_the_known_labels():
    metrics = pytest.importorskip("sklearn.metrics")
    objective = fitted()
    g = torch.Generator().manual_seed(1)
    logits, target = torch.randn(40, 3, generator=g), (torch.rand(40, 3, generator=g) > 0.6).float()
    target[torch.rand(40, 3, generator=g) < 0.3] = NAN
    # one answer alone: it has no curve
    target[:, 2] = torch.where(target[:, 2].isnan(), target[:, 2], 1.0)
    found = objective.metrics(SPEC)
    for rows in (slice(0, 17), slice(17, 40)):
        out = objective.loss(logits[rows], target[rows])
        for metric in found.values():
            update(metric, out)
    known = ~target.isnan()
    areas = [
        metrics.roc_auc_score(target[known[:, i], i], logits[known[:, i], i]) for i in range(2)
    ]
    assert float(found["auroc"].compute()) == pytest.approx(sum(areas) / 2)
    right = metrics.accuracy_score(target[known], (logits[known] > 0).float())
    assert float(found["accuracy"].compute()) == pytest.approx(right)


def test_the_constant_prediction_is_the_best_of_all_constants_up_to_half_an_example():
    objective = fitted()
    rows = (
        torch.rand(500, 3, generator=torch.Generator().manual_seed(2))
        < torch.tensor([0.1, 0.5, 0.8])
    ).float()
    rows[::7, 1] = NAN
    constant = objective.baseline([rows[:200], rows[200:]], SPEC)(rows)
    best = float(objective.loss(constant, rows).loss)
    for shift in (-0.1, 0.1):
        assert best < float(objective.loss(constant + shift, rows).loss)


def test_head_and_answers_have_a_column_a_label():
    objective = fitted()
    head = objective.head(Embedder(SPEC, 8))
    hidden = torch.randn(2, 3, 8)
    logits = head(
        hidden, Embedded(hidden, torch.zeros(2, 3, 1), torch.ones(2, 3, dtype=torch.bool))
    )
    assert logits.shape == (2, 3)
    answers = objective.decode(logits)
    assert torch.allclose(torch.tensor(answers), logits.sigmoid())
    target = torch.stack([objective.encode_target(row) for row in ([1, 0, NAN], [0, 0, 1])])
    assert objective.prepare(batch(2), target).target.shape == (2, 3)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([[0.5, 1.0]], "0.5"),
        ([[0, NAN], [1, NAN]], "label 1 is unknown"),
        (["yes"], "yes"),
    ],
)
def test_labels_that_are_neither_yes_nor_no_are_refused(labels, said):
    with pytest.raises(DataError, match=said):
        MultiLabel().fit(labels, None)


def test_another_number_of_labels_is_refused():
    with pytest.raises(DataError, match="2 labels"):
        fitted().encode_target([0, 1])
    with pytest.raises(DataError, match=r"\[2, 2\]"):
        fitted().prepare(batch(2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="call fit"):
        MultiLabel().head(Embedder(SPEC, 8))
