"""`generation_config.json` of transformers: ids that a model writes with, and how it was published to write."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from seqkit.errors import DataError, shortened
from seqkit.pretrained.config_file import ConfigFile, read_json

if TYPE_CHECKING:
    from seqkit.generation.beam_search import BeamSearch
    from seqkit.generation.sampling import Sampling

log = logging.getLogger("seqkit")

GENERATION = "generation_config.json"

SAMPLING = {
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}
"""Settings of `Sampling` under the names of transformers, with its values where a file that samples lacks them."""

NOT_READ: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        (
            "no_repeat_ngram_size",
            "encoder_no_repeat_ngram_size",
            "min_length",
            "min_new_tokens",
            "epsilon_cutoff",
            "eta_cutoff",
            "diversity_penalty",
        ),
        (0,),
    ),
    **dict.fromkeys(
        (
            "encoder_repetition_penalty",
            "length_penalty",
            "typical_p",
            "num_beam_groups",
            "num_return_sequences",
        ),
        (1,),
    ),
    "max_length": (20,),
    "forced_eos_token_id": (),
}
"""Keys that are not read, with the values beside null that change nothing; `config.json` is asked for no others."""

CHANGES_NOTHING = re.compile(
    r"_.*|transformers_version|target_lookbehind|(pad|bos|decoder_start|forced_bos)_token_id|.*cache.*|output_.*|return_dict.*"
    r"|.*compile.*|.*assistant.*|prompt_lookup.*|prefill_chunk_size|low_memory|(lang|task)_to_id|is_multilingual"
    r"|alignment_heads|no_timestamps_token_id|prev_sot_token_id|max_initial_timestamp_index|return_timestamps"
)
"""Keys that change no text, or that each type reads for itself, as it has to."""


@dataclass(frozen=True)
class Published:
    """How a model was published to write, as far as its file says so.

    stop: ids that end a text. never, never_first: ids that are not generated at all, or not first. sampling, beams:
    settings of `Sampling` and `BeamSearch`; beams empty: it samples. max_new_tokens: None: it does not say.
    """

    stop: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    never_first: tuple[int, ...] = ()
    sampling: dict[str, Any] = field(default_factory=dict)
    beams: dict[str, Any] = field(default_factory=dict)
    max_new_tokens: int | None = None

    def of_ids_below(self, num_ids: int) -> Published:
        """Without the ids that a model of so many does not have: none of them is ever generated."""
        stop, never, never_first = (
            tuple(i for i in ids if i < num_ids)
            for ids in (self.stop, self.never, self.never_first)
        )
        return replace(self, stop=stop, never=never, never_first=never_first)

    def strategy(self) -> Sampling | BeamSearch:
        """Strategy that it says. Raises ValueError for a setting out of its range."""
        from seqkit.generation.beam_search import BeamSearch
        from seqkit.generation.sampling import Sampling

        if self.beams:
            return BeamSearch(**self.beams)
        return Sampling(**self.sampling)


class Generation:
    """Keys of `generation_config.json`; those that it lacks are looked for in `config.json`, as in older folders.

    Raises DataError where the file is damaged.
    """

    def __init__(self, config: ConfigFile):
        self._config = config
        self.path = config.path.parent / GENERATION
        held = read_json(self.path) if self.path.exists() else {}
        if not isinstance(held, dict):
            raise DataError(f"{self.path} holds no settings by name; copy it again")
        self._held: dict[str, Any] = held

    def get(self, name: str) -> Any:
        """Value of a key; None: neither file has it."""
        value = self._config.get(name)
        return self._held.get(name, value)

    def ids(self, name: str, default: list[int]) -> list[int]:
        """One id or several as a list. Raises DataError for anything else."""
        value = self.get(name)
        if value is None:
            found = default
        elif isinstance(value, list):
            found = value
        else:
            found = [value]
        if not all(type(i) is int and i >= 0 for i in found):
            raise self.refused(name, "an id, or a list of ids")
        return found

    def one_id(self, name: str, default: int) -> int:
        """One id. Raises DataError for several."""
        found = self.ids(name, [default])
        if len(found) != 1:
            raise self.refused(name, "one id")
        return found[0]

    def forced_first(self) -> list[int]:
        """The id that is forced behind the start, or none. Raises DataError for several."""
        found = self.ids("forced_bos_token_id", [])
        if len(found) > 1:
            raise self.refused("forced_bos_token_id", "one id")
        return found

    def never(self) -> list[int]:
        """Ids that are not generated: `suppress_tokens`, and words of one id in `bad_words_ids`."""
        words = self.get("bad_words_ids") or []
        if not isinstance(words, list) or not all(
            isinstance(ids, list) and len(ids) == 1 and type(ids[0]) is int for ids in words
        ):
            raise self.refused("bad_words_ids", "lists of one id")
        return sorted({*self.ids("suppress_tokens", []), *(ids[0] for ids in words)})

    def published(self) -> Published:
        """How the model was published to write. Raises DataError for a value that means nothing."""
        length = self.get("max_new_tokens")
        if length is not None and (type(length) is not int or length < 1):
            raise self.refused("max_new_tokens", "a whole number from 1 on")
        sampling = self._numbers(*SAMPLING)
        samples = self.get("do_sample")
        if samples not in (None, True, False):
            raise self.refused("do_sample", "true or false")
        if samples:
            sampling = SAMPLING | sampling
        elif samples is not None:
            sampling["temperature"] = 0.0
        if sampling.get("top_k") == 0:  # all
            sampling["top_k"] = None
        found = Published(
            stop=tuple(self.ids("eos_token_id", [])),
            never=tuple(self.never()),
            never_first=tuple(self.ids("begin_suppress_tokens", [])),
            sampling=sampling,
            beams=self._beams(),
            max_new_tokens=length,
        )
        try:
            found.strategy()
        except ValueError as error:
            raise DataError(f"{self.path}: {error}") from error
        return found

    def _numbers(self, *names: str) -> dict[str, Any]:
        """Numbers by key, as far as they are written. Raises DataError for anything else."""
        found = {name: value for name in names if (value := self.get(name)) is not None}
        for name, value in found.items():
            if type(value) not in (int, float):
                raise self.refused(name, "a number")
        return found

    def _beams(self) -> dict[str, Any]:
        """Settings of `BeamSearch`; empty: it samples."""
        if not self._searches:
            return {}
        ends = self.get("early_stopping") or False
        return {**self._numbers("num_beams", "length_penalty"), "early_stopping": ends}

    @property
    def _searches(self) -> bool:
        """Whether texts are searched for by beams."""
        return self.get("num_beams") not in (None, 1) and self.get("do_sample") is not True

    def log_unread(self) -> None:
        """Log the settings that are not read, and would change what is written."""
        known = {*NOT_READ, *SAMPLING, *READ}
        names = [*NOT_READ, *(name for name in self._held if name not in known)]
        if self._searches:
            names.remove("length_penalty")
            names.append("repetition_penalty")
        elif self.get("num_beams") not in (None, 1):
            names.append("num_beams")
        unread = [
            f"{name}={value}"
            for name in names
            if not CHANGES_NOTHING.fullmatch(name)
            and (value := self.get(name)) not in (None, *NOT_READ.get(name, (False,)))
        ]
        if unread:
            log.warning("%s: not read, so texts may differ: %s", self.path, ", ".join(unread))

    def refused(self, name: str, known: str) -> DataError:
        """The error for a value that is not read."""
        value = shortened(repr(self.get(name)))
        return DataError(f"{self.path}: {name} is {value}, and what is read is {known}")


READ = {
    "do_sample", "num_beams", "early_stopping", "max_new_tokens", "eos_token_id", "suppress_tokens",
    "begin_suppress_tokens", "bad_words_ids",
}  # fmt: skip
"""Keys that are read beside `SAMPLING`."""
