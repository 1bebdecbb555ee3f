"""Checks of masks, targets and positions: laws of `seqkit.testing` with this model and this data.

b batch · n tokens · d width
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from seqkit.doctor.findings import Result, faulty, not_applicable
from seqkit.doctor.subject import Subject
from seqkit.interfaces import Embedded, TokenBatch, Tokens
from seqkit.model import Model
from seqkit.nn.position.base import PositionalEncoding
from seqkit.runs.examined.targets import predicts_next, target_is_input
from seqkit.testing.embedded_backbone import EmbeddedBackbone, leave_zero
from seqkit.testing.laws import no_token_attends_to_the_future, padding_changes_nothing
from seqkit.testing.process import fixed_generator

LONGEST = 32
"""Tokens of an example on which a law is checked: what leaks, leaks at the beginning."""

MATTERS = 1e-6
"""Change of the hidden states by other positions, as a share of their size, from which on positions matter. The recipes
have 0.02 to 0.7; positions that are dropped give less than 1e-15, and inputs a thousand times too large 8e-5."""

OWN_STEP = (
    "the objective has a step of its own, so it is not known what it predicts from which tokens"
)
TWO_SIDES = "an encoder–decoder has two sequences; `seqkit check` examines its backbones"


class _OwnModel(EmbeddedBackbone):
    """The embedder and the backbone of a model in float64, with what starts at zero filled as training fills it."""

    def __init__(self, model: Model):
        nn.Module.__init__(self)
        self.model = copy.deepcopy(model).double().eval()
        self.spec = self.model.spec
        self.backbone = self.model.backbone
        self.causal = bool(self.model.causal)
        leave_zero(self.backbone)

    def embed(self, batch: TokenBatch) -> Embedded:
        return self.model.embed(batch.with_dtype(torch.float64))


def check_padding(subject: Subject) -> Result:
    """Does padding leave the hidden states unchanged?"""
    key = (
        f"--model.backbone (now {type(subject.model.backbone).__name__}), or its block or mechanism"
    )
    cause = "padding is not masked: what an example predicts depends on the others in its batch"
    return _law(padding_changes_nothing, subject, cause, f"{key}; `seqkit check` names the law")


def check_future(subject: Subject) -> Result:
    """Is the future hidden from tokens of a causal backbone, or from tokens that predict the next one?"""
    name = type(subject.model.backbone).__name__
    inputs = subject.inputs
    cause = "the mask leaks the future: the model copies the answer in training, and has none when it generates"
    if subject.model.causal:
        key = f"--model.backbone Transformer (now {name}), or its block or mechanism: one that keeps causal=True"
        return _law(no_token_attends_to_the_future, subject, cause, key)
    if inputs is None or not predicts_next(inputs):
        return not_applicable(
            "the backbone is bidirectional, and nothing after a token is predicted"
        )
    problem = f"each token predicts the next one, and {name} is bidirectional"
    return faulty(problem, cause, "--model.backbone.causal true")


def _law(
    law: Callable[[EmbeddedBackbone, Sequence[Tokens]], None],
    subject: Subject,
    cause: str,
    fix: str,
) -> Result:
    examples, why = _examples(subject)
    if not examples:
        return not_applicable(why)
    try:
        law(_OwnModel(subject.model), examples)
    except AssertionError as fault:
        return faulty(str(fault), cause, fix)
    return Result(f"{len(examples)} examples keep the law")


def _examples(subject: Subject) -> tuple[list[Tokens], str]:
    """The beginnings of a few examples, without the last token, or the reason why the laws say nothing of them."""
    if subject.inputs is None:
        return [], OWN_STEP
    if subject.model.source_embedder is not None:
        return [], TWO_SIDES
    batch = subject.inputs.batch
    if batch.parts is not None or batch.reach is not None:
        return [], "the tokens of joined parts have laws of their own"
    examples = [batch.example(i) for i in range(len(batch))]
    if batch.adjacency is None:
        examples = [x.at(slice(min(LONGEST, max(1, len(x) - 1)))) for x in examples]
    return examples, ""


def check_target(subject: Subject) -> Result:
    """Is the target of each token hidden from the model?"""
    goal = type(subject.objective).__name__
    if subject.objective.needs_labels:
        return not_applicable(f"{goal} predicts labels, not tokens")
    if subject.inputs is None:
        return not_applicable(OWN_STEP)
    if subject.inputs.masked is not None or not target_is_input(subject.inputs):
        return Result("no token is its own target, or targets are masked")
    problem = "the target of each token is the token itself, which is the input of the model"
    fix = f"--model.objective NextToken or Masked (now {goal})"
    return faulty(problem, "the objective neither shifts nor masks what it predicts", fix)


def check_positions(subject: Subject) -> Result:
    """Do positions matter where tokens have an order?"""
    examples, why = _examples(subject)
    model = _OwnModel(subject.model)
    if why := why or _no_order(model, examples):
        return not_applicable(why)
    if all(bool((x.positions == x.positions[:1]).all()) for x in examples):
        name = type(subject.data.tokenizer).__name__
        fix = f"--tokenizer (now {name}): one that counts its tokens"
        problem = "all tokens have the same position"
        return faulty(problem, "the tokenizer drops the order of its tokens", fix)
    with torch.no_grad():
        change = max(_change(model, x) for x in examples)
    measured = f"other positions change the hidden states by {change:.1g} of their size"
    if change >= MATTERS:
        return Result(measured)
    cause = "positions are dropped: the model knows the order of the tokens by the mask at most"
    fix = (
        "--model.position Sinusoidal, or --model.backbone.position Rotary where it is a Transformer"
    )
    return faulty(measured, cause, fix)


def _change(model: _OwnModel, x: Tokens) -> float:
    """Root mean square of the change of the hidden states by shuffled positions, as a share of their size."""
    order = torch.randperm(len(x), generator=fixed_generator())
    if bool((order == torch.arange(len(x))).all()):
        order = order.roll(1)
    shuffled = replace(x, positions=x.positions[order])
    got, expected = (model(TokenBatch.collate([one])) for one in (shuffled, x))
    return _rms(got - expected) / (_rms(expected) or 1.0)


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _no_order(model: _OwnModel, examples: Sequence[Tokens]) -> str:
    """Reason why shuffled positions need not matter; empty if they should matter."""
    backbone = model.backbone
    modules = model.model.embedder.modules()
    if any(isinstance(one, PositionalEncoding) and one.mixes_tokens for one in modules):
        return "the positional encoding runs over the tokens in their order"
    if examples[0].positions.shape[1] == 0:
        return "the tokens have no positions"
    if backbone.is_recurrent:
        return f"{type(backbone).__name__} runs over the tokens in their order"
    if backbone.ignores_order:
        return f"{type(backbone).__name__} ignores the order on purpose"
    if max(map(len, examples)) < 2:
        return "there is one token"
    return ""
