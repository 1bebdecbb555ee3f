"""Checks of tokens and inputs: do tokens hold the samples, and is their content of a size that a model can use?

b batch · n tokens · f features
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from seqkit.doctor.findings import Finding, Result, not_applicable
from seqkit.doctor.subject import Subject
from seqkit.interfaces import IGNORE, Tokens, TokenSpec
from seqkit.interfaces.tokens import rounding
from seqkit.raw import GraphData, Waveform
from seqkit.testing.changed_raws import share_read
from seqkit.testing.tokenizers import ALL_READ

NUM_SAMPLES = 100
"""Number of raw samples that are encoded and compared."""

PIECE = 200
"""Number of characters of a piece of a long text, which counts as a sample."""

LONG_PIECE = 10_000
"""Number of characters of a piece in which single places are changed: a tokenizer may drop all after the first 512."""

NUM_CHANGED = 20
"""Number of samples in which single places are changed."""

SAME_ID = 0.95
"""Share of all ids that one id may have. The recipes have up to 0.78 (the blanks of selective-copy)."""

DISTINCT = 0.5
"""Share of different samples that should become different tokens. The recipes have 1."""

LARGEST, SMALLEST = 10.0, 1e-2
"""Root mean square of all content that a model can use. The recipes have 0.33 to 0.96."""

LARGEST_FEATURE = 30.0
"""Root mean square of a single feature that a model can use: a column of a table may have been forgotten. The recipes
have up to 1.7."""

CONSTANT = 1e-3
"""Standard deviation of the most variable feature, as a share of the content's root mean square, below which the
content is constant. The recipes have 0.6 to 1.6."""

CLIPPED = 0.05
"""Share of a recording's samples at its largest amplitude, the mean over recordings, that clipping gives. FSDD and the
synthetic digits have 0.0002 to 0.0004; amplified threefold and clipped, 0.11 to 0.13."""


def check_tokens(subject: Subject) -> Result:
    """Do different samples have different tokens, and does the tokenizer read all of a sample?"""
    raws = list(_raws(subject))
    encoded = [subject.data.tokenizer.encode(raw) for raw in raws]
    num_raws, num_encoded = len({_key(raw) for raw in raws}), len({_key(tokens) for tokens in encoded})
    share = num_encoded / num_raws
    measured = f"{num_encoded:,} of {num_raws:,} different samples differ as tokens"
    if num_raws > 1 and share < DISTINCT:
        return _poor_tokens(subject, f"of {num_raws} different samples only {num_encoded} differ as tokens", measured)
    if rounded := next(filter(None, (rounding(tokens.positions) for tokens in encoded)), ""):
        problem, fix = rounded.split("; ")
        name = type(subject.data.tokenizer).__name__
        finding = Finding(problem, "positions count from far away, such as seconds since 1970", f"{name}: {fix}")
        return Result("tokens", measured, finding)
    read = share_read(subject.data.tokenizer, list(islice(_raws(subject, LONG_PIECE), NUM_CHANGED)))
    if read is not None and read < ALL_READ:
        return _poor_tokens(
            subject, f"a change in {100 * (1 - read):.0f} % of the places of a sample changes no token", measured
        )
    for what, ids in (("ids", _ids(encoded)), ("target ids", _target_ids(subject))):
        if len(ids):
            most = float(ids.bincount().max()) / len(ids)
            measured += f", the most frequent of the {what} has {100 * most:.0f} %"
            if most > SAME_ID:
                return _poor_tokens(subject, f"{100 * most:.1f} % of all {what} are the same one", measured)
    return Result("tokens", measured)


def _poor_tokens(subject: Subject, problem: str, measured: str) -> Result:
    name = type(subject.data.tokenizer).__name__
    cause = f"{name} drops a part of its input, or its vocabulary does not fit this data"
    fix = f"--tokenizer (now {name}): one that reads all of this data; `seqkit inspect` draws its tokens"
    return Result("tokens", measured, Finding(problem, cause, fix))


def _raws(subject: Subject, piece_length: int = PIECE) -> Iterator[Any]:
    """Raw training samples; long texts in pieces."""
    samples, number = subject.data.splits().train, 0
    for i in range(min(len(samples), NUM_SAMPLES)):
        raw = samples[i].raw
        is_long = subject.data.window is not None and isinstance(raw, str)
        pieces = [raw[at : at + piece_length] for at in range(0, len(raw), piece_length)] if is_long else [raw]
        for piece in pieces:
            if number == NUM_SAMPLES:
                return
            number += 1
            yield piece


def _key(value: Any) -> Any:
    """A value that two samples share only if they are equal."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.contiguous().numpy().tobytes()
    if isinstance(value, Tokens):
        return tuple((name, _key(tensor)) for name, tensor in value.tensors().items())
    if isinstance(value, Mapping | list | tuple) and not isinstance(value, Waveform):
        return tuple(map(_key, value.items() if isinstance(value, Mapping) else value))
    if isinstance(value, Waveform):
        return _key(value.samples)
    if isinstance(value, GraphData):
        return _key(value.nodes), _key(value.edges)
    return value if isinstance(value, str) else repr(value)


