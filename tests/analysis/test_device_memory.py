"""Memory of one device of several."""

from functools import partial

import pytest
import torch

from seqkit.analysis.device_memory import device_memory, optimizer_bytes, recipe_memory
from seqkit.analysis.peak_memory import peak_bytes
from seqkit.backbones import GRU, Transformer
from seqkit.config import complete
from seqkit.errors import UsageError
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives import Masked, NextToken
from seqkit.training.optim import AdamW, Muon, TorchOptimizer
from seqkit.training.recompute import activation_checkpointing

OPTIMIZERS = {
    "AdamW": AdamW(),
    "Muon": Muon(),
    "SGD": TorchOptimizer(torch.optim.SGD, lr=0.1),
    "momentum": TorchOptimizer(torch.optim.SGD, lr=0.1, momentum=0.9),
    "Adafactor": TorchOptimizer(torch.optim.Adafactor),
}


def model_and_input(*, num_examples, num_tokens, vocab_size=17, backbone=None):
    torch.manual_seed(0)
    backbone = backbone or Transformer(64, 6, num_heads=4, causal=True)
    model = Model(TokenSpec(vocab_size=vocab_size), backbone, NextToken())
    positions = torch.arange(float(num_tokens))[:, None]
    tokens = [Tokens(torch.randint(vocab_size, (num_tokens,)), positions) for _ in range(num_examples)]
    return model, NextToken().prepare(TokenBatch.collate(tokens), None)


def state_of(optimizer):
    each = getattr(optimizer, "optimizers", [optimizer])
    return [t for one in each for state in one.state.values() for t in state.values() if isinstance(t, torch.Tensor)]


def step(model, inputs, optimizer):
    loss = NextToken().loss(model(inputs.batch, inputs.masked), inputs.target, training=True).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("AdamW", {"num_examples": 16, "num_tokens": 61}),  # activations are 20 times the gradients
        ("AdamW", {"num_examples": 1, "num_tokens": 7}),  # an eighth of them
        ("AdamW", {"num_examples": 2, "num_tokens": 31}),  # as much
        ("AdamW", {"num_examples": 4, "num_tokens": 61, "vocab_size": 997}),  # most of it is the loss
        ("Muon", {"num_examples": 4, "num_tokens": 31}),
        ("momentum", {"num_examples": 8, "num_tokens": 31}),
    ],
)
def test_the_total_is_the_measured_peak_to_a_tenth_and_to_a_quarter_where_blocks_are_computed_again(name, sizes):
    model, inputs = model_and_input(**sizes)
    expected = device_memory(model, inputs.batch, OPTIMIZERS[name])
    optimizer = OPTIMIZERS[name].build(model)
    work = partial(step, model, inputs, optimizer)
    work()
    held = [*model.parameters(), *state_of(optimizer)]
    assert peak_bytes(work, held) == pytest.approx(expected.total, rel=0.1)
    with activation_checkpointing(model):
        assert peak_bytes(work, held) == pytest.approx(expected.total_recomputed, rel=0.25)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_bytes_of_the_optimizer_are_those_of_its_state_after_a_step(name):
    model, inputs = model_and_input(num_examples=2, num_tokens=5)
    optimizer = OPTIMIZERS[name].build(model)
    step(model, inputs, optimizer)
    grown = [t.nbytes for t in state_of(optimizer) if t.numel() > 1]
    assert optimizer_bytes(model, OPTIMIZERS[name]) == sum(grown)


def test_weights_gradients_and_state_are_divided_by_fsdp_and_not_by_ddp_and_activations_by_neither():
    model, inputs = model_and_input(num_examples=2, num_tokens=5)
    one = device_memory(model, inputs.batch, AdamW())
    ddp = device_memory(model, inputs.batch, AdamW(), num_devices=7)
    fsdp = device_memory(model, inputs.batch, AdamW(), num_devices=7, strategy="fsdp")
    for part in ("weights", "gradients", "optimizer"):
        assert getattr(ddp, part) == getattr(one, part)
        assert 0 <= 7 * getattr(fsdp, part) - getattr(one, part) < 7
    assert ddp.activations == fsdp.activations == one.activations
    block = sum(p.nbytes for p in model.backbone.blocks[0].parameters())  # one of six of a size
    assert (one.transfers, ddp.transfers) == (0, one.weights)
    assert fsdp.transfers == 2 * (one.weights - 6 * block) + 4 * block


def test_what_fsdp_gathers_does_not_grow_with_the_number_of_blocks():
    def transfers(depth):
        backbone = Transformer(16, depth, num_heads=2, causal=True)
        model, inputs = model_and_input(num_examples=1, num_tokens=5, backbone=backbone)
        return device_memory(model, inputs.batch, AdamW(), num_devices=2, strategy="fsdp").transfers

    assert transfers(2) == transfers(5) > 0


def test_a_backbone_without_blocks_has_no_figure_with_activation_checkpointing():
    model, inputs = model_and_input(num_examples=1, num_tokens=5, backbone=GRU(16, 2, causal=True))
    assert device_memory(model, inputs.batch, AdamW()).total_recomputed is None


def test_no_devices_and_an_unknown_strategy_are_refused():
    model, inputs = model_and_input(num_examples=1, num_tokens=5)
    with pytest.raises(UsageError, match="0 devices"):
        device_memory(model, inputs.batch, AdamW(), num_devices=0)
    with pytest.raises(UsageError, match="'zero'"):
        device_memory(model, inputs.batch, AdamW(), strategy="zero")


def test_a_model_that_no_memory_here_holds_is_described_from_its_recipe(tmp_path):
    """6.6 B parameters of LLaMA with a vocabulary of characters, float32, over 64 devices."""
    (tmp_path / "text.txt").write_text("To be, or not to be, that is the question.\n" * 60, encoding="utf-8")
    words = {"data": str(tmp_path / "text.txt"), "model.backbone": "llama_7b", "optimizer": "AdamW"}
    memory = recipe_memory(complete("text/char-lm", "debug", words), num_devices=64, strategy="fsdp")
    assert 64 * memory.weights == pytest.approx(4 * 6.476e9, rel=0.001)
    assert memory.optimizer == pytest.approx(2 * memory.weights, rel=0.001)


class LooksAtValues(Transformer):
    """A sound backbone that asks for numbers, which device meta has none of."""

    def forward(self, embedded, cache=None):
        assert float(embedded.hidden.detach().numpy().std()) > 0
        return super().forward(embedded, cache)


def test_a_planned_model_that_looks_at_values_is_refused_in_one_line():
    with torch.device("meta"):
        model = Model(TokenSpec(vocab_size=29), LooksAtValues(24, 2, num_heads=3), Masked())
    batch = TokenBatch.collate([TokenSpec(vocab_size=29).random(7, torch.Generator().manual_seed(0))])
    with pytest.raises(UsageError, match="LooksAtValues"):
        device_memory(model, batch, AdamW())
