"""Contrastive training: the parts of one example get vectors that are alike.

b batch · n tokens · d width of the shared space · k parts · m candidates, of all devices · r runs of a part
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor, distributed, nn

from seqkit.errors import DataError, suggest
from seqkit.interfaces import (
    Embedded,
    FittedState,
    LabeledBatch,
    LossOutput,
    Objective,
    TokenBatch,
    TokenSpec,
)
from seqkit.nn.embedder import TokenEmbedder
from seqkit.nn.projection import LinearProjection, Projection
from seqkit.objectives.labels import plain
from seqkit.objectives.losses import is_positive

if TYPE_CHECKING:
    from torchmetrics import Metric

MAX_SCALE = 100.0
"""Largest factor of the cosines, as in CLIP (Radford et al. 2021, section 2.5)."""

FIRST_BIAS = -10.0
"""Bias of scaled cosines at the start of a training with the sigmoid loss (Zhai et al. 2023, section 3.2)."""


def _check_parts(parts: Sequence[str]) -> None:
    if len(set(parts)) < 2 or len(set(parts)) < len(parts):
        given = ", ".join(parts) or "none"
        raise ValueError(
            f"Contrastive compares two parts or more, and the parts are {given}; name each once"
        )


class Contrastive(Objective):
    """Contrastive training of two parts or more of joined tokens (CLIP; Radford et al. 2021).

    parts: names of the parts; None: all that the tokens have. dim: width of the shared space. temperature: divisor of
    the cosines at the start; its inverse is learned, as `logit_scale` of the head. max_scale: largest inverse; None:
    there is none. projections: by name of a part, from its hidden states to its vector; other parts have the mean of
    their tokens through a linear layer. loss: see below.

    Each part is encoded by itself: the model is called once a part, with the tokens of that part alone
    (`TokenBatch.only`). So nothing of one part can reach another, whatever the backbone, and recurrent ones fit. One
    pass over all parts would need a backbone that keeps segments apart.
    Positives are examples with the same class where the data has classes. Otherwise they are examples whose tokens of
    either part are equal, so two equal captions are no negatives of each other. The loss of an anchor is the mean over
    its positives of -log softmax (Khosla et al. 2020, equation 2) over all examples of the batch that have the other
    part; it is averaged over all anchors, in both directions of every pair of parts. The anchors of a pair are the
    examples that have both its parts. With loss="sigmoid" it is the sum, over all that have the other part, of -log
    sigmoid of the scaled cosine and a learned bias, `logit_bias` of the head, with the sign turned for negatives
    (SigLIP; Zhai et al. 2023).
    Negatives come from all devices. Accumulation (`trainer.accumulate_grad_batches`) is not a larger batch: each
    micro-batch has its own negatives alone.
    Raises ValueError for fewer than two parts, a temperature that is too low, or a projection of another part.

    >>> objective = Contrastive(["image", "text"], dim=2)
    >>> objective.decode(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))
    [{'image, text': 0.0}]
    """

    primary_metric = "recall@1"
    encodes_parts_alone = True

    def __init__(
        self,
        parts: list[str] | None = None,
        *,
        dim: int = 64,
        temperature: float = 0.07,
        max_scale: float | None = MAX_SCALE,
        projections: Mapping[str, Callable[[int, int], Projection]] | None = None,
        loss: Literal["softmax", "sigmoid"] = "softmax",
    ):
        self.parts = list(parts or ())
        self.dim = dim
        self.temperature = temperature
        self.max_scale = max_scale
        self.projections = dict(projections or {})
        self.loss = loss
        if parts is not None:
            _check_parts(self.parts)
        if not (temperature > 0 and (max_scale is None or 1 / temperature <= max_scale)):
            raise ValueError(
                f"temperature is {temperature}; give more than 0, and 1 / max_scale or more, such as 0.07"
            )
        self.has_classes: bool | None = None

    def plain_label(self, label: Any) -> Any:
        """A label as the data module keeps it. Raises DataError for anything but the number of a class."""
        known = plain(label)
        if not isinstance(known, int):
            raise DataError(
                f"a label is {str(known)[:60]}; Contrastive takes the number of a class, or no labels"
            )
        return known

    def fit(self, labels: Sequence[Any], names: Sequence[str] | None) -> None:
        """Learns whether the data has classes. Raises DataError where some examples have one."""
        known = sum(label is not None for label in labels)
        if 0 < known < len(labels):
            raise DataError(
                f"{known:,} of {len(labels):,} training samples have a label; label all of them, or none"
            )
        self.has_classes = self.needs_labels = known > 0

    def state(self) -> FittedState:
        """Whether the data has classes."""
        if self.has_classes is None:
            return {}
        return {"has_classes": self.has_classes}

    def load_state(self, state: FittedState) -> None:
        """Restores whether the data has classes."""
        self.has_classes = self.needs_labels = bool(state["has_classes"])

    def head(self, embedder: nn.Module) -> nn.Module:
        """Vectors [b k d] in the shared space. Raises ValueError for parts that are not there."""
        assert isinstance(embedder, TokenEmbedder)
        self.parts = self.parts or [name for name, _ in embedder.spec.parts]
        _check_parts(self.parts)
        for name in self.projections:
            if name not in self.parts:
                raise ValueError(
                    f"projections name {name!r}, which is not compared; {suggest(name, self.parts)}"
                )
        make = self.projections.get
        made = {x: make(x, LinearProjection)(embedder.part(x).dim, self.dim) for x in self.parts}
        bias = FIRST_BIAS if self.loss == "sigmoid" else None
        return ContrastiveHead(made, 1 / self.temperature, max_scale=self.max_scale, bias=bias)

    def step(self, model: nn.Module, batch: LabeledBatch, *, training: bool = False) -> LossOutput:
        """Loss of all pairs of parts. preds: vectors [b k d] of length 1, NaN where a part is absent. target: [b k],
        equal numbers for positives."""
        tokens, label = batch
        vectors, present, bias = self._encoded(model, tokens)
        keys = self._keys(tokens, label)
        anchors = Candidates(vectors, present, keys)
        if training:
            return LossOutput(*multi_positive_loss(anchors, everywhere(anchors), bias))
        loss, count = multi_positive_loss(anchors, anchors, bias)
        return LossOutput(loss, count, _unit(vectors.detach(), present), keys)

    def predict(self, model: nn.Module, batch: TokenBatch) -> Tensor:
        """Vectors [b k d] of length 1, NaN where a part is absent."""
        vectors, present, _ = self._encoded(model, batch)
        return _unit(vectors, present)

    def decode(self, prediction: Tensor) -> list[Any]:
        """Cosine of each pair of parts of an example, by the names of both; of parts that it lacks there is none."""
        cosines = einsum(prediction, prediction, "b i d, b j d -> b i j").tolist()
        pairs = list(combinations(range(len(self.parts)), 2))
        names = [f"{self.parts[i]}, {self.parts[j]}" for i, j in pairs]
        found = [[own[i][j] for i, j in pairs] for own in cosines]
        return [{name: x for name, x in zip(names, own) if not math.isnan(x)} for own in found]

    def baseline_step(
        self, batches: Iterable[LabeledBatch], spec: TokenSpec
    ) -> Callable[[LabeledBatch], LossOutput] | None:
        """Loss of vectors that are all alike: the logarithm of the number of candidates. The sigmoid loss has none."""
        if self.loss == "sigmoid":
            return None

        def step(batch: LabeledBatch) -> LossOutput:
            keys = self._keys(*batch)
            present = torch.stack([self._has(batch[0], name) for name in self.parts], dim=1)
            own = Candidates(torch.zeros(*keys.shape, self.dim, device=keys.device), present, keys)
            return LossOutput(*multi_positive_loss(own, own), _unit(own.vectors, present), keys)

        return step

    def metrics(self, spec: TokenSpec) -> dict[str, Metric]:
        """Recall at 1 and 5 of each ordered pair of parts (`a_to_b@1`), and the mean of those at 1."""
        from seqkit.objectives.retrieval import Recall

        pairs = list(permutations(range(len(self.parts)), 2))
        each = {
            f"{self.parts[i]}_to_{self.parts[j]}@{most}": Recall([(i, j)], most)
            for i, j in pairs
            for most in (1, 5)
        }
        return {"recall@1": Recall(pairs, 1), **each}

    def _encoded(self, model: nn.Module, batch: TokenBatch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Vectors [b k d], whether the example has the part, [b k] bool, and the bias of the sigmoid loss.

        Where processes train together each calls the model as often as the others, which wait for it: a part that no
        example here has is encoded as another one, and nothing is taken of it.
        """
        here = [name for name in self.parts if name in (batch.parts or ())]
        if not here:
            raise DataError(f"no example of the batch has any of the parts {', '.join(self.parts)}")
        vectors: dict[int, Tensor] = {}
        for i, name in enumerate(self.parts):
            if name in here or _num_processes() > 1:
                encoded = name if name in here else here[0]
                own: Tensor = model(batch.only(encoded))[:, i]  # zeros where it was another part
                none = own.new_zeros(len(batch), own.shape[-1])
                vectors[i] = none.index_copy(0, batch.rows(encoded), own)
        zeros = torch.zeros_like(next(iter(vectors.values())))
        stacked = torch.stack([vectors.get(i, zeros) for i in range(len(self.parts))], dim=1)
        present = torch.stack([self._has(batch, name) for name in self.parts], dim=1)
        if self.loss == "softmax":
            return stacked, present, None
        return stacked[..., :-1], present, stacked[..., -1].sum() / present.sum()

    @staticmethod
    def _has(batch: TokenBatch, name: str) -> Tensor:
        """Whether each example has the part, [b] bool."""
        has = torch.zeros(len(batch), dtype=torch.bool, device=batch.valid.device)
        if name in (batch.parts or ()):
            return has.index_fill(0, batch.rows(name), True)
        return has

    def _keys(self, batch: TokenBatch, label: Tensor | None) -> Tensor:
        """Numbers [b k] int64: two examples are positives if their numbers of either part are equal."""
        if self.has_classes:
            if label is None or label.shape != (len(batch),) or label.is_floating_point():
                raise DataError(
                    f"labels are {label if label is None else list(label.shape)}; give a class an example"
                )
            return rearrange(label, "b -> b 1").expand(-1, len(self.parts))
        columns = [
            torch.zeros(len(batch), dtype=torch.int64, device=batch.valid.device)
            for _ in self.parts
        ]
        for i, name in enumerate(self.parts):
            if batch.parts is not None and name in batch.parts:
                own = fingerprints(batch.parts[name].batch)
                columns[i] = columns[i].index_copy(0, batch.rows(name), own)
        return torch.stack(columns, dim=1)


