"""The types that every part of seqkit exchanges. READ FIRST.

    raw ─encode→ Tokens ─collate→ TokenBatch ─Embedder→ Embedded ─Backbone→ hidden ─Head→ prediction ─Objective→ loss
        Tokenizer (CPU, in       content, positions,   [b n d]           [b n d]
        the data loader)         adjacency, valid

Tokenizer and objective hold no weights and know a modality or a task. Embedder, backbone and head hold weights and know
neither. Data flows one way; no stage depends on a later one.

b batch · n tokens · f features · p position axes · e edges · d width · h heads
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from seqkit.errors import DataError
from seqkit.raw import describe_tensor

IGNORE = -100
"""Target of a token that has none: the default `ignore_index` of `torch.nn.functional.cross_entropy`."""


# ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """Shape of a tokenizer's tokens: all that the embedding layer needs to be built.

    vocab_size: > 0: content is ids below it. num_features: > 0: content is vectors of that width. Set exactly one.
    num_axes: coordinates of a position: 1 for text, 2 for images, 0 for none.
    num_edge_types: > 0: tokens come with an `Adjacency` of that many edge types; 0: every token may attend to every
    other.
    embedder: `dim -> nn.Module` from content to [b n dim], in place of a lookup table or a linear layer (a
    convolutional stem).
    Raises ValueError where the fields contradict each other.
    """

    vocab_size: int = 0
    num_features: int = 0
    num_axes: int = 1
    num_edge_types: int = 0
    embedder: Callable[[int], nn.Module] | None = None

    def __post_init__(self) -> None:
        for name in ("vocab_size", "num_features", "num_axes", "num_edge_types"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"TokenSpec.{name} is {value!r}; it counts something, so make it an integer >= 0")
        if (self.vocab_size > 0) == (self.num_features > 0):
            raise ValueError(
                f"TokenSpec has vocab_size={self.vocab_size} and num_features={self.num_features}; "
                "content is either ids (vocab_size > 0) or vectors (num_features > 0): set exactly one"
            )

    @property
    def ids(self) -> bool:
        """True: content is int64 ids; False: content is float vectors."""
        return self.vocab_size > 0

    def check(self, tokens: Tokens) -> None:
        """Raise DataError if `tokens` differ from this spec in width, range of ids, axes or edge types."""
        content, adjacency = tokens.content, tokens.adjacency
        if self.ids:
            if content.ndim != 1:
                raise DataError(f"content is [n f] vectors, but the tokenizer's spec says ids below {self.vocab_size}")
            if len(content) and (int(content.min()) < 0 or int(content.max()) >= self.vocab_size):
                wrong = int(content.max()) if int(content.max()) >= self.vocab_size else int(content.min())
                raise DataError(f"content holds id {wrong}, outside the vocabulary of {self.vocab_size}")
        elif content.ndim != 2 or content.shape[1] != self.num_features:
            raise DataError(f"content is {list(content.shape)}; the spec says vectors [n {self.num_features}]")
        if tokens.positions.shape[1] != self.num_axes:
            raise DataError(f"positions have {tokens.positions.shape[1]} axes; the spec says {self.num_axes}")
        if (adjacency is None) != (self.num_edge_types == 0):
            given = "without adjacency" if adjacency is None else "with an adjacency"
            raise DataError(f"tokens come {given}, but the spec has num_edge_types={self.num_edge_types}")
        if adjacency is not None and len(adjacency) and int(adjacency.edge_type.max()) > self.num_edge_types:
            wrong = int(adjacency.edge_type.max())
            raise DataError(f"an edge has type {wrong}; the spec has edge types 1 to {self.num_edge_types}")


@dataclass(frozen=True, slots=True)
class Adjacency:
    """Which token may attend to which, as a sparse list of edges. A pair without an edge is masked; every token attends
    to itself.

    edge_index: [2 e] int64, (source, target) as in PyG: the target attends to the source. An undirected edge is listed
    both ways, a pair once at most. In a `TokenBatch`, token t of example i has index i * n + t.
    edge_type: [e] int64 > 0: type of bond, number of hops, ...; type 0 is a token with itself.
    Raises ValueError on a wrong shape or dtype, or a type below 1.
    """

    edge_index: Tensor
    edge_type: Tensor

    def __post_init__(self) -> None:
        index, edge_type = self.edge_index, self.edge_type
        if index.ndim != 2 or index.shape[0] != 2 or index.dtype != torch.int64:
            raise ValueError(
                f"edge_index is {describe_tensor(index)}; give [2 e] int64, a column (source, target) per edge"
            )
        if edge_type.shape != index.shape[1:] or edge_type.dtype != torch.int64:
            raise ValueError(f"edge_type is {describe_tensor(edge_type)}; give [{index.shape[1]}] int64, one per edge")
        # values are looked at on the CPU, where an adjacency is made; on an accelerator that would stall it
        if len(edge_type) and edge_type.device.type == "cpu" and int(edge_type.min()) < 1:
            raise ValueError(
                f"edge_type goes down to {int(edge_type.min())}; types start at 1 (0 is a token with itself)"
            )

    def __len__(self) -> int:
        return self.edge_type.shape[0]

    def to(self, *args: Any, **kwargs: Any) -> Adjacency:
        return Adjacency(self.edge_index.to(*args, **kwargs), self.edge_type.to(*args, **kwargs))


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one example, never padded.

    content: [n] int64 ids or [n f] float vectors. positions: [n p] float, in the tokenizer's own unit (about one per
    token). adjacency: which token may attend to which; None: every token to every other.
    Raises DataError where content or positions are empty, not finite or of another length, or an edge points outside.
    """

    content: Tensor
    positions: Tensor
    adjacency: Adjacency | None = None

    def __post_init__(self) -> None:
        ids = self.content.ndim == 1 and self.content.dtype == torch.int64
        if not ids and not (self.content.ndim == 2 and self.content.is_floating_point()):
            raise DataError(f"content is {describe_tensor(self.content)}; give [n] int64 ids or [n f] float vectors")
        n = self.content.shape[0]
        if n == 0:
            raise DataError("content has no tokens; an example needs at least one")
        if self.positions.ndim != 2 or len(self.positions) != n or not self.positions.is_floating_point():
            raise DataError(f"positions are {describe_tensor(self.positions)}; give [{n} p] float, one row per token")
        if not ids:
            _finite("content", self.content)
        _finite("positions", self.positions)
        if self.adjacency is not None and len(self.adjacency):
            index = self.adjacency.edge_index
            low, high = int(index.min()), int(index.max())
            if low < 0 or high >= n:
                raise DataError(f"an edge names token {low if low < 0 else high}, but there are tokens 0 to {n - 1}")
            pairs = index[0] * n + index[1]
            if len(pairs.unique()) < len(pairs):
                raise DataError("two edges join the same (source, target) pair; merge their types into one")

    def __len__(self) -> int:
        return self.content.shape[0]


