"""A trained model predicts every example once, in the order in which they were given."""

from pathlib import Path

import pytest
import torch

from seqkit.interfaces import Tokens
from seqkit.runs.trained_model import TrainedModel


class Echo:
    """Tokenizer and objective whose prediction is the example."""

    def encode(self, raw):
        return Tokens(torch.tensor([raw]), torch.zeros(1, 1))

    def predict(self, model, batch):
        return batch.content[:, 0]

    def decode(self, prediction):
        return prediction.tolist()


@pytest.mark.parametrize("batch_size", [1, 3, 7, 32])
def test_batches_of_any_size_give_each_example_its_own_prediction(batch_size):
    echo = Echo()
    trained = TrainedModel(None, echo, echo, {}, {}, Path())
    assert trained.predict(range(7), batch_size) == list(range(7))
