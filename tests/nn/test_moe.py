"""A mixture of experts equals its formula token by token, whatever padding and batch mates are."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.interfaces import Embedded, TokenBatch
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.mlp import ConvMLP, GatedMLP
from seqkit.nn.moe import MixtureOfExperts
from seqkit.testing import EmbeddedBackbone, check_backbone, laws_for, synthetic
from seqkit.testing.laws import gradients_reach_every_parameter


def shaken(num_experts, top_k, **settings):
    """With a large router: one that starts small gives all experts about the same gate."""
    mixture = MixtureOfExperts(7, num_experts=num_experts, top_k=top_k, **settings)
    nn.init.normal_(mixture.router.weight)
    return mixture


def by_hand(mixture, x, top_k, normalize_gates=True):
    """x: [t d], token by token: the best experts by softmax, weighted by it."""
    outputs = []
    for token in x:
        odds = [math.exp(float(row @ token)) for row in mixture.router.weight]
        best = sorted(range(len(odds)), key=lambda i: -odds[i])[:top_k]
        total = sum(odds[i] for i in best) if top_k > 1 and normalize_gates else sum(odds)
        outputs.append(sum(odds[i] / total * mixture.experts[i](token) for i in best))
    return torch.stack(outputs)


@pytest.fixture
def x():
    return torch.randn(2, 5, 7)


@pytest.fixture
def valid():
    return torch.arange(5) < torch.tensor([[5], [3]])


def test_one_expert_is_the_mlp(x):
    mixture = MixtureOfExperts(7, num_experts=1, top_k=1)
    assert_close(mixture(x), mixture.experts[0](x))


def test_with_all_experts_it_is_a_dense_mixture(x):
    mixture = shaken(3, 3)
    weights = (x @ mixture.router.weight.T).softmax(dim=-1)
    assert_close(
        mixture(x), sum(weights[..., [i]] * expert(x) for i, expert in enumerate(mixture.experts))
    )


@pytest.mark.parametrize("top_k", [1, 2, 4])
@pytest.mark.parametrize("expert", [MLP, GatedMLP])
@pytest.mark.parametrize("normalize_gates", [True, False])
def test_a_mixture_equals_its_formula(x, top_k, expert, normalize_gates):
    mixture = shaken(5, top_k, expert=expert, normalize_gates=normalize_gates)
    with torch.no_grad():
        right = by_hand(mixture, x.flatten(0, 1), top_k, normalize_gates)
        assert_close(mixture(x).flatten(0, 1), right)


def test_gates_that_are_not_normalised_are_qwens_probabilities_of_the_chosen(x):
    mixture = shaken(5, 2, normalize_gates=False)
    with torch.no_grad():
        gates, chosen = mixture._route(x[0])
        probabilities = (x[0] @ mixture.router.weight.T).softmax(dim=-1)
    assert_close(gates, probabilities.gather(1, chosen))
    assert float(gates.sum(dim=-1).max()) < 1


def test_gates_are_mixtrals_softmax_over_the_chosen(x):
    mixture = shaken(5, 2)
    with torch.no_grad():
        gates, chosen = mixture._route(x[0])
        scores, best = (x[0] @ mixture.router.weight.T).topk(2, dim=-1)
    assert torch.equal(chosen, best)
    assert_close(gates, scores.softmax(dim=-1))


def test_a_bias_of_the_router_is_added_before_experts_are_chosen(x):
    mixture = shaken(5, 2, router_bias=True)
    with torch.no_grad():
        gates, chosen = mixture._route(x[0])
        router = mixture.router
        scores, best = (x[0] @ router.weight.T + router.bias).topk(2, dim=-1)
        _, others = (x[0] @ router.weight.T).topk(2, dim=-1)
    assert torch.equal(chosen, best)
    assert not torch.equal(chosen, others)
    assert_close(gates, scores.softmax(dim=-1))


@pytest.mark.parametrize("top_k", [1, 2, 4])
@pytest.mark.parametrize("normalize_gates", [True, False])
def test_gradients_are_those_of_the_formula(x, top_k, normalize_gates):
    """Through the gates as well as through the experts."""
    mixture, tokens = shaken(5, top_k, normalize_gates=normalize_gates), x.flatten(0, 1)
    probabilities = (tokens @ mixture.router.weight.T).softmax(dim=-1)
    chosen = probabilities.topk(top_k, dim=-1).indices
    gates = probabilities * torch.zeros(10, 5).scatter(1, chosen, 1.0)
    if top_k > 1 and normalize_gates:
        gates = gates / gates.sum(dim=-1, keepdim=True)
    written_out = sum(gates[:, [i]] * expert(tokens) for i, expert in enumerate(mixture.experts))
    direction, parameters = torch.randn(10, 7), list(mixture.parameters())
    right, got = (
        torch.autograd.grad((y * direction).sum(), parameters)
        for y in (written_out, mixture(x).flatten(0, 1))
    )
    assert_close(got, right)
    assert float(right[0].abs().max()) > 1e-3


@pytest.mark.parametrize("top_k", [1, 2])
def test_the_router_gets_a_gradient_without_the_aux_loss(x, top_k):
    mixture = shaken(3, top_k)
    (mixture(x) * torch.randn(2, 5, 7)).sum().backward()
    assert float(mixture.router.weight.grad.abs().max()) > 1e-4


def test_padding_goes_to_no_expert_and_counts_nowhere(x, valid):
    mixture = shaken(3, 2)
    hostile = x.masked_fill(~valid[..., None], torch.nan)
    got, loss, figures = mixture(hostile, valid), mixture.aux_loss(), mixture.statistics()
    alone = mixture(x[valid][None])
    assert_close(got[valid], alone[0])
    assert not got[~valid].any()
    assert_close(loss, mixture.aux_loss())
    assert figures == pytest.approx(mixture.statistics())
    (got.sum() + loss).backward()
    assert all(bool(p.grad.isfinite().all()) for p in mixture.parameters())


def test_an_expert_processes_all_tokens_that_are_routed_to_it(x):
    """Dropless: were there a capacity, the same token would get nothing beside many like it."""
    mixture, token = shaken(3, 1), torch.randn(7)
    crowd = token.expand(1, 101, 7)
    assert_close(mixture(crowd), mixture(token[None, None]).expand(1, 101, 7))
    assert mixture.statistics()["router_load_max"] == pytest.approx(1 * 3)


@pytest.mark.parametrize("top_k", [1, 2])
def test_the_aux_loss_is_switchs(x, valid, top_k):
    mixture = shaken(3, top_k, aux_loss_weight=0.7)
    with torch.no_grad():
        mixture(x, valid)
    real, rows = x[valid], mixture.router.weight.detach()
    share, probability = [0.0] * 3, [0.0] * 3
    for token in real:
        odds = [math.exp(float(row @ token)) for row in rows]
        for i in sorted(range(3), key=lambda i: -odds[i])[:top_k]:
            share[i] += 1 / (len(real) * top_k)
        for i in range(3):
            probability[i] += odds[i] / sum(odds) / len(real)
    balance = 3 * sum(f * p for f, p in zip(share, probability))
    assert float(mixture.aux_loss()) == pytest.approx(0.7 * balance, rel=1e-5)
    figures = mixture.statistics()
    assert figures["router_balance"] == pytest.approx(balance, rel=1e-5)
    assert figures["router_load_max"] == pytest.approx(3 * max(share), rel=1e-5)
    assert figures["router_load_min"] == pytest.approx(3 * min(share), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_the_aux_loss_is_its_weight_where_the_load_is_equal_and_largest_where_few_experts_get_all(
    top_k,
):
    mixture, x = (
        MixtureOfExperts(8, num_experts=4, top_k=top_k, aux_loss_weight=0.3),
        torch.eye(4, 8)[None],
    )
    with torch.no_grad():
        mixture.router.weight.zero_()
        for token in range(4):
            for rank in range(top_k):
                mixture.router.weight[(token + rank) % 4, token] = 50.0
    mixture.eval()
    mixture(x)
    assert float(mixture.aux_loss()) == pytest.approx(0.3)
    assert mixture.statistics()["router_entropy"] == pytest.approx(math.log(top_k), abs=1e-4)
    mixture(x[:, :1])
    assert float(mixture.aux_loss()) == pytest.approx(0.3 * 4 / top_k)


def test_the_gradient_of_the_aux_loss_balances_the_load():
    mixture, x = shaken(3, 1, aux_loss_weight=1.0), torch.randn(1, 101, 7)
    loads = []
    for _ in range(30):
        mixture(x)
        loads.append(mixture.statistics()["router_load_max"])
        (gradient,) = torch.autograd.grad(mixture.aux_loss(), [mixture.router.weight])
        mixture.router.weight.data -= gradient
    assert loads[-1] < loads[0] - 0.1


def test_an_expert_without_tokens_has_a_gradient_of_zero():
    mixture = shaken(3, 1)
    mixture(torch.randn(1, 1, 7)).sum().backward()
    unused = [expert for expert in mixture.experts if not expert.down_proj.weight.grad.any()]
    assert len(unused) == 2
    assert all(p.grad is not None for p in mixture.parameters())


def test_the_last_routing_breaks_neither_copies_nor_evaluation(x):
    mixture = shaken(3, 2)
    assert float(mixture.aux_loss()) == 0
    assert mixture.statistics() == {}
    mixture(x)
    twin = copy.deepcopy(mixture)
    assert float(twin.aux_loss()) == 0
    assert_close(twin(x), mixture(x))
    mixture.eval()
    mixture(x)
    assert not mixture.aux_loss().requires_grad, "it would keep the graph of an evaluation alive"
    mixture.train()
    mixture(x)
    assert mixture.aux_loss().requires_grad


def test_only_padding_gives_zero(x):
    mixture = shaken(3, 2)
    assert not mixture(x, torch.zeros(2, 5, dtype=torch.bool)).any()
    assert float(mixture.aux_loss().detach()) == 0


def test_the_router_keeps_full_precision_under_autocast(x):
    mixture = shaken(3, 2)
    gates, chosen = mixture._route(x[0])
    with torch.autocast("cpu", torch.bfloat16):
        low, same = mixture._route(x[0])
        assert mixture(x).dtype == torch.bfloat16
    assert torch.equal(low, gates)
    assert torch.equal(same, chosen)
    assert mixture.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


def test_on_meta_every_expert_gets_an_equal_share(x):
    """The FLOPs of a preset too large for memory: e experts, each token through top_k of them."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        mixture = MixtureOfExperts(7, num_experts=4, top_k=2)
        with FlopCounterMode(display=False) as counted:
            got = mixture(torch.empty(2, 5, 7), torch.ones(2, 5, dtype=torch.bool))
    assert got.shape == (2, 5, 7)
    per_token = 2 * 7 * 4 + 2 * 2 * (2 * 7 * 28)
    mixing = 2 * 2 * 7  # the gated sum is a product of matrices too
    assert counted.get_total_flops() == 10 * (per_token + mixing)


