"""Inputs that are noise in every split: the control that tells what a part, or a task, adds by what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from seqkit.data.batching import Batch, Key, fold_seed
from seqkit.errors import suggest
from seqkit.interfaces import TokenBatch, Tokenizer, TokenSpec
from seqkit.interfaces.parts import Parts
from seqkit.tokenizers.join import Join


class NoiseInputs:
    """Callable from a batch and its key to the batch with noise in the place of what its tokens say.

    Ids become draws that are uniform over the vocabulary, vectors and numbers draws of a standard normal distribution,
    new in every epoch. Labels, lengths, positions and edges stay as they are. Draws depend on seed, epoch and indices.
    tokenizer: whose tokens they are. parts: names of the parts that become noise, or True for all tokens. kept: a part
    that is predicted, None: there is none. seed: of the draws.
    Raises ValueError for a part that is not there or is predicted, and for names where tokens have no parts.
    """

    def __init__(self, tokenizer: Tokenizer, parts: bool | Sequence[str], *, kept: str | None = None, seed: int = 0):
        known = list(tokenizer.parts) if isinstance(tokenizer, Join) else []
        if parts is not True and not (isinstance(parts, Sequence) and not isinstance(parts, str) and parts):
            raise ValueError(f"noise is {parts!r}; give true, names of parts such as [image], or null")
        if parts is not True and not known:
            raise ValueError("noise names parts, and these tokens have none; give true")
        for name in () if parts is True else parts:
            if name not in known:
                raise ValueError(f"noise names {name!r}, which is no part; {suggest(name, known)}")
            if name == kept:
                raise ValueError(f"noise names {name}, which the objective predicts; leave it out")
        self.names = [name for name in known if name != kept] if parts is True else list(parts)
        self.tokenizer, self.seed = tokenizer, seed

    def __call__(self, batch: Batch, key: Key) -> Batch:
        epoch, indices = key
        tokens, targets = batch
        generator = torch.Generator().manual_seed(fold_seed(self.seed, epoch, *indices, 7))
        spec = self.tokenizer.spec
        if tokens.parts is None:
            return _noise(tokens, spec, generator), targets
        specs, parts = dict(spec.parts), Parts(tokens.parts)
        for name in self.names:
            if name in parts:
                parts[name] = replace(parts[name], batch=_noise(parts[name].batch, specs[name], generator))
        return replace(tokens, parts=parts), targets


def _noise(tokens: TokenBatch, spec: TokenSpec, generator: torch.Generator) -> TokenBatch:
    """These tokens with other content; padding stays zero."""

    def masked(drawn: Tensor) -> Tensor:
        return drawn * tokens.valid[..., None] if drawn.ndim == 3 else drawn * tokens.valid

    content, features = tokens.content, tokens.features
    if spec.vocab_size:
        drawn = torch.randint(spec.vocab_size, content.shape, generator=generator)
    elif spec.vocab_sizes:
        sizes = [torch.randint(size, content.shape[:2], generator=generator) for size in spec.vocab_sizes]
        drawn = torch.stack(sizes, dim=-1)
    else:
        drawn = torch.randn(content.shape, generator=generator)
    if features is not None:
        features = masked(torch.randn(features.shape, generator=generator))
    return replace(tokens, content=masked(drawn.to(content.dtype)), features=features)
