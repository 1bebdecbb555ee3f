"""Which parameters each optimizer takes, that a combined optimizer equals its optimizers, and schedules by formula."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.testing import assert_close

from seqkit.backbones import GIN, LSTM, Transformer
from seqkit.backbones.gps import GPSBlock
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.bias import T5Bias
from seqkit.objectives import Masked
from seqkit.training import muon
from seqkit.training.optim import (
    WSD,
    AdamW,
    CombinedOptimizer,
    Constant,
    Cosine,
    InverseSqrt,
    Muon,
    TorchOptimizer,
    TorchSchedule,
)

ADDITIVE = partial(MultiHeadAttention, mechanism=AdditiveAttention)


def model(backbone=None):
    return Model(TokenSpec(vocab_size=11), backbone or Transformer(24, 2), Masked())


def names(group, model):
    by_id = {id(p): name for name, p in model.named_parameters()}
    return {by_id[id(p)] for p in group["params"]}


def test_adamw_decays_matrices_only_and_takes_every_parameter_once():
    m = model()
    groups = AdamW(3e-3, betas=(0.8, 0.9), weight_decay=0.2).build(m).param_groups
    decayed, free = groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.2, 0.0)
    assert {p.ndim for p in decayed["params"]} == {2}
    assert {p.ndim for p in free["params"]} == {1}
    every = [name for group in groups for name in names(group, m)]
    assert sorted(every) == sorted(name for name, _ in m.named_parameters())
    assert {(group["lr"], group["betas"]) for group in groups} == {(3e-3, (0.8, 0.9))}
    assert {"embedder.mask_token", "backbone.norm.weight", "head.linear.bias"} <= names(free, m)


@pytest.mark.parametrize(
    "factory", [AdamW(), TorchOptimizer(torch.optim.SGD)], ids=["AdamW", "SGD"]
)
def test_frozen_parameters_are_left_out(factory):
    m = model()
    m.backbone.requires_grad_(False)
    taken = set().union(*(names(group, m) for group in factory.build(m).param_groups))
    assert taken == {name for name, p in m.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("backbone", [lambda: Transformer(24, 2), lambda: LSTM(24)])
def test_muon_takes_the_backbones_matrices_and_adamw_the_rest(backbone):
    m = model(backbone())
    both = Muon(1e-2, adamw=AdamW(1e-3)).build(m)
    of_muon, *rest = both.param_groups
    right = {
        name for name, p in m.named_parameters() if name.startswith("backbone.") and p.ndim == 2
    }
    assert names(of_muon, m) == right
    others = set().union(*(names(group, m) for group in rest))
    assert others == {name for name, _ in m.named_parameters()} - right
    assert isinstance(both.optimizers[0], torch.optim.Muon)
    assert type(both.optimizers[1]) is torch.optim.AdamW
    assert (of_muon["lr"], rest[0]["lr"]) == (1e-2, 1e-3)


def test_muon_leaves_tables_of_edge_types_and_distances_to_adamw():
    """They are looked up, not multiplied."""
    spec = TokenSpec(num_features=3, num_edge_types=2)
    backbone = Transformer(24, 2, num_heads=3, position=[T5Bias(3), T5Bias(3)])
    m = Model(spec, backbone, Masked())
    of_muon, *rest = Muon(adamw=AdamW(1e-3)).build(m).param_groups
    tables = {
        name for name, _ in m.named_parameters() if "positions." in name or "edge_biases." in name
    }
    assert {m.get_parameter(name).ndim for name in tables} == {2}
    assert len(tables) == 3
    assert not tables & names(of_muon, m)
    assert tables <= set().union(*(names(group, m) for group in rest))
    assert "backbone.blocks.1.attention.qkv_proj.weight" in names(of_muon, m)


@pytest.mark.parametrize(
    ("backbone", "table", "matrix"),
    [
        (
            lambda: GIN(24),
            "convolutions.0.edge_embedding.weight",
            "convolutions.0.mlp.up_proj.weight",
        ),
        (
            lambda: Transformer(24, num_heads=3, block=partial(GPSBlock, max_edge_type=2)),
            "blocks.1.convolution.edge_embedding.weight",
            "blocks.1.attention.qkv_proj.weight",
        ),
        (
            lambda: Transformer(24, num_heads=3, block=partial(PreNormBlock, attention=ADDITIVE)),
            "blocks.0.attention.mechanism.score_weight",
            "blocks.0.attention.qkv_proj.weight",
        ),
    ],
    ids=["GIN", "GPS", "additive attention"],
)
def test_muon_leaves_embedded_edge_types_and_the_vectors_of_additive_attention_to_adamw(
    backbone, table, matrix
):
    m = Model(TokenSpec(vocab_size=11, num_edge_types=3), backbone(), Masked())
    of_muon, *_ = Muon(adamw=AdamW(1e-3)).build(m).param_groups
    assert m.get_parameter(f"backbone.{table}").ndim == 2
    assert f"backbone.{table}" not in names(of_muon, m)
    assert f"backbone.{matrix}" in names(of_muon, m)


def test_what_lies_before_the_first_block_trains_as_the_embedder_does_with_layer_decay():
    backbone = Transformer(24, 2, num_heads=3, input_norm=nn.LayerNorm, position=T5Bias(3))
    m = model(backbone)
    found = {}
    for group in AdamW(0.1, layer_decay=0.5).build(m).param_groups:
        found |= dict.fromkeys(names(group, m), group["lr"])
    assert set(found) == {name for name, _ in m.named_parameters()}
    rates = {
        "head.": 0.1, "backbone.norm.": 0.1, "backbone.blocks.1.": 0.05, "backbone.blocks.0.": 0.025,
        "backbone.input_norm.": 0.0125, "backbone.positions.": 0.0125, "embedder.": 0.0125,
    }  # fmt: skip
    for prefix, rate in rates.items():
        assert {own for name, own in found.items() if name.startswith(prefix)} == {rate}


def test_muon_without_a_matrix_is_refused():
    with pytest.raises(ValueError, match="no matrix"):
        Muon().build(nn.LayerNorm(5))


def test_muon_updates_are_as_large_as_adamws():
    weight = nn.Linear(23, 17, bias=False)
    before = weight.weight.detach().clone()
    optimizer = Muon(1e-2, weight_decay=0.0).build(weight)
    weight(torch.randn(29, 23)).square().sum().backward()
    optimizer.step()
    size = float((weight.weight.detach() - before).square().mean().sqrt())
    assert (
        0.1 * 1e-2 < size < 1e-2
    )  # AdamW's updates have a root mean square of 0.2 to 0.4 of the rate (Liu et al. 2025)


@pytest.mark.parametrize("shape", [(211, 7), (7, 211), (61, 61)])
def test_the_size_of_muons_updates_does_not_depend_on_the_shape_of_a_matrix(shape):
    """0.2 of the rate (Liu et al. 2025, section 2.2), up to the 30 % by which Newton-Schulz is not orthogonal."""
    layer = nn.Linear(*shape, bias=False)
    before = layer.weight.detach().clone()
    optimizer = Muon(1e-2, weight_decay=0.0).build(layer)
    layer(torch.randn(307, shape[0])).square().sum().backward()
    optimizer.step()
    size = float((layer.weight.detach() - before).square().mean().sqrt())
    assert size == pytest.approx(0.2 * 1e-2, rel=0.35)


@pytest.mark.parametrize("shape", [(31, 7), (7, 31), (23, 23)])
def test_muons_steps_are_those_of_torch_to_the_precision_of_its_bfloat16(shape):
    ours, theirs = nn.Linear(*shape, bias=False), nn.Linear(*shape, bias=False)
    theirs.load_state_dict(ours.state_dict())
    before = ours.weight.detach().clone()
    settings = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.3, "ns_steps": 4}
    optimizers = [Muon(**settings).build(ours)]
    optimizers.append(
        torch.optim.Muon(theirs.parameters(), adjust_lr_fn="match_rms_adamw", **settings)
    )
    for step in range(5):
        gradient = torch.randn(before.shape, generator=torch.Generator().manual_seed(step))
        for layer, optimizer in zip((ours, theirs), optimizers):
            layer.weight.grad = gradient.clone()
            optimizer.step()
    assert (ours.weight - theirs.weight).norm() < 0.02 * (theirs.weight - before).norm()


SHAPES = [(7, 31), (31, 7), (23, 23), (7, 31), (23, 23), (5, 11)]


def muons(steps, *, skipped=None, **settings):
    """Matrices and momenta after steps of the loop and of the stacks, both in float32."""
    group = {
        "lr": 0.02,
        "momentum": 0.9,
        "weight_decay": 0.3,
        "nesterov": True,
        "eps": 1e-7,
        "ns_steps": 4,
        **settings,
    }
    group["ns_coefficients"] = (3.4445, -4.775, 2.0315)
    torch.manual_seed(0)
    matrices = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    stacked, momenta = (
        [p.detach().clone() for p in matrices],
        [torch.zeros(shape) for shape in SHAPES],
    )
    loop = muon.Muon(matrices, **group)
    for step in range(steps):
        gradients = [torch.randn(shape) for shape in SHAPES]
        for parameter, gradient in zip(matrices, gradients):
            parameter.grad = gradient.clone()
        found = None if skipped is None else torch.tensor(float(step == skipped))
        if step != skipped:
            loop.step()
        else:
            gradients[2][3, 5] = float("nan")
        muon.batched_step(
            {**group, "lr": torch.tensor(0.02)}, stacked, gradients, momenta, found, torch.float32
        )
    return matrices, stacked, [loop.state[p]["momentum_buffer"] for p in matrices], momenta


@pytest.mark.parametrize(
    "settings", [{}, {"nesterov": False}, {"weight_decay": 0.0, "ns_steps": 5}]
)
def test_muon_over_stacks_of_matrices_makes_the_steps_of_the_loop(settings):
    loop, stacked, *momenta = muons(4, **settings)
    assert_close(list(map(torch.Tensor.detach, loop)), stacked, rtol=1e-6, atol=1e-6)
    assert_close(*momenta, rtol=1e-6, atol=1e-6)


def test_a_step_of_stacked_muon_is_skipped_on_the_device():
    loop, stacked, *momenta = muons(4, skipped=2)
    assert_close(list(map(torch.Tensor.detach, loop)), stacked, rtol=1e-6, atol=1e-6)
    assert_close(*momenta, rtol=1e-6, atol=1e-6)


def test_muon_on_an_accelerator_reads_no_number():
    """Device meta stands for it: it has none, so that reading one raises."""
    matrices = [nn.Parameter(torch.empty(shape, device="meta")) for shape in SHAPES]
    for parameter in matrices:
        parameter.grad = torch.empty_like(parameter)
    optimizer = muon.Muon(matrices)
    optimizer.found_inf = optimizer.param_groups[0]["lr"] = torch.empty((), device="meta")
    optimizer.step()
    assert all(optimizer.state[parameter] for parameter in matrices)


def test_muon_makes_singular_values_alike_in_float32():
    from seqkit.training.muon import orthogonalized

    x = torch.randn(19, 29, generator=torch.Generator().manual_seed(0))
    made = orthogonalized(x, (3.4445, -4.775, 2.0315), 5, 1e-7)
    assert made.dtype == torch.float32
    left, _, right = torch.linalg.svd(x, full_matrices=False)
    diagonal = left.T @ made @ right.T
    values = diagonal.diagonal()
    assert 0.6 < float(values.min()) <= float(values.max()) < 1.3
    torch.testing.assert_close(diagonal, values.diag(), atol=1e-3, rtol=0)


def test_muon_has_the_settings_that_it_was_given():
    muon, rest, _ = (
        Muon(1e-2, momentum=0.7, weight_decay=0.3, ns_steps=3, adamw=AdamW(weight_decay=0.2))
        .build(model())
        .param_groups
    )
    assert (muon["momentum"], muon["weight_decay"], muon["ns_steps"]) == (0.7, 0.3, 3)
    assert rest["weight_decay"] == 0.2


def _train(m, optimizer, scheduler, steps, start=0):
    for step in range(start, start + steps):
        optimizer.zero_grad()
        g = torch.Generator().manual_seed(step)
        loss = sum(
            (p * torch.randn(p.shape, generator=g)).sum() + p.square().sum() for p in m.parameters()
        )
        loss.backward()
        optimizer.step()
        scheduler.step()


def _fresh(m):
    optimizer = Muon(1e-2).build(m)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))


def test_a_combined_optimizer_resumes_exactly():
    straight, early = model(), None
    optimizer, scheduler = _fresh(straight)
    _train(straight, optimizer, scheduler, 3)
    early = copy.deepcopy(straight.state_dict())
    saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    _train(straight, optimizer, scheduler, 3, start=3)

    resumed = model()
    resumed.load_state_dict(early)
    optimizer, scheduler = _fresh(resumed)
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    assert {group["lr"] for group in optimizer.param_groups} == {1e-2 / 4}
    _train(resumed, optimizer, scheduler, 3, start=3)
    for name, p in straight.named_parameters():
        assert torch.equal(p, resumed.get_parameter(name)), name


def test_a_combined_optimizer_equals_its_optimizers_apart():
    together, apart = model(), model()
    apart.load_state_dict(together.state_dict())
    optimizer, scheduler = _fresh(together)
    _train(together, optimizer, scheduler, 2)
    optimizers = Muon(1e-2).build(apart).optimizers
    for step in range(2):
        apart.zero_grad()
        g = torch.Generator().manual_seed(step)
        sum(
            (p * torch.randn(p.shape, generator=g)).sum() + p.square().sum()
            for p in apart.parameters()
        ).backward()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 / (1 + step)
            optimizer.step()
    for name, p in together.named_parameters():
        assert_close(p, apart.get_parameter(name), msg=name)


def test_a_closure_runs_once():
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer, calls = (
        CombinedOptimizer({str(i): torch.optim.SGD([w], lr=0.1) for i, w in enumerate(weights)}),
        [],
    )

    def closure():
        calls.append(1)
        loss = sum(w.sum() for w in weights)
        loss.backward()
        return loss

    assert float(optimizer.step(closure).detach()) == 4.0
    assert len(calls) == 1
    assert [w.tolist() for w in weights] == [pytest.approx([0.9, 0.9])] * 2
    optimizer.zero_grad()
    assert all(w.grad is None for w in weights)


@pytest.mark.parametrize(
    ("schedule", "formula"),
    [
        (
            Cosine(warmup_steps=7, floor=0.2),
            lambda s: 0.2 + 0.8 * (1 + math.cos(math.pi * (s - 7) / (31 - 7))) / 2,
        ),
        (Cosine(floor=0.0), lambda s: (1 + math.cos(math.pi * s / 31)) / 2),
        (WSD(warmup_steps=7), lambda s: 1 if s < 31 - 6.2 else 1 - ((s - 31 + 6.2) / 6.2) ** 0.5),
        (WSD(decay_fraction=1.0), lambda s: 1 - (s / 31) ** 0.5),
        (
            WSD(warmup_steps=7, decay_fraction=0.9, floor=0.2),
            lambda s: 0.2 + 0.8 * (1 - ((s - 7) / 24) ** 0.5),
        ),
        (InverseSqrt(warmup_steps=7), lambda s: 7**0.5 * min((s + 1) ** -0.5, (s + 1) * 7**-1.5)),
        (InverseSqrt(), lambda s: (s + 1) ** -0.5),
        (Constant(), lambda s: 1.0),
        (Constant(warmup_steps=7), lambda s: 1.0),
    ],
)
def test_schedules_equal_their_formulas(schedule, formula):
    for step in range(31):
        warm = (step + 1) / 7 if step < schedule.warmup_steps else formula(step)
        assert schedule.factor(step, 31) == pytest.approx(warm)
    assert schedule.factor(schedule.warmup_steps, 31) == pytest.approx(1.0, rel=0.1)


def test_the_cosine_ends_at_its_floor_and_stays_there():
    for steps in (31, 40):
        assert Cosine(warmup_steps=7, floor=0.2).factor(steps, 31) == pytest.approx(0.2)
    assert Cosine(warmup_steps=7).factor(7, 7) == 1.0  # nothing left after warm-up


def test_the_decay_after_a_stable_part_ends_at_its_floor_and_stays_there():
    for steps in (31, 40):
        assert WSD(warmup_steps=7).factor(steps, 31) == 0
        assert WSD(floor=0.2).factor(steps, 31) == pytest.approx(0.2)
    assert WSD(warmup_steps=7).factor(7, 7) == 1.0  # nothing left after warm-up


def test_a_longer_training_has_the_same_rates_until_the_shorter_one_decays():
    short, long = (scheduled_rates(WSD(warmup_steps=5), steps) for steps in (31, 53))
    assert short[:25] == long[:25]
    assert short[25] < long[25] == 0.5


def test_negative_warm_up_is_refused():
    with pytest.raises(ValueError, match="warmup_steps=-1"):
        Constant(warmup_steps=-1)


@pytest.mark.parametrize(
    ("factory", "settings", "message"),
    [
        (AdamW, {"lr": -1.0}, "learning rate: -1.0"),
        (AdamW, {"weight_decay": math.nan}, "weight_decay value: nan"),
        (AdamW, {"betas": (0.9, 1.0)}, "beta parameter"),
        (Muon, {"momentum": -0.1}, "momentum should be"),
        (Muon, {"adamw": TorchOptimizer(torch.optim.SGD)}, "not seqkit's AdamW"),
        (Muon, {"adamw": AdamW(layer_decay=0.5)}, "has a layer_decay"),
        (Muon, {"adamw": AdamW(base_width=16)}, "base_width, which is Muon's own"),
        (Cosine, {"floor": 2}, "floor=2"),
        (Cosine, {"floor": -0.1}, "floor=-0.1"),
        (Cosine, {"floor": math.nan}, "floor=nan"),
        (WSD, {"floor": 2}, "floor=2"),
        (WSD, {"decay_fraction": 0}, "decay_fraction=0 .* use Constant"),
        (WSD, {"decay_fraction": 1.1}, "decay_fraction=1.1"),
        (WSD, {"decay_fraction": math.nan}, "decay_fraction=nan"),
    ],
)
def test_impossible_settings_are_refused_when_a_factory_is_made(factory, settings, message):
    with pytest.raises(ValueError, match=message):
        factory(**settings)


def gradients(m, step):
    g = torch.Generator().manual_seed(step)
    for p in m.parameters():
        p.grad = torch.randn(p.shape, generator=g)


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        (torch.optim.SGD, {"lr": 0.3, "momentum": 0.7, "nesterov": True}),
        (torch.optim.Adam, {"lr": 0.02, "betas": (0.5, 0.6)}),
        (torch.optim.RMSprop, {}),
        (torch.optim.Adafactor, {"lr": 0.05}),
    ],
)
def test_a_torch_optimizer_is_built_with_its_arguments_over_every_parameter(cls, arguments):
    ours, theirs = model(), model()
    theirs.load_state_dict(ours.state_dict())
    built, right = (
        TorchOptimizer(cls, **arguments).build(ours),
        cls(theirs.parameters(), **arguments),
    )
    assert type(built) is cls
    for step in range(3):
        for m, optimizer in ((ours, built), (theirs, right)):
            gradients(m, step)
            optimizer.step()
    for name, p in theirs.named_parameters():
        assert torch.equal(ours.get_parameter(name), p), name


@pytest.mark.parametrize(
    ("factory", "cls", "arguments", "message"),
    [
        (TorchOptimizer, torch.optim.SGD, {"lr": -1.0}, "-1.0"),
        (TorchOptimizer, torch.optim.SGD, {"beta": 0.9}, "'beta'"),
        (TorchSchedule, lr_scheduler.StepLR, {}, "'step_size'"),
        (TorchSchedule, lr_scheduler.LinearLR, {"start_factor": 2.0}, "Starting"),
    ],
)
def test_impossible_arguments_of_torchs_classes_are_refused_when_the_factory_is_made(
    factory, cls, arguments, message
):
    with pytest.raises((ValueError, TypeError), match=message):
        factory(cls, **arguments)


def learning_rates(factory, schedule):
    """Of every parameter group, in the order of 5 optimizer steps; and the scheduler."""
    m, rates = model(), []
    optimizer = factory.build(m)
    scheduler = schedule.build(optimizer, 5)
    for step in range(5):
        rates.append([group["lr"] for group in optimizer.param_groups])
        gradients(m, step)
        optimizer.step()
        scheduler.step()
    return list(zip(*rates)), scheduler


@pytest.mark.parametrize("factory", [AdamW(0.5), Muon(0.5)], ids=["AdamW", "Muon"])
@pytest.mark.parametrize(
    "schedule", [Cosine(warmup_steps=2, floor=0.2), WSD(), InverseSqrt(warmup_steps=1), Constant()]
)
def test_a_schedule_builds_a_scheduler_of_its_factor(factory, schedule):
    groups, _ = learning_rates(factory, schedule)
    for rates in groups:
        assert rates == pytest.approx([0.5 * schedule.factor(step, 5) for step in range(5)])


@pytest.mark.parametrize("factory", [AdamW(0.5), Muon(0.5)], ids=["AdamW", "Muon"])
@pytest.mark.parametrize(
    ("cls", "arguments", "formula"),
    [
        (lr_scheduler.StepLR, {"step_size": 2, "gamma": 0.1}, lambda s: 0.5 * 0.1 ** (s // 2)),
        (
            lr_scheduler.LinearLR,
            {"start_factor": 0.2, "total_iters": 4},
            lambda s: 0.5 * (0.2 + 0.8 * min(s, 4) / 4),
        ),
        (lr_scheduler.ExponentialLR, {"gamma": 0.9}, lambda s: 0.5 * 0.9**s),
        (
            lr_scheduler.CosineAnnealingLR,
            {"T_max": 5},
            lambda s: 0.25 * (1 + math.cos(math.pi * s / 5)),
        ),
    ],
)
def test_a_torch_scheduler_is_built_with_its_arguments(factory, cls, arguments, formula):
    groups, scheduler = learning_rates(factory, TorchSchedule(cls, **arguments))
    assert type(scheduler) is cls
    for rates in groups:
        assert rates == pytest.approx([formula(step) for step in range(5)])


def test_a_cycle_that_ends_before_the_training_is_refused():
    schedule = TorchSchedule(lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=4)
    with pytest.raises(ValueError, match="total_steps 5"):
        schedule.build(AdamW().build(model()), 5)


@pytest.mark.parametrize(("warmup_steps", "taken"), [(0, 0), (15, 15), (16, 3), (50, 3), (400, 3)])
@pytest.mark.parametrize("schedule", [Cosine, WSD, InverseSqrt, Constant])
def test_warm_up_of_more_than_half_of_the_training_becomes_a_tenth_and_one_warning_says_so(
    schedule, warmup_steps, taken, caplog
):
    rates = scheduled_rates(schedule(warmup_steps=warmup_steps), 31)
    assert rates == scheduled_rates(schedule(warmup_steps=taken), 31)
    is_shorter = taken < warmup_steps
    assert len(caplog.messages) == is_shorter
    for message in caplog.messages:
        assert message.startswith(
            f"schedule: warmup_steps={warmup_steps} is more than half of the 31 steps"
        )
        assert message.endswith(f"takes {taken}")


def test_a_training_of_few_steps_reaches_its_learning_rate_whatever_warm_up_was_asked_for():
    for num_steps in (1, 2, 7, 11, 53):
        for schedule in (Cosine(warmup_steps=50), WSD(warmup_steps=50)):
            assert max(scheduled_rates(schedule, num_steps)) == pytest.approx(0.5)


def scheduled_rates(schedule, num_steps):
    """Learning rate of each step of a training at 0.5."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5)
    scheduler, rates = schedule.build(optimizer, num_steps), []
    for _ in range(num_steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates
