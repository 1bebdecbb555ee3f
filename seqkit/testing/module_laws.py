"""Laws of every backbone as a module: output, side effects, declared features, dtypes, and saved weights.

b batch · n tokens · d width
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from seqkit.interfaces import Adjacency, Backbone, TokenBatch, TokenSpec
from seqkit.testing.checks import NotCheckedError
from seqkit.testing.embedded_backbone import EmbeddedBackbone, Examples
from seqkit.testing.laws import assert_as_alone, other_order
from seqkit.testing.process import fixed_generator, generators, left_alone, same, seeded
from seqkit.testing.tolerance import assert_same, is_same

FLOAT32 = 1e-4
"""Median difference of hidden states in float32, as a share of their size, that is no fault. Single tokens may differ
by more: if nearest neighbours are looked up, rounding may choose others."""

STEPS = (1e-5, 1e-6, 1e-7)
"""Lengths of the steps of finite differences, in float64; their error is about the square."""

SLOPE = 1e-4
"""Difference of a gradient and a finite difference, as a share of the larger, that is no fault."""


def gives_hidden_states_of_its_width(model: EmbeddedBackbone, examples: Examples) -> None:
    """Hidden states are finite, of the input's dtype, and [b n d] with d the backbone's `dim`."""
    embedded = model.embed(TokenBatch.collate(examples))
    hidden = model.backbone(embedded)
    if not isinstance(hidden, Tensor):
        raise AssertionError(
            f"forward gives a {type(hidden).__name__}; give the hidden states [b n d] alone"
        )
    expected = [*embedded.valid.shape, model.backbone.dim]
    if list(hidden.shape) != expected:
        raise AssertionError(f"hidden states are {list(hidden.shape)}, not [b n d] = {expected}")
    if hidden.dtype != embedded.hidden.dtype:
        raise AssertionError(
            f"hidden states are {hidden.dtype} for an input of {embedded.hidden.dtype}"
        )
    if not bool(torch.isfinite(hidden).all()):
        raise AssertionError("hidden states are not finite (NaN or infinite)")


def is_deterministic(model: EmbeddedBackbone, examples: Examples) -> None:
    """In eval mode, the same batch gives the same hidden states: again, after others, without gradients."""
    batch = TokenBatch.collate(examples)
    with seeded(1):
        expected = model(batch)
    with seeded(2):
        assert_same(
            model(batch), expected, "the same batch gives other hidden states a second time"
        )
        for i, x in enumerate(examples):
            model(TokenBatch.collate([x]))
            assert_same(
                model(batch),
                expected,
                f"after example {i}, the same batch gives other hidden states",
            )
        with torch.no_grad():
            assert_same(
                model(batch),
                expected,
                "without gradients, the same batch gives other hidden states",
            )


def leaves_input_and_process_alone(model: EmbeddedBackbone, examples: Examples) -> None:
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


def uses_positions_as_it_says(model: EmbeddedBackbone, examples: Examples) -> None:
    """Other positions change the hidden states if `uses_positions`, and else nothing: the embedder has added them."""
    backbone = model.backbone
    num_axes = model.spec.num_axes
    used = [False] * num_axes
    for x in (x for x in examples if len(x) > 2 and num_axes):
        order = other_order(len(x))
        embedded = model.embed(TokenBatch.collate([x]))
        hidden = backbone(embedded)
        for axis in range(num_axes):
            positions = embedded.positions.clone()
            positions[..., axis] = positions[:, order, axis]
            used[axis] |= not is_same(backbone(replace(embedded, positions=positions)), hidden)
    if any(used) and not backbone.uses_positions:
        raise AssertionError(
            "positions change the hidden states, but uses_positions is False: they are added to the embeddings, too; "
            "declare uses_positions=True"
        )
    for axis in range(num_axes) if backbone.uses_positions else ():
        if not used[axis]:
            raise AssertionError(
                f"uses_positions is True, but other positions on axis {axis} give the same hidden states: add each axis"
            )


def knows_columns_as_it_says(model: EmbeddedBackbone, examples: Examples) -> None:
    """Tokens in another order, with their positions, give other hidden states if the backbone `is_recurrent`, never if
    it `ignores_order`, and else only if it `knows_columns`."""
    backbone = model.backbone
    if not model.spec.num_axes or model.causal or examples[0].adjacency is not None:
        return
    knows_columns = False
    for x in (x for x in examples if len(x) > 2):
        order = other_order(len(x))
        embedded = model.embed(TokenBatch.collate([x]))
        mixed = replace(
            embedded, hidden=embedded.hidden[:, order], positions=embedded.positions[:, order]
        )
        knows_columns |= not is_same(backbone(mixed), backbone(embedded)[:, order])
    if knows_columns and not (
        backbone.is_recurrent or backbone.knows_columns or backbone.ignores_order
    ):
        raise AssertionError(
            "tokens in another order, with their positions, give other hidden states: it uses the columns' indices; "
            "declare knows_columns=True, or use the positions. A mechanism gets none: write what depends on the "
            "distance as a RelativePosition (docs/write-a-backbone.md), or leave AttentionFeature.UNORDERED out of "
            "`supports`"
        )
    if backbone.is_recurrent and not backbone.ignores_order and not knows_columns:
        raise AssertionError(
            "is_recurrent is True, but tokens in another order give the same hidden states: nothing tells it the order"
        )
    if backbone.ignores_order and knows_columns:
        raise AssertionError(
            "ignores_order is True, but tokens in another order give other hidden states"
        )


def works_in_float32(model: EmbeddedBackbone, examples: Examples) -> None:
    """In float32, in which models are trained, hidden states are float32 and near those in float64."""
    batch = TokenBatch.collate(examples)
    expected = model(batch)
    embedded = model.embed(batch)
    embedded = replace(
        embedded, hidden=embedded.hidden.float(), positions=embedded.positions.float()
    )
    try:
        got = copy.deepcopy(model.backbone).float()(embedded)
    except RuntimeError as error:
        raise AssertionError(
            f"it does not run in float32: {' '.join(str(error).split())}"
        ) from None
    if got.dtype != torch.float32:
        raise AssertionError(f"hidden states are {got.dtype} for an input in float32")
    difference = float((got.double() - expected).detach().abs().amax(dim=-1)[batch.valid].median())
    size = float(expected.detach().abs().max())
    if not difference <= FLOAT32 * size:
        raise AssertionError(
            f"in float32, hidden states of size {size:.2g} differ by {difference:.2g}"
        )


def training_mates_change_nothing(model: EmbeddedBackbone, examples: Examples) -> None:
    """In training mode, too, an example gives the same hidden states in a batch as alone, if nothing is random.

    Normalisation over the batch would let padding and other examples into the gradients.
    """
    model = copy.deepcopy(model).train()
    with _if_not_random(model, TokenBatch.collate(examples)):
        alone = []
        for x in examples:
            with seeded(1):
                alone.append(model(TokenBatch.collate([x]))[0])
        with seeded(1):
            assert_as_alone(model, examples, alone, where="in training mode, ")


def one_seed_trains_alike(model: EmbeddedBackbone, examples: Examples) -> None:
    """In training mode, the seed of the global generators decides everything that is drawn, as dropout does."""
    batch = TokenBatch.collate(examples)
    hidden = []
    for _ in range(2):
        copied = copy.deepcopy(model).train()
        with seeded(1):
            hidden.append(copied(batch))
    fault = "in training mode, one seed gives other hidden states a second time; draw by torch's global generator"
    assert_same(hidden[1], hidden[0], fault)


def training_equals_eval(model: EmbeddedBackbone, examples: Examples) -> None:
    """Without dropout, training mode gives the hidden states of eval mode, if nothing is random."""
    batch = TokenBatch.collate(examples)
    copied = copy.deepcopy(model).train()
    with _if_not_random(copied, batch), seeded(1):
        fault = "nothing is random, but training mode gives other hidden states than eval mode"
        assert_same(copied(batch), model(batch), fault)


@contextlib.contextmanager
def _if_not_random(model: EmbeddedBackbone, batch: TokenBatch) -> Iterator[None]:
    """Context of a law of a model in training mode. Raises NotCheckedError where it fails and the model draws."""
    with seeded(1):
        before = generators()
        hidden = model(batch)
        draws = not same(before, generators())
    with seeded(2):  # it may draw from a generator of its own
        draws |= not is_same(model(batch), hidden)
    try:
        yield
    except AssertionError:
        if draws:
            raise NotCheckedError("random in training") from None
        raise


def edges_matter(model: EmbeddedBackbone, examples: Examples) -> None:
    """Backbones that support adjacency: other types of edges give other hidden states."""
    num_types = model.spec.num_edge_types
    model = copy.deepcopy(model)
    generator = fixed_generator()
    with torch.no_grad():
        for parameter in model.parameters():  # what is learned of edge types may start at zero
            parameter.add_(
                0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            )
    batch = TokenBatch.collate(examples)
    assert batch.adjacency is not None
    edge_index = batch.adjacency.edge_index
    edge_type = batch.adjacency.edge_type
    for one in range(1, num_types + 1):
        two = one % num_types + 1
        other = Adjacency(edge_index, edge_type.masked_fill(edge_type == one, two))
        if bool((edge_type == one).any()) and is_same(
            model(replace(batch, adjacency=other)), model(batch)
        ):
            raise AssertionError(
                f"edges of type {two} in place of {one} give the same hidden states; add what add_edge_bias learns, "
                "or refuse edges of several types in check_supported"
            )


def gradients_are_right(model: EmbeddedBackbone, examples: Examples) -> None:
    """Gradients equal finite differences along a random direction, of the embeddings and of each parameter."""
    if model.dtype != torch.float64:
        raise NotCheckedError("it does not run in float64")
    generator = fixed_generator()
    backbone = copy.deepcopy(model.backbone)
    embedded = model.embed(TokenBatch.collate(examples))

    def drawn(like: Tensor) -> Tensor:
        noise = torch.randn(like.shape, generator=generator, dtype=like.dtype)
        if like is leaf:
            return noise.masked_fill(~embedded.valid[..., None], 0.0)
        return noise

    leaf = embedded.hidden.detach()
    # equal tokens have equal scores, and which of them is among the best changes there: a point beside has a slope
    leaf.add_(drawn(leaf), alpha=0.01).requires_grad_()
    embedded = replace(embedded, hidden=leaf)
    values = {"the embeddings": leaf} | {
        f"backbone.{name}": p for name, p in backbone.named_parameters() if p.requires_grad
    }
    steps = {name: drawn(value) for name, value in values.items()}
    mixture = drawn(leaf)
    found = torch.autograd.grad(
        (backbone(embedded) * mixture).sum(), list(values.values()), allow_unused=True
    )
    slopes = {
        n: 0.0 if g is None else _product(g, steps[n]) for n, g in zip(values, found, strict=True)
    }

    def difference(names: Sequence[str], step: float) -> float:
        ends: list[Tensor] = []
        with torch.no_grad():
            for sign in (1.0, -2.0, 1.0):  # there, to the other side, and back
                for name in names:
                    values[name].add_(steps[name], alpha=sign * step)
                ends.append((backbone(embedded) * mixture).sum())
        return float(ends[0] - ends[1]) / (2 * step)

    def is_right(names: Sequence[str]) -> bool:
        """Whether gradients are the slope on which two lengths of step agree; at a jump, as of an expert, none do."""
        slope = [difference(names, step) for step in STEPS]
        agreed = [shorter for longer, shorter in pairwise(slope) if _is_near(longer, shorter)]
        return not agreed or _is_near(sum(slopes[name] for name in names), agreed[0])

    embeddings, *parameters = values
    for name in () if is_right([embeddings]) and is_right(parameters) else values:
        if not is_right([name]):
            raise AssertionError(
                f"the gradient of {name} is {slopes[name]:.4g} along a random direction, and finite differences are "
                f"{difference([name], STEPS[1]):.4g}; is something detached, or a backward of its own wrong? If it is "
                "meant to be an estimate, such as straight-through, put this law into expected_failures"
            )


def _product(gradient: Tensor, step: Tensor) -> float:
    """Change of the value along a step; a complex number is two real ones."""
    if gradient.is_complex():
        gradient = torch.view_as_real(gradient)
        step = torch.view_as_real(step)
    return float((gradient * step).sum())


def _is_near(got: float, right: float) -> bool:
    return abs(got - right) <= SLOPE * max(abs(got), abs(right), 1.0)


MODULE_LAWS = (
    gives_hidden_states_of_its_width,
    is_deterministic,
    leaves_input_and_process_alone,
    uses_positions_as_it_says,
    knows_columns_as_it_says,
    works_in_float32,
    one_seed_trains_alike,
    training_mates_change_nothing,
    training_equals_eval,
    gradients_are_right,
)
"""Laws over any spec and examples."""

DTYPE_LAWS = (gives_hidden_states_of_its_width, works_in_float32)
"""Laws about the dtype itself."""


def builds_and_saves_all_weights(
    build: Callable[[], Backbone], spec: TokenSpec, examples: Examples
) -> None:
    """The seed decides the weights, state_dict holds all of them, and no weight comes later.

    build: makes a new backbone.
    """
    models = []
    drawn = []
    for seed in (0, 0, 1):
        with seeded(seed):
            models.append(build())
            drawn.append(generators())
    first = _saved(models[0])
    names = {value.untyped_storage().data_ptr(): name for name, value in first.items()}
    for name, value in _saved(models[1]).items():
        if value.untyped_storage().data_ptr() in names:
            raise AssertionError(
                f"two that are built have one storage for {name}: training one changes the other"
            )
        if name not in first or not torch.equal(value, first[name]):
            raise AssertionError(
                f"built twice from one seed, it has other weights ({name}); draw them by torch"
            )
    if any(same(state, drawn[2][name]) for name, state in drawn[0].items()):
        raise AssertionError(
            "built from two seeds, it has the same weights: it seeds the generator itself"
        )
    with seeded(5):
        one = EmbeddedBackbone(spec, models[0])
    with seeded(5):
        other = EmbeddedBackbone(spec, models[2])
    before = [name for name, _ in one.backbone.named_parameters()]
    batch = TokenBatch.collate(examples)
    expected = one(batch)
    after = [name for name, _ in one.backbone.named_parameters()]
    if before != after:
        new = [name for name in after if name not in before] or before
        raise AssertionError(
            f"parameter {new[0]} comes or goes in forward, where no optimizer knows it; build it first"
        )
    other.backbone.load_state_dict(one.backbone.state_dict())
    fault = "another one that loaded its state_dict gives other hidden states: weights are outside of it; register them"
    assert_same(other(batch), expected, fault)


def _saved(backbone: Backbone) -> dict[str, Tensor]:
    """Its parameters and saved buffers that hold numbers."""
    return {
        name: x for name, x in backbone.state_dict().items() if isinstance(x, Tensor) and x.numel()
    }
