"""Regress(forecast=True): a linear forecast from differences, to which the network adds; a shift shifts predictions.

w windows · n time steps · f features · k targets
"""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch.testing import assert_close

from seqkit.backbones import TCN
from seqkit.data import DataModule, DataSource, Loading, Sample, Selection, Splits
from seqkit.errors import DataError, UsageError
from seqkit.export.graph import export
from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.objectives import Regress
from seqkit.objectives.linear_forecast import fitted
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


def test_what_a_linear_recurrence_continues_is_known_before_training():
    data, model = prepared(noise=0.0)
    truth = torch.tensor([data.splits().test[i].label for i in range(5)])
    found = forecasts(data, model, [data.splits().test[i].raw for i in range(5)])
    assert_close(found, truth.to(found), atol=2e-3, rtol=0)


def test_the_linear_part_is_scikit_learns_ridge_regression_on_differences():
    torch.manual_seed(1)
    steps, targets = torch.randn(40, 6, 1), torch.randn(40, 2, dtype=torch.float64)
    one, zero = torch.ones(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    state = fitted(Series(1), steps, targets, 10, zero, one)
    x = (steps[..., 0] - steps[:, -1]).double().numpy()
    x, y = x / np.sqrt((x**2).mean()), (targets - steps[:, -1].double()).numpy()
    errors = {
        a: ((Ridge(a).fit(x[:30], y[:30]).predict(x[30:]) - y[30:]) ** 2).mean()
        for a in np.logspace(-3, 5, 17)
    }
    ridge = Ridge(min(errors, key=errors.get)).fit(x[:30], y[:30])
    assert_close(
        torch.tensor(state["weight"]), torch.tensor(ridge.coef_.T).float(), atol=1e-5, rtol=1e-4
    )
    assert_close(
        torch.tensor(state["bias"]), torch.tensor(ridge.intercept_).float(), atol=1e-5, rtol=1e-4
    )


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


def test_a_forecast_is_not_exported(tmp_path):
    with pytest.raises(UsageError, match="windows of one length"):
        export(prepared()[1], tmp_path / "model.pt2", "torch", {})


def test_windows_of_another_length_and_other_tokenizers_are_refused():
    data, model = prepared()
    raw = data.splits().test[0].raw
    for raws in ([raw[4:]], [raw, raw[4:]]):
        with pytest.raises(DataError, match="cut them to it"):
            forecasts(data, model, raws)
    objective, series = Regress(forecast=True), Series()
    objective.read_from(series)
    with pytest.raises(DataError, match="windows of a forecast differ in length"):
        objective.fit_inputs([(series.encode([1.0] * n), 1.0) for n in (3, 4)], 0)
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
