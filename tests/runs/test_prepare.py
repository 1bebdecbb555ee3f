"""Before a run trains: what of positions the model would not see is said."""

import pytest
import torch

from seqkit.backbones import GRU, Transformer
from seqkit.data import DataModule, DataSource, Sample, Splits
from seqkit.errors import UsageError
from seqkit.interfaces import Tokenizer, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.position.absolute import NoPosition, Sinusoidal
from seqkit.objectives import Masked
from seqkit.runs import prepare
from seqkit.runs.prepare import Prepared, saved_state, tell_lost_positions


class Times(Tokenizer):
    """Times, each a token whose position it is."""

    spec = TokenSpec(num_features=1)

    def encode(self, raw, /):
        return Tokens(torch.ones(len(raw), 1), torch.tensor(raw, dtype=torch.float32)[:, None])


class Recorded(DataSource):
    def __init__(self, times):
        self.times = times

    def splits(self):
        return Splits(train=[Sample(self.times)] * 3, test=[Sample(self.times)])


def told(times, backbone, caplog, position=None):
    objective = Masked()
    data = DataModule(Recorded(times), Times(), objective, valid_fraction=0, batch_size=2)
    data.setup()
    model = Model(Times.spec, backbone, objective, position=position)
    config = {"seed": 0, "model": {"position": position and position.__name__}}
    tell_lost_positions(Prepared(config, None, model, data))
    return caplog.messages


EVEN, UNEVEN = [0.0, 0.5, 1.0, 1.5], [0.0, 0.5, 3.0, 3.5]


def test_uneven_positions_that_a_recurrent_backbone_does_not_use_are_said(caplog):
    (line,) = told(UNEVEN, GRU(8), caplog)
    assert line.startswith(
        "training data, sample 0: positions grow by 0.5 to 2.5, and GRU uses the order of the tokens"
    )
    assert line.count("--model.position") == 2


@pytest.mark.parametrize(
    ("times", "backbone", "position"),
    [
        (EVEN, GRU(8), None),
        (UNEVEN, GRU(8), Sinusoidal),
        (UNEVEN, GRU(8), NoPosition),
        (UNEVEN, Transformer(8, 1, num_heads=2), None),
    ],
)
def test_positions_that_are_used_or_say_no_more_than_the_order_are_not_mentioned(times, backbone, position, caplog):
    assert told(times, backbone, caplog, position) == []


def test_positions_that_float32_rounds_are_said(caplog):
    seconds = [1.7e9 + t for t in (0, 100, 300, 500, 800)]
    (line,) = told(seconds, Transformer(8, 1, num_heads=2), caplog)
    assert "sample 0: positions up to 1.7e+09 are rounded to" in line
    assert line.endswith("; subtract the first")


def test_a_state_that_is_too_large_to_be_read_back_is_refused_before_training(monkeypatch):
    data = DataModule(Recorded(EVEN), Times(), Masked(), valid_fraction=0, batch_size=2)
    monkeypatch.setattr(prepare, "MAX_JSON_BYTES", 29)
    with pytest.raises(UsageError, match=r"Times .* 29"):
        saved_state(Prepared({}, None, Model(Times.spec, GRU(8), Masked()), data))
