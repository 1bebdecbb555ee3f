"""Sentences of a comparison's page: which candidate is better, by how much, how certainly, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from seqkit.comparison.candidates import EQUAL
from seqkit.comparison.seeds import groups
from seqkit.comparison.statistics import LEVEL
from seqkit.comparison.types import Difference, Results, Row
from seqkit.comparison.verdicts import breaks_law, doubts, too_good, untrained
from seqkit.config.recipe import load_yaml
from seqkit.objectives.metric import fixed
from seqkit.report import sequential
from seqkit.report.numbers import format_number, listed, plural
from seqkit.runs.summary import reasons_of_trial

BUDGETS = {
    "parameters": " at an equal number of parameters",
    "flops": " at equal FLOPs per training step",
    "none": " (budgets were not matched)",
}

MAX_NAMES = 4
"""Candidates that a title names."""


@dataclass(frozen=True)
class Answer:
    """The answer of a comparison. doubts: what could overturn it. others: on other candidates, budgets, baselines.

    is_trial: the runs are too short for an answer, and `text` says so alone.
    """

    text: str
    doubts: list[str]
    others: list[str]
    is_trial: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether nothing that is known could overturn it."""
        return not (self.doubts or self.is_trial)


def title(results: Results) -> str:
    """The candidates, or the first of many, and what they learn."""
    names = [row.name for row in results.candidates]
    who = listed(names) if len(names) <= MAX_NAMES else f"{names[0]} and {len(names) - 1} others"
    preset = f", preset {results.preset}" if results.preset else ""
    return f"{who} on {results.recipe}{preset}"


def answers(results: Results) -> Answer:
    """The answer, from numbers alone."""
    metric = results.metric
    rows = {row.name: row for row in results.candidates if row.mean is not None}
    if not rows:
        return Answer("No candidate has a result. The failures below say why.", [], [])
    broken = [breaks_law(row) for row in rows.values() if row.broken]
    rows = {name: row for name, row in rows.items() if not row.broken} or rows
    order = sorted(rows.values(), key=lambda row: row.mean or 0.0, reverse=metric.higher_is_better)
    best = order[0]
    others = order[1:]
    rivals = [row for row in others if row.name == results.reference] or others
    found = []
    if failed := [row.name for row in results.candidates if row.mean is None]:
        found.append(f"{_subject(failed, 'has', 'have')} no result (see the failures).")
    if trial := trial_sentence(results):
        return Answer(trial, broken, found, is_trial=True)
    found = [*_baselines(results, order), *_seeds(results, order), *found]
    if not rivals:
        what = "keeps every law" if broken else "has a result"
        text = f"Only {best.name} {what}: {metric.label} {metric.value(best.mean)}."
        return Answer(text, [*broken, *_too_good(results, order)], found)
    if results.until_sure is not None:
        doubted = _overturning(results, results.differences, order, broken)
        names = {row.name: named(results, row.name) for row in results.candidates}
        return Answer(sequential.conclusion(results, names), doubted, found)
    rival = rivals[0]
    pair = results.difference(best.name, rival.name)
    assert pair is not None
    overturning = _overturning(results, [pair], order, broken)
    rest = [row.name for row in others if row is not rival]
    text = _answer(results, best, rival, pair)
    return Answer(text, overturning, [*_others(results, pair, rest), *found])


def _overturning(
    results: Results, pairs: Sequence[Difference], order: Sequence[Row], broken: Sequence[str]
) -> list[str]:
    """Sentences on what could overturn the verdicts on these pairs; with those on broken laws and on scores, once."""
    found = [f"This is not settled: {why}" for pair in pairs for why in doubts(pair, results)]
    known = list(dict.fromkeys(found))
    more = (*broken, *_too_good(results, order))
    return [*known, *(one for one in more if one not in "".join(known))]


def _seeds(results: Results, rows: Sequence[Row]) -> Iterator[str]:
    """Sentences on candidates that never left chance, and on seeds that their mean hides."""
    for row in rows:
        if why := untrained(row, results.metric):
            yield f"{row.name} is near chance: {why}."
        elif told := groups(row, results):
            yield told


def named(results: Results, name: str) -> str:
    """The name of a candidate, which says so where it never left chance."""
    return f"{name} (near chance)" if untrained(results.by_name[name], results.metric) else name


def _too_good(results: Results, rows: Sequence[Row]) -> Iterator[str]:
    """Sentences on scores that are hardly possible.

    Perfect alone may be one that reads its labels. Of components that come with seqkit, none does.
    """
    is_ours = results.settings.get("plugins") == []
    for row in rows:
        if why := too_good(results, row, () if is_ours else rows):
            yield f"{row.name}: {why}."


def _subject(names: Sequence[str], one: str, several: str) -> str:
    """Names with the verb that fits their number."""
    return f"{listed(names)} {one if len(names) == 1 else several}"


