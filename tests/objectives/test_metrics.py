"""Metrics that a recipe names: equal to definitions written out here."""

import math
import warnings

import pytest
import torch

from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, LossOutput, TokenSpec
from seqkit.objectives import Classify, NextToken, Regress
from seqkit.objectives.metrics import MeanLoss, build_metrics, update

NAMES = ["Accuracy", "BalancedAccuracy", "MacroF1", "Precision", "Recall", "MatthewsCorrCoef", "AUROC",
         "AveragePrecision", "CalibrationError", "BrierScore"]  # fmt: skip
SPEC = TokenSpec(num_features=5)


def outputs(seed=0, sizes=(11, 7, 5)):
    """Loss outputs of batches of a classifier of three classes."""
    objective = Classify(metrics=["AUROC"])
    objective.fit([0, 1, 2], None)
    generator = torch.Generator().manual_seed(seed)
    for n in sizes:
        target = torch.randint(3, (n,), generator=generator)
        logits = torch.randn(n, 3, generator=generator) + torch.nn.functional.one_hot(target, 3)
        yield objective.loss(logits, target)


def computed(names, batches, prepare=lambda metric: None):
    """prepare: called with each metric before its first batch."""
    metrics = build_metrics(names, num_classes=3)
    for metric in metrics.values():
        prepare(metric)
    for output in batches:
        for metric in metrics.values():
            update(metric, output)
    return {name: float(metric.compute()) for name, metric in metrics.items()}


def by_definition(batches):
    """The same by counting."""
    preds, target = (
        torch.cat([getattr(b, name) for b in batches]).tolist() for name in ("preds", "target")
    )
    shares = torch.cat([b.probabilities for b in batches])
    hits = [sum(p == t == c for p, t in zip(preds, target)) for c in range(3)]
    precision = [h / max(preds.count(c), 1) for c, h in enumerate(hits)]
    recall = [h / target.count(c) for c, h in enumerate(hits)]
    areas, average = [], []
    for c in range(3):
        yes = [float(s) for s, t in zip(shares[:, c], target) if t == c]
        no = [float(s) for s, t in zip(shares[:, c], target) if t != c]
        areas.append(sum((y > n) + 0.5 * (y == n) for y in yes for n in no) / len(yes) / len(no))
        # at each positive, the precision among those that score as high
        average.append(
            sum(sum(z >= y for z in yes) / sum(z >= y for z in yes + no) for y in yes) / len(yes)
        )
    sure, bins = shares.max(dim=1).values.tolist(), {}
    for s, p, t in zip(sure, preds, target):
        bins.setdefault(min(int(s * 15), 14), []).append((s, p == t))
    error = sum(abs(sum(s for s, _ in b) - sum(r for _, r in b)) for b in bins.values()) / len(
        preds
    )
    return {
        "accuracy": sum(hits) / len(preds),
        "balanced_accuracy": sum(recall) / 3,
        "macro_f1": sum(2 * p * r / (p + r) if p + r else 0.0 for p, r in zip(precision, recall)) / 3,
        "precision": sum(precision) / 3,
        "recall": sum(recall) / 3,
        "matthews": pearson([[c == p for c in range(3)] for p in preds], [[c == t for c in range(3)] for t in target]),
        "auroc": sum(areas) / 3,
        "average_precision": sum(average) / 3,
        "calibration_error": error,
        "brier": sum(
            sum((float(s) - (c == t)) ** 2 for c, s in enumerate(row)) for row, t in zip(shares, target)
        ) / len(target),
    }  # fmt: skip


def pearson(one, other):
    """Correlation of two lists of one-hot rows, summed over the columns."""
    x, y = (torch.tensor(rows).double() for rows in (one, other))
    x, y = x - x.mean(dim=0), y - y.mean(dim=0)
    return float((x * y).sum() / (x.square().sum() * y.square().sum()).sqrt())


def test_metrics_of_classes_are_those_of_the_textbook():
    batches = list(outputs())
    assert computed(NAMES, batches) == pytest.approx(by_definition(batches), abs=1e-5)


