"""Small finished runs to report on: each objective once, trained for two steps."""

import json
import warnings
import wave

import numpy as np
import pytest
from chromium import Chromium, find_chromium
from matplotlib.figure import Figure


def config(folder, kind):
    """A recipe of that kind, as plain data."""
    (folder / "text.txt").write_text(
        "To be, or not to be: that is the question.\n" * 37, encoding="utf-8"
    )
    rows = "\n".join(f"{'C' * n}O,{n}.5" for n in range(1, 12))
    (folder / "molecules.csv").write_text(f"smiles,target\n{rows}\n", encoding="utf-8")
    windows = [
        {"series": [n * t % 7 + 0.5 for t in range(13)], "h1": n % 5, "h2": n % 3}
        for n in range(41)
    ]
    (folder / "windows.jsonl").write_text("\n".join(map(json.dumps, windows)), encoding="utf-8")
    digits, patches = {"source": "digits", "limit": 37}, {"type": "Patches", "patch": 4}
    text = {"source": {"type": "TextFiles", "path": str(folder / "text.txt")}, "window": 17}
    table = {"source": {"type": "Table", "path": str(folder / "molecules.csv")}}
    ahead = {
        "source": {"type": "Table", "path": str(folder / "windows.jsonl"), "target": ["h1", "h2"]}
    }
    sounds = {
        "source": {"type": "AudioFolder", "path": str(_sounds(folder / "sounds"))},
        "valid_fraction": 0.0,
    }
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    pairs = {
        "source": {"type": "Pairs", "parts": {"image": "digits"}, "words": {"word": words}},
        "limit": 37,
    }
    joined = {"type": "Join", "parts": {"image": patches, "word": "Bytes"}}
    data, tokenizer, objective = {
        "sounds": (sounds, {"type": "LogMel", "sample_rate": 8000, "num_mels": 13}, "Classify"),
        "retrieval": (pairs, joined, {"type": "Contrastive", "parts": ["image", "word"], "dim": 8}),
        "classify": (digits, patches, "Classify"),
        "masked vectors": (digits, patches, "Masked"),
        "masked ids": (text, "Characters", "Masked"),
        "next token": (text, "Characters", "NextToken"),
        "regress": (table, "Molecule", "Regress"),
        "forecast": (ahead, "Series", {"type": "Regress", "forecast": True}),
        "nodes": (
            {"source": "karate", "valid_fraction": 0.0},
            {"type": "Graph", "num_categories": 34},
            {"type": "Classify", "level": "token"},
        ),
    }[kind]
    backbone = {
        "type": "Transformer",
        "dim": 8,
        "depth": 1,
        "num_heads": 2,
        "causal": kind == "next token",
    }
    return {
        "recipe": f"test/{kind.replace(' ', '-')}",
        "data": data | {"batch_size": 11},
        "tokenizer": tokenizer,
        "model": {"objective": objective, "backbone": backbone},
        "trainer": {
            "max_steps": 2, "accelerator": "cpu", "enable_progress_bar": False, "log_every_n_steps": 1,
            "val_check_interval": 1,
        },
    }  # fmt: skip


def _sounds(folder):
    """A folder of noises by class; the longest has five seconds."""
    draws = np.random.default_rng(0)
    for name in ("high noise", "low noise"):
        (folder / name).mkdir(parents=True)
        for i in range(7):
            noise = draws.normal(scale=0.1, size=8000 * (5 if i == 3 else 1))
            noise = np.convolve(noise, np.ones(9) / 9) if name == "low noise" else noise
            with wave.open(str(folder / name / f"{i}.wav"), "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes((32767 * noise).clip(-32768, 32767).astype("<i2").tobytes())
    return folder


@pytest.fixture(name="config", scope="session")
def _config():
    """(folder, kind) → a recipe whose data stand in that folder."""
    return config


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """kind → the folder of a finished run of that kind; trained when first asked for, and not to be changed."""
    from seqkit.config import complete
    from seqkit.report.beside import Scored
    from seqkit.runs.run import run

    runs = {}

    def train(kind):
        if kind not in runs:
            place = tmp_path_factory.mktemp("run")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Lightning's advice on workers, loops and folders
                run(complete(config(place, kind)), place / "run", scorer=Scored)
            runs[kind] = place / "run"
        return runs[kind]

    return train


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are made and not drawn, which is most of the time that a page takes."""
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, file, *args, **settings: file.write("<svg></svg>")
    )


@pytest.fixture(scope="session")
def reported(trained):
    """kind → the text of that run's report, written once."""
    from seqkit.report.page import write_report

    pages = {}

    def page(kind):
        if kind not in pages:
            pages[kind] = write_report(trained(kind)).read_text(encoding="utf-8")
        return pages[kind]

    return page


@pytest.fixture(scope="module")
def browser():
    """One Chromium for the tests of a module, which skip where none starts."""
    if find_chromium() is None:
        pytest.skip("no chromium or google-chrome on this machine")
    try:
        with Chromium() as chromium:
            yield chromium
    except EOFError as error:
        pytest.skip(f"Chromium does not start on this machine: {error}")
