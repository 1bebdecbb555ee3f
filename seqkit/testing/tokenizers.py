"""Laws of every tokenizer; a function checks each, and raises AssertionError with the fault if it is broken.

b batch · n tokens · d width
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import torch
from torch import nn

from seqkit.errors import DataError, described
from seqkit.interfaces import TokenBatch, Tokenizer
from seqkit.interfaces.tokens import rounding
from seqkit.testing.another_process import can_be_pickled, is_the_same_in_another_process
from seqkit.testing.changed_raws import share_of, tried_places, unread_fields
from seqkit.testing.checks import Checked, Checks, NotCheckedError, Options
from seqkit.testing.embedded_backbone import EmbeddedBackbone
from seqkit.testing.encoded import (
    Raws,
    all_encoded,
    assert_same,
    difference,
    encoded,
    has_decode,
    same_spec,
    spec_of,
)
from seqkit.testing.laws import batch_mates_change_nothing, packed_equals_separate
from seqkit.testing.module_laws import (
    gives_hidden_states_of_its_width,
    training_mates_change_nothing,
)
from seqkit.testing.modules import AsBackbone
from seqkit.testing.process import left_alone, same, seeded, settings_of
from seqkit.testing.tokenizer_decode import decodes_any_id, decodes_what_it_encodes
from seqkit.testing.tokenizer_state import (
    fit_learns_what_state_saves,
    state_is_a_copy,
    state_is_json_and_enough,
)
from seqkit.testing.unseen import OF_OTHERS, encodes_the_rest_of_the_data

NUM_KEPT = 200
"""Number of encodings of another example after which tokens must be as they were."""

MAX_GAP = 1e6
"""Smallest distance of two positions that is no fault: seconds of days apart are below it, nanoseconds of samples above
it."""

MAX_EXACT = 2.0**24
"""Largest position up to which float32 has every whole number."""

ALL_READ = 0.75
"""Share of the places whose change should change the tokens. Every recipe has 1.0; a tokenizer that drops half of its
input has 0.5."""


def check_tokenizer(
    tokenizer: Tokenizer,
    raws: Sequence[Any],
    *,
    unfitted: Tokenizer | None = None,
    bad: Sequence[Any] = (),
    other_process: bool = True,
    **options: Unpack[Options],
) -> Checked:
    """Checks every law over your own examples, two or more; returns the laws that were checked.

    unfitted: tokenizer with the same settings that is not fitted: with the loaded state, it must encode alike. None: it
    is built from the attributes that have the names of the settings. bad: raws that `encode` must refuse with
    DataError. other_process: whether to encode in a new Python, too (some 3 s), as loaders on other machines do; a
    class that only this process has is left out. options: `Options`; a tokenizer runs on the CPU.
    Raises AssertionError with class, law, example and fault; ValueError for fewer than two raws, or if an unfitted
    tokenizer is needed and cannot be built.

    >>> from seqkit.tokenizers import Bytes
    >>> checked = check_tokenizer(Bytes(), ["to be", "or not"], quick=True)
    >>> len(checked), checked.left_out["keeps_no_buffer"]
    (16, 'takes long')
    """
    if not isinstance(tokenizer, Tokenizer):
        raise AssertionError(
            f"{type(tokenizer).__name__}: is_a_tokenizer: derive it from seqkit.Tokenizer"
        )
    if len(raws) < 2:
        raise ValueError(f"{len(raws)} raw examples; give two or more, so that they can be batched")
    checks = Checks(**options)
    name = type(tokenizer).__name__
    # a change that is made once does not show in examples, or in a tokenizer, that another law has used
    untouched = copy.deepcopy(raws)
    early = _copy_of(tokenizer)
    fresh = unfitted_like(tokenizer, unfitted)
    for law in OF_EXAMPLES:
        own = untouched if law is leaves_raw_examples_alone else raws
        checks.check(law, name, tokenizer, own)
    for law in OF_OTHERS:
        checks.check(law, name, tokenizer, raws)
    checks.check(any_order_gives_the_same, name, early, raws)
    if hasattr(tokenizer, "fit"):
        checks.check(encodes_the_rest_of_the_data, name, tokenizer, raws, fresh)
        checks.check(fit_learns_what_state_saves, name, tokenizer, raws, fresh)
    checks.check(state_is_json_and_enough, name, tokenizer, raws, fresh)
    checks.check(state_is_a_copy, name, tokenizer, raws, fresh)
    checks.check(refuses_with_a_reason, name, tokenizer, bad)
    if other_process:
        checks.check(is_the_same_in_another_process, name, tokenizer, raws, fresh)
    return checks.finish(name)


def _copy_of(tokenizer: Tokenizer) -> Tokenizer:
    """A deep copy, or the tokenizer itself if it cannot be copied, which a law says."""
    try:
        return copy.deepcopy(tokenizer)
    except Exception:  # the user's own code: whatever it raises
        return tokenizer


def unfitted_like(tokenizer: Tokenizer, unfitted: Tokenizer | None) -> Callable[[], Tokenizer]:
    """A function that builds unfitted tokenizers with the same settings. Raises ValueError if it does not know how."""
    if unfitted is not None:
        return lambda: copy.deepcopy(unfitted)
    cls = type(tokenizer)
    try:
        settings = settings_of(tokenizer)
    except LookupError as unknown:
        if not hasattr(tokenizer, "fit") and not tokenizer.state():
            return lambda: copy.deepcopy(tokenizer)  # it has no state
        raise ValueError(
            f"{cls.__name__} has settings that no attribute is named after ({unknown}); give unfitted=, one "
            "with the same settings that is not fitted: it must do the same once it has loaded the state"
        ) from None
    return lambda: cls(**copy.deepcopy(settings))


def keeps_its_spec(tokenizer: Tokenizer, raws: Raws) -> None:
    """Tokens match `spec`, lie on the CPU without gradients, and encoding does not change the spec."""
    before = spec_of(tokenizer)
    for i in range(len(raws)):
        tokens = encoded(tokenizer, raws, i)
        try:
            before.check(tokens)
        except DataError as error:
            raise AssertionError(f"example {i}: {error}") from None
        for name, value in tokens.tensors().items():
            where = ""
            if value.requires_grad:
                where = "requires a gradient"
            elif value.device.type != "cpu":
                where = f"is on {value.device.type}"
            if where:
                raise AssertionError(
                    f"example {i}: {name} {where}; a tokenizer has no weights and runs on the CPU"
                )
    if not same_spec(tokenizer.spec, before):
        raise AssertionError(f"encoding changed the spec from {before} to {tokenizer.spec}")


def is_deterministic(tokenizer: Tokenizer, raws: Raws) -> None:
    """The same raw example gives the same tokens: after others were encoded, and whatever the generators' state is."""
    with seeded(1):
        first = all_encoded(tokenizer, raws)
    with seeded(2):
        for i in reversed(range(len(raws))):
            assert_same(encoded(tokenizer, raws, i), first[i], f"example {i} encoded again")
    duplicates = copy.deepcopy(raws)
    for i, tokens in enumerate(first):
        assert_same(encoded(tokenizer, duplicates, i), tokens, f"an equal copy of example {i}")


