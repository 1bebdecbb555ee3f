"""Laws of every backbone over any tokenizer's tokens; a function checks each, and raises AssertionError with the fault.

All run in float64, so that a difference above `TOLERANCE` is a fault and not rounding. A backbone may ask for float32
inside, as a softmax often does: a law that fails is checked again with `InFloat64`.

b batch · n tokens · f features · p axes · d width
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from einops import rearrange, repeat
from torch import Tensor

from seqkit.interfaces import Adjacency, TokenBatch, Tokens
from seqkit.testing.changed_tokens import other_content, with_dirty_padding
from seqkit.testing.embedded_backbone import EmbeddedBackbone, Examples, has_cache
from seqkit.testing.process import fixed_generator
from seqkit.testing.tolerance import TOLERANCE, assert_same, is_same

NUM_CONTENTS = 60
"""Number of contents, at most, of which one must let a token influence another."""

Law = Callable[[EmbeddedBackbone, Examples], None]


def padding_changes_nothing(model: EmbeddedBackbone, examples: Examples) -> None:
    """More columns of padding give the same hidden states of real tokens, and zero for padding."""
    for x in examples:
        assert_as_alone(model, [x], where="it reads padding: ", padding=3)


def batch_mates_change_nothing(model: EmbeddedBackbone, examples: Examples) -> None:
    """An example gives the same hidden states in a batch as alone, with padding and without."""
    assert_as_alone(model, examples)
    x = examples[0]
    other = other_content(x, torch.ones(len(x), dtype=torch.bool), model.spec)
    assert_as_alone(model, [other, x], where="in a batch without padding, ", padding=0)


def assert_as_alone(
    model: EmbeddedBackbone,
    examples: Examples,
    alone: Sequence[Tensor] | None = None,
    *,
    where: str = "",
    padding: int = 1,
) -> None:
    """Raises AssertionError if a batch with so much padding gives other hidden states than each example alone, or other
    than zero in padding. alone: None: they are computed. where: what stands before the fault."""
    alone = [model.alone(x) for x in examples] if alone is None else alone
    together = model(TokenBatch.collate(examples).pad(padding))
    for row, (x, right) in enumerate(zip(examples, alone, strict=True)):
        real, rest = together[row].tensor_split([len(x)])
        assert_same(real, right, f"{where}padding or the other examples change example {row}")
        fault = f"{where}the hidden states of padding are not zero"
        assert_same(rest, torch.zeros_like(rest), fault)


def padding_may_hold_anything(model: EmbeddedBackbone, examples: Examples) -> None:
    """NaN (or any id) in padded content and positions changes neither hidden states nor gradients."""
    clean = TokenBatch.collate(examples).pad(2)
    dirty = with_dirty_padding(clean, model.spec)
    expected, expected_gradients = _gradients(model, clean)
    got, gradients = _gradients(model, dirty)
    assert_same(got, expected, "it reads padding: the content of padding changes hidden states")
    for name, gradient in expected_gradients.items():
        fault = f"it reads padding: its content changes the gradient of {name}"
        assert_same(gradients[name], gradient, fault)


def no_token_attends_to_the_future(model: EmbeddedBackbone, examples: Examples) -> None:
    """Causal backbones: a token's hidden state depends on earlier tokens and on no later one."""
    for x in examples:
        has_past = x.adjacency is None and len(x) > 1
        if has_past and _stays_zero(model, x, _before, _influence(model, x)):
            raise AssertionError(
                "a token does not attend to the past: its gradient on all earlier tokens is zero"
            )
        assert_no_future(model, x, range(len(x) - 1), moves=True)


def assert_no_future(
    model: EmbeddedBackbone, x: Tokens, columns: Sequence[int], *, moves: bool = False
) -> None:
    """Raises AssertionError if other content after one of the columns changes the hidden states up to it.

    moves: whether the later tokens get other positions, too.
    """
    expected = model.alone(x)
    n = len(x)
    changed = []
    for t in columns:
        other = with_another_future(model, x, t)
        if moves:
            after = torch.arange(n) > t
            other = replace(other, positions=x.positions + after[:, None])
        changed.append(other)
    together = model(TokenBatch.collate(changed)) if changed else ()
    for t, other, got in zip(columns, changed, together, strict=True):
        if not is_same(got[: t + 1], expected[: t + 1]):  # alone, as batch mates may be the reason
            got = model.alone(other)
        assert_same(got[: t + 1], expected[: t + 1], future_fault(t, n))


