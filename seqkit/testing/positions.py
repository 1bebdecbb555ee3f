"""Checks of positions, added to the embeddings or inside attention: the laws of backbones with them in a Transformer.

b batch · n queries or tokens · m keys · p axes · d width · h heads · c channels of one head · r channel pairs
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from seqkit.backbones.transformer import Transformer
from seqkit.interfaces import Backbone, Cache, Embedded, TokenSpec
from seqkit.nn.attention.features import AttentionFeature
from seqkit.nn.position.base import PositionalEncoding, RelativePosition
from seqkit.testing.checks import Checked, takes_device
from seqkit.testing.laws import fixed_generator
from seqkit.testing.mechanisms import DEPTH, DIM, HEADS, check_inside
from seqkit.testing.process import seeded

AXES = (1, 2)
"""Numbers of axes of the positions that are tried."""


@takes_device
def check_relative_position(
    build: Callable[..., RelativePosition],
    *,
    quick: bool = False,
    expected_failures: Mapping[str, str] | None = None,
    device: str = "cpu",  # noqa: ARG001 (of `takes_device`)
) -> Checked:
    """Checks every law of backbones with the position in a small Transformer, and the shape of what it gives; returns
    the laws that were checked.

    build: makes the position; arguments `num_heads` and `head_dim` without a value are those of the Transformer, 3 and
    8. quick, expected_failures, device: as in `check_backbone`. Tokens whose axes it refuses in `check_axes` are left
    out.
    Raises AssertionError with the class, the law, the example and the fault.
    """
    sizes = {"num_heads": HEADS, "head_dim": DIM // HEADS}
    parameters = inspect.signature(build).parameters
    missing = {n: x for n, x in sizes.items() if n in parameters and parameters[n].default is inspect.Parameter.empty}
    build = partial(build, **missing)
    with seeded(0):
        position = build()
    if not isinstance(position, RelativePosition):
        raise AssertionError(f"{type(position).__name__} does not derive from RelativePosition")
    try:
        position.check_complete()
        position.check_heads(**sizes)
    except ValueError as error:
        raise AssertionError(str(error)) from error

    def whole(dim: int, causal: bool) -> Backbone:
        return Transformer(dim, DEPTH, num_heads=HEADS, causal=causal, position=build())

    try:
        return check_inside(position.double(), RELATIVE_LAWS, whole, quick=quick, expected_failures=expected_failures)
    except AssertionError as error:
        raise _without_backbone(error) from error.__cause__


@takes_device
def check_position(
    build: Callable[[int, int], PositionalEncoding],
    *,
    quick: bool = False,
    expected_failures: Mapping[str, str] | None = None,
    device: str = "cpu",  # noqa: ARG001 (of `takes_device`)
) -> Checked:
    """Checks every law of backbones with the position added to the embeddings of a small Transformer, on one axis and
    on two, and the shape and dtype of its vectors; returns the laws that were checked.

    build: `(dim, num_axes) -> PositionalEncoding`; it raises ValueError for a number of axes that it does not support,
    and these are left out. quick, expected_failures, device: as in `check_backbone`.
    Raises AssertionError with the class, the law, the example and the fault.
    """
    found, refusals = [], []
    for num_axes in AXES:
        try:
            with seeded(0):
                position = build(DIM, num_axes)
        except ValueError as error:
            refusals.append(f"with {num_axes} axes it raises {error}")
            continue
        if not isinstance(position, PositionalEncoding):
            raise AssertionError(f"{type(position).__name__} does not derive from PositionalEncoding")
        whole = partial(TransformerWithPositions, build, num_axes)
        causal = (False,) if position.mixes_tokens else (False, True)
        try:
            found.append(
                check_inside(
                    position, ADDED_LAWS, whole, causal=causal, quick=quick, expected_failures=expected_failures
                )
            )
        except AssertionError as error:
            raise _without_backbone(error) from error.__cause__
    if not found:
        raise AssertionError("; ".join(refusals))
    left_out = {name: why for one in found for name, why in one.left_out.items()}
    return Checked(dict.fromkeys(law for one in found for law in one), left_out)


class TransformerWithPositions(Backbone):
    """A Transformer whose embeddings get a position, as a model's embedder adds it.

    build: as in `check_position`.
    """

    def __init__(self, build: Callable[[int, int], PositionalEncoding], num_axes: int, dim: int, *, causal: bool):
        super().__init__()
        self.dim, self.causal = dim, causal
        self.position, self.num_axes = build(dim, num_axes), num_axes
        self.inner = Transformer(dim, DEPTH, num_heads=HEADS, causal=causal)
        self.knows_columns = self.position.mixes_tokens
        self.uses_positions = self.supports_segments = not self.position.mixes_tokens
        try:
            self.position(torch.full((1, 1, num_axes), 0.5))
            self.takes_fractions = True
        except ValueError:
            self.takes_fractions = False

    def check_supported(self, spec: TokenSpec) -> None:
        has_fractions = spec.num_axes == 1 and not spec.is_categorical
        if spec.is_joined or spec.num_axes != self.num_axes or (has_fractions and not self.takes_fractions):
            raise ValueError("these tokens have other positions")
        self.inner.check_supported(spec)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        if embedded.adjacency is not None or (embedded.segments is not None and not self.supports_segments):
            raise ValueError("no adjacency, and no segments where the position mixes tokens")
        real = rearrange(embedded.valid, "b n -> b n 1")
        hidden = self.position.add(embedded.hidden, embedded.positions).masked_fill(~real, 0.0)
        return self.inner(embedded.replace(hidden=hidden), cache)  # type: ignore[no-any-return]

    def init_cache(self, max_tokens: int) -> Cache:
        return self.inner.init_cache(max_tokens)


def gives_what_it_requires(position: RelativePosition) -> None:
    """A bias is [b h n m], embeddings are [b n m c], rotations are complex [b 1 n r]; all numbers are finite. What is
    learned is refused for tokens without positions, where it would do nothing."""
    if any(True for _ in position.parameters()):
        with contextlib.suppress(ValueError):
            position.check_axes(0, DIM // HEADS)
            raise AssertionError(
                "what it learns does nothing for tokens without positions (graphs); write a check_axes "
                "that raises ValueError for num_axes=0"
            )
    size, refusals = DIM // HEADS, []
    for num_axes in AXES:
        try:
            position.check_axes(num_axes, size)
        except ValueError as error:
            refusals.append(str(error))
            continue
        queries, keys = _positions(5, num_axes).round(), _positions(7, num_axes).round()
        given = {
            "bias": (position.bias(queries, keys, HEADS), (2, HEADS, 5, 7)),
            "rotary": (position.rotary(queries, size), (2, 1, 5, None)),
        }
        for name, (got, shape) in given.items():
            is_required = AttentionFeature[name.upper()] in position.requires
            if got is None:
                if is_required:
                    raise AssertionError(f"{name} gives None on {num_axes} axes; refuse these in check_axes")
                continue
            wanted = [wide if wide is not None else got.shape[-1] for wide in shape]
            if got.ndim != len(shape) or any(n not in (1, own) for n, own in zip(got.shape, wanted)):
                raise AssertionError(f"{name} gives {list(got.shape)} for 5 queries and 7 keys, not {wanted}")
            if not bool(torch.isfinite(got).all()):
                raise AssertionError(f"{name} gives numbers that are not finite (NaN or infinite)")
            if name == "rotary" and not got.is_complex():
                raise AssertionError(f"rotary gives {got.dtype}; give complex numbers (torch.polar)")
    if len(refusals) == len(AXES):
        raise AssertionError(f"it supports positions of neither number of axes: {'; '.join(refusals)}")


def gives_vectors_of_its_dtype(position: PositionalEncoding) -> None:
    """Vectors are [b n d] and finite, of the dtype that the module was moved to, whatever that of the positions is."""
    positions = _positions(5, position.num_axes).round()
    for own, other in ((torch.float64, torch.float32), (torch.float32, torch.float64)):
        got = position.to(own)(positions.to(other))
        wanted = [2, 5, DIM]
        if got.ndim != 3 or any(n not in (1, wide) for n, wide in zip(got.shape, wanted)) or got.shape[-1] != DIM:
            raise AssertionError(f"it gives {list(got.shape)}, not [b n d] = {wanted}")
        if got.dtype != own:
            raise AssertionError(f"moved to {own}, it gives {got.dtype} for positions of {other}; use `self.dtype`")
        if not bool(torch.isfinite(got).all()):
            raise AssertionError("it gives numbers that are not finite (NaN or infinite)")


RELATIVE_LAWS: dict[str, Callable[[Any], None]] = {"gives_what_it_requires": gives_what_it_requires}
ADDED_LAWS: dict[str, Callable[[Any], None]] = {"gives_vectors_of_its_dtype": gives_vectors_of_its_dtype}
"""Laws of a position outside of a backbone."""


def _positions(n: int, num_axes: int) -> Tensor:
    """Positions of two examples, [2 n p]."""
    return 5 * torch.rand(2, n, num_axes, generator=fixed_generator(), dtype=torch.float64)


def _without_backbone(error: AssertionError) -> AssertionError:
    """The error in words for a position: that the backbone uses positions was no declaration of its author."""
    return AssertionError(str(error).replace("uses_positions is True, but other positions", "other positions"))
