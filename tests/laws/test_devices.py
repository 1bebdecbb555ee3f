"""On accelerators and in half precision: no step makes a device wait, weights may be bfloat16 or start on meta.

Device meta stands for an accelerator: it has no data, so that whatever looks at a number raises.
"""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from laws.combinations import DIM, HEADS, POSITIONS, build, required, supports
from torch.utils._python_dispatch import TorchDispatchMode

from seqkit.backbones import EncoderDecoder, Transformer
from seqkit.interfaces import IGNORE, TokenBatch
from seqkit.model import Model
from seqkit.nn.block import PostNormBlock, PreNormBlock
from seqkit.nn.position.absolute import Learned, Sinusoidal
from seqkit.objectives import Classify, Contrastive, Masked, MultiLabel, NextToken, Regress, Seq2Seq
from seqkit.registry import components
from seqkit.testing import synthetic
from seqkit.tokenizers import Characters, Ids, Join, Patches
from seqkit.training import module as training_module
from seqkit.training.module import TrainingModule
from seqkit.training.optim import AdamW

NAMES = sorted(components("mechanism"))
WORKING = [
    (name, position, causal, modality)
    for name in NAMES
    for position in POSITIONS
    for causal in (False, True)
    for modality in ("text", "graph")
    if required(position, causal, modality) in supports(name)
    and not (modality == "graph" and position == "T5Bias")
    and not (modality == "text" and name == "EdgeAttention")
    and (name == "ScaledDotProductAttention" or position in ("none", "Rotary"))
]
"""Torch's own attention with every position, and the others with none and with the one that turns queries and keys."""
IDS = ["-".join(map(str, cell)) for cell in WORKING]


def classes():
    objective = Classify()
    objective.fit([0, 1, 2], None)
    return objective


def numbers():
    objective = Regress()
    objective.fit([0.5, 1.5], None)
    return objective


def fitted(objective, *labels):
    objective.fit(labels, None)
    return objective


OBJECTIVES = {
    "NextToken": (NextToken, lambda batch: None, True),
    "Masked": (Masked, lambda batch: None, False),
    "Classify": (classes, lambda batch: torch.arange(len(batch)) % 3, False),
    "Classify tokens": (
        lambda: fitted(
            Classify(level="token", label_smoothing=0.1, class_weights="balanced"), 0, 1, 2
        ),
        lambda batch: torch.where(batch.valid, 1, IGNORE),
        False,
    ),
    "Regress": (numbers, lambda batch: torch.rand(len(batch), 1), False),
    "Regress tokens": (
        lambda: fitted(Regress(level="token", loss="huber"), torch.rand(3, 2)),
        lambda batch: torch.rand(*batch.valid.shape, 2),
        False,
    ),
    "MultiLabel": (
        lambda: fitted(MultiLabel(), [0, 1], [1, 0]),
        lambda batch: torch.ones(len(batch), 2),
        False,
    ),
    "Seq2Seq": (
        lambda: fitted(Seq2Seq(Characters("abc"), label_smoothing=0.1), "abc"),
        lambda batch: torch.ones(len(batch), 1, 3, dtype=torch.int64),
        True,
    ),
}
OF_PARTS = {
    "NextToken": lambda: NextToken(part="text"),
    "Masked": Masked,
    "Masked part": lambda: Masked(part="text"),
    "Contrastive": lambda: fitted(Contrastive(["text", "image"]), None),
    "Contrastive sigmoid": lambda: fitted(Contrastive(["text", "image"], loss="sigmoid"), None),
    "Classify": lambda: fitted(Classify(pool="parts"), 0, 1, 2),
}


class Looks(TorchDispatchMode):
    """Counts the operations that bring a number of a device tensor to the CPU, and so make it wait."""

    WAITING = (
        "_local_scalar_dense",
        "nonzero",
        "is_nonzero",
        "masked_select",
        "unique",
        "item",
        "equal",
    )

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [x for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
        name = func.overloadpacket.__name__
        if any(x.device.type != "cpu" for x in tensors) and (
            name in self.WAITING
            or (name == "index" and any(x.dtype == torch.bool for x in tensors[1:]))
        ):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def looks_of_a_step(model, objective, batch, label):
    """What a training step with an optimizer step asks of the device."""
    module = TrainingModule(model, objective, optimizer=AdamW(1e-3)).to("meta")
    module._trainer = SimpleNamespace(
        accumulate_grad_batches=1,
        current_epoch=0,
        global_step=0,
        log_every_n_steps=0,
        precision_plugin=None,
        strategy=SimpleNamespace(reduce=lambda sums, reduce_op: sums),
        world_size=1,
    )
    batch, label = batch.to("meta"), None if label is None else label.to("meta")
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, foreach=True)
    with pytest.MonkeyPatch.context() as patch, Looks() as looks:
        # as with CUDA and fused optimizers, which `AdamW` of meta tensors is not
        patch.setattr(TrainingModule, "_device_skips", lambda self, optimizer: True)
        patch.setattr(training_module, "_to_host", lambda x: (x, None))
        module.training_step((batch, label), 0).backward()
        module.on_after_backward()
        module.on_before_optimizer_step(optimizer)
        module.configure_gradient_clipping(optimizer, 1.0)
        optimizer.found_inf = None  # which a fused optimizer alone takes
        optimizer.step()
    return looks.found


