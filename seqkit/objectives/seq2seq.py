"""Sequence to sequence: generate a target sequence from a source, trained by teacher forcing.

b batch · n source tokens · t target tokens · a references · v target vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from einops import repeat
from torch import Tensor, nn

from seqkit.errors import DataError, one_line
from seqkit.generation.decode import Suppressed
from seqkit.generation.stream import greedy
from seqkit.interfaces import (
    IGNORE,
    FittedState,
    LossOutput,
    ModelInput,
    TokenBatch,
    Tokenizer,
    TokenSpec,
)
from seqkit.model import Model
from seqkit.nn.checks import check_above_0
from seqkit.nn.embedder import Embedder
from seqkit.nn.heads import content_head
from seqkit.objectives.losses import checked_smoothing, cross_entropy, frequencies
from seqkit.objectives.texts import TextMetric, TextObjective, texts_of

if TYPE_CHECKING:
    from torchmetrics import Metric

MAX_LONGEST = 1_000_000
"""Tokens of a label, at most; a prediction is generated until it has as many as the longest one."""


class Seq2Seq(TextObjective):
    """Sequence to sequence: the decoder gets [bos, y_1 … y_t] and is trained on [y_1 … y_t, eos].

    The loss is cross-entropy in nats per target token, eos included. A label is a text, or several references of which
    any is right: the first is trained on, and generated sequences are compared with the nearest. Predictions are
    decoded greedily, up to the length of the longest training label.
    target: tokenizer of the target, fitted on the training labels.
    start: ids of the target tokenizer that the decoder gets in place of bos, such as [2, 0] of BART, or those of
    language and task of Whisper. eos: its id that ends a target. None, None: bos and eos are two more ids.
    suppress: ids that are never generated. suppress_first: ids that are not generated first, such as eos.
    label_smoothing: share of the target that is spread over all ids in training (Szegedy et al. 2016, section 7).
    tied: whether the head's weight is the embedding table of the target ids. bias: whether the head has a bias; None:
    an untied head has one. logit_scale: factor of the hidden states' product with the head's weight.
    metrics: metrics of generated sequences that are measured beside the share of wrong ones; None: TokenErrorRate.
    Raises ValueError for a share outside [0, 1), for start without eos, or a tokenizer that gives vectors or has no
    `decode`.
    """

    causal = True
    primary_metric = "sequence_error"

    def __init__(
        self,
        target: Tokenizer,
        *,
        start: list[int] | None = None,
        eos: int | None = None,
        suppress: list[int] | None = None,
        suppress_first: list[int] | None = None,
        label_smoothing: float = 0.0,
        tied: bool = True,
        bias: bool | None = None,
        logit_scale: float = 1.0,
        metrics: list[TextMetric] | None = None,
    ):
        if (start is None) != (eos is None) or start == []:
            raise ValueError(
                f"start={start} and eos={eos} go together: give ids of the target tokenizer, or neither"
            )
        check_above_0(logit_scale=logit_scale)
        generated = ["TokenErrorRate"] if metrics is None else metrics
        super().__init__(target, [*generated, "SequenceErrorRate"])
        self.start = start
        self.eos = eos
        self.suppressed = Suppressed(tuple(suppress or ()), tuple(suppress_first or ()))
        self.label_smoothing = checked_smoothing(label_smoothing)
        self.tied = tied
        self.bias = not tied if bias is None else bias
        self.logit_scale = logit_scale
        self.longest = 0

    @property
    def target_spec(self) -> TokenSpec:
        """The target tokenizer's ids, and bos and eos unless they are among them. Raises ValueError before `fit`."""
        num_ids = self._num_ids
        if self.start is None or self.eos is None:
            return TokenSpec(vocab_size=num_ids + 2)
        if wrong := [i for i in (*self.start, self.eos) if not 0 <= i < num_ids]:
            raise ValueError(
                f"start or eos has the id {wrong[0]}; the target tokenizer's go from 0 to {num_ids - 1}"
            )
        return TokenSpec(vocab_size=num_ids)

    @property
    def _num_ids(self) -> int:
        """Number of the target tokenizer's ids. Raises ValueError before `fit`."""
        spec: TokenSpec = self.target.spec
        if not spec.ids:
            what = "several ids a token" if spec.vocab_sizes else "vectors"
            raise ValueError(
                f"{type(self.target).__name__} gives {what}, but a decoder generates one id; use Words"
            )
        return spec.vocab_size

    @property
    def start_ids(self) -> list[int]:
        """The decoder's first inputs: bos, or `start`. Raises ValueError before `fit`."""
        return [self._num_ids] if self.start is None else self.start

    @property
    def eos_id(self) -> int:
        """End of sequence: the last target of every sequence."""
        return self._num_ids + 1 if self.eos is None else self.eos

    def is_text(self, ids: Tensor) -> Tensor:
        """Which ids [...] are text: bool [...], False for those of `start_ids` and `eos_id`."""
        special = torch.tensor([*self.start_ids, self.eos_id, IGNORE], device=ids.device)
        return ~torch.isin(ids, special)

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Fits the target tokenizer on all references, unless it is fitted; learns the length of the longest one."""
        super().fit(labels, names)
        self.longest = max(self._length(text) for label in labels for text in texts_of(label))

    def state(self) -> FittedState:
        """The target tokenizer's state, and the length of the longest reference."""
        if self.longest:
            return {"target": self.target.state(), "longest": self.longest}
        return {}

    def load_state(self, state: FittedState) -> None:
        """Restores the tokenizer's state and the length. Raises ValueError for an impossible length."""
        self.target.load_state(state["target"])
        self.longest = int(state["longest"])
        if not 1 <= self.longest <= MAX_LONGEST:
            raise ValueError(f"longest is {self.longest}; a label has 1 to {MAX_LONGEST:,} tokens")

    def head(self, embedder: nn.Module) -> nn.Module:
        """Logits [b t v]."""
        assert isinstance(embedder, Embedder)
        return content_head(embedder, tied=self.tied, bias=self.bias, scale=self.logit_scale)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """Input: start and the first reference, beside the source; target: that reference and eos.

        Both [b s + t] with s ids of `start_ids`; the target is IGNORE before the last of them.
        """
        first = self.first_references(batch, label)
        lengths = (first != IGNORE).sum(dim=1)
        if first.device.type == "cpu":  # an accelerator would wait for the length
            first = first[:, : int(lengths.max())]
        target = nn.functional.pad(first, [0, 1], value=IGNORE)
        target[torch.arange(len(target), device=target.device), lengths] = self.eos_id
        valid = target != IGNORE
        start = [torch.full_like(first[:, :1], i) for i in self.start_ids]
        ids = torch.cat([*start, first.clamp(min=0)], dim=1)
        target = nn.functional.pad(target, [len(start) - 1, 0], value=IGNORE)
        valid = nn.functional.pad(valid, [len(start) - 1, 0], value=True)
        index = torch.arange(ids.shape[1], dtype=torch.float32, device=ids.device)
        positions = repeat(index, "t -> b t 1", b=len(ids))
        return ModelInput(
            TokenBatch(ids.masked_fill(~valid, 0), positions, valid, source=batch), None, target
        )

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Cross-entropy of logits [b t v], summed over the targets [b t] that are not IGNORE."""
        return cross_entropy(
            prediction, target, label_smoothing=self.label_smoothing, training=training
        )

    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """Constant prediction: the training frequencies of the tokens."""
        return frequencies(targets, spec.vocab_size)

    def metrics(self, spec: TokenSpec) -> dict[str, Metric]:
        """Accuracy of the likeliest next token, given the tokens before it in the reference."""
        from seqkit.objectives.metrics import Accuracy

        return {"accuracy": Accuracy()}

    def predict(self, model: nn.Module, batch: TokenBatch) -> Tensor:
        """Ids [b t] that `model` generates greedily from the source `batch`, IGNORE from eos on."""
        found = cast(Model, model)
        return greedy(
            found, batch, self.start_ids, self.eos_id, self.longest, suppressed=self.suppressed
        )

    def _length(self, text: str) -> int:
        try:
            return len(self.encoded(text))
        except DataError as error:
            raise DataError(
                f"training data, target {one_line(repr(text[:60]))}: {error}"
            ) from error

    def encoded(self, text: str) -> Tensor:
        """Ids [t] of a text, without the eos that its tokenizer may put behind them."""
        ids = super().encoded(text)
        if self.eos is not None and len(ids) and int(ids[-1]) == self.eos:
            return ids[:-1]
        return ids
