"""Laws of every backbone as a module: output, side effects, declared features, dtypes, and saved weights.

b batch · n tokens · d width
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from seqkit.interfaces import Adjacency, Backbone, TokenBatch, Tokens, TokenSpec
from seqkit.testing.checks import NotCheckedError
from seqkit.testing.laws import TOLERANCE, EmbeddedBackbone, assert_same, fixed_generator, with_cause
from seqkit.testing.process import generators, left_alone, same, seeded

FLOAT32 = 1e-2
"""Median difference of hidden states in float32, as a share of their size, that is no fault. Single tokens may differ
by more: if nearest neighbours are looked up, rounding may choose others."""

STEPS = (1e-5, 1e-6, 1e-7)
"""Lengths of the steps of finite differences, in float64; their error is about the square."""

COLUMNS_ADVICE = "declare knows_columns=True, or use the positions"
"""Advice for the author of a backbone about its use of the columns' indices."""

SLOPE = 1e-4
"""Difference of a gradient and a finite difference, as a share of the larger, that is no fault."""


def gives_hidden_states_of_its_width(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """Hidden states are finite, of the input's dtype, and [b n d] with d the backbone's `dim`."""
    embedded = model.embed(TokenBatch.collate(examples))
    hidden = model.backbone(embedded)
    if not isinstance(hidden, Tensor):
        raise AssertionError(f"forward gives a {type(hidden).__name__}; give the hidden states [b n d] alone")
    expected = [*embedded.valid.shape, model.backbone.dim]
    if list(hidden.shape) != expected:
        raise AssertionError(f"hidden states are {list(hidden.shape)}, not [b n d] = {expected}")
    if hidden.dtype != embedded.hidden.dtype:
        raise AssertionError(f"hidden states are {hidden.dtype} for an input of {embedded.hidden.dtype}")
    if not bool(torch.isfinite(hidden).all()):
        raise AssertionError("hidden states are not finite (NaN or infinite)")


def is_deterministic(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """In eval mode, the same batch gives the same hidden states: again, after others, without gradients, as a copy."""
    batch = TokenBatch.collate(examples)
    with seeded(1):
        expected = model(batch)
    with seeded(2):
        assert_same(model(batch), expected, "the same batch gives other hidden states a second time")
        for i, x in enumerate(examples):
            model(TokenBatch.collate([x]))
            assert_same(model(batch), expected, f"after example {i}, the same batch gives other hidden states")
        with torch.no_grad():
            assert_same(model(batch), expected, "without gradients, the same batch gives other hidden states")
        duplicate = copy.deepcopy(model)
        assert_same(duplicate(batch), expected, "a deep copy gives other hidden states")


def leaves_input_and_process_alone(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """The input does not change, nothing is printed, and the generators and settings of torch and Python stay."""
    embedded = model.embed(TokenBatch.collate(examples))
    tensors = {name: getattr(embedded, name) for name in ("hidden", "positions", "valid")}
    before = {name: x.clone() for name, x in tensors.items()}
    for first in (True, False):
        with seeded(7 + first), left_alone("forward", imports=first):
            model.backbone(replace(embedded, hidden=embedded.hidden.detach()))
    for name, x in tensors.items():
        if not torch.equal(x, before[name]):
            raise AssertionError(f"forward changes {name} of its input in place")


def uses_positions_as_it_says(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """Other positions change the hidden states if `uses_positions`, and nothing otherwise: the embedder has added them.
    A backbone that `is_recurrent` knows the order of columns, one that `ignores_order` does not, and any other uses it
    only if it `knows_columns`."""
    backbone, differs, knows_columns = model.backbone, False, False
    long = [x for x in examples if len(x) > 2]
    if model.spec.num_axes == 0 or not long:
        return
    for i, x in enumerate(long):
        order = torch.randperm(len(x), generator=fixed_generator())
        order = order.flip(0) if bool((order == torch.arange(len(x))).all()) else order
        embedded = model.embed(TokenBatch.collate([x]))
        hidden = backbone(embedded)
        moved = backbone(replace(embedded, positions=embedded.positions[:, order]))
        change = float((moved - hidden).detach().abs().max())
        differs |= change > TOLERANCE
        if change > TOLERANCE and not backbone.uses_positions:
            raise AssertionError(
                f"positions change the hidden states of example {i}, but uses_positions is False: they are added to "
                "the embeddings, too; declare uses_positions=True"
            )
        if x.adjacency is None and not model.causal:
            mixed = replace(embedded, hidden=embedded.hidden[:, order], positions=embedded.positions[:, order])
            knows_columns |= float((backbone(mixed) - hidden[:, order]).detach().abs().max()) > TOLERANCE
    if backbone.uses_positions and not differs:
        raise AssertionError("uses_positions is True, but other positions give the same hidden states: none are added")
    for axis in range(model.spec.num_axes) if backbone.uses_positions and model.spec.num_axes > 1 else ():
        if not any(_axis_matters(model, x, axis) for x in long):
            raise AssertionError(
                f"uses_positions is True, but other positions on axis {axis} give the same hidden states: add each axis"
            )
    if model.causal or long[0].adjacency is not None:
        return
    if knows_columns and not (backbone.is_recurrent or backbone.knows_columns or backbone.ignores_order):
        raise AssertionError(
            "tokens in another order, with their positions, give other hidden states: it uses the columns' indices; "
            f"{COLUMNS_ADVICE}"
        )
    if backbone.is_recurrent and not backbone.ignores_order and not knows_columns:
        raise AssertionError(
            "is_recurrent is True, but tokens in another order give the same hidden states: nothing tells it the order"
        )
    if backbone.ignores_order and knows_columns:
        raise AssertionError("ignores_order is True, but tokens in another order give other hidden states")


def works_in_float32(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """In float32, in which models are trained, hidden states are float32 and near those in float64."""
    batch = TokenBatch.collate(examples)
    expected = model(batch)
    backbone = copy.deepcopy(model.backbone).float()
    embedded = model.embed(batch)
    embedded = replace(embedded, hidden=embedded.hidden.float(), positions=embedded.positions.float())
    try:
        got = backbone(embedded)
    except RuntimeError as error:
        raise AssertionError(f"it does not run in float32: {' '.join(str(error).split())}") from None
    if got.dtype != torch.float32:
        raise AssertionError(f"hidden states are {got.dtype} for an input in float32")
    difference = (got.double() - expected).detach().abs().amax(dim=-1)[batch.valid]
    size = float(expected.detach().abs().max())
    if not bool(torch.isfinite(got).all()) or float(difference.median()) > FLOAT32 * size:
        raise AssertionError(f"in float32, hidden states of size {size:.2g} differ by {float(difference.median()):.2g}")


def training_mates_change_nothing(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """In training mode, too, an example gives the same hidden states in a batch as alone, if nothing is random.

    Normalisation over the batch would let padding and other examples into the gradients.
    """
    model, batch = copy.deepcopy(model).train(), TokenBatch.collate(examples)
    together, draws = _trained(model, batch)
    for i, x in enumerate(examples):
        with seeded(1):
            alone = model(TokenBatch.collate([x]))[0]
        got, fault = together[i, : len(x)], f"in training mode, batch mates change example {i}"
        _assert_same_unless(draws, got, alone, with_cause(fault, model, x, got, alone))


def _trained(model: EmbeddedBackbone, batch: TokenBatch) -> tuple[Tensor, bool]:
    """Hidden states in training mode, and whether it draws from a global generator, which may show in few batches.

    Raises NotCheckedError if another seed gives others.
    """
    with seeded(1):
        before = generators()
        hidden = model(batch)
        draws = not same(before, generators())
    with seeded(2):
        again = model(batch)
    _assert_same_unless(True, again, hidden, "")
    return hidden, draws


def _assert_same_unless(random: bool, got: Tensor, expected: Tensor, fault: str) -> None:
    """Raises AssertionError if two tensors differ, and NotCheckedError if what is random may be the reason."""
    if random and not torch.allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE):
        raise NotCheckedError("random in training")
    assert_same(got, expected, fault)


def _axis_matters(model: EmbeddedBackbone, x: Tokens, axis: int) -> bool:
    """Whether other positions on one axis change the hidden states."""
    order = torch.randperm(len(x), generator=fixed_generator())
    embedded = model.embed(TokenBatch.collate([x]))
    positions = embedded.positions.clone()
    positions[..., axis] = positions[:, order, axis]
    moved = model.backbone(replace(embedded, positions=positions))
    return float((moved - model.backbone(embedded)).detach().abs().max()) > TOLERANCE


def edges_matter(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """Backbones that support adjacency: other types of edges give their targets other hidden states.

    One edge of each pair of types is enough: a rectifier may hide the others.
    """
    num_types = model.spec.num_edge_types
    if num_types < 2 or not model.backbone.supports_adjacency:
        return
    model, generator = copy.deepcopy(model), fixed_generator()
    with torch.no_grad():
        for parameter in model.parameters():  # what is learned of edge types may start at zero
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    seen: dict[tuple[int, int], list[bool]] = {}
    for x in examples:
        if x.adjacency is None or not len(x.adjacency.edge_type):
            continue
        (source, target), edge_type = x.adjacency.edge_index, x.adjacency.edge_type
        changes = [edge for edge in range(len(edge_type)) if not (model.causal and source[edge] > target[edge])]
        types = edge_type.repeat(1 + len(changes), 1)  # of the example, and with one edge changed at a time
        for row, edge in enumerate(changes, start=1):
            types[row, edge] = types[row, edge] % num_types + 1
        batch = TokenBatch.collate([x] * len(types))
        assert batch.adjacency is not None
        with torch.no_grad():
            hidden = model(replace(batch, adjacency=Adjacency(batch.adjacency.edge_index, types.flatten())))
        for row, edge in enumerate(changes, start=1):
            differs = float((hidden[row] - hidden[0])[target[edge]].abs().max()) > TOLERANCE
            seen.setdefault((int(edge_type[edge]), int(types[row, edge])), []).append(differs)
    for (one, two), differ in seen.items():
        if not any(differ):
            raise AssertionError(
                f"edges of type {two} in place of {one} give their targets the same hidden states; add what "
                "add_edge_bias learns, or refuse edges of several types in check_supported"
            )


def one_seed_trains_alike(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """In training mode, the seed of the global generators decides everything that is drawn, as dropout does."""
    batch, hidden = TokenBatch.collate(examples), []
    for _ in range(2):
        copied = copy.deepcopy(model).train()
        with seeded(1):
            hidden.append(copied(batch))
    fault = "in training mode, one seed gives other hidden states a second time; draw by torch's global generator"
    assert_same(hidden[1], hidden[0], fault)


def training_equals_eval(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """Without dropout, training mode gives the hidden states of eval mode, if nothing is random."""
    batch = TokenBatch.collate(examples)
    hidden, draws = _trained(copy.deepcopy(model).train(), batch)
    fault = "nothing is random, but training mode gives other hidden states than eval mode"
    _assert_same_unless(draws, hidden, model(batch), fault)


def _product(gradient: Tensor, step: Tensor) -> float:
    """Change of the value along a step; a complex number is two real ones."""
    if gradient.is_complex():
        gradient, step = torch.view_as_real(gradient), torch.view_as_real(step)
    return float((gradient * step).sum())


def _is_near(got: float, right: float) -> bool:
    return abs(got - right) <= SLOPE * max(abs(got), abs(right), 1.0)


def gradients_are_right(model: EmbeddedBackbone, examples: Sequence[Tokens]) -> None:
    """Gradients equal finite differences along a random direction, of the embeddings and of each parameter."""
    generator, backbone = fixed_generator(), copy.deepcopy(model.backbone)
    embedded = model.embed(TokenBatch.collate(examples))
    # equal tokens have equal scores, and which of them is among the best changes there: a point beside has a slope
    noise = 0.01 * torch.randn(embedded.hidden.shape, generator=fixed_generator(), dtype=embedded.hidden.dtype)
    leaf = (embedded.hidden.detach() + noise.masked_fill(~embedded.valid[..., None], 0.0)).requires_grad_()
    embedded = replace(embedded, hidden=leaf)
    values = {"the embeddings": leaf} | {name: p for name, p in backbone.named_parameters() if p.requires_grad}
    steps = {name: torch.randn(p.shape, generator=generator, dtype=p.dtype) for name, p in values.items()}
    steps["the embeddings"] = steps["the embeddings"].masked_fill(~embedded.valid[..., None], 0.0)
    mixture = torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype)
    found = torch.autograd.grad((backbone(embedded) * mixture).sum(), list(values.values()), allow_unused=True)
    slopes = {n: 0.0 if g is None else _product(g, steps[n]) for n, g in zip(values, found, strict=True)}

    def difference(names: Sequence[str], step: float) -> float:
        ends: list[Tensor] = []
        with torch.no_grad():
            for sign in (1.0, -2.0, 1.0):  # there, to the other side, and back
                for name in names:
                    values[name].add_(steps[name], alpha=sign * step)
                if len(ends) < 2:
                    ends.append((backbone(embedded) * mixture).sum())
        return float(ends[0] - ends[1]) / (2 * step)

    def slope(names: Sequence[str]) -> float | None:
        """Slope on which two lengths of step agree; None at a jump, such as the choice of an expert."""
        found = (difference(names, step) for step in STEPS)  # the last is seldom needed
        return next((shorter for longer, shorter in pairwise(found) if _is_near(longer, shorter)), None)

    def is_right(names: Sequence[str]) -> bool:
        right = slope(names)
        return right is None or _is_near(sum(slopes[name] for name in names), right)

    embeddings, *parameters = values
    if is_right([embeddings]) and is_right(parameters):
        return
    for name in values:
        if not is_right([name]):
            raise AssertionError(
                f"the gradient of {name} is {slopes[name]:.4g} along a random direction, and finite differences are "
                f"{slope([name]):.4g}; is something detached, or a backward of its own wrong? If it is meant to be an "
                "estimate, such as straight-through, put this law into expected_failures"
            )


MODULE_LAWS = (
    gives_hidden_states_of_its_width,
    is_deterministic,
    leaves_input_and_process_alone,
    uses_positions_as_it_says,
    works_in_float32,
    one_seed_trains_alike,
    training_mates_change_nothing,
    training_equals_eval,
    gradients_are_right,
)
"""Laws over any spec and examples."""

DTYPE_LAWS = (gives_hidden_states_of_its_width, works_in_float32)
"""Laws about the dtype itself."""

LATE_LAWS = (edges_matter,)
"""Laws that are checked after all others, which say more exactly what is wrong."""


def builds_and_saves_all_weights(build: Callable[[], Backbone], spec: TokenSpec, examples: Sequence[Tokens]) -> None:
    """The seed decides the weights, state_dict holds all of them, and no weight comes later.

    build: makes a new backbone.
    """
    with seeded(3), left_alone("building it", imports=True, draws=True):
        build()
    batch = TokenBatch.collate(examples)
    models, drawn = [], []
    for seed in (0, 0, 1):
        with seeded(seed):
            models.append(build())
            drawn.append(generators())
    names = {value.untyped_storage().data_ptr(): name for name, value in _saved(models[0]).items()}
    for name, value in _saved(models[1]).items():
        if value.untyped_storage().data_ptr() in names:
            raise AssertionError(f"two that are built have one storage for {name}: training one changes the other")
    embedders = []
    for backbone in models:
        with seeded(5):
            embedders.append(EmbeddedBackbone(spec, backbone))
    one, again, other = embedders
    for (name, value), same_name in zip(one.backbone.state_dict().items(), again.backbone.state_dict(), strict=True):
        if name != same_name or not torch.equal(value, again.backbone.state_dict()[name]):
            raise AssertionError(f"built twice from one seed, it has other weights ({name}); draw them by torch")
    own = [(p, q) for p, q in zip(one.backbone.parameters(), other.backbone.parameters(), strict=True) if p.numel() > 1]
    # weights that start at chosen values, as the identity, are the same without that
    is_seeded = any(state is not None and same(state, drawn[2][name]) for name, state in drawn[0].items())
    if own and is_seeded and all(torch.equal(p, q) for p, q in own):
        raise AssertionError("built from two seeds, it has the same weights: it seeds the generator itself")
    before = [name for name, _ in one.backbone.named_parameters()]
    expected = one(batch)
    after = [name for name, _ in one.backbone.named_parameters()]
    if before != after:
        new = [name for name in after if name not in before] or before
        raise AssertionError(
            f"parameter {new[0]} comes or goes in forward, where no optimizer knows it; build it first"
        )
    assert_same(again(batch), expected, "built twice from one seed, it gives other hidden states")
    other.backbone.load_state_dict(one.backbone.state_dict())
    fault = "another one that loaded its state_dict gives other hidden states: weights are outside of it; register them"
    assert_same(other(batch), expected, fault)


def _saved(backbone: Backbone) -> dict[str, Tensor]:
    """Its parameters and saved buffers that hold numbers."""
    return {name: x for name, x in backbone.state_dict().items() if isinstance(x, Tensor) and x.numel()}
