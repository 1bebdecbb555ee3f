"""Base class of objectives that predict labels, and conversion of labels to plain data.

b batch · n tokens · k outputs
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, from_numpy, nn

from seqkit.errors import DataError
from seqkit.interfaces import ModelInput, PredictionObjective, TokenBatch
from seqkit.nn.embedder import TokenEmbedder
from seqkit.nn.mlp import Transform
from seqkit.nn.pooling import Pool, label_head

Level = Literal["sequence", "token"]

REPORTED = {
    "Loss": "loss", "Accuracy": "accuracy", "BalancedAccuracy": "balanced_accuracy", "MacroF1": "macro_f1",
    "Precision": "precision", "Recall": "recall", "MatthewsCorrCoef": "matthews", "AUROC": "auroc",
    "AveragePrecision": "average_precision", "CalibrationError": "calibration_error", "BrierScore": "brier",
    "RMSE": "rmse", "MAE": "mae", "R2Score": "r2", "SpearmanCorrCoef": "spearman", "PearsonCorrCoef": "pearson",
    "Perplexity": "perplexity", "TokenErrorRate": "token_error", "SequenceErrorRate": "sequence_error",
    "WordErrorRate": "word_error", "WordF1": "word_f1", "CHRFScore": "chrf",
}  # fmt: skip
"""Name of each metric in tables and files."""

OF_PROBABILITIES = {"AUROC", "AveragePrecision", "CalibrationError", "BrierScore"}
"""Names of the metrics of classes that need the probabilities of all classes, not just the likeliest class."""

OF_WORDS = {"WordErrorRate", "WordF1", "CHRFScore"}
"""Names of the metrics of generated sequences that compare their texts, and not their ids."""


class LabelObjective(PredictionObjective):
    """Base class of `Classify`, `MultiLabel` and `Regress`: k outputs for each sequence, or for each token.

    level: what has a label: a sequence or a token. pool: how a sequence's hidden states become one vector. transform:
    layers between the hidden states and the head's output layer; None: none.
    """

    needs_labels = True

    def __init__(self, level: Level, pool: Pool, transform: Callable[[int], Transform] | None):
        self.level = level
        self.pool = pool
        self.transform = transform

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Number k of the head's outputs; 0 before `fit`."""

    def head(self, embedder: nn.Module) -> nn.Module:
        """Head with outputs [b k], or [b n k] for tokens. Raises ValueError before `fit`."""
        assert isinstance(embedder, TokenEmbedder)
        if not self.num_outputs:
            raise ValueError(
                f"{type(self).__name__} does not know its labels yet; call fit(labels, names) before building a model"
            )
        pool = None if self.level == "token" else self.pool
        return label_head(embedder, self.num_outputs, pool=pool, transform=self.transform)

    def _input(
        self, batch: TokenBatch, label: Tensor | None, *axes: int, dtype: torch.dtype
    ) -> ModelInput:
        """The unchanged batch, with the label [b *axes] or [b n *axes] as target.

        Raises DataError if labels are missing, have another shape, or are floats and `dtype` is an integer type.
        """
        shape = [*(batch.valid.shape if self.level == "token" else batch.valid.shape[:1]), *axes]
        if (
            label is None
            or list(label.shape) != shape
            or (label.is_floating_point() and not dtype.is_floating_point)
        ):
            got = "none" if label is None else f"{list(label.shape)} {label.dtype}"
            wanted = "numbers" if dtype.is_floating_point else "integers"
            raise DataError(
                f"labels are {got}; {type(self).__name__} of each {self.level} needs {wanted} {shape}"
            )
        return ModelInput(batch, None, label.to(dtype))


def on_device(values: Sequence[float], device: torch.device) -> Tensor:
    """A float32 tensor of the numbers; on CUDA it is copied from pinned memory, so that nothing waits for it."""
    made = torch.tensor(values, dtype=torch.float32)
    if device.type == "cuda":
        return made.pin_memory().to(device, non_blocking=True)
    return made.to(device)


def plain(label: Any) -> Any:
    """Convert a label to an int, a float, a list of them, or an int64 or floating-point tensor.

    Booleans become 0 and 1, arrays without axes numbers, floats in NumPy arrays float32. Other labels are not changed.

    >>> plain(np.array([1, 0, 1])), plain(np.float64(0.5)), plain([True, 2])
    (tensor([1, 0, 1]), 0.5, [1, 2])
    """
    if type(label) in (int, float):
        return label
    if isinstance(label, list | tuple):
        made = [plain(one) for one in label]
        if all(one is given for one, given in zip(made, label)):
            return label
        return made
    if isinstance(label, np.ndarray | np.generic | Tensor) and label.ndim == 0:
        label = label.item()
    if isinstance(label, bool):
        return int(label)
    if isinstance(label, np.longdouble):  # its item() returns a longdouble
        return float(label)
    if isinstance(label, np.ndarray) and label.dtype.kind in "biuf":
        return from_numpy(label.astype(np.float32 if label.dtype.kind == "f" else np.int64))
    if isinstance(label, Tensor) and not label.is_floating_point() and not label.is_complex():
        return label.long()
    return label
