"""Before a run trains: what a tokenizer has learned comes back, or the run is refused."""

import pytest
import torch

from seqkit.backbones import GRU
from seqkit.data import DataModule, DataSource, Loading, Sample, Selection, Splits
from seqkit.errors import UsageError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Masked
from seqkit.runs import prepare
from seqkit.runs.prepare import Prepared, saved_state


class Times(Tokenizer):
    """Times, each a token whose position it is."""

    spec = TokenSpec(num_features=1)

    def encode(self, raw, /):
        return Tokens(torch.ones(len(raw), 1), torch.tensor(raw, dtype=torch.float32)[:, None])


class Recorded(DataSource):
    def splits(self):
        return Splits(train=[Sample([0.0, 0.5, 1.0])] * 3, test=[Sample([0.0, 0.5, 1.0])])


def test_a_state_that_is_too_large_to_be_read_back_is_refused_before_training(monkeypatch):
    data = DataModule(
        Recorded(), Times(), Masked(), Loading(batch_size=2), Selection(valid_fraction=0)
    )
    monkeypatch.setattr(prepare, "MAX_JSON_BYTES", 29)
    with pytest.raises(UsageError, match=r"Times .* 29"):
        saved_state(Prepared({}, None, Model(Times.spec, GRU(8), Masked()), data))
