"""Modules with one fault each, and the law that names it first: `MODULES`, `WITH_STATES` and `WITH_SEGMENTS`.

The sound ones behind them, `Decays` and `Attends`, keep every law.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

DIM = 8


class Decays(nn.Module):
    """A leaky sum whose gate each token decides; padding leaves its state as it is."""

    causal = True

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, DIM)
        self.value = nn.Linear(DIM, DIM)

    def forward(self, x, valid):
        return self.run(x, valid, None)[0]

    def run(self, x, valid, state):
        gate = torch.sigmoid(self.gate(x))
        value = self.value(x)
        state = x.new_zeros(len(x), DIM) if state is None else state
        hidden = []
        for t in range(x.shape[1]):
            new = gate[:, t] * state + (1 - gate[:, t]) * value[:, t]
            state = torch.where(valid[:, t, None], new, state)
            hidden.append(state)
        return torch.stack(hidden, dim=1), state


class Attends(nn.Module):
    """Attention to all tokens that are no padding."""

    causal = False

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(DIM, DIM)
        self.k = nn.Linear(DIM, DIM)
        self.v = nn.Linear(DIM, DIM)

    def forward(self, x, valid):
        return x + self.attend(x, self.may_attend(valid))

    def may_attend(self, valid):
        return valid[:, None].expand(-1, valid.shape[1], -1)

    def attend(self, x, mask):
        scores = self.q(x) @ self.k(x).mT / math.sqrt(DIM)
        return scores.masked_fill(~mask, -1e9).softmax(dim=-1) @ self.v(x)


class AttendsBack(Attends):
    """Causal attention."""

    causal = True

    def may_attend(self, valid):
        return super().may_attend(valid).tril()


# ── padding ──


class DividesByColumns(Attends):
    def forward(self, x, valid):
        total = (x * valid[..., None]).sum(dim=1, keepdim=True)
        return super().forward(x, valid) + total / x.shape[1]


class ZeroKeysInTheSoftmax(Attends):
    def may_attend(self, valid):
        return torch.ones_like(super().may_attend(valid))

    def forward(self, x, valid):
        return super().forward(x * valid[..., None], valid)


class DependsOnTheLongest(Attends):
    def forward(self, x, valid):
        return super().forward(x, valid) * (1 + 0.1 * math.log(x.shape[1]))


class NormalisesOverTime(Attends):
    def forward(self, x, valid):
        hidden = super().forward(x, valid)
        return hidden / (1 + hidden.square().mean(dim=1, keepdim=True))


class AddsWavesByColumn(AttendsBack):
    """Left padding moves its positions."""

    def forward(self, x, valid):
        return super().forward(x + torch.arange(x.shape[1]).to(x).sin()[:, None], valid)


class HasWindowsOfColumns(AttendsBack):
    """A token sees its window of four columns and the one before: left padding moves the windows."""

    def may_attend(self, valid):
        window = torch.arange(valid.shape[1]) // 4
        return super().may_attend(valid) & (window[:, None] - window <= 1)


class MasksLaterBatches(Decays):
    def forward(self, x, valid):
        return super().forward(x, valid if len(x) > 1 else torch.ones_like(valid))


class GatesInPadding(Decays):
    def run(self, x, valid, state):
        gate = torch.sigmoid(self.gate(x))
        value = self.value(x) * valid[..., None]
        hidden = []
        state = x.new_zeros(len(x), DIM)
        for t in range(x.shape[1]):
            state = gate[:, t] * state + value[:, t]
            hidden.append(state)
        return torch.stack(hidden, dim=1), state


class MultipliesByTheMask(AttendsBack):
    def forward(self, x, valid):
        real = valid[..., None]
        return super().forward(x * real, valid) * real


# ── the past and the future ──


class MasksItsOutput(AttendsBack):
    """Zero for padding by `masked_fill`, behind a product of NaN and zero."""

    def forward(self, x, valid):
        return super().forward(x, valid).masked_fill(~valid[..., None], 0.0)


class SeesOneAhead(Attends):
    causal = True

    def may_attend(self, valid):
        return super().may_attend(valid).tril(diagonal=1)


class SeesAheadAfter64(AttendsBack):
    def forward(self, x, valid):
        hidden = super().forward(x, valid)
        later = (x * valid[..., None])[:, 65:]
        return hidden + F.pad(later, [0, 0, 64, 1]) if x.shape[1] > 65 else hidden


class BeginsAnewEvery16(Decays):
    def run(self, x, valid, state):
        both = zip(x.split(16, dim=1), valid.split(16, dim=1), strict=True)
        parts = [super(BeginsAnewEvery16, self).run(*each, None) for each in both]
        return torch.cat([hidden for hidden, _ in parts], dim=1), parts[-1][1]


class SumsByChunks(nn.Module):
    """Linear attention: chunks of 64, each with the state of those before."""

    causal = True

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)

    def go_on(self, state, k, v):
        return state + k.mT @ v

    def forward(self, x, valid):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        k = k.masked_fill(~valid[..., None], 0)
        state = x.new_zeros(len(x), DIM, DIM)
        hidden = []
        for a, b, c in zip(q.split(64, 1), k.split(64, 1), v.split(64, 1), strict=True):
            hidden.append((a @ b.mT).tril() @ c + a @ state)
            state = self.go_on(state, b, c)
        return torch.cat(hidden, dim=1) / DIM


class LosesALastToken(SumsByChunks):
    def go_on(self, state, k, v):
        return super().go_on(state, k[:, :-1], v[:, :-1])


class DetachesItsState(SumsByChunks):
    def go_on(self, state, k, v):
        return super().go_on(state, k, v).detach()


class HasNoSpreadOfOne(Attends):
    """The spread of one token is NaN."""

    def forward(self, x, valid):
        real = valid[..., None]
        count = real.sum(dim=1, keepdim=True)
        mean = (x * real).sum(dim=1, keepdim=True) / count
        spread = ((x - mean).square() * real).sum(dim=1, keepdim=True) / (count - 1)
        return super().forward(x, valid) + spread


# ── other examples ──


class MixesTheBatch(Decays):
    def forward(self, x, valid):
        hidden = super().forward(x, valid)
        return hidden + 0.1 * hidden[:, :1].mean(dim=0, keepdim=True)


class ShiftsFlatRows(Decays):
    """The first column of a row gets the last one of the row before."""

    def forward(self, x, valid):
        flat = (x * valid[..., None]).reshape(-1, DIM)
        before = F.pad(flat, [0, 0, 1, 0])[:-1].reshape(x.shape)
        return super().forward(x + before, valid)


class TiesRowsInTraining(Decays):
    def forward(self, x, valid):
        hidden = super().forward(x, valid)
        return hidden - 0.1 * hidden[:, :1].mean(dim=0) if self.training else hidden


class TiesRowsAndDropsOut(TiesRowsInTraining):
    def forward(self, x, valid):
        return F.dropout(super().forward(x, valid), 0.1, self.training)


class ScalesByAMovingMean(Decays):
    """In training, the mean size of all tokens moves its scale first."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x, valid):
        if self.training:
            self.scale = self.scale.lerp(x[valid].detach().abs().mean(), 0.1)
        return super().forward(x / self.scale, valid)


