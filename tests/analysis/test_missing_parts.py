"""A model that reads one part alone: without that part it guesses, without the other nothing changes."""

from types import SimpleNamespace

import pytest
import torch

from seqkit.analysis.missing_parts import RATES, missing_parts
from seqkit.data import DataModule, DataSource, Sample, Splits
from seqkit.interfaces import LossOutput
from seqkit.objectives import Classify
from seqkit.tokenizers import Ids, Join


class Told(DataSource):
    """The class is the first id of the part `tells`; the part `other` says nothing."""

    def splits(self):
        samples = [Sample({"tells": [i % 2, 2], "other": [2, 2, 2]}, i % 2) for i in range(40)]
        return Splits(samples[:20], [*samples[20:], Sample({"tells": [1, 2]}, 1)], names=["no", "yes"])


class Reads:
    """Stands in for a predictor: the class that the part tells, or class 0 where it is not there."""

    def step(self, objective, batch):
        tokens, label = batch
        preds = torch.zeros(len(tokens), dtype=torch.int64)
        if "tells" in tokens.parts:
            part = tokens.parts["tells"]
            preds[part.rows(tokens.valid.shape[1])] = part.batch.content[:, 0]
        return LossOutput(torch.zeros(()), torch.tensor(len(preds)), preds, label)


def looked_at(tokenizer) -> dict[str, list[float]]:
    objective = Classify()
    data = DataModule(Told(), tokenizer, objective)
    data.setup()
    trained = SimpleNamespace(
        tokenizer=tokenizer, objective=objective, predictor=Reads(), model=SimpleNamespace(spec=tokenizer.spec)
    )
    return missing_parts(trained, data, "accuracy")


def test_the_metric_falls_with_the_part_that_tells_and_with_no_other():
    found = looked_at(Join({"tells": Ids(3), "other": Ids(3)}))
    assert found["other"] == [1.0] * len(RATES)
    assert found["tells"][0] == 1.0
    assert found["tells"][-1] == pytest.approx(11 / 21), "class 0, and the example that keeps its last part"
    assert found["tells"] == sorted(found["tells"], reverse=True), "who lacks it at one rate lacks it at higher ones"
    assert len(set(found["tells"])) > 2


def test_tokens_that_are_not_joined_and_metrics_that_there_are_not_have_none():
    objective = Classify()
    objective.fit([0, 1], None)
    trained = SimpleNamespace(tokenizer=Ids(3), objective=objective, model=SimpleNamespace(spec=Ids(3).spec))
    assert (
        missing_parts(trained, SimpleNamespace(test_dataloader=lambda: SimpleNamespace(examples=[])), "accuracy") == {}
    )
