"""Each law of `check(module)` names the fault that is planted for it first, and what is sound keeps them all."""

import pytest
import torch
import torch.nn.functional as F
from laws.faulty_modules import (
    DIM,
    MODULES,
    WITH_SEGMENTS,
    WITH_STATES,
    Attends,
    AttendsBack,
    Decays,
    MultipliesByTheMask,
    SumsByChunks,
    by_rows,
    by_run,
    by_segment,
)
from tiers import one_in
from torch import nn

from seqkit.testing import BrokenLawsError, check

DOORS = {"step": by_run, "reorder": by_rows, "segments": by_segment}


def broken(module, **settings):
    """The laws that a module breaks, the first one first."""
    with pytest.raises(BrokenLawsError) as raised:
        check(module, dim=DIM, causal=module.causal, **settings)
    return [fault.law for fault in raised.value.checked.broken]


@pytest.mark.parametrize(
    ("make", "law"), one_in(2, MODULES), ids=[f"{x[0].__name__}" for x in MODULES]
)
def test_a_planted_fault_is_named_by_its_law_first(make, law):
    torch.manual_seed(0)
    assert broken(make())[0] == law


@pytest.mark.parametrize(("make", "step", "reorder", "law"), WITH_STATES)
def test_a_fault_of_a_state_is_named_by_its_law_alone_or_first(make, step, reorder, law):
    torch.manual_seed(0)
    assert broken(make(), step=step, reorder=reorder)[0] == law


@pytest.mark.parametrize(("segments", "law"), WITH_SEGMENTS)
def test_a_fault_of_packed_rows_is_named_by_its_law_first(segments, law):
    torch.manual_seed(0)
    assert broken(Decays(), segments=segments)[0] == law


@pytest.mark.parametrize("make", [Decays, AttendsBack, Attends])
def test_a_sound_module_keeps_every_law(make):
    torch.manual_seed(0)
    doors = DOORS if make is Decays else {}
    checked = check(make(), dim=DIM, causal=make.causal, **doors)
    assert set(checked.left_out) <= {"padding_may_hold_nan"}


class Dilated(nn.Module):
    causal = True

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(DIM, DIM, 3, dilation=4)

    def forward(self, x, valid):
        return self.conv(F.pad((x * valid[..., None]).mT, [8, 0])).mT


class ReadsTheBest(AttendsBack):
    """Attention to the nine best columns."""

    def attend(self, x, mask):
        scores = (self.q(x) @ self.k(x).mT).masked_fill(~mask, -1e9)
        best = scores.topk(min(9, x.shape[1])).values[..., -1:]
        return scores.masked_fill(scores < best, -1e9).softmax(dim=-1) @ self.v(x)


class Experts(nn.Module):
    """Each drops out what it is sent: what others hold moves the draws."""

    causal = False

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, 2)
        self.experts = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(2))

    def forward(self, x, valid):
        flat = x.flatten(0, 1)
        weights = self.router(flat).softmax(dim=-1)
        hidden = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            rows = (weights.argmax(dim=-1) == i).nonzero()[:, 0]
            own = F.dropout(expert(flat[rows]), 0.2, self.training) * weights[rows, i, None]
            hidden = hidden.index_add(0, rows, own)
        return hidden.reshape(x.shape)


@pytest.mark.parametrize("make", [SumsByChunks, Dilated, ReadsTheBest, Experts])
def test_what_reads_draws_or_sums_in_other_ways_is_no_fault(make):
    torch.manual_seed(0)
    assert check(make(), dim=DIM, causal=make.causal)


def test_a_product_with_the_mask_promises_nothing_of_nan():
    left_out = check(MultipliesByTheMask(), dim=DIM, causal=True).left_out
    assert "not a product, where padding may hold it" in left_out["padding_may_hold_nan"]


def test_a_cache_that_is_too_short_raises_and_is_no_fault():
    def step(module, x, valid, state):
        state, seen = state or (None, 0)
        if seen + x.shape[1] > 100:
            raise IndexError("the cache is full")
        hidden, state = module.run(x, valid, state)
        return hidden, (state, seen + x.shape[1])

    left_out = check(Decays(), dim=DIM, causal=True, step=step).left_out
    assert "the cache is full" in left_out["parts_equal_at_once_far_along"]