@pytest.mark.parametrize(("name", "position", "causal", "modality"), WORKING, ids=IDS)
def test_no_mechanism_or_position_makes_a_device_wait(name, position, causal, modality):
    spec, examples = synthetic()[modality]
    objective = (
        NextToken() if causal and modality == "text" else Masked() if not causal else classes()
    )
    label = torch.arange(len(examples)) % 3 if isinstance(objective, Classify) else None
    model = Model(
        spec, build(name, position, causal, PreNormBlock, torch.nn.LayerNorm, depth=1), objective
    )
    assert looks_of_a_step(model, objective, TokenBatch.collate(examples), label) == []


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_objective_makes_a_device_wait(name):
    make, label, causal = OBJECTIVES[name]
    spec, examples = synthetic()["text"]
    batch, objective = TokenBatch.collate(examples), make()
    position = partial(Learned, sizes=[16])  # whose range is looked at on the CPU only
    backbone = Transformer(DIM, 1, num_heads=HEADS, causal=causal)
    if isinstance(objective, Seq2Seq):
        block = partial(PreNormBlock, cross_attention=True)
        decoder = Transformer(DIM, 1, num_heads=HEADS, causal=True, block=block)
        backbone = EncoderDecoder(Transformer(DIM, 1, num_heads=HEADS), decoder)
    assert (
        looks_of_a_step(
            Model(spec, backbone, objective, position=position), objective, batch, label(batch)
        )
        == []
    )


@pytest.mark.parametrize("name", OF_PARTS)
def test_no_objective_of_parts_makes_a_device_wait(name):
    """Not of their ids either: both examples have a text, and one has an image."""
    tokenizer, objective = Join({"image": Patches(4), "text": Ids(5)}), OF_PARTS[name]()
    raws = [
        {"image": torch.rand(1, 4, 8), "text": [1, 2]},
        {"text": [3]},
        {"image": torch.rand(1, 4, 4), "text": [0]},
    ]
    batch = TokenBatch.collate([tokenizer.encode(raw) for raw in raws])
    backbone = Transformer(
        DIM, 1, num_heads=HEADS, causal=None if isinstance(objective, NextToken) else False
    )
    label = torch.arange(3) if isinstance(objective, Classify) else None
    assert (
        looks_of_a_step(Model(tokenizer.spec, backbone, objective), objective, batch, label) == []
    )


def test_a_step_that_looks_is_noticed():
    spec, examples = synthetic()["text"]

    class Looking(Classify):
        def loss(self, prediction, target, *, training=False):
            known = target != IGNORE
            return super().loss(prediction[known], target[known], training=training)

    objective = Looking()
    objective.fit([0, 1, 2], None)
    model = Model(spec, Transformer(DIM, 1, num_heads=HEADS), objective)
    # meta itself refuses to choose by a mask
    with pytest.raises((NotImplementedError, RuntimeError)):
        assert (
            looks_of_a_step(model, objective, TokenBatch.collate(examples), torch.tensor([0, 1, 2]))
            == []
        )
        raise RuntimeError("noticed by the count")


@pytest.mark.parametrize(("name", "position", "causal", "modality"), WORKING, ids=IDS)
def test_weights_may_be_bfloat16(name, position, causal, modality):
    spec, examples = synthetic()[modality]
    torch.manual_seed(0)
    objective = classes()
    model = Model(
        spec, build(name, position, causal, PreNormBlock, torch.nn.LayerNorm), objective
    ).eval()
    batch = TokenBatch.collate(examples)
    with torch.no_grad():
        right = model(batch)
    model.to(torch.bfloat16)
    logits = model(batch)
    assert logits.dtype == torch.bfloat16
    if name != "LSHAttention":  # rounding may move a token to another bucket
        assert float((logits.detach().float() - right).norm() / right.norm()) < 0.1
    logits.float().square().sum().backward()
    assert all(p.grad is None or bool(torch.isfinite(p.grad).all()) for p in model.parameters())
    assert sum(p.grad is not None for p in model.parameters()) > 10


@pytest.mark.parametrize("position", [Sinusoidal, partial(Learned, sizes=[16])])
def test_added_positions_and_generation_work_in_bfloat16(position):
    from seqkit.generation import generate

    spec, _ = synthetic()["text"]
    model = Model(
        spec, Transformer(DIM, 2, num_heads=HEADS, causal=True), NextToken(), position=position
    )
    model.to(torch.bfloat16)
    prompts = [torch.tensor([1, 2, 3]), torch.tensor([4])]
    for use_cache in (True, False):
        assert [len(ids) for ids in generate(model, prompts, 5, use_cache=use_cache)] == [5, 5]


@pytest.mark.parametrize("block", [PreNormBlock, PostNormBlock])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "EdgeAttention"])
def test_a_model_made_on_meta_is_whole_once_its_weights_are_loaded(name, block):
    spec, examples = synthetic()["text"]

    objective = classes()

    def make():
        return Model(
            spec,
            build(name, "none", False, block, torch.nn.LayerNorm),
            objective,
            position=Sinusoidal,
        )

    torch.manual_seed(0)
    model = make().eval()
    with torch.device("meta"):
        empty = make()
    assert all(p.is_meta for p in empty.parameters())
    empty = empty.to_empty(device="cpu").eval()
    empty.load_state_dict(model.state_dict(), strict=True)
    batch = TokenBatch.collate(examples)
    torch.testing.assert_close(empty(batch), model(batch))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ScaledDotProductAttention", "SlidingWindowAttention"])
def test_blocks_may_be_compiled_one_by_one(name):
    """Regional compilation: torch.compile of each block."""
    spec, examples = synthetic()["text"]
    torch.manual_seed(0)
    model = Model(
        spec, build(name, "none", True, PreNormBlock, torch.nn.LayerNorm), NextToken()
    ).eval()
    model.requires_grad_(False)
    batch = TokenBatch.collate(examples)
    right = model(batch)
    for block in model.backbone.blocks:
        block.compile(backend="aot_eager")
    torch.testing.assert_close(model(batch), right, atol=1e-4 * float(right.abs().max()), rtol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert bool(torch.isfinite(model(batch)).all())
