"""A trained model at work: on its device, in evaluation mode, its answers on the CPU."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from seqkit.interfaces import LossOutput, TokenBatch, Tokens
from seqkit.runs.predictor import Predictor


class OnAccelerator(torch.Tensor):
    """Stands for a tensor on an accelerator, whose numbers numpy cannot read before `cpu`."""

    def numpy(self, **_):
        raise TypeError("can't convert this device type tensor to numpy")

    def cpu(self, *_, **__):
        return self.as_subclass(torch.Tensor)


class Weighs(nn.Module):
    """A model of one weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))


@pytest.mark.parametrize("label", [None, torch.ones(1)])
def test_what_a_step_gives_on_an_accelerator_is_read_on_the_cpu(label):
    batch = TokenBatch.collate([Tokens(torch.tensor([3, 5]), torch.zeros(2, 1))])
    far = torch.tensor([0.5, 0.25]).as_subclass(OnAccelerator)
    with pytest.raises(TypeError):
        far.numpy()
    model, seen = Weighs().train(), []

    def step(given, both):
        seen.append((given, both, given.training, torch.is_inference_mode_enabled()))
        return LossOutput(far.sum(), far.sum(), preds=far, target=far, prediction=far)

    predictor = Predictor(model)
    model.train()
    found = predictor.step(SimpleNamespace(step=step), (batch, label))
    ((given, (tokens, with_label), training, without_gradients),) = seen
    assert given is model
    assert tokens.content.equal(batch.content)
    assert (with_label is None) == (label is None)
    assert (training, without_gradients) == (False, True)
    assert model.training  # as before
    for one in (found.preds, found.target, found.prediction):
        assert one.numpy().tolist() == [0.5, 0.25]
