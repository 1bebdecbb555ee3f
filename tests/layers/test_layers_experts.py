"""A mixture of experts equals its formula token by token; padding and batch mates have no say in it."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.conformance import Reader, check_backbone, laws_for, made_up
from seqkit.conformance.laws import gradients_reach_every_parameter
from seqkit.contract import Embedded, TokenBatch
from seqkit.layers.block import Block
from seqkit.layers.experts import MixtureOfExperts
from seqkit.layers.mlp import MLP, ConvMLP, GatedMLP


def shaken(num_experts, num_active, **settings):
    """Routers that start small would find all experts nearly alike."""
    mixture = MixtureOfExperts(7, num_experts=num_experts, num_active=num_active, **settings)
    nn.init.normal_(mixture.router.weight)
    return mixture


def by_hand(mixture, x, num_active):
    """x: [t d], token by token: the best experts by softmax, weighed by it."""
    answers = []
    for token in x:
        odds = [math.exp(float(row @ token)) for row in mixture.router.weight]
        best = sorted(range(len(odds)), key=lambda i: -odds[i])[:num_active]
        total = sum(odds[i] for i in best) if num_active > 1 else sum(odds)
        answers.append(sum(odds[i] / total * mixture.experts[i](token) for i in best))
    return torch.stack(answers)


@pytest.fixture
def x():
    return torch.randn(2, 5, 7)


@pytest.fixture
def valid():
    return torch.arange(5) < torch.tensor([[5], [3]])


def test_one_expert_is_the_mlp(x):
    mixture = MixtureOfExperts(7, num_experts=1, num_active=1)
    assert_close(mixture(x), mixture.experts[0](x))


def test_all_experts_active_are_a_dense_mixture(x):
    mixture = shaken(3, 3)
    weights = (x @ mixture.router.weight.T).softmax(dim=-1)
    assert_close(mixture(x), sum(weights[..., [i]] * expert(x) for i, expert in enumerate(mixture.experts)))


@pytest.mark.parametrize("num_active", [1, 2, 4])
@pytest.mark.parametrize("expert", [MLP, GatedMLP])
def test_a_mixture_is_what_it_is_by_hand(x, num_active, expert):
    mixture = shaken(5, num_active, expert=expert)
    with torch.no_grad():
        assert_close(mixture(x).flatten(0, 1), by_hand(mixture, x.flatten(0, 1), num_active))


def test_gates_are_mixtrals_softmax_over_the_chosen(x):
    mixture = shaken(5, 2)
    with torch.no_grad():
        gates, chosen = mixture._route(x[0])
        scores, best = (x[0] @ mixture.router.weight.T).topk(2, dim=-1)
    assert torch.equal(chosen, best)
    assert_close(gates, scores.softmax(dim=-1))


@pytest.mark.parametrize("num_active", [1, 2])
def test_the_task_alone_teaches_the_router(x, num_active):
    mixture = shaken(3, num_active)
    (mixture(x) * torch.randn(2, 5, 7)).sum().backward()
    assert float(mixture.router.weight.grad.abs().max()) > 1e-4


def test_padding_is_sent_nowhere_and_counts_nowhere(x, valid):
    mixture = shaken(3, 2)
    hostile = x.masked_fill(~valid[..., None], torch.nan)
    got, loss, figures = mixture(hostile, valid), mixture.extra_loss(), mixture.statistics()
    alone = mixture(x[valid][None])
    assert_close(got[valid], alone[0])
    assert not got[~valid].any()
    assert_close(loss, mixture.extra_loss())
    assert figures == pytest.approx(mixture.statistics())
    (got.sum() + loss).backward()
    assert all(bool(p.grad.isfinite().all()) for p in mixture.parameters())


def test_an_expert_takes_all_that_is_sent_to_it(x):
    """Dropless: were there a capacity, the same token would get nothing beside many like it."""
    mixture, token = shaken(3, 1), torch.randn(7)
    crowd = token.expand(1, 101, 7)
    assert_close(mixture(crowd), mixture(token[None, None]).expand(1, 101, 7))
    assert mixture.statistics()["router_load_max"] == pytest.approx(1 * 3)


@pytest.mark.parametrize("num_active", [1, 2])
def test_the_extra_loss_is_switchs(x, valid, num_active):
    mixture = shaken(3, num_active, balance=0.7)
    with torch.no_grad():
        mixture(x, valid)
    real, rows = x[valid], mixture.router.weight.detach()
    share, probability = [0.0] * 3, [0.0] * 3
    for token in real:
        odds = [math.exp(float(row @ token)) for row in rows]
        for i in sorted(range(3), key=lambda i: -odds[i])[:num_active]:
            share[i] += 1 / (len(real) * num_active)
        for i in range(3):
            probability[i] += odds[i] / sum(odds) / len(real)
    balance = 3 * sum(f * p for f, p in zip(share, probability))
    assert float(mixture.extra_loss()) == pytest.approx(0.7 * balance, rel=1e-5)
    figures = mixture.statistics()
    assert figures["router_balance"] == pytest.approx(balance, rel=1e-5)
    assert figures["router_load_max"] == pytest.approx(3 * max(share), rel=1e-5)
    assert figures["router_load_min"] == pytest.approx(3 * min(share), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("num_active", [1, 2, 4])
def test_the_extra_loss_is_balance_where_all_are_busy_alike_and_most_where_few_are(num_active):
    mixture, x = MixtureOfExperts(8, num_experts=4, num_active=num_active, balance=0.3), torch.eye(4, 8)[None]
    with torch.no_grad():
        mixture.router.weight.zero_()
        for token in range(4):
            for rank in range(num_active):
                mixture.router.weight[(token + rank) % 4, token] = 50.0
    mixture.eval()
    mixture(x)
    assert float(mixture.extra_loss()) == pytest.approx(0.3)
    assert mixture.statistics()["router_entropy"] == pytest.approx(math.log(num_active), abs=1e-4)
    mixture(x[:, :1])
    assert float(mixture.extra_loss()) == pytest.approx(0.3 * 4 / num_active)


def test_the_gradient_of_the_extra_loss_evens_the_load_out():
    mixture, x = shaken(3, 1, balance=1.0), torch.randn(1, 101, 7)
    loads = []
    for _ in range(30):
        mixture(x)
        loads.append(mixture.statistics()["router_load_max"])
        (gradient,) = torch.autograd.grad(mixture.extra_loss(), [mixture.router.weight])
        mixture.router.weight.data -= gradient
    assert loads[-1] < loads[0] - 0.1


def test_an_expert_without_tokens_has_a_gradient_of_zero():
    mixture = shaken(3, 1)
    mixture(torch.randn(1, 1, 7)).sum().backward()
    silent = [expert for expert in mixture.experts if not expert.out.weight.grad.any()]
    assert len(silent) == 2
    assert all(p.grad is not None for p in mixture.parameters())


def test_nothing_is_kept_that_breaks(x):
    mixture = shaken(3, 2)
    assert float(mixture.extra_loss()) == 0
    assert mixture.statistics() == {}
    mixture(x)
    twin = copy.deepcopy(mixture)
    assert float(twin.extra_loss()) == 0
    assert_close(twin(x), mixture(x))
    mixture.eval()
    mixture(x)
    assert not mixture.extra_loss().requires_grad, "it would keep the graph of an evaluation alive"
    mixture.train()
    mixture(x)
    assert mixture.extra_loss().requires_grad


def test_only_padding_is_nothing(x):
    mixture = shaken(3, 2)
    assert not mixture(x, torch.zeros(2, 5, dtype=torch.bool)).any()
    assert float(mixture.extra_loss().detach()) == 0


def test_the_router_keeps_full_precision_under_autocast(x):
    mixture = shaken(3, 2)
    gates, chosen = mixture._route(x[0])
    with torch.autocast("cpu", torch.bfloat16):
        low, same = mixture._route(x[0])
        assert mixture(x).dtype == torch.bfloat16
    assert torch.equal(low, gates)
    assert torch.equal(same, chosen)
    assert mixture.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


def test_on_meta_every_expert_takes_its_share(x):
    """The FLOPs of a preset too large for memory: e experts, each token through a of them."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        mixture = MixtureOfExperts(7, num_experts=4, num_active=2)
        with FlopCounterMode(display=False) as counted:
            got = mixture(torch.empty(2, 5, 7), torch.ones(2, 5, dtype=torch.bool))
    assert got.shape == (2, 5, 7)
    per_token = 2 * 7 * 4 + 2 * 2 * (2 * 7 * 28)
    mixing = 2 * 2 * 7  # the gated sum is a product of matrices too
    assert counted.get_total_flops() == 10 * (per_token + mixing)


