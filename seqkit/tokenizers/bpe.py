"""Subwords by byte-pair encoding over UTF-8 bytes, trained on your own text.

n tokens
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from seqkit.tokenizers.text import Text, each_text, utf8

MAX_TRAINING_BYTES = 2**25
"""Of a larger text a sample is trained on: 17 s of a core. Merges are frequent sequences, which it has as well."""

_TIMED = 10**6
"""Characters by which the time of a training is foreseen."""

_PART = 50_000
_BREAK = re.compile(r"\w[ \n]")
"""Where a text can be cut without a change: no subword goes on behind a letter with a space or a line's end."""

log = logging.getLogger("seqkit")

_FOREIGN = ("truncation", "padding", "added_tokens", "normalizer", "post_processor")
_FOREIGN_IN_MODEL = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
"""What the library's tokenizers may have, and ours never do."""


class BPE(Text):
    """Subwords, byte-level: frequent byte sequences get an id of their own, so any text encodes and decodes exactly.

    vocab_size: number of ids to train for, from 256 (bytes); a small text may give fewer. None: by the amount of text,
    the power of two nearest to sqrt(bytes), from 512 to 32,768 (words of a text grow as about the root of its length).
    Of a large text, `MAX_TRAINING_BYTES` are trained on, taken from all over it.
    The state is the JSON of the `tokenizers` library. What is not UTF-8 in generated ids is decoded as U+FFFD.
    When: larger corpora, shorter sequences.
    Raises ValueError if `vocab_size` is below 256 or the library is missing. Sennrich et al. 2016, Radford et al. 2019.
    """

    def __init__(self, vocab_size: int | None = None) -> None:
        if vocab_size is not None and vocab_size < 256:
            raise ValueError(f"vocab_size={vocab_size}; byte-level BPE starts from the 256 bytes, so give 256 or more")
        _library()
        self._num_wanted = vocab_size
        self._model: Any = None

    def __repr__(self) -> str:
        return f"BPE({self._num_wanted or '' if self._model is None else self.vocab_size})"

    @property
    def fitted(self) -> bool:
        """True: there is a vocabulary."""
        return self._model is not None

    @property
    def vocab_size(self) -> int:
        return self._fitted().get_vocab_size()

    def fit(self, raws: Iterable[str]) -> None:
        """Train on the training texts. Raises DataError if one that is trained on is empty or not a `str`."""
        texts, num_bytes = _sample(raws)
        size = self._num_wanted or _vocab_size_for(num_bytes)
        amount = sum(map(len, texts))
        if amount > 10 * _TIMED:
            started = time.monotonic()
            _trained([text[: _TIMED // len(texts)] for text in texts], size)
            minutes = (time.monotonic() - started) * amount / _TIMED / 60
            log.warning(
                "%s",
                f"training BPE of {size:,} ids on {amount / 1e6:,.0f} of {num_bytes / 1e6:,.0f} MB of text takes about "
                f"{minutes:.1f} minutes",
            )
        self._model = _trained(texts, size)

    def state(self) -> dict[str, Any]:
        return {} if self._model is None else json.loads(self._model.to_str())

    def load_state(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave. Raises ValueError if that is not a byte-level BPE."""
        if not state:
            return
        inner = state.get("model")
        foreign = [key for key in _FOREIGN if state.get(key)]
        foreign += [key for key in _FOREIGN_IN_MODEL if isinstance(inner, dict) and inner.get(key)]
        if foreign:  # before the library sees them: it would pad to any length, and ends with a stack on some prefixes
            raise ValueError(f"state has {', '.join(foreign)}; BPE loads only what its own state() gave")
        try:
            model = _library().Tokenizer.from_str(json.dumps(state))
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"state is not the JSON of a tokenizer: {error}") from None
        types = [(state.get(key) or {}).get("type") for key in ("model", "pre_tokenizer", "decoder")]
        if types != ["BPE", "ByteLevel", "ByteLevel"]:
            raise ValueError(f"state is a tokenizer of {types}; BPE loads only what its own state() gave")
        if sorted(model.get_vocab().values()) != list(range(model.get_vocab_size())):
            raise ValueError(f"state numbers its {model.get_vocab_size()} tokens otherwise than from 0 without gaps")
        self._model = model

    def _fitted(self) -> Any:
        if self._model is None:
            raise ValueError("BPE has no vocabulary yet; call fit(texts)")
        return self._model

    def _ids(self, text: str) -> np.ndarray:
        utf8(text)  # a DataError for what the library cannot encode
        model, found, start = self._fitted(), [], 0
        while start < len(text):  # in parts, as the library keeps 100 bytes of notes on every token
            end = _BREAK.search(text, start + _PART)
            stop = len(text) if end is None else end.end() - 1
            found.append(np.array(model.encode(text[start:stop]).ids, np.uint32))
            start = stop
        return np.concatenate(found)

    def _text(self, ids: np.ndarray) -> str:
        return self._fitted().decode(ids.tolist(), skip_special_tokens=False)


def _library() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise ValueError('BPE needs the library tokenizers; pip install "seqkit[text]"') from error
    return tokenizers


def _sample(raws: Iterable[str]) -> tuple[list[str], int]:
    """Texts to train on, and the bytes of all texts (as far as the sample tells, where it is not all)."""
    texts: Any = raws if isinstance(raws, Sequence) else list(raws)
    order = np.random.default_rng(0).permutation(len(texts)).tolist()  # always the same
    chosen: dict[int, str] = {}
    used = 0
    for index, text in zip(order, each_text(texts if isinstance(texts, str) else (texts[i] for i in order))):
        used += len(utf8(text))  # a DataError here, not an error of the library's further down
        chosen[index] = text
        if used >= MAX_TRAINING_BYTES:
            break
    return [chosen[i] for i in sorted(chosen)], round(used / len(chosen) * len(texts))


def _vocab_size_for(num_bytes: int) -> int:
    return int(2 ** min(15, max(9, round(math.log2(num_bytes) / 2))))


def _trained(texts: Sequence[str], vocab_size: int) -> Any:
    library = _library()
    model = library.Tokenizer(library.models.BPE())
    model.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    with _one_thread():
        model.train_from_iterator(texts, trainer)
    return model


@contextmanager
def _one_thread() -> Iterator[None]:
    """Train without threads: after using them, the library writes to stderr whenever a data loader worker is forked."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
