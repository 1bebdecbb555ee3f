"""Replayed steps compute what launched ones do; what a graph would get wrong is never replayed."""

import logging
import warnings
from functools import partial
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.profilers import PassThroughProfiler, SimpleProfiler
from torch import nn
from torch.utils.data import DataLoader

from seqkit.backbones import Transformer
from seqkit.errors import DivergedError, UsageError
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.convolution import CausalConvolution
from seqkit.nn.mlp import ReLUSquared
from seqkit.nn.position.rotary import Rotary
from seqkit.objectives import NextToken
from seqkit.training import module as training_module
from seqkit.training import step_graph
from seqkit.training.health import GradientNorms
from seqkit.training.module import TrainingModule
from seqkit.training.optim import AdamW, Cosine, Muon, TorchOptimizer
from seqkit.training.resume import RandomState
from seqkit.training.step_graph import StepGraph
from seqkit.training.step_log import StepLog

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def batches(count, *, n=11):
    g = torch.Generator().manual_seed(0)
    made = [
        Tokens(torch.randint(7, (n,), generator=g), torch.arange(float(n))[:, None])
        for _ in range(3 * count)
    ]
    return [(TokenBatch.collate(made[i : i + 3]), None) for i in range(0, len(made), 3)]


def module(optimizer=None, *, num_steps=24, backbone=None, **settings):
    torch.manual_seed(0)
    backbone = backbone or Transformer(16, 1, num_heads=2, causal=True, dropout=0.1)
    model = Model(TokenSpec(vocab_size=7), backbone, NextToken())
    given = {"optimizer": optimizer or Muon(2**-6), "schedule": Cosine(warmup_steps=5), **settings}
    return TrainingModule(model, NextToken(), num_steps=num_steps, **given)


