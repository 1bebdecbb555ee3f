"""A reversible stack keeps nothing per layer, and its gradients are those of the same sums with everything kept."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import LSTM, Transformer
from seqkit.backbones.reversible import Layer, Reversible, run
from seqkit.conformance import check_backbone
from seqkit.contract import Embedded, Links, TokenSpec
from seqkit.layers.attention import Attention
from seqkit.layers.block import Block, ParallelBlock, PostNormBlock
from seqkit.layers.lsh import LSH
from seqkit.layers.mechanism import ScaledDotProduct
from seqkit.layers.mlp import MLP
from seqkit.layers.position import AttentionPosition, Rotary
from seqkit.layers.reading import Reading
from seqkit.layers.residual import Residual

THIN = partial(
    Block,
    attention=partial(Attention, mechanism=partial(ScaledDotProduct, dropout=0.3)),
    mlp=partial(MLP, dropout=0.3),
    residual=partial(Residual, dropout=0.3, drop_path=0.3, layer_scale=0.7),
)
"""Everything that draws numbers while training."""


class Slopes(AttentionPosition):
    """A learned bias by distance, and learned distances in the scores: gradients that come from outside the blocks."""

    needs = frozenset({"bias", "relative"})

    def __init__(self, num_heads, channels):
        super().__init__()
        self.slopes = nn.Parameter(torch.randn(num_heads))
        self.directions = nn.Parameter(torch.randn(channels))

    def bias(self, readers, read, num_heads):
        return -self.distance(readers, read)[:, None] * self.slopes[:, None, None]

    def relative(self, readers, read):
        return self.distance(readers, read)[..., None] * self.directions

    def distance(self, readers, read):
        return (readers[:, :, None, 0] - read[:, None, :, 0]).abs()


def embedded(lengths, dim=24, dtype=torch.float64, links=False):
    n = max(lengths)
    valid = torch.arange(n) < torch.tensor(lengths)[:, None]
    hidden = torch.randn(len(lengths), n, dim, dtype=dtype).masked_fill(~valid[..., None], 0.0).requires_grad_()
    positions = torch.arange(n, dtype=dtype).expand(len(lengths), n)[..., None]
    if not links:
        return Embedded(hidden, positions, valid)
    edges = torch.tensor([[0, 1, 2, n, n + 2], [1, 0, 0, n + 1, n]])
    bias = torch.randn(3, 3, dtype=dtype, requires_grad=True)
    return Embedded(hidden, positions, valid, Links(edges, torch.tensor([1, 2, 1, 2, 1])), bias)


def kept_plainly(layers, x, y):
    """The same sums by autograd as it is."""
    for layer in layers:
        x, y = layer(x, y)
    return x, y


def found(backbone, x, monkeypatch, sums, seed=0):
    """Hidden vectors, the gradients of a random mixture of them by everything, and the generator's state after."""
    monkeypatch.setattr("seqkit.backbones.reversible.run", sums)
    leaves = [x.hidden, *([] if x.link_bias is None else [x.link_bias]), *backbone.parameters()]
    torch.manual_seed(seed)
    hidden = backbone(x)
    g = torch.Generator().manual_seed(5)
    mixture = (hidden * torch.randn(hidden.shape, generator=g, dtype=hidden.dtype)).sum()
    return [hidden, torch.get_rng_state().float(), *torch.autograd.grad(mixture, leaves)]


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
@pytest.mark.parametrize("causal", [False, True], ids=["both-ways", "causal"])
@pytest.mark.parametrize(("position", "links"), [(None, True), ("slopes", False), ("rotary", True)])
def test_gradients_are_those_of_plain_backpropagation(causal, training, position, links, monkeypatch):
    """To rounding, dropout and stochastic depth included, and of what stands outside the blocks too."""
    position = {"slopes": lambda: Slopes(3, 8), "rotary": Rotary}.get(position, lambda: None)()
    backbone = Reversible(24, 5, num_heads=3, causal=causal, block=THIN, position=position).double().train(training)
    for p in backbone.parameters():
        nn.init.normal_(p, std=0.3)
    x = embedded([7, 5], links=links)
    for got, right in zip(found(backbone, x, monkeypatch, run), found(backbone, x, monkeypatch, kept_plainly)):
        assert_close(got, right, rtol=1e-9, atol=1e-9)
    other = found(backbone, x, monkeypatch, run, seed=1)[0]
    assert torch.equal(other, found(backbone, x, monkeypatch, run)[0]) != training


def test_it_computes_what_the_papers_say():
    """Kitaev et al. 2020, section 3: y1 = x1 + attention(norm(x2)), y2 = x2 + mlp(norm(y1))."""
    backbone = Reversible(24, 2, num_heads=3)
    for p in backbone.parameters():
        nn.init.normal_(p, std=0.3)
    x = embedded([5, 5], dtype=torch.float32)
    first = second = x.hidden
    for block in backbone.stack.blocks:
        first = first + block.attention(block.attention_norm(second), Reading())
        second = second + block.mlp(block.mlp_norm(first))
    assert_close(backbone(x), backbone.stack.norm((first + second) / 2))