@pytest.mark.parametrize(("num_experts", "top_k"), [(1, 2), (3, 0), (0, 0)])
def test_fewer_experts_than_top_k_are_refused(num_experts, top_k):
    with pytest.raises(ValueError, match=f"num_experts={num_experts}"):
        MixtureOfExperts(7, num_experts=num_experts, top_k=top_k)


def test_a_negative_weight_and_experts_that_fail_on_no_tokens_are_refused():
    with pytest.raises(ValueError, match="aux_loss_weight"):
        MixtureOfExperts(7, num_experts=3, aux_loss_weight=-1)
    with pytest.raises(ValueError, match="ConvMLP"):
        MixtureOfExperts(7, num_experts=3, expert=ConvMLP)


def with_experts(dim, causal, **settings):
    block = partial(PreNormBlock, mlp=partial(MixtureOfExperts, **settings))
    return Transformer(dim, 2, num_heads=3, causal=causal, block=block)


@pytest.mark.slow
def test_a_transformer_with_experts_keeps_the_laws():
    """So few that the 20 synthetic tokens use all: the law of gradients wants more than zero in each."""
    check_backbone(partial(with_experts, num_experts=3, top_k=2), kinds=["text"], quick=True)


@pytest.mark.parametrize("causal", [False, True])
def test_more_experts_than_the_tokens_use_keep_all_laws_but_that_of_gradients(causal):
    """An expert that no token chose rightly has a gradient of zero; the chosen ones have more."""
    for spec, examples in (synthetic()[kind] for kind in ("text", "graph")):
        model = EmbeddedBackbone(spec, with_experts(24, causal, num_experts=5, top_k=1))
        for law in laws_for(model, examples):
            if law is not gradients_reach_every_parameter:
                law(model, examples)
        model.train()
        hidden = model(TokenBatch.collate(examples))
        (hidden * torch.randn_like(hidden)).sum().backward()
        for block in model.backbone.blocks:
            chosen = set(block.mlp._routed[1].flatten().tolist())
            for i, expert in enumerate(block.mlp.experts):
                assert all(bool(p.grad.any()) == (i in chosen) for p in expert.parameters())


@pytest.mark.slow
def test_a_law_notices_a_mixture_that_depends_on_batch_mates(monkeypatch):
    """One that divides by the number of tokens in the batch."""
    sound = MixtureOfExperts._mix
    monkeypatch.setattr(MixtureOfExperts, "_mix", lambda self, x: sound(self, x) / len(x))
    with pytest.raises(AssertionError, match="mates_change_nothing"):
        check_backbone(partial(with_experts, num_experts=2), kinds=["text"], quick=True)


def test_blocks_pass_the_padding_mask_to_experts(valid):
    transformer = Transformer(
        21,
        1,
        num_heads=3,
        block=partial(PreNormBlock, mlp=partial(MixtureOfExperts, num_experts=3)),
    )
    transformer(Embedded(torch.randn(2, 5, 21), torch.zeros(2, 5, 1), valid))
    probabilities, _ = transformer.blocks[0].mlp._routed
    assert len(probabilities) == int(valid.sum())