def fit(
    ours, data, graph=None, *, device="cuda", checkpoint=None, epochs=1, valid=None, **settings
):
    """Losses of all steps."""
    losses = []

    class Losses(pl.Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            losses.append(pl_module.step_loss)

    callbacks = [StepLog(), Losses(), RandomState(), *([graph] if graph else [])]
    settings = {
        "accelerator": "gpu" if device == "cuda" else device, "devices": 1, "logger": False,
        "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
        "callbacks": callbacks, "max_epochs": epochs, "gradient_clip_val": 0.5, "log_every_n_steps": 4, **settings,
    }  # fmt: skip
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(**settings)
        loaders = [
            None if one is None else DataLoader(one, batch_size=None) for one in (data, valid)
        ]
        trainer.fit(ours, *loaders, ckpt_path=checkpoint, weights_only=True)
    return trainer, [float(loss) for loss in losses]


def same_weights(one, other):
    return all(
        torch.equal(x, y)
        for x, y in zip(one.model.state_dict().values(), other.model.state_dict().values())
    )


class Launched(StepGraph):
    """Goes the way of a replayed step on any device, but launches every one."""

    def on_train_start(self, trainer, pl_module):
        self._trainer, self._module = trainer, pl_module
        self._parameters, self._modules = (
            list(pl_module.model.parameters()),
            list(pl_module.model.modules()),
        )
        self._rates = torch.zeros(
            len(trainer.optimizers[0].param_groups), device=pl_module.device
        ).unbind()
        pl_module.run_step = self._run

    def _run(self, optimizer, closure):
        self._launch(optimizer, closure)


class Emulated(Launched):
    """Replays on any device: a graph is its step, which runs again on the tensors of its input."""

    def _run(self, optimizer, closure):
        self._step(optimizer, closure)

    def _measure(self, step):
        step()
        return ""

    def _capture(self, inputs, kind, optimizer, closure):
        ours = self._module
        ours.settle()

        def compute():
            before, ours._num_tokens, ours.is_captured = ours._num_tokens, {"": 0}, True
            closure()
            counted, ours._num_tokens = ours._num_tokens[""], before
            return step_graph.MicroBatch(ours._step[0].loss, torch.tensor(1), 0), counted

        def update():
            self._update(optimizer)
            ours.is_captured = False
            return step_graph.Outcome(ours.outcome.values, [])

        self._graphs[kind] = Rerun(compute, inputs), Rerun(update, ())


class Rerun:
    """What `Captured` is on CUDA."""

    def __init__(self, function, inputs):
        self.function, self.inputs = function, inputs

    def __call__(self, inputs):
        for into, given in zip(self.inputs, inputs, strict=True):
            into.copy_(given)
        return self.function()


def test_replays_leave_what_launched_steps_leave(monkeypatch):
    monkeypatch.setattr(training_module, "_to_host", lambda x: (x.clone(), None))
    ours, theirs, graph = module(), module(), Emulated()
    got, right = (
        fit(one, [*batches(9), *batches(2, n=5), *batches(3)], how, device="cpu")
        for one, how in ((ours, graph), (theirs, Launched()))
    )
    assert graph.num_replayed == 12 - step_graph.WARM_UP
    assert got[1] == right[1]
    assert same_weights(ours, theirs)
    assert ours.tokens_by_task() == theirs.tokens_by_task()
    assert float(ours.gradient_norm) == float(theirs.gradient_norm)
    assert got[0].callback_metrics == right[0].callback_metrics


@pytest.mark.parametrize("optimizer", [AdamW(2**-6), Muon(2**-6)])
def test_a_launched_step_is_lightnings(optimizer):
    constant = {"optimizer": optimizer, "schedule": None}  # a rate that float32 holds exactly
    ours, theirs = module(**constant), module(**constant)
    got, right = (
        fit(one, batches(6), graph, device="cpu")[1]
        for one, graph in ((ours, Launched()), (theirs, None))
    )
    assert got == right
    assert same_weights(ours, theirs)


def training(**changes):
    """Trainer and module without an obstacle, as far as `obstacle` looks."""
    model = nn.Linear(2, 3)
    optimizer = changes.pop("optimizer", AdamW()).build(model)
    trainer = SimpleNamespace(
        world_size=1, accumulate_grad_batches=1, precision_plugin=None, profiler=PassThroughProfiler(),
        callbacks=[StepLog(), RandomState()], optimizers=[optimizer],
    )  # fmt: skip
    ours = SimpleNamespace(
        device=torch.device("cuda"), model=model, tasks={"": None}, _auxiliary=[]
    )
    for name, value in changes.items():
        setattr(trainer if hasattr(trainer, name) else ours, name, value)
    return trainer, ours


def test_nothing_stands_against_a_plain_training():
    assert step_graph.obstacle(*training()) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"device": torch.device("cpu")}, "no CUDA device"),
        ({"world_size": 2}, "several processes"),
        ({"accumulate_grad_batches": 2}, "accumulated"),
        ({"precision_plugin": SimpleNamespace(scaler=object())}, "float16"),
        ({"tasks": {"a/": None, "b/": None}}, "several tasks"),
        ({"_auxiliary": [nn.Identity()]}, "auxiliary"),
        ({"profiler": SimpleProfiler()}, "profiler"),
        ({"callbacks": [GradientNorms()]}, "GradientNorms looks into it"),
        (
            {"optimizer": TorchOptimizer(torch.optim.SGD, lr=0.1)},
            "SGD takes its learning rate from the host",
        ),
    ],
)
def test_each_obstacle_is_named(changes, said):
    assert said in step_graph.obstacle(*training(**changes))


def test_a_graph_that_is_asked_for_and_cannot_be_is_refused():
    with pytest.raises(UsageError, match="cuda_graph: there is no CUDA device"):
        fit(module(), batches(2), StepGraph(True), device="cpu")


def kind_of(batch, ours, optimizer, *callbacks):
    graph = StepGraph()
    graph._batch, graph._module, graph._trainer = batch, ours, SimpleNamespace(callbacks=callbacks)
    graph._parameters, graph._modules = list(ours.model.parameters()), list(ours.model.modules())
    return graph._kind(optimizer)[1]


