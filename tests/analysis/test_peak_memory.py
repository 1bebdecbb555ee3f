"""Peaks of memory are what a reader of the program counts by hand, and what is freed no longer counts."""

import pytest
import torch
from torch import nn

from seqkit.analysis.peak_memory import peak_bytes

L, D, N = 31, 67, 997


def chain():
    return nn.Sequential(*[nn.Linear(D, D, bias=False) for _ in range(L)])


def test_activations_of_a_chain_of_linear_layers_are_all_alive_when_the_backward_pass_begins():
    """L activations [n d] of the forward pass: the input of a layer is kept for the gradient of its weight."""
    model, x = chain(), torch.randn(N, D)

    def step():
        model(x).sum().backward()

    held = [x, *model.parameters()]
    by_hand = 4 * (L * D * D + N * D + L * N * D)
    # a gradient of a weight, and its transpose, are there too before an activation is freed: d = 0.07 n of one
    assert peak_bytes(step, held) == pytest.approx(by_hand, rel=0.01)


def test_without_gradients_two_activations_are_alive():
    model, x = chain(), torch.randn(N, D)

    def run():
        with torch.no_grad():
            model(x)

    assert peak_bytes(run, [x, *model.parameters()]) == 4 * (L * D * D + N * D + 2 * N * D)


def test_weights_gradients_and_moments_are_what_a_step_of_adam_takes_at_few_tokens():
    model, x = chain(), torch.randn(2, D)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    moments = [t for state in optimizer.state.values() for t in state.values()]
    assert peak_bytes(step, [x, *model.parameters(), *moments]) == pytest.approx(
        4 * 4 * L * D * D, rel=0.02
    )


def test_a_view_and_a_change_in_place_take_nothing():
    x = torch.zeros(D, N)

    def work():
        x.T.add_(1.0)
        x[3:7].mul_(2.0)

    assert peak_bytes(work, [x]) == 4 * D * N
    assert bool((x == x[0, 0]).logical_or(x == 2.0).all()), "the work was done"


def test_what_is_kept_counts_and_what_is_freed_does_not():
    kept = []

    def freeing():
        for _ in range(5):
            torch.zeros(N)

    def keeping():
        for _ in range(5):
            kept.append(torch.zeros(N))

    assert peak_bytes(freeing, []) in (4 * N, 2 * 4 * N)
    assert peak_bytes(keeping, []) == 5 * 4 * N


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_the_allocator_says_the_same():
    x = torch.zeros(1024, 1024, device="cuda")
    assert peak_bytes(lambda: x + 1, [x]) == pytest.approx(2 * 4 * 2**20, rel=0.01)
