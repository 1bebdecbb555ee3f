"""What every backbone owes to any tokenizer's tokens, a law a function; each raises AssertionError with what was found.

All run in float64, so that what differs by more than `TOLERANCE` is a fault and not rounding.

b batch · n tokens · f features · p axes · d width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from seqkit.contract import Backbone, Cache, Embedded, Links, TokenBatch, Tokens, TokenSpec
from seqkit.embed import Embedder, default_position

TOLERANCE = 1e-7


class Reader(nn.Module):
    """Tokens to hidden vectors as a `Model` makes them: an Embedder of ours, then the backbone; in float64, evaluating.

    Raises ValueError if the backbone refuses such tokens.
    """

    def __init__(self, spec: TokenSpec, backbone: Backbone):
        super().__init__()
        backbone.check(spec)
        position = default_position(backbone, spec)
        self.embedder: nn.Module = Embedder(spec, backbone.dim, position=position, num_heads=backbone.num_heads)
        if isinstance(self.embedder.link_bias, nn.Parameter):
            nn.init.normal_(self.embedder.link_bias)  # it starts at zero, where forgetting it would not be seen
        self.spec, self.backbone = spec, backbone
        self.double().eval()

    def embed(self, batch: TokenBatch) -> Embedded:
        """The batch as the backbone reads it."""
        content = batch.content if self.spec.ids else batch.content.double()
        return self.embedder(replace(batch, content=content, positions=batch.positions.double()))

    def forward(self, batch: TokenBatch, cache: Cache | None = None) -> Tensor:
        """Hidden vectors [b n d]."""
        return self.backbone(self.embed(batch), cache)


def padding_changes_nothing(reader: Reader, examples: Sequence[Tokens]) -> None:
    """More columns of padding give the same vectors for real tokens, and zero for padding."""
    for x in examples:
        alone = reader(TokenBatch.collate([x]))
        longer = reader(pad(TokenBatch.collate([x]), 3))
        _same(longer[:, : len(x)], alone, "padding changes the vectors of real tokens")
        _same(longer[:, len(x) :], torch.zeros_like(longer[:, len(x) :]), "the vectors of padding are not zero")


def batch_mates_change_nothing(reader: Reader, examples: Sequence[Tokens]) -> None:
    """An example in a batch gives what it gives alone."""
    together = reader(TokenBatch.collate(examples))
    for i, x in enumerate(examples):
        _same(together[i, : len(x)], reader(TokenBatch.collate([x]))[0], f"batch mates change example {i}")


def padding_may_hold_anything(reader: Reader, examples: Sequence[Tokens]) -> None:
    """NaN (or any id) in padded content and positions changes neither vectors nor gradients."""
    clean = pad(TokenBatch.collate(examples), 2)
    content, positions = clean.content.clone(), clean.positions.clone()
    content[~clean.valid] = reader.spec.vocab_size - 1 if reader.spec.ids else torch.nan
    positions[~clean.valid] = torch.nan
    right, right_gradients = _gradients(reader, clean)
    got, gradients = _gradients(reader, replace(clean, content=content, positions=positions))
    _same(got, right, "what stands in padding changes vectors")
    for name, gradient in right_gradients.items():
        _same(gradients[name], gradient, f"what stands in padding changes the gradient of {name}")


def no_token_reads_the_future(reader: Reader, examples: Sequence[Tokens]) -> None:
    """Causal backbones: the vector of a token does not depend on later tokens, and does on earlier ones."""
    for x in examples:
        influence = _influence(reader, x)
        ahead = float(influence.triu(1).max())
        if ahead > TOLERANCE * float(influence.max()):
            raise AssertionError(f"a token reads the future: its gradient on a later token is {ahead:.2g}")
        if x.links is None and len(x) > 1 and bool((influence.tril(-1).amax(dim=1)[1:] == 0).any()):
            raise AssertionError("a token does not read the past: its gradient on all earlier tokens is zero")
        right = reader(TokenBatch.collate([x]))
        for t in range(len(x) - 1):
            content, positions = x.content.clone(), x.positions.clone()
            content[t + 1 :] = (
                (content[t + 1 :] + 1) % reader.spec.vocab_size if reader.spec.ids else -content[t + 1 :] - 1
            )
            positions[t + 1 :] += 1
            got = reader(TokenBatch.collate([replace(x, content=content, positions=positions)]))
            _same(
                got[:, : t + 1], right[:, : t + 1], f"tokens after {t} change the vectors up to it: it reads the future"
            )


def reads_both_ways(reader: Reader, examples: Sequence[Tokens]) -> None:
    """Backbones that are not causal: a token depends on tokens before and after it."""
    for x in examples:
        influence = _influence(reader, x)
        if bool((influence.tril(-1).amax(dim=1)[1:] == 0).any()) or bool(
            (influence.triu(1).amax(dim=1)[:-1] == 0).any()
        ):
            raise AssertionError("causal is False, but a token reads nothing before it or nothing after it")


def step_by_step_equals_at_once(reader: Reader, examples: Sequence[Tokens]) -> None:
    """With a cache, prompts of different lengths and then chunks of 1, 2 and 1 tokens give what one pass gives."""
    steps = min(4, min(map(len, examples)) - 1)
    ends = sorted({0, 1, min(3, steps), steps})
    with torch.no_grad():
        cache = reader.backbone.init_cache(max(map(len, examples)))
        pieces: list[list[Tensor]] = [[] for _ in examples]
        read = 0
        for start, end in zip([None, *ends[:-1]], ends):
            cuts = [_cut(x, 0 if start is None else len(x) - steps + start, len(x) - steps + end) for x in examples]
            batch = TokenBatch.collate(cuts)
            hidden = reader(batch, cache)
            read += batch.valid.shape[1]
            if cache.num_tokens != read:
                raise AssertionError(f"the cache counts {cache.num_tokens} columns, but was given {read}")
            for i, cut in enumerate(cuts):
                pieces[i].append(hidden[i, : len(cut)])
        for i, x in enumerate(examples):
            _same(
                torch.cat(pieces[i]),
                reader(TokenBatch.collate([x]))[0],
                f"step by step differs from at once in example {i}",
            )


def order_is_told_by_positions(reader: Reader, examples: Sequence[Tokens]) -> None:
    """Backbones that read links, not causal: tokens (nodes) in another order, positions and links with them, give the
    same vectors in that order."""
    for x in examples:
        order = torch.randperm(len(x), generator=fixed_generator())
        if len(x) > 1 and bool((order == torch.arange(len(x))).all()):
            order = order.flip(0)
        links = None if x.links is None else Links(order.argsort()[x.links.edges], x.links.kinds)
        moved = reader(TokenBatch.collate([Tokens(x.content[order], x.positions[order], links)]))
        right = reader(TokenBatch.collate([x]))[:, order]
        _same(moved, right, "tokens in another order, with their positions and links, give other vectors")


def nothing_crosses_components(reader: Reader, examples: Sequence[Tokens]) -> None:
    """Two graphs as one graph of two components give what each gives alone."""
    for x, y in zip(examples, [*examples[1:], examples[0]]):
        assert x.links is not None
        assert y.links is not None
        edges = torch.cat([x.links.edges, y.links.edges + len(x)], dim=1)
        both = Tokens(
            torch.cat([x.content, y.content]),
            torch.cat([x.positions, y.positions]),
            Links(edges, torch.cat([x.links.kinds, y.links.kinds])),
        )
        right = torch.cat([reader(TokenBatch.collate([one])) for one in (x, y)], dim=1)
        _same(
            reader(TokenBatch.collate([both])), right, "a component of a graph changes the vectors of another component"
        )


def reads_along_links(reader: Reader, examples: Sequence[Tokens]) -> None:
    """Gradients go from reader to read along links (as many hops as layers), and nowhere else."""
    for x in examples:
        assert x.links is not None
        n, (who, whom) = len(x), x.links.edges
        linked = torch.zeros(n, n, dtype=torch.bool)
        linked[who, whom] = True
        if reader.backbone.causal:
            linked = linked.tril()
        linked |= torch.eye(n, dtype=torch.bool)
        reachable = linked
        for _ in range(n.bit_length()):  # each round doubles the hops
            reachable = reachable.double() @ reachable.double() > 0
        influence = _influence(reader, x)
        if bool((influence[linked] == 0).any()):
            raise AssertionError("a token does not read one that it is linked to: the gradient is zero")
        astray = influence.masked_fill(reachable, 0.0).max()
        if float(astray) > TOLERANCE * float(influence.max()):
            raise AssertionError(
                f"a token reads one that no chain of links leads to: the gradient is {float(astray):.2g}"
            )


def packed_equals_separate(reader: Reader, examples: Sequence[Tokens]) -> None:
    """Backbones that read segments: examples packed into one row, a segment each, give what each gives alone."""
    plain = [replace(x, links=None) for x in examples]
    packed = TokenBatch.collate(
        [Tokens(torch.cat([x.content for x in plain]), torch.cat([x.positions for x in plain]))]
    )
    segments = rearrange(torch.cat([torch.full((len(x),), i) for i, x in enumerate(plain)]), "n -> 1 n")
    right = torch.cat([reader(TokenBatch.collate([x])) for x in plain], dim=1)
    _same(reader(replace(packed, segments=segments)), right, "a packed sequence changes another one in its row")


def gradients_reach_every_parameter(reader: Reader, examples: Sequence[Tokens]) -> None:
    """No weight is unused or cut off."""
    _, gradients = _gradients(reader, TokenBatch.collate(examples))
    for name, gradient in gradients.items():
        if not bool(torch.isfinite(gradient).all()) or not bool((gradient != 0).any()):
            raise AssertionError(f"no finite gradient other than zero reaches {name}")


def refuses_what_it_cannot_honour(reader: Reader, examples: Sequence[Tokens]) -> None:
    """Links, segments and caches that a backbone does not declare raise ValueError; nothing is dropped in silence."""
    backbone = reader.backbone
    embedded = reader.embed(TokenBatch.collate([replace(x, links=None) for x in examples]))
    if not backbone.reads_links:
        links = Links(torch.zeros(2, 1, dtype=torch.int64), torch.ones(1, dtype=torch.int64))
        _refuses("links", lambda: backbone(replace(embedded, links=links)))
    if not backbone.reads_segments:
        _refuses(
            "segments",
            lambda: backbone(replace(embedded, segments=torch.zeros_like(embedded.valid, dtype=torch.int64))),
        )
    if not backbone.causal:
        _refuses("a cache, although it is not causal,", lambda: backbone.init_cache(8))


def pad(batch: TokenBatch, columns: int) -> TokenBatch:
    """`columns` more of padding on the right."""
    n = batch.valid.shape[1]
    links = batch.links
    if links is not None:
        links = Links(links.edges // n * (n + columns) + links.edges % n, links.kinds)
    content, positions = (F.pad(x, [0, 0] * (x.ndim - 2) + [0, columns]) for x in (batch.content, batch.positions))
    return TokenBatch(content, positions, F.pad(batch.valid, [0, columns]), links)


def _cut(x: Tokens, start: int, end: int) -> Tokens:
    return Tokens(x.content[start:end], x.positions[start:end])


def _influence(reader: Reader, x: Tokens) -> Tensor:
    """How much the vector of a reader depends on what each token holds, [n n]: largest gradient of a random direction.

    Random, because a sum is constant after LayerNorm and its gradient zero even where a token leaks.
    """
    embedded = reader.embed(TokenBatch.collate([x]))
    leaf = embedded.hidden.detach().requires_grad_()
    hidden = reader.backbone(replace(embedded, hidden=leaf))[0]
    direction = torch.randn(hidden.shape[-1], generator=fixed_generator(), dtype=hidden.dtype)
    rows = [torch.autograd.grad(hidden[t] @ direction, leaf, retain_graph=True)[0][0] for t in range(len(x))]
    return torch.stack(rows).abs().amax(dim=-1)


def _gradients(reader: Reader, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Vectors, and gradients of a random mixture of them by weight."""
    weights = {name: p for name, p in reader.named_parameters() if p.requires_grad}
    hidden = reader(batch)
    mixture = (hidden * torch.randn(hidden.shape, generator=fixed_generator(), dtype=hidden.dtype)).sum()
    found = torch.autograd.grad(mixture, list(weights.values()), allow_unused=True)
    return hidden.detach(), {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(weights.items(), found)}


def fixed_generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _same(got: Tensor, right: Tensor, fault: str) -> None:
    if not torch.allclose(got, right, rtol=TOLERANCE, atol=TOLERANCE):
        raise AssertionError(f"{fault} (by {float((got - right).detach().abs().max()):.2g})")


def _refuses(what: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except ValueError:
        return
    raise AssertionError(f"the backbone takes {what} without a word; raise ValueError, or declare and honour it")
