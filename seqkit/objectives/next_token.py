"""Causal language modelling: predict each token from those before it.

b batch · n tokens · k fields · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.errors import DataError, UsageError
from seqkit.interfaces import (
    IGNORE,
    LabeledBatch,
    LossOutput,
    ModelInput,
    PredictionObjective,
    TokenBatch,
    Tokenizer,
    TokenSpec,
)
from seqkit.nn.checks import check_above_0
from seqkit.nn.embedder import TokenEmbedder
from seqkit.nn.heads import TokenHead, content_head
from seqkit.nn.part_heads import END, PartHead
from seqkit.objectives.labels import OF_WORDS
from seqkit.objectives.losses import cross_entropy, frequencies, id_frequencies, like
from seqkit.objectives.texts import TextMetric
from seqkit.tokenizers.given import Ids

if TYPE_CHECKING:
    from torchmetrics import Metric

    from seqkit.model import Model

TokenMetric = Literal[
    "Accuracy",
    "Perplexity",
    "TokenErrorRate",
    "SequenceErrorRate",
    "WordErrorRate",
    "WordF1",
    "CHRFScore",
]
"""Names of metrics, as in torchmetrics: `seqkit.objectives.metrics.build_metrics`."""


class NextToken(PredictionObjective):
    """Causal language modelling: cross-entropy in nats per token, over all but the first of each example.

    Tokens of several ids (`TokenSpec.vocab_sizes`): a linear layer for each field, all from the same hidden state, and
    the mean of the fields' cross-entropies (Compound Word Transformer; Hsiao et al. 2021, section 4.2), so in nats per
    field. Numbers beside the ids are input alone: to predict one, make it a field of bins.

    part: of joined tokens, the part of ids that is predicted, and the end of each of its runs, which is one more id:
    captions, or any text that follows other parts. A run that nothing stands before has no prediction for its first
    token. Tokens of other parts attend to all columns up to the next run of
    that part (a prefix language model; Raffel et al. 2020, section 3.2.1), those of the part to earlier ones. A
    backbone with `causal: true` has the prefix causal, too.
    tied: whether the head's weight is the embedding table. tied_bias: whether each id then has a bias beside it.
    bias: whether the head has a bias, if it is not tied.
    logit_scale: factor of the hidden states' product with the head's weight (Cohere; in Granite 1 / logits_scaling).
    softcap: c, of which logits x become c tanh(x / c) (Gemma 2); None: they stay.
    max_new_tokens: of a part, most tokens that `predict` generates, greedily, for an example.
    metrics: metrics that are measured beside the loss; None: Accuracy and Perplexity. Of a part, TokenErrorRate,
    SequenceErrorRate, WordF1 and CHRFScore compare what is generated in place of the last run with that run.
    Raises ValueError if the tokens are vectors or a number is out of range; DataError for a batch in which no example
    has a second token.

    >>> batch = TokenBatch(torch.arange(4)[None], torch.zeros(1, 4, 1), torch.ones(1, 4, dtype=torch.bool))
    >>> inputs = NextToken().prepare(batch, None)
    >>> inputs.batch.content, inputs.target
    (tensor([[0, 1, 2]]), tensor([[1, 2, 3]]))
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
        tied_bias: bool = False,
        logit_scale: float = 1.0,
        softcap: float | None = None,
        metrics: list[TokenMetric] | None = None,
        max_new_tokens: int = 64,
    ):
        if max_new_tokens < 1:
            raise ValueError(
                f"max_new_tokens={max_new_tokens} counts tokens to generate; make it 1 or more"
            )
        chosen = ["Accuracy", "Perplexity"] if metrics is None else metrics
        self.of_texts = [name for name in chosen if name in get_args(TextMetric)]
        self.of_tokens = [name for name in chosen if name not in self.of_texts]
        if part is None and self.of_texts:
            raise ValueError(
                f"{self.of_texts[0]} compares generated sequences of a part; name it (model.objective.part)"
            )
        if part is not None and tied:
            raise ValueError(
                "tied=True shares the table of the part's ids, which has no row for their end; use False"
            )
        if tied_bias and not tied:
            raise ValueError(
                "tied_bias=True is the bias of a tied head, and this one is not tied; use bias=True"
            )
        check_above_0(logit_scale=logit_scale, softcap=softcap)
        self.part = part
        self.tied = tied
        self.bias = tied_bias if tied else bias
        self.logit_scale = logit_scale
        self.softcap = softcap
        self.max_new_tokens = max_new_tokens
        if "SequenceErrorRate" in self.of_texts:
            self.primary_metric = "sequence_error"
        self._decode: Callable[[Tensor], Any] | None = None

    def head(self, embedder: nn.Module) -> nn.Module:
        """Logits [b n v] over the vocabulary, [b n k v] over those of the fields, or [r m + 1 v + 1] of a part."""
        assert isinstance(embedder, TokenEmbedder)
        embedder = embedder.part(self.part)
        if not embedder.spec.is_categorical:
            raise ValueError(
                "NextToken predicts ids, but these tokens are vectors; use Masked, Classify or Regress"
            )
        if self.part is not None:
            if embedder.spec.vocab_sizes:
                raise ValueError(
                    f"tokens of {self.part} have several ids each, and the end of a run is one id"
                )
            num_outputs = embedder.spec.vocab_size + 1
            head = TokenHead(
                embedder.dim,
                num_outputs,
                bias=self.bias,
                scale=self.logit_scale,
                softcap=self.softcap,
            )
            return PartHead(self.part, head, before=True)
        return content_head(
            embedder, tied=self.tied, bias=self.bias, scale=self.logit_scale, softcap=self.softcap
        )

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """Input: all columns but the last; target: all but the first. Of a part: all columns, and their reach."""
        if self.part is not None:
            return self._prepare_part(batch, self.part)
        if batch.content.shape[1] < 2:
            raise DataError(
                "every text is a single token, so there is no next one to predict; give longer text"
            )
        known = batch.valid[:, 1:]
        # the first token of a packed sequence does not continue the sequence before it
        if batch.segments is not None:
            known = known & (batch.segments[:, 1:] == batch.segments[:, :-1])
        target = batch.content[:, 1:]
        return ModelInput(
            batch.columns(slice(-1)), None, target.masked_fill(~like(known, target), IGNORE)
        )

    def _prepare_part(self, batch: TokenBatch, name: str) -> ModelInput:
        """Target [r m + 1]: 1 + id of the tokens of each run, then `END`; IGNORE where no column comes before."""
        if batch.parts is None:
            raise DataError(f"the batch has no part {name}; its tokens are of one tokenizer")
        reach = batch.parts.prefix_reach(name, batch.valid)
        # an example may lack it, and so may all examples of a small batch
        if name not in batch.parts:
            return ModelInput(
                batch.replace(reach=reach),
                None,
                torch.full((0, 1), IGNORE, device=batch.valid.device),
            )
        own = batch.part(name)
        n = batch.valid.shape[1]
        target = F.pad((own.content + 1).masked_fill(~own.valid, IGNORE), [0, 1], value=IGNORE)
        target = target.scatter(1, own.valid.sum(dim=1, keepdim=True), END)
        is_first = F.pad(batch.parts.of(name).columns[:, :1] % n == 0, [0, own.valid.shape[1]])
        return ModelInput(batch.replace(reach=reach), None, target.masked_fill(is_first, IGNORE))

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Cross-entropy of logits [b n (k) v], summed over the targets [b n (k)] that are not IGNORE."""
        return cross_entropy(prediction, target, training=training)

    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """Constant prediction: the training frequencies of the tokens, or of the ids of each field."""
        if self.part is not None:
            return frequencies(targets, spec.part(self.part).vocab_size + 1)
        return id_frequencies(targets, spec)

    def metrics(self, spec: TokenSpec) -> dict[str, Metric]:
        """The chosen metrics; accuracy is that of the likeliest next token (of fields, the share that is right)."""
        from seqkit.objectives.metrics import build_metrics

        return build_metrics(self.of_tokens)

    def generation_metrics(self) -> dict[str, Metric]:
        """The chosen metrics of generated sequences."""
        from seqkit.objectives.metrics import build_metrics

        return build_metrics(self.of_texts, decode=self._text)

    def references(self, batch: LabeledBatch) -> Tensor:
        """Ids [b 1 t] of the last run of the part in each example, IGNORE behind it."""
        rows = []
        none = torch.empty(0, dtype=torch.int64)
        for i in range(len(batch[0])):
            runs = [run.content for name, run in batch[0].example(i).parts if name == self.part]
            rows.append(runs[-1] if runs else none)
        return rearrange(
            nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=IGNORE), "b t -> b 1 t"
        )

    def read_from(self, tokenizer: Tokenizer) -> None:
        """Take `decode` of the part's tokenizer, if it has one. Raises UsageError for metrics of words, and no text."""
        if self.part is None:
            return
        own = getattr(tokenizer, "parts", {}).get(self.part)
        self._decode = getattr(own, "decode", None)
        wordy = [name for name in self.of_texts if name in OF_WORDS]
        if wordy and (self._decode is None or isinstance(own, Ids)):
            raise UsageError(
                f"model.objective.metrics: {wordy[0]} compares words, and the part {self.part} has ids alone; use "
                "TokenErrorRate or SequenceErrorRate"
            )

    def predict(self, model: nn.Module, batch: TokenBatch) -> Tensor:
        """Ids [b t] of the part that follows each example, generated greedily, IGNORE from the end on.

        A last run of the part that the example has is left out. Without a part, the model's prediction.
        """
        if self.part is None:
            return super().predict(model, batch)
        from seqkit.generation.parts import before_last_run, continue_with_part

        made = cast("Model", model)
        prefixes = [before_last_run(batch.example(i), self.part) for i in range(len(batch))]
        return continue_with_part(made, prefixes, self.part, self.max_new_tokens).to(
            batch.valid.device
        )

    def decode(self, prediction: Tensor) -> list[Any]:
        """Generated ids [b t] of a part as raw examples of it."""
        if self.part is None:
            return super().decode(prediction)
        return [self._text(row) for row in prediction]

    def _text(self, ids: Tensor) -> Any:
        kept = ids[ids != IGNORE]
        if self._decode is None:
            return kept.tolist()
        return self._decode(kept)