TARGETS = {
    "two classes": [0] * 13 + [1] * 3,
    "three classes": [0] * 7 + [1] * 5 + [2] * 3,
    "two of three classes": [0] * 7 + [1] * 5,
    "one class": [1] * 7,
}


@pytest.mark.parametrize("predicted", [0, 1, None], ids=["constant 0", "constant 1", "random"])
@pytest.mark.parametrize("targets", TARGETS)
def test_metrics_of_constant_predictions_and_of_missing_classes_are_those_of_scikit_learn(
    targets, predicted
):
    sklearn = pytest.importorskip("sklearn.metrics")
    target = torch.tensor(TARGETS[targets])
    k = 2 if targets == "two classes" else 3
    random = torch.rand(len(target), k, generator=torch.Generator().manual_seed(1)).softmax(dim=1)
    others = torch.full((len(target), k), 0.4 / (k - 1))
    shares = random if predicted is None else others.index_fill(1, torch.tensor(predicted), 0.6)
    metrics = build_metrics(NAMES, num_classes=k, positive=1 if k == 2 else None)
    for metric in metrics.values():
        preds = shares.argmax(dim=1)
        update(
            metric,
            LossOutput(torch.tensor(0.0), torch.tensor(1), preds, target, probabilities=shares),
        )
    found = {name: float(metric.compute()) for name, metric in metrics.items()}
    with warnings.catch_warnings():
        # scikit-learn warns of classes without predictions or targets
        warnings.simplefilter("ignore")
        classes, macro = [int(c) for c in target.unique()], {"average": "macro", "zero_division": 0}
        of_one, averaged = (
            (macro, classes) if k == 3 else ({"average": "binary", "zero_division": 0}, [1])
        )
        expected = {
            "balanced_accuracy": sklearn.balanced_accuracy_score(target, preds),
            "macro_f1": sklearn.f1_score(target, preds, **macro),
            "precision": sklearn.precision_score(target, preds, **of_one),
            "recall": sklearn.recall_score(target, preds, **of_one),
            "matthews": sklearn.matthews_corrcoef(target, preds),
            "auroc": mean(sklearn.roc_auc_score(target == c, shares[:, c]) for c in classes),
            "average_precision": mean(
                sklearn.average_precision_score(target == c, shares[:, c]) for c in averaged
            ),
            "brier": sklearn.brier_score_loss(
                target, shares[:, 1] if k == 2 else shares, labels=range(k)
            ),
        }
    assert {name: found[name] for name in expected} == pytest.approx(
        expected, abs=1e-6, nan_ok=True
    )
    if predicted is not None:
        assert found["matthews"] == 0
        assert found["auroc"] == (
            pytest.approx(math.nan, nan_ok=True) if targets == "one class" else 0.5
        )


def test_metrics_of_two_classes_are_of_the_rarer_one_or_of_the_one_that_is_named():
    sklearn = pytest.importorskip("sklearn.metrics")
    names = ["Precision", "Recall", "AveragePrecision", "CalibrationError"]
    logits = torch.randn(40, 2, generator=torch.Generator().manual_seed(2))
    target = torch.tensor([0] * 9 + [1] * 31)

    def measured(objective):
        output, found = objective.loss(logits, target), {}
        for name, metric in objective.metrics(SPEC).items():
            update(metric, output)
            found[name] = float(metric.compute())
        return found

    rarer, named = Classify(metrics=names), Classify(metrics=names, positive="no")
    for objective in (rarer, named):
        objective.fit(target.tolist(), ["yes", "no"])
    assert (rarer.positive_name, named.positive_name) == ("yes", "no")
    shares, preds = logits.softmax(dim=1), logits.argmax(dim=1)
    for objective, c in ((rarer, 0), (named, 1)):
        found, share = measured(objective), shares[:, c].double()
        bins = {}
        for s, t in zip(share.tolist(), target.tolist()):
            bins.setdefault(min(int(s * 15), 14), []).append((s, t == c))
        error = sum(abs(sum(s for s, _ in b) - sum(r for _, r in b)) for b in bins.values()) / 40
        assert found == pytest.approx({
            "accuracy": float((preds == target).double().mean()),
            "precision": sklearn.precision_score(target, preds, pos_label=c),
            "recall": sklearn.recall_score(target, preds, pos_label=c),
            "average_precision": sklearn.average_precision_score(target == c, share),
            "calibration_error": error,
        }, abs=1e-5)  # fmt: skip
    by_number = Classify(positive=1)
    by_number.fit([0, 0, 1], None)
    assert by_number.positive_name == "1"
    other = Classify(metrics=names)
    other.load_state(rarer.state())
    assert measured(other) == measured(rarer)
    rarer.fit([0, 1, 2], ["a", "b", "c"])
    assert rarer.positive_name is None
    for classes, wrong in ((["yes", "no"], "maybe"), (["a", "b", "c"], "a")):
        with pytest.raises(DataError, match="one of two classes"):
            Classify(positive=wrong).fit([0, 1], classes)


