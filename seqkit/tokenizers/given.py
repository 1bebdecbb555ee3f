"""Values that are given, one token each: ids of data that is tokenized already, vectors of a series.

n tokens or time steps · m patches of p steps · f features
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from statistics import median
from typing import Any, Literal

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from seqkit.errors import DataError
from seqkit.interfaces import FittedState, Tokenizer, Tokens, TokenSpec
from seqkit.raw import describe_tensor
from seqkit.tokenizers.settings import check_choice, check_counts


class Ids(Tokenizer):
    """A sequence of integers as they are: one id a token, nothing to fit.

    vocab_size: ids are 0 to vocab_size - 1.
    When: tokens of another library, states, actions, notes, synthetic tasks. Raises ValueError if vocab_size is below
    1.
    """

    def __init__(self, vocab_size: int) -> None:
        check_counts(vocab_size=vocab_size)
        self.vocab_size = vocab_size

    @property
    def spec(self) -> TokenSpec:
        """Ids below `vocab_size` on one axis."""
        return TokenSpec(vocab_size=self.vocab_size)

    def encode(self, raw: Any, /) -> Tokens:
        """A list, array or tensor of integers [n] as ids [n]; positions [n 1] count tokens from 0.

        Raises DataError where it is empty, of another shape or type, or holds an id outside the vocabulary.
        """
        ids = _as_tensor(raw, "give a list, an array or a tensor of integers [n]")
        is_integer = not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
        if ids.ndim != 1 or len(ids) == 0 or not is_integer:
            raise DataError(
                f"ids are {describe_tensor(ids)}; give one sequence of integers [n] with at least one"
            )
        outside = ids[(ids < 0) | (ids >= self.vocab_size)]
        if len(outside):
            raise DataError(
                f"id {int(outside[0])} is outside the vocabulary (0 to {self.vocab_size - 1}); set vocab_size higher"
            )
        return Tokens(ids.long(), counted(len(ids)))

    def decode(self, tokens: Tokens | Tensor | Sequence[int]) -> list[int]:
        """The ids [n], given as such or inside `Tokens`, as a list."""
        content = tokens.content if isinstance(tokens, Tokens) else tokens
        return [int(i) for i in content]


class Series(Tokenizer):
    """A series of measurements: a vector of `num_features` numbers for each time step, or for each patch of steps.

    num_features: numbers of a time step; None: as many as the first training series has. normalize: "training": less
    the mean and divided by the standard deviation of each feature in training; "series": by those of each series, as
    in RevIN without affine (Kim et al. 2022), which drops its level and scale; "statistics": the same, and each token
    ends with asinh((mean - m) / s) and log(std / s), where m and s are the medians of mean and std over the training
    series; None: numbers stay as they are. With a series' own figures, each token tells of later steps.
    patch: time steps of a token, as in PatchTST (Nie et al. 2023, section 3.1); None: a sixteenth of the median length
    of the training series, and 4 at least. stride: time steps from one patch to the next; None: a quarter of a patch.
    The last step is repeated up to the end of the last patch.
    When: time series and other vectors in order. Raises ValueError if a count is below 1, or stride above patch.

    >>> Series(patch=4).encode([1.0, 2.0, 3.0, 4.0, 5.0]).content.tolist()
    [[1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0, 5.0]]
    """

    def __init__(
        self,
        num_features: int | None = 1,
        *,
        normalize: Literal["training", "series", "statistics"] | None = None,
        patch: int | None = 1,
        stride: int | None = None,
    ) -> None:
        check_counts(num_features=num_features, patch=patch, stride=stride)
        if patch is not None and stride is not None and stride > patch:
            raise ValueError(
                f"stride={stride} leaves out steps between patches of {patch}; make it {patch} or less"
            )
        check_choice("normalize", normalize, "training", "series", "statistics", None)
        self.num_features = num_features
        self.normalize = normalize
        self.patch = patch
        self.stride = stride
        self._learned: dict[str, Any] = {}

    @property
    def width(self) -> int:
        """Numbers of a time step. Raises ValueError if it must be fitted first, as `steps`."""
        return self._known("num_features")

    @property
    def steps(self) -> tuple[int, int]:
        """Time steps of a patch, and from one patch to the next."""
        patch = self._known("patch")
        if self.stride is None:
            return patch, max(1, patch // 4)
        return patch, min(self.stride, patch)

    def _known(self, name: str) -> int:
        count = getattr(self, name) or self._learned.get(name)
        if count is None:
            raise ValueError(f"Series has no {name} yet; give it, or call fit(series)")
        return int(count)

    @property
    def spec(self) -> TokenSpec:
        """Vectors of the numbers of a patch on one axis. Raises ValueError if it must be fitted first."""
        num_statistics = 2 if self.normalize == "statistics" else 0
        return TokenSpec(num_features=self.width * (self.steps[0] + num_statistics))

    def fit(self, raws: Sequence[Any]) -> None:
        """Learn width, patch and scale, as far as they are not given. Raises DataError as `encode`."""
        if self._is_given:
            return
        first = _as_tensor(raws[0], _SERIES)
        learned: dict[str, Any] = {
            "num_features": self.num_features or (first.shape[-1] if first.ndim == 2 else 1)
        }
        learned["patch"] = self.patch or max(4, int(median(map(len, raws))) // 16)
        self._learned = learned
        if self.normalize == "training":
            mean, std = _mean_and_std(torch.cat([self._values(raw) for raw in raws]))
            self._learned |= {"mean": mean.tolist(), "std": std.tolist()}
        elif self.normalize == "statistics":
            found = torch.stack([torch.stack(_mean_and_std(self._values(raw))) for raw in raws])
            self._learned |= dict(zip(("mean", "std"), found.median(0).values.tolist()))

    def state(self) -> FittedState:
        """Width, patch and scale that `fit` learned; empty where all are given."""
        return deepcopy(self._learned)

    @property
    def _is_given(self) -> bool:
        return (
            self.num_features is not None
            and self.patch is not None
            and self.normalize in (None, "series")
        )

    def load_state(self, state: FittedState) -> None:
        """Take back what `state` gave. Raises ValueError if it is not that."""
        wanted = {"num_features", "patch"}
        if self.normalize in ("training", "statistics"):
            wanted |= {"mean", "std"}
        if state and set(state) != wanted:
            raise ValueError(
                f"state holds {sorted(state)}; the state of this Series holds {sorted(wanted)}"
            )
        self._learned = deepcopy(state)

    def encode(self, raw: Any, /) -> Tokens:
        """A list, array or tensor of numbers [n f], or [n] where f = 1, as vectors [n f] or patches [m (p f)], float32.

        Positions [m 1] count tokens from 0. Raises DataError where it is empty, not finite, or of another width.
        """
        values = self._values(raw)
        patch, stride = self.steps
        if len(values):
            missing = max(patch - len(values), -(len(values) - patch) % stride)
            values = torch.cat([values, values[-1:].expand(missing, -1)])
        if self.normalize == "training":
            values = (values - self._learned_of("mean")) / self._learned_of("std")
        elif self.normalize is not None and len(values):
            mean, std = _mean_and_std(values)
            values = (values - mean) / std
        if patch > 1 and len(values):
            values = rearrange(values.unfold(0, patch, stride), "m f p -> m (p f)")
        if self.normalize == "statistics" and len(values):
            unit = self._learned_of("std")
            statistics = torch.cat(
                [((mean - self._learned_of("mean")) / unit).asinh(), (std / unit).log()]
            )
            values = torch.cat([values, statistics.expand(len(values), -1)], dim=1)
        return Tokens(values.float(), counted(len(values)))

    def decode(self, tokens: Tokens) -> Tensor:
        """The vectors [n f] of the time steps, normalised if that is by "series"; repeated last steps stay."""
        steps = self.joined(tokens.content)
        if self.normalize in (None, "series"):
            return steps
        mean = self._learned_of("mean")
        std = self._learned_of("std")
        if self.normalize == "statistics":
            level, scale = tokens.content[0, -2 * self.width :].double().chunk(2)
            mean = mean + std * level.sinh()
            std = std * scale.exp()
        return (steps.double() * std + mean).float()

    def joined(self, content: Tensor) -> Tensor:
        """Time steps [... n f] of tokens [... m (p f)]: of each patch after the first, the steps that it adds."""
        patch, stride = self.steps
        patches = rearrange(content[..., : patch * self.width], "... m (p f) -> ... m p f", p=patch)
        later = rearrange(patches[..., 1:, patch - stride :, :], "... m p f -> ... (m p) f")
        return torch.cat([patches[..., 0, :, :], later], dim=-2)

    def _learned_of(self, name: str) -> Tensor:
        if name not in self._learned:
            raise ValueError(f"Series has no {name} yet; call fit(series)")
        return torch.tensor(self._learned[name], dtype=torch.float64)

    def _values(self, raw: Any) -> Tensor:
        """The series as float64 [n f]."""
        values = _as_tensor(raw, _SERIES)
        if values.is_complex() or values.dtype == torch.bool:
            raise DataError(f"the series is {describe_tensor(values)}; give real numbers")
        if values.ndim == 1 and self.width == 1:
            values = rearrange(values, "n -> n 1")
        if values.ndim != 2 or values.shape[1] != self.width:
            raise DataError(
                f"the series is {describe_tensor(values)}; give [n {self.width}] (num_features)"
            )
        return values.double()


def _mean_and_std(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [f] of values [n f]; 1 where all are equal, since their rounding is no spread."""
    mean = values.mean(0)
    std = values.std(0, correction=0)
    return mean, std.masked_fill(std <= 1e-9 * mean.abs(), 1.0)


_SERIES = "give a list, an array or a tensor of numbers [n f]"


def _as_tensor(raw: Any, advice: str) -> Tensor:
    if not isinstance(raw, (list, tuple, np.ndarray, Tensor)):
        raise DataError(f"{type(raw).__name__} is not a sequence of numbers; {advice}")
    try:
        return torch.as_tensor(raw)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise DataError(
            f"these are not numbers ({' '.join(str(error).split())}); {advice}"
        ) from None


def counted(num_tokens: int) -> Tensor:
    """Positions [n 1] from 0."""
    return rearrange(torch.arange(num_tokens, dtype=torch.float32), "n -> n 1")
