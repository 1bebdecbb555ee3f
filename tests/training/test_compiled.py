"""Loss and gradient of a training batch through torch.compile are those without it, for every recipe."""

import warnings

import pytest
import torch
from single_recipes import single_recipes

from seqkit.config import complete
from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch, Tokens
from seqkit.runs.prepare import prepare
from seqkit.training.compiled import CompiledLoss
from seqkit.training.module import training_loss


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(name, marks=() if name == "text/char-lm" else pytest.mark.slow)
        for name in single_recipes()
    ],
)
def test_a_compiled_loss_has_the_gradient_of_the_plain_one(recipe):
    """Dynamo's tracing alone: it left gradients out (`seqkit.nn.convolution.convolve`)."""
    words = {"data.batch_size": 4}
    if recipe == "text/char-lm":
        words |= {"model.backbone.dim": 16, "model.backbone.depth": 1, "data.window": 7}
    try:
        prepared = prepare(complete(recipe, "debug", words))
    except DataError as error:
        if "package" in str(error):
            pytest.skip(str(error))
        raise
    (task,), batch = prepared.objectives().values(), next(iter(prepared.data.train_dataloader()))
    with torch.no_grad():
        # blocks that begin with zeros pass no gradient on
        for parameter in task.model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    torch._dynamo.reset()

    def gradients(loss_of):
        task.model.zero_grad()
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own tracing
            loss, count, num_tokens = loss_of(task, batch[:2])
            (loss / count).backward()
        found = {
            name: p.grad.clone() for name, p in task.model.named_parameters() if p.grad is not None
        }
        return found | {"loss": loss.detach() / count, "tokens": num_tokens.float()}

    plain, compiled = (
        gradients(training_loss),
        gradients(torch.compile(training_loss, backend="eager")),
    )
    torch._dynamo.reset()
    assert compiled.keys() == plain.keys()
    size = max(float(x.abs().max()) for x in plain.values())
    for name, right in plain.items():
        torch.testing.assert_close(compiled[name], right, rtol=1e-3, atol=1e-5 * size, msg=name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's own tracing
def test_texts_of_all_lengths_are_one_graph():
    words = {"model.backbone.dim": 16, "model.backbone.depth": 1}
    prepared = prepare(complete("text/char-lm", "debug", words))
    (task,) = prepared.objectives().values()
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    loss_of = CompiledLoss(None, is_asked=True)
    loss_of._compiled = torch.compile(training_loss, backend=backend, dynamic=True)
    for n in (5, 7, 12, 20):
        examples = [Tokens(torch.arange(m), torch.arange(float(m))[:, None]) for m in (n, 3)]
        batch = TokenBatch.collate(examples), None
        right = training_loss(task, batch)[0]
        torch.testing.assert_close(loss_of(task, batch)[0], right)
    torch._dynamo.reset()
    assert len(graphs) == 1
