"""Checks of tokens and inputs: do tokens hold the samples, and is their content of a size that a model can use?

n tokens · f features
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from seqkit.doctor.findings import Result, faulty, not_applicable
from seqkit.doctor.subject import Subject
from seqkit.interfaces import TokenSpec
from seqkit.testing.changed_raws import share_read
from seqkit.testing.input_sizes import input_sizes, wrong_size
from seqkit.testing.tokenizers import ALL_READ

NUM_SAMPLES = 20
PIECE = 200
"""Number of raw samples in which single places are changed; characters of a piece of a long text, which is a sample."""

LARGEST = 10.0
SMALLEST = 1e-2
"""Root mean square of all content that a model can use. The recipes have 0.33 to 0.96."""

LARGEST_FEATURE = 30.0
"""Root mean square of a single feature that a model can use: a column of a table may have been forgotten. The recipes
have up to 1.7."""

CONSTANT = 1e-3
"""Standard deviation of the most variable feature, as a share of the content's root mean square, below which the
content is constant. The recipes have 0.6 to 1.6."""


def check_tokens(subject: Subject) -> Result:
    """Does a change of a sample change its tokens, wherever it is?"""
    tokenizer = subject.data.tokenizer
    name = type(tokenizer).__name__
    read = share_read(tokenizer, list(_raws(subject)))
    if read is None:
        return not_applicable("the samples have nothing that could be changed")
    measured = f"a change in {100 * read:.0f} % of the places of a sample changes its tokens"
    if read >= ALL_READ:
        return Result(measured)
    cause = f"{name} drops a part of its input, or its vocabulary does not fit this data"
    fix = f"--tokenizer (now {name}): one that reads all of this data; `seqkit inspect` draws its tokens"
    return faulty(measured, cause, fix)


def _raws(subject: Subject) -> Iterator[Any]:
    """Raw training samples; long texts in pieces."""
    samples = subject.data.splits().train
    for i in range(min(len(samples), NUM_SAMPLES)):
        raw = samples[i].raw
        if subject.data.window is None or not isinstance(raw, str):
            yield raw
            continue
        for at in range(0, min(len(raw), NUM_SAMPLES * PIECE), PIECE):
            yield raw[at : at + PIECE]


def check_inputs(subject: Subject) -> Result:
    """Is the content of a size that a model can use, and does it vary?"""
    embedder = subject.model.source_embedder or subject.model.embedder
    own: TokenSpec = embedder.spec
    parts = dict(own.parts or (("", own),))
    checked = [
        _check_numbers(subject, name, spec) for name, spec in parts.items() if spec.num_features
    ]
    if not checked:
        return not_applicable("the content is ids")
    found = next((result for result in checked if result.finding is not None), None)
    return found or Result("; ".join(result.measured for result in checked))


def check_embeddings(subject: Subject) -> Result:
    """Do the embeddings have the size that the backbone needs?"""
    model = subject.fresh().eval()
    batch, masked = subject.objective.first_call(model, subject.handful)
    with torch.no_grad():
        embedded = model.embed(batch, masked)
    sizes = dict(input_sizes(model.backbone, embedded))
    if not sizes:
        return not_applicable("the backbone normalises its inputs, whatever their size")
    measured = ", ".join(
        f"{size:.2g} ({name})" if name else f"{size:.2g}" for name, size in sizes.items()
    )
    problem = wrong_size(model.backbone, embedded)
    if problem is None:
        return Result(f"inputs of the backbone of size {measured} (root mean square)")
    cause = f"{type(model.backbone).__name__} does not normalise its inputs: it begins saturated, or hardly sees them"
    name = type(subject.data.tokenizer).__name__
    return faulty(problem, cause, f"--tokenizer (now {name}): one that gives numbers of about 1")


def _check_numbers(subject: Subject, part: str, spec: TokenSpec) -> Result:
    """Check of the numbers of the tokens, or of those of a part."""
    batches = [batch for batch, *_ in subject.batches]
    if part:
        with_part = [batch for batch in batches if batch.parts is not None and part in batch.parts]
        batches = [batch.parts[part].batch for batch in with_part if batch.parts]
    if not batches:
        return not_applicable(f"no example has the part {part}")
    content = torch.cat([spec.numbers_of(batch)[batch.valid] for batch in batches]).double()
    rms = float(content.square().mean().sqrt())
    features = content.square().mean(dim=0).sqrt()
    spread = float(content.std(dim=0, correction=0).max())
    largest = int(features.argmax())
    of = f" of {part}" if part else ""
    problem = ""
    cause = "inputs are not normalised: they saturate the layers, or positions drown them"
    if spread <= CONSTANT * max(rms, 1e-30):
        problem = f"no feature{of} varies (standard deviation {spread:.2g})"
        cause = "all inputs are the same"
    elif not SMALLEST <= rms <= LARGEST:  # NaN is neither
        problem = f"the content{of} has size {rms:.3g}, where about 1 is usual"
    elif float(features[largest]) > LARGEST_FEATURE:
        problem = (
            f"feature {largest}{of} has size {float(features[largest]):.3g}, all have {rms:.2g}"
        )
        cause = "one feature drowns the others: it is in another unit"
    if problem:
        name = type(subject.data.tokenizer).__name__
        fix = f"--tokenizer (now {name}): one that normalises, or --data.source: values of about 1"
        return faulty(problem, cause, fix)
    measured = (
        f"content{of} of size {rms:.2g} (root mean square), most variable feature {spread:.2g}"
    )
    return Result(measured)
