"""Checks of a backbone: the laws that apply to it, over synthetic tokens or those of a tokenizer.

n tokens · h height · p axes
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from einops import repeat

from seqkit.interfaces import Adjacency, Backbone, Tokens, TokenSpec
from seqkit.testing.checks import Checked, Checks, Options, takes_device
from seqkit.testing.embedded_backbone import EmbeddedBackbone, InFloat64, leave_zero
from seqkit.testing.input_sizes import inputs_have_unit_size
from seqkit.testing.laws import Law, laws_for
from seqkit.testing.long_laws import (
    FAR,
    columns_far_along_are_like_others,
    columns_read_the_past_alike,
    laws_of_long_texts,
    long_texts,
    refused_when_long,
)
from seqkit.testing.module_laws import (
    DTYPE_LAWS,
    MODULE_LAWS,
    builds_and_saves_all_weights,
    edges_matter,
    gradients_are_right,
)
from seqkit.testing.process import fixed_generator, seeded

KINDS = ("text", "image", "series", "graph", "joined", "joined graphs")
"""Tokens over which a backbone is checked. Those of fields reach a backbone as those of a text do: as embeddings with a
position each."""


@takes_device
def check_embedded_backbone(
    spec: TokenSpec, backbone: Backbone, examples: Sequence[Tokens], **options: Unpack[Options]
) -> Checked:
    """Checks every law that applies to `backbone` on `examples` of one tokenizer; returns the laws that were checked.

    An adjacency that the backbone does not support is dropped first. examples: two or more, of different lengths >= 2.
    options: `Options`.
    Raises AssertionError with the name of the law and the fault.
    """
    if len({len(x) for x in examples}) < 2 or min(map(len, examples)) < 2:
        raise ValueError(
            f"examples have {[len(x) for x in examples]} tokens; give two or more lengths, all of 2 or more"
        )
    checks = Checks(**options)
    _check_all(checks, laws_for, spec, backbone, examples)
    _check_all(checks, [inputs_have_unit_size], spec, backbone, examples)
    return checks.finish(type(backbone).__name__)


@takes_device
def check_backbone(
    build: Callable[..., Backbone],
    *,
    dim: int = 24,
    causal: Sequence[bool | None] = (False, True),
    kinds: Sequence[str] = KINDS,
    **options: Unpack[Options],
) -> Checked:
    """Checks every law over synthetic texts, images, series and graphs; returns the laws that were checked.

    build: `(dim, causal=...) -> Backbone`, without dropout. dim: width of the backbone. causal: values of `causal` to
    build it with; None (as the batch says) is checked as False, as True and with other reaches.
    kinds: names of tokens in `synthetic`; fewer are enough where the others would run the same code.
    options: `Options`. `left_out` of the result has what was not checked, and why.
    Tokens that the backbone refuses with ValueError in `check_supported`, texts of 70 and of 300 tokens that it refuses
    in `forward`, and a cache that it refuses in `init_cache`, are left out.
    Raises AssertionError with the class, the law, the example and the fault.

    >>> from functools import partial
    >>> from seqkit.backbones import GRU
    >>> checked = check_backbone(partial(GRU, depth=1), kinds=["text"], causal=[True], quick=True)
    >>> len(checked), [law.__name__ for law in checked][-1]
    (20, 'caches_are_apart')
    """
    checks = Checks(**options)
    return checks.finish(check_kinds(checks, build, dim=dim, causal=causal, kinds=kinds))


def check_kinds(
    checks: Checks,
    build: Callable[..., Backbone],
    *,
    dim: int,
    causal: Sequence[bool | None] = (False, True),
    kinds: Sequence[str] = KINDS,
) -> str:
    """Checks the laws of backbones; returns the name of the class. The arguments are those of `check_backbone`."""
    name = ""
    for is_causal in causal:
        builds = partial(build, dim, causal=is_causal)
        is_supported = False
        for kind in kinds:
            spec, examples = synthetic()[kind]
            backbone = _built(builds)
            name = type(backbone).__name__
            if (backbone.dim, backbone.causal) != (dim, is_causal):
                has = f"it has dim={backbone.dim}, causal={backbone.causal}"
                raise AssertionError(f"built with dim={dim}, causal={is_causal}; {has}")
            if not _supports(backbone, spec):
                continue
            is_supported = True
            checks.kind = f" [{kind}]"
            _check_all(checks, MODULE_LAWS, spec, backbone, examples)
            _check_all(checks, laws_for, spec, backbone, examples)
            if kind == "text":
                _check_long_texts(checks, builds, examples)
            # last, as others say more exactly what is wrong
            if kind == "graph" and backbone.supports_adjacency:
                _check_all(checks, [edges_matter], spec, backbone, examples)
        if not is_supported:
            raise AssertionError(f"{name} supports neither texts, images, series nor graphs")
    return name


def _built(build: Callable[[], Backbone]) -> Backbone:
    with seeded(0):
        return build()


def _supports(backbone: Backbone, spec: TokenSpec) -> bool:
    """Whether a backbone takes tokens of that spec, along their edges if it supports any."""
    try:
        backbone.check_supported(spec)
    except ValueError:
        return False
    return not (
        spec.is_joined
        and spec.num_edge_types
        and backbone.supports_adjacency
        and not backbone.joins_graphs
    )


def _check_all(
    checks: Checks,
    laws: Sequence[Law] | Callable[[EmbeddedBackbone, Sequence[Tokens]], list[Law]],
    spec: TokenSpec,
    backbone: Backbone,
    examples: Sequence[Tokens],
) -> None:
    """Checks laws of a copy of a backbone behind an embedder; both ways if it takes causality from the batch.

    laws: they, or a function that chooses them. An adjacency that the backbone does not support is dropped.
    """
    if spec.num_edge_types and not backbone.supports_adjacency:
        spec = spec.without_edges()
        examples = [replace(x, adjacency=None) for x in examples]
    for causal in (False, True) if backbone.causal is None else (backbone.causal,):
        with seeded(0):
            copied = copy.deepcopy(backbone)
            leave_zero(copied)
            model = EmbeddedBackbone(spec, copied, causal=causal)
        for law in laws(model, examples) if callable(laws) else laws:
            _check(checks, model, law, model, examples)


def _check_long_texts(
    checks: Checks, build: Callable[[], Backbone], short: Sequence[Tokens]
) -> None:
    """Laws over texts of 1 to 300 tokens, and over the backbone built several times."""
    spec, examples = long_texts()
    model = EmbeddedBackbone(spec, _built(build), causal=True)
    _check(checks, model, builds_and_saves_all_weights, build, spec, short)
    leave_zero(model.backbone)
    if refused_when_long(model, examples):
        return
    for law in laws_of_long_texts(model):
        _check(checks, model, law, model, examples)
    # behind the border of chunks of 64
    _check(checks, model, gradients_are_right, model, examples[:1])
    _, far = long_texts(FAR)
    if not checks.quick and refused_when_long(model, far):
        far = examples
    else:
        _check(checks, model, columns_far_along_are_like_others, model, far)
    if model.causal:
        _check(checks, model, columns_read_the_past_alike, model, far)


def _check(checks: Checks, model: EmbeddedBackbone, law: Callable[..., None], *given: Any) -> None:
    """Checks one law; the error that it raises names class and law."""
    name = type(model.backbone).__name__
    causal = model.backbone.causal
    if causal is not None:
        way = ""
    elif model.causal:
        way = " in a causal batch"
    else:
        way = " in a bidirectional batch"
    again = None if law in DTYPE_LAWS else InFloat64
    checks.check(law, f"{name}(causal={causal}){way}", *given, again=again)


def synthetic() -> dict[str, tuple[TokenSpec, list[Tokens]]]:
    """Spec and examples of each modality, made without a tokenizer; the same every time."""
    g = fixed_generator()
    text = [
        Tokens(torch.randint(11, (n,), generator=g), torch.arange(float(n))[:, None])
        for n in (7, 5, 8)
    ]
    grids = [torch.cartesian_prod(torch.arange(float(h)), torch.arange(3.0)) for h in (3, 2)]
    image = [Tokens(torch.randn(len(grid), 5, generator=g), grid) for grid in grids]
    series = [
        Tokens(torch.randn(n, 2, generator=g), torch.rand(n, 1, generator=g).cumsum(0) * 3)
        for n in (5, 7)
    ]
    graph = []
    # a node with more neighbours than a sample of eight
    star = torch.stack([torch.arange(9), torch.full((9,), 9)])
    for n, way in ((7, torch.stack([torch.arange(5), torch.arange(1, 6)])), (11, star)):
        # token 0 attends to token 3, and 3 not to 0; the last node is alone
        one_way = torch.tensor([[3], [0]])
        edge_type = F.pad(
            repeat(torch.arange(way.shape[1]) % 2 + 1, "e -> (two e)", two=2), [0, 1], value=2
        )
        adjacency = Adjacency(torch.cat([way.flip(0), way, one_way], dim=1), edge_type)
        graph.append(Tokens(torch.randn(n, 3, generator=g), torch.zeros(n, 0), adjacency))
    sizes = (7, 3, 5)
    fields = [
        Tokens(
            torch.stack([torch.randint(size, (n,), generator=g) for size in sizes], dim=1),
            torch.arange(float(n))[:, None],
            features=torch.randn(n, 2, generator=g),
        )
        for n in (5, 8)
    ]
    of_text = TokenSpec(vocab_size=11)
    of_series = TokenSpec(num_features=2)
    of_graph = TokenSpec(num_features=3, num_axes=0, num_edge_types=2)
    parts = TokenSpec(parts=(("text", of_text), ("series", of_series)))
    with_graphs = TokenSpec(parts=(("text", of_text), ("graph", of_graph)))
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
        "text": (of_text, text),
        "image": (TokenSpec(num_features=5, num_axes=2), image),
        "series": (of_series, series),
        "graph": (of_graph, graph),
        "fields": (TokenSpec(vocab_sizes=sizes, num_features=2), fields),
        "joined": (parts, joined),
        "joined graphs": (with_graphs, graphs),
    }
