"""Parts of joined examples that are left out in training, drawn anew for each example in every epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from seqkit.data.batching import fold_seed
from seqkit.errors import suggest
from seqkit.interfaces import Tokens
from seqkit.tokenizers.join import Join


class DropParts:
    """Callable from joined tokens, an epoch and an example's index to the tokens without some parts, never without all.

    What is left has the positions that it would have if the others had not been given. Draws depend on seed, epoch and
    index alone, so workers, resuming and the rest of a batch change nothing.
    tokenizer: the `Join` whose tokens they are. rates: probability with which each part is left out, or one for all.
    kept: a part that is never left out, since it is what is predicted; None: there is none. seed: of the draws.
    Raises ValueError for tokens that are not joined, a part that is not there, and what is no probability.
    """

    def __init__(
        self,
        tokenizer: Any,
        rates: float | Mapping[str, float],
        *,
        kept: str | None = None,
        seed: int = 0,
    ):
        if not isinstance(tokenizer, Join):
            raise ValueError(
                f"drop_parts leaves out parts of joined tokens, and those of {type(tokenizer).__name__} have none; "
                "leave it out, or use the tokenizer Join"
            )
        if isinstance(rates, Mapping):
            given = rates
        else:
            given = {name: rates for name in tokenizer.parts if name != kept}
        for name, rate in given.items():
            if name not in tokenizer.parts:
                raise ValueError(
                    f"drop_parts names {name!r}, which is no part; {suggest(name, tokenizer.parts)}"
                )
            if name == kept:
                raise ValueError(
                    f"drop_parts names {name}, which the objective predicts; leave it out"
                )
            if not 0 <= rate <= 1:
                raise ValueError(
                    f"drop_parts is {rate} for {name}; give a probability, from 0 to 1"
                )
        self.tokenizer = tokenizer
        self.rates = dict(given)
        self.seed = seed

    def __call__(self, tokens: Tokens, epoch: int, index: int) -> Tokens:
        names = list(dict.fromkeys(name for name, _ in tokens.parts))
        generator = torch.Generator().manual_seed(fold_seed(self.seed, epoch, index, 4))
        draws = torch.rand(len(names), generator=generator).tolist()
        dropped = [name for name, draw in zip(names, draws) if draw < self.rates.get(name, 0.0)]
        if len(dropped) == len(names):
            del dropped[int(torch.randint(len(names), (), generator=generator))]
        if dropped:
            return self.tokenizer.without(tokens, dropped)
        return tokens
