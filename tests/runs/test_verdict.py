"""What is said of a result that is no better than the best constant prediction."""

import pytest
import torch

from seqkit.interfaces import IGNORE
from seqkit.report.headline import cautions, headline
from seqkit.runs.verdict import most_frequent, verdict


def said(accuracy, loss=1.0, share=0.4, **more):
    """The verdict on a classifier whose constant prediction has an accuracy of 0.4 or `share`, and a loss of 1."""
    summary = {
        "recipe": "own",
        "objective": "Classify",
        "metrics": {"accuracy": accuracy, "loss": loss, **more},
        "baseline": {"accuracy": share, "loss": 1.0, "macro_f1": 0.3},
        "most_frequent": {"name": "ham", "share": share},
    }
    return verdict(summary, headline(summary))


def test_a_better_result_needs_no_verdict_and_neither_does_one_without_a_constant():
    assert said(0.41) is None
    summary = {"recipe": "own", "metrics": {"loss": 2.0}}
    assert verdict(summary, headline(summary)) is None


def test_a_result_equal_to_the_constant_says_that_nothing_was_learned_and_what_to_try():
    told = said(0.4)
    assert told.startswith("The model has learned nothing beyond the best constant prediction")
    for advice in ("--trainer.max_epochs", "seqkit tune", "seqkit doctor RUN"):
        assert advice in told


def test_a_better_loss_at_the_same_accuracy_is_not_called_nothing():
    assert said(0.4, loss=0.8).startswith("By accuracy, the model is as good as the best constant prediction, and its")


def test_a_worse_result_is_said_by_the_result_itself():
    assert said(0.3) is None


def test_a_run_has_one_such_sentence():
    summary = {
        "recipe": "own",
        "objective": "Classify",
        "metrics": {"accuracy": 0.8},
        "baseline": {"accuracy": 0.9},
        "most_frequent": {"name": "ham", "share": 0.9},
    }
    (told,) = cautions(summary)
    assert "class_weights" in told
    assert "max_epochs" not in told
    (told,) = cautions(summary | {"most_frequent": {"name": "ham", "share": 0.4}})
    assert "max_epochs" in told


@pytest.mark.parametrize("accuracy", [0.9, 0.85])
def test_unbalanced_classes_get_weights_and_other_metrics_instead_of_more_epochs(accuracy):
    told = said(accuracy, share=0.9)
    assert told.startswith("90 % of the training labels are ham")
    for advice in ("class_weights balanced", "BalancedAccuracy", "MacroF1", "AUROC"):
        assert advice in told
    assert "max_epochs" not in told
    assert "By macro_f1, the model is better than that (0.700 against 0.300)" in said(0.85, share=0.9, macro_f1=0.7)


def test_the_most_frequent_class_is_counted_over_known_labels():
    assert most_frequent(["a", "b"], [1, 0, 1, 1]) == {"name": "b", "share": 0.75}
    tagged = [torch.tensor([0, 2, IGNORE]), torch.tensor([2, IGNORE, 2])]
    assert most_frequent(["a", "b", "c"], tagged) == {"name": "c", "share": 0.75}
    assert most_frequent(["a"], [torch.tensor([IGNORE])]) is None
