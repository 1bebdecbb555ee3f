"""Predict each token from those before it.

b batch · n tokens read · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.contract import IGNORE, DataError, Objective, Prepared, Score, TokenBatch
from seqkit.embed import Embedder
from seqkit.heads import PerToken, Tied


class NextToken(Objective):
    """Cross-entropy of the next token, in nats per token, over every token but the first of each example.

    tied: the head scores with the embedding table. bias: of the head, if it is not tied.
    Raises ValueError if the tokens are vectors; DataError for a batch in which no example has a second token.
    """

    causal = True
    labelled = False

    def __init__(self, *, tied: bool = False, bias: bool = True):
        self.tied, self.bias = tied, bias
        self._vocab_size = 0

    def head(self, embedder: nn.Module) -> nn.Module:
        """Scores [b n v] of the vocabulary."""
        assert isinstance(embedder, Embedder)
        if not embedder.spec.ids:
            raise ValueError("NextToken predicts ids, but these tokens are vectors; use Masked, Classify or Regress")
        self._vocab_size = embedder.spec.vocab_size
        if not self.tied:
            return PerToken(embedder.dim, embedder.spec.vocab_size, bias=self.bias)
        return Tied(embedder.table, embedder.position.std)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> Prepared:
        """Reads all but the last column, says all but the first."""
        if batch.content.shape[1] < 2:
            raise DataError("every text is a single token, so there is no next one to predict; give longer text")
        target = batch.content[:, 1:].masked_fill(~batch.valid[:, 1:], IGNORE)
        segments = None
        if batch.segments is not None:  # the first token of a packed text does not follow from the text before it
            target = target.masked_fill(batch.segments[:, 1:] != batch.segments[:, :-1], IGNORE)
            segments = batch.segments[:, :-1]
        read = replace(
            batch,
            content=batch.content[:, :-1],
            positions=batch.positions[:, :-1],
            valid=batch.valid[:, :-1],
            segments=segments,
        )
        return Prepared(read, None, target)

    def score(self, prediction: Tensor, target: Tensor) -> Score:
        """Sum of cross-entropies of prediction [b n v] over the targets [b n] that are not IGNORE."""
        return cross_entropy(prediction, target)

    def constant(self, targets: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
        """Always the training frequencies of the tokens."""
        return frequencies(targets, self._vocab_size)

    def metrics(self) -> dict[str, Any]:
        """Share of tokens whose likeliest guess is right."""
        from seqkit.objectives.metrics import Accuracy

        return {"accuracy": Accuracy()}


def cross_entropy(prediction: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Score:
    """Sum over targets that are not IGNORE, in nats.

    prediction: [... v], target: [...]; predicted: the likeliest id.
    """
    prediction, target = rearrange(prediction, "... v -> (...) v"), rearrange(target, "... -> (...)")
    known = target != IGNORE
    loss = F.cross_entropy(
        prediction.float(), target, reduction="sum", ignore_index=IGNORE, label_smoothing=label_smoothing
    )
    guess = prediction.detach().argmax(dim=-1)
    return Score(loss, known.sum(), guess[known], target[known])


def frequencies(targets: Sequence[Tensor], num_classes: int) -> Callable[[Tensor], Tensor]:
    """Predicts the log of how often each class occurs among `targets`.

    Each class is counted once more, so that none is impossible.
    """
    counts = torch.ones(num_classes, dtype=torch.float64)
    for target in targets:
        counts += torch.bincount(target[target != IGNORE].cpu(), minlength=num_classes)
    scores = (counts / counts.sum()).log().float()
    return lambda target: scores.expand(*target.shape, num_classes)
