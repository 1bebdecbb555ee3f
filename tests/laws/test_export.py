"""A model as one graph, by torch.compile, gives what it gives without: other sizes, padded too.

tests/export/test_graph.py has graphs of torch.export.
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqkit.backbones import Transformer
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.position.absolute import Learned
from seqkit.nn.position.bias import ALiBi
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import Classify, NextToken

VOCAB = 13


class OfTensors(nn.Module):
    """The model as a function of tensors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, content, positions, valid):
        return self.model(TokenBatch(content, positions, valid))


def language_model():
    """Of learned positions, rotary ones in the first layer, and a bias in the second."""
    backbone = Transformer(24, 2, num_heads=3, causal=True, position=[Rotary(), ALiBi()])
    return Model(
        TokenSpec(vocab_size=VOCAB), backbone, NextToken(), position=partial(Learned, sizes=[31])
    )


def classifier():
    """Of vectors at sinusoidal positions."""
    objective = Classify()
    objective.fit([0, 1, 2], None)
    return Model(TokenSpec(num_features=5), Transformer(24, 1, num_heads=3), objective)


def batch(spec, b, n, padded):
    lengths = torch.randint(1, n + 1, (b,)) if padded else torch.full((b,), n)
    lengths[0] = n
    valid = torch.arange(n) < lengths[:, None]
    content = (
        torch.randint(VOCAB, (b, n)) * valid
        if spec.ids
        else torch.randn(b, n, 5) * valid[..., None]
    )
    return content, torch.arange(float(n)).expand(b, n)[..., None].contiguous(), valid


def shaken(model):
    """With weights that are so large that every position matters."""
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn_like(p)
    return OfTensors(model).double().eval()


def assert_compiles(model, sizes, **settings):
    torch.compiler.reset()
    graph = torch.compile(model, fullgraph=True, backend="eager", **settings)
    for b, n, padded in sizes:
        content, *rest = batch(model.model.spec, b, n, padded)
        given = (content.double() if content.is_floating_point() else content, *rest)
        with torch.no_grad():
            assert_close(graph(*given), model(*given))


@pytest.mark.slow
def test_a_model_compiles_as_one_graph():
    assert_compiles(shaken(classifier()), [(3, 5, True)])


@pytest.mark.slow
def test_one_graph_takes_other_sizes():
    assert_compiles(
        shaken(language_model()), [(2, 7, False), (3, 5, True), (1, 11, False)], dynamic=True
    )