def _answer(results: Results, best: Row, rival: Row, pair: Difference) -> str:
    """Whether `best` is better than `rival`, by how much, and how fast it trains."""
    metric = results.metric
    budget = _budget(results, best, rival)
    side = "higher" if metric.higher_is_better else "lower"
    amount = f"{metric.number(abs(pair.difference))} {metric.difference_unit}".strip() + f" {side}"
    one = named(results, best.name)
    other = named(results, rival.name)
    mean = f"The mean {metric.label} of {best.name} is {amount}"
    if min(len(best.sound), len(rival.sound)) == 1:
        text = f"One seed decides nothing between {one} and {other}{budget}. {mean}"
    elif pair.difference == 0:
        text = f"{one} and {other} have the same mean {metric.label}{budget}"
        if best.mean == metric.perfect:
            text += ", the best that there is, so this test cannot rank them"
    elif pair.better is not None:
        text = f"{one} is better than {other}{budget}. Its mean {metric.label} is {amount}"
    elif pair.p_holm is not None and pair.p_holm < 1 - LEVEL:
        text = f"{one} is not shown to be better than {other}{budget}. {mean}"
    else:
        text = f"{one} and {other} do not differ significantly{budget}. {mean}"
    if pair.interval is None:
        text += " (one seed and one test example give no confidence interval)"
    else:
        low, high = sorted(metric.sign * bound for bound in pair.interval)
        number = sum(one.p is not None for one in results.differences)
        holm = f", both corrected for {number} pairs" if number > 1 else ""
        over = " over test examples alone" if min(len(best.sound), len(rival.sound)) == 1 else ""
        interval = f"95 % confidence interval{over} {metric.number(low)} to {metric.number(high)}"
        text += f" ({interval}; p {p_value(pair, '= ')}{holm})"
    remarks = [*_remarks(best), *_remarks(rival)]
    if best.cost and rival.cost:
        ratio = best.cost.tokens_per_second / rival.cost.tokens_per_second
        remarks.append(
            f"{best.name} trains at {format_number(ratio, '×', digits=2)} the speed of {rival.name} on this machine"
        )
    return ". ".join([text, *remarks]) + "."


def p_value(entry: Difference, before: str = "") -> str:
    """The corrected p-value of a difference: 0.012, or < 0.001."""
    p = entry.p_holm
    if p is None:
        return "–"
    if p < 0.001:
        return "< 0.001"
    return f"{before}{p:.3f}"


def _budget(results: Results, one: Row, other: Row) -> str:
    """The budget that was matched, or both values if they are not equal."""
    if (
        results.match in ("parameters", "flops")
        and max(abs(row.budget_gap or 0.0) for row in (one, other)) > EQUAL
    ):
        if results.match == "parameters":
            return f", with {one.parameters:,} and {other.parameters:,} parameters"
        numbers = " and ".join(format_number(row.training_flops) for row in (one, other))
        return f", with {numbers} FLOPs per training step"
    return BUDGETS[results.match]


def _remarks(row: Row) -> Iterator[str]:
    """Remarks on a budget unlike the reference's, and on a receptive field that is shorter than the examples."""
    if abs(gap := row.budget_gap or 0.0) > EQUAL:
        yield f"{row.name} is {100 * abs(gap):.1f} % {'above' if gap > 0 else 'below'} the budget"
    if row.farthest is not None:
        yield f"{row.name} connects tokens at most {row.farthest} apart, and examples have up to {row.longest}"


def _others(results: Results, pair: Difference, names: Sequence[str]) -> Iterator[str]:
    """Which of the other candidates the best one is better than, and against which that is not settled, and why."""
    worse = []
    equal = []
    open_ = {}
    for name in names:
        one = results.difference(pair.a, name)
        shown = named(results, name)
        if one is not None and one.better == pair.a:
            worse.append(shown)
        elif one is not None and one.p_holm is not None and one.p_holm < 1 - LEVEL:
            open_[shown] = doubts(one, results)
        else:
            equal.append(shown)
    if worse:
        yield f"{pair.a} is{' also' if pair.better else ''} better than {listed(worse)}."
    if equal:
        yield f"{pair.a} is not shown to be better than {listed(equal, 'or')}."
    if open_:
        why = " ".join(dict.fromkeys(one for found in open_.values() for one in found))
        yield f"{pair.a} is ahead of {listed(list(open_))} by more than chance, but that is not settled. {why}".rstrip()


def trial_sentence(results: Results) -> str | None:
    """A sentence if runs are so short, or on so few examples, that their numbers say nothing; None if they are not."""
    for row in results.candidates:
        limit = load_yaml(row.config)["data"].get("limit")
        steps = max((run.steps or 0 for run in row.sound), default=0)
        if steps and reasons_of_trial(steps, limit, None):
            known = plural(steps, "optimizer step")
            if limit:
                known += f" and at most {limit:,} examples of each split"
            return (
                f"These are trial runs, with {known}: their figures say nothing about the models."
            )
    return None


