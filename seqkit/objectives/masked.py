"""Masked modelling: predict masked tokens, as BERT does for ids and the masked autoencoder for vectors.

b batch · n, m tokens · k fields · f features · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import (
    IGNORE,
    LabeledBatch,
    LossOutput,
    ModelInput,
    PredictionObjective,
    TokenBatch,
    TokenSpec,
)
from seqkit.nn.embedder import TokenEmbedder
from seqkit.nn.heads import content_head
from seqkit.nn.mlp import Transform
from seqkit.nn.part_heads import HeadsOfParts, PartHead
from seqkit.objectives.losses import cross_entropy, id_frequencies, like

if TYPE_CHECKING:
    from torchmetrics import Metric


class Masked(PredictionObjective):
    """Masked modelling: a share of each example's tokens is replaced by the mask token and predicted.

    fraction: share of each example's tokens that are masked; at least one is.

    Ids: cross-entropy in nats per masked token (Devlin et al. 2019, task 1; all masked tokens are replaced, none kept
    or swapped). Vectors: squared error, mean over features (He et al. 2022, section 3). Several ids a token: the mean
    of the fields' cross-entropies, as in `NextToken`; numbers beside them are masked with them, and not predicted.
    part: of joined tokens, the part of which tokens are masked and predicted; None: tokens of all parts are masked, and
    those of each part predicted by a head of its own. The loss is then the sum of the parts' losses, in the unit of
    each, per masked token.
    tied: whether the head's weight is the embedding table, beside which each id has a bias (BERT).
    transform: layers between hidden states and the head's output layer (`nn.heads.Transform`); None: none. With
    tied, its width is the table's.
    Masked tokens stay in the sequence, so every bidirectional backbone fits. A causal one is refused: it could not
    attend to the tokens that follow.

    >>> batch = TokenBatch(torch.arange(4)[None], torch.zeros(1, 4, 1), torch.ones(1, 4, dtype=torch.bool))
    >>> int(Masked(fraction=0.5).prepare(batch, None).masked.sum())
    2
    """

    causal = False
    needs_labels = False
    uses_mask_token = True
    supports_segments = True

    def __init__(
        self,
        *,
        fraction: float = 0.15,
        part: str | None = None,
        tied: bool = False,
        transform: Callable[[int], Transform] | None = None,
    ):
        if not 0 < fraction < 1:
            raise ValueError(f"fraction={fraction} should lie between 0 and 1, without both")
        self.fraction = fraction
        self.part = part
        self.tied = tied
        self.transform = transform

    def head(self, embedder: nn.Module) -> nn.Module:
        """Logits [b n v] over the vocabulary, [b n k v] over those of the fields, or features [b n f]; of parts, one
        for each."""
        assert isinstance(embedder, TokenEmbedder)
        make = partial(content_head, tied=self.tied, transform=self.transform)
        if embedder.spec.is_joined and self.part is None:
            return HeadsOfParts(
                {x: PartHead(x, make(embedder.part(x))) for x, _ in embedder.spec.parts}
            )
        head = make(embedder.part(self.part))
        if self.part is None:
            return head
        return PartHead(self.part, head)

    def step(self, model: nn.Module, batch: LabeledBatch, *, training: bool = False) -> LossOutput:
        """Loss of the model's prediction; of all parts, of each."""
        tokens = batch[0]
        if tokens.parts is None or self.part is not None:
            return super().step(model, batch, training=training)
        masked = self._masked(tokens)
        predictions = model(tokens, masked)
        targets = _targets_of_parts(tokens, masked)
        found = [
            self.loss(predictions[name], target, training=True) for name, target in targets.items()
        ]
        # heads of absent parts predict nothing, whose sum is 0: `DistributedDataParallel` waits for their gradients
        absent = [
            LossOutput(x.sum(), found[0].count * 0)
            for name, x in predictions.items()
            if name not in targets
        ]
        return self._sum([*found, *absent])

    def baseline_step(
        self, batches: Iterable[LabeledBatch], spec: TokenSpec
    ) -> Callable[[LabeledBatch], LossOutput] | None:
        """Loss of the best constant prediction; of all parts, of each."""
        if not spec.is_joined or self.part is not None:
            return super().baseline_step(batches, spec)
        targets: dict[str, list[Tensor]] = {}
        for tokens, _ in batches:
            for name, target in _targets_of_parts(tokens, self._masked(tokens)).items():
                targets.setdefault(name, []).append(target)
        constants = {name: self.baseline(own, spec.part(name)) for name, own in targets.items()}

        def step(batch: LabeledBatch) -> LossOutput:
            found = _targets_of_parts(batch[0], self._masked(batch[0]))
            known = {name: target for name, target in found.items() if name in constants}
            return self._sum(
                [self.loss(constants[name](x), x, training=True) for name, x in known.items()]
            )

        return step

    @staticmethod
    def _sum(outputs: Sequence[LossOutput]) -> LossOutput:
        return LossOutput(
            torch.stack([x.loss for x in outputs]).sum(),
            torch.stack([x.count for x in outputs]).sum(),
        )

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """Draws the masked tokens from torch's global generator, which evaluation seeds, so that they repeat."""
        if self.part is None:
            masked = self._masked(batch)
            return ModelInput(batch, masked, _target(batch, masked))
        own = batch.part(self.part)
        hides = self._masked(own)
        assert batch.parts is not None
        counted = torch.zeros(batch.valid.numel(), dtype=torch.int64, device=hides.device)
        counted = counted.index_add(
            0, batch.parts.of(self.part).columns.reshape(-1), hides.reshape(-1).long()
        )
        return ModelInput(batch, counted.reshape(batch.valid.shape) > 0, _target(own, hides))

    def _masked(self, batch: TokenBatch) -> Tensor:
        """Masked tokens of a batch, [b n] bool."""
        noise = torch.rand(batch.valid.shape, device=batch.valid.device).masked_fill(
            ~batch.valid, 2.0
        )
        rank = noise.argsort(dim=1).argsort(dim=1)
        length = batch.valid.sum(dim=1, keepdim=True)
        if batch.segments is not None:
            rank, length = _within_segments(rank, batch.segments, batch.valid)
        return (rank < (length * self.fraction).round().clamp(min=1)) & batch.valid

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Loss over the masked tokens; elsewhere the target is IGNORE (ids) or NaN (vectors)."""
        if not target.is_floating_point():
            return cross_entropy(prediction, target, training=training)
        masked = ~target[..., 0].isnan()
        prediction = prediction.float()
        # unmasked tokens differ by zero: no selection, which an accelerator would wait for
        right = torch.where(masked[..., None], target, prediction.detach())
        loss = F.mse_loss(prediction, right, reduction="none").mean(dim=-1).sum()
        if training:
            return LossOutput(loss, masked.sum())
        return LossOutput(loss, masked.sum(), prediction.detach()[masked], target[masked])

    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """Constant prediction: the training frequencies of ids (of each field), or the mean of the training vectors."""
        if self.part is not None:
            spec = spec.part(self.part)
        if spec.is_categorical:
            return id_frequencies(targets, spec)
        mean = torch.cat([target[~target[..., 0].isnan()] for target in targets]).mean(dim=0)
        return lambda target: mean.expand_as(target)

    def metrics(self, spec: TokenSpec) -> dict[str, Metric]:
        """Ids: accuracy (share of the fields). Vectors: explained share of the variance of the masked tokens (R²)."""
        from seqkit.objectives.metrics import Accuracy, R2Score

        if self.part is not None:
            spec = spec.part(self.part)
        if spec.is_joined:
            return {}
        if spec.is_categorical:
            return {"accuracy": Accuracy()}
        return {"explained": R2Score()}


def _targets_of_parts(batch: TokenBatch, masked: Tensor) -> dict[str, Tensor]:
    """Target of each part of joined tokens. masked: [b n]."""
    assert batch.parts is not None
    flat = masked.reshape(-1)
    return {
        name: _target(x.batch, flat[x.columns] & x.batch.valid) for name, x in batch.parts.items()
    }


def _target(batch: TokenBatch, masked: Tensor) -> Tensor:
    """Content of the masked tokens; IGNORE (ids) or NaN (vectors) of the others."""
    if not batch.content.is_floating_point():
        return batch.content.masked_fill(~like(masked, batch.content), IGNORE)
    return torch.where(masked[..., None], batch.content, torch.full_like(batch.content, torch.nan))


def _within_segments(rank: Tensor, segments: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Rank of each token among the real ones of its segment, and their number, [b n] each. rank: rank in the row."""
    same = rearrange(segments, "b n -> b n 1") == rearrange(segments, "b m -> b 1 m")
    same = same & rearrange(valid, "b m -> b 1 m")
    before = rearrange(rank, "b m -> b 1 m") < rearrange(rank, "b n -> b n 1")
    return (same & before).sum(dim=2), same.sum(dim=2)
