"""Heads, from hidden states to predictions. Pooling happens here, so no class token is needed.

b batch · n tokens · d width · w width of a transform · k outputs or fields · v vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.interfaces import Embedded, TokenBatch
from seqkit.interfaces.parts import Part, Parts
from seqkit.nn.attention.mechanism import capped
from seqkit.nn.embedder import Embedder, TokenEmbedder
from seqkit.nn.mlp import Activation

if TYPE_CHECKING:
    from seqkit.nn.projection import Projection

Pool = Literal["mean", "sum", "max", "last", "first", "parts"]


def _linear(dim: int, num_outputs: int, *, bias: bool = True) -> nn.Linear:
    linear = nn.Linear(dim, num_outputs, bias=bias)
    nn.init.normal_(linear.weight, std=0.02)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


class Transform(nn.Module):
    """Layers of published models between hidden states and a head's output layer: [... d] → [... w].

    A linear layer, an activation, a norm. With GELU and LayerNorm it is the one of BERT's masked language model (Devlin
    et al. 2019), with Tanh and no norm BERT's pooler and RoBERTa's classifier, with ReLU DistilBERT's.
    width: w; None: d. activation: activation behind the linear layer. norm: norm behind that. bias: whether the linear
    layer has one (not in ModernBERT).
    Raises ValueError for a width below 1.
    """

    def __init__(
        self,
        dim: int,
        *,
        width: int | None = None,
        activation: Activation = nn.GELU,
        norm: Callable[[int], nn.Module] = nn.Identity,
        bias: bool = True,
    ):
        super().__init__()
        self.width = dim if width is None else width
        if self.width < 1:
            raise ValueError(f"width={width} counts channels; make it 1 or more")
        self.linear = nn.Linear(dim, self.width, bias=bias)
        self.activation = activation()
        self.norm = norm(self.width)

    def forward(self, hidden: Tensor) -> Tensor:
        """[... w] from hidden [... d]."""
        return self.norm(self.activation(self.linear(hidden)))


def _made(transform: Callable[[int], Transform] | None, dim: int) -> Transform | None:
    return None if transform is None else transform(dim)


class OutputHead(nn.Module):
    """Base class of heads with outputs for every token.

    transform: what hidden states of width d go through first; None: nothing. scale: factor of the product with the
    output layer's weight; a bias is added after it. softcap: c, of which outputs x become c tanh(x / c) (Gemma 2; Gemma
    Team 2024, section 2); None: they stay.
    """

    def __init__(self, transform: Transform | None, scale: float, softcap: float | None):
        super().__init__()
        self.transform, self.scale, self.softcap = transform, scale, softcap

    def _outputs(self, hidden: Tensor, output: Callable[[Tensor], Tensor]) -> Tensor:
        """Outputs [b n k] of hidden states [b n d]. output: the output layer."""
        if self.transform is not None:
            hidden = self.transform(hidden)
        found = output(hidden if self.scale == 1 else hidden * self.scale)
        return found if self.softcap is None else capped(found, self.softcap)


class TokenHead(OutputHead):
    """A linear layer on every token: [b n d] → [b n k]. transform, scale, softcap: as of `OutputHead`."""

    def __init__(
        self,
        dim: int,
        num_outputs: int,
        *,
        bias: bool = True,
        transform: Transform | None = None,
        scale: float = 1.0,
        softcap: float | None = None,
    ):
        super().__init__(transform, scale, softcap)
        self.linear = _linear(dim if transform is None else transform.width, num_outputs, bias=bias)

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Predictions [b n k]; those of padded tokens mean nothing."""
        return self._outputs(hidden, self.linear)


