"""Models of every registered component that a graph may hold, over every kind of tokens."""

import inspect
from functools import partial

import torch
from laws.combinations import SETTINGS

from seqkit.backbones import (
    GRU,
    AttentionDecoder,
    EncoderDecoder,
    RNNDecoder,
    Towers,
    Transformer,
)
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.position.bias import T5Bias
from seqkit.nn.position.disentangled import DisentangledPosition
from seqkit.objectives import Classify, Contrastive, NextToken, Seq2Seq
from seqkit.registry import BUILT_IN, find
from seqkit.tokenizers import Bytes

DIM, HEADS = 24, 3
CELLS = TokenSpec(vocab_sizes=(3, 5), num_features=4, number_places=(0, -1, 1))
SPECS = {
    "text": TokenSpec(vocab_size=13),
    "sound": TokenSpec(num_features=5),
    "image": TokenSpec(num_features=5, num_axes=2),
    "graph": TokenSpec(num_features=5, num_axes=0, num_edge_types=3),
    "part": TokenSpec(parts=(("cells", CELLS),)),
    "parts": TokenSpec(parts=(("cells", CELLS), ("text", TokenSpec(vocab_size=13)))),
}
"""Shapes of tokens: `part` and `parts` are joined tokens, of one part and of two."""


def transformer(causal, **settings):
    return Transformer(DIM, 1, num_heads=HEADS, causal=causal, **settings)


def seq2seq(decoder):
    return EncoderDecoder(GRU(DIM, 1), decoder)


BACKBONES = {
    "Transformer": transformer,
    "Towers": lambda causal: Towers({"cells": GRU(DIM, 1), "text": GRU(DIM, 1)}),
    "RNNDecoder": lambda causal: seq2seq(RNNDecoder(DIM)),
    "EncoderDecoder": lambda causal: seq2seq(RNNDecoder(DIM)),
    "AttentionDecoder": lambda causal: seq2seq(AttentionDecoder(GRU(DIM, 1, causal=True))),
}
"""Builders of backbones that take more than a width and a depth."""


def backbone(cls, causal):
    if cls.__name__ in BACKBONES:
        return BACKBONES[cls.__name__](causal)
    known = inspect.signature(cls).parameters
    wanted = {"depth": 1, "causal": causal}
    return cls(DIM, **{key: value for key, value in wanted.items() if key in known})


def attending(mechanism):
    return partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=mechanism))


BLOCKS = {
    "mechanism": lambda cls: attending(partial(cls, **SETTINGS.get(cls.__name__, {}))),
    "mlp": lambda cls: partial(
        PreNormBlock,
        mlp=partial(cls, num_experts=3) if cls.__name__ == "MixtureOfExperts" else cls,
    ),
    "block": lambda cls: partial(cls, max_edge_type=2) if cls.__name__ == "GPSBlock" else cls,
}
"""Blocks of a Transformer with a component of that kind."""


POSITIONS = {
    "Learned": lambda axes: {"sizes": [11] * axes},
    "ConvolutionalPosition": lambda axes: {"kernel_size": 5, "num_groups": 3},
    "SinusoidalConcat": lambda axes: {"channels": DIM // 2},
}
"""Arguments of positions that need them, for tokens of so many axes."""


def position(cls, axes):
    return partial(cls, **POSITIONS.get(cls.__name__, lambda axes: {})(axes))


def relative_position(cls):
    if cls is T5Bias:
        return T5Bias(HEADS, num_buckets=8, max_distance=9)
    return cls(DIM, num_buckets=8, max_distance=9) if cls is DisentangledPosition else cls()


KINDS = ("backbone", "mixer", "mechanism", "mlp", "block", "position", "relative_position")
"""Kinds of components that decide whether a model can be exported."""


def names(kind):
    """Names of seqkit's own; other tests register some, too."""
    return sorted(component.name for component in BUILT_IN[kind])


def model(kind, name, tokens):
    """A model with that component; its weights are so large that everything matters. Raises ValueError if it cannot be.

    A text goes from left to right where it can, all else both ways.
    """
    cls = find(kind, name).load()
    if tokens != "text":
        return built(kind, cls, SPECS[tokens], causal=False)
    try:
        return built(kind, cls, SPECS[tokens], causal=True)
    except ValueError:
        return built(kind, cls, SPECS[tokens], causal=False)


def built(kind, cls, spec, causal):
    settings = {}
    if kind == "position":
        settings["position"] = position(cls, spec.num_axes)
    torch.manual_seed(0)
    if kind == "backbone":
        made = backbone(cls, causal)
    elif kind == "mixer":
        made = transformer(causal, mixer=cls)
    elif kind == "relative_position":
        made = transformer(causal, position=relative_position(cls))
    elif kind in BLOCKS:
        made = transformer(causal, block=BLOCKS[kind](cls))
    else:
        made = transformer(causal)
    if made.is_encoder_decoder:
        objective = Seq2Seq(Bytes())
    elif isinstance(made, Towers):
        objective = Contrastive()
    elif causal:
        objective = NextToken()
    else:
        objective = Classify(pool="parts" if spec.parts else "mean")
        objective.fit([0, 1, 2], None)
    found = Model(spec, made, objective, **settings)
    with torch.no_grad():
        for p in found.parameters():
            p += 0.3 * torch.randn_like(p)
    return found


def kinds_of_tokens(kind, name):
    """Kinds of tokens that a model with that component takes."""
    found = []
    for tokens in SPECS:
        try:
            model(kind, name, tokens)
        except ValueError:
            continue
        found.append(tokens)
    return found
