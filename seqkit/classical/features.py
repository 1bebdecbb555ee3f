"""Features of molecules, sounds, cells, rows of parts and other tokens, as transformers of scikit-learn.

No transformer holds a function, so that a fitted one is plain data (`seqkit.classical.stored`).

m rows · n frames or tokens · f features
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import sparse
from scipy.fft import dct
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from seqkit.classical.series import statistics, statistics_of_series
from seqkit.interfaces import Tokenizer
from seqkit.raw import Waveform
from seqkit.tokenizers import LogMel
from seqkit.tokenizers.cells import Row

NUM_FRAMES = 32
"""Frames to which the spectrogram of a recording is resized."""


MAX_MOLECULES = 10_000
"""Most molecules whose features are kept, as descriptors take ten milliseconds each."""


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


@lru_cache(MAX_MOLECULES)
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


FUNCTIONS: dict[str, Callable[[Any], np.ndarray]] = {
    "values": np.ravel,
    "series": statistics_of_series,
    "cepstra": cepstra,
    "log_mels": log_mels,
    "molecule": molecule,
}
"""Features of one example by name."""


class Terms:
    """A vectorizer of texts whose vocabulary is stored as one list: an entry each takes seconds to read.

    Each term has its place in the list as its column, so a stored column is none outside of the features.
    """

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())  # type: ignore[call-overload]
        if "vocabulary_" in state:
            known = state["vocabulary_"]
            state["vocabulary_"] = json.dumps(sorted(known, key=known.get))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "vocabulary_" in state:
            terms = json.loads(state["vocabulary_"])
            state = {**state, "vocabulary_": {term: i for i, term in enumerate(terms)}}
            if len(state["vocabulary_"]) < len(terms):
                raise ValueError("a term comes twice in a vocabulary")
        super().__setstate__(state)  # type: ignore[misc]


class Tfidf(Terms, TfidfVectorizer):
    """Terms weighted by TF-IDF."""


class Counts(Terms, CountVectorizer):
    """Counts of the most frequent terms.

    Of equally frequent ones those that come first in the alphabet: scikit-learn 1.9 leaves it to the processor's sort.
    """

    max_features: int | None

    def fit_transform(self, raw_documents: Iterable[str], y: Any = None) -> sparse.csr_matrix:
        """Learns the terms, and counts them [m f]."""
        most = self.max_features
        self.max_features = None
        try:
            counts = super().fit_transform(raw_documents, y)
        finally:
            self.max_features = most
        terms = self.get_feature_names_out()
        order = np.argsort(-np.asarray(counts.sum(axis=0)).ravel(), kind="stable")
        kept = np.sort(order[:most])
        self.vocabulary_ = {terms[i]: column for column, i in enumerate(kept)}
        return counts[:, kept]


class OfEach(TransformerMixin, BaseEstimator):
    """Features of each example by one of `FUNCTIONS`."""

    def __init__(self, function: str) -> None:
        self.function = function

    def fit(self, rows: Sequence[Any], target: Any = None) -> OfEach:
        """Learns nothing."""
        return self

    def transform(self, rows: Sequence[Any]) -> np.ndarray:
        """Features [m f]."""
        return np.stack([FUNCTIONS[self.function](raw) for raw in rows])


class Parts(TransformerMixin, BaseEstimator):
    """Features of all parts of rows of parts, and which parts a row has.

    A row without a part has the features of the first training row that has it.
    transformers: by name of a part. names: of all parts, also of those without features.
    """

    def __init__(self, transformers: dict[str, Any], names: list[str]) -> None:
        self.transformers = transformers
        self.names = names

    def fit(self, rows: Sequence[Row], target: Any = None) -> Parts:
        """Fits the transformer of each part to the rows."""
        self.fitted_ = {}
        self.missing_ = {}
        for name, transformer in self.transformers.items():
            first = next(row[name] for row in rows if name in row)
            own = clone(transformer).fit([row.get(name, first) for row in rows])
            self.fitted_[name] = own
            self.missing_[name] = _dense(own.transform([first]))
        return self

    def transform(self, rows: Sequence[Row]) -> np.ndarray:
        """Features [m f]."""
        found = []
        for name, transformer in self.fitted_.items():
            own = np.repeat(self.missing_[name], len(rows), axis=0)
            present = [i for i, row in enumerate(rows) if name in row]
            if present:
                own[present] = _dense(transformer.transform([rows[i][name] for i in present]))
            found.append(own)
        return np.hstack([*found, [[name in row for name in self.names] for row in rows]])


def _dense(features: Any) -> np.ndarray:
    return features.toarray() if sparse.issparse(features) else features


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
