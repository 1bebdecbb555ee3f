"""Samples of what a model on an accelerator predicts; what pages show of them is in test_page."""

from types import SimpleNamespace

import pytest
import torch

from seqkit.interfaces import LossOutput, TokenBatch, Tokens
from seqkit.report.samples import _outputs


class OnAccelerator(torch.Tensor):
    """Stands for a tensor on an accelerator, whose numbers numpy cannot read before `cpu`."""

    def numpy(self, **_):
        raise TypeError("can't convert this device type tensor to numpy")

    def cpu(self, *_, **__):
        return self.as_subclass(torch.Tensor)


class Loader(list):
    def batch_indices(self):
        return [[0]]


def test_what_a_model_on_an_accelerator_gives_is_read_on_the_cpu():
    batch = TokenBatch.collate([Tokens(torch.tensor([3, 5]), torch.zeros(2, 1))])
    far = torch.tensor([0.5, 0.25]).as_subclass(OnAccelerator)
    with pytest.raises(TypeError):
        far.numpy()
    output = LossOutput(far.sum(), far.sum(), preds=far, target=far, prediction=far)
    predictor, objective = SimpleNamespace(device=torch.device("cpu")), SimpleNamespace(step=lambda *_: output)
    trained = SimpleNamespace(predictor=predictor, model=None, objective=objective)
    data = SimpleNamespace(test_dataloader=lambda: Loader([(batch, torch.zeros(1))]))
    ((indices, _, _, found),) = _outputs(trained, data)  # type: ignore[arg-type]
    assert indices == [0]
    for one in (found.preds, found.target, found.prediction):
        assert one.numpy().tolist() == [0.5, 0.25]
