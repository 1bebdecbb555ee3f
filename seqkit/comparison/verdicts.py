"""Which candidate of a pair is better, and what could overturn that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from seqkit.comparison.candidates import HALVINGS, Sizes
from seqkit.comparison.seeds import ahead_of_all
from seqkit.comparison.statistics import LEVEL
from seqkit.comparison.types import Difference, Metric, Results, Row, Run
from seqkit.config.recipe import load_yaml

LEFT = 0.1
"""Share of the way from the best constant prediction to a perfect score from which a seed has left chance."""

EARLY = 0.05
"""A training loss that is logged within this share of the steps is that of the beginning."""


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

    A candidate that breaks a law is compared with nothing, a score may be too good to be true, and two candidates may
    compute the same function. The worse candidate's best learning rate or depth may be the last one tried, so that a
    better one may lie beyond. Seeds of the better candidate may have failed, so that its mean leaves out its worst
    runs. Without a verdict, both apply to both. Where p is not below 5 %, most seeds may still be ahead of all of the
    other's.
    """
    rows = results.by_name
    known = [rows[pair.a], rows[pair.b]]
    found = [breaks_law(row) for row in known if row.broken]
    found += [f"{row.name}: {why}." for row in known if (why := too_good(results, row))]
    if same := same_function(pair, results):
        found.append(same)
    for at_edge in (rate_at_edge, depth_at_edge):
        found += [told for row in known if row.name != pair.better and (told := at_edge(row))]
    for row in known:
        if row.num_failed and pair.better in (None, row.name):
            number = f"{row.num_failed} of {len(row.runs)} seeds of {row.name}"
            found.append(f"{number} failed, so its mean leaves out its worst runs.")
    is_apart = pair.p_holm is None or pair.p_holm < 1 - LEVEL
    if not is_apart and (told := ahead_of_all(known[0], known[1], results)):
        found.append(told)
    return found


def same_function(pair: Difference, results: Results) -> str:
    """A sentence if two candidates have equal scores and metrics to the last bit; empty where they do not."""
    rows = results.by_name
    one, other = ({run.seed: run.metrics for run in rows[name].sound} for name in (pair.a, pair.b))
    if not pair.identical or any(one[seed] != other[seed] for seed in one.keys() & other.keys()):
        return ""
    text = f"{pair.a} and {pair.b} have the same scores to the last bit, with every seed and test example"
    return f"{text}: they compute the same function, so probably a setting is ignored."


def untrained(row: Row, metric: Metric) -> str:
    """In words, why no seed of a candidate left chance; empty: one did, or nothing is known of it.

    Its mean is no better than the best constant prediction, within its interval (without one: a seed is not), and no
    seed goes a tenth of the way from there to a perfect score. Where no constant is known: the training loss of no
    seed fell.
    """
    if row.mean is None:
        return ""
    constant = row.constant
    if constant is None:
        is_flat = bool(row.sound) and all(map(_is_flat, row.sound))
        return "its training loss never fell" if is_flat else ""
    way = LEFT * abs(metric.perfect - constant)
    gained = [metric.sign * (run.value - constant) for run in row.sound if run.value is not None]
    bounds = [metric.sign * (bound - constant) for bound in row.interval or ()] or gained
    if min(bounds, default=0.0) > 0 or max(gained, default=0.0) > way:
        return ""
    best = metric.value(constant)
    if not metric.is_better(row.mean, constant):
        return (
            f"its {metric.value(row.mean)} is no better than the best constant prediction, {best}"
        )
    whole = f"from the best constant prediction, {best}, to a perfect score"
    return f"its {metric.value(row.mean)} is less than a tenth of the way {whole}"


def _is_flat(run: Run) -> bool:
    """Whether the second half of the training losses is no lower than the first one, which is of the beginning."""
    curve = [point for point in run.curve if point.train_loss is not None]
    if len(curve) < 2 or curve[0].step > EARLY * curve[-1].step:
        return False
    losses = [point.train_loss or 0.0 for point in curve]
    return fmean(losses[len(losses) // 2 :]) >= losses[0]


def breaks_law(row: Row) -> str:
    """A sentence on a candidate that breaks a law."""
    law = row.broken[0].partition(" breaks ")[2] or row.broken[0]
    return f"{row.name} is compared with no other, as it breaks {law}."


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


def depths_tried(row: Row) -> list[int]:
    """The depths of its trials, those that failed among them; a trial without one has that of the configuration."""
    own = _own_depth(row)
    return sorted({depth for one in row.trials if (depth := one.depth or own)})


def depth_at_edge(row: Row) -> str | None:
    """A sentence if the chosen depth is the least or largest tried, and further ones could have the budget, too.

    The last of `depths` is known to be the last that could where the search, which goes by `HALVINGS`, was not its end.
    """
    tried = depths_tried(row)
    if len(tried) < 2 or row.depth not in (tried[0], tried[-1]):
        return None
    own = _own_depth(row) or 0
    ends = {1}
    if row.depths and row.depths[0] > own // 2**HALVINGS:
        ends.add(row.depths[0])
    if row.depths and row.depths[-1] < own * 2**HALVINGS:
        ends.add(row.depths[-1])
    if row.depth in ends:
        return None
    side = "least" if row.depth == tried[0] else "largest"
    between = f"{len(tried)} tried ({', '.join(map(str, tried))})"
    return f"{row.name} chose the depth {row.depth}, the {side} of {between}. A better one may lie beyond."


def _own_depth(row: Row) -> int | None:
    """The depth of a candidate before it was tuned."""
    return Sizes.of(load_yaml(row.untuned)).depth if row.untuned else row.depth
