"""Compares a mixer that carries a state with its paper's equations, written out for one token after the other."""

import torch
from torch.testing import assert_close


def perturbed(mixer):
    """The mixer in float64, noise added to each parameter: no norm's factor is left at 1."""
    with torch.no_grad():
        for p in mixer.double().parameters():
            p.add_(torch.randn_like(p) * 0.1)
    return mixer


def sequences(dim, n, b=2):
    return torch.randn(b, n, dim, dtype=torch.float64, requires_grad=True)


def assert_is(mixer, definition, x):
    """Outputs and gradients of whole sequences x [b n d]. definition: `(mixer, x [n d]) -> y [n d]`."""
    right = torch.stack([definition(mixer, one) for one in x])
    got = mixer.mix(x, None)
    assert_close(got, right, rtol=1e-9, atol=1e-9)
    assert_close(mixer.step(x, None, None)[0], right, rtol=1e-9, atol=1e-9)
    g = torch.randn_like(right)
    wanted = (x, *mixer.parameters())
    expected = torch.autograd.grad(right, wanted, g)
    if x.shape[1] > 1:  # a single token has no past that decays
        assert all(gradient.any() for gradient in expected)
    assert_close(torch.autograd.grad(got, wanted, g), expected, rtol=1e-8, atol=1e-8)


def assert_continues(mixer, definition, x):
    """Sequences of unlike lengths in parts: each row's state is the one after its last real token, however far others
    went on, and a row without any real token keeps its own."""
    first, second, last = x.split([5, 4, 1], dim=1)
    lengths = [
        (5, 0),
        (2, 4),
        (0, 3),
    ]  # real tokens of each row in the first two parts; the third is one token for all
    state = None
    outputs = []
    for part, counts in zip((first, second), zip(*lengths)):
        valid = torch.arange(part.shape[1]) < torch.tensor(counts)[:, None]
        y, state = mixer.step(part * valid[..., None], valid, state)
        outputs.append(y)
    y, state = mixer.step(last, None, state)
    outputs.append(y)
    for i, counts in enumerate(lengths):
        taken = (*counts, 1)
        real = torch.cat([p[i, :count] for p, count in zip((first, second, last), taken)])
        got = torch.cat([y[i, :count] for y, count in zip(outputs, taken)])
        assert_close(got, definition(mixer, real), rtol=1e-9, atol=1e-9)


def state_bytes(mixer, n):
    """Bytes of the state after n tokens."""
    _, state = mixer.step(torch.randn(1, n, mixer.dim, dtype=torch.float64), None, None)
    parts = state if isinstance(state, tuple) else (state,)
    return sum(t.numel() * t.element_size() for t in parts)


@torch.no_grad()
def assert_half_precision(mixer, x):
    """In bfloat16, of weights or by autocast, outputs are those of float64 to three digits, and states are float32."""
    exact = mixer.mix(x, None)
    mixer.float()
    with torch.autocast("cpu", torch.bfloat16):
        automatic = mixer.step(x.float(), None, None)
    for y, (_, state) in (automatic, mixer.bfloat16().step(x.bfloat16(), None, None)):
        assert y.dtype == torch.bfloat16
        assert state.dtype == torch.float32
        assert 0 < (y - exact).norm() < 0.03 * exact.norm()
