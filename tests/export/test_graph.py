"""Every backbone as a graph: the same numbers at other sizes than the example's, or a refusal by name."""

import importlib.util
from functools import cache, partial

import pytest
import torch

from seqkit.backbones import GPSBlock, Transformer
from seqkit.errors import UsageError
from seqkit.export.graph import TOLERANCE, WRITERS, export
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.edge import EdgeAttention
from seqkit.nn.attention.linear import LinearAttention
from seqkit.nn.attention.linformer import LinformerAttention
from seqkit.nn.attention.lsh import LSHAttention
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.attention.sliding_window import SlidingWindowAttention
from seqkit.nn.attention.top_k import TopKAttention
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.convolution import CausalConvolution
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.position.absolute import Learned
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Classify, NextToken
from seqkit.registry import components, find

DIM = 24
SPECS = {
    "text": TokenSpec(vocab_size=13),
    "sound": TokenSpec(num_features=5),
    "image": TokenSpec(num_features=5, num_axes=2),
    "graph": TokenSpec(num_features=5, num_axes=0, num_edge_types=3),
}
TORCH, ONNX, BOTH = ("torch",), ("onnx",), ("torch", "onnx")


def of(name, causal):
    settings = {} if name == "MeanPool" else {"depth": 1}
    return find("backbone", name).load()(DIM, causal=causal, **settings)


def mixed(name, causal):
    """A Transformer whose layer is that mixer."""
    return Transformer(DIM, 1, num_heads=3, causal=causal, mixer=find("mixer", name).load())


def along_edges(name, causal):
    return find("backbone", name).load()(DIM, depth=1)


def attending(causal, mechanism=None, convolution=None, output_gate=None, mlp=MLP, depth=1, **more):
    given = {"mechanism": mechanism, "convolution": convolution, "output_gate": output_gate}
    attention = partial(MultiHeadAttention, **{name: part for name, part in given.items() if part})
    return Transformer(
        DIM,
        depth,
        num_heads=3,
        causal=causal,
        block=partial(PreNormBlock, attention=attention, mlp=mlp),
        **more,
    )


EQUAL = {
    "Transformer": (attending, {"text": BOTH, "graph": BOTH}),
    "Rotary": (lambda causal: attending(causal, position=Rotary(), depth=2), {"text": ONNX}),
    "SlidingWindow": (
        partial(attending, mechanism=partial(SlidingWindowAttention, size=3)),
        {"sound": ONNX},
    ),
    "CausalConvolution": (partial(attending, convolution=CausalConvolution), {"text": BOTH}),
    "gate and sinks": (
        partial(
            attending,
            mechanism=partial(ScaledDotProductAttention, sinks="learned"),
            output_gate="headwise",
        ),
        {"text": BOTH, "graph": BOTH},
    ),
    "LSTM": (partial(of, "LSTM"), {"sound": ONNX}),
    "GRU": (partial(of, "GRU"), {"text": TORCH}),
    "mixer": (partial(mixed, "GRU"), {"text": TORCH, "sound": ONNX}),
    **{name: (partial(of, name), {"sound": TORCH}) for name in ("TCN", "Reversible")},
    "LinearAttention": (partial(attending, mechanism=LinearAttention), {"sound": TORCH}),
    "MeanPool": (partial(of, "MeanPool"), {"text": TORCH}),
    "GIN": (partial(along_edges, "GIN"), {"graph": ONNX}),
    "GPSBlock": (
        partial(Transformer, DIM, 1, num_heads=3, block=partial(GPSBlock, max_edge_type=2)),
        {"graph": BOTH},
    ),
    "APPNP": (partial(along_edges, "APPNP"), {"graph": TORCH}),  # which has GCN's steps
}
"""Builders, and the tokens with which each is exported, to which formats. Those of a text are causal, all others
bidirectional. Rotary has two blocks, which a graph repeats; the others have one."""
FAST = {"MeanPool"}
"""The cheapest to export, one of them to ONNX; the others are slow."""
MIXERS = sorted(set(components("mixer")) - {"MultiHeadAttention", "LSTM", "GRU", "RNN"})
REFUSED = {
    "TopK": (partial(attending, mechanism=partial(TopKAttention, k=9)), "text"),
    **{name: (partial(of, name), "text") for name in ("S4D", "Mamba")},
    **{f"mixer {name}": (partial(mixed, name), "text") for name in MIXERS},
    "MixtureOfExperts": (partial(attending, mlp=partial(MixtureOfExperts, num_experts=3)), "text"),
    "Edge": (partial(attending, mechanism=EdgeAttention), "graph"),
    "LSH": (partial(attending, mechanism=partial(LSHAttention, bucket_size=4)), "text"),
    "Linformer": (
        partial(attending, mechanism=partial(LinformerAttention, max_tokens=16, rank=5)),
        "image",
    ),
}
HAS_ONNX = all(importlib.util.find_spec(each) for each in ("onnx", "onnxscript", "onnxruntime"))


