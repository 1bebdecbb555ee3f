"""Causal language modelling: predict each token from those before it.

b batch · n tokens · k fields · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, LossOutput, ModelInput, PredictionObjective, TokenBatch, TokenSpec
from seqkit.nn.embedder import TokenEmbedder
from seqkit.nn.heads import PartHead, TiedHead, TokenHead, content_head
from seqkit.objectives.losses import cross_entropy, frequencies, id_frequencies, like

TokenMetric = Literal["Accuracy", "Perplexity"]
"""Names of metrics, as in torchmetrics: `seqkit.objectives.metrics.of_ids`."""


END = 0
"""Number of the end of a run among the predictions of a part; id i of the part has the number i + 1."""


class NextToken(PredictionObjective):
    """Causal language modelling: cross-entropy in nats per token, over all but the first of each example.

    Tokens of several ids (`TokenSpec.vocab_sizes`): a linear layer for each field, all from the same hidden state, and
    the mean of the fields' cross-entropies (Compound Word Transformer; Hsiao et al. 2021, section 4.2), so in nats per
    field. Numbers beside the ids are input alone: to predict one, make it a field of bins.

    part: of joined tokens, the part of ids that is predicted, and the end of each of its runs, which is one more id:
    captions, or any text that follows other parts. Tokens of other parts attend to all columns up to the next run of
    that part (a prefix language model; Raffel et al. 2020, section 3.2.1), those of the part to earlier ones. A
    backbone with `causal: true` has the prefix causal, too.
    tied: whether the head's weight is the embedding table.
    bias: whether the head has a bias, if it is not tied.
    metrics: metrics that are measured beside the loss; None: Accuracy and Perplexity.
    Raises ValueError if the tokens are vectors; DataError for a batch in which no example has a second token.
    """

    causal = True
    needs_labels = False
    supports_segments = True

    def __init__(
        self,
        *,
        part: str | None = None,
        tied: bool = False,
        bias: bool = True,
        metrics: list[TokenMetric] | None = None,
    ):
        if part is not None and tied:
            raise ValueError("tied=True shares the table of the part's ids, which has no row for their end; use False")
        self.part, self.tied, self.bias = part, tied, bias
        self.chosen_metrics: list[str] = ["Accuracy", "Perplexity"] if metrics is None else list(metrics)

    def head(self, embedder: nn.Module) -> nn.Module:
        """Logits [b n v] over the vocabulary, [b n k v] over those of the fields, or [r m + 1 v + 1] of a part."""
        assert isinstance(embedder, TokenEmbedder)
        embedder = embedder.part(self.part)
        if not embedder.spec.is_categorical:
            raise ValueError("NextToken predicts ids, but these tokens are vectors; use Masked, Classify or Regress")
        if self.part is not None:
            if embedder.spec.vocab_sizes:
                raise ValueError(f"tokens of {self.part} have several ids each, and the end of a run is one id")
            head = TokenHead(embedder.dim, embedder.spec.vocab_size + 1, bias=self.bias)
            return PartHead(self.part, head, before=True)
        if not self.tied:
            return content_head(embedder.dim, embedder.spec, bias=self.bias)
        if embedder.spec.vocab_sizes:
            raise ValueError("tied=True shares one lookup table, and tokens of several ids have several; use False")
        return TiedHead(embedder.table, scale=embedder.logit_scale)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """Input: all columns but the last; target: all but the first. Of a part: all columns, and their reach."""
        if self.part is not None:
            return self._prepare_part(batch, self.part)
        if batch.content.shape[1] < 2:
            raise DataError("every text is a single token, so there is no next one to predict; give longer text")
        known = batch.valid[:, 1:]
        if batch.segments is not None:  # the first token of a packed sequence does not continue the sequence before it
            known = known & (batch.segments[:, 1:] == batch.segments[:, :-1])
        target = batch.content[:, 1:]
        return ModelInput(batch.columns(slice(-1)), None, target.masked_fill(~like(known, target), IGNORE))

    def _prepare_part(self, batch: TokenBatch, name: str) -> ModelInput:
        """Target [r m + 1]: 1 + id of the tokens of each run, then `END`; IGNORE where no column comes before."""
        own, n = batch.part(name), batch.valid.shape[1]
        assert batch.parts is not None
        target = F.pad((own.content + 1).masked_fill(~own.valid, IGNORE), [0, 1], value=IGNORE)
        target = target.scatter(1, own.valid.sum(dim=1, keepdim=True), END)
        is_first = F.pad(batch.parts.of(name).columns[:, :1] % n == 0, [0, own.valid.shape[1]])
        return ModelInput(batch.replace(reach=prefix_reach(batch, name)), None, target.masked_fill(is_first, IGNORE))

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Cross-entropy of logits [b n (k) v], summed over the targets [b n (k)] that are not IGNORE."""
        return cross_entropy(prediction, target, training=training)

    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """Constant prediction: the training frequencies of the tokens, or of the ids of each field."""
        if self.part is not None:
            return frequencies(targets, spec.part(self.part).vocab_size + 1)
        return id_frequencies(targets, spec)

    def metrics(self, spec: TokenSpec) -> dict[str, Any]:
        """The chosen metrics; accuracy is that of the likeliest next token (of fields, the share that is right)."""
        from seqkit.objectives.metrics import of_ids

        return of_ids(self.chosen_metrics)


def prefix_reach(batch: TokenBatch, part: str) -> Tensor:
    """Reach [b n] where tokens of a part are predicted: their own column; of others, that before its next run.

    After the last run of the part others reach to the end of the example.
    """
    b, n = batch.valid.shape
    own = batch.parts.of(part) if batch.parts is not None else None
    assert own is not None
    counted = torch.zeros(b * n, dtype=torch.int64, device=batch.valid.device)
    counted = counted.index_add(0, own.columns.reshape(-1), own.batch.valid.reshape(-1).long())
    column, is_own = torch.arange(n, device=batch.valid.device).expand(b, n), counted.reshape(b, n) > 0
    length = batch.valid.sum(dim=1, keepdim=True)
    following = column.where(is_own, length).flip(1).cummin(dim=1).values.flip(1)
    return torch.maximum(column.where(is_own, following - 1), column)
