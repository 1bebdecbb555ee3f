"""What is common to all families: the names of activations in `config.json`."""

import pytest
import torch
from torch.testing import assert_close
from transformers.activations import ACT2FN

from seqkit.config import build, complete
from seqkit.pretrained.family import ACTIVATIONS

NAMED = {
    "gelu",
    "gelu_new",
    "gelu_pytorch_tanh",
    "gelu_fast",
    "quick_gelu",
    "relu",
    "relu2",
    "silu",
    "swish",
    "tanh",
}


def test_the_usual_names_are_known():
    assert NAMED <= ACTIVATIONS.keys() <= set(ACT2FN)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_that_a_recipe_names_is_theirs(name):
    block = {"mlp": {"type": "MLP", "activation": ACTIVATIONS[name]}}
    backbone = {"type": "Transformer", "dim": 6, "depth": 1, "num_heads": 1, "block": block}
    config = {"tokenizer": "Bytes", "model": {"objective": "Classify", "backbone": backbone}}
    ours = (
        build(complete(config, None, only=("tokenizer", "model")))
        .model["backbone"]
        .blocks[0]
        .mlp.activation
    )
    x = torch.linspace(-7, 7, 97, dtype=torch.float64)
    assert_close(ours(x), ACT2FN[name](x), rtol=0, atol=1e-6)
