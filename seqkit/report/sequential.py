"""Words and the table of a comparison whose seeds stopped where they decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seqkit.comparison.sequential import too_fine
from seqkit.comparison.settings import MIN_SEEDS
from seqkit.comparison.statistics import LEVEL
from seqkit.comparison.types import Difference, Results
from seqkit.report.numbers import listed, plural
from seqkit.report.table import Cell, Table

UNSETTLED = "not settled"


def verdict(results: Results, pair: Difference) -> str:
    """The verdict on a candidate; no better and no worse where something could overturn it."""
    rows = results.by_name
    if rows[pair.a].broken or rows[pair.b].broken:
        return "not compared"
    if pair.verdict in ("better", "worse") and pair.better is None:
        return UNSETTLED
    return pair.verdict or UNSETTLED


def conclusion(results: Results, names: Mapping[str, str]) -> str:
    """One sentence with the verdicts, and the candidates that each is on. names: of candidates, as they are shown."""
    reference = names[results.reference]
    unit = results.metric.difference_unit
    margin = f"{results.until_sure:g} {unit.removesuffix('s') if results.until_sure == 1 else unit}"
    openings = {
        "better": f"better than {reference} by more than {margin}",
        "worse": f"worse than {reference} by more than {margin}",
        "equal": f"equal to {reference} within {margin}",
        UNSETTLED: f"apart from {reference} by the numbers, but not settled",
        "too few examples": f"too near to the margin for {results.num_test:,} test examples",
        "undecided": f"undecided after {plural(len(results.seeds), 'seed')}",
        "not compared": f"not compared, with fewer than {MIN_SEEDS} common seeds or a broken law",
    }
    words = dict.fromkeys((row.name for row in results.candidates[1:]), "not compared")
    words |= {pair.a: verdict(results, pair) for pair in results.differences}
    found = []
    for word, opening in openings.items():
        if those := [names[name] for name, one in words.items() if one == word]:
            found.append(f"{opening.rstrip()}: {listed(those)}")
    text = "; ".join(found)
    return f"{text[0].upper()}{text[1:]}."


def verdicts(results: Results) -> Table:
    """Every candidate's verdict, the seeds that decided it, and its difference from the reference."""
    metric = results.metric
    rows = []
    for pair in results.differences:
        rows.append([Cell(text) for text in (
            pair.a, verdict(results, pair), str(pair.seeds), metric.signed(pair.difference),
            metric.interval(pair.interval, signed=True), metric.number(pair.of_examples),
        )])  # fmt: skip
    unit = metric.difference_unit or metric.label
    difference = f"difference from {results.reference} ({unit})"
    return Table(
        ["candidate", "verdict", "seeds", difference, "95 % interval", "examples alone, ±"], rows
    )


def inference(results: Results) -> str:
    """Sentences on how verdicts were made, what their intervals cover, and what they may miss."""
    return " ".join(_inference(results))


def _inference(results: Results) -> Iterator[str]:
    pairs = results.differences
    yield (
        f"Each candidate was judged against {results.reference} after every seed, from {MIN_SEEDS} seeds on, and got "
        "no more once it was decided. Numbers in brackets are 95 % intervals of differences that hold at all these "
        f"rounds and for {plural(len(results.candidates) - 1, 'pair')} together (Wang and Ramdas 2024; Bonferroni). "
        "They cover the choice of seeds, which are paired, and of test examples, not the data split or the tuning. "
        "p-values, and intervals of a mean, need a number of seeds that is fixed beforehand, so there are none."
    )
    if told := too_fine(pairs, results.metric, results.until_sure or 0.0):
        yield f"{told}."
    if used := [pair.seeds for pair in pairs]:
        share = 100 * (1 - (1 - LEVEL) ** (1 / min(used)))
        yield (
            f"Runs that rarely fail to learn can be missed: {plural(min(used), 'seed')} without one may come of a "
            f"candidate of which up to {share:.0f} % fail."
        )
    yield "scores.npz has every score, to compute all of this again."
