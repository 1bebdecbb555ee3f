"""Rates that transfer over width: which matrices are scaled, and that activations change as much at each width."""

from functools import partial

import pytest
import torch
from torch import nn

from seqkit.backbones import GIN, GRU, LSTM, S4D, TCN, Mamba, MeanPool, Transformer
from seqkit.errors import UsageError
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.mixture import Mixture
from seqkit.model import Model
from seqkit.nn.attention.linformer import LinformerAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.position.bias import T5Bias
from seqkit.objectives import Masked, NextToken
from seqkit.training.optim import AdamW, Muon
from seqkit.training.widths import input_widths

BACKBONES = {
    "Transformer": lambda dim: Transformer(dim, 2, num_heads=4, causal=True),
    "GRU": lambda dim: GRU(dim, 2, causal=True),
    "LSTM": lambda dim: LSTM(dim, 2, causal=True),
    "Mamba": lambda dim: Mamba(dim, 2, causal=True),
    "S4D": lambda dim: S4D(dim, 2, causal=True),
    "TCN": lambda dim: TCN(dim, 2, causal=True),
}
LINFORMER = partial(
    MultiHeadAttention, mechanism=partial(LinformerAttention, max_tokens=13, rank=3)
)
EXPERTS = partial(MixtureOfExperts, num_experts=3)
BIDIRECTIONAL = {
    "Linformer": lambda dim: Transformer(dim, 2, block=partial(PreNormBlock, attention=LINFORMER)),
    "T5 bias": lambda dim: Transformer(dim, 2, position=T5Bias(8)),
    "experts": lambda dim: Transformer(dim, 2, block=partial(PreNormBlock, mlp=EXPERTS)),
    "GIN": lambda dim: GIN(dim, 2),
    "MeanPool": lambda dim: MeanPool(dim, 2),
    "Mamba both ways": lambda dim: Mamba(dim, 2),
}
VOCABULARY = 11


def model(backbone, **settings):
    objective = NextToken(**settings) if backbone.causal else Masked(**settings)
    return Model(
        TokenSpec(vocab_size=VOCABULARY, num_edge_types=edges(backbone)), backbone, objective
    )


def edges(backbone):
    return 1 if isinstance(backbone, GIN) else 0


@pytest.mark.parametrize("name", BACKBONES | BIDIRECTIONAL)
def test_matrices_are_scaled_where_the_number_of_their_inputs_grows_with_the_width(name):
    """The witness builds the model at two widths and compares shapes."""
    make = (BACKBONES | BIDIRECTIONAL)[name]
    narrow = model(make(32))
    wide = model(make(64))
    found = {name for name, p in wide.named_parameters() if p in input_widths(wide)}
    grows = set()
    for name, p in wide.named_parameters():
        if p.ndim == 2 and p.shape[1] == 2 * narrow.get_parameter(name).shape[1]:
            grows.add(name)
    grows.discard("embedder.content.weight")  # a table's rows are looked up
    assert found == grows
    assert "head.linear.weight" in found
    assert len(found) > 2


def rates(optimizer, m):
    by_parameter = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    groups = {name: by_parameter[id(p)] for name, p in m.named_parameters()}
    return {name: (group["lr"], group["weight_decay"]) for name, group in groups.items()}


def test_scaled_matrices_have_a_smaller_rate_and_decay_as_much_a_step():
    m = model(Transformer(64, 2, causal=True))
    found = rates(AdamW(0.5, weight_decay=0.2, base_width=16).build(m), m)
    assert found["backbone.blocks.1.mlp.down_proj.weight"] == (0.125, 0.8)
    assert found["head.linear.weight"] == (0.125, 0.8)
    assert found["embedder.content.weight"] == (0.5, 0.2)
    assert found["backbone.blocks.1.mlp.down_proj.bias"] == (0.5, 0.0)


