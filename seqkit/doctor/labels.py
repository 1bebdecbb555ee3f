"""Check of labels: do they depend on the inputs?

Distance covariance (Székely, Rizzo and Bakirov 2007) between simple features of the inputs and the labels, compared
with its values for permuted labels: if the labels were shuffled already, they are alike.

e examples · n tokens · f features · k targets
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from seqkit.doctor.findings import Result, faulty, not_applicable
from seqkit.doctor.subject import Subject
from seqkit.interfaces import IGNORE, LabeledBatch, TokenBatch, TokenSpec

NUM_EXAMPLES = 300
"""Number of examples that are compared, each with each."""

FEW = 40
"""Number of examples below which chance explains too much. The smallest recipe that is checked has 60."""

NUM_PERMUTATIONS = 100

NO_SIGNAL = 3.0
"""Signal, in standard deviations of chance, below which labels do not depend on the inputs. Recipes have 4.6
(solubility cut to 60 molecules) to 103; shuffled labels had more than 3 in 3 of 440 trials."""

MAX_IDS = 256
MAX_FEATURES = 2_000
NUM_PARTS = 4
NUM_MIXED = 16


def check_labels(subject: Subject) -> Result:
    """Do the training labels of whole sequences have anything to do with their inputs?

    Labels of single tokens may depend on others far away (copying, parity), and those of joined parts on several parts
    at once (a sum modulo ten), which simple features do not show: they are not judged.
    """
    name = type(subject.objective).__name__
    spec = subject.model.spec
    if not subject.objective.needs_labels:
        return not_applicable(f"{name} needs none")
    if (
        subject.objective.target_spec is not None
        or getattr(subject.objective, "level", "") == "token"
        or spec.is_joined
    ):
        return not_applicable("labels of tokens, texts or joined parts are not judged")
    signal = _signal(subject.data.train_dataloader(), spec)  # one epoch: no example twice
    if signal is None:
        return not_applicable(f"not decided: fewer than {FEW} labels")
    measured = f"signal of the training labels {signal:.1f} (in standard deviations of chance)"
    if signal >= NO_SIGNAL:
        return Result(measured)
    cause = "the labels were shuffled, or read with other samples; or the task is beyond simple features"
    fix = f"--data.source (now {type(subject.data.source).__name__}): read each label with its own sample"
    return faulty(f"the labels do not depend on the inputs: {measured}", cause, fix)


def _signal(batches: Iterable[LabeledBatch], spec: TokenSpec) -> float | None:
    """Dependence of labels on inputs; None if there are too few, or none is of a whole sequence."""
    features = list[Tensor]()
    labels = list[Tensor]()
    for tokens, label, *_ in batches:
        assert label is not None
        vectors = _vectors(tokens, spec)
        for vector, real, each in zip(vectors, tokens.valid, label):
            is_known = ~each.isnan() if each.is_floating_point() else each != IGNORE
            if bool(is_known.all()):
                features.append(_summary(vector[real]))
                labels.append(each)
        if len(labels) >= NUM_EXAMPLES:
            break
    if len(labels) < FEW:
        return None
    targets = torch.stack(labels[:NUM_EXAMPLES])
    if not targets.is_floating_point():
        targets = F.one_hot(targets - targets.min())
    targets = rearrange(targets.double(), "e ... -> e (...)")
    inputs = torch.stack(features[:NUM_EXAMPLES]).double()
    return dependence(_standardised(inputs)[:, :MAX_FEATURES], _standardised(targets))


def dependence(features: Tensor, labels: Tensor) -> float:
    """Distance covariance of features [e f] and labels [e k], in standard deviations over permuted labels."""
    a, b = (_centred(torch.cdist(x, x)) for x in (features, labels))
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(a), generator=generator) for _ in range(NUM_PERMUTATIONS)]
    chance = torch.stack([(a * b[order][:, order]).mean() for order in orders])
    return float(((a * b).mean() - chance.mean()) / chance.std().clamp(min=1e-30))


def _centred(distances: Tensor) -> Tensor:
    """Distances [e e] whose rows and columns have mean 0."""
    rows = distances.mean(dim=1, keepdim=True)
    return distances - rows - distances.mean(dim=0, keepdim=True) + rows.mean()


def _standardised(columns: Tensor) -> Tensor:
    """Columns with mean 0 and standard deviation 1, without those that are constant."""
    columns = columns[:, columns.std(dim=0) > 1e-9]
    return (columns - columns.mean(dim=0)) / columns.std(dim=0)


def _vectors(tokens: TokenBatch, spec: TokenSpec) -> Tensor:
    """Content as vectors [b n f]: ids one-hot, modulo MAX_IDS, then the numbers."""
    fields = zip(spec.ids_of(tokens).unbind(-1), spec.id_sizes, strict=True)
    tables = [F.one_hot(ids % MAX_IDS, min(size, MAX_IDS)).double() for ids, size in fields]
    return torch.cat([*tables, spec.numbers_of(tokens).double()], dim=-1)


def _summary(vectors: Tensor) -> Tensor:
    """One vector for a sequence [n f]: mean and deviation, means of its quarters, its length, products of features.

    A label that is a sum over marked tokens depends on the products; many features are mixed at random to a few first.
    """
    parts = [*vectors.tensor_split(min(NUM_PARTS, len(vectors)))]
    parts += parts[-1:] * (NUM_PARTS - len(parts))
    mixed = vectors
    if vectors.shape[1] > NUM_MIXED:
        generator = torch.Generator().manual_seed(0)
        size = (vectors.shape[1], NUM_MIXED)
        mixed = vectors @ torch.randn(size, generator=generator, dtype=vectors.dtype)
    products = rearrange(mixed.T @ mixed / len(vectors), "i j -> (i j)")
    length = vectors.new_tensor([float(len(vectors))])
    means = [part.mean(dim=0) for part in parts]
    return torch.cat(
        [vectors.mean(dim=0), vectors.std(dim=0, correction=0), *means, length, products]
    )
