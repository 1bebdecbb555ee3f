"""Laws of every tokenizer; a function checks each, and raises AssertionError with the fault if it is broken.

b batch · n tokens · d width
"""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from seqkit.errors import DataError, described
from seqkit.interfaces import TokenBatch, Tokenizer, Tokens, TokenSpec
from seqkit.interfaces.tokens import rounding
from seqkit.nn.embedder import Embedder
from seqkit.nn.position.absolute import NoPosition
from seqkit.raw import GraphData, Waveform
from seqkit.testing.checks import Checked, Checks
from seqkit.testing.other_process import run_elsewhere
from seqkit.testing.process import generators, left_alone, same, seeded

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

NUM_PLACES = 100
"""Number of places in the raw examples that are changed, about."""

NUM_OTHERS = 4
"""Number of other characters or numbers that are put into a place, at most, until one changes the tokens."""

ALL_READ = 0.75
"""Share of the places whose change should change the tokens. Every recipe has 1.0; a tokenizer that drops half of its
input has 0.5."""

WHOLE = "decode(tokens) writes all that encode reads, positions and edges too"

LOST = "a run that is loaded, or a loader's worker, would get other tokens than training did"


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
    if _has_decode(tokenizer):
        laws.append(decodes_what_it_encodes)
    try:
        untouched = copy.deepcopy(raws)
    except Exception:  # they cannot be copied
        untouched = raws
    # a change that is made once does not show in examples that another law has encoded
    for law in laws:
        check(law, untouched if law is leaves_raw_examples_alone else raws)
    if _has_decode(tokenizer) and _spec(tokenizer).ids:
        check(decodes_any_id, raws)
    if _spec(tokenizer).embedder is not None:
        check(its_embedder_keeps_tokens_apart, raws)
    fresh = _unfitted(tokenizer, unfitted)
    if hasattr(tokenizer, "fit"):
        check(fit_learns_what_state_saves, raws, fresh)
    check(state_is_json_and_enough, raws, fresh)
    check(state_is_a_copy, raws, fresh)
    check(refuses_with_a_reason, bad)
    if other_process:
        check(is_the_same_in_another_process, raws, fresh)
    return checks.finish(name)


