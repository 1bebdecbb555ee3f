"""Laws of every backbone as a module: output, side effects, declared features, dtypes, and saved weights.

b batch · n tokens · d width
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from seqkit.interfaces import Backbone, TokenBatch, Tokens, TokenSpec
from seqkit.testing.laws import TOLERANCE, EmbeddedBackbone, assert_same, fixed_generator
from seqkit.testing.process import left_alone, seeded

FLOAT32 = 1e-2
"""Median difference of hidden states in float32, as a share of their size, that is no fault. Single tokens may differ
by more: if nearest neighbours are looked up, rounding may choose others."""


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
    A backbone that `is_recurrent` knows the order of columns, and one that `ignores_order` does not."""
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
        if x.adjacency is None and not backbone.causal and not backbone.uses_positions:
            mixed = backbone(replace(embedded, hidden=embedded.hidden[:, order]))
            knows_columns |= float((mixed - hidden[:, order]).detach().abs().max()) > TOLERANCE
    if backbone.uses_positions and not differs:
        raise AssertionError("uses_positions is True, but other positions give the same hidden states: none are added")
    if backbone.causal or backbone.uses_positions or long[0].adjacency is not None:
        return
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
    with seeded(1):
        together = model(batch)
    with seeded(2):
        if not torch.allclose(model(batch), together, rtol=TOLERANCE, atol=TOLERANCE):
            return
    for i, x in enumerate(examples):
        with seeded(1):
            alone = model(TokenBatch.collate([x]))[0]
        assert_same(together[i, : len(x)], alone, f"in training mode, batch mates change example {i}")


MODULE_LAWS = (
    gives_hidden_states_of_its_width,
    is_deterministic,
    leaves_input_and_process_alone,
    uses_positions_as_it_says,
    works_in_float32,
    training_mates_change_nothing,
)
"""Laws over any spec and examples."""


def builds_and_saves_all_weights(build: Callable[[], Backbone], spec: TokenSpec, examples: Sequence[Tokens]) -> None:
    """The seed decides the weights, state_dict holds all of them, and no weight comes later.

    build: makes a new backbone.
    """
    with seeded(3), left_alone("building it", imports=True, draws=True):
        build()
    batch = TokenBatch.collate(examples)
    models = []
    for seed in (0, 0, 1):
        with seeded(seed):
            models.append(build())
    embedders = []
    for backbone in models:
        with seeded(5):
            embedders.append(EmbeddedBackbone(spec, backbone))
    one, again, other = embedders
    for (name, value), same_name in zip(one.backbone.state_dict().items(), again.backbone.state_dict(), strict=True):
        if name != same_name or not torch.equal(value, again.backbone.state_dict()[name]):
            raise AssertionError(f"built twice from one seed, it has other weights ({name}); draw them by torch")
    own = [(p, q) for p, q in zip(one.backbone.parameters(), other.backbone.parameters(), strict=True) if p.numel() > 1]
    if own and all(torch.equal(p, q) for p, q in own) and any(bool((p != p.flatten()[0]).any()) for p, _ in own):
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