class Overflows(Decays):
    def forward(self, x, valid):
        return super().forward(x, valid) * (1e5 ** valid.cumsum(dim=1).to(x))[..., None]


def test_after_an_overflow_one_law_speaks():
    ignore = {"columns_read_the_past_alike": "known"}
    assert broken(Overflows(), ignore=ignore) == ["gives_finite_vectors_at_any_length"]


def test_every_law_of_a_module_has_a_planted_fault():
    planted = {row[-1] for row in [*MODULES, *WITH_STATES, *WITH_SEGMENTS]}
    known = check(Decays(), dim=DIM, causal=True, only=(), **DOORS).left_out
    assert set(known) == planted


# ── what is no fault ──


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_recurrent_module_of_torch_needs_no_call_and_may_ignore_the_mask(kind):
    one = kind(DIM, DIM, 2, batch_first=True)
    assert len(check(one, dim=DIM, causal=True)) > 15
    ignoring = check(one, dim=DIM, causal=True, call=lambda m, x, valid: m(x)[0])
    assert "right padding" in ignoring.left_out["left_padding_changes_nothing"]
    assert check(kind(DIM, DIM // 2, batch_first=True, bidirectional=True), dim=DIM)
    with pytest.raises(BrokenLawsError, match="padding_changes_nothing"):
        both = kind(DIM, DIM // 2, batch_first=True, bidirectional=True)
        check(both, dim=DIM, call=lambda m, x, valid: m(x)[0])


class Tied(nn.Module):
    """Two layers of one weight, one whose weight is computed, and a view of a weight."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(DIM, DIM)
        self.two = nn.Linear(DIM, DIM)
        self.two.weight = self.one.weight
        with pytest.warns(FutureWarning, match="weight_norm"):
            self.three = nn.utils.weight_norm(nn.Linear(DIM, DIM))
        self.views = [self.one.weight.data[0]]

    def forward(self, x, valid):
        return self.three(self.two(self.one(x).tanh()))


class InFloat32(nn.Linear):
    def forward(self, x):
        if x.dtype != torch.float32:
            raise RuntimeError("float32 alone")
        return super().forward(x)


class LooksUpColumns(AttendsBack):
    """As of many published models, its table is too short for long examples, and left padding moves it."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, DIM)
        self.words = nn.Embedding(5, DIM)
        self.pooler = nn.Linear(DIM, DIM)

    def forward(self, x, valid):
        hidden = super().forward(x + self.table(torch.arange(x.shape[1])), valid)
        self.pooler(hidden[:, 0])
        return hidden


class RefusesLeftPadding(Decays):
    def forward(self, x, valid):
        if not bool(valid[:, 0].all()):
            raise ValueError("left padding is not supported")
        return super().forward(x, valid)


class TakesSeveral(Decays):
    def forward(self, x, valid):
        if len(x) == 1:
            raise RuntimeError("two or more")
        return super().forward(x, valid)


@pytest.mark.parametrize(
    ("module", "name", "reason"),
    [
        (Tied(), "left_padding_changes_nothing", "takes no mask"),
        (InFloat32(DIM, DIM), "float64", "float32 alone; laws are checked in float32"),
        (LooksUpColumns(), "left_padding_changes_nothing", "looks up table by column"),
        (LooksUpColumns(), "examples_of_131_tokens", "IndexError"),
        (RefusesLeftPadding(), "left_padding_changes_nothing", "left padding is not supported"),
        (TakesSeveral(), "batch_of_one", "two or more"),
    ],
)
def test_what_a_module_cannot_do_is_left_out_with_the_reason(module, name, reason):
    call = (lambda m, x, valid: m(x)) if isinstance(module, InFloat32) else None
    checked = check(module, dim=DIM, causal=True, call=call)
    assert reason in checked.left_out[name]
    assert "padding_changes_nothing" in repr(checked)
