"""Base class of objectives that predict a text, whose label is a text or several references any of which is right.

b batch · t tokens of a target · a references
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from seqkit.errors import DataError, attempt
from seqkit.interfaces import IGNORE, PredictionObjective, TokenBatch, Tokenizer

if TYPE_CHECKING:
    from torchmetrics import Metric

TextMetric = Literal["TokenErrorRate", "SequenceErrorRate", "WordErrorRate", "WordF1", "CHRFScore"]
"""Names of the metrics of generated sequences, as in torchmetrics: `seqkit.objectives.metrics.build_metrics`."""


class TextObjective(PredictionObjective):
    """Base class of `CTC` and `Seq2Seq`: the first reference is trained on, predictions are compared with the nearest.

    target: tokenizer of the texts, fitted on the training labels. metrics: those of the predicted texts.
    Raises ValueError for a tokenizer without `decode`.
    """

    needs_labels = True

    def __init__(self, target: Tokenizer, metrics: list[str]):
        if not hasattr(target, "decode"):
            raise ValueError(
                f"{type(target).__name__} has no decode(ids), so ids could not become text; write it, or use Words"
            )
        self.target: Any = target
        self.chosen_metrics = metrics

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Fits the target tokenizer on all references, unless it is fitted."""
        if hasattr(self.target, "fit") and not getattr(self.target, "was_fitted", False):
            self.target.fit([text for label in labels for text in texts_of(label)])

    def encode_target(self, label: Any) -> Tensor:
        """int64 [a t], a row for each reference, IGNORE after its end. Raises DataError if the label is no text."""
        rows = [self.encoded(text) for text in texts_of(label)]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=IGNORE)

    def encoded(self, text: str) -> Tensor:
        """Ids [t] of a text."""
        ids: Tensor = attempt(self.target, "encode", text).content
        return ids

    def first_references(self, batch: TokenBatch, label: Tensor | None) -> Tensor:
        """The first reference of each example, [b t]. Raises DataError if labels are not as of `encode_target`."""
        b = len(batch)
        if label is None or label.ndim != 3 or label.is_floating_point() or len(label) != b:
            got = "none" if label is None else f"{list(label.shape)} {label.dtype}"
            raise DataError(
                f"labels are {got}; {type(self).__name__} needs ids [{b} a t], as encode_target makes of texts"
            )
        return label[:, 0]

    def generation_metrics(self) -> dict[str, Metric]:
        """The chosen metrics of the predicted texts."""
        from seqkit.objectives.metrics import build_metrics

        return build_metrics(self.chosen_metrics, decode=self.text)

    def decode(self, prediction: Tensor) -> list[Any]:
        """Predicted ids [b t] as texts."""
        return [self.text(row) for row in prediction]

    def text(self, ids: Tensor) -> str:
        """Text of a row of ids [t]."""
        if len(kept := ids[self.is_text(ids)]):
            return str(attempt(self.target, "decode", kept.cpu()))
        return ""

    def is_text(self, ids: Tensor) -> Tensor:
        """Which ids [...] are text: bool [...]."""
        return ids != IGNORE


def texts_of(label: Any) -> list[str]:
    """The references of a label."""
    texts = [label] if isinstance(label, str) else label
    is_list = isinstance(texts, list | tuple) and len(texts) > 0
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise DataError(
            f"a label is {label!r}; give the target text, or a list of references any of which is right"
        )
    return list(texts)
