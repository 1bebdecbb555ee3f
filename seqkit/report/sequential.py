"""Words and the table of a comparison whose seeds stopped where they decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from seqkit.comparison.sequential import too_fine
from seqkit.comparison.settings import MIN_SEEDS
from seqkit.comparison.statistics import LEVEL
from seqkit.comparison.types import Difference, Results, Verdict
from seqkit.comparison.verdicts import doubts
from seqkit.report.numbers import listed, plural
from seqkit.report.table import Cell, Table

UNSETTLED = "not settled"
NONE = "not compared"


def verdict(pair: Difference) -> str:
    """The verdict on a candidate; no better and no worse where something could overturn it."""
    if pair.verdict in ("better", "worse") and pair.better is None:
        return UNSETTLED
    return pair.verdict or UNSETTLED


def conclusion(results: Results, names: Mapping[str, str]) -> str:
    """One sentence with the verdict on each candidate. names: of candidates, as they are shown."""
    words = {names[row.name]: NONE for row in results.candidates[1:]}
    words |= {names[pair.a]: verdict(pair) for pair in results.differences}
    found = []
    for word in (*get_args(Verdict), UNSETTLED, NONE):
        if those := [name for name, one in words.items() if one == word]:
            found.append(f"{listed(those)} {'is' if len(those) == 1 else 'are'} {word}")
    unit = results.metric.difference_unit
    margin = f"{results.until_sure:g} {unit.removesuffix('s') if results.until_sure == 1 else unit}"
    seeds = plural(len(results.seeds), "seed")
    reference = names[results.reference]
    known = [
        f"{names[pair.a]} is {_side(pair, results)} than {reference}, by more or less than that"
        for pair in results.differences
        if pair.verdict == "undecided" and _side(pair, results)
    ]
    told = "; ".join(found)
    said = f"Against {reference}, by a margin of {margin.rstrip()}, with up to {seeds}: {told}."
    return " ".join([said, *(f"{one}." for one in known)])


def _side(pair: Difference, results: Results) -> str:
    """On which side of zero the whole interval of a difference is; empty: on both, or it is in doubt."""
    low, high = sorted(results.metric.sign * bound for bound in pair.interval or (0, 0))
    if low <= 0 <= high or doubts(pair, results):
        return ""
    return "better" if low > 0 else "worse"


def verdicts(results: Results) -> Table:
    """Every candidate's verdict, the seeds that decided it, and its difference from the reference."""
    metric = results.metric
    rows = []
    for pair in results.differences:
        interval = metric.interval(pair.interval, signed=True)
        rows.append([
            Cell(pair.a), Cell(metric.signed(pair.difference), interval), Cell(verdict(pair)), Cell(str(pair.seeds)),
            Cell(metric.number(pair.of_examples)),
        ])  # fmt: skip
    unit = metric.difference_unit or metric.label
    difference = f"difference from {results.reference} ({unit})"
    return Table(["candidate", difference, "verdict", "seeds", "examples alone, ±"], rows)


def inference(results: Results) -> Iterator[str]:
    """Sentences on how verdicts were made, what their intervals cover, and what they may miss."""
    pairs = results.differences
    yield f"Each candidate was judged against {results.reference} after every seed, from {MIN_SEEDS} seeds on, and got"
    yield (
        "no more once it was decided. Numbers in brackets are 95 % intervals of differences that hold at all these "
        "rounds and for all candidates together (Wang and Ramdas 2024; Bonferroni). They cover the choice of seeds, "
        "which are paired, and of test examples, not the data split or the tuning. p-values, and intervals of a mean, "
        "need a number of seeds that is fixed beforehand, so there are none."
    )
    if told := too_fine(pairs, results.metric, results.until_sure or 0.0):
        yield f"{told}."
    if pairs:
        least = min(pair.seeds for pair in pairs)
        share = 100 * (1 - (1 - LEVEL) ** (1 / least))
        rate = f"of which up to {share:.0f} % fail"
        yield f"Runs that rarely fail to learn can be missed: {least} seeds without one may come of a candidate {rate}."
    yield "scores.npz has every score, to compute all of this again."
