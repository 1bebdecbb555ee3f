"""Pool of network and classical method: laws of its weights, and members that are useless, wrong in scale or equal."""

import math
import time

import pytest
import torch
from torch.testing import assert_close

from seqkit.classical.pool import PRIOR, Pool, fitted
from seqkit.errors import DataError
from seqkit.interfaces import IGNORE
from seqkit.objectives import Classify, MultiLabel, Regress


def classify(k=3, **keys):
    objective = Classify(**keys)
    objective.fit([*range(k)], None)
    return objective


def regress(k=2, **keys):
    objective = Regress(**keys)
    objective.fit([[3.0] * k, [7.0] * k], None)
    return objective


def multi_label(k=2):
    objective = MultiLabel()
    objective.fit([[1.0] * k, [0.0] * k], None)
    return objective


OBJECTIVES = {"classes": classify, "labels": multi_label, "numbers": regress}


def rows(kind, m, seed=0, noise=(1.0, 1.0)):
    """Outputs of two members, whose errors are independent and as large as `noise` says, and the targets."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    truth = normal(m, 3 if kind == "classes" else 2)
    network, classical = (truth + size * normal(*truth.shape) for size in noise)
    if kind == "classes":
        target = torch.multinomial((2 * truth).softmax(-1), 1, generator=draw)[:, 0]
    elif kind == "labels":
        target = torch.bernoulli((2 * truth).sigmoid(), generator=draw)
    else:
        target = 5 + 2 * truth
    return network, classical, target


def loss(pool, network, classical, target, objective):
    found = objective.loss(pool.of(network, classical, objective), target)
    return float(found.loss / found.count)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_member_alone_is_given_bit_for_bit(kind):
    network, classical, _ = rows(kind, 5)
    objective = OBJECTIVES[kind]()
    assert torch.equal(Pool(1.0, 0.0).of(network, classical, objective), network)
    assert torch.equal(Pool(0.0, 1.0).of(network, classical, objective), classical)
    assert not torch.equal(Pool(0.9, 0.1).of(network, classical, objective), network)


def test_classes_are_pooled_by_powers_of_their_probabilities():
    network, classical, _ = rows("classes", 5)
    powers = network.softmax(-1) ** 0.7 * classical.softmax(-1) ** 1.9
    found = Pool(0.7, 1.9).of(network, classical, classify()).softmax(-1)
    assert_close(found, powers / powers.sum(-1, keepdim=True))


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_pool_is_ahead_of_both_members_if_their_errors_are_independent(kind):
    objective = OBJECTIVES[kind]()
    pool = fitted(*rows(kind, 400), objective)
    unseen = rows(kind, 2000, seed=1)
    alone = [loss(Pool(*one), *unseen, objective) for one in ((1.0, 0.0), (0.0, 1.0))]
    assert loss(pool, *unseen, objective) < 0.95 * min(alone)


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("m", [7, 50, 400])
def test_the_better_member_is_ahead_on_the_rows_of_the_fit_by_no_more_than_the_prior(kind, m):
    objective = OBJECTIVES[kind]()
    network, classical, target = rows(kind, m, noise=(0.1, 3.0))
    pool = fitted(network, classical, target, objective)
    best = loss(Pool(1.0, 0.0), network, classical, target, objective)
    # of (1, 0) the penalty is PRIOR / 2 x 2 x (1/2)^2; of numbers it is loss of rows where the members differ
    allowed = PRIOR / 4 / m
    if kind == "numbers":
        allowed = (PRIOR / 2 / (m + PRIOR)) ** 2 * float((network - classical).square().mean())
        allowed += 2 * math.sqrt(allowed * best)
    assert loss(pool, network, classical, target, objective) <= best + allowed + 1e-5


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_the_order_of_rows_changes_nothing(kind):
    given = rows(kind, 60)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(3))
    found = fitted(*given, OBJECTIVES[kind]())
    assert_close(
        torch.tensor(fitted(*(one[order] for one in given), OBJECTIVES[kind]())),
        torch.tensor(found),
        rtol=0,
        atol=1e-3,
    )
    assert found == fitted(*given, OBJECTIVES[kind]())


@pytest.mark.parametrize("kind", ["classes", "labels"])
@pytest.mark.parametrize("factor", [10.0, 0.25])
@pytest.mark.parametrize("member", [0, 1])
def test_a_wrong_scale_of_a_member_is_undone(kind, factor, member):
    objective = OBJECTIVES[kind]()
    given = list(rows(kind, 2000))
    right = loss(fitted(*given, objective), *given, objective)
    given[member] = factor * given[member]
    pool = fitted(*given, objective)
    assert loss(pool, *given, objective) < right + 0.01
    assert loss(Pool(0.5, 0.5), *given, objective) > right + 0.01


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_rows_with_unknown_targets_are_left_out(kind):
    network, classical, target = rows(kind, 40)
    objective = OBJECTIVES[kind]()
    some = target.clone()
    some[::2] = IGNORE if kind == "classes" else math.nan
    broken = network.clone()
    broken[::2] = math.nan
    expected = fitted(network[1::2], classical[1::2], target[1::2], objective)
    assert fitted(broken, classical, some, objective) == expected
    assert fitted(network, classical, target, objective) != expected


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_of_a_row_that_is_known_in_part_the_known_part_counts(kind):
    network, classical, target = rows(kind, 40)
    target[:, 1] = math.nan
    objective = OBJECTIVES[kind]()
    expected = fitted(network[:, :1], classical[:, :1], target[:, :1], OBJECTIVES[kind](1))
    found = fitted(network, classical, target, objective)
    assert_close(torch.tensor(found), torch.tensor(expected), rtol=0, atol=1e-3)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_without_a_known_row_the_weights_are_equal(kind):
    network, classical, target = rows(kind, 4)
    unknown = torch.full_like(target, IGNORE if kind == "classes" else math.nan)
    assert fitted(network, classical, unknown, OBJECTIVES[kind]()) == (0.5, 0.5)
    assert fitted(network[:0], classical[:0], target[:0], OBJECTIVES[kind]()) == (0.5, 0.5)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_three_rows_move_the_weights_little(kind):
    network, classical, target = rows(kind, 3, noise=(0.1, 3.0))
    if kind == "classes":
        target = torch.zeros_like(target)
    pool = fitted(network, classical, target, OBJECTIVES[kind]())
    assert all(0.1 < weight < 0.9 for weight in pool)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_useless_member_has_little_weight(kind):
    network, classical, target = rows(kind, 500, noise=(0.3, 0.3))
    objective = OBJECTIVES[kind]()
    others = network[torch.randperm(500, generator=torch.Generator().manual_seed(5))]
    pool = fitted(others, classical, target, objective)
    assert pool.network < 0.12 < 0.9 < pool.classical
    # a constant one changes no class and no label, so it is the other's weight that counts
    pool = fitted(torch.zeros_like(network), classical, target, objective)
    assert pool.classical > 0.9


def test_two_useless_members_become_chance():
    draw = torch.Generator().manual_seed(2)
    network, classical = 3 * torch.randn(2, 1000, 3, generator=draw)
    target = torch.randint(3, (1000,), generator=draw)
    pool = fitted(network, classical, target, classify())
    assert loss(pool, network, classical, target, classify()) < math.log(3) + 0.01


def test_a_copy_of_the_network_shares_its_weight():
    network, _, target = rows("classes", 300)
    pool = fitted(network, network, target, classify())
    assert pool.network == pytest.approx(pool.classical, abs=1e-4)


def test_where_all_answers_are_right_weights_stay_finite():
    target = torch.arange(60) % 3
    sure = 8 * torch.nn.functional.one_hot(target, 3).double()
    assert all(weight < 5 for weight in fitted(sure, sure / 8, target, classify()))


def test_class_weights_count_and_label_smoothing_does_not():
    network, classical, target = rows("classes", 300)
    # the classical method knows the first class alone
    classical[:, 1:] = classical[:, 1:].mean(dim=1, keepdim=True)
    plain = fitted(network, classical, target, classify())
    assert fitted(network, classical, target, classify(label_smoothing=0.3)) == plain
    rare = fitted(network, classical, target, classify(class_weights=[0.1, 1.4, 1.5]))
    assert rare.classical < plain.classical - 0.1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_outputs_that_are_not_finite_are_refused_by_name(kind, value):
    network, classical, target = rows(kind, 20)
    classical[3, 1] = value
    what = "NaN" if math.isnan(value) else "infinity"
    objective = OBJECTIVES[kind]()
    with pytest.raises(DataError, match=f"the classical method predicts {what}"):
        fitted(network, classical, target, objective)
    with pytest.raises(DataError, match=f"the classical method predicts {what}"):
        Pool(0.5, 0.5).of(network, classical, objective)
    with pytest.raises(DataError, match=f"the network predicts {what}"):
        fitted(classical, network, target, objective)


def test_huber_loss_gives_the_shares_of_numbers_with_outliers():
    network, classical, target = rows("numbers", 400, noise=(1.0, 0.3))
    classical[::20] += 10
    squared = fitted(network, classical, target, regress())
    huber = fitted(network, classical, target, regress(loss="huber"))
    assert huber.classical > squared.classical + 0.05


def test_a_fit_on_many_rows_and_classes_takes_less_than_a_second():
    draw = torch.Generator().manual_seed(0)
    network, classical = torch.randn(2, 5000, 100, generator=draw)
    target = (network + classical).argmax(dim=1)
    started = time.process_time()
    fitted(network, classical, target, classify(100))
    assert time.process_time() - started < 1
