"""Mixers in a recipe: each takes the place of its block's attention, with what was written for it."""

from functools import partial

import pytest

from seqkit.backbones import Transformer
from seqkit.config import build, complete
from seqkit.errors import UsageError
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.mixers.rnn import GRUMixer
from seqkit.nn.position.bias import ALiBi
from seqkit.nn.position.rotary import Rotary

KEY = "--model.backbone.mixer"
ATTENTION = "--model.backbone.block.attention"
POSITION = "--model.backbone.position"


def backbone_of(*words):
    """The backbone's complete configuration; that it is its own completion and can be built is part of every test."""
    config = complete("text/char-lm", "debug", list(words))
    assert complete(dict(config)) == config
    build({"model": config["model"]})
    return config["model"]["backbone"]


def refused(*words):
    with pytest.raises(UsageError) as caught:
        backbone_of(*words)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["GRU", "gru", "{type: GRU}", "[GRU]", "[GRU, GRU]"])
def test_one_mixer_of_all_layers_leaves_neither_attention_nor_position(name):
    backbone = backbone_of(KEY, name)
    assert backbone["position"] is None
    assert "attention" not in backbone["block"]
    assert backbone["block"]["zero_init"], "other settings of the block stay"


def test_null_in_a_pattern_is_the_blocks_attention_as_the_recipe_has_it():
    alone = backbone_of()
    backbone = backbone_of(KEY, "[{type: Mamba, num_states: 8}, null]")
    assert backbone["mixer"][0]["num_states"] == 8
    assert backbone["mixer"][1] is None
    assert (backbone["block"], backbone["position"]) == (alone["block"], alone["position"])


def test_a_mixer_of_the_attentions_type_keeps_its_arguments():
    alone = backbone_of()
    backbone = backbone_of(KEY, "[GRU, {type: MultiHeadAttention, out_bias: true}]")
    own = {**alone["block"]["attention"], "out_bias": True}
    assert backbone["mixer"] == [{"type": "GRU"}, own]
    assert backbone["position"] == alone["position"]
    assert "attention" not in backbone["block"]


def test_each_block_of_a_pattern_loses_the_attention_that_it_never_has():
    first, second = backbone_of(
        KEY, "[GRU, null]", "--model.backbone.block", "[PreNormBlock, ParallelBlock]"
    )["block"]
    assert "attention" not in first
    assert "attention" in second


def test_null_in_the_place_of_a_mixer_is_attention_again():
    recurrent = complete("text/char-lm", "debug", [KEY, "GRU"])
    backbone = complete(dict(recurrent), None, [KEY, "null"])["model"]["backbone"]
    assert backbone["block"]["attention"]["type"] == "MultiHeadAttention"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((KEY, "[GRU, GRU, GRU]"), "mixer is a list of 3, which does not divide depth=2"),
        ((KEY, "[]"), "mixer is a list of 0"),
        ((KEY, "[GRU, Mambo]"), "no mixer called 'Mambo'; did you mean Mamba or Mamba2?"),
        ((KEY, "{type: Mamba, states: 8}"), "Mamba has no argument 'states'; did you mean num_st"),
        ((KEY, "7"), "mixer is 7; give the name of a mixer"),
        ((KEY, "GRU", f"{ATTENTION}.bias", "true"), "takes the place of block.attention"),
        ((f"{ATTENTION}.bias", "true", KEY, "GRU"), "takes the place of block.attention"),
        ((KEY, "GRU", POSITION, "Rotary"), "position has Rotary where no layer has attention"),
        ((POSITION, "Rotary", KEY, "GRU"), "position has Rotary where no layer has attention"),
        ((KEY, "[GRU, null]", POSITION, "[ALiBi, Rotary]"), "position has ALiBi where no layer"),
        ((ATTENTION, "GRU"), "position has Rotary where no layer has attention"),
    ],
)
def test_what_would_have_no_use_and_what_does_not_fit_are_refused_in_one_line(words, said):
    assert said in refused(*words)


@pytest.mark.parametrize(
    "arguments",
    [
        {"block": partial(PreNormBlock, attention=MultiHeadAttention)},
        {"position": Rotary()},
        {"position": [ALiBi(), None]},
    ],
)
def test_python_refuses_the_same_where_all_layers_have_a_mixer(arguments):
    with pytest.raises(ValueError, match=r"block\.attention|where no layer has attention"):
        Transformer(16, 2, num_heads=2, mixer=GRUMixer, **arguments)
    Transformer(16, 2, num_heads=2, mixer=[None, GRUMixer], **arguments)
