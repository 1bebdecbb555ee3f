"""Objectives with one fault each, by the law that names it: those of `ALONE` are named by that law alone."""

import torch
import torch.nn.functional as F
from torchmetrics import Metric

from seqkit.interfaces import IGNORE, LossOutput, ModelInput, Objective, PredictionObjective
from seqkit.nn.heads import TokenHead
from seqkit.nn.pooling import SequenceHead
from seqkit.objectives import Classify, Masked, NextToken, Regress
from seqkit.objectives.losses import cross_entropy
from seqkit.objectives.metrics import Accuracy


class Classes(PredictionObjective):
    """Cross-entropy of classes, without a fault."""

    needs_labels = True

    def __init__(self):
        self.names = []

    def fit(self, labels, names):
        self.names = list(names)

    def state(self):
        return {"names": list(self.names)} if self.names else {}

    def load_state(self, state):
        self.names = list(state["names"])

    def head(self, embedder):
        return SequenceHead(embedder.dim, len(self.names))

    def prepare(self, batch, label):
        return ModelInput(batch, None, label)

    def each(self, prediction, target, training):
        return F.cross_entropy(prediction, target, reduction="none")

    def loss(self, prediction, target, *, training=False):
        each = self.each(prediction, target, training)
        preds = prediction.argmax(dim=1)
        return LossOutput(each.sum(), torch.tensor(len(each)), preds=preds, target=target)

    def metrics(self, spec):
        return {"accuracy": Accuracy()}

    def decode(self, prediction):
        return [self.names[i] for i in prediction.argmax(dim=1).tolist()]


class NextIds(Objective):
    """Cross-entropy of the next id by a step of its own, without a fault."""

    causal = True

    def head(self, embedder):
        return TokenHead(embedder.dim, embedder.spec.vocab_size)

    def step(self, model, batch, *, training=False):
        tokens = batch[0]
        known = tokens.valid[:, 1:]
        target = tokens.content[:, 1:].masked_fill(~known, IGNORE)
        logits = model(tokens.columns(slice(-1))).transpose(1, 2)
        each = F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="none")
        return LossOutput(self.total(each), self.count(known))

    def total(self, each):
        return each.sum()

    def count(self, known):
        return known.sum()


class SamplesItsPredictions(Classes):
    def predict(self, model, batch):
        drawn = model(batch).softmax(dim=1).multinomial(1)[:, 0]
        return F.one_hot(drawn, len(self.names)).float()


class DropsOutInEvaluation(Classes):
    def each(self, prediction, target, training):
        return super().each(F.dropout(prediction, 0.5), target, training)


class TurnsTrainingOn(Classes):
    def step(self, model, batch, *, training=False):
        model.train()
        return super().step(model, batch, training=training)


class ShiftsLabelsInPlace(Classes):
    def prepare(self, batch, label):
        label += 1
        return super().prepare(batch, label - 1)


class CountsItsSteps(Classes):
    """In its state."""

    steps = 0

    def state(self):
        return {**super().state(), "steps": self.steps} if self.names else {}

    def loss(self, prediction, target, *, training=False):
        self.steps += 1
        return super().loss(prediction, target, training=training)


class DividesByRunningMean(Classes):
    mean = 1.0

    def each(self, prediction, target, training):
        found = super().each(prediction, target, training)
        self.mean = 0.9 * self.mean + 0.1 * float(found.detach().mean())
        return found / self.mean


class TakesLogarithms(Classes):
    def each(self, prediction, target, training):
        return -prediction.softmax(dim=1).log().gather(1, target[:, None])[:, 0]


class MeanOfABatch(Classes):
    def loss(self, prediction, target, *, training=False):
        each = self.each(prediction, target, training)
        return LossOutput(each.mean(), torch.tensor(1), prediction.argmax(dim=1), target)


class CountsPadding(NextToken):
    def loss(self, prediction, target, *, training=False):
        found = super().loss(prediction, target, training=training)
        return LossOutput(found.loss, torch.tensor(target.numel()), found.preds, found.target)


class KnowsNoIgnore(NextToken):
    def loss(self, prediction, target, *, training=False):
        return super().loss(prediction, target.clamp(min=0), training=training)


class MeanOfMasked(Masked):
    """The count is that of all tokens."""

    def loss(self, prediction, target, *, training=False):
        found = super().loss(prediction, target, training=training)
        return LossOutput(found.loss, torch.tensor(target.numel()), found.preds, found.target)


class CountsColumns(NextIds):
    def count(self, known):
        return torch.tensor(known.numel())


class WeighsByRow(NextIds):
    def total(self, each):
        return (each.sum(dim=1) * torch.arange(1.0, len(each) + 1)).sum()


class TakesMissingForZero(Regress):
    def loss(self, prediction, target, *, training=False):
        return super().loss(prediction, target.nan_to_num(), training=training)


class CrossesSegments(NextToken):
    def prepare(self, batch, label):
        if batch.segments is None:
            return super().prepare(batch, label)
        found = super().prepare(batch.replace(segments=None), label)
        return ModelInput(batch.columns(slice(-1)), None, found.target)


