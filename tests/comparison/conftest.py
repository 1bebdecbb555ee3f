"""Comparisons in one process: cells are run where they are asked for, and one comparison is kept for all tests."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure

from seqkit.cli.main import main
from seqkit.comparison.execute import Executor, result_path, run_attempt
from seqkit.files import write_json

SMALL = {
    "preset": "debug",
    "overrides": {"data.limit": 40, "data.augment": None, "optimizer": "AdamW", "trainer.max_steps": 4,
                  "trainer.max_epochs": None, "model.backbone.dim": 16, "model.backbone.depth": 1},
    "lr_trials": 0,
    "seeds": 1,
    "depths": False,
    "measure": False,
    "threads": 1,
}  # fmt: skip
"""Arguments of `seqkit.compare` for a comparison that takes a few seconds."""


@contextmanager
def in_this_process():
    """Cells run here, what is measured is measured shortly, and figures are empty."""

    def process(executor, cell):
        def start():
            write_json(
                result_path(executor.folder, cell.id), run_attempt(cell, executor.folder).to_json()
            )

        return SimpleNamespace(
            start=start, join=lambda: None, kill=lambda: None, sentinel=hash(cell.id), exitcode=0
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "_process", process)
        patch.setattr("seqkit.comparison.execute.wait", lambda sentinels, timeout: sentinels)
        patch.setattr("seqkit.analysis.speed.NUM_ROUNDS", 1)
        patch.setattr("seqkit.comparison.cells.LENGTHS", (4, 8))
        patch.setattr(
            Figure, "savefig", lambda figure, file, *args, **settings: file.write("<svg></svg>")
        )
        yield


@pytest.fixture
def here():
    with in_this_process():
        yield


WORDS = ["compare", "image/digits", "--preset", "debug", "--backbones", "LSTM,GRU", "--lr-trials", "1", "--seeds", "2",
         "--threads", "1", "--data.limit", "40", "--data.augment", "null", "--trainer.max_steps", "4",
         "--trainer.max_epochs", "null", "--optimizer", "AdamW", "--no-depths", "--model.backbone.dim", "16",
         "--model.backbone.depth", "1"]  # fmt: skip
"""The command of the kept comparison."""


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """Folder of the comparison of WORDS, which is not to be changed."""
    folder = tmp_path_factory.mktemp("kept") / "c"
    with in_this_process():
        assert main([*WORDS, "--out", str(folder)]) == 0
    return folder