def _baselines(results: Results, order: Sequence[Row]) -> Iterator[str]:
    """The best constant prediction and the strong baseline, and the candidates that are no better."""
    metric = results.metric
    constant = order[0].constant
    known = {f"the constant that is best in training, {metric.value(constant)}": constant}
    if (strong := results.strong_baseline) is not None:
        examples = plural(strong.num_train, "example")
        known[f"{strong.name}, fit on {examples}, {metric.value(strong.value)}"] = strong.value
    for name, value in known.items():
        if value is None:
            continue
        text = f"Beside them stands {name}."
        worse = [row.name for row in order if metric.sign * ((row.mean or 0.0) - value) <= 0]
        if worse:
            text += f" {_subject(worse, 'is', 'are')} no better."
        yield text


def own_length(overrides: Sequence[str]) -> str | None:
    """A sentence on a length of training that the command sets, in place of the recipe's; None if it sets none."""
    words = " ".join(overrides).replace("=", " ").split()
    pairs = [
        f"{key.lstrip('-')} {value}"
        for key, value in pairwise(words)
        if key.startswith("--trainer.max_")
    ]
    if not pairs:
        return None
    text = f"The length of training is the command's, not the recipe's ({listed(pairs)})"
    return f"{text}: a longer training may rank the candidates otherwise."


def matched(results: Results) -> str:
    """The budget that is equal between candidates, and how far they are from it."""
    if results.match == "none":
        return "No budget was matched: each candidate has the size that its configuration gives."
    what = {"parameters": "number of parameters", "flops": "FLOPs per training step"}
    number = f" ({results.budget:,})" if results.budget else ""
    gaps = [row.budget_gap for row in results.candidates if row.budget_gap]
    widest = ""
    if gaps:
        widest = f" The largest deviation is {fixed(100 * max(gaps, key=abs), 1, signed=True)} %."
    return f"Each candidate was matched to the {what[results.match]} of {results.reference}{number}.{widest}"


def inference(results: Results) -> str:
    """Sentences on what intervals and p-values cover, and how they are computed."""
    if results.until_sure is not None:
        return " ".join(sequential.inference(results))
    pairs = [entry for entry in results.differences if entry.p is not None]
    if not pairs:
        return ""
    covers = "the choice of seeds and of test examples"
    if results.num_test == 1:
        covers = "the choice of seeds alone, as there is one test example"
    elif min((len(row.sound) for row in results.candidates if row.sound), default=0) < 2:
        covers = "the choice of test examples alone, as there is one seed"
    found = [
        f"Numbers in brackets are 95 % confidence intervals. They cover {covers}, not the data split or the tuning.",
        "Seeds and test examples are crossed random effects, with Satterthwaite's degrees of freedom for t.",
    ]
    if results.metric.proportion:
        found.append("The interval of one candidate follows Korn and Graubard (1998).")
    if len(pairs) > 1:
        found.append(
            f"p-values and intervals of differences are corrected for {len(pairs)} pairs, less so for those with "
            f"{pairs[0].a} (weighted Holm procedure; Bretz et al. 2009)."
        )
    units = "; ".join(dict.fromkeys(entry.pairs for entry in pairs))
    found.append(f"Differences are paired by test examples ({units}), not by seeds.")
    return " ".join([*found, "scores.npz has every score, to compute all of this again."])


def tuning_sentence(results: Results) -> str:
    """How the settings of each candidate were chosen."""
    tuning = results.tuning
    if tuning is None:
        return "It is not recorded how these runs were tuned."
    if tuning.lr_trials < 2:
        return "Nothing was tuned. Each candidate has the learning rate of its configuration."
    rates = [
        len({one.values.get("optimizer.lr") for one in row.trials}) for row in results.candidates
    ]
    tried = plural(tuning.lr_trials, "learning rate")
    if max(rates, default=0) > tuning.lr_trials:
        tried = f"{tuning.lr_trials} to {max(rates)} learning rates"
    if len(tuning.optimizers) > 1:
        tried += f" each of {listed(tuning.optimizers)}"
    text = (
        f"Each candidate was tuned with {tried}, chosen by the {tuning.by} on the validation split."
    )
    if len(tuning.seeds) > 1:
        text += (
            " The two best settings ran again with a second seed, and the best mean over both seeds was chosen. No "
            f"reported run has these seeds ({listed(list(map(str, tuning.seeds)))}). While the best rate was the "
            "smallest or largest tried, the next one was tried, too."
        )
    if tuning.depths:
        text += " So were other depths, at the same budget and at the best rate."
    return text
