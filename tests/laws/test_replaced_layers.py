"""Every linear layer of every backbone is called as a module, so hooks, quantised layers and LoRA act on it."""

import pytest
import torch
from conftest import backbones
from generating import TWO, generating_model, sources
from torch import nn
from torch.testing import assert_close

from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken

NAMES = pytest.mark.parametrize("name", [*sorted(backbones()), *TWO])
IDS = [[3, 1, 4, 1, 5], [2], [7, 1, 8]]


def model_and_batch(name):
    if name in TWO:
        model = generating_model(name)
    else:
        model = Model(TokenSpec(vocab_size=13), backbones()[name](24, causal=True), NextToken()).eval()
    tokens = [Tokens(torch.tensor(ids), torch.arange(float(len(ids)))[:, None]) for ids in IDS]
    return model, TokenBatch.collate(tokens).replace(source=sources(name))


class LoRA(nn.Module):
    """A linear layer and a product of two thin matrices beside it (Hu et al. 2022, equation 3)."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.a = nn.Parameter(torch.randn(2, layer.in_features) * 0.3)
        self.b = nn.Parameter(torch.randn(layer.out_features, 2) * 0.3)

    def forward(self, x):
        return self.layer(x) + x @ self.a.T @ self.b.T

    def merged(self):
        self.layer.weight.data += self.b @ self.a
        return self.layer


def replaced(module, change):
    """The module with `change` of every layer inside it that it changes."""
    for name, child in module.named_children():
        new = change(child)
        setattr(module, name, new) if new is not child else replaced(child, change)
    return module


@NAMES
def test_every_linear_layer_is_called(name):
    model, batch = model_and_batch(name)
    linears = {name: layer for name, layer in model.backbone.named_modules() if isinstance(layer, nn.Linear)}
    called = set()
    for path, layer in linears.items():
        layer.register_forward_hook(lambda *_, path=path: called.add(path))
    with torch.no_grad():
        model(batch)
    assert called == set(linears)


@NAMES
def test_merging_lora_changes_nothing(name):
    model, batch = model_and_batch(name)
    with torch.no_grad():
        before = model(batch)
        replaced(model.backbone, lambda layer: LoRA(layer) if isinstance(layer, nn.Linear) else layer)
        unmerged = model(batch)
        replaced(model.backbone, lambda layer: layer.merged() if isinstance(layer, LoRA) else layer)
        if any(isinstance(layer, nn.Linear) for layer in model.backbone.modules()):
            assert not torch.allclose(before, unmerged, atol=1e-3)
        assert_close(model(batch), unmerged, rtol=1e-3, atol=1e-4)
