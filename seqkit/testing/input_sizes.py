"""The size of what a backbone gets, as a law of the kit and as a check of the doctor.

b batch · n tokens · d width
"""

from __future__ import annotations

from collections.abc import Iterator

from einops import rearrange
from torch import Tensor

from seqkit.interfaces import Backbone, Embedded, TokenBatch
from seqkit.testing.embedded_backbone import EmbeddedBackbone, Examples

SMALLEST = 0.3
LARGEST = 3.0
"""Root mean square of inputs that a backbone without a norm before its first layer can use. An LSTM behind a lookup
table of standard deviation 0.02 does not learn to copy (accuracy 12 %, chance 12.5); behind one of 1 it does (63 %)."""


def input_sizes(backbone: Backbone, embedded: Embedded) -> Iterator[tuple[str, float]]:
    """Name and root mean square of the inputs of each part that needs unit inputs; of unjoined tokens the name is "".

    The inputs of an encoder are named "source".
    """
    if embedded.source is not None and (encoder := backbone.get_encoder()) is not None:
        yield from (("source", size) for _, size in input_sizes(encoder, embedded.source))
    if embedded.parts is None:
        if backbone.needs_unit_inputs:
            yield "", _size(embedded.hidden[embedded.valid])
        return
    hidden = rearrange(embedded.hidden, "b n d -> (b n) d")
    for name, part in embedded.parts.items():
        own = backbone.part(name)
        if own.needs_unit_inputs:
            yield name, _size(hidden[part.columns[part.batch.valid], : own.dim])


def _size(vectors: Tensor) -> float:
    return float(vectors.detach().square().mean().sqrt())


def wrong_size(backbone: Backbone, embedded: Embedded) -> str | None:
    """The first inputs that are too small or too large, in words; None: there are none."""
    for name, size in input_sizes(backbone, embedded):
        if not SMALLEST <= size <= LARGEST:  # NaN is neither
            of = f" of {name}" if name else ""
            needed = f"the backbone needs {SMALLEST:g} to {LARGEST:g}"
            return f"inputs{of} have a root mean square of {size:.2g}, and {needed}"
    return None


def inputs_have_unit_size(model: EmbeddedBackbone, examples: Examples) -> None:
    """A backbone that does not normalise its inputs (`needs_unit_inputs`) gets them with about unit variance."""
    problem = wrong_size(model.backbone, model.embed(TokenBatch.collate(examples)))
    if problem is not None:
        raise AssertionError(
            f"{problem}, as it does not normalise them; scale what the tokenizer gives, start the tokenizer's own "
            "embedder larger or smaller, or declare needs_unit_inputs=False where a norm stands before the first layer"
        )