@pytest.fixture(scope="module", autouse=True)
def _one_table_of_operations():
    """torch makes its table of ONNX operations anew for each export, in a second; here it is made once."""
    with pytest.MonkeyPatch.context() as patch:
        if HAS_ONNX:
            from torch.onnx._internal.exporter._registration import ONNXRegistry

            patch.setattr(
                ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib))
            )
        yield


def model_of(backbone, kind):
    """A Transformer has weights that are so large that positions matter."""
    torch.manual_seed(0)
    if kind == "text":
        model = Model(SPECS[kind], backbone(causal=True), NextToken())
    else:
        objective = Classify()
        objective.fit([0, 1, 2], None)
        model = Model(SPECS[kind], backbone(causal=False), objective)
    if isinstance(model.backbone, Transformer):
        with torch.no_grad():
            for p in model.parameters():
                p += 0.3 * torch.randn_like(p)
    return model


@pytest.fixture
def export_each(tmp_path, monkeypatch):
    """Exports a model to each format from one trace, which takes half of the time of an export."""
    trace, traced = torch.export.export, []

    def once(*given, **settings):
        if not traced:
            traced.append(trace(*given, **settings))
        return traced[0]

    def export_each(model, formats):
        monkeypatch.setattr(torch.export, "export", once)
        for to in formats:
            if to == "onnx" and not HAS_ONNX:
                pytest.skip("no onnxruntime")
            out = tmp_path / ("m.pt2" if to == "torch" else "m.onnx")
            assert export(model, out, to, {"seqkit.json": "{}"}) <= TOLERANCE
            assert out.stat().st_size > 1000
        assert len(traced) == 1

    return export_each


def slow_but(fast, name, *given):
    return pytest.param(name, *given, marks=() if name in fast else pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "kind"),
    [slow_but(FAST, name, kind) for name, (_, kinds) in EQUAL.items() for kind in kinds],
)
def test_a_graph_gives_the_same_at_other_sizes(export_each, name, kind):
    backbone, formats = EQUAL[name]
    export_each(model_of(backbone, kind), formats[kind])


@pytest.mark.slow
def test_learned_positions_and_token_types_are_exported(export_each):
    """Of BERT, whose second table has two rows, with the tokens of RoBERTa, which begin in a later row of the first."""
    objective = Classify()
    objective.fit([0, 1], None)
    position = partial(Learned, sizes=[11, 2], first=2)
    model = Model(
        TokenSpec(vocab_size=13, num_axes=2), attending(causal=False), objective, position=position
    )
    export_each(model, TORCH)


@pytest.mark.slow
@pytest.mark.parametrize("name", [slow_but({"LSH", "Mamba"}, name) for name in REFUSED])
def test_a_backbone_whose_graph_is_of_some_lengths_alone_is_refused(tmp_path, name):
    model = model_of(*REFUSED[name])
    with pytest.raises(
        UsageError, match=f"{type(model.backbone).__name__} cannot be exported"
    ) as refused:
        export(model, tmp_path / "m.pt2", "torch", {})
    assert "\n" not in str(refused.value)


def test_joined_tokens_are_refused_also_of_one_part_and_the_error_says_what_else_to_do(tmp_path):
    spec = TokenSpec(parts=(("cells", TokenSpec(vocab_sizes=(3, 5), num_features=2)),))
    objective = Classify()
    objective.fit([0, 1], None)
    model = Model(spec, attending(causal=False), objective)
    with pytest.raises(UsageError, match="not even with one part"):
        export(model, tmp_path / "model.pt2", "torch", {})
    assert not list(tmp_path.iterdir())


def _wrong(function, got, valid):
    return got + 0.1


def _not_a_number_beside_padding(function, got, valid):
    return got if valid.all() else got.masked_fill(~valid.all(dim=1, keepdim=True), torch.nan)


@pytest.mark.parametrize("fault", [_wrong, _not_a_number_beside_padding])
def test_a_graph_that_gives_other_numbers_is_refused(tmp_path, monkeypatch, fault):
    """NaN is a difference, also where it is not the first of all."""

    def write(program, *_):
        function = program.module()
        return lambda *given: fault(function, function(*given), given[2])

    monkeypatch.setitem(WRITERS, "torch", write)
    with pytest.raises(UsageError, match="other numbers"):
        export(model_of(EQUAL["MeanPool"][0], "sound"), tmp_path / "m.pt2", "torch", {})
