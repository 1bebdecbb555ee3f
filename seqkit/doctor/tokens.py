"""Checks of tokens and inputs: do tokens hold the samples, and is their content of a size that a model can use?

n tokens · f features
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from seqkit.doctor.findings import Result, faulty, not_applicable
from seqkit.doctor.subject import Subject
from seqkit.interfaces import Tokens, TokenSpec
from seqkit.interfaces.tokens import rounding
from seqkit.testing.changed_raws import share_read
from seqkit.testing.tokenizers import ALL_READ

NUM_SAMPLES = 100
"""Number of raw samples that are encoded and compared."""

PIECE = 200
"""Number of characters of a piece of a long text, which counts as a sample."""

NUM_CHANGED = 20
"""Number of samples in which single places are changed."""

SAME_ID = 0.95
"""Share of all ids that one id may have. The recipes have up to 0.78 (the blanks of selective-copy)."""

LARGEST, SMALLEST = 10.0, 1e-2
"""Root mean square of all content that a model can use. The recipes have 0.33 to 0.96."""

LARGEST_FEATURE = 30.0
"""Root mean square of a single feature that a model can use: a column of a table may have been forgotten. The recipes
have up to 1.7."""

CONSTANT = 1e-3
"""Standard deviation of the most variable feature, as a share of the content's root mean square, below which the
content is constant. The recipes have 0.6 to 1.6."""


def check_tokens(subject: Subject) -> Result:
    """Do samples differ as tokens, and does the tokenizer read all of a sample?"""
    tokenizer = subject.data.tokenizer
    raws = list(_raws(subject))
    encoded = [tokenizer.encode(raw) for raw in raws]
    name = type(tokenizer).__name__
    if rounded := next(filter(None, (rounding(tokens.positions) for tokens in encoded)), ""):
        problem, fix = rounded.split("; ")
        return faulty("tokens", problem, "positions count from far away, such as seconds since 1970", f"{name}: {fix}")
    ids = [run.content for tokens in encoded for _, run in tokens.parts or (("", tokens),) if run.content.ndim == 1]
    most = 0.0 if not ids else float(torch.cat(ids).bincount().max()) / max(1, sum(map(len, ids)))
    read = share_read(tokenizer, raws[:NUM_CHANGED])
    problem = ""
    if len(encoded) > 1 and all(_same(tokens, encoded[0]) for tokens in encoded):
        problem = f"{len(encoded)} samples are the same as tokens"
    elif read is not None and read < ALL_READ:
        problem = f"a change in {100 * (1 - read):.0f} % of the places of a sample changes no token"
    elif most > SAME_ID:
        problem = f"{100 * most:.1f} % of all ids are the same one"
    if problem:
        cause = f"{name} drops a part of its input, or its vocabulary does not fit this data"
        fix = f"--tokenizer (now {name}): one that reads all of this data; `seqkit inspect` draws its tokens"
        return faulty("tokens", problem, cause, fix)
    measured = "not known" if read is None else f"{100 * read:.0f} %"
    return Result("tokens", f"{len(encoded)} samples; places whose change changes a token: {measured}")


def _same(x: Tokens, y: Tokens) -> bool:
    ours, theirs = x.tensors(), y.tensors()
    return ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)


def _raws(subject: Subject) -> Iterator[Any]:
    """Raw training samples; long texts in pieces."""
    samples = subject.data.splits().train
    is_long = subject.data.window is not None

    def pieces() -> Iterator[Any]:
        for i in range(min(len(samples), NUM_SAMPLES)):
            raw = samples[i].raw
            if is_long and isinstance(raw, str):
                yield from (raw[at : at + PIECE] for at in range(0, len(raw), PIECE))
            else:
                yield raw

    return islice(pieces(), NUM_SAMPLES)


def check_inputs(subject: Subject) -> Result:
    """Is the content of a size that a model can use, and does it vary?"""
    embedder = subject.model.source_embedder or subject.model.embedder
    own: TokenSpec = embedder.spec
    parts = dict(own.parts or (("", own),))
    checked = [_check_numbers(subject, name, spec) for name, spec in parts.items() if spec.num_features]
    if not checked:
        return not_applicable("inputs", "the content is ids")
    found = next((result for result in checked if result.finding is not None), None)
    return found or Result("inputs", "; ".join(result.measured for result in checked))


def _check_numbers(subject: Subject, part: str, spec: TokenSpec) -> Result:
    """Check of the numbers of the tokens, or of those of a part."""
    batches = [batch for batch, *_ in subject.batches]
    if part:
        batches = [batch.parts[part].batch for batch in batches if batch.parts is not None and part in batch.parts]
    if not batches:
        return not_applicable("inputs", f"no example has the part {part}")
    content = torch.cat([spec.numbers_of(batch)[batch.valid] for batch in batches]).double()
    rms, features = float(content.square().mean().sqrt()), content.square().mean(dim=0).sqrt()
    spread, largest = float(content.std(dim=0, correction=0).max()), int(features.argmax())
    of = f" of {part}" if part else ""
    problem, cause = "", "inputs are not normalised: they saturate the layers, or positions drown them"
    if spread <= CONSTANT * max(rms, 1e-30):
        problem, cause = f"no feature{of} varies (standard deviation {spread:.2g})", "all inputs are the same"
    elif not SMALLEST <= rms <= LARGEST:  # NaN is neither
        problem = f"the content{of} has size {rms:.3g}, where about 1 is usual"
    elif float(features[largest]) > LARGEST_FEATURE:
        problem = f"feature {largest}{of} has size {float(features[largest]):.3g}, all have {rms:.2g}"
        cause = "one feature drowns the others: it is in another unit"
    if problem:
        name = type(subject.data.tokenizer).__name__
        fix = f"--tokenizer (now {name}): one that normalises, or --data.source: values of about 1"
        return faulty("inputs", problem, cause, fix)
    measured = f"content{of} of size {rms:.2g} (root mean square), most variable feature {spread:.2g}"
    return Result("inputs", measured)
