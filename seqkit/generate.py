"""Continue sequences token by token: one loop for every causal backbone, with a cache or without.

b batch · n tokens · v vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from einops import rearrange
from torch import Tensor

from seqkit.contract import TokenBatch
from seqkit.model import Model

if TYPE_CHECKING:
    from seqkit.run import Loaded


def generate(
    model: Model,
    prompts: Sequence[Tensor],
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    context: int | None = None,
    use_cache: bool = True,
) -> Iterator[Tensor]:
    """Yield [b] new ids at a time, `max_new_tokens` times.

    prompts: [n] int64 ids each, of any lengths >= 1. temperature: 0 is greedy. top_k: draw only among the k likeliest.
    context: how many tokens the model was trained to read; when they are full, it starts afresh from the last half of
    them, with a cache and without alike. None: no limit.
    Raises ValueError for an empty prompt, a model that is not causal, or impossible settings.
    """
    if not model.backbone.causal or not model.spec.ids:
        raise ValueError("generation needs a causal backbone over ids: train with the objective NextToken")
    if not prompts or any(prompt.ndim != 1 or len(prompt) == 0 for prompt in prompts):
        raise ValueError("a prompt has no tokens; give at least one to start from")
    if not 0 <= temperature < torch.inf or (top_k is not None and top_k < 1):
        raise ValueError(f"temperature={temperature}, top_k={top_k}: they should be >= 0 (and finite) and >= 1")
    if context is not None and context < 1:
        raise ValueError(f"context={context} counts tokens that the model reads; make it 1 or more")
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    texts = [prompt.to(device) for prompt in prompts]
    training = model.training
    model.eval()
    try:
        fresh, cache, read = True, None, 0
        new = torch.empty(0)
        for _ in range(max_new_tokens):
            longest = max(len(text) for text in texts)
            if fresh or (context is not None and read + 1 > context):
                keep = longest if context is None or (longest <= context and fresh) else max(1, context // 2)
                window, lengths = _columns([text[-keep:] for text in texts])
                cache = model.backbone.init_cache(context or longest + max_new_tokens) if use_cache else None
                read, fresh = window.content.shape[1], False
                start = [len(text) - len(text[-keep:]) for text in texts]
                scores = _last(model, window, lengths, cache)
            elif cache is not None:
                where = torch.tensor([[len(text) - 1 - s] for text, s in zip(texts, start)], device=device)
                step = TokenBatch(rearrange(new, "b -> b 1"), rearrange(where.float(), "b 1 -> b 1 1"), where >= 0)
                with torch.inference_mode():
                    scores = model(step, cache=cache)[:, -1]
                read += 1
            else:
                window, lengths = _columns([text[s:] for text, s in zip(texts, start)])
                scores = _last(model, window, lengths, None)
                read += 1
            new = _choose(scores, temperature, top_k, generator)
            texts = [torch.cat([text, token[None]]) for text, token in zip(texts, new)]
            yield new
    finally:
        model.train(training)


def _columns(texts: Sequence[Tensor]) -> tuple[TokenBatch, Tensor]:
    lengths = torch.tensor([len(text) for text in texts], device=texts[0].device)
    content = torch.nn.utils.rnn.pad_sequence(list(texts), batch_first=True)
    index = torch.arange(content.shape[1], device=content.device)
    positions = rearrange(index.float(), "n -> 1 n 1").expand(len(texts), -1, 1)
    return TokenBatch(content, positions, index < rearrange(lengths, "b -> b 1")), lengths


@torch.inference_mode()
def _last(model: Model, batch: TokenBatch, lengths: Tensor, cache: object) -> Tensor:
    """Scores [b v] after the last real token of each text."""
    scores = model(batch, cache=cache)  # type: ignore[arg-type]
    return scores[torch.arange(len(lengths), device=scores.device), lengths - 1]


def _choose(scores: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> Tensor:
    """One id [b] from scores [b v]."""
    if temperature == 0:
        return scores.argmax(dim=-1)
    scores = scores.float() / temperature
    if top_k is not None and top_k < scores.shape[-1]:
        least = scores.topk(top_k).values[:, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    return rearrange(torch.multinomial(scores.softmax(dim=-1), 1, generator=generator), "b 1 -> b")


def stream_text(
    loaded: Loaded,
    prompt: str,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
) -> Iterator[str]:
    """Yield a trained language model's continuation of `prompt`, piece by piece as it becomes readable.

    Raises DataError if the prompt cannot be encoded; ValueError if the run is no language model.
    """
    tokenizer = loaded.tokenizer
    if not hasattr(tokenizer, "decode") or not loaded.model.spec.ids:
        raise ValueError(
            f"{type(tokenizer).__name__} cannot turn ids back into text; generate from a text recipe's run"
        )
    context = loaded.config["data"].get("window")
    prompt_ids = tokenizer.encode(prompt).content
    ids, shown = prompt_ids.tolist(), len(tokenizer.decode(prompt_ids))
    steps = generate(
        loaded.model, [prompt_ids], max_new_tokens, temperature=temperature, top_k=top_k, seed=seed, context=context
    )
    for new in steps:
        ids.append(int(new))
        text = tokenizer.decode(torch.tensor(ids))
        ready = len(text) - 1 if text.endswith("\N{REPLACEMENT CHARACTER}") else len(text)  # half a character waits
        if ready > shown:
            yield text[shown:ready]
            shown = ready
