"""Laws of every tokenizer; a function checks each, and raises AssertionError with the fault if it is broken.

b batch · n tokens · d width
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from seqkit.errors import DataError, described
from seqkit.interfaces import TokenBatch, Tokenizer, Tokens
from seqkit.interfaces.tokens import rounding
from seqkit.nn.embedder import Embedder
from seqkit.nn.position.absolute import NoPosition
from seqkit.testing.changed_raws import tried_places, unread_fields
from seqkit.testing.checks import Checked, Checks
from seqkit.testing.encoded import (
    assert_encodes_alike,
    assert_same,
    decode,
    difference,
    encoded,
    has_decode,
    line_of,
    same_spec,
    spec_of,
)
from seqkit.testing.other_process import run_elsewhere
from seqkit.testing.process import generators, left_alone, same, seeded
from seqkit.testing.tokenizer_state import (
    fit_learns_what_state_saves,
    state_is_a_copy,
    state_is_json_and_enough,
    unfitted_like,
)

Law = Callable[[Tokenizer, Sequence[Any]], None]

NUM_IDS = 64
"""Number of ids, spread over the vocabulary, that are decoded one by one, at most."""

NUM_KEPT = 200
"""Number of encodings of another example after which tokens must be as they were."""

NUM_SINGLE = 16
"""Number of tokens of an example that are embedded one by one, at most."""

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
    quick: bool = False,
    expected_failures: Mapping[str, str] | None = None,
) -> Checked:
    """Checks every law over your own examples, two or more; returns the laws that were checked.

    unfitted: tokenizer with the same settings that is not fitted: with the loaded state, it must encode alike. None: it
    is built from the attributes that have the names of the settings. bad: raws that `encode` must refuse with
    DataError. other_process: whether to encode in a new Python, too (some 3 s), as loaders on other machines do; a
    class that only this process has is left out. quick, expected_failures: as in `check_backbone`.
    Raises AssertionError with class, law, example and fault; ValueError for fewer than two raws, or if an unfitted
    tokenizer is needed and cannot be built.
    """
    if not isinstance(tokenizer, Tokenizer):
        raise AssertionError(f"{type(tokenizer).__name__}: is_a_tokenizer: derive it from seqkit.Tokenizer")
    if len(raws) < 2:
        raise ValueError(f"{len(raws)} raw examples; give two or more, so that they can be batched")
    checks, name = Checks(quick=quick, expected_failures=expected_failures), type(tokenizer).__name__

    def check(law: Callable[..., None], *given: Any) -> None:
        checks.check(law, name, tokenizer, *given)

    laws: list[Law] = [*ALWAYS]
    if has_decode(tokenizer):
        laws.append(decodes_what_it_encodes)
    try:
        untouched = copy.deepcopy(raws)
    except Exception:  # they cannot be copied
        untouched = raws
    try:
        early = copy.deepcopy(tokenizer)  # in which no law has encoded an example
    except Exception:  # it cannot be copied, which another law says
        early = None
    # a change that is made once does not show in examples that another law has encoded
    for law in laws:
        check(law, untouched if law is leaves_raw_examples_alone else raws)
    if has_decode(tokenizer) and spec_of(tokenizer).ids:
        check(decodes_any_id, raws)
    if spec_of(tokenizer).embedder is not None:
        check(its_embedder_keeps_tokens_apart, raws)
    fresh = unfitted_like(tokenizer, unfitted)
    if hasattr(tokenizer, "fit"):
        check(fit_learns_what_state_saves, raws, fresh)
    check(state_is_json_and_enough, raws, fresh)
    check(state_is_a_copy, raws, fresh)
    if early is not None:
        checks.check(any_order_gives_the_same, name, early, raws)
    check(refuses_with_a_reason, bad)
    if other_process:
        check(is_the_same_in_another_process, raws, fresh)
    return checks.finish(name)


def keeps_its_spec(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Tokens match `spec`, lie on the CPU without gradients, and encoding does not change the spec."""
    before = spec_of(tokenizer)
    for i in range(len(raws)):
        tokens = encoded(tokenizer, raws, i)
        try:
            before.check(tokens)
        except DataError as error:
            raise AssertionError(f"example {i}: {error}") from None
        for name in ("content", "positions", "features"):
            value = getattr(tokens, name)
            if value is not None and (value.requires_grad or value.device.type != "cpu"):
                where = "requires a gradient" if value.requires_grad else f"is on {value.device.type}"
                raise AssertionError(f"example {i}: {name} {where}; a tokenizer has no weights and runs on the CPU")
    if not same_spec(tokenizer.spec, before):
        raise AssertionError(f"encoding changed the spec from {before} to {tokenizer.spec}")