def test_muon_scales_its_matrices_by_the_root_and_the_head_as_adamw_does():
    m = model(Transformer(64, 2, causal=True))
    factory = Muon(0.5, weight_decay=0.2, adamw=AdamW(0.25, weight_decay=0.1), base_width=16)
    found = rates(factory.build(m), m)
    assert found["backbone.blocks.1.mlp.down_proj.weight"] == (0.25, 0.4)
    assert found["head.linear.weight"] == (0.0625, 0.4)
    assert found["embedder.content.weight"] == (0.25, 0.1)
    assert found["backbone.blocks.1.mlp.down_proj.bias"] == (0.25, 0.0)


@pytest.mark.parametrize("kind", [AdamW, Muon])
def test_nothing_is_scaled_at_the_base_width(kind):
    m = model(Transformer(64, 2, causal=True))
    factories = [kind(0.5), kind(0.5, base_width=64)]
    plain, based = (rates(factory.build(m), m) for factory in factories)
    assert plain == based


def test_layer_decay_and_base_width_multiply():
    m = model(Transformer(64, 2, causal=True))
    found = rates(AdamW(0.5, layer_decay=0.5, base_width=16).build(m), m)
    assert found["head.linear.weight"][0] == 0.125
    assert found["backbone.blocks.1.mlp.up_proj.weight"][0] == 0.0625
    assert found["backbone.blocks.0.mlp.up_proj.bias"][0] == 0.125


def test_the_heads_of_all_tasks_of_a_mixture_are_scaled():
    backbone = Transformer(64, 2, causal=True)
    mixture = Mixture(backbone, {"one": model(backbone), "two": model(backbone)})
    found = rates(AdamW(0.5, base_width=16).build(mixture), mixture)
    scaled = {name for name, (rate, _) in found.items() if rate == 0.125}
    assert {"tasks.one.head.linear.weight", "tasks.two.head.linear.weight"} <= scaled
    assert "tasks.two.embedder.content.weight" not in scaled


def test_a_tied_head_and_a_model_without_a_backbone_are_refused():
    with pytest.raises(UsageError, match=r"model\.objective\.tied=false"):
        AdamW(base_width=16).build(model(Transformer(64, 2, causal=True), tied=True))
    with pytest.raises(UsageError, match="leave it out"):
        AdamW(base_width=16).build(nn.Linear(3, 5))
    for kind in (AdamW, Muon):
        with pytest.raises(ValueError, match="base_width=0"):
            kind(base_width=0)


GROWING = ("Transformer", "Mamba")
"""Backbones whose last block changes more than twice as much at 16 times the width, if no rate is scaled."""


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKBONES)
def test_activations_change_as_much_at_each_width_and_more_in_wide_models_without(name):
    """The coordinate check of Yang et al. (2022)."""
    make = BACKBONES[name]
    plain = AdamW(2**-8)
    based = AdamW(2**-8, base_width=16)
    narrow = change(make, 16, based)
    growth = change(make, 256, based) / narrow
    growth_without = change(make, 256, plain) / narrow
    assert 0.5 < growth < 2
    assert growth < growth_without
    assert growth_without > 2 or name not in GROWING


@pytest.mark.slow
def test_activations_under_muon_change_more_alike_with_its_root():
    make = BACKBONES["Transformer"]
    plain, based = Muon(2**-8), Muon(2**-8, base_width=16)
    narrow = change(make, 16, based)
    growth = change(make, 256, based) / narrow
    assert 1 < growth < 1.5 < change(make, 256, plain) / narrow


def change(make, width, factory):
    """Root mean square of the change of the last block's outputs over 4 steps."""
    torch.manual_seed(3)
    m = model(make(width))
    optimizer = factory.build(m)
    content = torch.randint(VOCABULARY, (17, 24), generator=torch.Generator().manual_seed(5))
    x = content[:, :-1]
    positions = torch.arange(23.0)[None, :, None].expand(17, -1, -1)
    batch = TokenBatch(content=x, positions=positions, valid=torch.ones_like(x, dtype=torch.bool))
    seen = []
    m.backbone.blocks[-1].register_forward_hook(
        lambda module, inputs, output: seen.append(
            output[0] if isinstance(output, tuple) else output
        )
    )
    for _ in range(4):
        loss = nn.functional.cross_entropy(m(batch).flatten(0, 1), content[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    m(batch)
    return float((seen[-1] - seen[0]).detach().square().mean().sqrt())
