"""A reversible transformer stores nothing per layer, and its gradients equal those of plain backpropagation."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import LSTM, Transformer
from seqkit.backbones.reversible import Reversible, run_reversible
from seqkit.interfaces import Embedded, TokenSpec
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.lsh import LSHAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import MLP, ParallelBlock, PostNormBlock, PreNormBlock, Residual
from seqkit.nn.moe import AuxiliaryLoss
from seqkit.nn.position.base import RelativePosition
from seqkit.nn.position.rotary import Rotary
from seqkit.testing import check_backbone

STOCHASTIC = partial(
    PreNormBlock,
    attention=partial(
        MultiHeadAttention, mechanism=partial(ScaledDotProductAttention, dropout=0.3)
    ),
    mlp=partial(MLP, dropout=0.3),
    residual=partial(Residual, dropout=0.3, drop_path=0.3, layer_scale=0.7),
)
"""Everything that draws random numbers while training."""


class LearnedDistance(RelativePosition):
    """A learned bias by distance: parameters outside the blocks."""

    requires = AttentionFeature.BIAS

    def __init__(self):
        super().__init__()
        self.slopes = nn.Parameter(torch.randn(3))

    def bias(self, query_positions, key_positions, num_heads):
        return query_positions.new_zeros(1, num_heads, 1, 1) + self.slopes[:, None, None]


def embedded(lengths, dim=24, dtype=torch.float64):
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = (
        torch.randn(len(lengths), n, dim, dtype=dtype)
        .masked_fill(~valid[..., None], 0.0)
        .requires_grad_()
    )
    return Embedded(hidden, torch.arange(n, dtype=dtype).expand(len(lengths), n)[..., None], valid)


def run_plainly(branches, parameters, x, y):
    """The same forward pass by plain autograd."""
    for branch in branches:
        x, y = y, x + branch(y)
    return x, y


def results_of(backbone, x, monkeypatch, run, seed=0):
    """Hidden states, the generator's state after them, and all gradients of a random mixture of them."""
    monkeypatch.setattr("seqkit.backbones.reversible.run_reversible", run)
    leaves = [x.hidden, *backbone.parameters()]
    torch.manual_seed(seed)
    hidden = backbone(x)
    g = torch.Generator().manual_seed(5)
    mixture = (hidden * torch.randn(hidden.shape, generator=g, dtype=hidden.dtype)).sum()
    return [hidden, torch.get_rng_state().float(), *torch.autograd.grad(mixture, leaves)]


