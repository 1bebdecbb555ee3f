"""Sampling: each logits warper equals Hugging Face's on random logits, and draws come as often as they should."""

import math

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from seqkit.generation import Sampling
from seqkit.generation.sampling import PerSequenceRNG, widest_float

B, V = 5, 37


def random_logits(seed):
    return 3 * torch.randn(B, V, generator=torch.Generator().manual_seed(seed))


def assert_same_distribution(ours, theirs):
    """Both keep the same tokens, in the same proportions."""
    assert (ours == -torch.inf).equal(theirs == -torch.inf)
    assert_close(ours.softmax(-1).float(), theirs.softmax(-1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("settings", "name", "given"),
    [
        ({"temperature": 0.7}, "TemperatureLogitsWarper", 0.7),
        ({"top_k": 5}, "TopKLogitsWarper", 5),
        ({"top_p": 0.83}, "TopPLogitsWarper", 0.83),
        ({"top_p": 0.11}, "TopPLogitsWarper", 0.11),
        ({"min_p": 0.07}, "MinPLogitsWarper", 0.07),
        ({"min_p": 1.0}, "MinPLogitsWarper", 1.0),
    ],
)
def test_a_warper_equals_that_of_hugging_face(seed, settings, name, given):
    from transformers.generation import logits_process

    logits = random_logits(seed)
    assert_same_distribution(
        Sampling(**settings).warp_logits(logits), getattr(logits_process, name)(given)(None, logits)
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("penalty", [1.3, 0.6])
def test_the_repetition_penalty_equals_that_of_hugging_face(seed, penalty):
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    logits, sequences = (
        random_logits(seed),
        torch.randint(V, (B, 11), generator=torch.Generator().manual_seed(seed)),
    )
    seen = torch.zeros(B, V, dtype=torch.bool).scatter(1, sequences, True)
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(sequences, logits.clone())
    assert_close(Sampling(repetition_penalty=penalty).penalize_repetition(logits, seen), theirs)


def test_all_warpers_together_equal_hugging_faces_in_its_order():
    from transformers.generation import logits_process as hf

    logits, sequences = random_logits(7), torch.randint(V, (B, 11))
    seen = torch.zeros(B, V, dtype=torch.bool).scatter(1, sequences, True)
    ours = Sampling(
        temperature=1.7, top_k=19, top_p=0.8, min_p=0.02, repetition_penalty=1.4
    ).warp_logits(logits, seen)
    theirs = hf.RepetitionPenaltyLogitsProcessor(1.4)(sequences, logits)
    for warper in (
        hf.TemperatureLogitsWarper(1.7),
        hf.TopKLogitsWarper(19),
        hf.TopPLogitsWarper(0.8),
    ):
        theirs = warper(sequences, theirs)
    assert_same_distribution(ours, hf.MinPLogitsWarper(0.02)(sequences, theirs))


def test_top_p_keeps_the_fewest_that_sum_to_p():
    logits = random_logits(11)
    kept = Sampling(top_p=0.6).warp_logits(logits) > -torch.inf
    for row, probability in zip(kept, logits.softmax(-1)):
        sums = probability.sort(descending=True).values.cumsum(0)
        fewest = next(i + 1 for i, total in enumerate(sums.tolist()) if total >= 0.6)
        assert int(row.sum()) == fewest
        assert probability[row].min() > probability[~row].max()


def test_top_k_keeps_those_as_likely_as_the_last_of_them_too():
    kept = Sampling(top_k=2).warp_logits(torch.tensor([[1.0, 3.0, 0.0, 1.0, 1.0]])) > -torch.inf
    assert kept.tolist() == [[True, True, False, True, True]]


@pytest.mark.parametrize(("p", "fewest"), [(0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3), (0.76, 4)])
def test_top_p_keeps_the_fewest_of_equally_likely_tokens_too(p, fewest):
    """Sums of a quarter are exact: p itself is reached, and of a tie no more than needed are kept."""
    logits = torch.tensor([[1.5, 1.5, -torch.inf, 1.5, 1.5]])
    kept = Sampling(top_p=p).warp_logits(logits) > -torch.inf
    assert int(kept.sum()) == fewest
    assert not kept[0, 2]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=1.5, top_k=6),
        Sampling(top_p=0.9, seed=17),
        Sampling(min_p=0.2),
    ],
)
def test_tokens_are_drawn_as_often_as_the_warped_distribution_says(sampling):
    logits = 1.3 * torch.randn(1, 11, generator=torch.Generator().manual_seed(3))
    expected = sampling.warp_logits(logits).softmax(-1)[0]
    num_sequences, steps = 101, 199
    rng = PerSequenceRNG(sampling.seed, num_sequences)
    drawn = torch.cat(
        [sampling.choose(logits.expand(num_sequences, -1), None, rng) for _ in range(steps)]
    )
    counts = drawn.bincount(minlength=11).double()
    assert (counts[expected == 0] == 0).all()
    possible = expected > 0
    chi_square = (
        (counts - num_sequences * steps * expected)[possible].square()
        / (num_sequences * steps * expected)[possible]
    ).sum()
    # mean k and variance 2 k for k degrees of freedom: five standard deviations
    freedom = int(possible.sum()) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)
    wrong = torch.full_like(expected, 1 / 11)[possible]
    assert (
        (counts[possible] - num_sequences * steps * wrong).square()
        / (num_sequences * steps * wrong)
    ).sum() > freedom + 500


