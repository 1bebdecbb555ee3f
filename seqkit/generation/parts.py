"""Generation of a part of joined tokens after the parts before it: captions, and any text after an image or a sound.

b sequences · n columns · t new tokens · v vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from seqkit.generation.decode import evaluating
from seqkit.generation.sampling import PerSequenceRNG, Sampling
from seqkit.interfaces import IGNORE, Cache, TokenBatch, Tokens, TokenSpec
from seqkit.model import Model
from seqkit.nn.embedder import JoinEmbedder
from seqkit.nn.heads import END, PartHead


def before_last_run(tokens: Tokens, part: str) -> Tokens:
    """Joined tokens up to where the last run of a part begins; all of them where there is none.

    Raises ValueError where nothing stands before that run.
    """
    last = max((i for i, (name, _) in enumerate(tokens.parts) if name == part), default=len(tokens.parts))
    kept = sum(len(run) for _, run in tokens.parts[:last])
    if not kept:
        raise ValueError(f"nothing stands before the part {part}; give an example with another part")
    return tokens.at(slice(kept))


@torch.inference_mode()
def continue_with_part(
    model: Model,
    prefixes: Sequence[Tokens],
    part: str,
    max_new_tokens: int,
    *,
    sampling: Sampling | None = None,
    use_cache: bool | None = None,
) -> Tensor:
    """Ids [b t] of a new run of `part` behind each prefix, IGNORE from its end on, t <= max_new_tokens.

    Positions of the new run count from 0, or from behind the largest position where those of the prefix run on.
    sampling: None: the likeliest id (greedy). use_cache: None: where the backbone has a cache.
    Raises ValueError for a model that does not predict that part, or a number below 1.
    """
    head = model.head
    if not isinstance(head, PartHead) or head.part != part or not head.before:
        raise ValueError(f"the model does not generate the part {part}; train it with NextToken(part={part!r})")
    if max_new_tokens < 1 or not prefixes:
        raise ValueError(f"{len(prefixes)} prefixes and {max_new_tokens} new tokens; give 1 or more of each")
    sampling, device = Sampling(temperature=0) if sampling is None else sampling, next(model.parameters()).device
    rng, found = PerSequenceRNG(sampling.seed, len(prefixes)), torch.zeros(len(prefixes), 0, dtype=torch.int64)
    sequences, ended = list(prefixes), torch.zeros(len(prefixes), dtype=torch.bool)
    starts = [_first_position(x) for x in prefixes]
    with evaluating(model):
        cache = None if use_cache is False else _cache_of(model, part, max(map(len, prefixes)) + max_new_tokens)
        hidden = _hidden_of_all(model, sequences, part, cache)
        for step in range(max_new_tokens):
            chosen = sampling.choose(head.head(hidden, None), None, rng).cpu()
            found = torch.cat([found, (chosen - 1).masked_fill(ended | (chosen == END), IGNORE)[:, None]], dim=1)
            ended = ended | (chosen == END)
            if bool(ended.all()) or step + 1 == max_new_tokens:
                break
            new = [_run_of(int(x) - 1, start + step) for x, start in zip(chosen.clamp(min=1), starts)]
            if cache is None:
                sequences = [_longer(model.spec, x, part, run) for x, run in zip(sequences, new)]
                hidden = _hidden_of_all(model, sequences, part, None)
            else:
                hidden = _hidden_of_new(model, [model.spec.join([(part, run)]) for run in new], cache, device)
    return found[:, : int((found != IGNORE).sum(dim=1).max())] if len(found) else found


def _cache_of(model: Model, part: str, num_columns: int) -> Cache | None:
    if isinstance(model.embedder, JoinEmbedder) and part in model.embedder.encoders:
        return None  # it encodes the tokens of a run from the first on
    try:
        return model.backbone.init_cache(num_columns)
    except ValueError:
        return None


def _hidden_of_all(model: Model, sequences: Sequence[Tokens], part: str, cache: Cache | None) -> Tensor:
    """Hidden state [b d] of the last token of each sequence, from all of it."""
    batch = TokenBatch.collate(sequences).to(next(model.parameters()).device)
    assert batch.parts is not None
    hidden = model.backbone(model.embed(batch.replace(reach=batch.parts.prefix_reach(part, batch.valid))), cache)
    return hidden[torch.arange(len(batch), device=hidden.device), batch.valid.sum(dim=1) - 1]


def _hidden_of_new(model: Model, tokens: Sequence[Tokens], cache: Cache, device: torch.device) -> Tensor:
    """Hidden state [b d] of one more token of each sequence; the cache has the others.

    A token of a part without edges attends to all, and a bias that is the same for all keys changes nothing, so it
    needs no adjacency.
    """
    batch = TokenBatch.collate(tokens).to(device).replace(adjacency=None, graphs=None)
    return model.backbone(model.embed(batch), cache)[:, -1]


def _run_of(content: int, position: float) -> Tokens:
    return Tokens(torch.tensor([content]), torch.tensor([[position]]))


def _longer(spec: TokenSpec, tokens: Tokens, part: str, run: Tokens) -> Tokens:
    """The sequence with one more token of its last run, or with the first one of a new run."""
    *before, (name, last) = tokens.parts
    if len(tokens.parts) > 1 and name == part and float(last.positions[-1, 0]) == float(run.positions[0, 0]) - 1:
        return replace(spec.join([*before, (part, Tokens.join([last, run]))]), runs_on=tokens.runs_on)
    return replace(spec.join([*tokens.parts, (part, run)]), runs_on=tokens.runs_on)


def _first_position(prefix: Tokens) -> float:
    """Position of the first token of a new run: behind the largest one if positions run on, else 0."""
    return float(prefix.positions.max()) + 1 if prefix.runs_on else 0.0
