"""Training on a CUDA device: what is chosen by default, what skips a step, and that no step waits."""

import math

import pytest
import pytorch_lightning as pl
import torch
from runs.stopping import TEXT, with_callback
from torch.testing import assert_close

from seqkit.config import complete
from seqkit.errors import DivergedError
from seqkit.files import read_mapping
from seqkit.runs.mixture import load
from seqkit.runs.run import run

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("default"),
]
WORDS = {
    "data.batch_size": 4, "trainer.max_steps": 9, "trainer.max_epochs": -1, "trainer.log_every_n_steps": 100,
    "trainer.val_check_interval": None, "optimizer": {"type": "AdamW", "lr": 0.01}, "trainer.gradient_clip_val": 1.0,
}  # fmt: skip
DATA = {
    "text/char-lm": {"data.source": "text.txt", "data.window": 16},
    "text/classify": {"data.source": "texts.csv"},
    "image/digits": {"data.source": "digits", "data.augment": None},
    "graph/karate": {"data.batch_size": 1},
    "mechanism/tasks": {},
}
"""Recipes of tokens in windows, of different lengths, of numbers and with edges; their data is at hand everywhere."""


def trained(folder, callback, recipe="text/char-lm", **words):
    """Weights after a short training, by name."""
    given = WORDS | DATA[recipe] | words
    if source := {"text.txt": TEXT, "texts.csv": TEXTS}.get(given.get("data.source")):
        folder.parent.mkdir(exist_ok=True)
        path = folder.parent / given.pop("data.source")
        path.write_text(source, encoding="utf-8")
        given["data"] = str(path)
    with with_callback(callback):
        run(complete(recipe, "debug", given), folder)
    return load(folder).model.state_dict()


TEXTS = "text,label\n" + "".join(f"{'ab cd ' * (i % 11 + 1)},{'xyz'[i % 3]}\n" for i in range(80))


class NoWaiting(pl.Callback):
    """Makes torch raise where the host waits for the device, from the end of step 3 to the end of step 8."""

    def on_train_batch_end(self, trainer, module, *_):
        if trainer.global_step in (3, 8):
            torch.cuda.set_sync_debug_mode("error" if trainer.global_step == 3 else "default")

    def on_exception(self, *_):
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("recipe", DATA)
def test_no_step_waits_for_the_device(recipe, tmp_path):
    trained(tmp_path / "run", NoWaiting(), recipe)
    assert read_mapping(tmp_path / "run" / "config.yaml")["trainer"]["precision"] == "bf16-mixed"


class Poison(pl.Callback):
    """Makes the gradient of some steps nan, and notes the learning rates."""

    def __init__(self, *steps):
        self.steps, self.rates = steps, []

    def on_train_start(self, trainer, module):
        weight = next(module.model.backbone.parameters())
        weight.register_hook(lambda g: g * math.nan if trainer.global_step in self.steps else g)

    def on_before_optimizer_step(self, trainer, module, optimizer):
        self.rates.append(float(optimizer.param_groups[0]["lr"]))


@pytest.mark.parametrize("optimizer", ["AdamW", "Muon"])
def test_a_step_that_is_not_finite_changes_nothing_and_is_named_a_step_later(optimizer, tmp_path):
    words = {
        "trainer.max_steps": 1,
        "trainer.precision": "32-true",
        "optimizer": {"type": optimizer, "lr": 0.01},
    }
    right = trained(tmp_path / "right", Poison(), **words)
    poison = Poison(1, 2)
    got = trained(
        tmp_path / "got", poison, **words | {"trainer.max_steps": 3, "trainer.skip_nonfinite": 2}
    )
    for name, weight in right.items():
        # one step of Muon moves a weight by 0.02; its bfloat16 rounds gradients, whose sums have no fixed order
        assert_close(
            got[name], weight, rtol=0, atol=1e-6 if optimizer == "AdamW" else 2e-3, msg=name
        )
    assert poison.rates[1] == poison.rates[2] != poison.rates[0]
    assert read_mapping(tmp_path / "got" / "summary.json")["skipped_steps"] == 2
    with pytest.raises(DivergedError, match=r"nan in step 5 \(epoch \d, batch \d: "):
        trained(tmp_path / "diverged", Poison(5), **words | {"trainer.max_steps": 9})


@pytest.mark.slow
@pytest.mark.parametrize("recipe", DATA)
def test_a_compiled_training_ends_near_a_plain_one(recipe, tmp_path):
    words = {"trainer.precision": "32-true", "optimizer": {"type": "torch.optim.SGD", "lr": 0.05}}
    words |= {"model.dropout": 0.0}  # the compiler draws other random numbers
    one, other = (
        trained(tmp_path / str(on), pl.Callback(), recipe, **words | {"trainer.compile": on})
        for on in (True, False)
    )
    for name, weight in one.items():
        assert_close(weight, other[name], rtol=1e-3, atol=1e-4, msg=name)
