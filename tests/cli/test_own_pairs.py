"""One sequence from another by two tokenizers of the user's own, given by flags: reactants → product."""

import json
import sys
from pathlib import Path

import pytest

from seqkit.cli.main import main
from seqkit.report.page import write_report

PLUGIN = '''
import torch
from seqkit import DataError, Tokenizer, Tokens, TokenSpec, register


@register("tokenizer", "Reactants")
class Reactants(Tokenizer):
    spec = TokenSpec(num_features=4)

    def encode(self, raw, /):
        rows = [[float(letter == one) for one in "CNO."] for letter in raw]
        return Tokens(torch.tensor(rows), torch.arange(float(len(raw)))[:, None])


@register("tokenizer", "Spectrum")
class Spectrum(Reactants):
    def read(self, path):
        return path.read_text()


@register("tokenizer", "Product")
class Product(Tokenizer):
    """Its spec is known before `fit`, which it needs all the same."""

    spec = TokenSpec(vocab_size=3)
    letters = ""

    def fit(self, raws):
        self.letters = "".join(sorted(set().union(*raws)))[:3]

    def state(self):
        return {"letters": self.letters}

    def load_state(self, state):
        self.letters = state["letters"]

    def encode(self, raw, /):
        ids = {letter: i for i, letter in enumerate(self.letters)}
        return Tokens(torch.tensor([ids[letter] for letter in raw]), torch.arange(float(len(raw)))[:, None])

    def decode(self, tokens):
        return "".join(self.letters[int(i)] for i in getattr(tokens, "content", tokens))


@register("tokenizer", "Mute")
class Mute(Product):
    def decode(self, tokens):
        return {}[0]
'''
QUIET = ["--preset", "debug", "--trainer.enable_progress_bar", "false", "--trainer.max_steps", "2"]
TWO = ["--tokenizer", "Reactants", "--model.objective.target", "Product"]
COLUMNS = ["--data.input", "reactants", "--data.target", "product"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with the plug-in and a table; what registers is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pair.py").write_text(PLUGIN)
    table()
    yield tmp_path
    sys.modules.pop("pair", None)


def table(*more):
    rows = [
        f"{i % 7},{'CNO'[i % 3] * (1 + i % 5)}.{'ON'[i % 2]},{'CNO'[i % 3] * (1 + i % 5)}"
        for i in range(40)
    ]
    Path("pairs.csv").write_text("\n".join(["yield,reactants,product", *rows, *more]))


def fit(*words, data="pairs.csv"):
    return main(["fit", "text/translate", "--plugin", "pair.py", "--data", data, *QUIET, *words])


@pytest.mark.slow
def test_two_tokenizers_and_two_columns_by_flags_train_and_predict(place, capsys):
    assert fit(*TWO, *COLUMNS, "--out", "run") == 0
    state = json.loads((place / "run" / "state.json").read_text())
    assert state["objective"]["target"] == {"letters": "CNO"}, (
        "a tokenizer that has fit is fitted, whatever its spec"
    )
    capsys.readouterr()
    assert main(["predict", "run", "CC.O", "--plugin", "pair.py"]) == 0
    given, _, product = capsys.readouterr().out.rstrip("\n").partition("\t")
    assert given == "CC.O"
    assert set(product) <= set("CNO")
    assert main(["predict", "run", "pairs.csv", "--plugin", "pair.py", "--format", "jsonl"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 40


@pytest.mark.slow
def test_the_source_may_be_a_file_of_its_own_format(place, capsys):
    for i in range(20):
        (place / f"{i}.mol").write_text("CNO"[i % 3] * (1 + i % 4))
    (place / "files.csv").write_text(
        "\n".join(["file,answer", *(f"{i}.mol,{'CNO' * (1 + i)}" for i in range(20))])
    )
    assert fit("--tokenizer", "Spectrum", *TWO[2:], "--out", "run", data="files.csv") == 0
    assert main(["predict", "run", "3.mol", "--plugin", "pair.py"]) == 0


@pytest.mark.slow
def test_what_a_target_cannot_be_is_one_line(place, capsys, monkeypatch):
    # which decodes predictions
    monkeypatch.setattr("seqkit.report.page.write_report", write_report)

    def refused(code, *words):
        assert fit(*words, *COLUMNS) == code
        return capsys.readouterr().err.strip().splitlines()[-1]

    assert "Reactants has no decode(ids)" in refused(2, *TWO[:3], "Reactants")
    assert "did you mean Product" in refused(2, *TWO[:3], "Prodct")
    assert "Mute.decode raised KeyError" in refused(3, *TWO[:3], "Mute")
    table("1,CC.X,CCX")
    assert "target 'CCX': Product.encode raised KeyError" in refused(
        3, *TWO, "--data.test_fraction", "0.03"
    )
