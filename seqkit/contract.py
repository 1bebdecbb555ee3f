"""The types that everything in seqkit speaks. READ FIRST.

    raw ─encode→ Tokens ─collate→ TokenBatch ─Embedder→ Embedded ─Backbone→ hidden ─Head→ prediction ─Objective→ loss
        Tokenizer (CPU, in       ids or vectors,       [b n d]           [b n d]
        the data loader)         who is padding        who reads whom

Two ends own meaning and hold no weights (`Tokenizer`, `Objective`); three modules own weights and know no modality
(`Embedder`, `Backbone`, `Head`). Data runs one way; nothing on the left knows what stands on its right.

b batch · n tokens · f features · p position axes · e links · d width · h heads
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

IGNORE = -100
"""The label of a token that has none: `torch.nn.functional.cross_entropy`'s default `ignore_index`."""


class DataError(ValueError):
    """Input data that cannot be used: what, where, what to do. The front door ends with exit code 3 on it."""


# ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """All that is needed to build the layer that embeds a tokenizer's tokens.

    vocab_size: > 0: content is ids below it; or num_features: > 0: content is vectors of that width. One of the two.
    num_axes: coordinates per token: 1 text, 2 image, 0 none. That tokens are a set although they stand in a row (points
    of a cloud) is not said here: an RNN would read the row as meaning.
    num_links: kinds of link (then an example without edges brings empty links); 0: every token may read every other.
    embedder: `dim -> nn.Module` from content to [b n dim], in place of a lookup or a linear layer (a convolutional
    stem).
    Raises ValueError where the fields contradict each other.
    """

    vocab_size: int = 0
    num_features: int = 0
    num_axes: int = 1
    num_links: int = 0
    embedder: Callable[[int], nn.Module] | None = None

    def __post_init__(self) -> None:
        for field in ("vocab_size", "num_features", "num_axes", "num_links"):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"TokenSpec.{field} is {value!r}; it counts something, so make it an integer >= 0")
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
        """Raise DataError if `tokens` are not what this spec promises (width, range of ids, axes, kinds of link)."""
        content = tokens.content
        if self.ids:
            if content.ndim != 1:
                raise DataError(
                    f"content is [n f] vectors, but the tokenizer's spec promises ids below {self.vocab_size}"
                )
            if len(content) and (int(content.min()) < 0 or int(content.max()) >= self.vocab_size):
                wrong = int(content.max()) if int(content.max()) >= self.vocab_size else int(content.min())
                raise DataError(f"content holds id {wrong}, outside the vocabulary of {self.vocab_size}")
        elif content.ndim != 2 or content.shape[1] != self.num_features:
            raise DataError(f"content is {list(content.shape)}; the spec promises vectors [n {self.num_features}]")
        if tokens.positions.shape[1] != self.num_axes:
            raise DataError(f"positions have {tokens.positions.shape[1]} axes; the spec promises {self.num_axes}")
        if (tokens.links is None) != (self.num_links == 0):
            given = "no links" if tokens.links is None else "links"
            raise DataError(f"tokens come with {given}, but the spec has num_links={self.num_links}")
        if tokens.links is not None and len(tokens.links) and int(tokens.links.kinds.max()) > self.num_links:
            raise DataError(
                f"a link has kind {int(tokens.links.kinds.max())}; the spec knows kinds 1 to {self.num_links}"
            )


@dataclass(frozen=True, slots=True)
class Links:
    """Who may read whom, sparse. A pair that is absent may not read; every token reads itself.

    edges: [2 e] int64, (reader, read), an undirected edge both ways, a pair once at most. In a `TokenBatch`, token t of
    example i has index i * n + t.
    kinds: [e] int64 > 0: edge type, hop count, ...
    Raises ValueError on a wrong shape, type or a kind below 1.
    """

    edges: Tensor
    kinds: Tensor

    def __post_init__(self) -> None:
        if self.edges.ndim != 2 or self.edges.shape[0] != 2 or self.edges.dtype != torch.int64:
            raise ValueError(f"links.edges are {_kind(self.edges)}; give [2 e] int64, a column (reader, read) per link")
        if self.kinds.shape != self.edges.shape[1:] or self.kinds.dtype != torch.int64:
            raise ValueError(f"links.kinds are {_kind(self.kinds)}; give [{self.edges.shape[1]}] int64, one per link")
        if len(self.kinds) and int(self.kinds.min()) < 1:
            raise ValueError(
                f"links.kinds go down to {int(self.kinds.min())}; kinds start at 1 (0 is a token with itself)"
            )

    def __len__(self) -> int:
        return self.kinds.shape[0]

    def to(self, *args: Any, **kwargs: Any) -> Links:
        return Links(self.edges.to(*args, **kwargs), self.kinds.to(*args, **kwargs))


@dataclass(frozen=True, slots=True)
class Tokens:
    """One example, never padded.

    content: [n] int64 ids or [n f] float vectors. positions: [n p] float, in the tokenizer's own unit (about one per
    token). links: who may read whom, or None: everyone.
    Raises DataError where content or positions are empty, not finite, of another length, or links point outside.
    """

    content: Tensor
    positions: Tensor
    links: Links | None = None

    def __post_init__(self) -> None:
        ids = self.content.ndim == 1 and self.content.dtype == torch.int64
        if not ids and not (self.content.ndim == 2 and self.content.is_floating_point()):
            raise DataError(f"content is {_kind(self.content)}; give [n] int64 ids or [n f] float vectors")
        n = self.content.shape[0]
        if n == 0:
            raise DataError("content has no tokens; an example needs at least one")
        if self.positions.ndim != 2 or len(self.positions) != n or not self.positions.is_floating_point():
            raise DataError(f"positions are {_kind(self.positions)}; give [{n} p] float, one row per token")
        if not ids:
            _finite("content", self.content)
        _finite("positions", self.positions)
        if self.links is not None and len(self.links):
            low, high = int(self.links.edges.min()), int(self.links.edges.max())
            if low < 0 or high >= n:
                raise DataError(f"a link names token {low if low < 0 else high}, but there are tokens 0 to {n - 1}")
            pairs = self.links.edges[0] * n + self.links.edges[1]
            if len(pairs.unique()) < len(pairs):
                raise DataError("two links join the same (reader, read) pair; merge their kinds into one")

    def __len__(self) -> int:
        return self.content.shape[0]


class _Moves:
    """`.to` for a dataclass of tensors (Lightning moves only batches that have it)."""

    __slots__ = ()

    def to(self, *args: Any, **kwargs: Any) -> Self:
        names = [f.name for f in fields(self) if hasattr(getattr(self, f.name), "to")]  # type: ignore[arg-type]
        return replace(self, **{name: getattr(self, name).to(*args, **kwargs) for name in names})  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class TokenBatch(_Moves):
    """Several examples, padded on the right with zeros.

    content: [b n] or [b n f]. positions: [b n p]. valid: [b n], True = real.
    links: indices count through the whole batch, i * n + t. segments: [b n] int64: tokens of different segments (packed
    sequences) do not read each other; None: one segment an example. Nothing in seqkit packs yet.
    memory: another batch of as many examples, which a decoder reads beside this one (what is to be translated).
    """

    content: Tensor
    positions: Tensor
    valid: Tensor
    links: Links | None = None
    segments: Tensor | None = None
    memory: TokenBatch | None = None

    def __post_init__(self) -> None:
        if self.valid.ndim != 2 or self.valid.dtype != torch.bool:
            raise ValueError(f"valid is {_kind(self.valid)}; give [b n] bool, True where a token is real")
        for name in ("content", "positions", "segments"):
            value = getattr(self, name)
            if value is not None and value.shape[:2] != self.valid.shape:
                raise ValueError(f"{name} is {_kind(value)}; its first two sizes should be {list(self.valid.shape)}")
        if self.memory is not None and len(self.memory) != len(self):
            raise ValueError(f"memory has {len(self.memory)} examples beside {len(self)}; give one for each")

    @classmethod
    def collate(cls, examples: Sequence[Tokens]) -> TokenBatch:
        """Pad to the longest. Raises ValueError if there are none or they differ in more than length."""
        if not examples:
            raise ValueError("collate was given no examples; a batch needs at least one")
        b, n = len(examples), max(map(len, examples))
        first = examples[0]
        for i, x in enumerate(examples):
            same = x.content.shape[1:] == first.content.shape[1:] and x.positions.shape[1] == first.positions.shape[1]
            if not same or (x.links is None) != (first.links is None):
                raise ValueError(
                    f"example {i} has content {_kind(x.content)}, positions {_kind(x.positions)} "
                    f"and links {x.links is not None}; "
                    f"example 0 {_kind(first.content)}, {_kind(first.positions)} and {first.links is not None}: "
                    "one batch holds one tokenizer's tokens"
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
        links = None
        if first.links is not None:
            edges = torch.cat([x.links.edges + i * n for i, x in enumerate(examples) if x.links is not None], dim=1)
            links = Links(edges, torch.cat([x.links.kinds for x in examples if x.links is not None]))
        return cls(content, positions, valid, links)

    def __len__(self) -> int:
        return self.valid.shape[0]

    @property
    def num_tokens(self) -> int:
        """How many tokens are real."""
        return int(self.valid.sum())


@dataclass(frozen=True, slots=True)
class Embedded(_Moves):
    """What a backbone reads: vectors of one width, where they stand, which are real, who may read whom.

    hidden: [b n d], zero where padded. positions: [b n p]. valid: [b n], True = real. links: as in `TokenBatch`.
    link_bias: [1 + num_links, h], added to the score of a link of that kind; row 0: of a token with itself; None: no
    bias.
    segments: [b n] int64 or None. memory: another sequence [b m d] to read too, for backbones that say so.
    """

    hidden: Tensor
    positions: Tensor
    valid: Tensor
    links: Links | None = None
    link_bias: Tensor | None = None
    segments: Tensor | None = None
    memory: Embedded | None = None


# ── the two ends: meaning, no weights ────────────────────────────────────────────────────────────────────────────────


class Stateful:
    """An end may learn something from the training data before any weight exists: an alphabet, class names, a scale.

    The state is plain JSON (`state`, `load_state`); it travels with the run and is data, never code.
    """

    def state(self) -> dict[str, Any]:
        """What was fitted, as plain JSON; empty until something was."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        if state:
            raise ValueError(f"{type(self).__name__} has no fitted state, but was given {sorted(state)}")


