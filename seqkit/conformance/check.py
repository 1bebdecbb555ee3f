"""Which laws bind a backbone, and the check of all of them over made-up tokens or a tokenizer's own.

n tokens · h height · p axes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from einops import rearrange, repeat

from seqkit.conformance.laws import (
    Reader,
    batch_mates_change_nothing,
    fixed_generator,
    gradients_reach_every_parameter,
    no_token_reads_the_future,
    nothing_crosses_components,
    order_is_told_by_positions,
    packed_equals_separate,
    padding_changes_nothing,
    padding_may_hold_anything,
    reads_along_links,
    reads_both_ways,
    refuses_what_it_cannot_honour,
    step_by_step_equals_at_once,
)
from seqkit.contract import Backbone, Links, Tokens, TokenSpec

Law = Callable[[Reader, Sequence[Tokens]], None]


def laws_for(reader: Reader, examples: Sequence[Tokens]) -> list[Law]:
    """The laws that bind this backbone on these examples (all with links or all without)."""
    backbone, linked = reader.backbone, examples[0].links is not None
    laws: list[Law] = [
        padding_changes_nothing,
        batch_mates_change_nothing,
        padding_may_hold_anything,
    ]
    laws += [gradients_reach_every_parameter, refuses_what_it_cannot_honour]
    if backbone.causal:
        laws.append(no_token_reads_the_future)
        if not linked and type(backbone).init_cache is not Backbone.init_cache:
            laws.append(step_by_step_equals_at_once)
    else:
        laws += [] if linked else [reads_both_ways]
        laws += [order_is_told_by_positions] if backbone.reads_links else []
    if linked:
        laws += [nothing_crosses_components, reads_along_links]
    elif backbone.reads_segments:
        laws.append(packed_equals_separate)
    return laws


def check_reader(spec: TokenSpec, backbone: Backbone, examples: Sequence[Tokens]) -> list[Law]:
    """Every law that binds `backbone` on `examples` of one tokenizer; the laws that were checked.

    Links that the backbone does not read are dropped first. Examples: two or more, of different lengths >= 2.
    Raises AssertionError with the law's name and what was found.
    """
    if len({len(x) for x in examples}) < 2 or min(map(len, examples)) < 2:
        raise ValueError(
            f"examples have {[len(x) for x in examples]} tokens; give two or more lengths, all of 2 or more"
        )
    if spec.num_links and not backbone.reads_links:
        spec, examples = replace(spec, num_links=0), [replace(x, links=None) for x in examples]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        reader = Reader(spec, backbone)
    laws = laws_for(reader, examples)
    for law in laws:
        try:
            law(reader, examples)
        except AssertionError as error:
            raise AssertionError(
                f"{type(backbone).__name__}(causal={backbone.causal}): {law.__name__}: {error}"
            ) from None
    return laws


def check_backbone(build: Callable[..., Backbone], *, dim: int = 24, causal: Sequence[bool] = (False, True)) -> None:
    """Every law over made-up texts, images, series and graphs. build: `(dim, causal=...) -> Backbone`, without dropout.

    causal: which of the two kinds it can be. Tokens that it refuses by ValueError when asked (`check`) are left out.
    Raises AssertionError with the law's name and what was found.
    """
    for kind in causal:
        checked = 0
        for spec, examples in made_up().values():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                backbone = build(dim, causal=kind)
            if (backbone.dim, backbone.causal) != (dim, kind):
                raise AssertionError(
                    f"built with dim={dim}, causal={kind}; it says dim={backbone.dim}, causal={backbone.causal}"
                )
            try:
                backbone.check(spec)
            except ValueError:
                continue
            checked += len(check_reader(spec, backbone, examples))
        if not checked:
            raise AssertionError(f"{type(backbone).__name__} refuses texts, images, series and graphs alike")


def made_up() -> dict[str, tuple[TokenSpec, list[Tokens]]]:
    """Examples without any tokenizer, by modality; the same every time."""
    g = fixed_generator()
    text = [
        Tokens(torch.randint(11, (n,), generator=g), rearrange(torch.arange(float(n)), "n -> n 1")) for n in (7, 5, 8)
    ]
    grids = [torch.cartesian_prod(torch.arange(float(h)), torch.arange(3.0)) for h in (3, 2)]
    image = [Tokens(torch.randn(len(grid), 5, generator=g), grid) for grid in grids]
    series = [Tokens(torch.randn(n, 2, generator=g), torch.rand(n, 1, generator=g).cumsum(0) * 3) for n in (5, 7)]
    graph = []
    for n in (7, 5):
        ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])[:, : n - 2]  # a path and a node alone
        edges = torch.cat([ring, ring.flip(0), torch.tensor([[0], [3]])], dim=1)  # and one link that goes one way only
        kinds = F.pad(repeat(torch.arange(n - 2) % 2 + 1, "e -> (way e)", way=2), [0, 1], value=2)
        graph.append(Tokens(torch.randn(n, 3, generator=g), torch.zeros(n, 0), Links(edges, kinds)))
    return {
        "text": (TokenSpec(vocab_size=11), text),
        "image": (TokenSpec(num_features=5, num_axes=2), image),
        "series": (TokenSpec(num_features=2), series),
        "graph": (TokenSpec(num_features=3, num_axes=0, num_links=2), graph),
    }