def keeps_its_spec(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Tokens match `spec`, lie on the CPU without gradients, and encoding does not change the spec."""
    before = _spec(tokenizer)
    for i in range(len(raws)):
        tokens = _encode(tokenizer, raws, i)
        try:
            before.check(tokens)
        except DataError as error:
            raise AssertionError(f"example {i}: {error}") from None
        for name in ("content", "positions", "features"):
            value = getattr(tokens, name)
            if value is not None and (value.requires_grad or value.device.type != "cpu"):
                where = "requires a gradient" if value.requires_grad else f"is on {value.device.type}"
                raise AssertionError(f"example {i}: {name} {where}; a tokenizer has no weights and runs on the CPU")
    if not _same_spec(tokenizer.spec, before):
        raise AssertionError(f"encoding changed the spec from {before} to {tokenizer.spec}")


def is_deterministic(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """The same raw example gives the same tokens: after others were encoded, and whatever the generators' state is."""
    with seeded(1):
        first = [copy.deepcopy(_encode(tokenizer, raws, i)) for i in range(len(raws))]
    with seeded(2):
        for i in reversed(range(len(raws))):
            _assert_same(_encode(tokenizer, raws, i), first[i], f"example {i} encoded again", exact=True)
    for i in range(len(raws)):
        twice = [copy.deepcopy(_encode(tokenizer, raws, i)) for _ in range(3)]
        _assert_same(twice[-1], first[i], f"example {i} encoded three times in a row", exact=True)
        try:
            duplicate = copy.deepcopy(raws[i])
        except Exception:  # noqa: S112  an example that cannot be copied is never met twice
            continue
        what = f"an equal copy of example {i}"
        _assert_same(_encode(tokenizer, [*raws[:i], duplicate], i), first[i], what, exact=True)


def keeps_no_buffer(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Tokens stay as they are while other examples are encoded: they are no view of a buffer that is filled again."""
    kept = [_encode(tokenizer, raws, i) for i in range(len(raws))]
    copies = [copy.deepcopy(tokens) for tokens in kept]
    fault = "changed while others were encoded: it is a view of a shared buffer, so clone it; it"
    for _ in range(max(2, 16 // len(raws))):  # a ring of several buffers comes round, too
        for j in reversed(range(len(raws))):
            _encode(tokenizer, raws, j)
            for i, (tokens, copied) in enumerate(zip(kept, copies, strict=True)):
                _assert_same(tokens, copied, f"example {i} {fault}", exact=True)
    for j in (len(raws) - 1, 0):  # one alone: rings of any length up to that give its buffers to the other
        for _ in range(NUM_KEPT):
            _encode(tokenizer, raws, j)
        for i, (tokens, copied) in enumerate(zip(kept, copies, strict=True)):
            _assert_same(tokens, copied, f"example {i} {fault}", exact=True)


def leaves_raw_examples_alone(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """`encode` does not change the raw example."""
    for i, raw in enumerate(raws):
        try:
            before = copy.deepcopy(raw)
        except Exception:  # noqa: S112  it cannot be compared
            continue
        _encode(tokenizer, raws, i)
        if not same(before, raw):
            raise AssertionError(f"example {i}: encode changes the raw example; copy it first")


def leaves_the_process_alone(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """`spec`, `encode`, `state`, `decode` and `repr` print nothing, and change no state of Python or torch."""
    with left_alone("spec", imports=True):
        _spec(tokenizer)
    for i in range(len(raws)):
        for first in (True, False):
            # from a state of its own: a generator that is reset to what it was before does not change
            with seeded(7 + i + first), left_alone(f"example {i}: encode", imports=first):
                tokens = _encode(tokenizer, raws, i)
        if _has_decode(tokenizer):
            with left_alone(f"example {i}: decode", imports=True):
                tokenizer.decode(tokens)  # type: ignore[attr-defined]
    with left_alone("state"):
        tokenizer.state()
    with left_alone("repr"):
        repr(tokenizer)


def can_be_batched(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Examples collate into one `TokenBatch`."""
    try:
        TokenBatch.collate([_encode(tokenizer, raws, i) for i in range(len(raws))])
    except ValueError as error:
        raise AssertionError(f"examples do not collate into one batch: {error}") from None


def tells_examples_apart(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Examples that differ do not all give the same tokens, and tokens of an order do not all have one position."""
    tokens = [_encode(tokenizer, raws, i) for i in range(len(raws))]
    if not all(same(raws[0], raw) for raw in raws[1:]) and all(_difference(x, tokens[0]) is None for x in tokens[1:]):
        raise AssertionError(f"examples 0 to {len(raws) - 1} all give the same tokens; encode ignores what it is given")
    long = [i for i, x in enumerate(tokens) if len(x) > 1]
    spec = _spec(tokenizer)
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


def reads_all_of_an_example(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """A change anywhere in a text, recording, tensor or graph changes the tokens: no part of the input is dropped."""
    share = share_read(tokenizer, raws)
    if share is not None and share < ALL_READ:
        raise AssertionError(f"a change in {1 - share:.0%} of the places of the examples changes no token; encode all")


def share_read(tokenizer: Tokenizer, raws: Sequence[Any]) -> float | None:
    """Share of the places in raw examples at which every kind of change that `encode` accepts changes the tokens.

    Places are drawn at random, always the same. Returns None if no place can be changed.
    """
    generator, num_read, num_tried = random.Random(0), 0, 0  # noqa: S311  draws places, no secrets
    for raw in raws:
        tokens = copy.deepcopy(tokenizer.encode(raw))
        for kinds in _changed_at_places(raw, -(-NUM_PLACES // len(raws)), generator):
            found = [_is_read(tokenizer, changed, tokens) for changed in kinds]
            is_read = [one for one in found if one is not None]
            num_tried += bool(is_read)
            num_read += bool(is_read) and all(is_read)
    return num_read / num_tried if num_tried else None


def _is_read(tokenizer: Tokenizer, changed: Sequence[Any], tokens: Tokens) -> bool | None:
    """Whether one of these changes of a place, all of one kind, changes the tokens; None if `encode` accepts none."""
    is_accepted = False
    for other in changed:
        try:
            differs = _difference(tokenizer.encode(other), tokens) is not None
        except Exception:  # noqa: S112  the change made it no example, such as an open ring in a SMILES
            continue
        if differs:
            return True
        is_accepted = True
    return False if is_accepted else None


def _changed_at_places(raw: Any, num_places: int, generator: random.Random) -> Iterator[list[list[Any]]]:
    """Copies of a raw example that are changed at one place, for each of some places: the kinds of change, and of each
    a few, since a tokenizer may take some letters or numbers for one (an alphabet of two, black or white).

    A text loses a character, loses a word, or gets another character of its own: a filter of characters shows by the
    first, a filter of words by the second, and a rule by position by the third. Numbers change in a twentieth of them.
    """
    if isinstance(raw, str):
        places = [i for i, character in enumerate(raw) if not character.isspace()]
        for i in generator.sample(places, min(num_places, len(places))):
            before, after = raw[:i], raw[i + 1 :]
            letters = sorted({c for c in raw if not c.isspace() and c.casefold() != raw[i].casefold()})
            start, end = len(before) - len(_first_word(before[::-1])), i + 1 + len(_first_word(after))
            others = generator.sample(letters, min(NUM_OTHERS, len(letters)))
            texts = [[before + after], [raw[:start] + raw[end:].lstrip()], [before + c + after for c in others]]
            yield [[text for text in changed if text.strip()] for changed in texts]
    elif isinstance(raw, Waveform):
        for kinds in _changed_at_places(raw.samples, num_places, generator):
            yield [[raw._replace(samples=samples) for samples in changed] for changed in kinds]
    elif isinstance(raw, GraphData):
        for kinds in _changed_at_places(raw.nodes, num_places, generator):
            yield [[replace(raw, nodes=nodes) for nodes in changed] for changed in kinds]
    elif isinstance(raw, Tensor) and raw.layout is torch.strided and raw.numel():
        is_float, numbers = raw.is_floating_point(), raw.flatten()
        length = max(1, len(numbers) // 20) if is_float else 1
        for _ in range(num_places):
            i = generator.randrange(len(numbers) - length + 1)
            here = numbers[i : i + length]
            if is_float:
                known = here.nan_to_num()  # what is missing is a place, too
                values = [0.5 * known + 0.2, 0.9 - 0.8 * known]  # stay between 0 and 1, and the first between -1 and 1
                starts = [generator.randrange(len(numbers) - length + 1) for _ in range(NUM_OTHERS)]
                values += [numbers[start : start + length] for start in starts]
            elif len(different := numbers[numbers != here]):
                values = [different[generator.randrange(len(different))][None] for _ in range(NUM_OTHERS)]
            else:
                return
            yield [[torch.cat([numbers[:i], value, numbers[i + length :]]).reshape(raw.shape) for value in values]]


def _first_word(text: str) -> str:
    return "" if text[:1].isspace() else next(iter(text.split(maxsplit=1)), "")


def can_be_pickled(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """It can be pickled for a data loader's worker; the unpickled tokenizer and a deep copy encode alike."""
    try:
        back = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301  of bytes made on this line
    except Exception as error:  # whatever a plug-in's own fields raise
        raise AssertionError(f"it cannot be pickled for a data loader's worker: {described(error)}") from None
    for kind, duplicate in (("a pickled copy", back), ("a copy", copy.deepcopy(tokenizer))):
        _assert_encodes_alike(duplicate, tokenizer, raws, kind, range(len(raws)))


def decodes_what_it_encodes(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """With `decode`: decoding and encoding again gives the same tokens; where ids alone go on (`_goes_on_by_ids`), it
    also takes ids [n]."""
    by_ids = _goes_on_by_ids(tokenizer, raws)
    for i in range(len(raws)):
        tokens = _encode(tokenizer, raws, i)
        decoded = _decode(tokenizer, tokens, f"example {i}: decode")
        what = f"example {i} decoded and encoded again"
        try:
            again = tokenizer.encode(decoded)
        except Exception as error:  # the user's own code: whatever it raises
            raise AssertionError(f"{what} raises {described(error)}; {WHOLE}") from None
        if (found := _difference(again, tokens, exact=False)) is not None:
            raise AssertionError(f"{what} has {found}; {WHOLE}")
        if not by_ids:
            continue
        from_ids = _decode(tokenizer, tokens.content, f"example {i}: decode of ids [n], as generation gives them,")
        if not same(decoded, from_ids):
            raise AssertionError(
                f"example {i}: decode gives {decoded!r} for Tokens, and {from_ids!r} for their ids [n]"
            )


def decodes_any_id(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """Every id below the vocabulary decodes, alone and beside others: generation samples any of them. Where ids alone
    do not go on (`_goes_on_by_ids`), they are those of example 0's tokens."""
    size, tokens = _spec(tokenizer).vocab_size, _encode(tokenizer, raws, 0)
    ids = torch.arange(0, size, max(1, size // NUM_IDS))
    kind = type(_decode(tokenizer, tokens, "example 0: decode"))
    by_ids = _goes_on_by_ids(tokenizer, raws)
    for some in (*ids.split(1), ids, ids.flip(0)) if by_ids else ids.split(len(tokens)):
        given = some if by_ids else replace(tokens, content=some.repeat(len(tokens))[: len(tokens)])
        decoded = _decode(tokenizer, given, f"decode of ids {some[:8].tolist()}{'…' if len(some) > 8 else ''}")
        if not isinstance(decoded, kind):
            raise AssertionError(
                f"decode gives {type(decoded).__name__} for ids {some[:8].tolist()}, and {kind.__name__} for example 0"
            )


def its_embedder_keeps_tokens_apart(tokenizer: Tokenizer, raws: Sequence[Any]) -> None:
    """The spec's own embedder makes [b n d] of content, for any d, whatever is beside a token in its example or batch;
    in training mode, too, if nothing is random."""
    spec, examples = _spec(tokenizer), [_encode(tokenizer, raws, i) for i in range(len(raws))]
    for dim in (24, 40):
        with seeded(0):
            embedder = Embedder(spec, dim, position=NoPosition).eval()
        try:
            together = embedder(TokenBatch.collate(examples)).hidden
        except Exception as error:  # the user's own module: whatever it raises
            raise AssertionError(f"its embedder of width {dim} raises {_line(error)}") from None
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


def fit_learns_what_state_saves(_: Tokenizer, raws: Sequence[Any], fresh: Callable[[], Tokenizer]) -> None:
    """Before `fit`, spec raises ValueError or is what it will be, and state() holds nothing learned; `fit` leaves the
    examples and the process alone, learns the same from the same examples, and what it learned is in state()."""
    one, other, given = fresh(), fresh(), list(raws)
    try:
        one.spec  # noqa: B018  asked for the error
    except ValueError:
        pass
    except Exception as error:
        raise AssertionError(f"spec raises {_line(error)} before fit; raise ValueError that says so") from None
    try:
        untouched = copy.deepcopy(given)
    except Exception:  # they cannot be copied
        untouched = list(given)
    before = copy.deepcopy(one.state())
    try:
        with left_alone("fit", imports=True):
            one.fit(given)  # type: ignore[attr-defined]
            other.fit(list(raws))  # type: ignore[attr-defined]
    except DataError:
        return  # these few examples are too few for it, such as a subword vocabulary
    except Exception as error:
        raise _broken("fit", error) from None
    if not same(untouched, given):
        raise AssertionError("fit changes the examples, or their order; work on a copy, such as sorted(raws)")
    if not same(one.state(), other.state()):
        raise AssertionError("two tokenizers fitted on the same examples have other states; sort what you collect")
    if not one.state() and _learned(fresh(), one):
        raise AssertionError(f"state() is empty after fit; return what it learned: {LOST}")
    one.fit(list(raws))  # type: ignore[attr-defined]
    if not same(other.state(), one.state()):
        raise AssertionError("fitting again on the same examples gives another state; forget the earlier fit first")
    if same(before, one.state()) and _learned(fresh(), one):
        raise AssertionError(f"state() is the same before and after fit, but fit changed the tokens or spec: {LOST}")


def state_is_json_and_enough(tokenizer: Tokenizer, raws: Sequence[Any], fresh: Callable[[], Tokenizer]) -> None:
    """The state survives JSON, and a tokenizer that loads it, once or twice, encodes alike."""
    state = tokenizer.state()
    try:
        back = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state() is not plain JSON: {described(error)}") from None
    if back != state:
        raise AssertionError("state() comes back from JSON changed; use lists, strings, numbers and string keys only")
    restored = fresh()
    written = json.dumps(state, sort_keys=True)
    try:
        for again in ("", " a second time"):
            with left_alone("load_state", imports=True):
                restored.load_state(copy.deepcopy(back))
            order = range(len(raws))[::-1] if again else range(len(raws))  # one that learns while it encodes differs
            _assert_encodes_alike(restored, tokenizer, raws, f"a tokenizer that loaded the state{again}", order)
            if json.dumps(restored.state(), sort_keys=True) != written:
                raise AssertionError(f"a tokenizer that loaded the state{again} has another state: {LOST}")
        reverse = fresh()  # in which no example has been encoded
        reverse.load_state(copy.deepcopy(back))
        _assert_encodes_alike(reverse, tokenizer, raws, "a fresh one in reverse order", range(len(raws))[::-1])
    except AssertionError:
        raise
    except Exception as error:
        raise _broken("load_state", error) from None


def state_is_a_copy(tokenizer: Tokenizer, raws: Sequence[Any], fresh: Callable[[], Tokenizer]) -> None:
    """Changes of the dictionary that `state` returned, or `load_state` took, do not change the tokenizer."""
    expected = [copy.deepcopy(_encode(tokenizer, raws, i)) for i in range(len(raws))]
    for what, owner in (("state() gave", copy.deepcopy(tokenizer)), ("load_state() took", fresh())):
        state = owner.state() if "gave" in what else copy.deepcopy(tokenizer.state())
        if "took" in what:
            owner.load_state(state)
        _spoil(state)
        for i in range(len(raws)):
            fault = f"example {i}, after what {what} was changed,"
            try:
                got = owner.encode(raws[i])
            except Exception as error:
                raise AssertionError(f"{fault} raises {_line(error)}; copy the lists that it holds") from None
            _assert_same(got, expected[i], fault)


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
        _assert_same(got, _encode(tokenizer, raws, i), f"{what} (are ids made by hash()?)")


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


def _spec(tokenizer: Tokenizer) -> TokenSpec:
    try:
        spec = tokenizer.spec
    except Exception as error:  # the user's own code: whatever it raises
        raise AssertionError(f"spec raises {_line(error)}") from None
    if not isinstance(spec, TokenSpec):
        raise AssertionError(f"spec is a {type(spec).__name__}; give a seqkit.TokenSpec (is it a @property?)")
    return spec


def _encode(tokenizer: Tokenizer, raws: Sequence[Any], index: int, what: str = "") -> Tokens:
    what = what or f"example {index}"
    try:
        tokens = tokenizer.encode(raws[index])
    except Exception as error:  # the user's own code: whatever it raises
        raise AssertionError(f"{what}: encode raises {_line(error)}") from None
    if not isinstance(tokens, Tokens):
        raise AssertionError(f"encode gave a {type(tokens).__name__} for {what}; give seqkit.interfaces.Tokens")
    return tokens


def _has_decode(tokenizer: Tokenizer) -> bool:
    return callable(getattr(tokenizer, "decode", None))  # None: a class says that it has none, though its base has one


def _goes_on_by_ids(tokenizer: Tokenizer, raws: Sequence[Any]) -> bool:
    """Whether generation decodes ids [n]: they are all that a token has, at positions 0, 1, 2, …, and no `continues` of
    its own makes tokens of them. All others are decoded from `Tokens` alone."""
    spec = _spec(tokenizer)
    if not spec.ids or spec.num_edge_types or type(tokenizer).continues is not Tokenizer.continues:
        return False
    positions = [_encode(tokenizer, raws, i).positions for i in range(len(raws))]
    return all(x.shape[1] == 0 or x[:, 0].equal(torch.arange(float(len(x)))) for x in positions)


def _decode(tokenizer: Tokenizer, given: Any, what: str) -> Any:
    try:
        return tokenizer.decode(given)  # type: ignore[attr-defined]
    except Exception as error:  # the user's own code: whatever it raises
        takes = (
            "Tokens" if isinstance(given, Tokens) else "ids [n], too, as positions count 0, 1, 2, … and nothing else"
        )
        raise AssertionError(f"{what} raises {_line(error)}; take {takes}") from None


def _broken(what: str, error: Exception) -> AssertionError:
    return error if isinstance(error, AssertionError) else AssertionError(f"{what} raises {_line(error)}")


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _assert_same(got: Tokens, expected: Tokens, what: str, *, exact: bool = False) -> None:
    if (name := _difference(got, expected, exact=exact)) is not None:
        raise AssertionError(f"{what} has {name}")


def _difference(got: Tokens, expected: Tokens, *, exact: bool = True) -> str | None:
    """The difference in words; None if there is none."""
    if _edges(got) != _edges(expected):
        return "another adjacency"
    ours, theirs = (
        {name: x for name, x in tokens.tensors().items() if not name.startswith("edge_")} for tokens in (got, expected)
    )
    for name in {**theirs, **ours}:
        a, b = ours.get(name), theirs.get(name)
        if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
            return f"other {name}"
        if not (torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-4, atol=1e-5)):
            return f"other {name}"
    return None


def _edges(tokens: Tokens) -> set[tuple[int, int, int]] | None:
    if tokens.adjacency is None:
        return None
    return set(zip(*tokens.adjacency.edge_index.tolist(), tokens.adjacency.edge_type.tolist()))


def _same_spec(one: TokenSpec, other: TokenSpec) -> bool:
    """Whether two specs are equal, but for an embedder that may be made anew each time (a lambda in a property)."""
    names = [name for name in TokenSpec.__dataclass_fields__ if name != "embedder"]
    has_embedder = [spec.embedder is None for spec in (one, other)]
    return all(getattr(one, n) == getattr(other, n) for n in names) and has_embedder[0] == has_embedder[1]


def _assert_encodes_alike(
    got: Tokenizer, expected: Tokenizer, raws: Sequence[Any], kind: str, order: Iterable[int]
) -> None:
    if not _same_spec(_spec(got), _spec(expected)):
        raise AssertionError(f"{kind} has the spec {got.spec}, not {expected.spec}")
    for i in order:
        what = f"example {i} encoded by {kind}"
        tokens = _encode(expected, raws, i)
        _assert_same(_encode(got, raws, i, what), tokens, what, exact=True)
        if _has_decode(got) and _has_decode(expected):
            what = f"example {i} decoded by {kind}"
            if not same(_decode(expected, tokens, f"example {i}: decode"), _decode(got, tokens, what)):
                raise AssertionError(f"{what} is another one: {LOST}")


def _learned(fresh: Tokenizer, fitted: Tokenizer) -> bool:
    """Whether fitting changed an attribute."""
    return not same(
        {name: value for name, value in vars(fresh).items() if name != "was_fitted"},
        {name: value for name, value in vars(fitted).items() if name != "was_fitted"},
    )


def _spoil(state: Any) -> None:
    """Empties a state and everything in it."""
    for inner in list(state.values() if isinstance(state, dict) else state if isinstance(state, list) else ()):
        _spoil(inner)
    if isinstance(state, dict | list):
        state.clear()


def _unfitted(tokenizer: Tokenizer, unfitted: Tokenizer | None) -> Callable[[], Tokenizer]:
    """A function that builds unfitted tokenizers with the same settings. Raises ValueError if it does not know how."""
    if unfitted is not None:
        return lambda: copy.deepcopy(unfitted)
    cls = type(tokenizer)
    signature, unknown = inspect.signature(cls), []
    settings: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        known = [n for n in (parameter.name, f"_{parameter.name}") if n in vars(tokenizer)]
        if known:
            settings[parameter.name] = vars(tokenizer)[known[0]]
        elif parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            unknown.append(parameter.name)
    if not unknown:

        def build() -> Tokenizer:
            given = inspect.BoundArguments(signature, OrderedDict(copy.deepcopy(settings)))
            return cls(*given.args, **given.kwargs)

        return build
    if not hasattr(tokenizer, "fit") and not tokenizer.state():
        return lambda: copy.deepcopy(tokenizer)  # it has no state
    raise ValueError(
        f"{cls.__name__} has settings that no attribute is named after ({', '.join(unknown)}); give unfitted=, one "
        "with the same settings that is not fitted: it must do the same once it has loaded the state"
    )