@pytest.mark.parametrize("training", [False, True], ids=["eval", "training"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("position", [None, Rotary()])
def test_gradients_are_those_of_plain_backpropagation(causal, training, position, monkeypatch):
    """Up to rounding, with dropout and stochastic depth."""
    backbone = Reversible(24, 5, num_heads=3, causal=causal, block=STOCHASTIC, position=position)
    backbone.double().train(training)
    for p in backbone.parameters():
        nn.init.normal_(p, std=0.3)
    x = embedded([7, 5])
    for got, right in zip(
        results_of(backbone, x, monkeypatch, run_reversible),
        results_of(backbone, x, monkeypatch, run_plainly),
    ):
        assert_close(got, right, rtol=1e-9, atol=1e-9)
    other = results_of(backbone, x, monkeypatch, run_reversible, seed=1)[0]
    assert torch.equal(other, results_of(backbone, x, monkeypatch, run_reversible)[0]) != training


def test_it_equals_the_papers_equations():
    """Kitaev et al. 2020, section 3: y1 = x1 + attention(norm(x2)), y2 = x2 + mlp(norm(y1))."""
    backbone = Reversible(24, 2, num_heads=3)
    for p in backbone.parameters():
        nn.init.normal_(p, std=0.3)
    x = embedded([5, 5], dtype=torch.float32)
    first = second = x.hidden
    for block in backbone.stack.blocks:
        first = first + block.attention(block.attention_norm(second), AttentionContext())
        second = second + block.mlp(block.mlp_norm(first))
    assert_close(backbone(x), backbone.stack.norm((first + second) / 2))


def activation_bytes(backbone, x):
    """Of the tensors that autograd saves for the backward pass, parameters apart; each storage once."""
    saved, parameters = {}, {p.untyped_storage().data_ptr() for p in backbone.parameters()}

    def pack(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hidden = backbone(x)
    hidden.sum().backward()
    return sum(size for address, size in saved.items() if address not in parameters)


def test_activation_memory_does_not_grow_with_depth():
    x = embedded([7, 5])
    reversible = [
        activation_bytes(Reversible(24, depth, num_heads=3).double(), x) for depth in (1, 2, 7)
    ]
    plain = [
        activation_bytes(Transformer(24, depth, num_heads=3).double(), x) for depth in (1, 2, 7)
    ]
    assert reversible[0] == reversible[1] == reversible[2] < plain[0]
    assert plain[2] > 4 * plain[0]


def test_a_second_backward_pass_gives_the_same_and_leaves_the_generator_alone():
    backbone = Reversible(24, 2, num_heads=3, block=STOCHASTIC).double()
    x = embedded([7, 5])
    loss = backbone(x).square().sum()
    before = torch.get_rng_state()
    first, second = (torch.autograd.grad(loss, x.hidden, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_parameter_that_changed_before_the_backward_pass_is_noticed():
    backbone = Reversible(24, 2, num_heads=3)
    loss = backbone(embedded([7, 5], dtype=torch.float32)).sum()
    with torch.no_grad():
        backbone.stack.blocks[0].mlp.down_proj.weight.mul_(2)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


def test_frozen_parameters_get_no_gradient_and_others_do():
    backbone = Reversible(24, 2, num_heads=3)
    backbone.stack.blocks[0].requires_grad_(False)
    backbone(embedded([7, 5], dtype=torch.float32)).square().sum().backward()
    assert all(p.grad is None for p in backbone.stack.blocks[0].parameters())
    assert all(p.grad.any() for p in backbone.stack.blocks[1].parameters())


@pytest.mark.parametrize("inside", [True, False], ids=["backward-inside", "backward-outside"])
def test_the_backward_pass_recomputes_in_the_autocast_of_the_forward_pass(inside, monkeypatch):
    backbone = Reversible(24, 3, num_heads=3)
    for p in backbone.parameters():
        nn.init.normal_(p, std=0.3)
    x = embedded([7, 5], dtype=torch.float32)
    results = []
    for run in (run_reversible, run_plainly):
        monkeypatch.setattr("seqkit.backbones.reversible.run_reversible", run)
        with torch.autocast("cpu", torch.bfloat16):
            loss = backbone(x).square().mean()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        results.append([loss.detach(), x.hidden.grad, *(p.grad for p in backbone.parameters())])
        x.hidden.grad = None
        backbone.zero_grad()
    for got, right in zip(*results):
        assert (got - right).norm() <= 2e-2 * right.norm()
    assert results[0][1].any()


@pytest.mark.parametrize("causal", [False, True])
def test_a_reformer_keeps_the_laws(causal):
    """Hashed attention in a reversible stack."""
    attention = partial(
        MultiHeadAttention, mechanism=partial(LSHAttention, bucket_size=2, num_buckets=4)
    )
    build = partial(
        Reversible, depth=2, num_heads=3, block=partial(PreNormBlock, attention=attention)
    )
    check_backbone(build, causal=[causal], kinds=["text"], quick=True)


class Scaled(Residual):
    """A residual whose input cannot be recomputed from its output."""

    def forward(self, x, branch):
        return 2 * x + branch


class Balanced(MLP, AuxiliaryLoss):
    """An MLP with an auxiliary loss."""

    def aux_loss(self):
        return self.down_proj.weight.square().sum()

    def statistics(self):
        return {}


def test_what_it_does_not_support_is_refused():
    build = partial(Reversible, 24, 1, num_heads=3)
    for block in (PostNormBlock, ParallelBlock):
        with pytest.raises(ValueError, match=block.__name__):
            build(block=block)
    with pytest.raises(ValueError, match="cross-attention"):
        build(block=partial(PreNormBlock, cross_attention=True))
    with pytest.raises(ValueError, match="Scaled"):
        build(block=partial(PreNormBlock, residual=Scaled))
    with pytest.raises(ValueError, match="Balanced"):
        build(block=partial(PreNormBlock, mlp=Balanced))
    with pytest.raises(ValueError, match="blocks without an MLP"):
        build(block=partial(PreNormBlock, mlp=None))
    with pytest.raises(ValueError, match="depth=0"):
        Reversible(24, 0)
    with pytest.raises(ValueError, match="5 axes"):
        build(position=Rotary()).check_supported(TokenSpec(vocab_size=7, num_axes=5))
    with pytest.raises(ValueError, match="a position with parameters"):
        build(position=LearnedDistance())
    x = embedded([5, 3], dtype=torch.float32)
    with pytest.raises(ValueError, match="use_cache=False"):
        build(causal=True)(x, LSTM(24, causal=True).init_cache(5))
    with pytest.raises(ValueError, match="cross-attention"):
        build()(Embedded(x.hidden, x.positions, x.valid, memory=x))
