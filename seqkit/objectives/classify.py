"""Classification of sequences or of tokens.

b batch · n tokens · k classes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, LossOutput, ModelInput, Objective, TokenBatch, TokenSpec
from seqkit.nn.embedder import Embedder
from seqkit.nn.heads import Pool, SequenceHead, TokenHead
from seqkit.objectives.losses import cross_entropy, frequencies


class Classify(Objective):
    """Classification: cross-entropy of class labels, in nats; tokens labelled IGNORE (-100) are left out.

    level: "sequence" or "token". pool: how a sequence's hidden states become one vector.
    label_smoothing: share of the target spread over all classes (Szegedy et al. 2016, section 7), in training
    alone; the loss of an evaluation is the plain one.
    """

    needs_labels = True
    primary_metric = "accuracy"

    def __init__(
        self, *, level: Literal["sequence", "token"] = "sequence", pool: Pool = "mean", label_smoothing: float = 0.0
    ):
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                f"label_smoothing={label_smoothing} is a share of the target; make it at least 0 and below 1"
            )
        self.level, self.pool, self.label_smoothing = level, pool, label_smoothing
        self.names: list[str] = []

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Learn the names of the classes, or, without names, their number."""
        if any(torch.as_tensor(label).is_floating_point() for label in labels):
            raise DataError("the targets are numbers; Classify needs class names, use Regress")
        highest = max((int(torch.as_tensor(label).max()) for label in labels), default=-1)
        if names is None:
            names = [str(i) for i in range(highest + 1)]
        if highest >= len(names):
            raise DataError(f"a label is class {highest}, but there are {len(names)} classes, 0 to {len(names) - 1}")
        if len(names) < 2:
            raise DataError(f"the training labels hold {len(names)} class; classification needs two or more")
        self.names = list(names)

    def state(self) -> dict[str, Any]:
        """The names of the classes."""
        return {"names": self.names} if self.names else {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take back the names of the classes."""
        self.names = [str(name) for name in state["names"]]

    def head(self, embedder: nn.Module) -> nn.Module:
        """Logits [b k] or [b n k]."""
        assert isinstance(embedder, Embedder)
        if not self.names:
            raise ValueError(
                "Classify does not know its classes yet; call fit(labels, names) before building the model"
            )
        if self.level == "token":
            return TokenHead(embedder.dim, len(self.names))
        return SequenceHead(embedder.dim, len(self.names), pool=self.pool)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """The batch as it is; the target is the label, [b] or [b n]."""
        shape = batch.valid.shape if self.level == "token" else batch.valid.shape[:1]
        if label is None or label.shape != shape or label.is_floating_point():
            got = "none" if label is None else f"{list(label.shape)} {label.dtype}"
            raise DataError(f"labels are {got}; classification of each {self.level} needs integers {list(shape)}")
        known = label[label != IGNORE] if label.device.type == "cpu" else label[:0]  # an accelerator would wait
        if len(known) and not 0 <= int(known.min()) <= int(known.max()) < len(self.names):
            raise DataError(
                f"labels run from {int(known.min())} to {int(known.max())}; "
                f"there are classes 0 to {len(self.names) - 1}"
            )
        return ModelInput(batch, None, label)

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Cross-entropy of logits [b k] or [b n k], summed over the targets that are not IGNORE."""
        return cross_entropy(prediction, target, label_smoothing=self.label_smoothing, training=training)

    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """The training frequencies of the classes."""
        return frequencies(targets, len(self.names))

    def metrics(self, spec: TokenSpec) -> dict[str, Any]:
        """Accuracy."""
        from seqkit.objectives.metrics import Accuracy

        return {"accuracy": Accuracy()}

    def decode(self, prediction: Tensor) -> list[Any]:
        """The name of the likeliest class per example (level "token": a list of names)."""

        def named(index: Any) -> Any:
            return [named(i) for i in index] if isinstance(index, list) else self.names[index]

        return named(prediction.argmax(dim=-1).tolist())
