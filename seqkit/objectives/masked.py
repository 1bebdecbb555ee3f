"""Hide some tokens and rebuild them: BERT's task for ids, the masked autoencoder's for vectors.

b batch · n tokens · f features · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.contract import IGNORE, Objective, Prepared, Score, TokenBatch
from seqkit.embed import Embedder
from seqkit.heads import PerToken
from seqkit.objectives.next_token import cross_entropy, frequencies


class Masked(Objective):
    """Hides `fraction` of each example's tokens (at least one) behind a learned vector and scores what is rebuilt.

    Ids: cross-entropy in nats per hidden token (Devlin et al. 2019, task 1; all hidden ones are replaced, none kept or
    swapped). Vectors: squared error, mean over features (He et al. 2022, section 3).
    Hidden tokens stay in the sequence, so every backbone can do it except a causal one, which is refused: it could not
    read what follows.
    """

    causal = False
    labelled = False
    hides = True

    def __init__(self, *, fraction: float = 0.15):
        if not 0 < fraction < 1:
            raise ValueError(f"fraction={fraction} should lie between 0 and 1, without both")
        self.fraction = fraction
        self._ids, self._size = True, 0

    def head(self, embedder: nn.Module) -> nn.Module:
        """Scores [b n v] of the vocabulary, or features [b n f]."""
        assert isinstance(embedder, Embedder)
        self._ids, self._size = embedder.spec.ids, embedder.spec.vocab_size or embedder.spec.num_features
        return PerToken(embedder.dim, self._size)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> Prepared:
        """Which tokens are hidden is drawn from torch's global generator; evaluation seeds it, so that it repeats."""
        noise = torch.rand(batch.valid.shape, device=batch.valid.device).masked_fill(~batch.valid, 2.0)
        rank = noise.argsort(dim=1).argsort(dim=1)
        count = (batch.valid.sum(dim=1, keepdim=True) * self.fraction).round().clamp(min=1)
        hide = (rank < count) & batch.valid
        if self._ids:
            return Prepared(batch, hide, batch.content.masked_fill(~hide, IGNORE))
        missing = torch.full_like(batch.content, torch.nan)
        return Prepared(batch, hide, torch.where(hide[..., None], batch.content, missing))

    def score(self, prediction: Tensor, target: Tensor) -> Score:
        """Over the hidden tokens: target is IGNORE (ids) or NaN (vectors) elsewhere."""
        if self._ids:
            return cross_entropy(prediction, target)
        hidden = ~target[..., 0].isnan()
        predicted, truth = prediction[hidden].float(), target[hidden]
        loss = F.mse_loss(predicted, truth, reduction="none").mean(dim=-1).sum()
        return Score(loss, hidden.sum(), predicted.detach(), truth)

    def constant(self, targets: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
        """Ids: the training frequencies. Vectors: the mean of the training tokens."""
        if self._ids:
            return frequencies(targets, self._size)
        mean = torch.cat([target[~target[..., 0].isnan()] for target in targets]).mean(dim=0)
        return lambda target: mean.expand_as(target)

    def metrics(self) -> dict[str, Any]:
        """Ids: share rebuilt exactly. Vectors: share of the variance of the hidden tokens that is explained."""
        from seqkit.objectives.metrics import Accuracy, Explained

        return {"accuracy": Accuracy()} if self._ids else {"explained": Explained()}