@dataclass(frozen=True, slots=True)
class _Padded:
    """A dataclass of tensors with `valid` [b n] that knows whether there is padding without asking a device.

    On the CPU that is looked up when the object is made. On an accelerator it is known where it came from the CPU by
    `to`; anywhere else `is_padded` is True, which is always right, and only costs an attention mask.
    Fields are replaced (`replace`), not written in place: `is_padded` would not notice.
    """

    _unpadded: Tensor | None = field(init=False, default=None, repr=False, compare=False)
    """The very tensor `valid` of which it is known that it has no padding: another one is never taken for it."""

    def __post_init__(self) -> None:
        valid: Tensor = self.valid  # type: ignore[attr-defined]
        if valid.device.type == "cpu" and bool(valid.all()):
            object.__setattr__(self, "_unpadded", valid)

    @property
    def is_padded(self) -> bool:
        """False: every token is known to be real."""
        return self._unpadded is not self.valid  # type: ignore[attr-defined]

    def replace(self, **changes: Any) -> Self:
        """A copy with other fields; what is known of padding stays known unless `valid` is changed."""
        return replace(self, **changes)._knowing(self.is_padded or "valid" in changes)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The same on another device or of another dtype (Lightning moves only batches that have `to`)."""
        names = [f.name for f in fields(self) if f.init and hasattr(getattr(self, f.name), "to")]
        return replace(self, **{name: getattr(self, name).to(*args, **kwargs) for name in names})._knowing(
            self.is_padded
        )

    def knowing_padding(self, other: _Padded) -> Self:
        """The same, knowing of padding what `other` knows, if both have the same tensor `valid`."""
        return self._knowing(other.is_padded or self.valid is not other.valid)  # type: ignore[attr-defined]

    def _knowing(self, is_padded: bool) -> Self:
        if not is_padded:
            object.__setattr__(self, "_unpadded", self.valid)  # type: ignore[attr-defined]
        return self


@dataclass(frozen=True, slots=True)
class TokenBatch(_Padded):
    """Tokens of several examples, padded on the right with zeros.

    content: [b n] or [b n f]. positions: [b n p]. valid: [b n] bool, True = real.
    adjacency: indices count through the whole batch, i * n + t. segments: [b n] int64: tokens of different segments
    (packed sequences) do not attend to each other; None: one segment an example.
    source: the batch that the encoder of an encoder–decoder gets, as many examples (`src` in `nn.Transformer`).
    """

    content: Tensor
    positions: Tensor
    valid: Tensor
    adjacency: Adjacency | None = None
    segments: Tensor | None = None
    source: TokenBatch | None = None

    def __post_init__(self) -> None:
        _Padded.__post_init__(self)
        if self.valid.ndim != 2 or self.valid.dtype != torch.bool:
            raise ValueError(f"valid is {describe_tensor(self.valid)}; give [b n] bool, True where a token is real")
        for name in ("content", "positions", "segments"):
            value = getattr(self, name)
            if value is not None and value.shape[:2] != self.valid.shape:
                raise ValueError(
                    f"{name} is {describe_tensor(value)}; its first two sizes should be {list(self.valid.shape)}"
                )
        if self.source is not None and len(self.source) != len(self):
            raise ValueError(f"source has {len(self.source)} examples beside {len(self)}; give one for each")

    @classmethod
    def collate(cls, examples: Sequence[Tokens]) -> TokenBatch:
        """Pad to the longest. Raises ValueError if there are no examples or they differ in more than length."""
        if not examples:
            raise ValueError("collate was given no examples; a batch needs at least one")
        b, n = len(examples), max(map(len, examples))
        first = examples[0]
        for i, x in enumerate(examples):
            same = x.content.shape[1:] == first.content.shape[1:] and x.positions.shape[1] == first.positions.shape[1]
            if not same or (x.adjacency is None) != (first.adjacency is None):
                raise ValueError(
                    f"example {i} has content {describe_tensor(x.content)}, positions {describe_tensor(x.positions)} "
                    f"and adjacency {x.adjacency is not None}; "
                    f"example 0 {describe_tensor(first.content)}, {describe_tensor(first.positions)} "
                    f"and {first.adjacency is not None}: one batch holds one tokenizer's tokens"
                )
        valid = torch.arange(n) < torch.tensor([len(x) for x in examples])[:, None]
        if bool(valid.all()):
            content, positions = (
                torch.stack([x.content for x in examples]),
                torch.stack([x.positions for x in examples]),
            )
        else:
            content = first.content.new_zeros(b, n, *first.content.shape[1:])
            positions = first.positions.new_zeros(b, n, first.positions.shape[1])
            for i, x in enumerate(examples):
                content[i, : len(x)], positions[i, : len(x)] = x.content, x.positions
        adjacency = None
        if first.adjacency is not None:
            graphs = [(i, x.adjacency) for i, x in enumerate(examples) if x.adjacency is not None]
            edge_index = torch.cat([graph.edge_index + i * n for i, graph in graphs], dim=1)
            adjacency = Adjacency(edge_index, torch.cat([graph.edge_type for _, graph in graphs]))
        return cls(content, positions, valid, adjacency)

    def __len__(self) -> int:
        return self.valid.shape[0]

    @property
    def num_tokens(self) -> int:
        """How many tokens are real."""
        return int(self.valid.sum())


@dataclass(frozen=True, slots=True)
class Embedded(_Padded):
    """Input of a backbone: embeddings of one width with positions, padding and attention structure.

    hidden: [b n d], zero where padded. positions: [b n p]. valid: [b n] bool, True = real. adjacency: as in
    `TokenBatch`. segments: [b n] int64 or None.
    source: the embedded source sequence, input of an encoder. memory: the encoder's output, to which the decoder
    cross-attends (as in `nn.TransformerDecoder`).
    """

    hidden: Tensor
    positions: Tensor
    valid: Tensor
    adjacency: Adjacency | None = None
    segments: Tensor | None = None
    source: Embedded | None = None
    memory: Embedded | None = None


# ── tokenizer and objective: no weights ──────────────────────────────────────────────────────────────────────────────


class Stateful:
    """Tokenizer or objective: may be fitted on the training data, before any weight exists (vocabulary, class names).

    The state is plain JSON (`state`, `load_state`); it travels with the run and is data, never code.
    """

    def state(self) -> dict[str, Any]:
        """What was fitted, as plain JSON; empty until something was."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore from `state()`."""
        if state:
            raise ValueError(f"{type(self).__name__} has no fitted state, but was given {sorted(state)}")


