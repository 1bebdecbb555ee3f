"""The table of a comparison for a paper."""

import shutil
import subprocess

import pytest
from synthetic_results import HOSTILE, comparison, hostile

from seqkit.files import write_json
from seqkit.report.latex import escaped, latex_table, write_latex


def test_the_table_has_a_line_for_each_candidate_the_best_first():
    results = comparison(3, failed=(1,))
    transformer, _, gru = results["candidates"]
    transformer |= {"mean": 0.97, "std": 0.0025, "interval": [0.96, 0.98]}
    gru |= {"mean": 0.978, "std": 0.005, "interval": [0.971, 0.985], "parameters": 201_007}
    pair = {"a": "GRU", "b": "Transformer", "difference": 0.008, "interval": [0.001, 0.014], "p_holm": 0.0004}
    text = latex_table(results | {"differences": [pair]})
    rows = [line.strip() for line in text.splitlines() if line.endswith(r"\\")]
    assert rows[1] == r"GRU & 201,007 & 97.80 $\pm$ 0.50 & [97.10, 98.50] & +0.80 [+0.10, +1.40] & $<$ 0.001 \\"
    assert rows[2].endswith(r"97.00 $\pm$ 0.25 & [96.00, 98.00] & reference &  \\")
    assert rows[3].startswith("LSTM & ")
    assert "failed" in rows[3]
    assert {line.count("&") for line in rows} == {5}
    assert "3 seeds" in text


def test_it_names_its_package_has_a_label_and_counts_seeds_and_pairs_as_they_are():
    text = latex_table(comparison(3))
    assert text.startswith("% \\usepackage{booktabs} in the preamble\n")
    assert r"\label{tab:image-digits}" in text
    assert "p corrected for 3 pairs" in text
    one = latex_table(comparison(2, seeds=(1,)))
    assert "values of one seed each" in one
    assert "95 \\% intervals of the choice of test examples}" in one
    assert "1 pair" not in one


def test_letters_that_latex_takes_for_commands_are_shown():
    assert escaped("50 % & a_b #1 {x} $\\frac$ ~ ^") == (
        r"50 \% \& a\_b \#1 \{x\} \$\textbackslash{}frac\$ \textasciitilde{} \textasciicircum{}"
    )
    assert r"\frac" not in latex_table(hostile()).replace(r"\textbackslash{}frac", "")
    assert "\\frac" in HOSTILE


def test_it_is_written_beside_the_results(tmp_path):
    results = comparison(2)
    write_json(tmp_path / "results.json", results)
    assert write_latex(tmp_path, results).read_text(encoding="utf-8") == latex_table(results)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
def test_latex_takes_it(tmp_path):
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (tmp_path / "a.tex").write_text(f"{head}{latex_table(hostile())}\\end{{document}}", encoding="utf-8")
    subprocess.run(["pdflatex", "-halt-on-error", "a.tex"], cwd=tmp_path, check=True, capture_output=True)
