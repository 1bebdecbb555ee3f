"""Features of molecules, sounds, cells and other tokens, as transformers of scikit-learn.

m rows · n frames or tokens · f features
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.fft import dct
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction import DictVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import Tensor

from seqkit.classical.series import statistics
from seqkit.interfaces import Tokenizer
from seqkit.raw import Waveform
from seqkit.tokenizers import LogMel

NUM_FRAMES = 32
"""Frames to which the spectrogram of a recording is resized."""


def of_each(function: Callable[[Any], np.ndarray]) -> Any:
    """Transformer of examples by a function of each."""
    return FunctionTransformer(lambda rows: np.stack([function(raw) for raw in rows]))


def scaled(transformer: Any) -> Any:
    """The features standardised; a missing one is the mean, and one that says so stands beside it."""
    gaps = SimpleImputer(keep_empty_features=True, add_indicator=True)
    return make_pipeline(transformer, gaps, StandardScaler())


def _frames(raw: Waveform) -> Tensor:
    return LogMel(raw.sample_rate, num_mels=40, normalize=False).encode(raw).content


def log_mels(raw: Waveform) -> np.ndarray:
    """Log-mel frames, as many for each recording."""
    return F.interpolate(_frames(raw).T[None], NUM_FRAMES, mode="linear").flatten().numpy()


def cepstra(raw: Waveform) -> np.ndarray:
    """Statistics of 20 mel-frequency cepstral coefficients and of their changes, and the means of each third."""
    found = torch.from_numpy(dct(_frames(raw).numpy(), norm="ortho")[:, :20])
    thirds = F.adaptive_avg_pool1d(found.T[None], 3).flatten().numpy()
    return np.concatenate([statistics(found), thirds])


def molecule(raw: Any) -> np.ndarray:
    """RDKit's descriptors, and counts of Morgan fragments (radius 2), hashed to 512 numbers."""
    from rdkit import Chem
    from rdkit.Chem import Descriptors, rdFingerprintGenerator

    found = Chem.MolFromSmiles(raw) if isinstance(raw, str) else raw
    counts = rdFingerprintGenerator.GetMorganGenerator(
        radius=2, fpSize=512
    ).GetCountFingerprintAsNumPy(found)
    known = [
        value for _, function in Descriptors.descList if (value := function(found)) is not None
    ]
    return np.nan_to_num(np.concatenate([known, counts]), posinf=0, neginf=0).clip(-1e6, 1e6)


def statistics_of_tokens(tokenizer: Tokenizer, raw: Any) -> np.ndarray:
    """How often each id occurs, statistics of numbers and positions, number of tokens and of edges."""
    spec = tokenizer.spec
    tokens = tokenizer.encode(raw)
    ids = spec.ids_of(tokens).T.clamp(max=999).numpy()
    counts = [np.bincount(one, minlength=min(size, 1000)) for size, one in zip(spec.id_sizes, ids)]
    edges = 0 if tokens.adjacency is None else len(tokens.adjacency)
    numbers = torch.cat([spec.numbers_of(tokens), tokens.positions], dim=1)
    return np.concatenate([*counts, statistics(numbers), [len(tokens), edges]])


class Cells(TransformerMixin, BaseEstimator):
    """Numbers of rows, dates among them, NaN where they are missing; and 0 or 1 for each value of a category."""

    def fit(self, rows: Sequence[Mapping[str, object]], target: Any = None) -> Cells:
        """Takes the columns."""
        self.numbers_ = {
            name: math.nan
            for row in rows
            for name, cell in row.items()
            if isinstance(cell, int | float)
        }
        self.vectors_ = DictVectorizer(sparse=False).fit([self._filled(row) for row in rows])
        return self

    def transform(self, rows: Sequence[Mapping[str, object]]) -> np.ndarray:
        """Features [m f]."""
        return self.vectors_.transform([self._filled(row) for row in rows])

    def _filled(self, row: Mapping[str, object]) -> dict[str, object]:
        known = {name: cell for name, cell in row.items() if isinstance(cell, int | float | str)}
        return {**self.numbers_, **known}
