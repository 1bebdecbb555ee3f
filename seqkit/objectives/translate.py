"""Write one sequence from another, the right beginning always given while training: teacher forcing.

b batch · n tokens read · t tokens written · a right answers · v vocabulary of what is written
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from einops import rearrange, repeat
from torch import Tensor, nn

from seqkit.contract import IGNORE, Cache, DataError, Objective, Prepared, Score, TokenBatch, Tokenizer, TokenSpec
from seqkit.embed import Embedder
from seqkit.heads import PerToken, Tied
from seqkit.objectives.next_token import cross_entropy, frequencies


class Translate(Objective):
    """Reads [begin, y_1 … y_t] beside the source and says [y_1 … y_t, end]: cross-entropy in nats per token, end too.

    target: the tokenizer of what is written, fitted on the training labels; `begin` and `end` are two more ids.
    A label is a text, or several of which any is right: the first is learned, the nearest is what counts in
    `generated_metrics` (multiple references). Answers are written greedily, cut at the longest training label.
    label_smoothing: share of the target spread over all ids (Szegedy et al. 2016, section 7), in training alone: the
    loss of predictions without gradients, as in evaluation, is the plain one.
    tied: True: the head scores with the embedding table of what is written.
    Raises ValueError for a share outside [0, 1), or a tokenizer that gives vectors or has no `decode`.
    """

    causal = True
    labelled = True

    def __init__(self, target: Tokenizer, *, label_smoothing: float = 0.0, tied: bool = True):
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                f"label_smoothing={label_smoothing} is a share of the target; make it at least 0 and below 1"
            )
        if not hasattr(target, "decode"):
            raise ValueError(f"{type(target).__name__} has no decode, so nobody could read what is written with it")
        self.target: Any = target
        self.label_smoothing, self.tied = label_smoothing, tied
        self.longest = 0

    @property
    def target_spec(self) -> TokenSpec:
        """The target tokenizer's ids, and `begin` and `end`. Raises ValueError before `fit`."""
        return TokenSpec(vocab_size=self.begin + 2)

    @property
    def begin(self) -> int:
        """The id that every sequence starts with. Raises ValueError before `fit`."""
        spec: TokenSpec = self.target.spec
        if not spec.ids:
            raise ValueError(f"{type(self.target).__name__} cuts into vectors, but what is written is ids; use Words")
        return spec.vocab_size

    @property
    def end(self) -> int:
        """The id that is said when all is written."""
        return self.begin + 1

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Fit the target tokenizer on all right answers, unless it is, and learn how long they get."""
        texts = [text for label in labels for text in _texts(label)]
        if hasattr(self.target, "fit") and not _fitted(self.target):
            self.target.fit(texts)
        self.longest = max(len(self.target.encode(text)) for text in texts)

    def state(self) -> dict[str, Any]:
        """The target tokenizer's state, and the length of the longest answer."""
        return {"target": self.target.state(), "longest": self.longest} if self.longest else {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        self.target.load_state(state["target"])
        self.longest = int(state["longest"])

    def encode_label(self, label: Any) -> Tensor:
        """int64 [a t], a row for each right answer, IGNORE behind its end. Raises DataError if it is no text."""
        rows = [self.target.encode(text).content for text in _texts(label)]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=IGNORE)

    def head(self, embedder: nn.Module) -> nn.Module:
        """Scores [b t v]."""
        assert isinstance(embedder, Embedder)
        if not self.tied:
            return PerToken(embedder.dim, embedder.spec.vocab_size)
        return Tied(embedder.table, embedder.position.std)

    def prepare(self, batch: TokenBatch, label: Tensor | None) -> Prepared:
        """Reads begin and the first right answer, beside the source; the target is that answer and end, [b 1 + t]."""
        if label is None or label.ndim != 3 or label.is_floating_point() or len(label) != len(batch):
            got = "none" if label is None else f"{list(label.shape)} {label.dtype}"
            raise DataError(
                f"labels are {got}; writing needs ids [{len(batch)} a t], which encode_label makes of texts"
            )
        first = label[:, 0]
        lengths = (first != IGNORE).sum(dim=1)
        first = first[:, : int(lengths.max())]
        said = nn.functional.pad(first, [0, 1], value=IGNORE)
        said[torch.arange(len(said), device=said.device), lengths] = self.end
        read = nn.functional.pad(first.clamp(min=0), [1, 0], value=self.begin)
        return Prepared(replace(_columns(read, said != IGNORE), memory=batch), None, said)

    def score(self, prediction: Tensor, target: Tensor) -> Score:
        """Sum of cross-entropies of prediction [b t v] over the targets [b t] that are not IGNORE."""
        return cross_entropy(prediction, target, self.label_smoothing if prediction.requires_grad else 0.0)

    def constant(self, targets: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
        """Always the training frequencies of the tokens."""
        return frequencies(targets, self.target_spec.vocab_size)

    def metrics(self) -> dict[str, Any]:
        """Share of tokens whose likeliest guess is right, the right ones before it given."""
        from seqkit.objectives.metrics import Accuracy

        return {"accuracy": Accuracy()}

    def generated_metrics(self) -> dict[str, Any]:
        """Errors of what is written freely, per token and per sequence: of phonemes, PER and WER."""
        from seqkit.objectives.metrics import SequenceError, TokenError

        return {"token_error": TokenError(), "sequence_error": SequenceError()}

    def predict(self, model: nn.Module, batch: TokenBatch) -> Tensor:
        """Ids [b t] that `model` writes greedily for the source `batch`, IGNORE from the end on."""
        return greedy(model, batch, self.begin, self.end, self.longest)

    def answer(self, prediction: Tensor) -> list[Any]:
        """Ids [b t] that were written, as texts."""
        return [self.target.decode(row[(row >= 0) & (row < self.begin)]) for row in prediction]


@torch.inference_mode()
def greedy(model: nn.Module, source: TokenBatch, begin: int, end: int, max_tokens: int) -> Tensor:
    """Ids [b t], t <= max_tokens, each the likeliest after those before it; IGNORE from `end` on.

    With a cache where the model's backbone keeps one, which then reads the source once.
    """
    backbone: Any = model.backbone
    try:
        cache: Cache | None = backbone.init_cache(max_tokens)
    except ValueError:  # an attention that cannot go on step by step
        cache = None
    written = torch.full([len(source), 1], begin, device=source.valid.device)
    ended = torch.zeros(len(source), dtype=torch.bool, device=source.valid.device)
    for step in range(max_tokens):
        start = 0 if cache is None else step
        read = _columns(written[:, start:], torch.ones_like(written[:, start:], dtype=torch.bool), start)
        told = replace(read, memory=source) if start == 0 else read
        new = model(told, cache=cache)[:, -1].argmax(dim=-1)
        ended = ended | (new == end)
        written = torch.cat([written, rearrange(new.masked_fill(ended, end), "b -> b 1")], dim=1)
        if bool(ended.all()):
            break
    return written[:, 1:].masked_fill(written[:, 1:] == end, IGNORE)


def _columns(ids: Tensor, valid: Tensor, start: int = 0) -> TokenBatch:
    """Ids [b t] that stand in the columns from `start` on."""
    index = torch.arange(start, start + ids.shape[1], dtype=torch.float32, device=ids.device)
    return TokenBatch(ids.masked_fill(~valid, 0), repeat(index, "t -> b t 1", b=len(ids)), valid)


def _texts(label: Any) -> list[str]:
    """A label's right answers."""
    texts = [label] if isinstance(label, str) else list(label) if isinstance(label, (list, tuple)) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise DataError(f"a label is {label!r}; give the text to be written, or a list of texts any of which is right")
    return texts


def _fitted(tokenizer: Tokenizer) -> bool:
    try:
        return tokenizer.spec is not None
    except ValueError:  # the contract: spec raises until the tokenizer has seen data
        return False