def with_another_future(model: EmbeddedBackbone, x: Tokens, t: int) -> Tokens:
    """The example with other content after column t."""
    return other_content(x, torch.arange(len(x)) > t, model.spec)


def future_fault(t: int, n: int) -> str:
    """The fault of a causal model whose hidden states up to column t of n depend on later ones."""
    return (
        f"a token attends to the future: tokens after {t} of {n} change the hidden states up to it"
    )


def attends_both_ways(model: EmbeddedBackbone, examples: Examples) -> None:
    """Bidirectional backbones: a token's hidden state depends on tokens before and after it."""
    for i, x in enumerate(examples):
        influence = _influence(model, x)
        if _stays_zero(model, x, _before, influence) or _stays_zero(model, x, _after, influence):
            raise AssertionError(
                f"causal is False, but a token of example {i} attends to nothing before it or to nothing after it"
            )


def step_by_step_equals_at_once(model: EmbeddedBackbone, examples: Examples) -> None:
    """With a cache, prompts of different lengths and then chunks of 1, 2 and 1 tokens give what one pass gives."""
    assert_steps(model, examples, (1, 2, 1))


def assert_steps(
    model: EmbeddedBackbone,
    examples: Examples,
    sizes: Sequence[int],
    *,
    in_parts: bool = False,
) -> None:
    """Raises AssertionError if prompts and then chunks of those sizes, with a cache, differ from one pass.

    Chunks that would leave no prompt of the shortest example are left out.
    in_parts: whether a prompt comes in two parts, the first with half of each example's, so that both are padded.
    """
    sizes = [size for size, end in zip(sizes, accumulate(sizes)) if end < min(map(len, examples))]
    ends = [[*accumulate([len(x) - sum(sizes), *sizes])] for x in examples]
    if in_parts:
        ends = [[(own[0] + 1) // 2, *own] for own in ends]
    num_columns = 0
    chunks: list[list[Tensor]] = [[] for _ in examples]
    with torch.no_grad():
        cache = model.backbone.init_cache(max(map(len, examples)))
        for borders in zip(*([pairwise([0, *own]) for own in ends]), strict=True):
            parts = [x.at(slice(*border)) for x, border in zip(examples, borders, strict=True)]
            batch = TokenBatch.collate(parts)
            hidden = model(batch, cache)
            num_columns += batch.valid.shape[1]
            if cache.num_tokens != num_columns:
                raise AssertionError(
                    f"the cache counts {cache.num_tokens} columns, but was given {num_columns}"
                )
            for own, got, part in zip(chunks, hidden, parts, strict=True):
                own.append(got[: len(part)])
        for i, (x, own) in enumerate(zip(examples, chunks, strict=True)):
            both = zip(torch.cat(own), model.alone(x), strict=True)
            for column, (got, right) in enumerate(both):
                where = f"in column {column} of {len(x)} of example {i}"
                fault = f"step by step differs from at once {where}"
                assert_same(
                    got,
                    right,
                    f"{fault}; a step should go on from the state of the last real token, to what one pass gives",
                )


def keeps_its_reach(model: EmbeddedBackbone, examples: Examples) -> None:
    """Backbones whose causality comes with the batch: a token depends on every column that it reaches, and no other.

    A reach of the own column is causal, one of the last column bidirectional.
    """
    for i, x in enumerate(examples):
        n = len(x)
        batch = TokenBatch.collate([x])
        # columns where a reach ends
        for ends in (range(n), [1, n // 2, n - 1], [n - 2, n - 1], [n - 1]):
            stops = torch.tensor(sorted(set(ends)))
            reach = stops[torch.searchsorted(stops, torch.arange(n))]
            influence = _influence(model, x, reach)
            reached = torch.arange(n) <= reach[:, None]
            where = f"with reach {reach.tolist()}, a token of example {i} attends"
            _assert_no_more(influence, reached, f"{where} beyond")
            part = partial(torch.masked_select, mask=reached)
            if x.adjacency is None and _stays_zero(model, x, part, influence, reach):
                raise AssertionError(f"{where} to less")
        for causal, reach in ((True, torch.arange(n)), (False, torch.full((n,), n - 1))):
            twin = copy.copy(model)
            twin.causal = causal
            got = model(batch.replace(reach=rearrange(reach, "n -> 1 n")))
            fault = f"a reach of {reach.tolist()} is not the same as causal={causal}"
            assert_same(got, twin(batch), fault)


def is_permutation_equivariant(model: EmbeddedBackbone, examples: Examples) -> None:
    """Bidirectional backbones that support adjacency: permuted tokens (nodes), with their positions and edges, give the
    hidden states permuted alike."""
    for i, x in enumerate(examples):
        order = other_order(len(x))
        fault = f"permuted tokens of example {i}, with their positions and edges, give other hidden states"
        assert_same(model.alone(x.at(order)), model.alone(x)[order], fault)


def other_order(n: int) -> Tensor:
    """A permutation of n indices, the same every time, that is not the identity."""
    order = torch.randperm(n, generator=fixed_generator())
    if bool((order == torch.arange(n)).all()):
        return order.flip(0)
    return order


def nothing_crosses_components(model: EmbeddedBackbone, examples: Examples) -> None:
    """Two graphs as one graph of two connected components give what each gives alone."""
    fault = "a component of a graph changes the hidden states of another component"
    for x, y in zip(examples, [*examples[1:], examples[0]]):
        expected = torch.cat([model.alone(x), model.alone(y)])
        assert_same(model.alone(Tokens.join([x, y])), expected, fault)


def attends_along_edges(model: EmbeddedBackbone, examples: Examples) -> None:
    """A target's hidden state depends on its sources (over as many hops as layers), and on no other token.

    Of joined tokens, a token of a graph attends along edges to tokens of that graph, and to all others.
    """
    for i, x in enumerate(examples):
        assert x.adjacency is not None
        source, target = x.adjacency.edge_index
        may_attend = torch.eye(len(x), dtype=torch.bool)
        if x.parts:
            lengths = torch.tensor([len(run) for _, run in x.parts])
            own = torch.arange(len(lengths)).repeat_interleave(lengths)
            is_graph = torch.tensor([run.adjacency is not None for _, run in x.parts])[own]
            may_attend |= (own[:, None] != own) | ~is_graph[:, None]
        may_attend[target, source] = True
        if model.causal:
            may_attend = may_attend.tril()
        influence = _influence(model, x)
        if _stays_zero(model, x, partial(torch.masked_select, mask=may_attend), influence):
            raise AssertionError(
                f"a target of example {i} does not attend to the source of its edge: no gradient"
            )
        reachable = may_attend.double()
        for _ in range(len(x).bit_length()):  # each round doubles the hops
            reachable = (reachable @ reachable > 0).double()
        _assert_no_more(
            influence, reachable > 0, f"a token of example {i} attends to one that no path leads to"
        )


def packed_equals_separate(model: EmbeddedBackbone, examples: Examples) -> None:
    """Backbones that support segments: sequences packed into rows, a segment each, give what each gives alone: hidden
    states, and gradients of its own embeddings and of all parameters."""
    plain = [replace(x, adjacency=None) for x in examples]
    plain.append(plain[0].at(slice(1)))
    every = range(len(plain))
    # some rows have padding, and one has one segment
    rows = [every, every[::-1], every[:1]]
    packed, gradients = _of_packed(model, plain, rows)
    alone = [_of_packed(model, plain, [[i]], is_packed=False) for i in every]
    order = [i for row in rows for i in row]
    for i, (hidden, _) in zip(order, packed, strict=True):
        expected = alone[i][0][0][0]
        assert_same(hidden, expected, "a packed sequence changes another one in its row")
    for i, (_, gradient) in zip(order, packed, strict=True):
        expected = alone[i][0][0][1]
        fault = "a packed sequence changes the gradient of another one in its row"
        assert_same(gradient, expected, fault)
    for name, gradient in gradients.items():
        expected = torch.stack([alone[i][1][name] for i in order]).sum(dim=0)
        assert_same(gradient, expected, f"packed sequences give {name} another gradient")


def _of_packed(
    model: EmbeddedBackbone,
    examples: Examples,
    rows: Sequence[Sequence[int]],
    *,
    is_packed: bool = True,
) -> tuple[list[tuple[Tensor, Tensor]], dict[str, Tensor]]:
    """Hidden states and gradient by embeddings of each sequence in rows of them, and gradients by parameters.

    The gradients are of a mixture that is the same for a sequence in any row.
    """
    batch = TokenBatch.collate([Tokens.join([examples[i] for i in row]) for row in rows])
    if is_packed:
        segments = torch.zeros_like(batch.valid, dtype=torch.int64)
        for own, row in zip(segments, rows, strict=True):
            number = torch.repeat_interleave(torch.tensor([len(examples[i]) for i in row]))
            own[: len(number)] = number
        batch = batch.replace(segments=segments)
    embedded = model.embed(batch)
    change = torch.zeros_like(embedded.hidden, requires_grad=True)
    hidden = model.backbone(embedded.replace(hidden=embedded.hidden + change))
    rest = hidden[~batch.valid]
    assert_same(rest, torch.zeros_like(rest), "the hidden states of padding are not zero")
    g = fixed_generator()
    mixtures = [torch.randn(len(x), hidden.shape[-1], generator=g).to(hidden) for x in examples]
    mixture = torch.cat([mixtures[i] for row in rows for i in row])
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    by_embedding, *found = torch.autograd.grad(
        (hidden[batch.valid] * mixture).sum(),
        [change, *parameters.values()],
        allow_unused=True,
        materialize_grads=True,
    )
    lengths = [len(examples[i]) for row in rows for i in row]
    both = (x[batch.valid].split(lengths) for x in (hidden.detach(), by_embedding))
    return list(zip(*both, strict=True)), dict(zip(parameters, found, strict=True))


def gradients_reach_every_parameter(model: EmbeddedBackbone, examples: Examples) -> None:
    """Every parameter has a finite gradient, other than zero with the examples or with other content of theirs."""
    reached: set[str] = set()
    others = [other_content(x, torch.ones(len(x), dtype=torch.bool), model.spec) for x in examples]
    for batch in (examples, others):  # an expert may be chosen by no token of one batch
        _, gradients = _gradients(model, TokenBatch.collate(batch))
        for name, gradient in gradients.items():
            if not bool(torch.isfinite(gradient).all()):
                raise AssertionError(f"a gradient that is not finite reaches {name}")
            if not gradient.numel() or bool((gradient != 0).any()):
                reached.add(name)
    for name in gradients:
        if name not in reached:
            raise AssertionError(f"no finite gradient other than zero reaches {name}")


def refuses_what_it_does_not_support(model: EmbeddedBackbone, examples: Examples) -> None:
    """Adjacency, segments or a cache raise ValueError if the backbone does not support them; none is ignored."""
    backbone = model.backbone
    embedded = model.embed(TokenBatch.collate([replace(x, adjacency=None) for x in examples]))
    if not backbone.supports_adjacency:
        adjacency = Adjacency(
            torch.zeros(2, 1, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
        )
        _assert_refused("an adjacency", lambda: backbone(replace(embedded, adjacency=adjacency)))
    if not backbone.supports_segments:
        segments = torch.zeros_like(embedded.valid, dtype=torch.int64)
        _assert_refused("segments", lambda: backbone(replace(embedded, segments=segments)))
    if backbone.causal is False:
        _assert_refused("a cache, although it is not causal,", lambda: backbone.init_cache(8))


def laws_for(model: EmbeddedBackbone, examples: Examples) -> list[Law]:
    """The laws that apply to this backbone on these examples (all with an adjacency or all without)."""
    backbone = model.backbone
    has_adjacency = examples[0].adjacency is not None
    is_joined = model.spec.is_joined
    found: list[Law] = [
        padding_changes_nothing,
        batch_mates_change_nothing,
        padding_may_hold_anything,
        gradients_reach_every_parameter,
        refuses_what_it_does_not_support,
    ]
    if backbone.causal is None:
        found.append(keeps_its_reach)
    if model.causal:
        found.append(no_token_attends_to_the_future)
        if not has_adjacency and has_cache(backbone):
            found.append(step_by_step_equals_at_once)
    else:
        if not has_adjacency:
            found.append(attends_both_ways)
        if backbone.supports_adjacency and not is_joined:
            found.append(is_permutation_equivariant)
    if has_adjacency:
        if not is_joined:
            found.append(nothing_crosses_components)
        found.append(attends_along_edges)
    elif backbone.supports_segments:
        found.append(packed_equals_separate)
    return found


def _assert_no_more(influence: Tensor, may_attend: Tensor, fault: str) -> None:
    """Raises AssertionError if a token influences one that may not attend to it."""
    beyond = float(influence.masked_fill(may_attend, 0.0).max())
    if beyond > TOLERANCE * float(influence.max()):
        raise AssertionError(f"{fault}: its gradient is {beyond:.2g}")


def _before(influence: Tensor) -> Tensor:
    """Largest influence on each token, but for the first, of one before it."""
    return influence.tril(-1).amax(dim=1)[1:]


def _after(influence: Tensor) -> Tensor:
    """Largest influence on each token, but for the last, of one after it."""
    return influence.triu(1).amax(dim=1)[:-1]


def _stays_zero(
    model: EmbeddedBackbone,
    x: Tokens,
    part: Callable[[Tensor], Tensor],
    influence: Tensor,
    reach: Tensor | None = None,
) -> bool:
    """Whether an entry of a part of the influence is zero whatever the tokens hold.

    With a rectifier, or a head that reads the best token alone, some tokens of one content have no influence.
    """
    generator = fixed_generator()
    largest = influence
    for _ in range(NUM_CONTENTS):
        if bool((part(largest) != 0).all()):
            return False
        largest = torch.maximum(largest, _influence(model, x, reach, generator))
    return bool((part(largest) == 0).any())


def _influence(
    model: EmbeddedBackbone,
    x: Tokens,
    reach: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Largest gradient of each token's hidden state by each token's embedding, [n n].

    generator: draws other embeddings; None: they are those of the tokens.
    The hidden state is projected on a random direction: after LayerNorm its sum is constant, and hides a leak.
    """
    n = len(x)
    batch = TokenBatch.collate([x] * n)  # of each column the gradient in a copy of its own
    if reach is not None:
        batch = batch.replace(reach=repeat(reach, "n -> b n", b=n))
    embedded = model.embed(batch)
    leaf = embedded.hidden.detach()
    if generator is not None:
        leaf = torch.randn(leaf[0].shape, generator=generator, dtype=leaf.dtype).repeat(n, 1, 1)
    leaf = leaf.requires_grad_()
    hidden = model.backbone(replace(embedded, hidden=leaf))
    direction = torch.randn(hidden.shape[-1], generator=fixed_generator(), dtype=hidden.dtype)
    own = hidden[torch.arange(n), torch.arange(n)] @ direction
    return torch.autograd.grad(own.sum(), leaf)[0].abs().amax(dim=-1)


def _gradients(model: EmbeddedBackbone, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Hidden states, and the gradient of a random mixture of them by each trainable parameter."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    hidden = model(batch)
    mixture = (
        hidden * torch.randn(hidden.shape, generator=fixed_generator(), dtype=hidden.dtype)
    ).sum()
    found = torch.autograd.grad(mixture, list(parameters.values()), allow_unused=True)
    gradients = {
        n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(parameters.items(), found)
    }
    return hidden.detach(), gradients


def _assert_refused(what: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except ValueError:
        return
    raise AssertionError(
        f"the backbone takes {what} and ignores it; raise ValueError, or declare and support it"
    )