class ReadsLabels(Classes):
    def prepare(self, batch, label):
        content = (batch.content + label[:, None]).masked_fill(~batch.valid, 0) % 7
        return ModelInput(batch.replace(content=content), None, label)


class ForgetsTheMask(Masked):
    def prepare(self, batch, label):
        found = super().prepare(batch, label)
        return ModelInput(found.batch, None, found.target)


class PredictsItself(NextToken):
    """It does not shift the input."""

    def prepare(self, batch, label):
        found = super().prepare(batch, label)
        return ModelInput(batch.columns(slice(1, None)), None, found.target)


class ShiftsByTwo(NextToken):
    supports_segments = False

    def prepare(self, batch, label):
        target = batch.content[:, 2:].masked_fill(~batch.valid[:, 2:], IGNORE)
        return ModelInput(batch.columns(slice(-2)), None, target)


class SmoothsInEvaluation(Classes):
    def each(self, prediction, target, training):
        return F.cross_entropy(prediction, target, reduction="none", label_smoothing=0.1)


class ArgmaxOverExamples(Classes):
    def loss(self, prediction, target, *, training=False):
        found = super().loss(prediction, target, training=training)
        return LossOutput(found.loss, found.count, prediction.argmax(dim=0), target)


class PredictsTheNextClass(Classes):
    def loss(self, prediction, target, *, training=False):
        found = super().loss(prediction, target, training=training)
        preds = (found.preds + 1) % len(self.names)
        return LossOutput(found.loss, found.count, preds, target)


class WeighsInEvaluation(Classify):
    def loss(self, prediction, target, *, training=False):
        found = super().loss(prediction, target, training=training)
        if training or not self.weights:
            return found
        loss = super().loss(prediction, target, training=True).loss
        return LossOutput(loss, found.count, found.preds, found.target)


class SmoothsNothing(Classify):
    def loss(self, prediction, target, *, training=False):
        weights = torch.tensor(self.weights) if training and self.weights else None
        return cross_entropy(prediction, target, training=training, weights=weights)


class DetachesItsNormaliser(Classes):
    def each(self, prediction, target, training):
        chosen = prediction.gather(1, target[:, None])[:, 0]
        return prediction.logsumexp(dim=1).detach() - chosen


class MeanOfBatches(Metric):
    def __init__(self):
        super().__init__()
        self.add_state("shares", torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("batches", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds, target):
        self.shares += (preds - target).abs().float().mean()
        self.batches += 1

    def compute(self):
        return self.shares / self.batches


class AveragesBatches(Classes):
    def metrics(self, spec):
        return {"distance": MeanOfBatches()}


class DecodesOverExamples(Classes):
    def decode(self, prediction):
        return [self.names[0] for _ in prediction.argmax(dim=0)]


class AddsClasses(Classes):
    def fit(self, labels, names):
        self.names = self.names + list(names)


class ForgetsItsNames(Classes):
    def load_state(self, state):
        self.names = ["?" for _ in state["names"]]


class ForgetsItsSpread(Regress):
    def load_state(self, state):
        super().load_state(state)
        self.std = [1.0 for _ in self.std]


class StateIsATensor(Classes):
    def state(self):
        return {"names": list(self.names), "count": torch.tensor(3)} if self.names else {}


ALONE = {
    SamplesItsPredictions: "evaluation_draws_nothing",
    TurnsTrainingOn: "leaves_batch_and_model_alone",
    CountsItsSteps: "remembers_no_batch",
    TakesLogarithms: "loss_is_a_finite_number",
    MeanOfABatch: "whole_is_the_sum_of_its_parts",
    MeanOfMasked: "whole_is_the_sum_of_its_parts",
    CountsColumns: "padding_adds_nothing",
    WeighsByRow: "order_of_examples_changes_nothing",
    TakesMissingForZero: "missing_targets_count_nothing",
    CrossesSegments: "packed_examples_stay_apart",
    ReadsLabels: "labels_change_no_prediction",
    ForgetsTheMask: "no_prediction_sees_its_target",
    ShiftsByTwo: "predicts_the_next_token",
    SmoothsInEvaluation: "right_answers_are_right",
    PredictsTheNextClass: "right_answers_are_right",
    WeighsInEvaluation: "weights_and_smoothing_are_of_training_alone",
    SmoothsNothing: "weights_and_smoothing_are_of_training_alone",
    DetachesItsNormaliser: "gradients_are_right",
    AveragesBatches: "metrics_of_halves_join",
    DecodesOverExamples: "predict_has_one_answer_per_example",
    AddsClasses: "fit_again_learns_the_same",
    ForgetsItsNames: "state_is_json_and_enough",
    ForgetsItsSpread: "state_is_json_and_enough",
    StateIsATensor: "state_is_json_and_enough",
}
AMONG_OTHERS = {
    DropsOutInEvaluation: "evaluation_draws_nothing",
    ShiftsLabelsInPlace: "leaves_batch_and_model_alone",
    DividesByRunningMean: "remembers_no_batch",
    CountsPadding: "padding_adds_nothing",
    KnowsNoIgnore: "whole_is_the_sum_of_its_parts",
    PredictsItself: "no_prediction_sees_its_target",
    ArgmaxOverExamples: "right_answers_are_right",
}
