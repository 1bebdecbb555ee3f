"""Connectionist temporal classification: a text from tokens without knowing which of them each symbol is.

b batch · n tokens · v symbols and the blank · t symbols of a target · a references · k prefixes
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqkit.errors import DataError
from seqkit.interfaces import IGNORE, FittedState, LossOutput, ModelInput, TokenBatch, Tokenizer
from seqkit.nn.embedder import TokenEmbedder
from seqkit.nn.heads import TokenHead
from seqkit.objectives.texts import TextMetric, TextObjective


class CTC(TextObjective):
    """Text of a recording: each token gives a symbol or the blank; repeats are merged, then blanks are left out.

    The loss is the negative log likelihood of the target, over all alignments, in nats per symbol (Graves et al. 2006;
    `torch.nn.functional.ctc_loss`). There is no language model: symbols are independent given the tokens. A label is a
    text, or several references of which any is right: the first is trained on, and predictions are compared with the
    nearest.
    target: tokenizer of the text, fitted on the training labels: its ids are the symbols, and the blank is one more.
    beam_width: number of prefixes that `predict` keeps (prefix beam search; Hannun et al. 2014); 1: the likeliest
    symbol of each token (best path).
    metrics: further metrics of the texts, beside the error rates of symbols and of whole texts. The error rate of
    symbols is the word error rate if the symbols are words; if they are characters or phonemes, add WordErrorRate.
    Tokens must have an order, and there must be one for each symbol of the target and one more for each repeat.
    Raises ValueError for a beam_width below 1, or a target tokenizer without ids or `decode`; `head` raises it for
    tokens without an order.
    """

    primary_metric = "token_error"

    def __init__(
        self, target: Tokenizer, *, beam_width: int = 1, metrics: list[TextMetric] | None = None
    ):
        if beam_width < 1:
            raise ValueError(
                f"beam_width={beam_width}; give the number of prefixes to keep, from 1 (best path)"
            )
        super().__init__(target, ["TokenErrorRate", *(metrics or ()), "SequenceErrorRate"])
        self.beam_width = beam_width

    @property
    def blank(self) -> int:
        """Id of the blank, which follows the target tokenizer's ids. Raises ValueError before `fit`."""
        if not self.target.spec.ids:
            raise ValueError(
                f"{type(self.target).__name__} does not give one id to each symbol; "
                "use Words or Characters"
            )
        return int(self.target.spec.vocab_size)

    def state(self) -> FittedState:
        """The target tokenizer's state."""
        state = self.target.state()
        return {"target": state} if state else {}

    def load_state(self, state: FittedState) -> None:
        """Restores the target tokenizer's state."""
        self.target.load_state(state.get("target", {}))

    def check_target(self, target: Any, num_tokens: int) -> None:
        """Raise DataError where the first reference does not fit into the tokens."""
        symbols = target[0][target[0] != IGNORE]
        if (needed := int(_needed(symbols[None]))) > num_tokens:
            raise DataError(
                f"its text has {len(symbols)} symbols, which need {needed} tokens, and it has {num_tokens}; give more "
                "tokens (a shorter hop or stride), or symbols that stand for more (Words, BPE)"
            )

    def head(self, embedder: nn.Module) -> nn.Module:
        """Logits [b n v]. Raises ValueError for tokens without an order."""
        assert isinstance(embedder, TokenEmbedder)
        if embedder.spec.is_set or not embedder.spec.num_axes:
            raise ValueError(
                "CTC reads symbols in the order of the tokens, and these have none; use Classify"
            )
        return TokenHead(embedder.dim, self.blank + 1)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """The unchanged batch; target [b 1+t]: the number of tokens, then the first reference."""
        first = self.first_references(batch, label)
        lengths = batch.valid.sum(dim=1, keepdim=True)
        return ModelInput(batch, None, torch.cat([lengths, first], dim=1))

    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Negative log likelihood of the targets, summed; count: their symbols.

        If an example has too few tokens for its target, its loss is infinite; but in training, where an augmentation
        may have shortened it, neither its loss nor its symbols count.
        """
        lengths = target[:, 0]
        symbols = target[:, 1:]
        num_symbols = (symbols != IGNORE).sum(dim=1)
        losses = F.ctc_loss(
            prediction.float().log_softmax(dim=-1).transpose(0, 1), symbols.clamp(min=0), lengths, num_symbols,
            blank=self.blank, reduction="none", zero_infinity=training,
        )  # fmt: skip
        if training:
            num_symbols = num_symbols * (_needed(symbols) <= lengths)
        return LossOutput(losses.sum(), num_symbols.sum())

    def predict(self, model: nn.Module, batch: TokenBatch) -> Tensor:
        """Ids [b t] of the symbols that are read, IGNORE after their end."""
        logits = model(batch).float().log_softmax(dim=-1)
        read = self._best_path if self.beam_width == 1 else self._beam
        rows = [read(each[valid]) for each, valid in zip(logits, batch.valid)]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=IGNORE)

    def _best_path(self, scores: Tensor) -> Tensor:
        """The likeliest symbol of each token, of scores [n v], with repeats merged and blanks left out: ids [t]."""
        ids = scores.argmax(dim=-1).unique_consecutive()
        return ids[ids != self.blank]

    def _beam(self, scores: Tensor) -> Tensor:
        """The likeliest text [t] of log probabilities [n v], over all alignments of the prefixes that are kept."""
        blank = self.blank
        # log probabilities of a prefix: over alignments that end with the blank, and over those that do not
        beams: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
        for row in scores.tolist():
            found: dict[tuple[int, ...], tuple[float, float]] = defaultdict(
                lambda: (-math.inf, -math.inf)
            )
            for prefix, (ends_blank, ends_symbol) in beams.items():
                either = _log_add(ends_blank, ends_symbol)
                known = found[prefix]
                again = ends_symbol + row[prefix[-1]] if prefix else -math.inf
                found[prefix] = (
                    _log_add(known[0], either + row[blank]),
                    _log_add(known[1], again),
                )
                for symbol in range(blank):
                    # without a blank between them, equal symbols are merged
                    before = ends_blank if prefix[-1:] == (symbol,) else either
                    longer = (*prefix, symbol)
                    known = found[longer]
                    found[longer] = (known[0], _log_add(known[1], before + row[symbol]))
            kept = sorted(found, key=lambda prefix: -_log_add(*found[prefix]))[: self.beam_width]
            beams = {prefix: found[prefix] for prefix in kept}
        return torch.tensor(next(iter(beams)), dtype=torch.int64, device=scores.device)


def _needed(symbols: Tensor) -> Tensor:
    """Least number of tokens for targets [b t]: one for each symbol, and a blank between two equal ones."""
    real = symbols != IGNORE
    repeated = (symbols[:, 1:] == symbols[:, :-1]) & real[:, 1:]
    return real.sum(dim=1) + repeated.sum(dim=1)


def _log_add(a: float, b: float) -> float:
    """Logarithm of the sum of two probabilities, given their logarithms a and b."""
    if min(a, b) == -math.inf:
        return max(a, b)
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))
