"""Regress(forecast=True): the last value, to which the network adds changes; a shift shifts predictions.

w windows · n time steps · f features · k targets
"""

import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import TCN, Transformer
from seqkit.data import DataModule, DataSource, Loading, Sample, Selection, Splits
from seqkit.errors import UsageError
from seqkit.export.graph import export
from seqkit.interfaces import TokenBatch, Tokens
from seqkit.model import Model
from seqkit.objectives import Regress
from seqkit.objectives.last_value import learned
from seqkit.tokenizers import Bytes, Series

N, K = 23, 5


class Windows(DataSource):
    """Windows of a noisy seasonal series and another, and the next values of the first."""

    def __init__(self, noise=0.3, shift=0.0):
        self.noise, self.shift = noise, shift

    def splits(self):
        random = np.random.default_rng(3)
        first = (
            np.sin(np.arange(300) / 3) + self.noise * random.normal(size=300).cumsum() + self.shift
        )
        both = np.stack([10 * random.normal(size=300), first], axis=1)
        samples = [
            Sample(both[i : i + N].tolist(), first[i + N : i + N + K].tolist())
            for i in range(300 - N - K)
        ]
        return Splits(samples[:200], samples[220:], samples[200:220])


def prepared(tokenizer=None, **settings):
    data = DataModule(
        Windows(**settings),
        tokenizer or Series(2, patch=4),
        Regress(forecast=True),
        Loading(batch_size=7, packing=None),
    )
    data.setup()
    torch.manual_seed(0)
    return data, Model(data.tokenizer.spec, TCN(12, 2), data.objective).eval()


def forecasts(data, model, raws):
    batch = TokenBatch.collate([data.tokenizer.encode(raw) for raw in raws])
    with torch.no_grad():
        return torch.tensor(data.objective.decode(model(batch)))


def test_a_shift_of_a_series_shifts_its_predictions():
    data, model = prepared()
    raws = [data.splits().test[i].raw for i in range(3)]
    shifted = [(np.array(raw) + np.array([0, 31.0])).tolist() for raw in raws]
    assert_close(
        forecasts(data, model, shifted), forecasts(data, model, raws) + 31.0, atol=2e-4, rtol=0
    )
    elsewhere = [(np.array(raw) + np.linspace(0, 1, N)[:, None]).tolist() for raw in raws]
    assert (forecasts(data, model, elsewhere) - forecasts(data, model, raws)).abs().min() > 0.01


def test_data_and_targets_of_another_level_give_predictions_of_that_level():
    found = []
    for shift in (0.0, 50.0):
        data, model = prepared(shift=shift)
        found.append(forecasts(data, model, [data.splits().test[0].raw]))
    assert_close(found[1], found[0] + 50.0, atol=5e-3, rtol=0)


def test_a_forecast_of_classes_is_refused():
    with pytest.raises(UsageError, match=r"the data has classes \(2\); give windows with --data"):
        Regress(forecast=True).fit([0, 1, 1], ["funnel", "bell"])
    Regress(forecast=True).fit([[0], [1], [1]], ["next"])


def test_before_training_a_forecast_is_near_the_last_value_of_its_column():
    data, model = prepared()
    raws = [data.splits().test[i].raw for i in range(20)]
    last = torch.tensor(raws)[:, -1:, 1]
    found = forecasts(data, model, raws)
    assert (found - last).square().mean().sqrt() < 0.2 * last.std()


def test_scale_column_and_spread_are_those_of_training_windows():
    random = np.random.default_rng(2)
    steps, targets = random.normal(size=(40, 6, 2)), random.normal(size=(40, 2))
    targets[:, 0] = steps[:, -1, 1] + 0.1 * targets[:, 0]
    targets[3, 1] = np.nan
    windows = [Tokens(torch.tensor(one), torch.zeros(6, 1)) for one in steps]
    state = learned(windows, torch.tensor(targets), 2, [0.5, 2.0])
    moved = steps - steps[:, -1:]
    assert_close(state["scale"], np.sqrt((moved**2).mean(axis=(0, 1))).tolist())
    errors = np.nanmean((targets[:, :, None] - steps[:, -1, None]) ** 2, axis=0)
    assert state["column"] == errors.argmin(axis=1).tolist()
    assert state["column"][0] == 1
    assert_close(state["spread"], (np.sqrt(errors.min(axis=1)) / [0.5, 2.0]).tolist())


def test_what_never_changes_has_a_unit_all_the_same():
    windows = [Tokens(torch.full((5, 1), 3.0), torch.zeros(5, 1)) for _ in range(4)]
    state = learned(windows, torch.full((4, 2), 3.0).double(), 1, [1.0, 1.0])
    assert state == {"scale": [1.0], "column": [0, 0], "spread": [1.0, 1.0]}


def test_windows_of_several_lengths_forecast_as_each_alone():
    data, model = prepared()
    raws = [data.splits().test[i].raw[start:] for i, start in enumerate((0, 8, 4))]
    alone = torch.cat([forecasts(data, model, [raw]) for raw in raws])
    assert_close(forecasts(data, model, raws), alone, atol=1e-4, rtol=0)


def test_the_forecast_comes_back_from_its_state():
    data, model = prepared(Series(None, patch=None))
    series, objective = Series(None, patch=None), Regress(forecast=True)
    series.load_state(json.loads(json.dumps(data.tokenizer.state())))
    objective.load_state(json.loads(json.dumps(data.objective.state())))
    objective.read_from(series)
    again = Model(series.spec, TCN(12, 2), objective).eval()
    again.load_state_dict(model.state_dict())
    raws = [data.splits().test[i].raw for i in range(3)]
    data.tokenizer, data.objective = series, objective
    assert_close(forecasts(data, again, raws), forecasts(*prepared(Series(None, patch=None)), raws))


@pytest.mark.slow
def test_a_forecast_is_exported(tmp_path):
    data, _ = prepared()
    model = Model(data.tokenizer.spec, Transformer(12, 1, num_heads=2), data.objective).eval()
    assert export(model, tmp_path / "model.pt2", "torch", {}) < 1e-4


def test_the_state_of_an_earlier_version_and_other_tokenizers_are_refused():
    with pytest.raises(UsageError, match="train again"):
        Regress(forecast=True).load_state({"mean": [0.0], "std": [1.0], "forecast": {}})
    for tokenizer in (Bytes(), Series(2, normalize="series")):
        with pytest.raises(UsageError, match="tokenizer Series, with normalize=null"):
            Regress(forecast=True).read_from(tokenizer)
    with pytest.raises(ValueError, match="leave level=token out"):
        Regress(forecast=True, level="token")


def test_the_last_windows_are_held_out_for_validation():
    class Whole(Windows):
        def splits(self):
            given = super().splits()
            return Splits([*given.train, *given.valid], given.test)

    data = DataModule(
        Whole(),
        Series(2, patch=4),
        Regress(forecast=True),
        Loading(batch_size=7),
        Selection(valid_fraction=0.25),
    )
    data.setup()
    whole = Whole().splits().train
    assert [one.label for one in data.splits().valid] == [one.label for one in whole[165:]]
