"""Checks of an attention mechanism: the laws of backbones inside a small Transformer, and some of its own.

b batch · n queries · m keys · h heads · c channels of one head
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from einops import einsum
from torch import Tensor, nn

from seqkit.backbones.transformer import Transformer
from seqkit.interfaces import Backbone
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.attention.mechanism import AttentionMechanism, repeat_kv
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PreNormBlock
from seqkit.testing.backbones import check_backbone
from seqkit.testing.checks import Checked, Checks, NotCheckedError, takes_device
from seqkit.testing.module_laws import COLUMNS_ADVICE

ADVICE = (
    "a mechanism gets no positions, so write what depends on the distance as a RelativePosition "
    "(docs/write-a-backbone.md, A relative position); if it is meant to know the columns, leave "
    "AttentionFeature.UNORDERED out of `supports`"
)
"""Advice for the author of a mechanism about its use of the columns' indices."""

Build = Callable[[int, int], AttentionMechanism]

DIM, HEADS, DEPTH = 24, 3, 2
"""Sizes of the Transformer in which a mechanism is checked."""


@takes_device
def check_mechanism(
    build: Build,
    *,
    quick: bool = False,
    expected_failures: Mapping[str, str] | None = None,
    device: str = "cpu",  # noqa: ARG001 (of `takes_device`)
) -> Checked:
    """Checks every law of backbones with the mechanism in a small Transformer, bidirectional, causal or both, as its
    `supports` says; returns the laws that were checked.

    build: `(num_heads, head_dim) -> AttentionMechanism`. quick, expected_failures, device: as in
    `check_backbone`.
    Raises AssertionError with the class, the law, the example and the fault.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mechanism = build(HEADS, DIM // HEADS).double().eval()
    if not isinstance(mechanism, AttentionMechanism):
        raise AssertionError(f"{type(mechanism).__name__} does not derive from AttentionMechanism")
    name = type(mechanism).__name__
    supports = getattr(mechanism, "supports", None)
    if not isinstance(supports, AttentionFeature):
        raise AssertionError(f"{name} has no `supports`; list its features, such as AttentionFeature.CAUSAL")
    ways = {False: AttentionFeature.BIDIRECTIONAL, True: AttentionFeature.CAUSAL, None: AttentionFeature.REACH}
    causal = [way for way, feature in ways.items() if feature in supports]
    if not causal:
        raise AssertionError(f"{name} supports neither BIDIRECTIONAL nor CAUSAL; declare one in `supports`")
    block = partial(PreNormBlock, attention=partial(MultiHeadAttention, mechanism=build))
    whole = partial(Transformer, depth=DEPTH, num_heads=HEADS, block=block)
    try:
        return check_inside(mechanism, OWN_LAWS, whole, causal=causal, quick=quick, expected_failures=expected_failures)
    except AssertionError as error:
        raise AssertionError(str(error).replace(COLUMNS_ADVICE, ADVICE)) from error.__cause__


def check_inside(
    component: nn.Module,
    own_laws: Mapping[str, Callable[[Any], None]],
    build: Callable[..., Backbone],
    *,
    causal: Sequence[bool | None] = (False, True),
    quick: bool = False,
    expected_failures: Mapping[str, str] | None = None,
) -> Checked:
    """Checks the laws of a part of a backbone by itself, then those of backbones with it inside.

    own_laws: by name. build: `(dim, causal=...) -> Backbone` with such a part. The rest: as in `check_backbone`.
    """
    name, expected = type(component).__name__, dict(expected_failures or {})
    own = Checks(quick=quick, expected_failures={law: why for law, why in expected.items() if law in own_laws})
    for law in own_laws.values():
        own.check(law, name, component)
    found = own.finish(name)
    others = {law: why for law, why in expected.items() if law not in own_laws}
    try:
        inside = check_backbone(build, dim=DIM, causal=causal, quick=quick, expected_failures=others)
    except AssertionError as error:
        raise AssertionError(f"{name} in {error}") from error.__cause__
    return Checked(dict.fromkeys([*found, *inside]), found.left_out | inside.left_out)


def weights_give_the_output(mechanism: AttentionMechanism) -> None:
    """`attention_weights` @ values is what `forward` gives, and no row of them has a sum above one."""
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
    _assert_used(mechanism, AttentionFeature.BIAS, "attn_mask", lambda g: torch.randn(2, HEADS, 7, 7, generator=g))


OWN_LAWS: dict[str, Callable[[AttentionMechanism], None]] = {
    law.__name__: law for law in (weights_give_the_output, uses_the_bias)
}
"""Laws of a mechanism outside of a backbone."""


def _assert_used(
    mechanism: AttentionMechanism, feature: AttentionFeature, field: str, draw: Callable[[torch.Generator], Tensor]
) -> None:
    if feature not in mechanism.supports:
        raise NotCheckedError(f"{feature.name} is not in its supports")
    if mechanism.needs_adjacency:
        raise NotCheckedError("it attends along edges")
    q, k, v, context = _inputs(mechanism)
    given: Any = {field: draw(torch.Generator().manual_seed(1)).double()}
    if torch.allclose(mechanism(q, k, v, replace(context, **given)), mechanism(q, k, v, context)):
        raise AssertionError(f"context.{field} does not change the output; use it, or leave {feature.name} out")


def _inputs(mechanism: AttentionMechanism) -> tuple[Tensor, Tensor, Tensor, AttentionContext]:
    """Queries, keys, values and a context of two examples of 7 tokens."""
    if mechanism.needs_adjacency:
        raise NotCheckedError("it attends along edges")
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, HEADS, 7, DIM // HEADS, generator=g).double() for _ in range(3))
    is_causal = AttentionFeature.BIDIRECTIONAL not in mechanism.supports
    mask = torch.ones(1, 1, 7, 7, dtype=torch.bool) if mechanism.needs_mask else None
    return (
        q,
        k,
        v,
        AttentionContext(
            attn_mask=mask.tril() if mask is not None and is_causal else mask, is_causal=is_causal and mask is None
        ),
    )