class FieldHead(OutputHead):
    """A linear layer for each of k fields on every token: [b n d] → logits [b n k v], v the largest vocabulary.

    Logits of ids that a smaller vocabulary does not have are -inf: their probability is 0, and they get no gradient.
    transform, scale, softcap: as of `OutputHead`.
    """

    def __init__(
        self,
        dim: int,
        vocab_sizes: Sequence[int],
        *,
        bias: bool = True,
        transform: Transform | None = None,
        scale: float = 1.0,
        softcap: float | None = None,
    ):
        super().__init__(transform, scale, softcap)
        self.vocab_sizes = tuple(vocab_sizes)
        self.linear = _linear(dim if transform is None else transform.width, sum(self.vocab_sizes), bias=bias)

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Logits [b n k v]; those of padded tokens mean nothing."""
        most, parts = max(self.vocab_sizes), self._outputs(hidden, self.linear).split(self.vocab_sizes, dim=-1)
        return torch.stack([F.pad(part, [0, most - part.shape[-1]], value=float("-inf")) for part in parts], dim=-2)


def content_head(
    embedder: Embedder,
    *,
    tied: bool = False,
    bias: bool = True,
    transform: Callable[[int], Transform] | None = None,
    scale: float = 1.0,
    softcap: float | None = None,
) -> nn.Module:
    """The head that predicts the content of tokens: logits of an id, logits of each of several ids, or a vector.

    tied: whether its weight is the embedding table. The others: as of the heads.
    Raises ValueError for tokens of which some have no content, and for a tied head of tokens without one table of the
    width that the head needs.
    """
    spec, made = embedder.spec, _made(transform, embedder.dim)
    if spec.num_prefix_tokens:
        raise ValueError(
            f"the objective predicts the content of tokens, and {spec.num_prefix_tokens} before the others have none; "
            "give tokenizer.num_prefix_tokens=0, or an objective for whole examples"
        )
    if tied:
        if spec.vocab_sizes:
            raise ValueError("tied=True shares one lookup table, and tokens of several ids have several; use False")
        table = embedder.table_of(embedder.dim if made is None else made.width)
        return TiedHead(table, scale=embedder.logit_scale * scale, bias=bias, transform=made, softcap=softcap)
    if spec.vocab_sizes:
        return FieldHead(embedder.dim, spec.vocab_sizes, bias=bias, transform=made, scale=scale, softcap=softcap)
    num_outputs = spec.vocab_size or spec.num_features
    return TokenHead(embedder.dim, num_outputs, bias=bias, transform=made, scale=scale, softcap=softcap)


END = 0
"""Number of the end of a run among the predictions of a `PartHead` before its tokens; id i has the number i + 1."""


class PartHead(nn.Module):
    """A head on the tokens of one part of joined tokens: [b n d] → predictions [r m ...] of its r runs.

    In a batch of which no example has the part r is 0, and the head's parameters get gradients of zero.
    before: True: the prediction for a token, and one for the end of the run, come from the column before it, [r m + 1
    ...]; that of a row's first token comes from no column and means nothing.
    """

    def __init__(self, part: str, head: nn.Module, *, before: bool = False):
        super().__init__()
        self.part, self.head, self.before = part, head, before

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Predictions of the runs of the part."""
        assert embedded.parts is not None
        part = embedded.parts.get(self.part)
        columns = embedded.valid.new_zeros(0, 1, dtype=torch.int64) if part is None else part.columns
        if self.before:
            columns = columns_before(columns, hidden.shape[1])
        prediction: Tensor = self.head(rearrange(hidden, "b n d -> (b n) d")[columns], embedded)
        return prediction


class HeadsOfParts(nn.Module):
    """A head for each part of joined tokens: [b n d] → name to prediction, of no run where the batch lacks the part."""

    def __init__(self, heads: Mapping[str, PartHead]):
        super().__init__()
        self.heads = nn.ModuleDict(dict(heads))

    def forward(self, hidden: Tensor, embedded: Embedded) -> dict[str, Tensor]:
        """Prediction of each part."""
        return {name: head(hidden, embedded) for name, head in self.heads.items()}


def columns_before(columns: Tensor, n: int) -> Tensor:
    """Columns [r m + 1] that predict the tokens of runs, [r m], and the end of each, in a batch of n columns.

    They are those before each token; before the first token of an example there is none, so it is its own.
    """
    first = columns[:, :1]
    return torch.cat([first - (first % n > 0).long(), columns], dim=1)


class TiedHead(OutputHead):
    """Logits by the vocabulary's own embedding table (tied weights; Press and Wolf 2017): [b n d] → [b n vocabulary].

    scale: factor of the product; d^-0.5 where the table's entries are about 1, so that the logits are too (T5; Raffel
    et al. 2020). bias: whether each id has one (BERT). transform, softcap: as of `OutputHead`.
    """

    def __init__(
        self,
        table: nn.Embedding,
        *,
        scale: float = 1.0,
        bias: bool = False,
        transform: Transform | None = None,
        softcap: float | None = None,
    ):
        super().__init__(transform, scale, softcap)
        self.table = table
        self.bias = nn.Parameter(torch.zeros(table.num_embeddings)) if bias else None

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Logits [b n vocabulary]; those of padded tokens mean nothing."""
        return self._outputs(hidden, lambda x: F.linear(x, self.table.weight, self.bias))


class SequenceHead(nn.Module):
    """Pool the real tokens, then a linear layer: [b n d] → [b k].

    pool: "mean", "sum" (for quantities that add up over tokens), "max", "last" (for causal backbones), "first" (a class
    token) or "parts" (of joined tokens: the mean of the means of the parts that an example has). transform: what the
    pooled hidden states go through before the linear layer; None: nothing.
    """

    def __init__(self, dim: int, num_outputs: int, *, pool: Pool = "mean", transform: Transform | None = None):
        super().__init__()
        self.pool, self.transform = pool, transform
        self.linear = _linear(dim if transform is None else transform.width, num_outputs)

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Predictions [b k] from hidden [b n d]."""
        found = pooled(hidden, embedded.valid, self.pool, embedded.parts)
        return self.linear(found if self.transform is None else self.transform(found))


