"""The table of a comparison for a paper, with the lines of the LaTeX package booktabs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqkit.comparison.types import Metric
from seqkit.errors import one_line
from seqkit.files import write_atomic
from seqkit.report.numbers import MINUS, count, p_value
from seqkit.report.ranking import budget_remarks, difference_of, ranked, values_are

MARKS = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", MINUS: "$-$", "±": r"$\pm$",
    "×": r"$\times$", "–": "--", "<": "$<$", ">": "$>$", "−": "$-$", **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}  # fmt: skip
"""Letters that LaTeX takes for something else, and those that older fonts lack."""


def write_latex(folder: Path, results: Mapping[str, Any]) -> Path:
    """Write results.tex: candidates with mean ± standard deviation, interval, and the difference to the reference."""
    path = folder / "results.tex"
    write_atomic(path, latex_table(results).encode())
    return path


def latex_table(results: Mapping[str, Any]) -> str:
    """A `table` environment; its caption says what the numbers are."""
    metric, reference = Metric.from_json(results["metric"]), results["reference"]
    lines = []
    for row in (row for group in ranked(results) for row in group.rows):
        own, entry = row.result, difference_of(results, row.label, reference) or {}
        cells = [row.label, count(own.get("parameters"))]
        if row.rank is None:
            cells += ["failed", "", "", ""]
        else:
            change = [metric.signed(row.difference), metric.interval(row.interval, signed=True)]
            cells += [metric.mean(own["mean"], own.get("std")), metric.interval(own.get("interval"))]
            cells += ["reference", ""] if row.is_reference else [" ".join(filter(None, change)), p_value(entry)]
        lines.append(" & ".join(map(escaped, cells)) + r" \\")
    pairs, num_test = len(results["differences"]), results["num_test"]
    values = values_are(results)
    is_spread = values.startswith("mean")
    caption = (
        f"{results['recipe']}: {values if is_spread else f'values {values}'}, "
        f"{count(num_test)} test example{'s' * (num_test != 1)}, 95 % intervals of "
        f"{'crossed random effects of seeds and examples' if is_spread else 'the choice of test examples'}"
    )
    caption += f", p corrected for {pairs} pairs (Holm)" if pairs > 1 else ""
    caption += "".join(f"; {remark}" for remark in budget_remarks(results["candidates"]))
    head = ["", "parameters", metric.title, "95 % interval", f"to {reference}", "p"]
    return "\n".join(
        [
            r"% \usepackage{booktabs} in the preamble",
            r"\begin{table}",
            r"\centering",
            r"\begin{tabular}{lrrrrr}",
            r"\toprule",
            " & ".join(map(escaped, head)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{escaped(caption)}}}",
            rf"\label{{tab:{re.sub('[^a-z0-9]+', '-', results['recipe'].lower()).strip('-')}}}",
            r"\end{table}",
            "",
        ]
    )


def escaped(text: str) -> str:
    """Text in one line that LaTeX shows as it is."""
    return "".join(MARKS.get(letter, letter) for letter in one_line(text))
