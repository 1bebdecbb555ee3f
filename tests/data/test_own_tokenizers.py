"""A tokenizer of the user's own: always fitted where it has `fit`, and its errors name split, sample and class."""

import pytest
import torch

from seqkit.data import DataModule, DataSource, Loading, Sample, Selection, Splits
from seqkit.errors import DataError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.objectives import Masked


class Numbers(DataSource):
    def splits(self):
        return Splits(train=[Sample([2.0, 4.0]), Sample([6.0])], test=[Sample([1.0])])


class Scaler(Tokenizer):
    """A constant spec, and a state once it was fitted."""

    spec = TokenSpec(num_features=1)
    scale = None

    def fit(self, raws):
        self.scale = max(max(raw) for raw in raws)

    def state(self):
        return {} if self.scale is None else {"scale": self.scale}

    def load_state(self, state):
        self.scale = state["scale"]

    def encode(self, raw):
        return Tokens(
            torch.tensor(raw)[:, None] / self.scale, torch.arange(float(len(raw)))[:, None]
        )


class Fails(Scaler):
    def encode(self, raw):
        return super().encode(raw[2:] and raw) if len(raw) > 1 else {}[raw[0]]


def data(tokenizer):
    module = DataModule(
        Numbers(), tokenizer, Masked(), Loading(batch_size=2), Selection(valid_fraction=0)
    )
    module.setup()
    return module


def test_a_tokenizer_with_a_constant_spec_is_fitted():
    tokenizer = Scaler()
    data(tokenizer)
    assert tokenizer.scale == 6.0


def test_a_tokenizer_that_loaded_a_state_is_not_fitted_again():
    tokenizer = Scaler()
    tokenizer.load_state({"scale": 3.0})
    data(tokenizer)
    assert tokenizer.scale == 3.0


def test_an_error_of_encode_names_split_sample_and_tokenizer_and_keeps_its_cause():
    with pytest.raises(
        DataError, match=r"^test data, .*0.*: Fails.encode raises KeyError: 1.0$"
    ) as refused:
        data(Fails()).test_dataloader()
    assert isinstance(refused.value.__cause__, KeyError)
