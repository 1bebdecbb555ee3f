"""A candidate that breaks a law is refused by its name before the first run, or compared with no other."""

from pathlib import Path

import pytest

from seqkit import compare
from seqkit.cli.main import main
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
