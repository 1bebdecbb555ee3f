"""Norms of gradients by layer, as a callback logs them."""

import csv

import pytest

from seqkit.config import complete
from seqkit.runs.run import run
from seqkit.training.health import GradientNorms, total_norm

WORDS = {
    "data.augment": None, "data.limit": 40, "data.batch_size": 8, "model.backbone.dim": 16, "model.backbone.depth": 1,
    "model.backbone.num_heads": 2, "trainer.max_epochs": 2,
    "trainer.enable_progress_bar": False, "trainer.accelerator": "cpu", "trainer.log_every_n_steps": 1,
}  # fmt: skip


def config(**words):
    return complete(
        "image/digits",
        "debug",
        WORDS | {name.replace("__", "."): value for name, value in words.items()},
    )


def test_the_norm_of_nothing_is_zero():
    assert total_norm({}) == 0.0


@pytest.mark.parametrize("accumulate", [1, 2])
def test_norms_by_layer_add_up_to_the_norm_of_the_gradient(tmp_path, accumulate):
    callback = {"type": "GradientNorms", "every_n_steps": 2}
    run(
        config(trainer__callbacks=[callback], trainer__accumulate_grad_batches=accumulate),
        tmp_path / "run",
    )
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    layers = [name for name in rows[0] if name.startswith("grad_norm/")]
    assert "grad_norm/backbone.blocks.0" in layers
    wholes = {row["step"]: float(row["train/grad_norm"]) for row in rows if row["train/grad_norm"]}
    logged = [row for row in rows if row[layers[0]]]
    assert len(logged) >= 2
    for row in logged:
        assert sum(float(row[name]) ** 2 for name in layers) ** 0.5 == pytest.approx(
            wholes[row["step"]], rel=1e-4
        )


def test_an_interval_of_no_step_is_refused():
    with pytest.raises(ValueError, match="every_n_steps is 0"):
        GradientNorms(every_n_steps=0)