def kept_bytes(backbone, x):
    """Of tensors that autograd keeps for the way back, weights apart; each storage once."""
    kept, weights = {}, {p.untyped_storage().data_ptr() for p in backbone.parameters()}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hidden = backbone(x)
    hidden.sum().backward()
    return sum(size for place, size in kept.items() if place not in weights)


def test_what_is_kept_does_not_grow_with_depth():
    x = embedded([7, 5])
    reversible = [kept_bytes(Reversible(24, depth, num_heads=3).double(), x) for depth in (1, 2, 7)]
    plain = [kept_bytes(Transformer(24, depth, num_heads=3).double(), x) for depth in (1, 2, 7)]
    assert reversible[0] == reversible[1] == reversible[2] < plain[0]
    assert plain[2] > 4 * plain[0]


def test_a_second_way_back_gives_the_same_and_draws_nothing():
    backbone = Reversible(24, 2, num_heads=3, block=THIN).double()
    x = embedded([7, 5])
    loss = backbone(x).square().sum()
    before = torch.get_rng_state()
    first, second = (torch.autograd.grad(loss, x.hidden, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_weight_that_was_changed_before_the_way_back_is_noticed():
    backbone = Reversible(24, 2, num_heads=3)
    loss = backbone(embedded([7, 5], dtype=torch.float32)).sum()
    with torch.no_grad():
        backbone.stack.blocks[0].mlp.out.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_frozen_weights_get_no_gradient_and_others_do():
    backbone = Reversible(24, 2, num_heads=3)
    backbone.stack.blocks[0].requires_grad_(False)
    backbone(embedded([7, 5], dtype=torch.float32)).square().sum().backward()
    assert all(p.grad is None for p in backbone.stack.blocks[0].parameters())
    assert all(p.grad.any() for p in backbone.stack.blocks[1].parameters())


@pytest.mark.parametrize("inside", [True, False], ids=["backward-inside", "backward-outside"])
def test_the_way_back_computes_in_the_precision_of_the_way_there(inside, monkeypatch):
    backbone = Reversible(24, 3, num_heads=3)
    for p in backbone.parameters():
        nn.init.normal_(p, std=0.3)
    x = embedded([7, 5], dtype=torch.float32)
    results = []
    for sums in (run, kept_plainly):
        monkeypatch.setattr("seqkit.backbones.reversible.run", sums)
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
def test_the_reformer_keeps_the_laws(causal):
    """Hashed attention in a reversible stack."""
    attention = partial(Attention, mechanism=partial(LSH, bucket_size=2, num_buckets=4))
    build = partial(Reversible, depth=2, num_heads=3, block=partial(Block, attention=attention))
    check_backbone(build, causal=[causal])


def test_steps_with_a_cache_give_what_one_pass_gives():
    backbone = Reversible(24, 3, num_heads=3, causal=True, position=Rotary())
    x = embedded([7, 7], dtype=torch.float32)
    cache = backbone.init_cache(7)
    steps = [backbone(Embedded(x.hidden[:, t], x.positions[:, t], x.valid[:, t]), cache)
             for t in (slice(0, 4), slice(4, 5), slice(5, 7))]  # fmt: skip
    assert cache.num_tokens == 7
    assert_close(torch.cat(steps, dim=1), backbone(x))


class Scaled(Residual):
    """A residual that nobody could undo from the sum."""

    def forward(self, x, branch):
        return 2 * x + branch


class Balanced(MLP):
    """An mlp with a loss of its own."""

    def extra_loss(self):
        return self.out.weight.square().sum()


def test_what_cannot_be_is_refused():
    build = partial(Reversible, 24, 1, num_heads=3)
    for block in (PostNormBlock, ParallelBlock):
        with pytest.raises(ValueError, match=f"was given {block.__name__}; pass Block"):
            build(block=block)
    with pytest.raises(ValueError, match="Reversible reads no other sequence"):
        build(block=partial(Block, cross=True))
    with pytest.raises(ValueError, match="Scaled cannot be undone; Reversible takes the residual Residual"):
        build(block=partial(Block, residual=Scaled))
    with pytest.raises(ValueError, match="Balanced has a loss of its own"):
        build(block=partial(Block, mlp=Balanced))
    with pytest.raises(ValueError, match="depth=0; a transformer needs at least one block"):
        Reversible(24, 0)
    with pytest.raises(ValueError, match="hold no pair for each of 5 axes"):
        build(position=Rotary()).check(TokenSpec(vocab_size=7, num_axes=5))
    x = embedded([5, 3], dtype=torch.float32)
    with pytest.raises(ValueError, match="Reversible was given a RecurrentState"):
        build(causal=True)(x, LSTM(24, causal=True).init_cache(5))
    with pytest.raises(ValueError, match="reads no other sequence"):
        build()(Embedded(x.hidden, x.positions, x.valid, memory=x))


def test_a_layer_is_its_two_maps():
    layer = Layer(Block(24, 3), Reading())
    x, y = torch.randn(2, 2, 5, 24)
    after = x + layer.attend(y)
    for got, right in zip(layer(x, y), (after, y + layer.think(after))):
        assert_close(got, right)
