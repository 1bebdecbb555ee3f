"""Check of labels: do they depend on the inputs?

Distance covariance (Székely, Rizzo and Bakirov 2007) between simple features of the inputs and the labels, compared
with its values for permuted labels: if the labels were shuffled already, they are alike.

e examples · n tokens · f features · k targets
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from seqkit.doctor.findings import Finding, Result, not_applicable
from seqkit.doctor.subject import LabeledBatch, Subject
from seqkit.interfaces import IGNORE, Adjacency, TokenBatch, TokenSpec

NUM_EXAMPLES = 300
"""Number of examples that are compared, each with each."""

FEW = 40
"""Number of examples below which chance explains too much. The smallest recipe that is checked has 60."""

NUM_PERMUTATIONS = 100

NO_SIGNAL = 3.0
"""Signal, in standard deviations of chance, below which labels do not depend on the inputs. Recipes with a label
for each sequence have 4.6 (graph/solubility cut to 60 molecules) to 103; shuffled labels had more than 3 in 3 of 440
trials."""

SIGNAL = 5.0
"""Signal from which on labels surely depend on the inputs."""

MAX_IDS, MAX_FEATURES, NUM_PARTS, NUM_MIXED = 256, 2_000, 4, 16


def check_labels(subject: Subject) -> Result:
    """Do the training labels have anything to do with their inputs?

    Labels of whole sequences without a signal are called shuffled. Labels of single tokens may depend on others far
    away (copying, parity), and those of joined parts on several parts at once (a sum modulo ten), which simple features
    do not show: they are called shuffled only if the labels of the test split have a signal.
    """
    if not subject.objective.needs_labels:
        return not_applicable("labels", f"{type(subject.objective).__name__} needs none")
    loader = subject.data.train_dataloader()
    with _all_parts(loader.examples):
        by_token, train = _signal(subject, loader)  # one epoch: no example twice
    if train is None:
        return not_applicable("labels", f"not decided: fewer than {FEW} labels")
    _, test = _signal(subject, subject.data.test_dataloader())
    measured = f"signal of the training labels {train:.1f} (in standard deviations of chance)"
    measured += "" if test is None else f", of the test labels {test:.1f}"
    cause = "the labels were shuffled, or read with other samples"
    fix = f"--data.source (now {type(subject.data.source).__name__}): read each label with its own sample"
    if train < NO_SIGNAL and test is not None and test >= SIGNAL:
        problem = f"the training labels do not depend on the inputs, and the test labels do: {measured}"
        return Result("labels", measured, Finding(problem, cause, fix))
    joined = subject.content_spec.is_joined
    if train < NO_SIGNAL and not by_token and not joined:
        problem = f"the labels do not depend on the inputs: {measured}"
        return Result("labels", measured, Finding(problem, f"{cause}; or the task is beyond simple features", fix))
    if train < NO_SIGNAL:
        on = "joined parts may depend on several at once" if joined else "tokens may depend on others far away"
        return not_applicable("labels", f"not decided: {measured}, but labels of {on}")
    return Result("labels", measured)


@contextmanager
def _all_parts(examples: Any) -> Iterator[None]:
    """Context in which examples keep the parts that `data.drop_parts` leaves out, which differ more than classes do."""
    drop = getattr(examples, "drop", None)
    try:
        if drop is not None:
            examples.drop = None
        yield
    finally:
        if drop is not None:
            examples.drop = drop


def _signal(subject: Subject, batches: Iterable[LabeledBatch]) -> tuple[bool, float | None]:
    """Whether the labels belong to tokens, and their signal; None if there are too few."""
    pairs, by_token = [], False
    for batch in batches:
        by_token = _is_by_token(subject, batch)
        pairs += list(_by_token(subject, batch) if by_token else _by_sequence(subject, batch))
        if len(pairs) >= NUM_EXAMPLES:
            break
    pairs = pairs[:NUM_EXAMPLES]
    if len(pairs) < FEW:
        return by_token, None
    features, labels = (torch.stack(column).double() for column in zip(*pairs))
    return by_token, dependence(_standardised(features)[:, :MAX_FEATURES], _standardised(labels))


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
    spread = columns.std(dim=0)
    columns, spread = columns[:, spread > 1e-9], spread[spread > 1e-9]
    return (columns - columns.mean(dim=0)) / spread


# ── features and labels ──────────────────────────────────────────────────────────────────────────────────────────────


def _is_by_token(subject: Subject, batch: LabeledBatch) -> bool:
    tokens, label = batch
    assert label is not None
    if subject.objective.target_spec is not None:
        return False
    return label.ndim >= 2 and label.shape[:2] == tokens.valid.shape and label.shape[1] > 1


def _by_sequence(subject: Subject, batch: LabeledBatch) -> Iterator[tuple[Tensor, Tensor]]:
    """(features, label) of each example whose label is known."""
    tokens, labels = batch
    assert labels is not None
    vectors = _vectors(tokens, subject.content_spec)
    for label, each, real in zip(labels, vectors, tokens.valid, strict=True):
        described = _label(subject, label)
        if described is not None:
            yield _summary(each[real]), described


def _label(subject: Subject, label: Tensor) -> Tensor | None:
    """A label as a vector: a class one-hot, numbers as they are, a text as the shares of its ids; None if unknown."""
    if subject.objective.target_spec is not None:
        ids = label[0][label[0] != IGNORE]
        return F.one_hot(ids, subject.model.spec.vocab_size).double().mean(dim=0) if len(ids) else None
    if label.is_floating_point():
        return None if bool(label.isnan().any()) else rearrange(label, "... -> (...)")
    return None if int(label) == IGNORE else F.one_hot(label, _num_classes(subject))


def _highest_class(subject: Subject) -> int:
    return max(int(label.max()) for _, label in subject.batches if label is not None)


def _num_classes(subject: Subject) -> int:
    return len(getattr(subject.objective, "names", ())) or _highest_class(subject) + 1


def _by_token(subject: Subject, batch: LabeledBatch) -> Iterator[tuple[Tensor, Tensor]]:
    """(features, label) of the first and the last token of each example whose labels are known."""
    tokens, labels = batch
    assert labels is not None
    neighbours = _neighbours(tokens.adjacency, tokens.valid.numel())
    n, all_vectors = tokens.valid.shape[1], _vectors(tokens, subject.content_spec)
    for i, label in enumerate(labels):
        known = ~label.isnan().any(dim=-1) if label.is_floating_point() and label.ndim > 1 else label != IGNORE
        columns = (known & tokens.valid[i]).nonzero()[:, 0].tolist()
        vectors = all_vectors[i]
        for t in columns if len(labels) == 1 else sorted({columns[0], columns[-1]}) if columns else []:
            near = [j - i * n for j in neighbours.get(i * n + t, [])] or list(range(max(0, t - 2), min(n, t + 3)))
            whole = vectors[tokens.valid[i]].mean(dim=0)
            value = label[t] if label.is_floating_point() else F.one_hot(label[t], _num_classes(subject))
            yield (
                torch.cat([vectors[t], vectors[near].mean(dim=0), vectors[0], whole]),
                rearrange(value, "... -> (...)"),
            )


def _neighbours(adjacency: Adjacency | None, number: int) -> dict[int, list[int]]:
    """Sources of every token that has edges."""
    if adjacency is None:
        return {}
    found: dict[int, list[int]] = {}
    for source, target in adjacency.edge_index.T.tolist():
        assert target < number
        found.setdefault(target, []).append(source)
    return found


def _vectors(tokens: TokenBatch, spec: TokenSpec) -> Tensor:
    """Content as vectors [b n f]: ids one-hot, modulo MAX_IDS, then the numbers; of joined tokens, part by part."""
    if tokens.parts is not None:
        b, n = tokens.valid.shape
        columns: list[Tensor] = []
        for name, own in spec.parts:
            if name in tokens.parts:
                part = tokens.parts[name]
                vectors = _vectors(part.batch, own).masked_fill(~rearrange(part.batch.valid, "r m -> r m 1"), 0.0)
                placed = vectors.new_zeros(b * n, vectors.shape[-1])
                placed = placed.index_add(0, part.columns.reshape(-1), rearrange(vectors, "r m f -> (r m) f"))
            else:
                placed = torch.zeros(b * n, sum(min(x, MAX_IDS) for x in own.id_sizes) + own.num_features).double()
            columns.append(placed)
        return rearrange(torch.cat(columns, dim=-1), "(b n) f -> b n f", b=b)
    fields = zip(spec.ids_of(tokens).unbind(-1), spec.id_sizes, strict=True)
    tables = [F.one_hot(ids % MAX_IDS, min(size, MAX_IDS)).double() for ids, size in fields]
    return torch.cat([*tables, spec.numbers_of(tokens).double()], dim=-1)


def _summary(vectors: Tensor) -> Tensor:
    """One vector for a sequence [n f]: mean and deviation, means of its quarters, its length, products of features.

    A label that is a sum over marked tokens depends on the products; many features are mixed at random to a few first.
    """
    parts = vectors.tensor_split(min(NUM_PARTS, len(vectors)))
    parts = (*parts, *parts[-1:] * (NUM_PARTS - len(parts)))
    mixed = vectors
    if vectors.shape[1] > NUM_MIXED:
        generator = torch.Generator().manual_seed(0)
        mixed = vectors @ torch.randn(vectors.shape[1], NUM_MIXED, generator=generator, dtype=vectors.dtype)
    products = rearrange(mixed.T @ mixed / len(vectors), "i j -> (i j)")
    length = vectors.new_tensor([float(len(vectors))])
    means = [part.mean(dim=0) for part in parts]
    return torch.cat([vectors.mean(dim=0), vectors.std(dim=0, correction=0), *means, length, products])