@pytest.mark.parametrize(("num_experts", "num_active"), [(1, 2), (3, 0), (0, 0)])
def test_fewer_experts_than_active_are_refused(num_experts, num_active):
    with pytest.raises(ValueError, match=rf"^num_experts={num_experts} with num_active={num_active}; a token uses"):
        MixtureOfExperts(7, num_experts=num_experts, num_active=num_active)


def test_what_else_cannot_be_is_refused():
    with pytest.raises(ValueError, match="balance=-1 weighs a loss; make it 0 or more"):
        MixtureOfExperts(7, num_experts=3, balance=-1)
    with pytest.raises(ValueError, match="ConvMLP fails on no tokens"):
        MixtureOfExperts(7, num_experts=3, expert=ConvMLP)


def with_experts(dim, causal, **settings):
    block = partial(Block, mlp=partial(MixtureOfExperts, **settings))
    return Transformer(dim, 2, num_heads=3, causal=causal, block=block)


@pytest.mark.parametrize("num_experts", [2, 3])
def test_a_transformer_with_experts_keeps_the_laws(num_experts):
    """So few that the 12 to 20 made-up tokens keep all busy: the law of gradients asks for more than zero in each."""
    check_backbone(partial(with_experts, num_experts=num_experts, num_active=2))


@pytest.mark.parametrize("causal", [False, True])
def test_more_experts_than_tokens_need_keep_all_laws_but_that_of_gradients(causal):
    """An expert that no token chose rightly has a gradient of zero, and the law binds only those that were chosen."""
    for spec, examples in made_up().values():
        reader = Reader(spec, with_experts(24, causal, num_experts=5, num_active=1))
        for law in laws_for(reader, examples):
            if law is not gradients_reach_every_parameter:
                law(reader, examples)
        reader.train()
        hidden = reader(TokenBatch.collate(examples))
        (hidden * torch.randn_like(hidden)).sum().backward()
        for block in reader.backbone.blocks:
            chosen = set(block.mlp._routed[1].flatten().tolist())
            for i, expert in enumerate(block.mlp.experts):
                assert all(bool(p.grad.any()) == (i in chosen) for p in expert.parameters())


def test_a_mixture_that_sees_padding_breaks_the_law(monkeypatch):
    """What the law of padding would notice: a mixture that takes a token's share of the batch's load into account."""
    sound = MixtureOfExperts._mix
    monkeypatch.setattr(MixtureOfExperts, "_mix", lambda self, x: sound(self, x) / len(x))
    with pytest.raises(AssertionError, match="batch_mates_change_nothing"):
        check_backbone(partial(with_experts, num_experts=2))


def test_blocks_tell_experts_who_is_padding(valid):
    transformer = Transformer(21, 1, num_heads=3, block=partial(Block, mlp=partial(MixtureOfExperts, num_experts=3)))
    transformer(Embedded(torch.randn(2, 5, 21), torch.zeros(2, 5, 1), valid))
    probabilities, _ = transformer.blocks[0].mlp._routed
    assert len(probabilities) == int(valid.sum())
