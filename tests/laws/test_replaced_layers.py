"""Every linear layer of every backbone is called as a module, so hooks, quantised layers and LoRA act on it."""

import pytest
import torch
from conftest import backbones
from generating import TWO, generating_model, sources
from torch import nn
from torch.testing import assert_close

from seqkit.errors import UsageError
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import NextToken
from seqkit.training.fine_tuning import LoRA

NAMES = pytest.mark.parametrize("name", [*sorted(backbones()), *TWO])
IDS = [[3, 1, 4, 1, 5], [2], [7, 1, 8]]


def model_and_batch(name):
    if name in TWO:
        model = generating_model(name)
    else:
        model = Model(
            TokenSpec(vocab_size=13), backbones()[name](24, causal=True), NextToken()
        ).eval()
    tokens = [Tokens(torch.tensor(ids), torch.arange(float(len(ids)))[:, None]) for ids in IDS]
    return model, TokenBatch.collate(tokens).replace(source=sources(name))


@NAMES
def test_every_linear_layer_is_called(name):
    model, batch = model_and_batch(name)
    linears = {
        name: layer
        for name, layer in model.backbone.named_modules()
        if isinstance(layer, nn.Linear)
    }
    called = set()
    for path, layer in linears.items():
        layer.register_forward_hook(lambda *_, path=path: called.add(path))
    with torch.no_grad():
        model(batch)
    assert called == set(linears)


@NAMES
def test_merging_lora_changes_nothing(name):
    model, batch = model_and_batch(name)
    names = model.state_dict().keys()
    lora = LoRA(2)
    if refused := refusal(model.backbone):
        with pytest.raises(UsageError, match=refused):
            lora.begin(model, ["backbone"])
        return
    with torch.no_grad():
        before = model(batch)
        lora.begin(model, ["backbone"])
        assert torch.equal(model(batch), before)
        changes = [p for name, p in model.named_parameters() if ".lora_B." in name]
        for change in changes:
            change.normal_(std=0.3)
        unmerged = model(batch)
        assert not torch.allclose(before, unmerged, atol=1e-3)
    model(batch).sum().backward()
    assert changes
    assert all(change.grad is not None for change in changes)
    with torch.no_grad():
        lora.end(model)
        assert model.state_dict().keys() == names
        assert_close(model(batch), unmerged, rtol=1e-3, atol=1e-4)


def refusal(backbone):
    """Part of the message by which LoRA refuses a backbone; None: it takes it."""
    is_recurrent = any(
        isinstance(module, nn.RNNBase | nn.RNNCellBase) for module in backbone.modules()
    )
    is_taken = not is_recurrent and any(type(module) is nn.Linear for module in backbone.modules())
    return None if is_taken else f"{type(backbone).__name__} has none, or recurrent layers"