class Tokenizer(Stateful, ABC):
    """Turns one raw example into `Tokens`.

    It runs on the CPU in the data loader and owns no weights; `spec` describes its tokens.
    A sample is (raw, label); `encode` gets the raw part alone, so labels per token fix the tokens' number and order.
    A tokenizer whose input can be rebuilt also has `decode` (of `Tokens`, or of ids [n], as generation needs); one that
    must see data first has `fit(raws)`, called once with the training split.
    """

    @property
    @abstractmethod
    def spec(self) -> TokenSpec:
        """Shape of its tokens. Raises ValueError if the tokenizer must be fitted first."""

    @abstractmethod
    def encode(self, raw: Any, /) -> Tokens:
        """One raw example as tokens. Raises DataError with the reason where it cannot be one."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One batch as an objective prepares it: model input, masked tokens, target.

    batch: input of the model. masked: [b n] bool, True: the learned mask token replaces the content; None: none.
    target: the tensor that the objective's `loss` takes.
    """

    batch: TokenBatch
    masked: Tensor | None
    target: Tensor


@dataclass(frozen=True, slots=True)
class LossOutput:
    """Loss as a sum and a count, so that accumulation and several devices give the weights of one big batch.

    loss: scalar, summed over predictions. count: number of predictions. preds, target: the predictions that count,
    flattened, and their targets, for torchmetrics; None in training.
    """

    loss: Tensor
    count: Tensor
    preds: Tensor | None = None
    target: Tensor | None = None


