"""Compares one of our mixers with Hugging Face's layer: outputs and gradients, and a prompt in parts with a cache."""

from copy import deepcopy

import pytest
import torch
from parity import assert_equal
from torch.testing import assert_close


def in_float64(monkeypatch):
    """Their layers compute decays and norms in float32 whatever they get: here in float64, as all else."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(torch, "float32", torch.float64)


def assert_same(reference, mixer, weights, x):
    """Equal outputs and gradients. weights: their layer -> the state dict of ours."""
    x = x.requires_grad_()
    right = reference(x)
    g = torch.randn_like(right)
    right.backward(g)
    expected, x.grad = x.grad, None
    got = mixer.mix(x, None)
    assert_equal(got.detach(), right.detach())
    got.backward(g)
    assert_close(x.grad, expected, rtol=0, atol=1e-8 * float(expected.abs().max()))
    gradients = deepcopy(reference)
    for to, p in zip(gradients.parameters(), reference.parameters()):
        to.data = torch.zeros_like(p) if p.grad is None else p.grad
    found = dict(mixer.named_parameters())
    for name, gradient in weights(gradients).items():
        gradient = gradient.detach()
        largest = max(float(gradient.abs().max()), 1e-4)  # of one token the decay's is rounding
        assert_close(found[name].grad, gradient, rtol=0, atol=1e-8 * largest)


@torch.no_grad()
def assert_same_in_parts(reference, mixer, cache, x):
    """Equal outputs of a prompt, of a token at a time, and of several tokens after them."""
    state = None
    for part in x.split([7, 1, 1, 3], dim=1):
        right = reference(part, cache_params=cache)
        got, state = mixer.step(part, None, state)
        assert_equal(got, right)
    return state


@torch.no_grad()
def assert_notices(reference, mixer, change, x):
    """That the comparison fails after a change to the mixer."""
    change(mixer)
    with pytest.raises(AssertionError, match="not close"):
        assert_equal(mixer.mix(x, None), reference(x))