class ContrastiveHead(nn.Module):
    """Vectors [b k d] of the parts in a shared space, each by a projection of its own.

    Vectors have the length that makes their products cosines divided by the temperature. Those of absent parts are 0.
    An example has at most one run of a part, as in `TokenBatch.only`.
    projections: by name of the part. scale: inverse of the temperature at the start; its logarithm is learned,
    `logit_scale` [1]. max_scale: largest scale; None: there is none. bias: at the start what is to be added to the
    products; it is learned, `logit_bias` [1], and is one more number at the end of vectors that are not absent, [b k
    d+1]; None: there is none.
    """

    def __init__(
        self,
        projections: Mapping[str, Projection],
        scale: float,
        *,
        max_scale: float | None,
        bias: float | None = None,
    ):
        super().__init__()
        self.projections = nn.ModuleDict(dict(projections))
        self.max_log_scale = math.inf if max_scale is None else math.log(max_scale)
        self.logit_scale = nn.Parameter(torch.tensor([math.log(scale)]))
        self.logit_bias = None if bias is None else nn.Parameter(torch.tensor([bias]))

    def forward(self, hidden: Tensor, embedded: Embedded) -> Tensor:
        """Vectors of each part. Raises ValueError for tokens that are not joined."""
        if embedded.parts is None:
            raise ValueError(
                "the batch has no parts, and this head compares them; encode the examples with Join"
            )
        if self.training:  # the weight itself, as in CLIP, so that the gradient can lower it again
            self.logit_scale.data.clamp_(max=self.max_log_scale)
        scale = (self.logit_scale.clamp(max=self.max_log_scale) / 2).exp()
        flat = rearrange(hidden, "b n d -> (b n) d")
        found = []
        for name, projection in self.projections.items():
            if name not in embedded.parts:  # `DistributedDataParallel` waits for every gradient
                found.append(sum(p.sum() for p in projection.parameters()) * 0.0)
                continue
            part = embedded.parts[name]
            own = projection(flat[part.columns], part.batch.valid).float()
            own = F.normalize(own, dim=-1) * scale
            if self.logit_bias is not None:
                own = torch.cat([own, self.logit_bias.expand(len(own), 1)], dim=-1)
            none = own.new_zeros(len(hidden), own.shape[-1])
            found.append(none.index_add(0, part.rows(hidden.shape[1]), own))
        return torch.stack(torch.broadcast_tensors(*found), dim=1)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Examples that are compared.

    vectors: [m k d], whose products are logits. present: [m k] bool, whether the example has the part. keys: [m k]
    int64, equal for positives.
    """

    vectors: Tensor
    present: Tensor
    keys: Tensor


def multi_positive_loss(
    anchors: Candidates, candidates: Candidates, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sum of the anchors' losses over all ordered pairs of parts, and the number of anchors.

    Anchors of a pair are those that have both its parts; they are compared with all candidates that have the other.
    An anchor's loss is the mean over its positives of -log softmax over the candidates (Khosla et al. 2020, equation
    2). The anchors are among the candidates, so each has a positive.
    bias: what is added to the logits of the sigmoid loss, which is then taken (Zhai et al. 2023, equation 1).
    """
    losses = []
    counts = []
    for i, j in permutations(range(anchors.keys.shape[1]), 2):
        counted = anchors.present[:, i] & anchors.present[:, j]
        compared = rearrange(counted, "b -> b 1") & candidates.present[:, j]
        positive = is_positive(anchors.keys, candidates.keys, i, j) & compared
        logits = einsum(anchors.vectors[:, i], candidates.vectors[:, j], "b d, m d -> b m")
        if bias is None:
            # rows that do not count get finite numbers before log_softmax: NaN times zero is NaN in the gradient
            others = torch.where(rearrange(counted, "b -> b 1"), -math.inf, 0.0)
            log_p = logits.where(compared, others.to(logits.dtype)).log_softmax(dim=1)
            each = -log_p.masked_fill(~positive, 0.0).sum(dim=1) / positive.sum(dim=1).clamp(min=1)
        else:
            logits = (logits + bias) * torch.where(positive, 1.0, -1.0)
            each = -F.logsigmoid(logits).masked_fill(~compared, 0.0).sum(dim=1)
        losses.append(each.sum())
        counts.append(counted.sum())
    return torch.stack(losses).sum(), torch.stack(counts).sum()


