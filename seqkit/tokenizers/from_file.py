"""Subwords of another's model, by its `tokenizer.json`.

n tokens
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqkit.errors import DataError
from seqkit.files import MAX_JSON_BYTES, decoded, load_json, read_small
from seqkit.interfaces import Tokens, TokenSpec
from seqkit.tokenizers.library import as_value_error, library
from seqkit.tokenizers.settings import check_counts
from seqkit.tokenizers.text import Text, checked, utf8

NAME = "tokenizer.json"
"""Name of the file in a model's folder, and key of its text in the state."""

_TEXT = 2**32 - 1
"""Id that stands for a text where it is asked what is put around one."""


@dataclass(frozen=True)
class _Ready:
    """A tokenizer of the library, and what is asked of it often.

    size: number of ids. unknown_id: that of unknown words; None: there is none. before, behind: ids that it puts
    around a text.
    """

    model: Any
    size: int
    unknown_id: int | None
    before: list[int]
    behind: list[int]


class FromFile(Text):
    """Subwords as a `tokenizer.json` of the library `tokenizers` makes them: exactly the ids of the model it is of.

    path: the file, or the folder that holds it under this name.
    special_tokens: True: with what the model puts around a text (`[CLS]` and `[SEP]`, `</s>`), which `decode` takes off
    again where there is more. False: without, as for a text to go on with.
    num_ids: number of ids of the model, which may be more than the file has: tables are filled up to round numbers.
    None: as many as the file has.
    token_types: number of the model's token types (`type_vocab_size` of BERT), a second axis of the positions: 0 in a
    text, 1 in the second text of a pair. 0: positions count tokens alone, and pairs are refused.
    end_id: id that ends a text: none is kept behind the first one (CLIP). None: all are.
    max_tokens: texts of more tokens are cut to so many, before the special tokens that end them; None: none is cut.
    pad_id: id that fills shorter texts up to `max_tokens`, as tokens like any other (SigLIP); None: none is filled.
    A pair is a list of two texts.
    Padding, truncation and dropout that the file asks for are left out: batches are padded elsewhere, and no text is
    cut in silence. Its ids for end and padding are ids as all others. The text of the file is the state, so a run needs
    the file no more. A normal form that it makes (lower case, single spaces) is not undone.
    When: weights that were trained with these ids, or to be compared with a published model.
    Raises ValueError if the library is missing, or options contradict each other; DataError, once it is used, if the
    file cannot be read, or has more ids than `num_ids`.
    """

    def __init__(
        self,
        path: str,
        special_tokens: bool = True,
        *,
        num_ids: int | None = None,
        token_types: int = 0,
        end_id: int | None = None,
        max_tokens: int | None = None,
        pad_id: int | None = None,
    ) -> None:
        library("FromFile")
        check_counts(num_ids=num_ids, max_tokens=max_tokens)
        for name, value in (("token_types", token_types), ("end_id", end_id), ("pad_id", pad_id)):
            if value is not None and value < 0:
                raise ValueError(f"{name}={value}; give 0 or more")
        if pad_id is not None and max_tokens is None:
            raise ValueError(f"pad_id={pad_id} fills texts up to max_tokens; give that, too")
        if token_types and (end_id, max_tokens) != (None, None):
            raise ValueError(
                f"end_id and max_tokens are for single texts, and token_types={token_types} for pairs"
            )
        self.path = path
        self.special_tokens = special_tokens
        self.end_id = end_id
        self.max_tokens = max_tokens
        self.pad_id = pad_id
        self.num_ids = num_ids
        self.token_types = token_types
        # read when it is needed: a run that is loaded has it in its state
        self._json: str | None = None
        self._made: _Ready | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The text, so that a copy needs no file, and not what the library makes of it, which may round the scores."""
        with suppress(DataError):  # whoever uses the copy gets it
            self._ready()
        return {**vars(self), "_made": None}

    @property
    def spec(self) -> TokenSpec:
        """Ids below `vocab_size` on one axis, or two with token types."""
        return TokenSpec(vocab_size=self.vocab_size, num_axes=2 if self.token_types else 1)

    @property
    def vocab_size(self) -> int:
        if self.num_ids is None:
            return self._ready().size
        return self.num_ids

    @property
    def num_known_ids(self) -> int:
        """Number of ids that the file has. Raises DataError if it cannot be read, or has more than `num_ids`."""
        return self._ready().size

    def id_of(self, token: str) -> int | None:
        """Id of a token of the vocabulary; None: there is no such token."""
        found: int | None = self._ready().model.token_to_id(token)
        return found

    @property
    def unknown_id(self) -> int | None:
        return self._ready().unknown_id

    def state(self) -> dict[str, str | None]:
        """The text of the file. Raises DataError if it cannot be read, and no state was loaded."""
        self._ready()
        return {NAME: self._json}

    def load_state(self, state: dict[str, str | None]) -> None:
        """Take back what `state` gave; the file is not read. Raises ValueError if it is not that."""
        if not state:
            return
        text = state.get(NAME)
        if set(state) != {NAME} or not isinstance(text, str):
            raise ValueError(
                f"state holds {sorted(state)}; the state of FromFile is {{{NAME!r}: text}}"
            )
        if len(text) > MAX_JSON_BYTES:
            raise ValueError(f"state has {len(text):,} characters; {MAX_JSON_BYTES:,} are the most")
        try:
            self._made = _made(text, self.special_tokens, self.num_ids)
        except ValueError as error:
            raise ValueError(f"state: {error}") from None
        self._json = text

    def _ready(self) -> _Ready:
        if self._made is None:
            text = self._json or _text_of(self.path)
            try:
                self._made = _made(text, self.special_tokens, self.num_ids)
            except ValueError as error:
                raise DataError(f"{self.path}: {error}") from None
            self._json = text
        return self._made

    def encode(self, raw: Any, /) -> Tokens:
        """A text, or a list of two, as ids [n]; positions [n 1] or [n 2] count tokens from 0, and say the token type.

        Raises DataError if a text is no `str`, is empty, or has no ids; for a pair where there are no two token types.
        """
        if not self.token_types:
            return super().encode(raw)
        given = raw if isinstance(raw, list | tuple) else [raw]
        texts = [checked(text) for text in given]
        if len(texts) > min(2, self.token_types):
            types = "1 token type" if self.token_types == 1 else f"{self.token_types} token types"
            raise DataError(
                f"an example has {len(texts)} texts, and the model {types}; give one text"
            )
        found = self._encoded(*texts)
        places = [torch.arange(len(found.ids)), torch.tensor(found.type_ids)]
        return Tokens(torch.tensor(found.ids), torch.stack(places, dim=1).float())

    def cut(self, tokens: Tokens, n: int) -> Tokens:
        """At most n tokens: the first, and behind them the special tokens that end a text."""
        behind = len(self._ready().behind)
        if len(tokens) <= n:
            return tokens
        if n <= behind:
            return tokens.at(slice(n))
        end = torch.arange(len(tokens) - behind, len(tokens))
        kept = tokens.at(torch.cat([torch.arange(n - behind), end]))
        positions = kept.positions.clone()
        positions[:, 0] = torch.arange(len(positions))
        return replace(kept, positions=positions)

    def _ids(self, text: str) -> np.ndarray:
        ids = list(self._encoded(text).ids)
        if self.end_id in ids:
            ids = ids[: ids.index(self.end_id) + 1]
        if self.max_tokens is not None:
            behind = len(self._ready().behind) if len(ids) > self.max_tokens else 0
            ids = ids[: max(self.max_tokens - behind, 0)] + ids[len(ids) - behind :]
            ids = ids[: self.max_tokens]
            if self.pad_id is not None:
                ids += [self.pad_id] * (self.max_tokens - len(ids))
        return np.array(ids, np.uint32)

    def _encoded(self, *texts: str) -> Any:
        """Encoding of a text or two by the library. Raises DataError if it has no ids."""
        for text in texts:
            utf8(text)  # a DataError for what the library cannot encode
        ready = self._ready()
        name = f"a text of {len(texts[0]):,} characters" if len(texts) == 1 else "a pair of texts"
        try:
            with as_value_error(f"{name} has no ids"):
                found = ready.model.encode(*texts, add_special_tokens=self.special_tokens)
        except ValueError as error:
            raise DataError(str(error)) from None
        if not found.ids:
            raise DataError(f"{name} holds no tokens; drop it")
        return found

    def _text(self, ids: np.ndarray) -> str:
        ready = self._ready()
        inner = ids.tolist()
        while inner and inner[-1] == self.pad_id:
            inner.pop()
        if inner[: len(ready.before)] == ready.before:
            inner = inner[len(ready.before) :]
        if ready.behind and inner[-len(ready.behind) :] == ready.behind:
            inner = inner[: -len(ready.behind)]
        with as_value_error("the ids have no text"):
            text: str = ready.model.decode(inner or ids.tolist(), skip_special_tokens=False)
        return text


def _text_of(path: str) -> str:
    """Text of the file. Raises DataError, in one line with the path, if it cannot be read."""
    try:
        file = Path(path).expanduser()
        if file.is_dir():
            file /= NAME
        return decoded(read_small(file, MAX_JSON_BYTES))
    except DataError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{path} cannot be read as a {NAME}: {getattr(error, 'strerror', None) or error}"
        ) from None


def _made(text: str, special_tokens: bool, num_ids: int | None = None) -> _Ready:
    """The tokenizer of a `tokenizer.json`. Raises ValueError in one line for any other text, or one of more ids."""
    try:
        parsed = load_json(text)
    except ValueError as error:
        raise ValueError(f"it is damaged, or no JSON ({error})") from None
    inner = parsed.get("model") if isinstance(parsed, dict) else None
    if not isinstance(inner, dict):
        raise ValueError(f"it is JSON, but no {NAME}: it has no model")
    with as_value_error(f"it is no {NAME} that the library tokenizers reads"):
        model = library("FromFile").Tokenizer.from_str(text)
        model.no_padding()
        model.no_truncation()
        if getattr(model.model, "dropout", None) is not None:
            model.model.dropout = None  # other ids each time
        around = model.encode("", add_special_tokens=False)
        around.pad(1, pad_id=_TEXT)
        ids = model.post_process(around).ids if special_tokens else [_TEXT]
        before = ids[: ids.index(_TEXT)]
        behind = ids[ids.index(_TEXT) + 1 :]
        vocabulary = model.get_vocab()
    size = 1 + max(vocabulary.values(), default=-1)
    if size == 0:
        raise ValueError("its vocabulary is empty")
    if num_ids is not None and size > num_ids:
        raise ValueError(
            f"it has ids up to {size - 1:,}, and the model has {num_ids:,}; it belongs to another model"
        )
    if size > 2 * len(vocabulary):  # an embedding has a row for each
        raise ValueError(
            f"it numbers {len(vocabulary):,} tokens up to {size - 1:,}; most ids would mean nothing"
        )
    if wrong := [i for i in before + behind if i >= size]:
        raise ValueError(
            f"it puts id {wrong[0]:,} around a text, and its ids go from 0 to {size - 1:,}"
        )
    unknown = inner.get("unk_id")
    if isinstance(name := inner.get("unk_token"), str):
        unknown = vocabulary.get(name)
    if not isinstance(unknown, int) or unknown >= size:
        unknown = None
    return _Ready(model, size, unknown, before, behind)
