"""Graphs of settings beside the defaults, which test_table.py has, and the comparison of the file with the model."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.errors import UsageError
from seqkit.export.graph import CHECKED, EXAMPLE, WRITERS, OfTensors, _batch, export, names
from seqkit.interfaces import Adjacency, TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.multi_head import MultiHeadAttention, ScaledDotProductAttention
from seqkit.nn.attention.sliding_window import SlidingWindowAttention
from seqkit.nn.attention.top_k import TopKAttention
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.convolution import CausalConvolution
from seqkit.nn.mixers.delta import GatedDeltaNet
from seqkit.nn.mixers.mamba2 import Mamba2Mixer
from seqkit.nn.mixers.mlstm import MLSTM
from seqkit.nn.mlp import GatedMLP
from seqkit.nn.moe import MixtureOfExperts
from seqkit.nn.position.absolute import Learned
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Classify, NextToken
from seqkit.registry import find

DIM = 24
SPECS = {
    "text": TokenSpec(vocab_size=13),
    "sound": TokenSpec(num_features=5),
    "image": TokenSpec(num_features=5, num_axes=2),
    "graph": TokenSpec(num_features=5, num_axes=0, num_edge_types=3),
}


def of(name, causal):
    settings = {} if name == "MeanPool" else {"depth": 1}
    return find("backbone", name).load()(DIM, causal=causal, **settings)


def mixed(mixer, causal, num_heads=3, **settings):
    """A Transformer whose layer is that mixer."""
    return Transformer(DIM, 1, num_heads=num_heads, causal=causal, mixer=partial(mixer, **settings))


def attending(causal, mlp=MLP, depth=1, position=None, num_heads=3, **settings):
    attention = partial(MultiHeadAttention, **settings)
    return Transformer(
        DIM,
        depth,
        num_heads=num_heads,
        causal=causal,
        block=partial(PreNormBlock, attention=attention, mlp=mlp),
        position=position,
    )


SPECIAL = {
    "Rotary": (partial(attending, position=Rotary(), depth=2), "text"),
    "CausalConvolution": (partial(attending, convolution=CausalConvolution), "text"),
    "gate and sinks": (
        partial(
            attending,
            mechanism=partial(ScaledDotProductAttention, sinks="learned"),
            output_gate="headwise",
        ),
        "graph",
    ),
    "window with stride and global tokens": (
        partial(
            attending, mechanism=partial(SlidingWindowAttention, size=3, stride=4, num_global=2)
        ),
        "sound",
    ),
    "more experts of a token": (
        partial(attending, mlp=partial(MixtureOfExperts, num_experts=5, top_k=3, expert=GatedMLP)),
        "sound",
    ),
    "the first expert alone": (
        partial(attending, mlp=partial(MixtureOfExperts, num_experts=2, top_k=1)),
        "text",
    ),
    "heads that share keys": (
        partial(attending, num_heads=6, mechanism=partial(TopKAttention, k=2), num_kv_heads=2),
        "text",
    ),
    "value heads that share keys": (partial(mixed, GatedDeltaNet, num_value_heads=6), "text"),
    "states of groups": (
        partial(mixed, Mamba2Mixer, num_heads=6, num_groups=2, num_states=5),
        "text",
    ),
    "two directions": (partial(mixed, MLSTM), "sound"),
}
"""Builders of models with settings that test_table.py leaves as they are, and the tokens of each."""


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


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECIAL)
def test_a_graph_gives_the_same_at_other_sizes(assert_exported, name):
    assert_exported(model_of(*SPECIAL[name]), ("equal", "equal"))


@pytest.mark.slow
def test_learned_positions_and_token_types_are_exported(assert_exported):
    """Of BERT, whose second table has two rows, with the tokens of RoBERTa, which begin in a later row of the first."""
    objective = Classify()
    objective.fit([0, 1], None)
    position = partial(Learned, sizes=[11, 2], first=2)
    model = Model(
        TokenSpec(vocab_size=13, num_axes=2), attending(causal=False), objective, position=position
    )
    assert_exported(model, ("equal", "equal"))


def classifier(spec, backbone, **settings):
    objective = Classify(**settings)
    objective.fit([0, 1, 2], None)
    return Model(spec, backbone, objective).eval()


PARTS = {
    "cells": TokenSpec(vocab_sizes=(3, 5), num_features=4, number_places=(0, -1, 1)),
    "image": TokenSpec(num_features=5, num_axes=2),
    "graph": SPECS["graph"],
}


def test_several_parts_are_refused_and_the_error_says_what_else_to_do(tmp_path):
    spec = TokenSpec(parts=tuple(PARTS.items()))
    with pytest.raises(UsageError, match=r"joins the parts .*cells, image, graph.*seqkit\.load"):
        export(classifier(spec, attending(causal=False)), tmp_path / "model.pt2", "torch", {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("pool", ["mean", "parts"])
def test_the_inputs_of_a_single_part_give_what_its_joined_tokens_give(name, pool):
    spec = TokenSpec(parts=((name, PARTS[name]),))
    model = classifier(spec, attending(causal=False), pool=pool)
    batch = _batch(model, 3, 7, True)
    part = TokenBatch(**given(model, batch))
    joined = [spec.join([(name, part.example(i))]) for i in range(3)]
    with torch.no_grad():
        assert_close(OfTensors(model)(*batch), model(TokenBatch.collate(joined)))


def given(model, tensors):
    found = dict(zip(names(model.spec), tensors, strict=True))
    if "edge_index" in found:
        found["adjacency"] = Adjacency(found.pop("edge_index"), found.pop("edge_type"))
    return found


def _larger(right, valid):
    return right + 0.01 * right.abs().max()


def _nan(right, valid):
    return right * torch.nan


def _in_the_last_number(fault):
    """The fault in the last real token of the last example alone."""

    def changed(right, valid):
        last = valid[-1].sum() - 1
        changed = right.clone()
        changed[-1, last, -1] = fault(right, valid)[-1, last, -1]
        return changed

    return changed


FAULTS = {
    "larger": _larger,
    "NaN": _nan,
    "infinite": lambda right, valid: right / 0.0,
    "one number": _in_the_last_number(_larger),
    "one NaN": _in_the_last_number(_nan),
    "zeros": lambda right, valid: right * 0.0,
    "a token less": lambda right, valid: right[:, 1:],
    "an example more": lambda right, valid: torch.cat([right, right[:1]]),
}
PLACES = {
    "everywhere": lambda b, n, is_padded: True,
    "where there is padding": lambda b, n, is_padded: is_padded,
    "where there is none": lambda b, n, is_padded: not is_padded,
    "one token": lambda b, n, is_padded: n == 1,
    "one example": lambda b, n, is_padded: b == 1,
    "many examples": lambda b, n, is_padded: b > EXAMPLE[0],
    "longer than the example": lambda b, n, is_padded: n > EXAMPLE[1],
    "shorter than the example": lambda b, n, is_padded: n < EXAMPLE[1],
    "longer than a chunk": lambda b, n, is_padded: n > 64,
}


@pytest.fixture
def export_with(tmp_path, monkeypatch):
    """Exports a model to a file that computes something else: what `change` makes of its outputs."""
    monkeypatch.setattr(torch.export, "export", lambda function, *_, **__: function)

    def export_with(change):
        def write(function, out, *_):
            out.write_bytes(b"a graph")
            return lambda *given: change(function(*given), given[2])

        monkeypatch.setitem(WRITERS, "torch", write)
        model = Model(SPECS["text"], of("GRU", causal=True), NextToken())
        return export(model, tmp_path / "m.pt2", "torch", {})

    return export_with


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_gives_other_numbers_is_refused_and_not_written(
    tmp_path, export_with, fault, place
):
    def change(right, valid):
        b, n = valid.shape
        is_there = PLACES[place](b, n, not bool(valid.all()))
        return FAULTS[fault](right, valid) if is_there else right

    (tmp_path / "m.pt2").write_bytes(b"an earlier file")
    with pytest.raises(UsageError, match=r"other numbers|the file gives \["):
        export_with(change)
    assert [(x.name, x.read_bytes()) for x in tmp_path.iterdir()] == [("m.pt2", b"an earlier file")]


@pytest.mark.parametrize(
    "change",
    [
        lambda right, valid: right,
        lambda right, valid: right * (1 + 1e-6),
        lambda right, valid: right.masked_fill(~valid[..., None], torch.nan),
    ],
    ids=["equal", "rounded", "NaN where padded"],
)
def test_a_file_that_gives_the_same_is_written(tmp_path, export_with, change):
    assert export_with(change) <= 1e-5
    assert (tmp_path / "m.pt2").read_bytes() == b"a graph"


def test_the_batches_have_every_shape_that_a_user_may_give():
    assert len(CHECKED) == 7
    assert EXAMPLE not in CHECKED
    for holds in PLACES.values():
        assert any(holds(*sizes) for sizes in CHECKED)
