"""Checks of a backbone: the laws that apply to it, over synthetic tokens or those of a tokenizer.

n tokens · h height · p axes
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange, repeat

from seqkit.interfaces import Adjacency, Backbone, Tokens, TokenSpec
from seqkit.testing.checks import Checked, Checks, takes_device
from seqkit.testing.laws import (
    EmbeddedBackbone,
    InFloat64,
    attends_along_edges,
    attends_both_ways,
    attends_within_graphs_along_edges,
    batch_mates_change_nothing,
    fixed_generator,
    gradients_reach_every_parameter,
    has_cache,
    is_permutation_equivariant,
    keeps_its_reach,
    leave_zero,
    no_token_attends_to_the_future,
    nothing_crosses_components,
    packed_equals_separate,
    padding_changes_nothing,
    padding_may_hold_anything,
    refuses_what_it_does_not_support,
    step_by_step_equals_at_once,
)
from seqkit.testing.long_laws import (
    any_batch_gives_the_same,
    caches_are_apart,
    columns_far_along_are_like_others,
    every_step_equals_at_once,
    far_texts,
    long_texts,
    no_column_attends_to_the_future,
    nodes_of_any_degree_use_their_edges,
    refused_when_long,
    reorder_keeps_the_rows,
    stars,
)
from seqkit.testing.module_laws import DTYPE_LAWS, LATE_LAWS, MODULE_LAWS, builds_and_saves_all_weights

Law = Callable[[EmbeddedBackbone, Sequence[Tokens]], None]

KINDS = ("text", "image", "series", "graph", "joined", "joined graphs")
"""Tokens over which a backbone is checked. Those of fields reach a backbone as those of a text do: as embeddings with a
position each."""


def laws_for(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> list[Law]:
    """The laws that apply to this backbone on these examples (all with an adjacency or all without)."""
    backbone, has_adjacency, is_joined = model.backbone, examples[0].adjacency is not None, model.spec.is_joined
    laws: list[Law] = [padding_changes_nothing, batch_mates_change_nothing, padding_may_hold_anything]
    laws += [gradients_reach_every_parameter, refuses_what_it_does_not_support]
    if backbone.causal is None:
        laws.append(keeps_its_reach)
    if model.causal:
        laws.append(no_token_attends_to_the_future)
        if not has_adjacency and has_cache(backbone):
            laws.append(step_by_step_equals_at_once)
    else:
        laws += [] if has_adjacency else [attends_both_ways]
        laws += [is_permutation_equivariant] if backbone.supports_adjacency and not is_joined else []
    if has_adjacency and is_joined:
        laws.append(attends_within_graphs_along_edges)
    elif has_adjacency:
        laws += [nothing_crosses_components, attends_along_edges]
    elif backbone.supports_segments:
        laws.append(packed_equals_separate)
    return laws


def check_embedded_backbone(
    spec: TokenSpec,
    backbone: Backbone,
    examples: Sequence[Tokens],
    *,
    quick: bool = False,
    expected_failures: Mapping[str, str] | None = None,
) -> list[Law]:
    """Checks every law that applies to `backbone` on `examples` of one tokenizer; returns the laws that were checked.

    An adjacency that the backbone does not support is dropped first. examples: two or more, of different lengths >= 2.
    quick, expected_failures: as in `check_backbone`.
    Raises AssertionError with the name of the law and the fault.
    """
    if len({len(x) for x in examples}) < 2 or min(map(len, examples)) < 2:
        raise ValueError(
            f"examples have {[len(x) for x in examples]} tokens; give two or more lengths, all of 2 or more"
        )
    checks = Checks(quick=quick, expected_failures=expected_failures)
    _check_embedded(checks, spec, backbone, examples)
    return checks.finish(type(backbone).__name__)


def _check_embedded(checks: Checks, spec: TokenSpec, backbone: Backbone, examples: Sequence[Tokens]) -> None:
    for causal in _ways(backbone.causal):
        model, given = _embedded(spec, backbone, examples, causal)
        for law in laws_for(model, given):
            _check(checks, model, law, model, given)


@takes_device
def check_backbone(
    build: Callable[..., Backbone],
    *,
    dim: int = 24,
    causal: Sequence[bool | None] = (False, True),
    kinds: Sequence[str] = KINDS,
    quick: bool = False,
    expected_failures: Mapping[str, str] | None = None,
    device: str = "cpu",  # noqa: ARG001 (of `takes_device`)
) -> Checked:
    """Checks every law over synthetic texts, images, series and graphs; returns the laws that were checked.

    build: `(dim, causal=...) -> Backbone`, without dropout. dim: width of the backbone. causal: values of `causal` to
    build it with; None (as the batch says) is checked as False, as True and with other reaches.
    kinds: names of tokens in `synthetic`; fewer are enough where the others would run the same code.
    quick: True: laws that take long are left out. expected_failures: name of each law that is known to be broken, and
    the reason; one that is kept all the same is an error. `left_out` of the result has what was not checked, and why.
    device: where backbones and tokens are, such as "cuda".
    Tokens that the backbone refuses with ValueError in `check_supported`, texts of 70 and of 300 tokens that it refuses
    in `forward`, and a cache that it refuses in `init_cache`, are left out.
    Raises AssertionError with the class, the law, the example and the fault; ValueError for a device that is not here.

    >>> from functools import partial
    >>> from seqkit.backbones import GRU
    >>> checked = check_backbone(partial(GRU, depth=1), kinds=["text"], causal=[True], quick=True)
    >>> len(checked), [law.__name__ for law in checked][-1]
    (17, 'caches_are_apart')
    """
    checks = Checks(quick=quick, expected_failures=expected_failures)
    for is_causal in causal:
        is_supported = False
        for name in kinds:
            spec, examples = synthetic()[name]
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                backbone = build(dim, causal=is_causal)
            if (backbone.dim, backbone.causal) != (dim, is_causal):
                raise AssertionError(
                    f"built with dim={dim}, causal={is_causal}; it has dim={backbone.dim}, causal={backbone.causal}"
                )
            try:
                backbone.check_supported(spec)
                if spec.is_joined and spec.num_edge_types and backbone.supports_adjacency and not backbone.joins_graphs:
                    continue
            except ValueError:
                continue
            is_supported = True
            try:
                untouched = copy.deepcopy(backbone) if spec.num_edge_types > 1 else None
                _check_module(checks, MODULE_LAWS, spec, backbone, examples)
                _check_embedded(checks, spec, backbone, examples)
                if name == "graph" and backbone.supports_adjacency:
                    _check_stars(checks, partial(build, dim, causal=is_causal))
                if name == "text":
                    _check_long_texts(checks, build, dim, is_causal)
                if untouched is not None:
                    _check_module(checks, LATE_LAWS, spec, untouched, examples)
            except AssertionError as error:
                raise AssertionError(f"{error} [{name}]") from error.__cause__
        if not is_supported:
            raise AssertionError(f"{type(backbone).__name__} supports neither texts, images, series nor graphs")
    return checks.finish(type(backbone).__name__)


def _ways(causal: bool | None) -> Sequence[bool]:
    """The causalities that a backbone is checked with; one that takes it from the batch with both."""
    return (False, True) if causal is None else (causal,)


def _embedded(
    spec: TokenSpec, backbone: Backbone, examples: Sequence[Tokens], causal: bool
) -> tuple[EmbeddedBackbone, Sequence[Tokens]]:
    """The backbone behind an embedder, and the examples, both without an adjacency that it does not support."""
    if spec.num_edge_types and not backbone.supports_adjacency:
        spec, examples = spec.without_edges(), [replace(x, adjacency=None) for x in examples]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        leave_zero(backbone)
        return EmbeddedBackbone(spec, backbone, causal=causal), examples


def _check_module(
    checks: Checks, laws: Sequence[Law], spec: TokenSpec, backbone: Backbone, examples: Sequence[Tokens]
) -> None:
    for causal in _ways(backbone.causal):
        model, given = _embedded(spec, copy.deepcopy(backbone), examples, causal)
        for law in laws:
            _check(checks, model, law, model, given)


def _check_stars(checks: Checks, build: Callable[[], Backbone]) -> None:
    """The law of degrees, on a backbone of its own: these graphs have one edge type."""
    spec, examples = stars()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = build()
    _check_module(checks, [nodes_of_any_degree_use_their_edges], spec, backbone, examples)


def _check_long_texts(checks: Checks, build: Callable[..., Backbone], dim: int, is_causal: bool | None) -> None:
    """Laws over texts of 1 to 300 tokens, and over the backbone built several times."""
    spec, examples = long_texts()
    short = synthetic()["text"][1]

    builds = partial(build, dim, causal=is_causal)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = EmbeddedBackbone(spec, builds(), causal=True)
    _check(checks, model, builds_and_saves_all_weights, builds, spec, short)
    leave_zero(model.backbone)
    if refused_when_long(model, examples):
        return
    laws: list[Law] = [no_column_attends_to_the_future] if model.causal else []
    laws.append(any_batch_gives_the_same)
    if model.backbone.supports_segments:
        laws.append(packed_equals_separate)
    if model.causal and has_cache(model.backbone):
        laws += [every_step_equals_at_once, caches_are_apart, reorder_keeps_the_rows]
    for law in laws:
        _check(checks, model, law, model, examples)
    _, far = far_texts()
    if checks.quick or not refused_when_long(model, far):
        _check(checks, model, columns_far_along_are_like_others, model, far)


def _check(checks: Checks, model: EmbeddedBackbone, law: Callable[..., None], *given: Any) -> None:
    """Checks one law; the error that it raises names class and law."""
    name, causal = type(model.backbone).__name__, model.backbone.causal
    way = "" if causal is not None else " in a causal batch" if model.causal else " in a bidirectional batch"
    again = None if law in DTYPE_LAWS else InFloat64
    checks.check(law, f"{name}(causal={causal}){way}", *given, again=again)


def synthetic() -> dict[str, tuple[TokenSpec, list[Tokens]]]:
    """Spec and examples of each modality, made without a tokenizer; the same every time."""
    g = fixed_generator()
    text = [
        Tokens(torch.randint(11, (n,), generator=g), rearrange(torch.arange(float(n)), "n -> n 1")) for n in (7, 5, 8)
    ]
    grids = [torch.cartesian_prod(torch.arange(float(h)), torch.arange(3.0)) for h in (3, 2)]
    image = [Tokens(torch.randn(len(grid), 5, generator=g), grid) for grid in grids]
    series = [Tokens(torch.randn(n, 2, generator=g), torch.rand(n, 1, generator=g).cumsum(0) * 3) for n in (5, 7)]
    graph = []
    for n in (7, 5):
        path = torch.stack([torch.arange(n - 2), torch.arange(n - 2) + 1])  # and the last node alone
        one_way = torch.tensor([[3], [0]])  # token 0 attends to token 3, and 3 not to 0
        edge_type = F.pad(repeat(torch.arange(n - 2) % 2 + 1, "e -> (way e)", way=2), [0, 1], value=2)
        adjacency = Adjacency(torch.cat([path.flip(0), path, one_way], dim=1), edge_type)
        graph.append(Tokens(torch.randn(n, 3, generator=g), torch.zeros(n, 0), adjacency))
    sizes = (7, 3, 5)
    fields = [
        Tokens(
            torch.stack([torch.randint(size, (n,), generator=g) for size in sizes], dim=1),
            rearrange(torch.arange(float(n)), "n -> n 1"),
            features=torch.randn(n, 2, generator=g),
        )
        for n in (5, 8)
    ]
    specs = {
        "text": TokenSpec(vocab_size=11),
        "series": TokenSpec(num_features=2),
        "graph": TokenSpec(num_features=3, num_axes=0, num_edge_types=2),
    }
    parts, with_graphs = TokenSpec(parts=(*specs.items(),)[:2]), TokenSpec(parts=(*specs.items(),)[::2])
    joined = [
        parts.join([("text", text[0]), ("series", series[0])]),
        parts.join([("series", series[1]), ("text", text[1]), ("series", series[0])], runs_on=True),
        parts.join([("text", text[2])]),
    ]
    graphs = [
        with_graphs.join([("text", text[1]), ("graph", graph[1])]),
        with_graphs.join([("graph", graph[1]), ("graph", graph[0])], runs_on=True),
        with_graphs.join([("graph", graph[0])]),
    ]
    return {
        "text": (TokenSpec(vocab_size=11), text),
        "image": (TokenSpec(num_features=5, num_axes=2), image),
        "series": (TokenSpec(num_features=2), series),
        "graph": (TokenSpec(num_features=3, num_axes=0, num_edge_types=2), graph),
        "fields": (TokenSpec(vocab_sizes=sizes, num_features=2), fields),
        "joined": (parts, joined),
        "joined graphs": (with_graphs, graphs),
    }