def label_head(
    embedder: TokenEmbedder,
    num_outputs: int,
    *,
    pool: Pool | None,
    transform: Callable[[int], Transform] | None = None,
) -> nn.Module:
    """A head on whole examples or, where pool is None, on every token.

    Raises ValueError for a pooling by parts of tokens without any.
    """
    made = _made(transform, embedder.dim)
    if pool is None:
        return TokenHead(embedder.dim, num_outputs, transform=made)
    check_pool(embedder, pool)
    return SequenceHead(embedder.dim, num_outputs, pool=pool, transform=made)


class FeaturesHead(nn.Module):
    """The pooled hidden states themselves, without parameters, [b n d] → [b d], or a projection of them, [b k].

    pool: as of `SequenceHead`. normalize: whether vectors are divided by their Euclidean length. projection: in the
    place of pooling; None: none.
    """

    def __init__(self, *, pool: Pool = "mean", normalize: bool = False, projection: Projection | None = None):
        super().__init__()
        self.pool, self.normalize, self.projection = pool, normalize, projection

    def forward(self, hidden: Tensor, embedded: Embedded | TokenBatch) -> Tensor:
        """Vectors [b d] or [b k] from hidden [b n d]."""
        if self.projection is None:
            found = pooled(hidden, embedded.valid, self.pool, embedded.parts)
        else:
            found = self.projection(hidden, embedded.valid)
        return F.normalize(found, dim=-1) if self.normalize else found


def check_pool(embedder: TokenEmbedder, pool: Pool) -> None:
    """Raise ValueError for a pooling by parts of tokens without any."""
    if pool == "parts" and not embedder.spec.is_joined:
        raise ValueError("pool=parts is for joined tokens, and these have no parts; use mean")


def pooled(hidden: Tensor, valid: Tensor, pool: Pool, parts: Parts | None = None) -> Tensor:
    """One vector [b d] per example from its real tokens. Raises ValueError for an unknown pooling."""
    if pool == "parts" and parts is not None:
        return mean_of_parts(hidden, parts)
    real = rearrange(valid, "b n -> b n 1")
    if pool == "max":
        return hidden.masked_fill(~real, float("-inf")).amax(dim=1)
    if pool == "last":
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), valid.sum(dim=1) - 1]
    if pool == "first":
        return hidden[:, 0]  # sequences are padded on the right
    total = hidden.masked_fill(~real, 0.0).sum(dim=1)
    if pool == "sum":
        return total
    if pool == "mean":
        return total / real.sum(dim=1)
    raise ValueError(f"pool={pool!r}; it is one of 'mean', 'sum', 'max', 'last', 'first', 'parts'")


def mean_of_parts(hidden: Tensor, parts: Parts) -> Tensor:
    """Mean [b d] of the means of the parts that each example has."""
    means, number = torch.zeros_like(hidden[:, 0]), hidden.new_zeros(len(hidden))
    for part in parts.values():
        mean, count = mean_of_runs(hidden, part)
        means, number = means + mean, number + (count > 0)
    return means / rearrange(number, "b -> b 1")


def mean_of_runs(hidden: Tensor, part: Part) -> tuple[Tensor, Tensor]:
    """Mean [b d] of an example's tokens of a part, 0 where it has none, and their number [b]."""
    b, n, _ = hidden.shape
    real, rows = part.batch.valid, part.rows(n)
    sums = rearrange(hidden, "b n d -> (b n) d")[part.columns]
    sums = sums.masked_fill(~rearrange(real, "r m -> r m 1"), 0.0).sum(dim=1)
    total = torch.zeros_like(hidden[:, 0]).index_add(0, rows, sums)
    count = hidden.new_zeros(b).index_add(0, rows, real.sum(dim=1).to(hidden.dtype))
    return total / rearrange(count.clamp(min=1), "b -> b 1"), count