def _ids(encoded: list[Tokens]) -> Tensor:
    """All ids in one tensor, those of parts too; empty if the content is vectors, or several ids a token."""
    runs = [run for tokens in encoded for _, run in tokens.parts or (("", tokens),)]
    ids = [tokens.content for tokens in runs if tokens.content.ndim == 1]
    return torch.cat(ids or [torch.empty(0, dtype=torch.int64)])


def _target_ids(subject: Subject) -> Tensor:
    """Target ids of a decoder, without the one that ends a sequence; empty if there is no decoder."""
    if subject.objective.target_spec is None:
        return torch.empty(0, dtype=torch.int64)
    ids = torch.cat([label[:, 0].flatten() for _, label in subject.batches if label is not None])
    return ids[ids != IGNORE]


def check_inputs(subject: Subject) -> Result:
    """Is the content of a size that a model can use, and does it vary? Are recordings clipped?"""
    clipped = _clipped(subject)
    if clipped > CLIPPED:
        return _saturated(
            f"{100 * clipped:.1f} % of the samples of a recording are at its largest amplitude",
            "the recordings are clipped: they were amplified beyond the range of their format",
            "--data.source: recordings that are not overdriven, or --data.augment without amplification",
        )
    parts = dict(subject.content_spec.parts or (("", subject.content_spec),))
    checked = [_check_numbers(subject, name, spec) for name, spec in parts.items() if spec.num_features]
    faulty = [result for result in checked if result.finding is not None]
    if not checked:
        return not_applicable("inputs", "the content is ids")
    return faulty[0] if faulty else Result("inputs", "; ".join(result.measured for result in checked))


def _check_numbers(subject: Subject, part: str, spec: TokenSpec) -> Result:
    """Check of the numbers of the tokens, or of those of a part."""
    batches = [batch for batch, _ in subject.batches]
    if part:
        batches = [batch.parts[part].batch for batch in batches if batch.parts is not None and part in batch.parts]
    if not batches:
        return not_applicable("inputs", f"no example has the part {part}")
    content = torch.cat([spec.numbers_of(batch)[batch.valid] for batch in batches]).double()
    rms, features = float(content.square().mean().sqrt()), content.square().mean(dim=0).sqrt()
    spread, largest = float(content.std(dim=0, correction=0).max()), int(features.argmax())
    of = f" of {part}" if part else ""
    measured = f"content{of} of size {rms:.2g} (root mean square), most variable feature {spread:.2g}"
    tokenizer = type(subject.data.tokenizer).__name__
    fix = f"--tokenizer (now {tokenizer}): one that normalises, or --data.source: values of about 1"
    if spread <= CONSTANT * max(rms, 1e-30):
        return _saturated(f"no feature varies (standard deviation {spread:.2g})", "all inputs are the same", fix)
    if rms > LARGEST:
        cause = "inputs are not normalised: they saturate the layers, and drown the positions"
        return _saturated(f"the content has size {rms:.3g}, where about 1 is usual", cause, fix)
    if float(features[largest]) > LARGEST_FEATURE:
        cause = "one feature drowns the others: it is in another unit"
        return _saturated(f"feature {largest} has size {float(features[largest]):.3g}, all have {rms:.2g}", cause, fix)
    if rms < SMALLEST:
        cause = "inputs are not normalised: positions drown them"
        return _saturated(f"the content has size {rms:.2g}, where about 1 is usual", cause, fix)
    return Result("inputs", measured)


def _saturated(problem: str, cause: str, fix: str) -> Result:
    return Result("inputs", problem, Finding(problem, cause, fix))


def _clipped(subject: Subject) -> float:
    """Share of samples at the largest amplitude, the mean over recordings; 0 if the data is no sound."""
    samples = subject.data.splits().train
    raws = [samples[i].raw for i in range(min(len(samples), NUM_SAMPLES))]
    parts = [part for raw in raws for part in (raw.values() if isinstance(raw, Mapping) else [raw])]
    waves = [raw.samples.abs() for raw in parts if isinstance(raw, Waveform)]
    shares = [float((wave >= 0.999 * wave.max()).double().mean()) for wave in waves if float(wave.max()) > 0]
    return sum(shares) / len(shares) if shares else 0.0