class Objective(Stateful, ABC):
    """Training objective: which tokens are masked, what is predicted, and the loss.

    causal: the causality that it needs of the backbone; None: either. needs_labels: True: samples must have labels.
    uses_mask_token: True: it masks tokens, so the Embedder gets a mask token.
    primary_metric: the name of the metric by which models are compared: "loss", or one of its metrics.
    An objective holds what was fitted on the labels and nothing of a model, so one may serve several.
    target_spec: spec of the tokens that a decoder generates, where those are not the tokenizer's (the batch that it
    prepares has the tokenizer's batch as `source`); None: there is one sequence. Raises ValueError before `fit`.
    """

    causal: bool | None = None
    needs_labels: bool = False
    uses_mask_token: bool = False
    primary_metric: str = "loss"

    @property
    def target_spec(self) -> TokenSpec | None:
        return None

    def encode_target(self, label: Any) -> Any:
        """A label as `prepare` gets it, before collation: an int, floats, int64 [n] per token, or int64 [a t]:
        a reference sequences, any of which is right.

        Raises DataError where it cannot be one.
        """
        return label

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Learn from the training labels, and the class names if the data has them; called before the head is built."""

    @abstractmethod
    def head(self, embedder: nn.Module) -> nn.Module:
        """Module from hidden [b n d] and valid [b n] to the prediction; sizes come from `embedder.spec` and `.dim`."""

    @abstractmethod
    def prepare(self, batch: TokenBatch, label: Tensor | None) -> ModelInput:
        """Model input, masked tokens and target of a batch."""

    @abstractmethod
    def loss(self, prediction: Tensor, target: Tensor, *, training: bool = False) -> LossOutput:
        """Loss of a prediction.

        training: True: with what is for training alone, such as label smoothing, and without `preds`, whose selection
        would make an accelerator wait.
        """

    @abstractmethod
    def baseline(self, targets: Sequence[Tensor], spec: TokenSpec) -> Callable[[Tensor], Tensor]:
        """The best constant prediction, fitted on training targets; a function from a target to its prediction.

        spec: of the tokens that the model embeds (`Model.spec`).
        """

    def metrics(self, spec: TokenSpec) -> dict[str, Any]:
        """torchmetrics over (preds, target), by name; the loss is always reported. spec: as in `baseline`."""
        return {}

    def generation_metrics(self) -> dict[str, Any]:
        """torchmetrics over (generated ids, labels), by name; empty where nothing is generated."""
        return {}

    def predict(self, model: nn.Module, batch: TokenBatch) -> Tensor:
        """Input of `decode`: the model's prediction, or the ids that it generates where the objective generates."""
        return model(batch)

    def decode(self, prediction: Tensor) -> list[Any]:
        """A prediction in the user's terms, one entry per example (class names, numbers in the target's unit).

        Raises ValueError where the objective has none.
        """
        raise ValueError(
            f"{type(self).__name__} predicts nothing for a raw example; to continue a text use `seqkit generate`"
        )


