"""A layer of a recurrent network: the weights that it starts with, its branch and its dropout."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.nn.recurrence import RecurrentLayer

CELLS = pytest.mark.parametrize(("cls", "num_gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
BOTH_WAYS = pytest.mark.parametrize("bidirectional", [False, True], ids=["right", "both ways"])


def weights_of(cls, bidirectional):
    """Weights and biases of a layer of 11 inputs and 7 units, for each direction."""
    layer = RecurrentLayer(
        cls(11, 7, batch_first=True, bidirectional=bidirectional), residual=False, dropout=0.0
    )
    ways = ("l0", "l0_reverse") if bidirectional else ("l0",)
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [[getattr(layer.cell, f"{kind}_{way}").detach() for kind in kinds] for way in ways]


@CELLS
@BOTH_WAYS
def test_recurrent_weights_of_each_gate_start_orthogonal(cls, num_gates, bidirectional):
    for _, recurrent, _, _ in weights_of(cls, bidirectional):
        gates = recurrent.split(7)
        assert len(gates) == num_gates
        for gate in gates:
            assert_close(gate @ gate.T, torch.eye(7), rtol=0, atol=1e-5)
        assert all(
            (one - other).abs().max() > 0.1 for i, one in enumerate(gates) for other in gates[:i]
        )


@CELLS
@BOTH_WAYS
def test_input_weights_of_each_gate_start_after_glorot_and_bengio(cls, num_gates, bidirectional):
    """Uniform within the square root of 6 / (inputs + units of the gate)."""
    torch.manual_seed(0)
    bound = (6 / (11 + 7)) ** 0.5
    for weights, _, _, _ in weights_of(cls, bidirectional):
        for gate in weights.split(7):
            assert 0.9 * bound < gate.abs().max() <= bound
            assert float(gate.std()) == pytest.approx(bound / 3**0.5, rel=0.2)


@CELLS
@BOTH_WAYS
def test_biases_start_at_0_and_that_of_a_forget_gate_at_1(cls, num_gates, bidirectional):
    """torch adds two biases, and orders the gates of an LSTM as input, forget, cell, output."""
    right = torch.tensor(
        [0.0, 1.0, 0.0, 0.0] if cls is nn.LSTM else [0.0] * num_gates
    ).repeat_interleave(7)
    for _, _, of_inputs, of_states in weights_of(cls, bidirectional):
        assert torch.equal(of_inputs + of_states, right)


def whole(cell, x, state):
    """How `run_layers` runs a layer over tokens that are all real."""
    return cell(x)[0], state


@pytest.mark.parametrize("residual", [False, True])
def test_dropout_drops_entries_of_the_cells_output_and_nothing_else(residual):
    """A token passes by on the residual stream as it is."""
    layer, x = (
        RecurrentLayer(nn.GRU(5, 5, batch_first=True), residual=residual, dropout=0.5),
        torch.randn(3, 7, 5),
    )
    kept = layer.cell(layer.norm(x))[0] * 2
    got = layer(x, whole, None)[0] - (x if residual else 0)
    is_dropped = got.abs() < 1e-6
    assert_close(got, kept.masked_fill(is_dropped, 0.0))
    assert 0.2 < float(is_dropped.float().mean()) < 0.8
    assert_close(layer.eval()(x, whole, None)[0], x * residual + kept / 2)
