"""A run as a trained model shows it in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqkit.report.learning_curves import loss_curve
from seqkit.report.templates import fill


def run_html(folder: Path, summary: dict[str, Any]) -> str:
    """A self-contained HTML fragment: metrics beside the baseline, parameters, seconds, and the loss curve as SVG.

    folder: of the run; without its metrics.csv there is no curve. summary: what `summary.json` says.
    """
    summary = {"baseline": {}, "state": "finished"} | summary
    return fill("notebook.html", summary=summary, curve=loss_curve(folder, summary))