def fingerprints(batch: TokenBatch) -> Tensor:
    """Number [b] int64 of the tokens of each example, padding aside: equal tokens have equal ones.

    Sums of the tensors' bits by pseudo-random factors, modulo 2^64: different tokens have equal numbers in about one of
    10^12 pairs.
    """
    b, n = batch.valid.shape
    total = _mixed(batch.valid.sum(dim=1))
    for number, (name, x) in enumerate(sorted(batch.tensors().items())):
        if name in ("content", "positions", "features"):
            bits = x if x.dtype == torch.int64 else x.double().view(torch.int64)
            bits = bits.reshape(b, n, -1)
            place = torch.arange(n * bits.shape[2], device=x.device).reshape(n, -1)
            each = _mixed(bits) * _mixed(place + (number + 1) * 2**40)
            total = total + each.masked_fill(~rearrange(batch.valid, "b n -> b n 1"), 0).sum(
                dim=(1, 2)
            )
    if (edges := batch.adjacency) is not None:
        source, target = edges.edge_index % n
        each = _mixed(_mixed(_mixed(source) + target) + edges.edge_type)
        total = total.index_add(0, edges.edge_index[0] // n, each)
    return total


def _mixed(x: Tensor) -> Tensor:
    """Integers that look random, from int64 (the finalizer of SplitMix64; Steele et al. 2014)."""
    x = x + 0x1E3779B97F4A7C15
    x = (x ^ (x >> 30)) * -0x40A7B892E31B1A47
    x = (x ^ (x >> 27)) * -0x6B2FB644ECCEEE15
    return x ^ (x >> 31)


def _unit(vectors: Tensor, present: Tensor) -> Tensor:
    """Vectors [b k d] of length 1, NaN where a part is absent."""
    return F.normalize(vectors, dim=-1).masked_fill(~rearrange(present, "b k -> b k 1"), math.nan)


def everywhere(own: Candidates) -> Candidates:
    """The examples of all processes, whose numbers may differ; gradients reach the process that a vector is from."""
    if _num_processes() == 1:
        return own
    keys = own.keys
    sizes = [torch.zeros_like(keys[0, 0]) for _ in range(_num_processes())]
    distributed.all_gather(sizes, torch.full_like(keys[0, 0], len(keys)))
    numbers = [int(size) for size in sizes]

    def gathered(x: Tensor) -> Tensor:
        padded = F.pad(x, [0, 0] * (x.ndim - 1) + [0, max(numbers) - len(x)])
        whole = Gather.apply(padded)
        return torch.cat([one[:number] for one, number in zip(whole, numbers)])

    return Candidates(gathered(own.vectors), gathered(own.present.long()).bool(), gathered(keys))


class Gather(torch.autograd.Function):
    """Stacks a tensor of every process, [w ...]; its gradient is the sum of those of all processes."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        found = [torch.empty_like(x) for _ in range(_num_processes())]
        distributed.all_gather(found, x.contiguous())
        return torch.stack(found)

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        gradient = gradient.contiguous()
        distributed.all_reduce(gradient)
        return gradient[distributed.get_rank()]


def _num_processes() -> int:
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1
