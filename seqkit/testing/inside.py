"""Checks of attention mechanisms and positions: the laws of backbones inside a small Transformer, and some of its own.

b batch · n queries or tokens · m keys · p axes · d width · h heads · c channels of one head · r channel pairs
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import torch
from einops import einsum, rearrange
from torch import Tensor

from seqkit.backbones.transformer import Transformer
from seqkit.interfaces import Backbone, Cache, Embedded, TokenSpec
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.mechanism import AttentionMechanism, repeat_kv
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.nn.mixers.base import Mixer
from seqkit.nn.position.base import PositionalEncoding, RelativePosition
from seqkit.testing.backbones import check_kinds
from seqkit.testing.checks import Checked, Checks, NotCheckedError, Options, takes_device
from seqkit.testing.process import fixed_generator, seeded

DIM = 24
HEADS = 3
DEPTH = 2
"""Sizes of the Transformer in which a part is checked."""

AXES = (1, 2)
"""Numbers of axes of the positions that are tried."""


@takes_device
def check_mechanism(
    build: Callable[[int, int], AttentionMechanism], **options: Unpack[Options]
) -> Checked:
    """Checks every law of backbones with the mechanism in a small Transformer, bidirectional, causal or both, as its
    `supports` says; returns the laws that were checked.

    build: `(num_heads, head_dim) -> AttentionMechanism`. options: `Options`.
    Raises AssertionError with the class, the law, the example and the fault.
    """
    mechanism = _built(AttentionMechanism, build, HEADS, DIM // HEADS).double().eval()
    name = type(mechanism).__name__
    supports = _supports(mechanism)
    ways = {
        False: AttentionFeature.BIDIRECTIONAL,
        True: AttentionFeature.CAUSAL,
        None: AttentionFeature.REACH,
    }
    causal = [way for way, feature in ways.items() if feature in supports]
    if not causal:
        raise AssertionError(
            f"{name} supports neither BIDIRECTIONAL nor CAUSAL; declare one in `supports`"
        )
    checks = Checks(**options)
    for law in (weights_give_the_output, uses_the_bias):
        checks.check(law, name, mechanism)
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=build))
    whole = partial(Transformer, depth=DEPTH, num_heads=HEADS, block=block)
    _check_inside(checks, name, whole, causal)
    return checks.finish(name)


@takes_device
def check_mixer(build: Callable[[int, int], Mixer], **options: Unpack[Options]) -> Checked:
    """Checks every law of backbones with the mixer in a small Transformer, alone and below attention, bidirectional and
    causal as its `supports` says; returns the laws that were checked.

    build: `(dim, num_heads) -> Mixer`. One that goes from left to right is checked in both directions, too, as a
    Transformer makes them. options: `Options`.
    Raises AssertionError with the class, the law, the example and the fault.
    """
    mixer = _built(Mixer, build, DIM, HEADS)
    name = type(mixer).__name__
    supports = _supports(mixer)
    goes_both_ways = AttentionFeature.BIDIRECTIONAL in supports or mixer.carries_state
    ways = {False: goes_both_ways, True: AttentionFeature.CAUSAL in supports}
    causal = [way for way, is_supported in ways.items() if is_supported]
    checks = Checks(**options)
    for mixers in ([build], [build, None]):
        whole = partial(Transformer, depth=DEPTH, num_heads=HEADS, mixer=mixers)
        _check_inside(checks, name, whole, causal)
    return checks.finish(name)


@takes_device
def check_relative_position(
    build: Callable[..., RelativePosition], **options: Unpack[Options]
) -> Checked:
    """Checks every law of backbones with the position in a small Transformer, and the shape of what it gives; returns
    the laws that were checked.

    build: makes the position; arguments `num_heads` and `head_dim` without a value are those of the Transformer, 3 and
    8. options: `Options`. Tokens whose axes it refuses in `check_axes` are left out.
    Raises AssertionError with the class, the law, the example and the fault.
    """
    sizes = {"num_heads": HEADS, "head_dim": DIM // HEADS}
    parameters = inspect.signature(build).parameters
    missing = {
        n: x
        for n, x in sizes.items()
        if n in parameters and parameters[n].default is inspect.Parameter.empty
    }
    build = partial(build, **missing)
    position = _built(RelativePosition, build)
    try:
        position.check_complete()
        position.check_heads(**sizes)
    except ValueError as error:
        raise AssertionError(str(error)) from error

    def whole(dim: int, causal: bool) -> Backbone:
        return Transformer(dim, DEPTH, num_heads=HEADS, causal=causal, position=build())

    checks = Checks(**options)
    name = type(position).__name__
    checks.check(gives_what_it_requires, name, position.double())
    _check_inside(checks, name, whole, (False, True))
    return checks.finish(name)


@takes_device
def check_position(
    build: Callable[[int, int], PositionalEncoding], **options: Unpack[Options]
) -> Checked:
    """Checks every law of backbones with the position added to the embeddings of a small Transformer, on one axis and
    on two; returns the laws that were checked.

    build: `(dim, num_axes) -> PositionalEncoding`; it raises ValueError for a number of axes that it does not support,
    and these are left out. options: `Options`.
    Raises AssertionError with the class, the law, the example and the fault.
    """
    checks = Checks(**options)
    name = ""
    refusals = []
    for num_axes in AXES:
        try:
            position = _built(PositionalEncoding, build, DIM, num_axes)
        except ValueError as error:
            refusals.append(f"with {num_axes} axes it raises {error}")
            continue
        name = type(position).__name__
        causal = (False,) if position.mixes_tokens else (False, True)
        _check_inside(checks, name, partial(TransformerWithPositions, build, num_axes), causal)
    if not name:
        raise AssertionError("; ".join(refusals))
    return checks.finish(name)


def _built(kind: type, build: Callable[..., Any], *sizes: int) -> Any:
    with seeded(0):
        part = build(*sizes)
    if not isinstance(part, kind):
        raise AssertionError(f"{type(part).__name__} does not derive from {kind.__name__}")
    return part


def _supports(part: AttentionMechanism | Mixer) -> AttentionFeature:
    supports = getattr(part, "supports", None)
    if not isinstance(supports, AttentionFeature):
        raise AssertionError(
            f"{type(part).__name__} has no `supports`; list its features, such as AttentionFeature.CAUSAL"
        )
    return supports


def _check_inside(
    checks: Checks, name: str, build: Callable[..., Backbone], causal: Sequence[bool | None]
) -> None:
    """Checks the laws of backbones that `build(dim, causal=...)` makes, with the part of that name inside."""
    checks.inside = f"{name} in "
    try:
        check_kinds(checks, build, dim=DIM, causal=causal)
    except AssertionError as error:
        raise AssertionError(f"{name} in {error}") from error.__cause__


class TransformerWithPositions(Backbone):
    """A Transformer whose embeddings get a position, as a model's embedder adds it.

    build: as in `check_position`.
    """

    def __init__(
        self,
        build: Callable[[int, int], PositionalEncoding],
        num_axes: int,
        dim: int,
        *,
        causal: bool,
    ):
        super().__init__()
        self.dim = dim
        self.causal = causal
        self.position = build(dim, num_axes)
        self.num_axes = num_axes
        self.inner = Transformer(dim, DEPTH, num_heads=HEADS, causal=causal)
        self.knows_columns = self.position.mixes_tokens
        self.uses_positions = self.supports_segments = not self.position.mixes_tokens

    def check_supported(self, spec: TokenSpec) -> None:
        if spec.is_joined or spec.num_axes != self.num_axes:
            raise ValueError("these tokens have other positions")
        if spec.num_axes == 1 and not spec.is_categorical:
            self.position(torch.full((1, 1, 1), 0.5))  # a table of positions refuses fractions
        self.inner.check_supported(spec)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        if embedded.adjacency is not None or (
            embedded.segments is not None and not self.supports_segments
        ):
            raise ValueError("no adjacency, and no segments where the position mixes tokens")
        real = rearrange(embedded.valid, "b n -> b n 1")
        hidden = self.position.add(embedded.hidden, embedded.positions).masked_fill(~real, 0.0)
        return self.inner(embedded.replace(hidden=hidden), cache)  # type: ignore[no-any-return]

    def init_cache(self, max_tokens: int) -> Cache:
        return self.inner.init_cache(max_tokens)


# ── laws of a mechanism outside of a backbone ────────────────────────────────────────────────────────────────────────


def weights_give_the_output(mechanism: AttentionMechanism) -> None:
    """`attention_weights` @ values is what `forward` gives."""
    q, k, v, context = _inputs(mechanism)
    try:
        weights = mechanism.attention_weights(q, k, context)
    except ValueError as error:
        raise NotCheckedError(f"attention_weights: {error}") from None
    got = mechanism(q, k, v, context)
    expected = einsum(weights, repeat_kv(v, q), "b h n m, b h m c -> b h n c")
    if got.shape != expected.shape or not torch.allclose(got, expected, rtol=1e-4, atol=1e-5):
        raise AssertionError(
            "forward gives other vectors than attention_weights @ values; the attention maps would lie"
        )


def uses_the_bias(mechanism: AttentionMechanism) -> None:
    """With BIAS in `supports`, a bias on the scores (`context.attn_mask`, float) changes the output."""
    _assert_used(mechanism, AttentionFeature.BIAS, "attn_mask", (2, HEADS, 7, 7))


def _assert_used(
    mechanism: AttentionMechanism, feature: AttentionFeature, field: str, shape: tuple[int, ...]
) -> None:
    if feature not in mechanism.supports:
        raise NotCheckedError(f"{feature.name} is not in its supports")
    q, k, v, context = _inputs(mechanism)
    given: Any = {field: torch.randn(shape, generator=fixed_generator(), dtype=q.dtype)}
    if torch.allclose(mechanism(q, k, v, replace(context, **given)), mechanism(q, k, v, context)):
        raise AssertionError(
            f"context.{field} does not change the output; use it, or leave {feature.name} out"
        )


def _inputs(mechanism: AttentionMechanism) -> tuple[Tensor, Tensor, Tensor, AttentionContext]:
    """Queries, keys, values and a context of two examples of 7 tokens."""
    if mechanism.needs_adjacency:
        raise NotCheckedError("it attends along edges")
    g = fixed_generator()
    q, k, v = (torch.randn(2, HEADS, 7, DIM // HEADS, generator=g).double() for _ in range(3))
    is_causal = AttentionFeature.BIDIRECTIONAL not in mechanism.supports
    mask = torch.ones(1, 1, 7, 7, dtype=torch.bool) if mechanism.needs_mask else None
    mask = mask.tril() if mask is not None and is_causal else mask
    return q, k, v, AttentionContext(attn_mask=mask, is_causal=is_causal and mask is None)


# ── laws of a position outside of a backbone ─────────────────────────────────────────────────────────────────────────


def gives_what_it_requires(position: RelativePosition) -> None:
    """A bias is [b h n m], rotations are complex [b 1 n r]."""
    size = DIM // HEADS
    num_axes = next(axes for axes in AXES if not _refuses(position, axes))
    queries = _positions(5, num_axes)
    keys = _positions(7, num_axes)
    for name, got, wanted in (
        ("bias", position.bias(queries, keys, HEADS), (2, HEADS, 5, 7)),
        ("rotary", position.rotary(queries, size), (2, 1, 5, None)),
    ):
        if got is None:
            if AttentionFeature[name.upper()] in position.requires:
                raise AssertionError(
                    f"{name} gives None on {num_axes} axes; refuse these in check_axes"
                )
        elif got.ndim != 4 or any(
            n not in (1, own or n) for n, own in zip(got.shape, wanted, strict=True)
        ):
            raise AssertionError(
                f"{name} gives {list(got.shape)} for 5 queries and 7 keys, not {list(wanted)}"
            )
        elif got.is_complex() != (name == "rotary"):
            raise AssertionError(
                f"{name} gives {got.dtype}; rotations alone are complex numbers (torch.polar)"
            )


def _refuses(position: RelativePosition, num_axes: int) -> bool:
    try:
        position.check_axes(num_axes, DIM // HEADS)
    except ValueError:
        return True
    return False


def _positions(n: int, num_axes: int) -> Tensor:
    """Whole positions of two examples, [2 n p]."""
    return (
        5 * torch.rand(2, n, num_axes, generator=fixed_generator(), dtype=torch.float64)
    ).round()
