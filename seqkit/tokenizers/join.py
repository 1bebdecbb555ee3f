"""Several tokenizers as one: joined tokens of examples with several parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from torch import Tensor

from seqkit.errors import DataError, suggest
from seqkit.interfaces import FittedState, Tokenizer, Tokens, TokenSpec
from seqkit.tokenizers.text import Text


class Join(Tokenizer):
    """Tokenizer of examples with several parts, each with a tokenizer of its own (`TokenSpec.join`).

    A raw example is a mapping, from names of parts to their raw examples: they stand in the order of `parts`, and all
    positions begin at 0. Or it is a list of (name, raw example) pairs in an order of its own, in which a part may come
    several times: positions run on from run to run. A part that is absent, or None, has no tokens; neither has a row of
    cells of which none is filled.
    parts: tokenizers by name. reads: by name of a part, the key of the raw mapping that it reads; a part without an
    entry reads its own name, so two parts may read one key.
    Raises DataError for an example with none of the parts, or with a name that is no part.
    """

    def __init__(self, parts: Mapping[str, Tokenizer], *, reads: dict[str, str] | None = None):
        if not parts:
            raise ValueError("Join has no parts; give a tokenizer for each, by name")
        self.parts: dict[str, Any] = dict(parts)
        self.reads = dict(reads or {})
        for name in self.reads:
            if name not in self.parts:
                raise ValueError(
                    f"reads names {name!r}, which is no part; {suggest(name, self.parts)}"
                )
        self.is_slow = any(one.is_slow for one in self.parts.values())
        unfitted = {name: TokenSpec(vocab_size=1) for name in self.parts}
        TokenSpec(parts=unfitted)  # type: ignore[arg-type]  # refuses names before any data is read

    @property
    def spec(self) -> TokenSpec:
        """Spec of the joined tokens. Raises ValueError, with the part's name, before a part is fitted."""
        found: dict[str, TokenSpec] = {}
        for name, tokenizer in self.parts.items():
            try:
                found[name] = tokenizer.spec
            except ValueError as error:
                raise ValueError(f"part {name}: {error}") from None
        return TokenSpec(parts=tuple(found.items()))

    @property
    def was_fitted(self) -> bool:
        """True: all parts that can be fitted were."""
        return all(one.was_fitted for one in self.parts.values() if hasattr(one, "fit"))

    def encode(self, raw: Any, /) -> Tokens:
        """Joined tokens of a mapping or of a list of pairs."""
        runs = []
        for name, part in self.runs(raw):
            try:
                runs.append((name, self.parts[name].encode(part)))
            except DataError as error:
                raise DataError(f"part {name}: {error}") from error
        return self.spec.join(runs, runs_on=not isinstance(raw, Mapping))

    def runs(self, raw: Any) -> list[tuple[str, Any]]:
        """Name and raw example of each run of a raw example, in the order of the sequence."""
        keys = {name: self.reads.get(name, name) for name in self.parts}
        if isinstance(raw, Mapping):
            unknown = [key for key in raw if key not in keys.values()]
            if unknown:
                raise DataError(
                    f"{unknown[0]!r} is no part; {suggest(str(unknown[0]), keys.values())}"
                )
            return [(name, raw[key]) for name, key in keys.items() if _is_given(raw.get(key))]
        if not isinstance(raw, list | tuple) or not all(
            isinstance(x, list | tuple) and len(x) == 2 for x in raw
        ):
            raise DataError(
                f"the example is a {type(raw).__name__}; give {{part: raw example}}, or a list of pairs"
            )
        for name, _ in raw:
            if name not in self.parts:
                raise DataError(f"{name!r} is no part; {suggest(str(name), self.parts)}")
        return [(name, part) for name, part in raw if _is_given(part)]

    def fit(self, raws: Sequence[Any]) -> None:
        """Fits each part that can be fitted, and is not, on its own raw examples."""
        for name, tokenizer in self.parts.items():
            if not hasattr(tokenizer, "fit") or tokenizer.was_fitted:
                continue
            own = [part for raw in raws for run, part in self.runs(raw) if run == name]
            if not own:
                raise DataError(
                    f"no training example has the part {name}, so its tokenizer cannot be fitted"
                )
            tokenizer.fit(own)

    def share_unknown(self, raws: Iterable[Any]) -> list[str]:
        """`Text.share_unknown` of each part that is text."""
        texts: dict[str, list[Any]] = {
            name: [] for name, one in self.parts.items() if isinstance(one, Text)
        }
        for raw in raws if texts else ():
            with suppress(DataError):  # it is refused where it is encoded
                for name, part in self.runs(raw):
                    texts.get(name, []).append(part)
        return [
            f"part {name}: {said}"
            for name in texts
            for said in self.parts[name].share_unknown(texts[name])
        ]

    def without(self, tokens: Tokens, names: Collection[str]) -> Tokens:
        """The tokens as they are if these parts had not been given. Raises DataError where no part is left."""
        kept = [(name, run) for name, run in tokens.alone() if name not in names]
        return self.spec.join(kept, runs_on=tokens.runs_on)

    def state(self) -> FittedState:
        """State of each part that has one."""
        states = {name: tokenizer.state() for name, tokenizer in self.parts.items()}
        return {name: state for name, state in states.items() if state}

    def load_state(self, state: FittedState) -> None:
        """Restores each part. Raises ValueError for a state of a part that is not there."""
        for name, own in state.items():
            if name not in self.parts:
                raise ValueError(f"the state is of a part {name!r}; {suggest(name, self.parts)}")
            self.parts[name].load_state(own)

    @property
    def decode(self) -> Callable[[Tokens], Any] | None:
        """Function from joined tokens to a raw example; None where a part has no `decode`."""
        if all(getattr(part, "decode", None) for part in self.parts.values()):
            return self._decode
        return None

    def continues(self, tokens: Tokens, content: Tensor) -> Tokens:
        """The last run goes on by a token of its part."""
        *before, (name, last) = tokens.alone()
        return self.spec.join(
            [*before, (name, self.parts[name].continues(last, content))], runs_on=tokens.runs_on
        )

    def _decode(self, tokens: Tokens) -> Any:
        """A mapping, or the list of pairs that it was where positions run on."""
        found = [(name, self.parts[name].decode(run)) for name, run in tokens.alone()]
        if tokens.runs_on:
            return found
        return {self.reads.get(name, name): part for name, part in found}


def _is_given(part: Any) -> bool:
    """Whether a part of an example is there; a mapping without a value is not."""
    if isinstance(part, Mapping):
        return any(value is not None for value in part.values())
    return part is not None
