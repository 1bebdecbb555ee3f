"""Comparisons in one process: cells are run where they are asked for, and one comparison is kept for all tests."""

from contextlib import contextmanager

import pytest
from matplotlib.figure import Figure

from seqkit.cli.main import main
from seqkit.comparison.cells import run_cell
from seqkit.comparison.workers import _attempt

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


class Here:
    """Stands in for `Workers`: cells are run one after the other in this process."""

    def __init__(self, number, root, threads, plugins=()):
        self.number, self.root, self.cells = number, root, []

    @property
    def num_idle(self):
        return self.number - len(self.cells)

    @property
    def running(self):
        return [cell.id for cell in self.cells]

    def submit(self, cell):
        self.cells.append(cell)

    def finished(self, timeout):
        assert self.cells, "no cell is ready"
        cell = self.cells.pop(0)
        return [(cell, _attempt(cell, self.root, run_cell))]

    def stop(self):
        self.cells = []


@contextmanager
def in_this_process():
    """Cells run here, what is measured is measured shortly, and figures are empty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqkit.comparison.workers.Workers", Here)
        patch.setattr("seqkit.comparison.cells.LENGTHS", (4, 8))
        patch.setattr(Figure, "savefig", lambda figure, file, *args, **settings: file.write("<svg></svg>"))
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
        assert main([*WORDS, "--latex", "--out", str(folder)]) == 0
    return folder