# ── the backbone: weights, no modality ───────────────────────────────────────────────────────────────────────────────


class Cache(ABC):
    """State of a causal backbone between decoding steps: keys and values, or a hidden state."""

    num_tokens: int
    """Columns so far, padding included (so not a count of real tokens)."""

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order (beam search takes some twice and drops others)."""


class Backbone(nn.Module, ABC):
    """Contextual hidden states [b n d] from embeddings [b n d].

    A backbone declares what it supports; the model refuses the rest when it is built.
    dim: width d. causal: True: token i attends to tokens <= i only. num_heads: attention heads, 0: it has none.
    supports_adjacency: False: tokens with an adjacency are refused. supports_segments: False: packed sequences are
    refused, at the first batch.
    uses_positions: True: it uses `positions` itself (rotary attention). is_recurrent: True: it runs over the columns in
    order (an RNN, a convolution over time), so it knows their order but not `positions`: where those say more, they are
    added to the embeddings. ignores_order: True: it is meant to know no order (a bag of tokens), so no positions are
    added unless the model is given some.
    is_encoder_decoder: True: it generates one sequence from another (`Embedded.source`) and cannot do without.
    """

    dim: int
    causal: bool
    num_heads: int = 0
    supports_adjacency: bool = False
    supports_segments: bool = False
    uses_positions: bool = False
    is_recurrent: bool = False
    ignores_order: bool = False
    is_encoder_decoder: bool = False

    def get_encoder(self) -> Backbone | None:
        """The encoder, which gets `Embedded.source`; None: there is none, and the decoder attends to the embeddings."""
        return None

    @abstractmethod
    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d], zero where padded.

        With a cache, `embedded` continues the columns that the cache has, and needs `source` only the first time.
        """

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache for `max_tokens` columns. Raises ValueError if the backbone is not causal."""
        raise ValueError(f"{type(self).__name__} has no cache; generate with use_cache=False")

    def check_supported(self, spec: TokenSpec) -> None:
        """Raise ValueError if this backbone does not support tokens of that spec (called once, by the model)."""

    def add_edge_bias(self, num_edge_types: int) -> None:
        """Learn what each edge type adds to attention scores, or to messages along it (called by the model)."""


def _finite(name: str, x: Tensor) -> None:
    if not bool(torch.isfinite(x).all()):
        row = int((~torch.isfinite(x)).any(dim=1).nonzero()[0])
        raise DataError(f"{name} of token {row} is not finite (NaN or infinite); clean the input or drop the example")
