"""Every objective keeps the laws of objectives, and every law names a planted fault."""

import pytest
import torch
from laws.faulty_objectives import ALONE, AMONG_OTHERS, Classes, NextIds

from seqkit.errors import UsageError
from seqkit.objectives import (
    CTC,
    Classify,
    Contrastive,
    Features,
    Masked,
    MultiLabel,
    NextToken,
    Regress,
    Seq2Seq,
)
from seqkit.registry import components
from seqkit.testing import BrokenLawsError, check
from seqkit.testing.objectives import OF_A_CASE
from seqkit.tokenizers import Characters, Ids, Join, Series

EVERY_METRIC = [
    "MacroF1", "AUROC", "BrierScore", "CalibrationError", "Precision", "Recall", "MatthewsCorrCoef",
    "AveragePrecision", "BalancedAccuracy",
]  # fmt: skip
SOUND = {
    "Classify": Classify,
    "Classify, every metric": lambda: Classify(
        label_smoothing=0.1, class_weights="balanced", metrics=EVERY_METRIC
    ),
    "Classify, weights": lambda: Classify(class_weights=[1.0, 2.0, 3.0]),
    "Classify, tokens": lambda: Classify(level="token"),
    "Regress": Regress,
    "Regress, huber": lambda: Regress(
        loss="huber", metrics=["R2Score", "SpearmanCorrCoef", "PearsonCorrCoef"]
    ),
    "Regress, tokens": lambda: Regress(level="token"),
    "MultiLabel": MultiLabel,
    "NextToken": lambda: NextToken(tied=True, softcap=3.0),
    "Masked": lambda: Masked(fraction=0.5),
    "Seq2Seq": lambda: Seq2Seq(Characters(), label_smoothing=0.1),
    "CTC": lambda: CTC(Characters(), beam_width=2),
    "Contrastive": Contrastive,
    "Contrastive, sigmoid": lambda: Contrastive(loss="sigmoid"),
    "of classes": Classes,
    "of ids": NextIds,
}


@pytest.mark.parametrize("name", SOUND)
def test_an_objective_keeps_every_law(name):
    assert len(check(SOUND[name]())) > 8


def test_every_registered_objective_is_checked():
    assert {name.split(",")[0] for name in SOUND} | {"Features"} >= set(components("objective"))
    with pytest.raises(UsageError, match="nothing to learn"):
        check(Features())


def _numbers(*sizes):
    return [torch.arange(2.0 * n).reshape(n, 2).cos() for n in sizes]


def _joined():
    raws = [
        {"ids": [1, 2, 3], "text": "abc"},
        {"ids": [4], "text": "ab"},
        {"ids": [4, 1, 2], "text": "b"},
    ]
    tokenizer = Join({"ids": Ids(7), "text": Characters()})
    tokenizer.fit(raws)
    return {"tokenizer": tokenizer, "raws": raws}


GIVEN = {
    "vectors": (Masked, lambda: {"tokenizer": Series(2), "raws": _numbers(3, 5, 2)}),
    "missing": (Regress, lambda: {"labels": [[1.0, 2.0], [3.0, torch.nan], [0.5, 1.0]],
                                  "tokenizer": Series(2), "raws": _numbers(3, 5, 2)}),
    "part": (lambda: NextToken(part="text", metrics=["TokenErrorRate", "Accuracy"]), _joined),
    "masked parts": (Masked, _joined),
    "masked part": (lambda: Masked(part="ids"), _joined),
    "forecast": (lambda: Regress(forecast=True), lambda: {
        "labels": [[float(i)] for i in range(8)], "tokenizer": Series(1),
        "raws": [(torch.arange(6.0) * i).sin()[:, None] for i in range(8)]}),
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN)
def test_an_objective_keeps_every_law_on_given_examples(name):
    build, settings = GIVEN[name]
    assert len(check(build(), **settings())) > 4


@pytest.mark.slow
def test_a_fitted_objective_keeps_every_law_and_needs_an_unfitted_one_for_its_own_labels():
    objective = Classify()
    objective.fit([0, 1, 2], ["a", "b", "c"])
    assert "state_is_json_and_enough" in {law.__name__ for law in check(objective)}
    given = {
        "labels": [0, 1, 2, 0],
        "names": "abc",
        "tokenizer": Ids(4),
        "raws": [[1, 2], [3], [0, 1, 2], [2]],
    }
    checked = check(objective, **given)
    assert checked.left_out["state_is_json_and_enough"] == "it is fitted; give unfitted="
    assert len(check(objective, unfitted=Classify(), **given)) == len(checked) + 1


@pytest.mark.parametrize("faulty", ALONE)
def test_a_law_alone_names_a_planted_fault(faulty):
    with pytest.raises(BrokenLawsError) as raised:
        check(faulty())
    assert [fault.law for fault in raised.value.checked.broken] == [ALONE[faulty]], raised.value


@pytest.mark.parametrize("faulty", AMONG_OTHERS)
def test_a_law_names_a_planted_fault_among_others(faulty):
    with pytest.raises(BrokenLawsError) as raised:
        check(faulty())
    assert AMONG_OTHERS[faulty] in {fault.law for fault in raised.value.checked.broken}


def test_every_law_of_objectives_has_a_fault_that_it_alone_names():
    laws = {law.__name__ for law in OF_A_CASE} | {"state_is_json_and_enough"}
    assert set(ALONE.values()) == laws


class TakesNothing(Classes):
    def prepare(self, batch, label):
        raise KeyError("phase")


def test_an_objective_that_takes_no_labels_of_ours_says_what_to_give():
    with pytest.raises(ValueError, match=r"TakesNothing steps with none .*KeyError.* give labels="):
        check(TakesNothing())
