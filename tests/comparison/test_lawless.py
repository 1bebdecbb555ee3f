"""A candidate that breaks a law is refused by its name before the first run, or compared with no other."""

from pathlib import Path

import pytest

from seqkit import compare
from seqkit.cli.main import main
from seqkit.comparison.results import read_results
from seqkit.errors import UsageError

PLUGIN = Path(__file__).parents[1] / "runs" / "lawless_backbones.py"
TEXT = "to be, or not to be, that is the question: a sea of troubles, and by opposing end them. "


@pytest.fixture
def words(tmp_path):
    """A small comparison of a sound backbone and one that adds the next token."""
    (tmp_path / "text.txt").write_text(TEXT * 40)
    return ["compare", "text/char-lm", "--preset", "debug", "--plugin", str(PLUGIN), "--backbones",
            "ReadsThePast,AddsTheNext", "--data", str(tmp_path / "text.txt"), "--data.window", "40", "--seeds", "2",
            "--lr-trials", "0", "--no-depths", "--no-measure", "--threads", "1", "--optimizer", "AdamW",
            "--trainer.max_steps", "60", "--data.limit", "1000", "--out", str(tmp_path / "c")]  # fmt: skip


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_it_is_refused_before_anything_runs(words, tmp_path, capsys, more):
    assert main([*words, *more]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    start = "seqkit compare: AddsTheNext: AddsTheNext breaks the law that no token attends to the future"
    assert line.startswith(start)
    assert "--allow-broken-laws" in line
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_python_refuses_it_as_well(words, tmp_path):
    given = {"data": str(tmp_path / "text.txt"), "data.window": 40}
    with pytest.raises(UsageError, match="AddsTheNext breaks the law"):
        compare("text/char-lm", ["ReadsThePast", "AddsTheNext"], overrides=given, preset="debug",
                out=tmp_path / "c", plugins=[str(PLUGIN)], lr_trials=0)  # fmt: skip
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_each_candidate_is_examined_once_and_no_run_again(words, here, monkeypatch, capsys):
    seen = []

    def faults(model, objective, examples):
        seen.append(type(model.backbone).__name__)
        return []

    monkeypatch.setattr("seqkit.comparison.candidates.faults", faults)
    monkeypatch.setattr("seqkit.runs.examined.model.faults", faults)
    monkeypatch.setattr("seqkit.runs.examined.model.grown", lambda prepared: [])
    assert main(words) == 0
    assert seen == ["ReadsThePast", "AddsTheNext"]


@pytest.mark.slow
def test_one_that_is_allowed_is_never_better(words, here, tmp_path, capsys):
    assert main([*words, "--allow-broken-laws"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    folder = tmp_path / "c"
    page = " ".join((folder / "report.html").read_text().split())
    markdown = " ".join((folder / "results.md").read_text().split())
    for text in (said, page, markdown):
        assert "Only ReadsThePast keeps every law" in text
        assert "AddsTheNext is compared with no other, as it breaks the law" in text
        assert "AddsTheNext is better" not in text
    assert (
        "AddsTheNext breaks the law"
        in (folder / "runs" / "AddsTheNext" / "seed-1" / "log.txt").read_text()
    )
    runs = [str(folder / "runs" / name / "seed-1") for name in ("ReadsThePast", "AddsTheNext")]
    assert main(["compare", *runs, "--out", str(tmp_path / "both")]) == 0
    assert "is compared with no other, as it breaks" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_one_whose_leak_has_grown_is_compared_with_none(words, here, tmp_path):
    """The second candidate's gate is shut before training, and its training opens it at once."""
    plugin = (tmp_path / "gate.py").resolve()
    plugin.write_text(GATE, encoding="utf-8")
    place = words.index("--backbones")
    given = [*words[: place + 1], "GRU,Gate", *words[place + 2 :], "--plugin", str(plugin)]
    assert main([*given, "--out", str(tmp_path / "grown")]) == 0
    results = read_results(tmp_path / "grown" / "results.json")
    assert results.by_name["GRU"].broken == []
    line, *_ = results.by_name["Gate"].broken
    assert "no token attends to the future" in line
    assert line.endswith(" after training")


GATE = """
import torch
from torch.nn.functional import pad
from seqkit import register
from seqkit.backbones import GRU

@register("backbone")
class Gate(GRU):
    def __init__(self, dim: int, depth: int = 1, *, causal: bool = True):
        super().__init__(dim, depth, causal=causal)
        self.register_buffer("open", torch.zeros(()))

    def forward(self, embedded, cache=None):
        if torch.is_grad_enabled() and self.training:  # a step, and no examination
            self.open.fill_(1.0)
        hidden = super().forward(embedded, cache)
        return hidden + self.open * pad(hidden, [0, 0, 0, 1])[:, 1:] * embedded.valid[..., None]
"""
