"""Which candidate of a pair is better, and what could overturn that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seqkit.comparison.statistics import LEVEL
from seqkit.comparison.types import Difference, Results, Row


def with_verdicts(results: Results) -> Results:
    """Results with the better candidate of each difference.

    A candidate is better if the corrected p-value is below 5 % (or if that was decided after some seed), both have
    several seeds (one seed says nothing about others), the difference is larger than `least`, and nothing could
    overturn the verdict (`doubts`).
    """
    rows = results.by_name

    def judged(entry: Difference) -> Difference:
        size = round(results.metric.shown(abs(entry.difference)), results.metric.digits)
        is_large = size > results.least
        seeds = min(len(rows[name].sound) for name in (entry.a, entry.b))
        if entry.verdict is not None:
            is_told = entry.verdict in ("better", "worse")
        else:
            is_told = entry.p_holm is not None and entry.p_holm < 1 - LEVEL
        if not is_told or not is_large or seeds < 2:
            return replace(entry, better=None)
        if (entry.difference > 0) == results.metric.higher_is_better:
            winner = entry.a
        else:
            winner = entry.b
        return replace(
            entry, better=None if doubts(replace(entry, better=winner), results) else winner
        )

    return replace(results, differences=[judged(entry) for entry in results.differences])


def doubts(pair: Difference, results: Results) -> list[str]:
    """Sentences on what could overturn a verdict.

    A candidate that breaks a law is compared with nothing, and a score may be too good to be true.
    The worse candidate's best learning rate may be the last one tried, so that a better one may lie beyond. Seeds of
    the better candidate may have failed, so that its mean leaves out its worst runs. Without a verdict, both apply to
    both.
    """
    rows = results.by_name
    known = [rows[pair.a], rows[pair.b]]
    found = [breaks_law(row) for row in known if row.broken]
    found += [f"{row.name}: {why}." for row in known if (why := too_good(results, row))]
    found += [remark for row in known if row.name != pair.better and (remark := rate_at_edge(row))]
    for row in known:
        if row.num_failed and pair.better in (None, row.name):
            number = f"{row.num_failed} of {len(row.runs)} seeds of {row.name}"
            found.append(f"{number} failed, so its mean leaves out its worst runs.")
    return found


def breaks_law(row: Row) -> str:
    """A sentence on a candidate that breaks a law."""
    return f"{row.name} is compared with no other, as {row.broken[0]}."


def too_good(results: Results, row: Row, others: Sequence[Row] = ()) -> str:
    """In words, why the score of a candidate is hardly possible beside those of others; empty: nothing says so."""
    strong = results.strong_baseline
    means = [other.mean for other in others if other is not row]
    return results.metric.too_good(row.mean, strong.value if strong else None, means)


def rate_at_edge(row: Row) -> str | None:
    """A sentence if the chosen learning rate is the smallest or largest tried, so that a better one may lie beyond.

    Rates whose trial failed count as tried. All rates of an optimizer change together, so the first stands for them;
    those of another optimizer are on another scale.
    """
    key = next((key for key in row.chosen if key.rpartition(".")[2] == "lr"), "")
    kind = row.chosen.get("optimizer.type")
    own = [t for t in row.trials if key in t.values and t.values.get("optimizer.type") == kind]
    tried = sorted({t.values[key] for t in own})
    chosen = row.chosen.get(key)
    if len(tried) == 1:
        return f"{row.name} tried only one learning rate, {chosen:g}."
    if not tried or chosen not in (tried[0], tried[-1]):
        return None
    side = "smallest" if chosen == tried[0] else "largest"
    between = f"{len(tried)} tried ({tried[0]:g} to {tried[-1]:g})"
    return f"{row.name} chose the learning rate {chosen:g}, the {side} of {between}. A better one may lie beyond."
