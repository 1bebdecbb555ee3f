"""Settings of a comparison as plain data: the same settings are the same comparison."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

import yaml

from seqkit.comparison.patterns import in_a_word
from seqkit.config.mixers import MIXER
from seqkit.config.overrides import Word
from seqkit.config.recipe import load_yaml
from seqkit.errors import UsageError
from seqkit.registry import components

Match = Literal["parameters", "flops", "none"]

MIN_SEEDS = 3
"""Seeds before the first verdict of a comparison with a margin."""

NUM_SEEDS = 3
"""Seeds of each candidate, unless the user says."""

MOST_SEEDS = 20
"""Seeds of each candidate at most in a comparison with a margin, unless the user says."""

LR_RATIO = 10**0.5
"""Ratio of neighbours in the grid of learning rates: two trials a decade."""


class Variant(NamedTuple):
    """Difference of a candidate from the recipe: backbone and width (None: the recipe's), values by dotted key."""

    name: str
    backbone: str | None
    width: str | None
    values: dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a comparison.

    recipe, preset, overrides: as for `seqkit fit`; overrides are words of the command line (`--data.limit`, `200`).
    backbones, vary: what differs; every combination is a candidate. backbones: names of backbones, or of mixers, which
    stand in a Transformer in the place of attention (`MinGRU`; `3Mamba+MultiHeadAttention`, a pattern of four).
    vary: values by dotted key; `width` is that of all backbones in the backbone. `model.backbone.position` also takes
    positions that are added to the embeddings (`Sinusoidal`), which are `model.position` in a recipe.
    match: the budget that is made equal to the reference's, which is the first candidate. seeds: number of seeds.
    lr_trials: learning rates for each candidate; 0: nothing is tuned. tuning_seeds: seeds of the best trials, 1 or 2.
    depths: try other depths at an equal budget, where backbones are compared at equal parameters or FLOPs and tuned.
    measure: measure speed and memory.
    until_sure: the margin δ, as the page shows the metric: after every seed each candidate is judged against the
    reference, and gets no more once that is decided; `seeds` is then the most. None: every candidate gets `seeds`.
    threads: torch's threads in each process; None: as OMP_NUM_THREADS says, or the cores are shared by the jobs.
    Raises UsageError for values out of range, or settings that contradict each other.

    >>> settings = Settings(recipe="image/digits", backbones=["LSTM", "GRU"], vary={"model.dropout": ["0", "0.1"]})
    >>> [variant.name for variant in settings.variants()]
    ['LSTM, dropout=0', 'LSTM, dropout=0.1', 'GRU, dropout=0', 'GRU, dropout=0.1']
    """

    recipe: str
    preset: str | None = None
    overrides: list[str] = field(default_factory=list)
    backbones: list[str] = field(default_factory=list)
    vary: dict[str, list[str]] = field(default_factory=dict)
    match: Match = "parameters"
    until_sure: float | None = None
    seeds: int = NUM_SEEDS
    lr_trials: int = 3
    tuning_seeds: int = 2
    depths: bool = True
    measure: bool = True
    threads: int | None = None
    plugins: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.match not in get_args(Match):
            raise UsageError(f"--match is {self.match!r}; give {', '.join(get_args(Match))}")
        for name, least in (("threads", 1), ("seeds", 1), ("lr_trials", 0)):
            number = getattr(self, name)
            if number is not None and number < least:
                raise UsageError(f"--{name.replace('_', '-')} is {number}; give {least} or more")
        delta = self.until_sure
        if delta is not None and not 0 < delta < math.inf:
            raise UsageError(
                f"--until-sure is {delta:g}; give a number above 0, such as 1 for a percentage point"
            )
        if delta is not None and self.seeds < MIN_SEEDS:
            advice = f"give {MIN_SEEDS} or more with --until-sure, which decides nothing before"
            raise UsageError(f"--seeds is {self.seeds}; {advice}")
        if self.tuning_seeds not in (1, 2):
            raise UsageError(f"--tuning-seeds is {self.tuning_seeds}; give 1 or 2")
        if "seed" in self.vary:
            raise UsageError(
                "--vary seed: every candidate is trained with the same seeds; give --seeds 5 for more"
            )
        size = next(
            (key for key in self.vary if key.rpartition(".")[2] in ("width", "dim", "depth")), None
        )
        if size is not None and self.match in ("parameters", "flops"):
            raise UsageError(
                f"--vary {size}: --match {self.match} would make all sizes equal again; add --match none"
            )
        if len(self.variants()) < 2:
            example = "--backbones Transformer,LSTM or --vary model.position=Sinusoidal,Learned"
            raise UsageError(f"there is one candidate only; give several, such as {example}")

    def variants(self) -> list[Variant]:
        """Differences of every candidate from the recipe, the reference first."""
        found = []
        named = {key: _names(key, values) for key, values in self.vary.items()}
        backbones: list[str | None] = [*self.backbones] or [None]
        for backbone, *chosen in product(backbones, *self.vary.values()):
            names = [] if backbone is None else [_short(backbone)]
            width = None
            values: dict[str, object] = {}
            for key, value in zip(self.vary, chosen):
                names.append(named[key][str(value)])
                if key == "width":
                    width = value
                elif key == "model.backbone.position" and value in components("position"):
                    values |= {key: None, "model.position": Word(value)}
                else:
                    values[key] = Word(value)
            found.append(Variant(", ".join(names), backbone, width, values))
        return found

    @property
    def tries_depths(self) -> bool:
        """Whether other depths are tried."""
        is_wanted = self.depths and self.lr_trials > 1 and bool(self.backbones)
        return is_wanted and self.match in ("parameters", "flops")

    @property
    def identity(self) -> dict[str, object]:
        """Settings that make it another comparison. The most seeds of one with a margin may be raised later."""
        found = asdict(self)
        if self.until_sure is not None:
            del found["seeds"]
        return found

    @property
    def digest(self) -> str:
        """Eight digits of the SHA-256 of its identity, which name the comparison."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:8]

    def command(self) -> str:
        """The command line that repeats this comparison."""
        words = ["seqkit", "compare", self.recipe]
        if self.preset is not None:
            words += ["--preset", self.preset]
        if self.backbones:
            words += ["--backbones", ",".join(self.backbones)]
        for key, values in self.vary.items():
            words += ["--vary", f"{key}={','.join(values)}"]
        defaults = {name: f.default for name, f in self.__dataclass_fields__.items()}
        for name in ("match", "seeds", "until_sure", "lr_trials", "tuning_seeds", "threads"):
            if getattr(self, name) != defaults[name]:
                words += [f"--{name.replace('_', '-')}", str(getattr(self, name))]
        if not self.measure:
            words.append("--no-measure")
        if not self.depths:
            words.append("--no-depths")
        for plugin in self.plugins:
            words += ["--plugin", plugin]
        return shlex.join([*words, *self.overrides])


def read_vary(words: Sequence[str]) -> dict[str, list[str]]:
    """Values by key from words like `key=a,b`; commas inside brackets do not separate values.

    Raises UsageError if a word has no key, or fewer than two values.
    """
    found: dict[str, list[str]] = {}
    for word in words:
        key, _, rest = word.partition("=")
        values = _values(rest)
        if not key or len(values) < 2:
            raise UsageError(
                f"--vary is {word!r}; give a key and two values or more: --vary tokenizer=Characters,BPE"
            )
        if key in found:
            raise UsageError(f"--vary names {key} twice; give all its values at once")
        found[key] = values
    return found


def _values(text: str) -> list[str]:
    values = [""]
    depth = 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            values.append("")
        else:
            values[-1] += letter
    return [value.strip() for value in values if value.strip()]


def _names(key: str, values: Sequence[str]) -> dict[str, str]:
    """Name of each value of a key: its type alone, and as it is written where two have the same type."""
    short = [_short(f"{key}={value}") for value in values]
    last = key.rpartition(".")[2]
    return {
        value: name if short.count(name) == 1 else f"{last}={value}"
        for value, name in zip(values, short)
    }


def _short(label: str) -> str:
    """`model.backbone.position=Rotary` as `position=Rotary`; a component in braces by its type, a list as one word."""
    if "{" not in label:
        key, is_pair, value = label.rpartition("=")
    else:
        key, is_pair, value = label.partition("=")
    if not is_pair:
        return label
    name = key.rpartition(".")[2]
    is_written_out = value.startswith("{") or name == MIXER
    try:
        written: Any = load_yaml(value) if is_written_out else value
    except yaml.YAMLError:
        raise UsageError(
            f"--vary {key}: {value!r} is not readable; close every brace and quote"
        ) from None
    if isinstance(written, dict):
        value = written.get("type", value)
    elif isinstance(written, list):
        value = in_a_word(written)
    return f"{name}={value}"
