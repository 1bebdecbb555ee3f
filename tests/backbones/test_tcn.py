"""The temporal convolutional network: its formula as loops, its receptive field by gradients, what it refuses."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import TCN, Transformer
from seqkit.interfaces import Adjacency, Embedded

DIM = 7


def embedded(lengths, dim=DIM):
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, dim, dtype=torch.float64).masked_fill(
        ~valid[..., None], 0.0
    )
    return Embedded(hidden, torch.zeros(len(lengths), n, 1), valid)


def by_loops(tcn, x):
    """Every token [n d] by the sums of Bai et al. 2018, section 3.2 and figure 1b."""
    for layer, block in enumerate(tcn.blocks):
        branch, dilation = x, 2**layer
        for convolution, norm in zip(block.convolutions, block.norms):
            weight, rows = convolution.kernel["weight"].reshape(DIM, DIM, tcn.kernel_size), []
            for t in range(len(x)):
                y = convolution.kernel["bias"].clone()
                for i in range(tcn.kernel_size):
                    # tap i of torch's kernel is the i-th from the left
                    steps = (
                        tcn.kernel_size - 1 - i if tcn.causal else (tcn.kernel_size - 1) // 2 - i
                    )
                    if 0 <= t - steps * dilation < len(x):
                        y = y + weight[:, :, i] @ branch[t - steps * dilation]
                rows.append(norm(y).clamp(min=0))
            branch = torch.stack(rows)
        x = (x + branch).clamp(min=0)
    return x


@pytest.mark.parametrize(("kernel_size", "causal"), [(2, True), (3, True), (3, False), (5, False)])
def test_it_equals_its_formula(kernel_size, causal):
    tcn, x = TCN(DIM, 3, kernel_size=kernel_size, causal=causal).double(), embedded([13, 11])
    got = tcn(x)
    for i, n in enumerate([13, 11]):
        assert_close(got[i, :n], by_loops(tcn, x.hidden[i, :n]))
        assert not got[i, n:].any()


def seen(tcn, n, t):
    """The tokens of n on which the output at t depends, by its gradient along a random direction."""
    x = torch.randn(1, n, DIM, dtype=torch.float64, requires_grad=True)
    real = torch.ones(1, n, dtype=torch.bool)
    hidden = tcn.double()(Embedded(x, torch.zeros(1, n, 1), real))
    (gradient,) = torch.autograd.grad(hidden[0, t] @ torch.randn(DIM, dtype=torch.float64), x)
    return gradient[0].abs().amax(dim=-1).nonzero().flatten().tolist()


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kernel_size", [2, 3, 5])
def test_the_receptive_field_is_exact_before_a_causal_token(kernel_size, depth):
    tcn = TCN(DIM, depth, kernel_size=kernel_size, causal=True)
    n = tcn.receptive_field + 4
    assert tcn.receptive_field == 1 + 2 * (kernel_size - 1) * (2**depth - 1)
    assert seen(tcn, n, n - 1) == list(range(4, n))


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kernel_size", [3, 5])
def test_the_receptive_field_is_exact_on_both_sides_of_a_centred_token(kernel_size, depth):
    tcn = TCN(DIM, depth, kernel_size=kernel_size)
    half = (tcn.receptive_field - 1) // 2
    n = tcn.receptive_field + 7
    assert seen(tcn, n, half + 3) == list(range(3, tcn.receptive_field + 3))


def test_the_cache_holds_as_many_inputs_as_it_says():
    tcn = TCN(DIM, 3, kernel_size=3, causal=True).double()
    cache = tcn.init_cache(99)
    for lengths in ([5, 2], [1, 1], [40, 33]):
        tcn(embedded(lengths), cache)
        assert sum(tail.shape[1] for tail in cache.states) == tcn.receptive_field - 1
    assert cache.num_tokens == 46


def test_a_reordered_cache_continues_the_chosen_examples():
    tcn, prompt, more = TCN(DIM, 2, causal=True).double(), embedded([5, 3, 4]), embedded([2, 2, 2])
    rows, cache = torch.tensor([2, 0, 2]), tcn.init_cache(9)
    tcn(prompt, cache)
    cache.reorder(rows)
    got = tcn(more, cache)
    for i, row in enumerate(rows.tolist()):
        whole = torch.cat([prompt.hidden[row, : [5, 3, 4][row]], more.hidden[i]])
        assert_close(got[i], by_loops(tcn, whole)[-2:])


def test_weights_start_as_those_of_torchs_convolution():
    torch.manual_seed(0)
    ours = TCN(DIM, 1, kernel_size=5).blocks[0].convolutions[0].kernel
    torch.manual_seed(0)
    theirs = nn.Conv1d(DIM, DIM, 5)
    assert_close(ours.weight.reshape(DIM, DIM, 5), theirs.weight)
    assert_close(ours.bias, theirs.bias)


def test_dropout_acts_while_training_and_the_norm_is_a_component():
    tcn, x = TCN(DIM, 2, dropout=0.5, norm=nn.Identity).double(), embedded([5, 5])
    assert not torch.equal(tcn(x), tcn(x))
    tcn.eval()
    assert_close(tcn(x), tcn(x))
    assert_close(tcn(x)[0], by_loops(tcn, x.hidden[0]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 0}, "depth=0"),
        ({"kernel_size": 1}, "kernel_size=1"),
        ({"kernel_size": 4}, "kernel_size=4"),
        ({"dropout": 1.0}, "dropout=1.0"),
    ],
)
def test_invalid_arguments_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TCN(DIM, **settings)


def test_unsupported_input_is_refused():
    x = embedded([3, 2])
    adjacency = Adjacency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="does not support adjacency"):
        TCN(DIM).double()(x.replace(adjacency=adjacency))
    with pytest.raises(ValueError, match="not causal"):
        TCN(DIM).init_cache(5)
    with pytest.raises(ValueError, match="TransformerCache"):
        TCN(DIM, causal=True).double()(
            x, Transformer(DIM, 1, num_heads=1, causal=True).init_cache(3)
        )