class Given:
    """In the place of random numbers, one that is given."""

    def __init__(self, number):
        self.number = number

    def next(self, device):
        return torch.tensor([self.number], dtype=torch.float64)


@pytest.mark.parametrize(
    ("number", "chosen"),
    [(0.0, 1), (0.24, 1), (0.25, 2), (0.49, 2), (0.5, 4), (0.75, 5), (1 - 1e-15, 5)],
)
def test_an_id_has_the_draws_from_the_sum_before_it_up_to_its_own(number, chosen):
    """So one of probability 0 has none, were the draw 0 or on the border of two."""
    logits = torch.zeros(1, 7).index_fill(1, torch.tensor([0, 3, 6]), -torch.inf)
    assert Sampling().choose(logits, None, Given(number)).tolist() == [chosen]


def test_neighbouring_sequences_are_drawn_independently_of_each_other():
    rng = PerSequenceRNG(0, 3001)
    first = rng.next(torch.device("cpu"))
    assert (first.float() != first).float().mean() > 0.9  # with the digits of float64
    assert abs(float(first.mean()) - 0.5) < 5 / math.sqrt(12 * 3001)
    assert abs(float(torch.corrcoef(torch.stack([first[:-1], first[1:]]))[0, 1])) < 5 / math.sqrt(
        3000
    )
    second = rng.next(torch.device("cpu"))
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 5 / math.sqrt(3001)


def test_a_sequence_keeps_its_random_numbers_when_others_go():
    alone, together = PerSequenceRNG(5, 1), PerSequenceRNG(3, 4)  # sequence 2 of them has seed 5
    for step in range(300):  # over two blocks
        row = 2 if step < 7 else 0
        if step == 7:
            together.reorder(torch.tensor([2, 3]))
        assert together.next(torch.device("cpu"))[row] == alone.next(torch.device("cpu"))[0]


@pytest.mark.parametrize("temperature", [1e-4, 1e-300, 5e-324])
def test_a_low_temperature_is_greedy(temperature):
    logits = random_logits(1)
    chosen = Sampling(temperature=temperature).choose(logits, None, PerSequenceRNG(0, B))
    assert chosen.equal(Sampling(temperature=0).choose(logits, None, PerSequenceRNG(0, B)))
    assert chosen.equal(logits.argmax(-1))


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": 0},
        {"top_k": 2.5},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"repetition_penalty": 0},
        {"repetition_penalty": math.inf},
        {"seed": -1},
        {"seed": 10**23},
        {"seed": 1.5},
    ],
    ids=str,
)
def test_an_impossible_setting_is_refused(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"^{name}=") as error:
        Sampling(**settings)
    assert "\n" not in str(error.value)


class NoFloat64(TorchDispatchMode):
    """A device that has no float64, as Apple's GPUs: only drawn numbers have it, which are made on the CPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dtype == torch.float64:
            assert func.overloadpacket in (
                torch.ops.aten.rand,
                torch.ops.aten.stack,
                torch.ops.aten.select,
            ), func
        return out


def test_without_float64_the_same_ids_are_drawn_and_the_largest_number_draws_an_id(monkeypatch):
    sampling, logits = Sampling(temperature=0.8, top_k=20, top_p=0.9, min_p=0.01), random_logits(3)
    right = [sampling.choose(logits, None, PerSequenceRNG(seed, B)) for seed in range(20)]
    assert widest_float(torch.device("mps")) == torch.float32
    monkeypatch.setattr("seqkit.generation.sampling.widest_float", lambda device: torch.float32)
    with NoFloat64():
        got = [sampling.choose(logits, None, PerSequenceRNG(seed, B)) for seed in range(20)]
    assert torch.stack(got).equal(torch.stack(right))
    monkeypatch.setattr(
        torch, "rand", lambda *args, **kwargs: torch.full((128,), 1 - 1e-15, dtype=torch.float64)
    )
    last = Sampling().choose(logits, None, PerSequenceRNG(0, B))
    assert (last < V).all()