class Tokenizer(Stateful, ABC):
    """Cuts one raw example into tokens.

    Runs on the CPU in the data loader; owns no weights but describes the tokens (`spec`).
    A sample is (raw, label); `encode` sees the raw part alone, so labels per token fix its tokens' number and order.
    A tokenizer whose input can be rebuilt also has `decode` (of `Tokens`, or of ids [n], as generation needs); one that
    must see data first has `fit(raws)`, shown the training part once.
    """

    @property
    @abstractmethod
    def spec(self) -> TokenSpec:
        """What its tokens look like. Raises ValueError if it must be fitted first."""

    @abstractmethod
    def encode(self, raw: Any, /) -> Tokens:
        """One raw example as tokens. Raises DataError with the reason where it cannot be one."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch made ready for the model: what it reads, which tokens it must not see, what it should say.

    batch: what the model reads. hide: [b n] bool, True: a learned vector stands in for the token; None: nothing hidden.
    target: the tensor that the objective's `score` takes.
    """

    batch: TokenBatch
    hide: Tensor | None
    target: Tensor


@dataclass(frozen=True, slots=True)
class Score:
    """A loss as sum and count, so that accumulation and several devices give the weights of one big batch.

    loss: scalar, sum over what was predicted. count: how many. predicted, truth: those alone, aligned, for the metrics.
    """

    loss: Tensor
    count: Tensor
    predicted: Tensor
    truth: Tensor