def test_a_graph_is_for_all_that_it_holds_as_constants():
    ours, (batch,) = module(), batches(1)
    optimizer = AdamW().build(ours.model)
    known = kind_of(batch, ours, optimizer)
    assert kind_of(batch, ours, optimizer) == known
    optimizer.param_groups[0]["lr"] = 0.5  # read from the device
    assert kind_of(batch, ours, optimizer) == known
    assert kind_of(batches(1, n=5)[0], ours, optimizer) != known
    optimizer.param_groups[0]["betas"] = (0.5, 0.9)
    assert kind_of(batch, ours, optimizer) != known
    optimizer = AdamW().build(ours.model)
    ours.model.head.linear.weight.requires_grad_(False)
    assert kind_of(batch, ours, optimizer) != known
    ours.model.head.linear.weight.requires_grad_(True)
    ours.model.head.eval()
    assert kind_of(batch, ours, optimizer) != known


class Foreign(pl.Callback):
    """May change anything between two steps."""


def test_with_a_foreign_callback_settings_and_buffers_of_modules_are_among_the_constants():
    ours, (batch,) = module(), batches(1)
    ours.model.register_buffer("scale", torch.ones(3))
    optimizer = AdamW().build(ours.model)
    known, blind = (kind_of(batch, ours, optimizer, *one) for one in ([Foreign()], [StepLog()]))
    assert kind_of(batch, ours, optimizer, Foreign()) == known
    dropout = next(one for one in ours.model.modules() if isinstance(one, nn.Dropout))
    before, dropout.p = dropout.p, 0.5
    assert kind_of(batch, ours, optimizer, Foreign()) != known
    assert kind_of(batch, ours, optimizer, StepLog()) == blind
    dropout.p, ours.model.scale = before, torch.ones(3)
    assert kind_of(batch, ours, optimizer, Foreign()) != known


def test_what_a_step_changes_on_the_host_is_found():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.calls = 0

    counts = Counts()
    before = step_graph._host_state(counts, object.__new__(NextToken))
    counts.mean.add_(1)  # in place, as on the device
    after = step_graph._host_state(counts, object.__new__(NextToken))
    assert all(step_graph._same(before[name], value) for name, value in after.items())
    counts.calls += 1
    counts.mean = counts.mean + 1
    after = step_graph._host_state(counts, object.__new__(NextToken))
    assert [name for name, value in after.items() if not step_graph._same(before[name], value)] == [
        ".calls",
        ".mean",
    ]


def recipe_block(**settings):
    """A backbone with the block of text/char-lm: rotary positions, normed queries and keys, convolutions."""
    attention = partial(
        MultiHeadAttention,
        bias=False,
        qk_norm=partial(nn.LayerNorm, bias=False),
        convolution=CausalConvolution,
    )
    block = partial(PreNormBlock, attention=attention, mlp=partial(MLP, activation=ReLUSquared))
    return Transformer(32, 2, num_heads=2, causal=True, position=Rotary(), block=block, **settings)


def losses_of(*, compiled, graph, device, backend):
    torch.manual_seed(0)
    one = module(Muon(0.005), backbone=recipe_block(), num_steps=20)
    if compiled:
        torch._dynamo.reset()
        one.loss_of = torch.compile(training_module.training_loss, backend=backend)
    data = batches(20)
    for batch, _ in data:  # each token is that three before it, so attention has something to learn
        batch.content.copy_(batch.content[:, :3].repeat(1, 4)[:, :11])
    return fit(one, data, graph, device=device)[1]


def check_losses(graph, *, device, backend, rel):
    """20 steps without dropout, plain; compiled, replayed, and both: the same losses."""
    given = {"device": device, "backend": backend}
    plain = losses_of(compiled=False, graph=None, **given)
    for compiled, replayed in ((True, None), (False, graph()), (True, graph())):
        losses = losses_of(compiled=compiled, graph=replayed, **given)
        assert losses == pytest.approx(plain, rel=rel), (compiled, replayed)
        assert replayed is None or replayed.num_replayed == 20 - step_graph.WARM_UP


@pytest.mark.slow
def test_compiled_and_replayed_trainings_have_the_losses_of_a_plain_one(monkeypatch):
    monkeypatch.setattr(training_module, "_to_host", lambda x: (x.clone(), None))
    check_losses(Emulated, device="cpu", backend="aot_eager", rel=1e-5)


