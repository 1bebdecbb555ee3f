"""Laws of every tokenizer; a function checks each, and raises AssertionError with the fault if it is broken.

b batch · n tokens · d width
"""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from seqkit.errors import DataError, described
from seqkit.interfaces import TokenBatch, Tokenizer, Tokens
from seqkit.interfaces.tokens import rounding
from seqkit.testing.changed_raws import share_of, tried_places, unread_fields
from seqkit.testing.checks import Checked, Checks, NotCheckedError, Options
from seqkit.testing.encoded import (
    LOST,
    Raws,
    all_encoded,
    assert_encodes_alike,
    assert_same,
    decode,
    difference,
    encoded,
    has_decode,
    no_error,
    same_spec,
    spec_of,
)
from seqkit.testing.laws import EmbeddedBackbone, batch_mates_change_nothing, packed_equals_separate
from seqkit.testing.module_laws import (
    gives_hidden_states_of_its_width,
    training_mates_change_nothing,
)
from seqkit.testing.modules import AsBackbone
from seqkit.testing.process import (
    all_encoded_or_not,
    built_anew,
    left_alone,
    run_elsewhere,
    same,
    seeded,
    settings_of,
)
from seqkit.testing.unseen import OF_OTHERS, encodes_the_rest_of_the_data

NUM_IDS = 64
"""Number of ids, spread over the vocabulary, that are decoded one by one, at most."""

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

WHOLE = "decode(tokens) writes all that encode reads, positions and edges too"


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


def can_be_pickled(tokenizer: Tokenizer, raws: Raws) -> None:
    """It can be pickled for a data loader's worker; the unpickled tokenizer and a deep copy encode alike."""
    try:
        back = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301  of bytes made on this line
    except Exception as error:  # whatever a plug-in's own fields raise
        raise AssertionError(
            f"it cannot be pickled for a data loader's worker: {described(error)}"
        ) from None
    for kind, duplicate in (("a pickled copy", back), ("a copy", copy.deepcopy(tokenizer))):
        assert_encodes_alike(duplicate, tokenizer, raws, kind)


def decodes_what_it_encodes(tokenizer: Tokenizer, raws: Raws) -> None:
    """With `decode`: decoding and encoding again gives the same tokens; where ids alone go on (`_goes_on_by_ids`), it
    also takes ids [n]."""
    if not has_decode(tokenizer):
        raise NotCheckedError("it has no decode")
    by_ids = _goes_on_by_ids(tokenizer, raws)
    for i, tokens in enumerate(all_encoded(tokenizer, raws)):
        decoded = decode(tokenizer, tokens, f"example {i}: decode")
        what = f"example {i} decoded and encoded again"
        with no_error(what, f"; {WHOLE}"):
            again = tokenizer.encode(decoded)
        if (found := difference(again, tokens, exact=False)) is not None:
            raise AssertionError(f"{what} has {found}; {WHOLE}")
        if not by_ids:
            continue
        from_ids = decode(
            tokenizer, tokens.content, f"example {i}: decode of ids [n], as generation gives them,"
        )
        if not same(decoded, from_ids):
            raise AssertionError(
                f"example {i}: decode gives {decoded!r} for Tokens, and {from_ids!r} for their ids [n]"
            )


