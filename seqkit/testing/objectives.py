"""Laws of every objective; a function checks each, and raises AssertionError with the fault if it is broken.

b batch · n tokens · v ids or classes
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from seqkit.errors import DataError, described
from seqkit.interfaces import IGNORE, LossOutput, Objective, TokenBatch, Tokenizer, Tokens
from seqkit.testing.changed_tokens import other_content
from seqkit.testing.checks import (
    Checked,
    Checks,
    DifferenceError,
    NotCheckedError,
    Options,
    takes_device,
)
from seqkit.testing.objective_cases import Case, Labels, Prepared, find_case, measured
from seqkit.testing.process import left_alone, same, seeded

TOLERANCE = 1e-4
"""Difference of two numbers, as a share of the larger, or of 1 if that is more, that is rounding in float32."""

STEPS = (0.1, 0.03, 0.01)
"""Lengths of the steps of finite differences, in float32."""

SLOPE = 0.02
"""Difference of a gradient and a finite difference, as a share of the larger, that is no fault."""

SURE = 40.0
"""Logit of a sure answer: beside it, others have a probability of about 0."""

IMPOSSIBLE = -200.0
"""Logit of an answer whose probability is 0 in float32."""


@takes_device
def check_objective(
    objective: Objective,
    labels: Sequence[Any] | None = None,
    *,
    names: Sequence[str] | None = None,
    tokenizer: Tokenizer | None = None,
    raws: Sequence[Any] = (),
    unfitted: Objective | None = None,
    **options: Unpack[Options],
) -> Checked:
    """Checks every law on a small model; returns the laws that were checked.

    labels: of three examples or more, as `fit` gets them, and names of the classes; None: the first of several kinds of
    our own (numbers, classes, yes or no, a label a token, texts) that the objective takes. tokenizer, raws: a fitted
    one and its examples, as many as labels; None: ids, vectors, or both joined. unfitted: objective with the same
    settings that is not fitted; None: the objective itself, if it is not. options: `Options`.
    Raises AssertionError with the class and each law that is broken; UsageError for an objective without a loss,
    ValueError for one that takes none of the labels and tokens.

    >>> from seqkit.objectives import Classify
    >>> checked = check_objective(Classify())
    >>> len(checked), checked.left_out["predicts_the_next_token"]
    (15, 'causal is not True')
    """
    objective.check_trainable()
    given: Labels | None = None if labels is None else (labels, names)
    case = find_case(objective, given, tokenizer, raws)
    if unfitted is None and (labels is None or not objective.state()):
        unfitted = objective
    checks = Checks(**options)
    name = type(objective).__name__
    for law in OF_A_CASE:
        checks.check(law, name, case)
    checks.check(state_is_json_and_enough, name, case, unfitted)
    return checks.finish(name)


def evaluation_draws_nothing(case: Case) -> None:
    """In evaluation, steps repeat, and draw no random numbers but for masks (`uses_mask_token`); losses and predictions
    draw none. They change nothing else of the process, either."""
    own: Any = case.objective
    batch = case.batch()
    right = case.step(batch)
    calls = [partial(own.predict, case.model, batch[0])]
    if not own.uses_mask_token:
        calls.append(partial(own.step, case.model, batch))
    else:
        with contextlib.suppress(NotCheckedError):
            inputs, prediction = case.predicted()
            calls.append(partial(own.loss, prediction, inputs.target))
    for call in calls:
        with left_alone("evaluation", imports=True), torch.no_grad():
            call()
    _assert_alike(case.step(batch), right, "a second evaluation")


def leaves_batch_and_model_alone(case: Case) -> None:
    """Steps and predictions change no tensor of the batch, and not the mode of the model."""
    batch, label = case.batch()
    tensors = batch.tensors() | ({} if label is None else {"labels": label})
    before = copy.deepcopy(tensors)
    for training in (True, False):
        case.model.train(training)
        with seeded(0), torch.no_grad():
            case.objective.step(case.model, (batch, label), training=training)
            case.objective.predict(case.model, batch)
        if any(module.training != training for module in case.model.modules()):
            raise AssertionError("it changes the mode of the model; leave train() and eval() out")
    for name, x in tensors.items():
        if not same(before[name], x):
            raise AssertionError(f"it changes {name} of the batch in place; clone it first")


def remembers_no_batch(case: Case) -> None:
    """Steps of other examples change no later loss and no state."""
    state = copy.deepcopy(case.objective.state())

    def after_others(training: bool) -> LossOutput:
        for rows in ([0, 1], [1, 2]):
            case.step(case.batch(rows), training=training)
        return case.step(case.batch(), training=training)

    _assert_same_loss(case, after_others, "after steps of other examples, the batch")
    if not same(state, case.objective.state()):
        raise AssertionError("steps change state(), which holds what fit learned alone")


def loss_is_a_finite_number(case: Case) -> None:
    """Loss and count are one finite number each; that of ids or classes is at least 0, and finite where the right
    answer seems impossible."""
    outputs = [case.step(case.batch(), training=x) for x in (False, True)]
    least = -math.inf
    with contextlib.suppress(NotCheckedError):
        logits, target = _logits(case)
        outputs.append(_answered(case, logits, target, IMPOSSIBLE))
        least = -TOLERANCE
    for i, output in enumerate(outputs):
        for name in ("loss", "count"):
            x = getattr(output, name)
            low = least if name == "loss" else 0.5
            if not isinstance(x, Tensor) or x.numel() != 1 or not low < _number(x) < math.inf:
                where = " where right answers seem impossible; take log_softmax" if i == 2 else ""
                raise AssertionError(f"{name} is {str(x)[:60]}{where}")


def whole_is_the_sum_of_its_parts(case: Case) -> None:
    """Separable: loss and count of a batch are the sums of those of its parts, which are padded less."""
    if not case.objective.separable:
        raise NotCheckedError("separable is False")
    for parts in ([[i] for i in case.rows], [case.rows[:1], case.rows[1:]]):

        def summed(training: bool, parts: list[list[int]] = parts) -> LossOutput:
            return _sum([case.output(rows, training=training) for rows in parts])

        _assert_same_loss(case, summed, f"the sum of {len(parts)} parts of the batch")


def padding_adds_nothing(case: Case) -> None:
    """More columns of padding change neither loss nor count."""
    _refuse_draws(case)
    batch, label = case.batch()
    if label is not None and label.shape[1:2] == batch.valid.shape[1:]:
        label = F.pad(label, [0, 0] * (label.ndim - 2) + [0, 3], value=_missing(label))
    wide = partial(case.step, (batch.pad(3), label))
    try:
        _assert_same_loss(case, lambda x: wide(training=x), "the batch with three columns more")
    except DataError as error:
        raise NotCheckedError(str(error)) from None


def order_of_examples_changes_nothing(case: Case) -> None:
    """Examples in another order have the same loss and count."""
    turned = partial(case.output, case.rows[1:] + case.rows[:1])
    _assert_same_loss(case, lambda x: turned(training=x), "the batch in another order")


def missing_targets_count_nothing(case: Case) -> None:
    """Labels of which some are missing (IGNORE, NaN), and then the others, have the sum of the losses and counts."""
    batch, label = case.batch()
    if label is None or (label.dtype == torch.int64 and label.ndim != 2):
        raise NotCheckedError("it has no labels that may be missing")
    some = torch.arange(label.numel()).reshape(label.shape) % 3 == 1
    given = [(batch, label.masked_fill(x, _missing(label))) for x in (some, ~some)]
    try:
        found = _sum([case.step(x) for x in given])
    except Exception as error:  # the user's own code: whatever it raises
        raise NotCheckedError(f"a missing label raises {described(error)}") from None
    if not bool(found.loss.isfinite()):
        raise NotCheckedError("a missing label makes the loss NaN")
    what = "the sum over labels, some missing and then the others,"
    _assert_alike(found, case.step(case.batch()), what)


def packed_examples_stay_apart(case: Case) -> None:
    """With `supports_segments`: examples packed into one row have the loss and count that they have in a batch."""
    _refuse_draws(case)
    if not case.objective.supports_segments or case.tokens[0].parts or case.tokens[0].adjacency:
        raise NotCheckedError("supports_segments is False, or tokens have parts or edges")
    batch = TokenBatch.collate([Tokens.join(case.tokens)])
    segments = torch.repeat_interleave(torch.tensor([len(x) for x in case.tokens]))[None]
    packed = partial(case.step, (batch.replace(segments=segments), None))
    _assert_same_loss(case, lambda x: packed(training=x), "the batch packed into a row")


def labels_change_no_prediction(case: Case) -> None:
    """With other labels, the model gets the same input, and `preds` are the same."""
    batch, label = case.batch()
    if label is None or case.objective.target_spec is not None:
        raise NotCheckedError("it has no labels, or a decoder that gets those before")
    other = (label + 1) % (label.nan_to_num().max() + 1)
    found = []
    for one in (label, other.where(label != IGNORE, label)):
        with seeded(0):
            inputs, masked = case.objective.first_call(case.model, (batch, one))
        found.append([inputs.tensors(), masked, case.step((batch, one)).preds])
    if not same(*found):
        raise AssertionError(
            "other labels change the input of the model, or preds; let labels reach the loss alone"
        )


def no_prediction_sees_its_target(case: Case) -> None:
    """Without labels: other content of a column changes no prediction whose target it is."""
    for before, after, targets in _changed_columns(case):
        moved = _changed(before[1], after[1], TOLERANCE) & targets
        if bool(moved.any()):
            column = int(moved.any(dim=0).nonzero()[0])
            raise AssertionError(
                f"the prediction of column {column} reads its own target; shift or mask the input"
            )


def predicts_the_next_token(case: Case) -> None:
    """With `causal`: the prediction of a column is of the next one, which generation takes it for."""
    if not case.objective.causal:
        raise NotCheckedError("causal is not True")
    for before, after, targets in _changed_columns(case):
        inputs = _changed(before[0].batch.content, after[0].batch.content)
        for column in inputs.any(dim=0).nonzero():
            for last in targets.any(dim=0).nonzero()[-1:]:
                if last != column - 1:
                    raise AssertionError(
                        f"column {int(last)} predicts column {int(column)}, and generation takes it for the next "
                        "one; shift by one"
                    )


def right_answers_are_right(case: Case) -> None:
    """For ids and classes, a surer right answer has no higher loss in evaluation, and `preds` equals `target`."""
    logits, target = _logits(case)
    sure, unsure = (_answered(case, logits, target, x) for x in (SURE, SURE / 4))
    if sure.loss > unsure.loss + TOLERANCE:
        raise AssertionError(
            "in evaluation, right answers cost more as they get surer; leave smoothing to training=True"
        )
    if sure.preds is not None and not same(sure.preds, sure.target):
        raise AssertionError(
            f"every answer is right, but preds are {sure.preds.tolist()}; take the argmax over the last axis"
        )


def weights_and_smoothing_are_of_training_alone(case: Case) -> None:
    """`label_smoothing` and `class_weights` do in training what F.cross_entropy does, and nothing in evaluation."""
    weights = [1.0 + i for i in range(len(case.labels[1] or ()))]
    of_torch: dict[str, Any] = {}
    own = copy.deepcopy(case.objective)
    if hasattr(own, "label_smoothing"):
        own.label_smoothing = of_torch["label_smoothing"] = 0.3
    if hasattr(own, "class_weights"):
        own.class_weights = weights
        of_torch["weight"] = torch.tensor(weights)
    if not of_torch:
        raise NotCheckedError("it has neither label_smoothing nor class_weights")
    logits, target = _logits(case)
    own.fit(list(case.labels[0]), case.labels[1])
    other = replace(case, objective=own)
    what = f"the batch with {' and '.join(of_torch)}"
    _assert_alike(other.step(case.batch()), case.step(case.batch()), f"in evaluation, {what}")
    given = (logits.flatten(end_dim=-2), target.flatten())
    loss = F.cross_entropy(*given, ignore_index=IGNORE, reduction="sum", **of_torch)
    found = other.step(case.batch(), training=True)
    _assert_alike(found, replace(found, loss=loss), f"in training, {what}")


def gradients_are_right(case: Case) -> None:
    """The gradient of the training loss agrees with finite differences along a direction."""
    weights = [x for x in case.model.parameters() if x.requires_grad]
    loss = case.step(case.batch(), training=True).loss
    if not loss.requires_grad:
        raise AssertionError("the training loss has no gradient; is something detached?")
    found = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
    with seeded(0):
        direction = [_unit(x.shape) for x in weights]
    slope = sum(float((x * way).sum()) for x, way in zip(found, direction))
    differences = []
    for step in STEPS:
        ends = []
        for move in (step, -2 * step):
            for x, way in zip(weights, direction):
                x.data.add_(way, alpha=move)
            ends.append(_number(case.step(case.batch(), training=True).loss))
        for x, way in zip(weights, direction):
            x.data.add_(way, alpha=step)
        differences.append((ends[0] - ends[1]) / (2 * step))
    nearest = min(differences, key=lambda x: abs(x - slope))
    error = abs(nearest - slope) / max(abs(nearest), abs(slope), SLOPE)
    if error > SLOPE:
        raise DifferenceError(
            f"the gradient of the training loss along a direction is {slope:.4g}, not {nearest:.4g}; is something "
            "detached, or a backward of its own wrong?",
            error,
        )


def metrics_of_halves_join(case: Case) -> None:
    """Metrics of a split do not depend on how it is cut into batches."""
    right = measured(case, [case.output(case.rows)])
    if not right:
        raise NotCheckedError("it has no metrics")
    halves = [case.output(case.rows[:1]), case.output(case.rows[1:])]
    for name, found in (measured(case, halves) | measured(case, halves[::-1])).items():
        if not torch.allclose(found, right[name], TOLERANCE, TOLERANCE, equal_nan=True):
            raise AssertionError(
                f"{name} is {found.tolist()} of two batches, and {right[name].tolist()} of both as one; add up sums "
                "and counts, and divide in compute"
            )


def predict_has_one_answer_per_example(case: Case) -> None:
    """`decode` gives an answer for each example that `predict` gets."""
    for rows in (case.rows, [0]):
        answers = _decoded(case.objective, case, rows)
        if answers is None:
            raise NotCheckedError("it decodes no prediction")
        if len(answers) != len(rows):
            raise AssertionError(f"decode gives {len(answers)} answers for {len(rows)} examples")


def fit_again_learns_the_same(case: Case) -> None:
    """`fit` leaves the labels alone, and learns the same of them a second time."""
    own = copy.deepcopy(case.objective)
    labels = list(case.labels[0])
    states = []
    for _ in range(2):
        own.fit(labels, case.labels[1])
        states.append(copy.deepcopy(own.state()))
    if not same(labels, list(case.labels[0])):
        raise AssertionError("fit changes the labels, or their order; work on a copy")
    if not same(*states):
        raise AssertionError(
            "fitting again on the same labels gives another state; forget the earlier fit first"
        )


def state_is_json_and_enough(case: Case, unfitted: Objective | None) -> None:
    """The state survives JSON, and an objective that loads it steps and decodes alike."""
    own = case.objective
    try:
        state = json.loads(json.dumps(own.state(), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state() is not plain JSON: {described(error)}") from None
    if unfitted is None:
        raise NotCheckedError("it is fitted; give unfitted=")
    loaded = copy.deepcopy(unfitted)
    loaded.load_state(state)
    other = partial(Case.of(loaded, case.tokenizer, case.tokens, case.labels).step, case.batch())
    what = "an objective that loaded the state"
    _assert_same_loss(case, lambda x: other(training=x), f"with {what}, the batch")
    if not same(_decoded(own, case, case.rows), _decoded(loaded, case, case.rows)):
        raise AssertionError(f"{what} decodes otherwise; save all that fit learned")


OF_A_CASE: tuple[Callable[[Case], None], ...] = (
    evaluation_draws_nothing,
    leaves_batch_and_model_alone,
    remembers_no_batch,
    loss_is_a_finite_number,
    whole_is_the_sum_of_its_parts,
    padding_adds_nothing,
    order_of_examples_changes_nothing,
    missing_targets_count_nothing,
    packed_examples_stay_apart,
    labels_change_no_prediction,
    no_prediction_sees_its_target,
    predicts_the_next_token,
    right_answers_are_right,
    weights_and_smoothing_are_of_training_alone,
    gradients_are_right,
    metrics_of_halves_join,
    predict_has_one_answer_per_example,
    fit_again_learns_the_same,
)
"""Laws of an objective and the examples of its case alone."""


def _refuse_draws(case: Case) -> None:
    if case.objective.uses_mask_token:
        raise NotCheckedError("each batch draws masks of its own")


def _missing(label: Tensor) -> float:
    """Label that stands for a missing one."""
    return math.nan if label.is_floating_point() else IGNORE


def _number(x: Tensor) -> float:
    return float(x.detach())


def _unit(shape: torch.Size) -> Tensor:
    """A random tensor of length 1."""
    drawn = torch.randn(shape)
    return drawn / drawn.norm()


def _sum(outputs: Sequence[LossOutput]) -> LossOutput:
    loss, count = (torch.stack([getattr(x, name) for x in outputs]) for name in ("loss", "count"))
    return LossOutput(loss.sum(), count.sum())


def _assert_same_loss(case: Case, found: Callable[[bool], LossOutput], what: str) -> None:
    """Raise DifferenceError where loss or count differ from those of the batch, in evaluation and training."""
    for training in (False, True):
        right = case.output(case.rows, training=training)
        _assert_alike(found(training), right, what)


def _assert_alike(found: LossOutput, right: LossOutput, what: str) -> None:
    """Raise DifferenceError where loss or count differ."""
    for name in ("loss", "count"):
        ours, wanted = (_number(getattr(x, name)) for x in (found, right))
        largest = max(1.0, abs(ours), abs(wanted))
        if ours != wanted and not abs(ours - wanted) <= TOLERANCE * largest:
            size = abs(ours - wanted) / largest
            raise DifferenceError(f"{what} has the {name} {ours:.6g}, not {wanted:.6g}", size)


def _logits(case: Case) -> tuple[Tensor, Tensor]:
    """Logits and targets. Raises NotCheckedError where neither ids nor classes are predicted."""
    inputs, logits = case.predicted()
    target = inputs.target
    if target.is_floating_point() or logits.shape[:-1] != target.shape:
        raise NotCheckedError("it predicts no logits of ids or classes")
    return logits, target


def _answered(case: Case, logits: Tensor, target: Tensor, logit: float) -> LossOutput:
    """Loss in evaluation where logits are 0 but for those of the right answers."""
    own: Any = case.objective
    found: LossOutput = own.loss(
        torch.zeros_like(logits).scatter(-1, target.clamp(min=0)[..., None], logit), target
    )
    return found


def _changed(old: Tensor, new: Tensor, most: float = 0.0) -> Tensor:
    """Where two tensors [b n ...] differ by more, [b n]."""
    is_same = torch.isclose(old, new, 0.0, most, equal_nan=True)
    return ~is_same.reshape(*old.shape[:2], -1).all(dim=2)


def _changed_columns(case: Case) -> Iterator[tuple[Prepared, Prepared, Tensor]]:
    """Inputs and prediction before and after a column of all examples gets other content, and the targets that change,
    [b n]."""
    before = case.predicted()
    if case.objective.needs_labels:
        raise NotCheckedError("its targets are labels")
    spec = case.model.spec
    for column in range(max(map(len, case.tokens))):
        tokens = [other_content(x, torch.arange(len(x)) == column, spec) for x in case.tokens]
        after = replace(case, tokens=tokens).predicted()
        yield before, after, _changed(before[0].target, after[0].target)


def _decoded(objective: Objective, case: Case, rows: Sequence[int]) -> list[Any] | None:
    """The answers for some examples; None: it has none."""
    with torch.no_grad(), seeded(0):
        prediction = case.objective.predict(case.model, case.batch(rows)[0])
    try:
        return objective.decode(prediction)
    except ValueError:
        return None