def is_deterministic(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """The same raw example gives the same tokens: after others were encoded, and whatever the generators' state is."""
    with seeded(1):
        first = [copy.deepcopy(encoded(tokenizer, raws, i)) for i in range(len(raws))]
    with seeded(2):
        for i in reversed(range(len(raws))):
            assert_same(encoded(tokenizer, raws, i), first[i], f"example {i} encoded again", exact=True)
    for i in range(len(raws)):
        twice = [copy.deepcopy(encoded(tokenizer, raws, i)) for _ in range(3)]
        assert_same(twice[-1], first[i], f"example {i} encoded three times in a row", exact=True)
        try:
            duplicate = copy.deepcopy(raws[i])
        except Exception:  # noqa: S112  an example that cannot be copied is never met twice
            continue
        what = f"an equal copy of example {i}"
        assert_same(encoded(tokenizer, [*raws[:i], duplicate], i), first[i], what, exact=True)


def any_order_gives_the_same(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Copies that encode the examples from the first, and from the last, give the same: `encode` notes nothing, such as
    the longest example so far. tokenizer: one that has encoded none of them."""
    forwards, backwards = copy.deepcopy(tokenizer), copy.deepcopy(tokenizer)
    expected = [copy.deepcopy(encoded(forwards, raws, i)) for i in range(len(raws))]
    for i in reversed(range(len(raws))):
        what = f"example {i} encoded before those above it, and not after,"
        assert_same(encoded(backwards, raws, i), expected[i], what, exact=True)


def keeps_no_buffer(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Tokens stay as they are while other examples are encoded: they are no view of a buffer that is filled again."""
    kept = [encoded(tokenizer, raws, i) for i in range(len(raws))]
    copies = [copy.deepcopy(tokens) for tokens in kept]
    fault = "changed while others were encoded: it is a view of a shared buffer, so clone it; it"
    for _ in range(max(2, 16 // len(raws))):  # a ring of several buffers comes round, too
        for j in reversed(range(len(raws))):
            encoded(tokenizer, raws, j)
            for i, (tokens, copied) in enumerate(zip(kept, copies, strict=True)):
                assert_same(tokens, copied, f"example {i} {fault}", exact=True)
    for j in (len(raws) - 1, 0):  # one alone: rings of any length up to that give its buffers to the other
        for _ in range(NUM_KEPT):
            encoded(tokenizer, raws, j)
        for i, (tokens, copied) in enumerate(zip(kept, copies, strict=True)):
            assert_same(tokens, copied, f"example {i} {fault}", exact=True)


def leaves_raw_examples_alone(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """`encode` does not change the raw example."""
    for i, raw in enumerate(raws):
        try:
            before = copy.deepcopy(raw)
        except Exception:  # noqa: S112  it cannot be compared
            continue
        encoded(tokenizer, raws, i)
        if not same(before, raw):
            raise AssertionError(f"example {i}: encode changes the raw example; copy it first")


def leaves_the_process_alone(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """`spec`, `encode`, `state`, `decode` and `repr` print nothing, and change no state of Python or torch."""
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
    with left_alone("state"):
        tokenizer.state()
    with left_alone("repr"):
        repr(tokenizer)


def can_be_batched(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Examples collate into one `TokenBatch`."""
    try:
        TokenBatch.collate([encoded(tokenizer, raws, i) for i in range(len(raws))])
    except ValueError as error:
        raise AssertionError(f"examples do not collate into one batch: {error}") from None


def tells_examples_apart(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Examples that differ do not all give the same tokens, and tokens of an order do not all have one position."""
    tokens = [encoded(tokenizer, raws, i) for i in range(len(raws))]
    if not all(same(raws[0], raw) for raw in raws[1:]) and all(difference(x, tokens[0]) is None for x in tokens[1:]):
        raise AssertionError(f"examples 0 to {len(raws) - 1} all give the same tokens; encode ignores what it is given")
    long = [i for i, x in enumerate(tokens) if len(x) > 1]
    spec = spec_of(tokenizer)
    if long and spec.num_axes and all(bool((tokens[i].positions == tokens[i].positions[:1]).all()) for i in long):
        raise AssertionError(
            f"example {long[0]}: all {len(tokens[long[0]])} tokens have one position; count them, or declare num_axes=0"
        )
    for i in long if spec.num_axes else ():
        if rounded := rounding(tokens[i].positions):
            raise AssertionError(f"example {i}: {rounded}")
        for axis in tokens[i].positions.unbind(dim=1):
            places = axis.unique()
            if len(places) > 1 and float(places.diff().min()) > MAX_GAP:
                raise AssertionError(
                    f"example {i}: positions of {len(tokens[i])} tokens go from {float(places[0]):.4g} to "
                    f"{float(places[-1]):.4g}, none nearer than {float(places.diff().min()):.4g} to another; divide "
                    "them so that they grow by about one a token"
                )
    for index in range(spec.num_axes):
        starts = torch.cat([x.positions[:, index] for x in tokens]).unique()
        if len(starts) == 1 and abs(float(starts)) > MAX_EXACT:
            raise AssertionError(
                f"axis {index} of the positions is {float(starts):.4g} in all examples, which is rounded in float32: "
                "subtract the start"
            )


def reads_all_of_an_example(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """A change anywhere in a text, number, tensor, recording or graph changes the tokens, and so in a list or a record
    of these: no part of the input is dropped."""
    places = tried_places(tokenizer, raws)
    if unread := unread_fields(places):
        raise AssertionError(
            f"no change of {unread[0]} of an example changes a token; encode it, or leave it out of the examples"
        )
    is_read = [place.is_read for place in places if not place.is_slice]
    if is_read and (share := sum(is_read) / len(is_read)) < ALL_READ:
        raise AssertionError(
            f"a change in {100 * (1 - share):.0f} % of the places of the examples changes no token; encode all"
        )


def can_be_pickled(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """It can be pickled for a data loader's worker; the unpickled tokenizer and a deep copy encode alike."""
    try:
        back = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301  of bytes made on this line
    except Exception as error:  # whatever a plug-in's own fields raise
        raise AssertionError(f"it cannot be pickled for a data loader's worker: {described(error)}") from None
    for kind, duplicate in (("a pickled copy", back), ("a copy", copy.deepcopy(tokenizer))):
        assert_encodes_alike(duplicate, tokenizer, raws, kind, range(len(raws)))


def decodes_what_it_encodes(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """With `decode`: decoding and encoding again gives the same tokens; where ids alone go on (`_goes_on_by_ids`), it
    also takes ids [n]."""
    by_ids = _goes_on_by_ids(tokenizer, raws)
    for i in range(len(raws)):
        tokens = encoded(tokenizer, raws, i)
        decoded = decode(tokenizer, tokens, f"example {i}: decode")
        what = f"example {i} decoded and encoded again"
        try:
            again = tokenizer.encode(decoded)
        except Exception as error:  # the user's own code: whatever it raises
            raise AssertionError(f"{what} raises {described(error)}; {WHOLE}") from None
        if (found := difference(again, tokens, exact=False)) is not None:
            raise AssertionError(f"{what} has {found}; {WHOLE}")
        if not by_ids:
            continue
        from_ids = decode(tokenizer, tokens.content, f"example {i}: decode of ids [n], as generation gives them,")
        if not same(decoded, from_ids):
            raise AssertionError(
                f"example {i}: decode gives {decoded!r} for Tokens, and {from_ids!r} for their ids [n]"
            )


def decodes_any_id(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Every id below the vocabulary decodes, alone and beside others: generation samples any of them. Where ids alone
    do not go on (`_goes_on_by_ids`), they are those of example 0's tokens."""
    size, tokens = spec_of(tokenizer).vocab_size, encoded(tokenizer, raws, 0)
    ids = torch.arange(0, size, max(1, size // NUM_IDS))
    kind = type(decode(tokenizer, tokens, "example 0: decode"))
    by_ids = _goes_on_by_ids(tokenizer, raws)
    for some in (*ids.split(1), ids, ids.flip(0)) if by_ids else ids.split(len(tokens)):
        given = some if by_ids else replace(tokens, content=some.repeat(len(tokens))[: len(tokens)])
        decoded = decode(tokenizer, given, f"decode of ids {some[:8].tolist()}{'…' if len(some) > 8 else ''}")
        if not isinstance(decoded, kind):
            raise AssertionError(
                f"decode gives {type(decoded).__name__} for ids {some[:8].tolist()}, and {kind.__name__} for example 0"
            )


def its_embedder_keeps_tokens_apart(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """The spec's own embedder makes [b n d] of content, for any d, whatever is beside a token in its example or batch;
    in training mode, too, if nothing is random."""
    spec, examples = spec_of(tokenizer), [encoded(tokenizer, raws, i) for i in range(len(raws))]
    for dim in (24, 40):
        with seeded(0):
            embedder = Embedder(spec, dim, position=NoPosition).eval()
        try:
            together = embedder(TokenBatch.collate(examples)).hidden
        except Exception as error:  # the user's own module: whatever it raises
            raise AssertionError(f"its embedder of width {dim} raises {line_of(error)}") from None
        if together.shape[-1] != dim:
            raise AssertionError(f"its embedder of width {dim} gives vectors of {together.shape[-1]}")
        for i, x in enumerate(examples):
            alone = embedder(TokenBatch.collate([x])).hidden[0]
            if not torch.allclose(together[i, : len(x)], alone, rtol=1e-4, atol=1e-5):
                raise AssertionError(f"example {i}: its embedder gives other vectors in a batch than alone")
            for t in range(min(len(x), NUM_SINGLE)):
                one = embedder(TokenBatch.collate([x.at(slice(t, t + 1))])).hidden[0, 0]
                if not torch.allclose(one, alone[t], rtol=1e-4, atol=1e-5):
                    raise AssertionError(f"example {i}: its embedder gives another vector for token {t} alone")
        _check_training_of(embedder, examples)


def _check_training_of(embedder: Embedder, examples: Sequence[Tokens]) -> None:
    """In training mode, an example gives the same vectors in a batch as alone, if nothing is random."""

    def embedded(some: Sequence[Tokens], seed: int) -> tuple[Tensor, bool]:
        """Embeddings, and whether it draws from a global generator, which may show in few batches."""
        with seeded(seed):
            copied, before = copy.deepcopy(embedder).train(), generators()
            return copied(TokenBatch.collate(some)).hidden, not same(before, generators())

    together, draws = embedded(examples, 1)
    if draws or not torch.allclose(embedded(examples, 2)[0], together):
        return
    for i, x in enumerate(examples):
        if not torch.allclose(together[i, : len(x)], embedded([x], 1)[0][0], rtol=1e-4, atol=1e-5):
            raise AssertionError(
                f"example {i}: in training mode, its embedder gives other vectors in a batch than alone"
            )


def refuses_with_a_reason(tokenizer: Tokenizer, bad: Sequence[Any]) -> None:
    """Raw examples that cannot be encoded raise DataError, in one line."""
    for i, raw in enumerate(bad):
        try:
            tokenizer.encode(raw)
        except DataError as error:
            if not str(error) or "\n" in str(error):
                raise AssertionError(
                    f"bad example {i} is refused with {str(error)!r}; say in one line what is wrong"
                ) from None
        except Exception as error:
            raise AssertionError(f"bad example {i} raises {described(error)}; raise DataError") from None
        else:
            raise AssertionError(f"bad example {i} is encoded; raise DataError")


def is_the_same_in_another_process(
    tokenizer: Tokenizer, raws: Sequence[Any], fresh: Callable[[], Tokenizer] | None = None
) -> None:
    """A new Python, whose `hash()` of texts differs, makes the same tokens with the pickled tokenizer, and the same
    state with one that is fitted there."""
    fits = fresh is not None and hasattr(tokenizer, "fit")
    unfitted = fresh() if fresh is not None and fits else None
    found, state = run_elsewhere(tokenizer, raws, unfitted) or ([], None)
    if state is not None and unfitted is not None:
        unfitted.fit(list(raws))  # type: ignore[attr-defined]
        if not same(json.loads(json.dumps(unfitted.state())), json.loads(state)):
            raise AssertionError(
                "fit in another process gives another state (does it follow the order of a set?); sort what you collect"
            )
    for i, got in enumerate(found):
        what = f"example {i} encoded in another process"
        if isinstance(got, str):
            raise AssertionError(f"{what} raises {got}")
        assert_same(got, encoded(tokenizer, raws, i), f"{what} (are ids made by hash()?)")


ALWAYS: tuple[Law, ...] = (
    leaves_the_process_alone,
    keeps_its_spec,
    leaves_raw_examples_alone,
    is_deterministic,
    keeps_no_buffer,
    can_be_batched,
    tells_examples_apart,
    reads_all_of_an_example,
    can_be_pickled,
)
"""Laws of every tokenizer, whatever it has besides `spec` and `encode`."""


def _goes_on_by_ids(tokenizer: Tokenizer, raws: Sequence[Any]) -> bool:
    """Whether generation decodes ids [n]: they are all that a token has, at positions 0, 1, 2, …, and no `continues` of
    its own makes tokens of them. All others are decoded from `Tokens` alone."""
    spec = spec_of(tokenizer)
    if not spec.ids or spec.num_edge_types or type(tokenizer).continues is not Tokenizer.continues:
        return False
    positions = [encoded(tokenizer, raws, i).positions for i in range(len(raws))]
    return all(x.shape[1] == 0 or x[:, 0].equal(torch.arange(float(len(x)))) for x in positions)
