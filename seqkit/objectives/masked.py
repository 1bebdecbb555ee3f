"""Masked modelling: predict masked tokens, as BERT does for ids and the masked autoencoder for vectors.

b batch · n, m tokens · k fields · f features · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import IGNORE, LossOutput, ModelInput, PredictionObjective, TokenBatch, TokenSpec
from seqkit.nn.embedder import Embedder
from seqkit.nn.heads import content_head
from seqkit.objectives.losses import cross_entropy, id_frequencies, like


class Masked(PredictionObjective):
    """Masked modelling: a share of each example's tokens is replaced by the mask token and predicted.

    fraction: share of each example's tokens that are masked; at least one is.

    Ids: cross-entropy in nats per masked token (Devlin et al. 2019, task 1; all masked tokens are replaced, none kept
    or swapped). Vectors: squared error, mean over features (He et al. 2022, section 3). Several ids a token: the mean
    of the fields' cross-entropies, as in `NextToken`; numbers beside them are masked with them, and not predicted.
    Masked tokens stay in the sequence, so every bidirectional backbone fits. A causal one is refused: it could not
    attend to the tokens that follow.
    """

    causal = False
    needs_labels = False
    uses_mask_token = True
    supports_segments = True

    def __init__(self, *, fraction: float = 0.15):
        if not 0 < fraction < 1:
            raise ValueError(f"fraction={fraction} should lie between 0 and 1, without both")
        self.fraction = fraction

    def head(self, embedder: nn.Module) -> nn.Module:
        """Logits [b n v] over the vocabulary, [b n k v] over those of the fields, or features [b n f]."""
        assert isinstance(embedder, Embedder)
        return content_head(embedder.dim, embedder.spec)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """Draws the masked tokens from torch's global generator, which evaluation seeds, so that they repeat."""
        noise = torch.rand(batch.valid.shape, device=batch.valid.device).masked_fill(~batch.valid, 2.0)
        rank, length = noise.argsort(dim=1).argsort(dim=1), batch.valid.sum(dim=1, keepdim=True)
        if batch.segments is not None:
            rank, length = _within_segments(rank, batch.segments, batch.valid)
        masked = (rank < (length * self.fraction).round().clamp(min=1)) & batch.valid
        if not batch.content.is_floating_point():
            return ModelInput(batch, masked, batch.content.masked_fill(~like(masked, batch.content), IGNORE))
        nothing = torch.full_like(batch.content, torch.nan)
        return ModelInput(batch, masked, torch.where(masked[..., None], batch.content, nothing))

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Loss over the masked tokens; elsewhere the target is IGNORE (ids) or NaN (vectors)."""
        if not target.is_floating_point():
            return cross_entropy(prediction, target, training=training)
        masked, prediction = ~target[..., 0].isnan(), prediction.float()
        # unmasked tokens differ by zero: no selection, which an accelerator would wait for
        right = torch.where(masked[..., None], target, prediction.detach())
        loss = F.mse_loss(prediction, right, reduction="none").mean(dim=-1).sum()
        if training:
            return LossOutput(loss, masked.sum())
        return LossOutput(loss, masked.sum(), prediction.detach()[masked], target[masked])

    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """Constant prediction: the training frequencies of ids (of each field), or the mean of the training vectors."""
        if spec.is_categorical:
            return id_frequencies(targets, spec)
        mean = torch.cat([target[~target[..., 0].isnan()] for target in targets]).mean(dim=0)
        return lambda target: mean.expand_as(target)

    def metrics(self, spec: TokenSpec) -> dict[str, Any]:
        """Ids: accuracy (share of the fields). Vectors: explained share of the variance of the masked tokens (R²)."""
        from seqkit.objectives.metrics import Accuracy, R2Score

        return {"accuracy": Accuracy()} if spec.is_categorical else {"explained": R2Score()}


def _within_segments(rank: Tensor, segments: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Rank of each token among the real ones of its segment, and their number, [b n] each. rank: rank in the row."""
    same = rearrange(segments, "b n -> b n 1") == rearrange(segments, "b m -> b 1 m")
    same = same & rearrange(valid, "b m -> b 1 m")
    before = rearrange(rank, "b m -> b 1 m") < rearrange(rank, "b n -> b n 1")
    return (same & before).sum(dim=2), same.sum(dim=2)