def mean(numbers):
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


def test_metrics_of_numbers_are_those_of_the_textbook():
    preds, target = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([1.5, 2.0, 3.0, 9.5])
    metrics = build_metrics(["RMSE", "MAE", "R2Score", "SpearmanCorrCoef", "PearsonCorrCoef"])
    for part in (slice(0, 1), slice(1, 4)):
        for metric in metrics.values():
            update(
                metric, LossOutput(torch.tensor(0.0), torch.tensor(1), preds[part], target[part])
            )
    found = {name: float(metric.compute()) for name, metric in metrics.items()}
    spread = sum((t - 4.0) ** 2 for t in target.tolist())
    covariance = sum((p - 3.75) * (t - 4) for p, t in zip(preds.tolist(), target.tolist()))
    expected = {
        "rmse": math.sqrt((0.25 + 0 + 1 + 2.25) / 4),
        "mae": (0.5 + 0 + 1 + 1.5) / 4,
        "r2": 1 - 3.5 / spread,
        "spearman": 1.0,
        "pearson": covariance / math.sqrt(spread * sum((p - 3.75) ** 2 for p in preds.tolist())),
    }
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.3, 1e6])
def test_r2_of_targets_that_are_all_equal_is_undefined(value):
    metric = build_metrics(["R2Score"])["r2"]
    metric.update(torch.arange(7.0)[:, None], torch.full((7, 1), value))
    assert math.isnan(float(metric.compute()))


def test_perplexity_is_exp_of_the_mean_loss_and_that_of_a_uniform_guess_is_the_vocabulary():
    objective, spec = NextToken(), TokenSpec(vocab_size=7)
    perplexity, loss = objective.metrics(spec)["perplexity"], MeanLoss()
    for n in (3, 5):
        output = objective.loss(torch.zeros(2, n, 7), torch.randint(7, (2, n)))
        update(perplexity, output)
        update(loss, output)
    assert float(perplexity.compute()) == pytest.approx(7, rel=1e-6)
    assert float(perplexity.compute()) == pytest.approx(math.exp(loss.compute()), rel=1e-6)


def test_chrf_of_a_generated_text_is_1_where_it_equals_a_reference():
    def decode(ids):
        return "".join(" etaoin"[i] for i in ids)

    metric = build_metrics(["CHRFScore"], decode=decode)["chrf"]
    text = [2, 1, 3, 0, 4, 5, 6]  # "tea oin": an n-gram of each order, up to 6 letters and 2 words
    metric.update(torch.tensor([[*text, IGNORE]]), torch.tensor([[[1] * 7, text]]))
    assert float(metric.compute()) == pytest.approx(1)
    metric.update(torch.tensor([[4, 5, 6, 0, 4, 5, 6]]), torch.tensor([[text, [IGNORE] * 7]]))
    assert 0.5 < float(metric.compute()) < 0.9


