import json

from seqkit.report import page
from seqkit.report.page import write_report


def test_a_task_of_a_mixture_is_evaluated_and_drawn_once(trained, tmp_path, monkeypatch, undrawn):
    tasks = {kind: trained(kind) for kind in ("classify", "regress")}
    collected, collect = [], page._collect
    monkeypatch.setattr(page, "task_folders", lambda folder: tasks if folder == tmp_path else {})
    monkeypatch.setattr(page, "_collect", lambda folder: collected.append(folder) or collect(folder))
    summary = json.loads((tasks["classify"] / "summary.json").read_text(encoding="utf-8"))
    (tmp_path / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert collected == list(tasks.values())
    assert "Confusion matrix" in text
    assert "Predictions and targets" in text
    assert all("· 2 tasks" not in (folder / "report.html").read_text(encoding="utf-8") for folder in tasks.values())