# ── on a GPU ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@needs_cuda
@pytest.mark.parametrize("optimizer", [AdamW(0.01), Muon(0.01)])
def test_replayed_steps_are_launched_ones_bit_for_bit(optimizer):
    ours, theirs, graph = module(optimizer), module(optimizer), StepGraph(True)
    data, given = (
        batches(24),
        {"valid": batches(2), "val_check_interval": 10, "deterministic": True},
    )
    got, right = (
        fit(one, data, how, **given)[1] for one, how in ((ours, graph), (theirs, Launched()))
    )
    assert graph.num_replayed == 24 - step_graph.WARM_UP
    assert got == right
    assert same_weights(ours, theirs)
    assert ours.tokens_by_task() == theirs.tokens_by_task()


@needs_cuda
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_compiled_and_replayed_trainings_on_a_gpu_have_the_losses_of_a_plain_one():
    check_losses(lambda: StepGraph(True), device="cuda", backend="inductor", rel=5e-3)


@needs_cuda
def test_batches_of_other_shapes_are_launched_between_replays():
    data = [*batches(8), *batches(1, n=5), *batches(8), *batches(1, n=7)]
    ours, theirs, graph = module(), module(), StepGraph(True)
    got, right = (
        fit(one, data, how, deterministic=True)[1]
        for one, how in ((ours, graph), (theirs, Launched()))
    )
    assert graph.num_replayed == 16 - step_graph.WARM_UP
    assert got == right


@needs_cuda
def test_a_resumed_training_replays_to_the_same_bits(tmp_path):
    data, whole = batches(12), module()
    fit(whole, data, StepGraph(True), epochs=2, deterministic=True)
    trainer, _ = fit(module(), data, StepGraph(True), epochs=1, deterministic=True)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed, graph = module(), StepGraph(True)
    fit(resumed, data, graph, epochs=2, checkpoint=tmp_path / "half.ckpt", deterministic=True)
    assert graph.num_replayed == 12 - step_graph.WARM_UP
    assert same_weights(resumed, whole)


@needs_cuda
def test_a_replayed_step_that_is_not_finite_is_skipped_and_named():
    data = batches(20)

    def poison(step):
        def hook(model, args, output):
            return output + torch.where(args[0].content[0, 0] == 6, float("nan"), 0.0)

        one = module(skip_nonfinite=step)
        one.model.register_forward_hook(hook)
        return one

    for batch, _ in data:
        batch.content[0, 0] = 3
    data[15][0].content[0, 0] = 6
    allowed = poison(1)
    fit(allowed, data, StepGraph(True))
    assert allowed.num_skipped == 1
    assert all(bool(x.isfinite().all()) for x in allowed.model.state_dict().values())
    with pytest.raises(DivergedError, match="in step 15"):
        fit(poison(0), data, StepGraph(True))


@needs_cuda
@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda model: float(next(model.parameters()).sum()), "each waits for the device"),
        (lambda model: torch.rand(1), "the CPU's random state changes in each"),
        # beside the callbacks of others, as here, each value is a kind of its own
        (lambda model: setattr(model, "calls", getattr(model, "calls", 0) + 1), "batches differ"),
    ],
)
def test_what_cannot_be_replayed_is_launched_and_said(caplog, work, said):
    one, graph = module(), StepGraph(True)
    one.model.register_forward_pre_hook(lambda model, _: work(model) and None)
    with caplog.at_level(logging.INFO, logger="seqkit"):
        fit(one, batches(20), graph)
    assert said in caplog.text
    assert graph.num_replayed == 0


@needs_cuda
def test_after_a_capture_that_fails_the_training_goes_on(monkeypatch):
    monkeypatch.setattr(StepGraph, "_measure", lambda self, step: step() or "")
    ours, theirs, graph = module(), module(), StepGraph(True)
    for one in (ours, theirs):
        one.model.register_forward_pre_hook(
            lambda model, _: float(next(model.parameters()).sum()) and None
        )
    got, right = (
        fit(one, batches(9), how, deterministic=True)[1]
        for one, how in ((ours, graph), (theirs, Launched()))
    )
    assert graph.num_replayed == 0
    assert got == right
