"""A candidate that breaks a law is never the better one, and a score that is hardly possible is doubted."""

from dataclasses import replace

import pytest
from synthetic_results import comparison

from seqkit.comparison.scores import METRICS
from seqkit.comparison.types import ClassicalMethod
from seqkit.comparison.verdicts import with_verdicts
from seqkit.objectives.metric import find_metric
from seqkit.report.comparison import pairs_table, ranked, ranking
from seqkit.report.sentences import answers

LINE = "Leaky breaks the law that no token attends to the future"


def changed(results, *rows):
    """The results with changes of the first candidates."""
    own = [replace(row, **more) for row, more in zip(results.candidates, rows)]
    return replace(results, candidates=[*own, *results.candidates[len(own) :]])


def surely(results):
    """Every difference is significant."""
    each = [replace(one, p=1e-4, p_holm=1e-4, difference=0.01) for one in results.differences]
    return with_verdicts(replace(results, differences=each))


@pytest.mark.parametrize("breaks", [0, 1])
def test_one_that_breaks_a_law_is_compared_with_nothing(breaks):
    rows = [{}, {}]
    rows[breaks] = {"broken": [LINE]}
    results = surely(changed(comparison(3), *rows))
    name = results.candidates[breaks].name
    for pair in results.differences:
        assert (pair.better is None) == (name in (pair.a, pair.b))
    answer = answers(results)
    assert f"{name} is" not in answer.text
    assert f"{name} is compared with no other, as it{LINE.removeprefix('Leaky')}." in answer.doubts
    assert ranked(results)[-1].name == name
    assert str(ranking(results).rows[-1][0]) == "–"
    assert ranking(results).rows[-1][1].small.startswith("breaks a law")
    assert {
        row[-1].text for row in pairs_table(results).rows if name in row[0].text.split(" − ")
    } == {"not compared"}
    best = ranking(results).rows[0][1]
    assert best.style == (
        "best" if surely(comparison(3)).differences[-1].better == best.text else ""
    )


def test_where_all_break_laws_none_is_better():
    results = surely(changed(comparison(2), {"broken": [LINE]}, {"broken": [LINE]}))
    answer = answers(results)
    assert "is not shown to be better" in answer.text
    assert len([one for one in answer.doubts if LINE.removeprefix("Leaky") in one]) == 2


def test_a_language_model_below_a_tenth_of_the_n_grams_is_not_better():
    rows = [{"mean": 0.036}, {"mean": 1.5}]
    results = changed(comparison(2), *rows)
    n_grams = ClassicalMethod(name="5-grams", value=1.6, num_train=1000)
    results = replace(results, metric=METRICS["loss"], strong_baseline=n_grams)
    results = surely(results)
    assert [one.better for one in results.differences] == [None]
    doubts = " ".join(answers(results).doubts)
    assert "0.0360 nats is less than a tenth of the 1.6000 nats of a strong baseline" in doubts
    honest = changed(results, {"mean": 1.2})
    assert not answers(surely(honest)).doubts


@pytest.mark.parametrize(
    ("means", "is_doubted"),
    [((1.0, 0.9, 0.8), True), ((1.0, 1.0, 0.8), False), ((0.999, 0.9, 0.8), False)],
)
def test_a_perfect_score_of_one_alone_is_doubted(means, is_doubted):
    results = changed(comparison(3), *({"mean": mean} for mean in means))
    said = [one for one in answers(results).doubts if "100.00 % is perfect, and no other is" in one]
    assert bool(said) == is_doubted
    ours = replace(results, settings={"plugins": []})
    assert not any("is perfect" in one for one in answers(ours).doubts), (
        "built-in ones read no labels"
    )


@pytest.mark.parametrize(
    ("name", "value", "strong", "others", "is_doubted"),
    [
        ("loss", 0.1, 1.6, (), True),
        ("bits_per_byte", 0.1, 1.6, (), True),
        ("loss", 0.2, 1.6, (), False),
        ("rmse", 0.1, 1.6, (), False),
        ("rmse", 0.0, 1.6, (0.3,), True),
        ("accuracy", 1.0, 0.9, (), False),
        ("token_error", 0.0, None, (0.2,), True),
        ("token_error", 0.0, None, (0.2, 0.0), False),
        ("loss", None, 1.6, (), False),
        ("your_own", 7.0, None, (3.0,), False),
    ],
)  # fmt: skip
def test_what_is_hardly_possible(name, value, strong, others, is_doubted):
    assert bool(find_metric(name).too_good(value, strong, others)) == is_doubted