def any_order_gives_the_same(tokenizer: Tokenizer, raws: Raws) -> None:
    """Copies that encode the examples from the first, and from the last, give the same: `encode` notes nothing, such as
    the longest example so far. tokenizer: one that has encoded none of them."""
    forwards = copy.deepcopy(tokenizer)
    backwards = copy.deepcopy(tokenizer)
    expected = all_encoded(forwards, raws)
    for i in reversed(range(len(raws))):
        what = f"example {i} encoded before those above it, and not after,"
        assert_same(encoded(backwards, raws, i), expected[i], what)


def keeps_no_buffer(tokenizer: Tokenizer, raws: Raws) -> None:
    """Tokens stay as they are while other examples are encoded: they are no view of a buffer that is filled again, of
    one or of a ring of several."""
    kept = [encoded(tokenizer, raws, i) for i in range(len(raws))]
    copies = [copy.deepcopy(tokens) for tokens in kept]
    fault = "changed while others were encoded: it is a view of a shared buffer, so clone it; it"
    # one alone: rings of any length up to that give its buffers to the other
    for j in (len(raws) - 1, 0):
        for _ in range(NUM_KEPT):
            encoded(tokenizer, raws, j)
        for i, (tokens, copied) in enumerate(zip(kept, copies, strict=True)):
            assert_same(tokens, copied, f"example {i} {fault}")


def leaves_raw_examples_alone(tokenizer: Tokenizer, raws: Raws) -> None:
    """`encode` does not change the raw example."""
    for i, raw in enumerate(raws):
        before = copy.deepcopy(raw)
        encoded(tokenizer, raws, i)
        if not same(before, raw):
            raise AssertionError(f"example {i}: encode changes the raw example; copy it first")


def leaves_the_process_alone(tokenizer: Tokenizer, raws: Raws) -> None:
    """`spec`, `encode` and `decode` print nothing, and change no state of Python or torch."""
    with left_alone("spec", imports=True):
        spec_of(tokenizer)
    for i in range(len(raws)):
        for first in (True, False):
            # from a state of its own: a generator that is reset to what it was before does not change
            with seeded(7 + i + first), left_alone(f"example {i}: encode", imports=first):
                tokens = encoded(tokenizer, raws, i)
        if has_decode(tokenizer):
            with left_alone(f"example {i}: decode", imports=True):
                tokenizer.decode(tokens)  # type: ignore[attr-defined]


