"""A batch whose layers get only its real tokens has the outputs and gradients of the padded batch."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.backbones import transformer as module
from seqkit.interfaces import Adjacency, Embedded
from seqkit.interfaces.batch import Padding
from seqkit.nn.attention.additive import AdditiveAttention
from seqkit.nn.attention.edge import EdgeAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.block import MLP, ParallelBlock, PostNormBlock, PreNormBlock, Residual
from seqkit.nn.convolution import CausalConvolution
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.packing import is_worth_packing, packing_of
from seqkit.nn.position.bias import ALiBi
from seqkit.nn.position.rotary import Rotary

D, LENGTHS = 24, (5, 11, 2)
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def embedded(dtype=torch.float64, device="cpu", d=D, lengths=LENGTHS, **fields):
    n, b = max(lengths), len(lengths)
    valid = (torch.arange(n) < torch.tensor(lengths)[:, None]).to(device)
    hidden = (
        torch.randn(b, n, d, dtype=dtype, device=device)
        .masked_fill(~valid[..., None], 0.0)
        .requires_grad_()
    )
    positions = torch.arange(float(n), device=device).expand(b, n)[..., None]
    padding = Padding.of(valid.cpu())
    return Embedded(hidden, positions, valid, **fields).know(Padding(True, padding.most_real))


def attention(**settings):
    return partial(PreNormBlock, attention=partial(MultiHeadAttention, **settings))


def edges():
    pairs = [(0, 1), (1, 0), (11, 15), (15, 11), (22, 23)]
    return Adjacency(torch.tensor(pairs).T.contiguous(), torch.tensor([1, 1, 2, 2, 1]))


BLOCKS = {
    "pre-norm": PreNormBlock,
    "post-norm": PostNormBlock,
    "parallel": partial(ParallelBlock, shared_norm=True),
    "experts": partial(
        PreNormBlock, mlp=partial(MixtureOfExperts, expert=MLP, num_experts=3, top_k=2)
    ),
    "additive": attention(mechanism=AdditiveAttention),
    "edges": attention(mechanism=EdgeAttention),
    "grouped": attention(num_kv_heads=2, qk_norm=nn.RMSNorm),
    "convolution": attention(convolution=CausalConvolution),
    "gate": attention(output_gate="elementwise"),
    "gate of heads and sinks": attention(
        output_gate="headwise", mechanism=partial(ScaledDotProductAttention, sinks="learned")
    ),
    "cross": partial(PreNormBlock, cross_attention=True),
}


@pytest.fixture
def rows(monkeypatch):
    """Shapes of what every MLP gets; packing is worth it for any padding."""
    monkeypatch.setattr(module, "is_worth_packing", lambda x: x.padding.most_real < x.valid.numel())
    shapes = []
    forward = MLP.forward
    monkeypatch.setattr(
        MLP, "forward", lambda self, x: (shapes.append(x.shape), forward(self, x))[1]
    )
    return shapes


def results(model, x):
    hidden = model(x)
    inputs = [x.hidden, *(p for p in model.parameters() if p.requires_grad)]
    chosen = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1)).to(hidden)
    return hidden, torch.autograd.grad((hidden * chosen).sum(), inputs, allow_unused=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", BLOCKS)
def test_outputs_and_gradients_are_those_of_the_padded_batch(name, causal, rows, monkeypatch):
    if name == "convolution" and not causal:
        pytest.skip("a causal convolution")
    fields = {"adjacency": edges()} if name == "edges" else {}
    if name == "cross":
        fields["source"] = embedded(lengths=(3, 1, 4))
    position = None if name in ("additive", "edges") else Rotary()
    model = Transformer(
        D, 2, num_heads=4, causal=causal, block=BLOCKS[name], position=position
    ).double()
    x = embedded(**fields)
    packed = results(model, x)
    # 18 tokens are real, of 33
    assert name == "experts" or {shape[:2] for shape in rows} == {(1, 24)}
    monkeypatch.setattr(module, "is_worth_packing", lambda x: False)
    assert_close(packed, results(model, x))
    assert name == "experts" or rows[-1] == (3, 11, D)


@pytest.mark.parametrize("field", ["segments", "reach", "bias", "edge_bias"])
def test_so_are_those_with_other_masks_and_biases(field, rows, monkeypatch):
    fields = {}
    if field == "segments":
        fields["segments"] = (torch.arange(11) > 3).long().expand(3, 11)
    if field == "reach":
        fields["reach"] = torch.arange(11).clamp(min=2).expand(3, 11)
    if field == "edge_bias":
        fields["adjacency"] = edges()
    causal = {"reach": None, "edge_bias": False}.get(field, True)
    position = ALiBi() if field == "bias" else None
    model = Transformer(D, 2, num_heads=4, causal=causal, position=position)
    if field == "edge_bias":
        model.add_edge_bias(2)
        nn.init.normal_(model.edge_biases["4"].weight)
    model, x = model.double(), embedded(**fields)
    packed = results(model, x)
    assert rows[0] == (1, 24, D)
    monkeypatch.setattr(module, "is_worth_packing", lambda x: False)
    assert_close(packed, results(model, x))


def test_layers_with_low_rank_changes_get_the_row(rows):
    peft = pytest.importorskip("peft")
    model = Transformer(D, 2, num_heads=4, block=attention(output_gate="elementwise")).double()
    config = peft.LoraConfig(
        r=2, target_modules=["qkv_proj", "gate_proj", "up_proj"], init_lora_weights=False
    )
    peft.inject_adapter_in_model(config, model)
    model.double()(embedded())
    assert rows == [(1, 24, D)] * 2


def test_layers_with_sharded_weights_get_the_row(rows):
    """`fully_shard` gives a module a class of its own; that takes a group of processes."""
    model = Transformer(D, 2, num_heads=4).double()
    for block in model.blocks:
        block.__class__ = type("FSDPPreNormBlock", (FSDPModule, PreNormBlock), {})
    model(embedded())
    assert rows == [(1, 24, D)] * 2


class MixesTokens(nn.Linear):
    def forward(self, x):
        return super().forward(x + x.mean(dim=1, keepdim=True))


def with_gate(block, gate):
    block.attention.gate_proj = gate
    return block


@pytest.mark.parametrize(
    "block",
    [
        partial(PreNormBlock, residual=partial(Residual, drop_path=0.1)),
        partial(PreNormBlock, mlp=lambda dim: MixesTokens(dim, dim)),
        partial(PreNormBlock, norm=lambda dim: MixesTokens(dim, dim)),
        lambda dim, heads: with_gate(PreNormBlock(dim, heads), MixesTokens(dim, dim)),
    ],
)
def test_layers_that_mix_tokens_or_examples_get_the_padded_batch(block, rows):
    seen = []
    model = Transformer(D, 2, num_heads=4, block=block).double()
    for one in model.blocks:
        one.register_forward_pre_hook(lambda _module, args: seen.append(args[0].shape))
    model(embedded())
    assert seen == [(3, 11, D)] * 2


def test_a_batch_that_nothing_is_known_of_stays_padded(rows):
    x = embedded()
    model = Transformer(D, 1, num_heads=4).double()
    model(x.replace(valid=x.valid.clone()))
    assert rows == [(3, 11, D)]


def test_on_a_cpu_it_is_not_worth_it():
    assert not is_worth_packing(embedded(lengths=(1, 3000)))


def test_a_packed_row_has_each_token_once():
    x = embedded()
    packing = packing_of(x)
    assert len(packing.order.unique()) == len(packing.order) == 24
    assert_close(packing.pad(packing.pack(x.hidden)), x.hidden)


def test_it_reads_no_value_of_the_batch(rows):
    x = embedded()
    valid = x.valid.to("meta")
    x = x.replace(
        hidden=x.hidden.to("meta"),
        positions=x.positions.to("meta"),
        valid=valid,
    ).know(Padding(True, 24))
    assert Transformer(D, 2, num_heads=4, causal=True).double().to("meta")(x).shape == (3, 11, D)
    assert rows[0] == (1, 24, D)


@pytest.mark.slow
def test_batches_of_all_sizes_are_one_compiled_graph(monkeypatch):
    monkeypatch.setattr(module, "is_worth_packing", lambda x: x.padding.most_real < x.valid.numel())
    model = Transformer(D, 2, num_heads=4).double()
    calls = []

    def backend(graph, _inputs):
        calls.append(graph)
        return graph.forward

    compiled = torch.compile(model, fullgraph=True, backend=backend, dynamic=True)
    for lengths in ((5, 11, 2), (12, 3, 6, 5), (30, 20, 25, 7, 8)):
        x = embedded(lengths=lengths)
        assert_close(compiled(x), model(x))
    assert len(calls) == 1


# ── on a GPU ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@CUDA
@pytest.mark.parametrize("position", [None, Rotary()])
@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_in_a_row_is_attention_of_the_padded_batch(
    causal, position, rows, monkeypatch
):
    lengths = (65, 300, 2, 129)
    model = Transformer(64, 2, num_heads=4, causal=causal, position=position).cuda()
    exact = Transformer(64, 2, num_heads=4, causal=causal, position=position).cuda().double()
    exact.load_state_dict(model.state_dict())
    x = embedded(torch.float32, "cuda", 64, lengths)
    attended = []
    monkeypatch.setattr(
        MultiHeadAttention, "_forward_in_row", _noting(MultiHeadAttention._forward_in_row, attended)
    )
    with torch.autocast("cuda", torch.bfloat16):
        packed = results(model, x)
    assert len(attended) == 2
    assert rows[0][0] == 1
    monkeypatch.setattr(module, "is_worth_packing", lambda x: False)
    with torch.autocast("cuda", torch.bfloat16):
        padded = results(model, x)
    x = x.replace(hidden=x.hidden.detach().double().requires_grad_())
    right = results(exact, x)
    for one, other, true in zip(
        (packed[0], *packed[1]), (padded[0], *padded[1]), (right[0], *right[1])
    ):
        scale = float(true.norm())
        assert one.isfinite().all()
        assert float((one - true).norm()) < 1.5 * float((other - true).norm()) + 1e-6 * scale
        assert float((one - true).norm()) < 0.02 * scale


def _noting(method, calls):
    def noting(self, *args):
        calls.append(self)
        return method(self, *args)

    return noting
