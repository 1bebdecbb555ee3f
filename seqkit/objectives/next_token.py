"""Causal language modelling: predict each token from those before it.

b batch · n tokens · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, LossOutput, ModelInput, Objective, TokenBatch, TokenSpec
from seqkit.nn.embedder import Embedder
from seqkit.nn.heads import TiedHead, TokenHead
from seqkit.objectives.losses import cross_entropy, frequencies


class NextToken(Objective):
    """Causal language modelling: cross-entropy in nats per token, over all but the first of each example.

    tied: True: the head's weight is the embedding table. bias: of the head, if it is not tied.
    Raises ValueError if the tokens are vectors; DataError for a batch in which no example has a second token.
    """

    causal = True
    needs_labels = False

    def __init__(self, *, tied: bool = False, bias: bool = True):
        self.tied, self.bias = tied, bias

    def head(self, embedder: nn.Module) -> nn.Module:
        """Logits [b n v] over the vocabulary."""
        assert isinstance(embedder, Embedder)
        if not embedder.spec.ids:
            raise ValueError("NextToken predicts ids, but these tokens are vectors; use Masked, Classify or Regress")
        if not self.tied:
            return TokenHead(embedder.dim, embedder.spec.vocab_size, bias=self.bias)
        return TiedHead(embedder.table, scale=embedder.logit_scale)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """Input: all columns but the last; target: all but the first."""
        if batch.content.shape[1] < 2:
            raise DataError("every text is a single token, so there is no next one to predict; give longer text")
        target = batch.content[:, 1:].masked_fill(~batch.valid[:, 1:], IGNORE)
        segments = None
        if batch.segments is not None:  # the first token of a packed sequence does not continue the sequence before it
            target = target.masked_fill(batch.segments[:, 1:] != batch.segments[:, :-1], IGNORE)
            segments = batch.segments[:, :-1]
        inputs = replace(
            batch,
            content=batch.content[:, :-1],
            positions=batch.positions[:, :-1],
            valid=batch.valid[:, :-1],
            segments=segments,
        )
        return ModelInput(inputs, None, target)

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Cross-entropy of logits [b n v], summed over the targets [b n] that are not IGNORE."""
        return cross_entropy(prediction, target, training=training)

    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """The training frequencies of the tokens."""
        return frequencies(targets, spec.vocab_size)

    def metrics(self, spec: TokenSpec) -> dict[str, Any]:
        """Accuracy of the likeliest next token."""
        from seqkit.objectives.metrics import Accuracy

        return {"accuracy": Accuracy()}