class SeesAheadInTraining(AttendsBack):
    def may_attend(self, valid):
        return Attends.may_attend(self, valid) if self.training else super().may_attend(valid)

    def forward(self, x, valid):
        return F.dropout(super().forward(x, valid), 0.1, self.training)


class ClampsLargeBatches(Attends):
    def attend(self, x, mask):
        return super().attend(x.clamp(max=0.5) if len(x) >= 8 else x, mask)


class SqueezesItsGate(Decays):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(DIM, 1)

    def forward(self, x, valid):
        return super().forward(x, valid) * self.scale(x).squeeze().sigmoid()[..., None]


# ── gradients ──


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.scale, None


class _GradientIntoPadding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, valid):
        ctx.save_for_backward(valid)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        (valid,) = ctx.saved_tensors
        return gradient + 0.1 * gradient.sum(dim=1, keepdim=True) * ~valid[..., None], None


class HalvesItsGradient(Decays):
    def forward(self, x, valid):
        return _Scaled.apply(super().forward(x, valid), 0.5)


class DetachesItsGate(Decays):
    def forward(self, x, valid):
        hidden = super().forward(x, valid)
        return hidden * torch.sigmoid(self.gate(x.detach()))


class HasAGradientOfPadding(Decays):
    def forward(self, x, valid):
        return super().forward(_GradientIntoPadding.apply(x, valid), valid)


class HasAnUnusedLayer(Decays):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(DIM, DIM)


# ── numbers, weights and the process ──


