"""Causal language modelling: predict each token from those before it.

b batch · n tokens · k fields · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, LossOutput, ModelInput, PredictionObjective, TokenBatch, TokenSpec
from seqkit.nn.embedder import Embedder
from seqkit.nn.heads import TiedHead, content_head
from seqkit.objectives.losses import cross_entropy, id_frequencies, like

TokenMetric = Literal["Accuracy", "Perplexity"]
"""Names of metrics, as in torchmetrics: `seqkit.objectives.metrics.of_ids`."""


class NextToken(PredictionObjective):
    """Causal language modelling: cross-entropy in nats per token, over all but the first of each example.

    Tokens of several ids (`TokenSpec.vocab_sizes`): a linear layer for each field, all from the same hidden state, and
    the mean of the fields' cross-entropies (Compound Word Transformer; Hsiao et al. 2021, section 4.2), so in nats per
    field. Numbers beside the ids are input alone: to predict one, make it a field of bins.
    tied: whether the head's weight is the embedding table.
    bias: whether the head has a bias, if it is not tied.
    metrics: metrics that are measured beside the loss; None: Accuracy and Perplexity.
    Raises ValueError if the tokens are vectors; DataError for a batch in which no example has a second token.
    """

    causal = True
    needs_labels = False
    supports_segments = True

    def __init__(self, *, tied: bool = False, bias: bool = True, metrics: list[TokenMetric] | None = None):
        self.tied, self.bias = tied, bias
        self.chosen_metrics: list[str] = ["Accuracy", "Perplexity"] if metrics is None else list(metrics)

    def head(self, embedder: nn.Module) -> nn.Module:
        """Logits [b n v] over the vocabulary, or [b n k v] over those of the fields."""
        assert isinstance(embedder, Embedder)
        if not embedder.spec.is_categorical:
            raise ValueError("NextToken predicts ids, but these tokens are vectors; use Masked, Classify or Regress")
        if not self.tied:
            return content_head(embedder.dim, embedder.spec, bias=self.bias)
        if embedder.spec.vocab_sizes:
            raise ValueError("tied=True shares one lookup table, and tokens of several ids have several; use False")
        return TiedHead(embedder.table, scale=embedder.logit_scale)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """Input: all columns but the last; target: all but the first."""
        if batch.content.shape[1] < 2:
            raise DataError("every text is a single token, so there is no next one to predict; give longer text")
        known = batch.valid[:, 1:]
        if batch.segments is not None:  # the first token of a packed sequence does not continue the sequence before it
            known = known & (batch.segments[:, 1:] == batch.segments[:, :-1])
        target = batch.content[:, 1:]
        return ModelInput(batch.columns(slice(-1)), None, target.masked_fill(~like(known, target), IGNORE))

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Cross-entropy of logits [b n (k) v], summed over the targets [b n (k)] that are not IGNORE."""
        return cross_entropy(prediction, target, training=training)

    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """Constant prediction: the training frequencies of the tokens, or of the ids of each field."""
        return id_frequencies(targets, spec)

    def metrics(self, spec: TokenSpec) -> dict[str, Any]:
        """The chosen metrics; accuracy is that of the likeliest next token (of fields, the share that is right)."""
        from seqkit.objectives.metrics import of_ids

        return of_ids(self.chosen_metrics)
