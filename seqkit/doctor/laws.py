"""Checks of masks, targets and positions, with this model and this data.

They run on a copy in float64 and evaluation mode, so that a difference is a fault and not rounding. Noise is added to
all weights of the copy: a branch or an edge bias that starts at zero would hide a leak that training brings out.

b batch · n tokens · p axes
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
import torch.nn.functional as F
from einops import repeat
from torch import Tensor, nn

from seqkit.doctor.findings import Finding, Result, not_applicable
from seqkit.doctor.subject import Subject
from seqkit.interfaces import IGNORE, Backbone, ModelInput, TokenBatch
from seqkit.interfaces.parts import Parts
from seqkit.model import Model
from seqkit.nn.position.base import PositionalEncoding
from seqkit.testing.laws import other_content

NOISE = 0.05
"""Standard deviation of the noise that is added to every weight; the weights are about as large."""

TOLERANCE = 1e-6
"""Difference of two predictions, as a share of their size, that float64 explains. The recipes have up to 8e-15; a mean
over padded columns gives 0.07, attention to the future 0.1 to 4."""

MATTERS = 1e-6
"""Change of the predictions by other positions, as a share of their spread, from which on positions matter. The recipes
have 0.02 (text/masked-lm, rotary positions) to 0.7; positions that are dropped give less than 1e-15, and inputs a
thousand times too large 8e-5."""

CUTS = 4
"""Number of places in a sequence after which the future is changed."""


OWN_STEP = "the objective has a step of its own, so it is not known what it predicts from which tokens"
"""Reason why a check of predictions is left out."""


class _Probe:
    """A copy of the model with noise on its weights, and the handful as its input."""

    def __init__(self, subject: Subject):
        self.model = _with_noise(subject.model)
        assert subject.inputs is not None
        self.inputs = replace(subject.inputs, batch=subject.inputs.batch.with_dtype(torch.float64))
        self.expected = self.predict(self.inputs)

    @torch.no_grad()
    def predict(self, inputs: ModelInput) -> Tensor:
        """Predictions: [b k] of each sequence, [b n k] of each token, or [b n k v] of each of its fields."""
        prediction: Tensor = self.model(inputs.batch, inputs.masked)
        return prediction.masked_fill(prediction == float("-inf"), 0.0)  # logits of ids that a field does not have

    @torch.no_grad()
    def hidden(self, batch: TokenBatch) -> Tensor:
        """Hidden states of the backbone, [b n d]."""
        states: list[Tensor] = []
        hook = self.model.backbone.register_forward_hook(lambda _module, _args, output: states.append(output))
        self.model(batch, self.inputs.masked)
        hook.remove()
        return states[0]

    @property
    def is_by_token(self) -> bool:
        """Whether each token has a prediction of its own."""
        return self.expected.ndim >= 3 and self.expected.shape[:2] == self.inputs.batch.valid.shape

    def difference(self, got: Tensor) -> float:
        """Largest difference of predictions, as a share of the size of the expected ones."""
        return _difference(self._real(got), self._real(self.expected))

    def change(self, got: Tensor) -> float:
        """Root mean square of the change of predictions, as a share of their spread over tokens or examples."""
        got, expected = self._real(got), self._real(self.expected)
        spread = float((expected - expected.mean(dim=0)).square().mean().sqrt()) or float(expected.abs().mean()) or 1.0
        return float((got - expected).square().mean().sqrt()) / spread

    def _real(self, prediction: Tensor) -> Tensor:
        """Predictions without those of padding."""
        return prediction[self.inputs.batch.valid] if self.is_by_token else prediction


def _with_noise(model: Model) -> Model:
    noisy, generator = copy.deepcopy(model).double().eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in noisy.parameters():
            parameter.add_(NOISE * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return noisy


def _difference(got: Tensor, expected: Tensor) -> float:
    size = float(expected.abs().mean()) if expected.numel() else 0.0
    return float((got - expected).abs().max()) / (size or 1.0) if expected.numel() else 0.0


# ── padding ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_padding(subject: Subject) -> Result:
    """Does padding leave the predictions unchanged?"""
    if subject.inputs is None:
        return not_applicable("padding", OWN_STEP)
    probe = _Probe(subject)
    batch, masked = probe.inputs.batch, probe.inputs.masked
    longer = batch.pad(3)
    if batch.source is not None:
        longer = longer.replace(source=batch.source.pad(2))
    got = probe.predict(ModelInput(longer, None if masked is None else F.pad(masked, [0, 3]), probe.inputs.target))
    if probe.is_by_token:
        got = got[:, : batch.valid.shape[1]]
    difference = probe.difference(got)
    measured = f"3 more columns of padding change the predictions by {difference:.1g} of their size"
    if difference <= TOLERANCE:
        return Result("padding", measured)
    name = type(subject.model.backbone).__name__
    cause = "padding is not masked: what an example predicts depends on the others in its batch"
    fix = f"--model.backbone (now {name}), or its block or mechanism; seqkit.testing.check_backbone names the law"
    return Result("padding", measured, Finding(measured, cause, fix))


# ── the future ───────────────────────────────────────────────────────────────────────────────────────────────────────


def check_future(subject: Subject) -> Result:
    """Is the future hidden from tokens of a causal backbone, or from tokens that predict the next one?"""
    name = type(subject.model.backbone).__name__
    if subject.inputs is None:
        return not_applicable("future", OWN_STEP)
    if not subject.model.causal and not _predicts_next(subject.inputs):
        return not_applicable("future", "the backbone is bidirectional, and nothing after a token is predicted")
    probe = _Probe(subject)
    expected = probe.hidden(probe.inputs.batch)
    cuts = _cuts(probe.inputs.batch)
    differences = [_future_difference(probe, expected, cut) for cut in cuts]
    difference = max(differences, key=lambda x: (x != x, x), default=0.0)  # NaN is the largest
    measured = f"other tokens after a token change its hidden state by {difference:.1g} of its size"
    if difference <= TOLERANCE:
        return Result("future", measured)
    cause = "the mask leaks the future: the model copies the answer in training, and has none when it generates"
    if not subject.model.causal:
        key, cause = "--model.backbone.causal true", f"{name} is bidirectional, and {cause}"
    else:
        key = f"--model.backbone Transformer (now {name}), or its block or mechanism: one that keeps causal=True"
    return Result("future", measured, Finding(measured, cause, key))


def _predicts_next(inputs: ModelInput) -> bool:
    """Whether the target of each token is the content of the token after it."""
    content, target = inputs.batch.content, inputs.target
    if content.is_floating_point() or inputs.masked is not None or target.shape != content.shape:
        return False
    following = inputs.batch.valid[:, 1:] & (target[:, :-1] != IGNORE)
    return bool(following.any()) and bool((target[:, :-1] == content[:, 1:])[following].all())


def _cuts(batch: TokenBatch) -> list[int]:
    """Columns after which tokens are changed: spread over the longest example, from its first to the last but one."""
    longest = int(batch.valid.sum(dim=1).max())
    return sorted({round(i * (longest - 2) / (CUTS - 1)) for i in range(CUTS)}) if longest > 1 else []


def _future_difference(probe: _Probe, expected: Tensor, cut: int) -> float:
    """Change of the hidden states up to column `cut` if all tokens after it change. expected: [b n d]."""
    batch, columns = probe.inputs.batch, torch.arange(probe.inputs.batch.valid.shape[1])
    after = repeat(columns > cut, "n -> b n", b=len(batch))
    positions = _shuffled(batch.positions, batch.valid & after)  # new values might lie outside a learned table
    other, kept = other_content(batch, after, probe.model.spec).replace(positions=positions), batch.valid & ~after
    if batch.reach is not None:  # of a prefix, tokens may attend beyond their own column
        kept = kept & (batch.reach <= cut)
    return _difference(probe.hidden(other)[kept], expected[kept])


# ── the target ───────────────────────────────────────────────────────────────────────────────────────────────────────


def check_target(subject: Subject) -> Result:
    """Is the target of each token hidden from the model?"""
    goal = type(subject.objective).__name__
    if subject.objective.needs_labels:
        return not_applicable("target", f"{goal} predicts labels, not tokens")
    if subject.inputs is None:
        return not_applicable("target", OWN_STEP)
    if subject.inputs.masked is None:
        if not _is_input(subject.inputs):
            return Result("target", "no token is its own target")
        problem = "the target of each token is the token itself, which is the input of the model"
        cause = "the objective neither shifts nor masks what it predicts"
        fix = f"--model.objective NextToken or Masked (now {goal})"
        return Result("target", problem, Finding(problem, cause, fix))
    probe = _Probe(subject)
    assert probe.inputs.masked is not None
    other = other_content(probe.inputs.batch, probe.inputs.masked, probe.model.spec)
    got = probe.predict(replace(probe.inputs, batch=other))
    difference = probe.difference(got)
    measured = f"other content under the mask changes the predictions by {difference:.1g} of their size"
    if difference <= TOLERANCE:
        return Result("target", measured)
    cause = "the mask token does not replace the content: the input of the model holds the target"
    name = type(subject.data.tokenizer).__name__
    fix = f"--tokenizer (now {name}), or --model.backbone: the content must reach the model by the embedder alone"
    return Result("target", measured, Finding(measured, cause, fix))


def _is_input(inputs: ModelInput) -> bool:
    """Whether every target is the content of its own token; False if all tokens are alike."""
    content, target, valid = inputs.batch.content, inputs.target, inputs.batch.valid
    if target.shape != content.shape:
        return False
    given = ~target.isnan() if target.is_floating_point() else target != IGNORE
    known = valid & (given if given.ndim == 2 else given.all(dim=-1))
    same = bool(known.any()) and bool((target == content)[known].all())
    return same and not bool((content[known] == content[known][:1]).all())


# ── positions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_positions(subject: Subject) -> Result:
    """Do positions matter where tokens have an order?"""
    if subject.inputs is None:
        return not_applicable("positions", OWN_STEP)
    probe, model = _Probe(subject), subject.model
    sides: list[tuple[str, Backbone | None, TokenBatch]] = [("", model.backbone, probe.inputs.batch)]
    if (source := probe.inputs.batch.source) is not None:
        sides.append((" of the source", model.backbone.get_encoder(), source))
    embedders = [model.embedder, model.source_embedder]
    unordered = [_no_order(*side[1:], embedder) for side, embedder in zip(sides, embedders)]
    if all(unordered):
        return not_applicable("positions", unordered[0])
    measured: list[str] = []
    finding: Finding | None = None
    for (side, _, batch), reason in zip(sides, unordered):
        if reason:
            continue
        if bool((batch.positions == batch.positions[:, :1])[batch.valid].all()):
            problem = f"all tokens{side} have the same position"
            fix = f"--tokenizer (now {type(subject.data.tokenizer).__name__}): one that counts its tokens"
            finding = finding or Finding(problem, "the tokenizer drops the order of its tokens", fix)
            measured.append(problem)
            continue
        other, whole = _reordered(batch), probe.inputs.batch
        changed = replace(probe.inputs, batch=whole.replace(source=other) if side else other)
        change = probe.change(probe.predict(changed))
        measured.append(f"shuffled positions{side} change the predictions by {change:.1g} of their spread")
        if change < MATTERS:
            cause = f"positions are dropped: the model knows the order of the tokens{side} by the mask at most"
            own = "model.backbone.encoder" if side and model.backbone.get_encoder() else "model.backbone"
            fix = f"--model.position Sinusoidal, or --{own}.position Rotary where it is a Transformer"
            finding = finding or Finding(measured[-1], cause, fix)
    return Result("positions", "; ".join(measured), finding)


def _no_order(backbone: Backbone | None, batch: TokenBatch, embedder: nn.Module | None) -> str:
    """Reason why shuffled positions need not matter; empty if they should matter."""
    for module in embedder.modules() if embedder is not None else ():
        if isinstance(module, PositionalEncoding) and module.mixes_tokens:
            return f"{type(module).__name__} runs over the tokens in their order"
    if batch.positions.shape[2] == 0:
        return "the tokens have no positions"
    if backbone is not None and backbone.is_recurrent:
        return f"{type(backbone).__name__} runs over the tokens in their order"
    if backbone is not None and backbone.ignores_order:
        return f"{type(backbone).__name__} ignores the order on purpose"
    if int(batch.valid.sum(dim=1).max()) < 2:
        return "there is one token"
    return ""


def _reordered(batch: TokenBatch) -> TokenBatch:
    """The batch with shuffled positions; of joined tokens, with those that each part's own embedder adds, too."""
    parts = batch.parts and Parts({name: replace(x, batch=_reordered(x.batch)) for name, x in batch.parts.items()})
    return batch.replace(positions=_shuffled(batch.positions, batch.valid), parts=parts)


def _shuffled(positions: Tensor, where: Tensor) -> Tensor:
    """Positions [b n p], permuted among some tokens of each example. where: [b n]."""
    generator, shuffled = torch.Generator().manual_seed(0), positions.clone()
    for row, own in zip(shuffled, where):
        columns = own.nonzero()[:, 0]
        order = torch.randperm(len(columns), generator=generator)
        if bool((order == torch.arange(len(columns))).all()):
            order = order.roll(1)
        row[columns] = row[columns[order]]
    return shuffled