class Doubles(Decays):
    def forward(self, x, valid):
        return super().forward(x, valid).repeat(1, 1, 2)


class RoundsToBfloat16(Decays):
    def forward(self, x, valid):
        return super().forward(x, valid).bfloat16().to(x.dtype)


class RoundsFloat32ToFloat16(Attends):
    def attend(self, x, mask):
        hidden = super().attend(x, mask)
        return hidden.half().float() if x.dtype == torch.float32 else hidden


class DropsOutInEval(Decays):
    def forward(self, x, valid):
        return F.dropout(super().forward(x, valid), 0.1, training=True)


class CountsItsCalls(Decays):
    calls = 0

    def forward(self, x, valid):
        self.calls += 1
        return super().forward(x, valid) * (1 + 1e-3 * self.calls)


class DrawsForNothing(Decays):
    def forward(self, x, valid):
        torch.rand(1)
        return super().forward(x, valid)


class ChangesTheMask(Decays):
    def forward(self, x, valid):
        hidden = super().forward(x, valid)
        valid[:, -1] = True
        return hidden


class HidesALayer(Decays):
    def __init__(self):
        super().__init__()
        self.more = {"last": nn.Linear(DIM, DIM).double()}

    def forward(self, x, valid):
        return self.more["last"](super().forward(x, valid).double()).to(x.dtype)


class DrawsABuffer(Decays):
    """A new one has another buffer, which no file has."""

    def __init__(self):
        super().__init__()
        self.register_buffer("directions", torch.randn(DIM, DIM), persistent=False)

    def forward(self, x, valid):
        return super().forward(x @ self.directions, valid)


class DrawsAMatrix(Decays):
    """As `DrawsABuffer`, in a plain attribute, and not with the settings of its class."""

    def __init__(self, sign=1.0):
        super().__init__()
        self.directions = torch.randn(DIM, DIM, dtype=torch.float64).round() * sign

    def forward(self, x, valid):
        return super().forward(x @ self.directions.long().to(x), valid)


class MakesItsScaleLate(Decays):
    def __init__(self):
        super().__init__()
        self.scale = None

    def forward(self, x, valid):
        if self.scale is None:
            self.scale = nn.Parameter(x.new_ones(DIM))
        return super().forward(x, valid) * self.scale


class KeepsStatisticsUnsaved(Decays):
    def __init__(self, momentum):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(DIM), persistent=False)

    def forward(self, x, valid):
        if self.training:
            self.mean.lerp_(x[valid].mean(dim=0).detach(), self.momentum)
        return super().forward(x - self.mean * (not self.training), valid)


MODULES = [
    (DividesByColumns, "padding_changes_nothing"),
    (ZeroKeysInTheSoftmax, "padding_changes_nothing"),
    (DependsOnTheLongest, "padding_changes_nothing"),
    (NormalisesOverTime, "padding_changes_nothing"),
    (AddsWavesByColumn, "left_padding_changes_nothing"),
    (HasWindowsOfColumns, "left_padding_changes_nothing"),
    (MasksLaterBatches, "what_padding_holds_changes_nothing"),
    (GatesInPadding, "what_padding_holds_changes_nothing"),
    (MasksItsOutput, "padding_may_hold_nan"),
    (SeesOneAhead, "no_column_attends_to_the_future"),
    (SeesAheadAfter64, "no_column_attends_to_the_future"),
    (BeginsAnewEvery16, "columns_read_the_past_alike"),
    (LosesALastToken, "columns_read_the_past_alike"),
    (DetachesItsState, "gradients_are_right"),
    (HasNoSpreadOfOne, "gives_finite_vectors_at_any_length"),
    (MixesTheBatch, "batch_mates_change_nothing"),
    (ShiftsFlatRows, "batch_mates_change_nothing"),
    (TiesRowsInTraining, "training_mates_change_nothing"),
    (TiesRowsAndDropsOut, "training_mixes_no_rows"),
    (ScalesByAMovingMean, "training_mixes_no_rows"),
    (SeesAheadInTraining, "training_sees_no_future"),
    (ClampsLargeBatches, "any_batch_gives_the_same"),
    (SqueezesItsGate, "takes_examples_of_one_token"),
    (HalvesItsGradient, "gradients_are_right"),
    (DetachesItsGate, "gradients_are_right"),
    (HasAGradientOfPadding, "gradients_add_up_under_padding"),
    (HasAnUnusedLayer, "gradients_reach_every_parameter"),
    (Doubles, "gives_hidden_states_of_its_width"),
    (RoundsToBfloat16, "rounds_no_more_than_float32"),
    (RoundsFloat32ToFloat16, "rounds_no_more_than_float32"),
    (DropsOutInEval, "is_deterministic"),
    (CountsItsCalls, "is_deterministic"),
    (DrawsForNothing, "leaves_input_and_process_alone"),
    (ChangesTheMask, "leaves_its_input_alone"),
    (HidesALayer, "saves_all_weights"),
    (DrawsABuffer, "saves_all_weights"),
    (lambda: DrawsAMatrix(-1.0), "saves_all_weights"),
    (MakesItsScaleLate, "brings_no_weight_late"),
    (lambda: KeepsStatisticsUnsaved(0.1), "saves_all_weights"),
]


