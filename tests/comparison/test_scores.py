"""Scores of single examples add up to the metric that the run itself reports."""

from types import SimpleNamespace

import pytest
import torch

from seqkit.backbones import GRU
from seqkit.comparison.scores import (
    METRICS,
    ExampleScores,
    _shares,
    bytes_of_test_split,
    example_scores,
    metric_of,
    per_byte,
    scores_of,
)
from seqkit.comparison.statistics import Scores
from seqkit.config import complete
from seqkit.interfaces import TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.objectives.classify import Classify
from seqkit.objectives.masked import Masked
from seqkit.objectives.regress import Regress
from seqkit.objectives.retrieval import Recall
from seqkit.runs.prepare import untrained
from seqkit.runs.run import run
from seqkit.training.module import evaluation_rng

CASES = {
    "image/digits": "accuracy",
    "graph/molecules": "rmse",
    "text/char-lm": "loss",
    "text/translate": "sequence_error",
    "audio/ctc-digits": "token_error",
    "text/masked-lm": "loss",
    "image/masked-patches": "loss",
    "multimodal/clip": "recall@1",
}


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(r, marks=pytest.mark.slow) if r.startswith(("text", "audio")) else r
        for r in CASES
    ],
)
def test_scores_of_examples_add_up_to_the_metric_of_the_split(recipe, tmp_path, request):
    if recipe == "audio/ctc-digits":
        request.getfixturevalue("shared_data")
    found = {}

    def examine(model, data):
        metric = metric_of(data.objective)
        assert metric.name == CASES[recipe]
        found["scores"], found["metric"] = example_scores(model, data, metric, 1), metric
        found["num_test"] = len(data.test_dataloader().examples)
        return {}

    settings = {"trainer.enable_progress_bar": False, "data.limit": 40}
    summary = run(complete(recipe, "debug", settings), tmp_path / "run", examine=examine)
    scores, metric = found["scores"], found["metric"]
    assert len(scores.numerator) == found["num_test"] == summary["num_test"]
    value = Scores.of([(1, scores.numerator, scores.denominator)]).values(metric)[0]
    assert value == pytest.approx(summary["metrics"][metric.name], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("num_targets", [1, 3])
def test_scores_at_once_are_those_row_by_row_also_where_targets_are_unknown(num_targets):
    draw = torch.Generator().manual_seed(0)
    target = torch.randn(20, num_targets, generator=draw)
    objective = Regress()
    objective.fit(list(target), None)
    target[torch.rand(20, num_targets, generator=draw) < 0.3] = torch.nan
    target[4] = torch.nan
    rows = torch.randn(20, num_targets, generator=draw)
    classes = torch.randint(-1, 3, (20,), generator=draw).where(torch.arange(20) != 4, -100)
    classes[classes == -1] = -100
    classify = Classify()
    classify.fit([0, 1, 2], None)
    for metric, one, prediction, right in (
        ("rmse", objective, rows, target),
        ("accuracy", classify, torch.randn(20, 3, generator=draw), classes),
    ):
        found = scores_of(METRICS[metric], one, prediction, right)
        alone = [
            scores_of(METRICS[metric], one, prediction[i : i + 1], right[i : i + 1])[0]
            for i in range(20)
        ]
        torch.testing.assert_close(torch.tensor(found), torch.tensor(alone))
        assert (0.0, 0.0) in found, "an example without a target counts nothing"


def test_scores_stand_in_the_order_of_the_split_whatever_the_batches():
    model, data = untrained(complete("graph/molecules", "debug", {"data.batch_size": 7}))
    other_model, other = untrained(complete("graph/molecules", "debug", {"data.batch_size": 13}))
    other_model.load_state_dict(model.state_dict())
    one, two = (
        example_scores(m, d, METRICS["rmse"], 1) for m, d in ((model, data), (other_model, other))
    )
    assert one.tokens == two.tokens == data.test_dataloader().examples.lengths
    assert one.tokens != sorted(one.tokens)  # batches are sorted by length, the split is not
    torch.testing.assert_close(
        torch.tensor(one.numerator), torch.tensor(two.numerator), rtol=1e-4, atol=1e-6
    )


def test_examples_that_lack_parts_leave_the_mean_over_pairs_of_parts_as_it_is():
    g = torch.Generator().manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(31, 3, 4, generator=g), dim=-1)
    vectors[torch.rand(31, 3, generator=g) < 0.3] = torch.nan
    recall = Recall([(0, 1), (1, 0), (0, 2)], 1)
    recall.update(vectors, torch.randint(5, (31, 3), generator=g))
    numerator, denominator = zip(*_shares(recall.hits()))
    assert sum(numerator) / sum(denominator) == pytest.approx(float(recall.compute()))
    assert min(denominator) == 0, "an example of one part has no say"


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_share_is_shown_in_percent_and_any_other_metric_as_it_is(metric):
    assert metric.shown(0.25) == (25.0 if metric.unit == "%" else 0.25)


def test_bits_per_byte_do_not_depend_on_how_many_tokens_a_text_has():
    few = ExampleScores(numerator=[4.0, 4.0], denominator=[2.0, 2.0], tokens=[2, 2])
    many = ExampleScores(numerator=[2.0] * 4, denominator=[2.0] * 4, tokens=[2] * 4)
    values = [
        Scores.of([(1, s.numerator, s.denominator)]).values(METRICS["bits_per_byte"])[0]
        for s in (per_byte(few, 16), per_byte(many, 16))
    ]
    assert values[0] == pytest.approx(values[1])
    assert values[0] == pytest.approx(8 / 16 / torch.log(torch.tensor(2.0)).item())


@pytest.mark.slow
def test_the_bytes_of_a_split_that_is_cut_are_not_known():
    _, data = untrained(complete("text/char-lm", "debug"))
    assert bytes_of_test_split(data) == 0
    _, data = untrained(complete("image/digits", "debug", {"data.limit": None}))
    assert bytes_of_test_split(data) == 0


def test_an_objective_says_by_what_it_is_compared():
    assert metric_of(Classify()) is METRICS["accuracy"]
    assert metric_of(Masked()) is METRICS["loss"]


class Batches(list):
    """Batches of two examples each, in the order of the split."""

    def batch_indices(self):
        return [[2 * i, 2 * i + 1] for i in range(len(self))]


@pytest.mark.parametrize("seed", [0, 3])
def test_scores_are_of_the_masks_that_the_run_evaluates(seed):
    """Each batch has its own, and each seed; the batches are equal, so that only the masks differ."""
    batch = TokenBatch.collate([Tokens(torch.arange(19) % 7, torch.arange(19.0)[:, None])] * 2)
    objective = Masked(fraction=0.4)
    model = Model(TokenSpec(vocab_size=7), GRU(12, 1), objective).eval()
    loader = Batches([(batch, None)] * 3)
    data = SimpleNamespace(
        objective=objective, test_dataloader=lambda: loader, test_groups=lambda: None
    )
    right = []
    for index in range(3):
        with evaluation_rng(seed, index), torch.no_grad():
            right.append(float(objective.step(model, (batch, None)).loss))
    assert len(set(right)) == 3
    losses = example_scores(model, data, METRICS["loss"], seed).numerator
    assert [sum(losses[i : i + 2]) for i in (0, 2, 4)] == pytest.approx(right)
