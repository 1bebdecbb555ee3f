"""The S4D layer: convolution = recurrence = a naive loop, gradients too; its initial spectrum and its FLOPs."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from seqkit.nn.mixers.s4d import S4DLayer, fft_convolution, geometric_sums, state_after

LENGTHS = pytest.mark.parametrize("n", [1, 2, 7, 61])


def layer(dim=5, **settings):
    return S4DLayer(dim, num_states=6, **settings).double()


def inputs(n, b=2, dim=5):
    return torch.randn(b, n, dim, dtype=torch.float64)


def step_by_step(layer, x, way=0):
    """The recurrence by its definition, one channel, state and token at a time; x [n d]."""
    outputs = torch.zeros_like(x)
    for d in range(layer.dim):
        dt = layer.log_dt[d].exp()
        for s in range(layer.num_pairs):
            index = d * layer.num_pairs + s
            A = torch.complex(-layer.log_decay[index].exp(), layer.frequency[index])
            C = torch.complex(*layer.C[way, d, s])
            h = torch.zeros((), dtype=torch.complex128)
            for t in range(len(x)):
                h = (dt * A).exp() * h + ((dt * A).exp() - 1) / A * x[t, d]
                outputs[t, d] += 2 * (C * h).real
    return outputs


@LENGTHS
def test_the_convolution_is_the_recurrence_is_the_definition(n):
    ssm, x = layer(), inputs(n)
    with torch.no_grad():
        right = torch.stack([step_by_step(ssm, one) + ssm.D * one for one in x])
        assert_close(ssm(x), right)
        state, outputs = None, []
        for t in range(n):
            y, state = ssm.step(x[:, t : t + 1], None, state)
            outputs.append(y)
        assert_close(torch.cat(outputs, dim=1), right)


@LENGTHS
def test_a_bidirectional_layer_adds_a_kernel_over_later_tokens(n):
    ssm, x = layer(bidirectional=True), inputs(n)
    with torch.no_grad():
        for one, got in zip(x, ssm(x)):
            later = torch.zeros_like(one)
            # the token itself is the first way's
            later[:-1] = step_by_step(ssm, one.flip(0), way=1).flip(0)[1:]
            assert_close(got, step_by_step(ssm, one) + later + ssm.D * one)


def test_chunks_with_padding_between_equal_one_pass():
    ssm = layer()
    sequences, state, outputs = (
        [torch.randn(n, 5, dtype=torch.float64) for n in (12, 6)],
        None,
        [[], []],
    )
    for cuts in ([(0, 7), (0, 2)], [(7, 8), (2, 3)], [(8, 12), (3, 6)]):
        longest = max(end - start for start, end in cuts)
        valid = torch.tensor([[t < end - start for t in range(longest)] for start, end in cuts])
        x = torch.zeros(2, longest, 5, dtype=torch.float64)
        for i, (start, end) in enumerate(cuts):
            x[i, : end - start] = sequences[i][start:end]
        y, state = ssm.step(x, valid, state)
        for i, (start, end) in enumerate(cuts):
            outputs[i].append(y[i, : end - start])
    for sequence, got in zip(sequences, outputs):
        assert_close(torch.cat(got), ssm(sequence[None])[0])


@pytest.mark.parametrize("n", [1, 3, 10])
def test_sums_of_powers_are_sums_of_powers(n):
    c, r = (torch.randn(*size, dtype=torch.complex128) for size in ((2, 3, 4), (3, 4)))
    right = torch.stack([2 * (c * r**t).sum(dim=-1).real for t in range(n)], dim=-1)
    assert_close(geometric_sums(c, r.log(), n), right)
    x, state = (
        torch.randn(2, n, 3, dtype=torch.float64),
        torch.randn(2, 3, 4, dtype=torch.complex128),
    )
    after = state
    for t in range(n):
        after = r * after + x[:, t, :, None]
    assert_close(state_after(x, r.log(), None, state), after)


@pytest.mark.parametrize("both_ways", [False, True])
def test_gradients_of_the_convolution_are_those_of_finite_differences(both_ways):
    x = inputs(5, dim=3).requires_grad_()
    kernel = torch.randn(3, 10 if both_ways else 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(fft_convolution, (x, kernel))
    ssm = layer(2, bidirectional=both_ways)
    parameters = dict(ssm.named_parameters())

    def run(x, *values):
        return torch.func.functional_call(ssm, dict(zip(parameters, values)), (x,))

    assert gradcheck(run, (inputs(4, dim=2), *parameters.values()))


def test_the_initial_spectrum_is_the_papers():
    m = torch.arange(3.0)
    for spectrum, right in (("lin", math.pi * m), ("inv", 6 / math.pi * (6 / (2 * m + 1) - 1))):
        ssm = S4DLayer(5, num_states=6, spectrum=spectrum)
        assert_close(ssm.frequency.reshape(5, 3), right.expand(5, 3))
        assert_close(-ssm.log_decay.exp(), torch.full((15,), -0.5))
    dt = S4DLayer(1009).log_dt.exp()
    assert 0.000999 < dt.min() < 0.0011
    assert 0.09 < dt.max() < 0.10001


def test_half_precision_is_computed_in_float32():
    ssm, x = S4DLayer(5, num_states=6).bfloat16(), torch.randn(2, 7, 5).bfloat16()
    right = ssm.float()(x.float())
    got = ssm.bfloat16()(x)
    assert got.dtype == torch.bfloat16
    assert_close(got, right.bfloat16())
    ssm.float()
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(ssm(x.float()), right, rtol=0, atol=0)


def test_flops_that_torch_does_not_count():
    # FFTs of 32 real numbers: 2.5 * 32 * 5 each
    ssm, x = S4DLayer(5, num_states=6), torch.randn(2, 16, 5)
    exponentials = 6 * 5 * 3 * (4 + 4)
    assert ssm.uncounted_flops(x) == (2 * 10 + 5) * 400 + 10 * 17 * 6 + exponentials + 2 * 16 * 10
    with FlopCounterMode(display=False) as counter:
        ssm(x)
    # the kernel: [4 6] times [6 4] for each channel
    assert counter.get_total_flops() == 5 * 2 * 4 * 6 * 4


def test_a_state_of_two_directions_is_refused():
    with pytest.raises(ValueError, match="bidirectional"):
        layer(bidirectional=True).step(inputs(1), None, None)