# ── states ──


def by_run(module, x, valid, state):
    return module.run(x, valid, state)


def by_rows(state, rows):
    return state[rows]


def forgets_in_parts(module, x, valid, state):
    """A part of several columns begins with zeros."""
    return module.run(x, valid, state if x.shape[1] == 1 else None)


def forgets_in_steps(module, x, valid, state):
    """A step of one column halves the state first."""
    return module.run(x, valid, state if state is None or x.shape[1] > 1 else state / 2)


def forgets_after_64(module, x, valid, state):
    """The state counts columns, and is zero once it has seen 64."""
    state, seen = state or (None, 0)
    hidden, state = module.run(x, valid, state)
    seen += x.shape[1]
    return hidden, (state * (seen < 64), seen)


def rows_of_counted(state, rows):
    return state[0][rows], state[1]


def runs_over_padding(module, x, valid, state):
    return module.run(x, torch.ones_like(valid), state)


def takes_the_state_at_the_length(module, x, valid, state):
    """The state is that of the column `length - 1`: right for padding on the right."""
    hidden, _ = module.run(x, torch.ones_like(valid), state)
    last = (valid.sum(dim=1) - 1).clamp(min=0)
    return module.run(x, valid, state)[0], hidden[torch.arange(len(x)), last]


def keeps_one_state(module, x, valid, state):
    """The state is the module's; what is given says whether it goes on."""
    hidden, module.kept = module.run(x, valid, None if state is None else module.kept)
    return hidden, True


def marks_the_module(module, x, valid, state):
    """A batch of two leaves something behind."""
    if len(x) == 2:
        module.value.bias.data += 0.1
    return module.run(x, valid, state)


class SkipsAStep(Decays):
    """After a prompt of eight columns, the next step of any state moves nothing."""

    skips = False

    def step(self, x, valid, state):
        hidden, new = self.run(x, valid, state)
        skips = self.skips and state is not None
        self.skips = state is None and x.shape[:2] == (1, 8)
        return hidden, state if skips else new


def rows_as_they_are(state, rows):
    return state[: len(rows)]


WITH_STATES = [
    (Decays, forgets_in_steps, by_rows, "step_by_step_equals_at_once"),
    (Decays, forgets_in_parts, by_rows, "parts_equal_at_once"),
    (Decays, forgets_after_64, rows_of_counted, "parts_equal_at_once_far_along"),
    (Decays, runs_over_padding, by_rows, "ragged_prompts_go_on"),
    (Decays, takes_the_state_at_the_length, by_rows, "left_padded_prompts_go_on"),
    (Decays, by_run, rows_as_they_are, "reorder_moves_the_rows"),
    (Decays, keeps_one_state, None, "states_are_apart"),
    (Decays, marks_the_module, by_rows, "a_state_begins_anew"),
    (SkipsAStep, SkipsAStep.step, by_rows, "a_warm_up_moves_no_state"),
]


# ── segments ──


def by_segment(module, x, segment, scale=1.0):
    """Each segment apart. scale: of the gradient."""
    sizes = torch.unique_consecutive(segment[0], return_counts=True)[1].tolist()
    whole = _Scaled.apply(x, scale)
    parts = [
        module(part, torch.ones(part.shape[:2], dtype=torch.bool))
        for part in whole.split(sizes, dim=1)
    ]
    return torch.cat(parts, dim=1)


WITH_SEGMENTS = [
    (lambda module, x, segment: module(x, segment >= 0), "packed_equals_separate"),
    (
        lambda module, x, segment: by_segment(module, x, segment, 0.5),
        "packed_gradients_equal_separate",
    ),
]
