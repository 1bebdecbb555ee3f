"""Planted faults as a plug-in, forgotten after each test; recipes as subjects."""

import sys
from pathlib import Path

import pytest

from seqkit.config import complete
from seqkit.doctor.subject import subject_of
from seqkit.recipes.text.shakespeare import Shakespeare
from seqkit.registry.plugins import import_plugins

FAULTS = Path(__file__).with_name("faults.py")


@pytest.fixture(autouse=True)
def _faults(monkeypatch):
    import_plugins([FAULTS])
    yield
    del sys.modules["faults"]


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """A file with the beginning of a play, which is read in a hundredth of the time of all of them."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(Shakespeare().splits().train[0].raw[:40_000], encoding="utf-8")
    return str(path)


@pytest.fixture
def subject(text):
    """(recipe, words of the command line) → the subject, in the recipe's small form."""

    def of(recipe, *words):
        more = {"text/char-lm": ["--data", text], "image/digits": ["--data.augment", "null"]}
        return subject_of(complete(recipe, "debug", [*words, *more.get(recipe, [])]))

    return of


@pytest.fixture(autouse=True)
def _small_trials(monkeypatch):
    """Fewer steps on fewer examples: the loss has more noise, in which false findings are likelier."""
    monkeypatch.setattr("seqkit.doctor.subject.MAX_BATCH", 13)
    for name in ("subject", "training"):
        monkeypatch.setattr(f"seqkit.doctor.{name}.NUM_BATCHES", 20)