class Objective(Stateful, ABC):
    """What to hide, what to predict, and how wrong it was.

    causal: what it needs of the backbone; None: either. labelled: True: examples must come with labels.
    hides: True: it asks for tokens to be hidden, so the Embedder needs a stand-in.
    target_spec: of the tokens that a decoder reads and writes, where those are not the tokenizer's (then the batch that
    it prepares has the tokenizer's as `memory`); None: there is one sequence. Raises ValueError if it must be fitted.
    """

    causal: bool | None = None
    labelled: bool = False
    hides: bool = False

    @property
    def target_spec(self) -> TokenSpec | None:
        return None

    def encode_label(self, label: Any) -> Any:
        """A label as `prepare` will see it, before collation: an int, numbers, int64 [n] per token, or int64 [a t]:
        sequences to be written, any of which is right.

        Raises DataError where it cannot be one.
        """
        return label

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """See the training labels (and the names of classes, if the data has them) once, before the head is built."""

    @abstractmethod
    def head(self, embedder: nn.Module) -> nn.Module:
        """The module from hidden [b n d] and valid [b n] to the prediction; `embedder.spec` and `.dim` say for what."""

    @abstractmethod
    def prepare(self, batch: TokenBatch, label: Tensor | None) -> Prepared:
        """What the model reads, what is hidden of it, and what it should say."""

    @abstractmethod
    def score(self, prediction: Tensor, target: Tensor) -> Score:
        """How wrong the prediction is."""

    @abstractmethod
    def constant(self, targets: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
        """The baseline, a prediction that sees no input, fitted on training targets; asked by a target's shape."""

    def metrics(self) -> dict[str, Any]:
        """torchmetrics to feed with (predicted, truth), by name; the loss is always reported."""
        return {}

    def generated_metrics(self) -> dict[str, Any]:
        """torchmetrics to feed with (what `predict` wrote, labels), by name; none where nothing is written."""
        return {}

    def predict(self, model: nn.Module, batch: TokenBatch) -> Tensor:
        """What `answer` takes: the model's prediction, or the ids that it writes where the objective is to write."""
        return model(batch)

    def answer(self, prediction: Tensor) -> list[Any]:
        """A prediction in the user's words, one entry per example (class names, numbers in the target's unit).

        Raises ValueError where the objective has no such answer.
        """
        raise ValueError(
            f"{type(self).__name__} gives no answer to a raw example; to continue a text use `seqkit generate`"
        )


# ── the three modules: weights, no meaning ───────────────────────────────────────────────────────────────────────────


class Cache(ABC):
    """What a causal backbone remembers of the tokens that it has read: keys and values, or a hidden state."""

    num_tokens: int
    """Columns read so far, padding included (so not a count of real tokens)."""

    @abstractmethod
    def select(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order (beam search takes some twice and drops others)."""


class Backbone(nn.Module, ABC):
    """Reads embedded tokens and gives each a vector that knows the others.

    What it can honour is declared, and the model refuses, when it is built, what it cannot:
    dim: width d. causal: True: token i reads only tokens <= i. num_heads: attention heads, 0: has none.
    reads_links: False: tokens with links are refused. reads_segments: False: packed sequences are, at the first batch.
    reads_positions: True: `positions` reach it by themselves (rotary attention). ordered: True: it goes along the
    columns (an RNN), so it knows their order but not `positions`: where those say more, add them.
    reads_memory: True: it writes one sequence from another (`Embedded.memory`), and cannot do without.
    """

    dim: int
    causal: bool
    num_heads: int = 0
    reads_links: bool = False
    reads_segments: bool = False
    reads_positions: bool = False
    ordered: bool = False
    reads_memory: bool = False

    def source_reader(self) -> Backbone | None:
        """The part that reads `Embedded.memory` first, an encoder; None: it is read as it comes, positions added."""
        return None

    @abstractmethod
    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden vectors [b n d], zero where padded.

        With a cache, `embedded` continues what the cache has read, and needs `memory` only the first time.
        """

    def init_cache(self, max_tokens: int) -> Cache:
        """An empty cache for `max_tokens` columns. Raises ValueError if the backbone is not causal."""
        raise ValueError(f"{type(self).__name__} keeps no cache; generate with use_cache=False")

    def check(self, spec: TokenSpec) -> None:
        """Raise ValueError if this backbone cannot read tokens of that spec (the model asks once, when it is built)."""


def _kind(x: Tensor) -> str:
    return f"{list(x.shape)} {str(x.dtype).removeprefix('torch.')}"


def _finite(name: str, x: Tensor) -> None:
    if not bool(torch.isfinite(x).all()):
        row = int((~torch.isfinite(x)).any(dim=1).nonzero()[0])
        raise DataError(f"{name} of token {row} is not finite (NaN or infinite); clean the input or drop the example")