def can_be_batched(tokenizer: Tokenizer, raws: Raws) -> None:
    """Examples collate into one `TokenBatch`."""
    try:
        TokenBatch.collate(all_encoded(tokenizer, raws))
    except ValueError as error:
        raise AssertionError(f"examples do not collate into one batch: {error}") from None


def tells_examples_apart(tokenizer: Tokenizer, raws: Raws) -> None:
    """Examples that differ do not all give the same tokens, and tokens of an order do not all have one position."""
    tokens = all_encoded(tokenizer, raws)
    num_axes = spec_of(tokenizer).num_axes
    if not all(same(raws[0], raw) for raw in raws[1:]) and all(
        difference(x, tokens[0]) is None for x in tokens[1:]
    ):
        raise AssertionError(
            f"examples 0 to {len(raws) - 1} all give the same tokens; encode ignores what it is given"
        )
    for i, x in enumerate(tokens):
        if len(x) < 2 or not num_axes:
            continue
        if bool((x.positions == x.positions[:1]).all()):
            raise AssertionError(
                f"example {i}: all {len(x)} tokens have one position; count them, or declare num_axes=0"
            )
        if rounded := rounding(x.positions):
            raise AssertionError(f"example {i}: {rounded}")
        for places in (axis.unique() for axis in x.positions.unbind(dim=1)):
            if len(places) > 1 and float(places.diff().min()) > MAX_GAP:
                raise AssertionError(
                    f"example {i}: positions of {len(x)} tokens go from {float(places[0]):.4g} to "
                    f"{float(places[-1]):.4g}, none nearer than {float(places.diff().min()):.4g} to another; divide "
                    "them so that they grow by about one a token"
                )
    for index in range(num_axes):
        starts = torch.cat([x.positions[:, index] for x in tokens]).unique()
        if len(starts) == 1 and abs(float(starts)) > MAX_EXACT:
            raise AssertionError(
                f"axis {index} of the positions is {float(starts):.4g} in all examples, which is rounded in float32: "
                "subtract the start"
            )


def reads_all_of_an_example(tokenizer: Tokenizer, raws: Raws) -> None:
    """A change anywhere in a text, number, tensor, recording or graph changes the tokens, and so in a list, a mapping
    or a dataclass of these: no part of the input is dropped."""
    places = tried_places(tokenizer, raws)
    if unread := unread_fields(places):
        raise AssertionError(
            f"no change of {unread[0]} of an example changes a token; encode it, or leave it out of the examples"
        )
    share = share_of(places.values())
    if share is None:
        types = ", ".join(sorted({type(raw).__name__ for raw in raws}))
        raise NotCheckedError(f"encode accepts no change of the examples ({types})")
    if share < ALL_READ:
        raise AssertionError(
            f"a change in {100 * (1 - share):.0f} % of the places of the examples changes no token; encode all"
        )


def its_embedder_keeps_tokens_apart(tokenizer: Tokenizer, raws: Raws) -> None:
    """The spec's own embedder makes [b n d] of content, for any d, whatever is beside an example in its row or batch;
    in training mode, too, if nothing is random."""
    spec = spec_of(tokenizer)
    examples = all_encoded(tokenizer, raws)
    if spec.embedder is None:
        raise NotCheckedError("its spec has no embedder")
    for dim in (24, 40):
        with seeded(0):
            nothing = AsBackbone(nn.Identity(), lambda module, x, _: module(x), dim, causal=False)
            model = EmbeddedBackbone(spec, nothing)
        gives_hidden_states_of_its_width(model, examples)
        packed_equals_separate(model, examples)
        batch_mates_change_nothing(model, examples)
        training_mates_change_nothing(model, examples)


def refuses_with_a_reason(tokenizer: Tokenizer, bad: Sequence[Any]) -> None:
    """Raw examples that cannot be encoded raise DataError, in one line."""
    if not bad:
        raise NotCheckedError("no bad examples are given")
    for i, raw in enumerate(bad):
        try:
            tokenizer.encode(raw)
        except DataError as error:
            if not str(error) or "\n" in str(error):
                fault = f"is refused with {str(error)!r}; say in one line what is wrong"
                raise AssertionError(f"bad example {i} {fault}") from None
        except Exception as error:
            raise AssertionError(
                f"bad example {i} raises {described(error)}; raise DataError"
            ) from None
        else:
            raise AssertionError(f"bad example {i} is encoded; raise DataError")


OF_EXAMPLES: tuple[Callable[[Tokenizer, Raws], None], ...] = (
    leaves_the_process_alone,
    keeps_its_spec,
    leaves_raw_examples_alone,
    is_deterministic,
    keeps_no_buffer,
    can_be_batched,
    tells_examples_apart,
    reads_all_of_an_example,
    can_be_pickled,
    decodes_what_it_encodes,
    decodes_any_id,
    its_embedder_keeps_tokens_apart,
)
"""Laws of a tokenizer and its examples alone."""