def decodes_any_id(tokenizer: Tokenizer, raws: Raws) -> None:
    """Every id below the vocabulary decodes, alone and beside others: generation samples any of them. Where ids alone
    do not go on (`_goes_on_by_ids`), they are those of example 0's tokens."""
    if not has_decode(tokenizer) or not spec_of(tokenizer).ids:
        raise NotCheckedError("it has no decode, or no ids")
    size = spec_of(tokenizer).vocab_size
    tokens = encoded(tokenizer, raws, 0)
    ids = torch.arange(0, size, max(1, size // NUM_IDS))
    if _goes_on_by_ids(tokenizer, raws):
        some = [*ids.split(1), ids, ids.flip(0)]
        for own in some:
            decode(tokenizer, own, _decode_of(own))
        return
    for own in ids.split(len(tokens)):
        given = replace(tokens, content=own.repeat(len(tokens))[: len(tokens)])
        decode(tokenizer, given, _decode_of(own))


def _decode_of(ids: Tensor) -> str:
    shown = ids[:8].tolist()
    return f"decode of ids {shown}" if len(ids) <= 8 else f"decode of ids {shown}…"


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


def fit_learns_what_state_saves(_: Tokenizer, raws: Raws, fresh: Callable[[], Tokenizer]) -> None:
    """Before `fit`, spec raises ValueError or is what it will be; `fit` leaves the examples and the process alone,
    learns the same from the same examples, also a second time, and what it learned is in state()."""
    one = fresh()
    given = list(raws)
    untouched = copy.deepcopy(list(raws))
    try:
        one.spec  # noqa: B018  asked for the error
    except ValueError:
        pass
    except Exception as error:
        raise AssertionError(
            f"spec raises {described(error)} before fit; raise ValueError that says so"
        ) from None
    before = copy.deepcopy(vars(one))
    try:
        with left_alone("fit", imports=True):
            one.fit(given)  # type: ignore[attr-defined]
    except DataError:
        return  # these few examples are too few for it, such as a subword vocabulary
    if not same(untouched, given):
        raise AssertionError(
            "fit changes the examples, or their order; work on a copy, such as sorted(raws)"
        )
    if not one.state() and not same(before, {name: vars(one)[name] for name in before}):
        raise AssertionError(f"state() is empty after fit; return what it learned: {LOST}")
    state = copy.deepcopy(one.state())
    another = fresh()
    another.fit(list(raws))  # type: ignore[attr-defined]
    if not same(state, another.state()):
        raise AssertionError(
            "two tokenizers fitted on the same examples have other states; sort what you collect"
        )
    one.fit(list(raws))  # type: ignore[attr-defined]
    if not same(state, one.state()):
        raise AssertionError(
            "fitting again on the same examples gives another state; forget the earlier fit first"
        )
    with contextlib.suppress(DataError):
        alone = fresh()
        both = fresh()
        both.fit(list(raws[:1]))  # type: ignore[attr-defined]
        kept = copy.deepcopy(both.state())
        for each in (alone, both):
            each.fit(list(raws[1:]))  # type: ignore[attr-defined]
        if not same(both.state(), alone.state()) and not same(both.state(), kept):
            raise AssertionError(
                "fitting on other examples adds to the earlier fit; forget it first"
            )


def state_is_json_and_enough(
    tokenizer: Tokenizer, raws: Raws, fresh: Callable[[], Tokenizer]
) -> None:
    """The state survives JSON, and a tokenizer that loads it, once or twice, encodes alike."""
    state = tokenizer.state()
    try:
        back = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state() is not plain JSON: {described(error)}") from None
    if back != state:
        raise AssertionError(
            "state() comes back from JSON changed; use lists, strings, numbers and string keys only"
        )
    restored = fresh()
    for what in (
        "a tokenizer that loaded the state",
        "a tokenizer that loaded the state a second time",
    ):
        with left_alone("load_state", imports=True):
            restored.load_state(copy.deepcopy(back))
        assert_encodes_alike(restored, tokenizer, raws, what)
        if json.dumps(restored.state(), sort_keys=True) != json.dumps(state, sort_keys=True):
            raise AssertionError(f"{what} has another state: {LOST}")


def state_is_a_copy(tokenizer: Tokenizer, raws: Raws, fresh: Callable[[], Tokenizer]) -> None:
    """Changes of the dictionary that `state` returned, or `load_state` took, do not change the tokenizer."""
    expected = all_encoded(tokenizer, raws)
    giver = copy.deepcopy(tokenizer)
    given = giver.state()
    taker = fresh()
    taken = copy.deepcopy(tokenizer.state())
    taker.load_state(taken)
    for what, owner, state in (
        ("state() gave", giver, given),
        ("load_state() took", taker, taken),
    ):
        _spoil(state)
        for i, tokens in enumerate(expected):
            fault = f"example {i}, after what {what} was changed,"
            with no_error(fault, "; copy the lists that it holds"):
                got = owner.encode(raws[i])
            assert_same(got, tokens, fault)


def _spoil(state: Any) -> None:
    """Empties a state and everything in it."""
    if isinstance(state, dict | list):
        for inner in state.values() if isinstance(state, dict) else state:
            _spoil(inner)
        state.clear()


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


def is_the_same_in_another_process(
    tokenizer: Tokenizer, raws: Raws, fresh: Callable[[], Tokenizer] | None = None
) -> None:
    """A new Python, whose `hash()` of texts differs, makes the same tokens with the pickled tokenizer, the same state
    with one that is fitted there, and the same tokens with one that is built there and loads the state."""
    unfitted = None if fresh is None else fresh()
    answer = run_elsewhere(tokenizer, raws, unfitted)
    if answer is None:
        raise NotCheckedError("only this process has its class")
    one = built_anew(unfitted, tokenizer)
    if answer.state is not None and unfitted is not None:
        unfitted.fit(list(raws))  # type: ignore[attr-defined]
        if json.loads(json.dumps(unfitted.state())) != json.loads(answer.state):
            raise AssertionError(
                "fit in another process gives another state (does it follow the order of a set?); sort what you collect"
            )
    ours = all_encoded(tokenizer, raws)
    _assert_made_alike(answer.tokens, ours, "in another process", "are ids made by hash()?")
    if one is not None and answer.anew is not None:
        right = all_encoded_or_not(one, raws)
        how = "by one that another process builds, with the state loaded,"
        _assert_made_alike(answer.anew, right, how, "does __init__ follow the order of a set?")


def _assert_made_alike(
    found: Sequence[Tokens | str], right: Sequence[Tokens | str], how: str, doubt: str
) -> None:
    """Raises AssertionError if an example has other tokens than those that are right, or an error in their place."""
    for i, (got, expected) in enumerate(zip(found, right, strict=True)):
        what = f"example {i} encoded {how}"
        if isinstance(expected, str):
            continue  # another law says what it raises
        if isinstance(got, str):
            raise AssertionError(f"{what} raises {got}")
        assert_same(got, expected, f"{what} ({doubt})", exact=False)


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


def _goes_on_by_ids(tokenizer: Tokenizer, raws: Raws) -> bool:
    """Whether generation decodes ids [n]: they are all that a token has, at positions 0, 1, 2, …, and no `continues` of
    its own makes tokens of them. All others are decoded from `Tokens` alone."""
    spec = spec_of(tokenizer)
    if not spec.ids or spec.num_edge_types or type(tokenizer).continues is not Tokenizer.continues:
        return False
    positions = [tokens.positions for tokens in all_encoded(tokenizer, raws)]
    return all(x.shape[1] == 0 or x[:, 0].equal(torch.arange(float(len(x)))) for x in positions)