def test_word_f1_is_that_of_the_summed_precision_and_recall_in_any_order():
    words = {"decode": lambda ids: " ".join(f"word{i}" for i in ids.tolist())}
    metric = build_metrics(["WordF1"], **words)["word_f1"]
    # 2 of 3, 2 of 4
    metric.update(torch.tensor([[2, 1, 1, IGNORE]]), torch.tensor([[[1, 2, 3, 4], [5, 5, 5, 5]]]))
    metric.update(torch.tensor([[7]]), torch.tensor([[[7, 8]]]))  # 1 of 1, 1 of 2
    metric.update(torch.tensor([[9]]), torch.tensor([[[IGNORE]]]))  # without a reference
    precision, recall = 3 / 4, 3 / 6
    assert float(metric.compute()) == pytest.approx(2 * precision * recall / (precision + recall))


def test_each_objective_measures_its_usual_metrics_or_those_that_are_named():
    classify, regress, several = Classify(), Regress(), Regress()
    classify.fit([0, 1], None)
    regress.fit([1.0, 2.0], None)
    several.fit([[1.0, 2.0], [2.0, 3.0]], None)
    assert list(classify.metrics(SPEC)) == ["accuracy", "macro_f1"]
    assert list(regress.metrics(SPEC)) == ["rmse", "mae", "r2"]
    assert list(several.metrics(SPEC)) == ["rmse", "mae"]
    assert list(NextToken().metrics(SPEC)) == ["accuracy", "perplexity"]
    named = Classify(metrics=["AUROC", "AUROC", "Accuracy"])
    named.fit([0, 1], None)
    assert list(named.metrics(SPEC)) == ["accuracy", "auroc"]  # the primary metric is always there
    assert (
        named.loss(torch.zeros(2, 2), torch.tensor([0, 1])).probabilities.tolist()
        == [[0.5, 0.5]] * 2
    )
    assert classify.loss(torch.zeros(2, 2), torch.tensor([0, 1])).probabilities is None


# ── class weights ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_balanced_weights_give_each_class_the_same_share_of_the_training_loss():
    objective = Classify(class_weights="balanced")
    labels = [0] * 6 + [1] * 3 + [2]
    objective.fit(labels, None)
    assert objective.weights == pytest.approx([10 / 18, 10 / 9, 10 / 3])
    target, logits = torch.tensor(labels), torch.zeros(10, 3)
    losses = [
        float(objective.loss(logits[target == c], target[target == c], training=True).loss)
        for c in range(3)
    ]
    assert losses == pytest.approx([10 / 3 * math.log(3)] * 3)
    whole = objective.loss(logits, target, training=True)
    assert float(whole.loss) / int(whole.count) == pytest.approx(math.log(3))  # 1 on average


def test_weights_change_the_training_loss_alone_and_travel_with_the_state():
    objective = Classify(level="token", class_weights=[1.0, 5.0])
    objective.fit([torch.tensor([0, 1, IGNORE])], ["a", "b"])
    logits, target = torch.randn(1, 3, 2), torch.tensor([[0, 1, IGNORE]])
    plain = objective.loss(logits, target)
    each = -logits.log_softmax(-1)[0, [0, 1], [0, 1]]
    assert float(plain.loss) == pytest.approx(float(each.sum()), rel=1e-5)
    weighted = objective.loss(logits, target, training=True)
    assert float(weighted.loss) == pytest.approx(float(each[0] + 5 * each[1]), rel=1e-5)
    other = Classify(level="token", class_weights=[1.0, 5.0])
    other.load_state(objective.state())
    assert float(other.loss(logits, target, training=True).loss) == float(weighted.loss)


def test_balanced_weights_of_tokens_count_tokens_and_a_class_without_any_weighs_1():
    objective = Classify(level="token", class_weights="balanced")
    objective.fit([torch.tensor([0, 0, IGNORE]), torch.tensor([0, 1])], ["a", "b", "c"])
    assert objective.weights == pytest.approx([4 / 9, 4 / 3, 1])


def test_weights_that_do_not_fit_the_classes_are_refused():
    with pytest.raises(ValueError, match="class_weights"):
        Classify(class_weights=[1.0, 0.0])
    with pytest.raises(DataError, match=r"1 numbers.* 2 classes"):
        Classify(class_weights=[1.0]).fit([0, 1], ["a", "b"])
    with pytest.raises(ValueError, match="1 weights for 2 classes"):
        Classify().load_state({"names": ["a", "b"], "weights": [1.0]})
