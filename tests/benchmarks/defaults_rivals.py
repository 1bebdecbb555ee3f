"""Classical methods for the sets of `defaults_draw.py`: each that seqkit has for the kind of data, and others.

The others are written here and do not stand in seqkit: extremely randomised trees, 5 nearest neighbours, and a linear
model, on plain numbers of the raw rows; for forecasts also the last value, and the value a year before.

n rows · f numbers of a row
"""

from __future__ import annotations

import tempfile
import warnings
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from seqkit.classical.member import Member, kind_of, read
from seqkit.classical.method import wanted_of
from seqkit.classical.methods import candidates, node_candidates
from seqkit.cli.guess import take_data_as_recipe
from seqkit.cli.parser import parser
from seqkit.config import complete
from seqkit.interfaces import IGNORE
from seqkit.runs.prepare import untrained
from tests.benchmarks.defaults_data import Case

PIXELS = 24
BANDS = 64
BITS = 1024

Answers = Iterator[tuple[str, np.ndarray]]
"""Names of methods, and their answers for the test rows in the order of `Case.rows`."""


def of_seqkit(case: Case) -> Answers:
    """Each method of `seqkit.classical` for the kind of data, fitted on all rows that are not for the test."""
    with tempfile.TemporaryDirectory() as place:
        args = Namespace(words=["fit", *map(str, case.write(Path(place)))])
        _, args.overrides = parser().parse_known_args(args.words, args)
        take_data_as_recipe(args)
        _, data = untrained(complete(args.recipe, args.preset, args.overrides))
        objective: Any = data.objective
        tokenizer = data.tokenizer
        splits = data.splits()
        parts = [part for part in (splits.train, splits.valid, splits.test) if part]
        if case.kind == "nodes":
            labels = [torch.as_tensor(part.labels[0]) for part in parts]
            target = torch.stack(labels[:-1]).amax(dim=0)  # IGNORE is less than any class
            fitted = (target != IGNORE).nonzero()[:, 0].numpy()
            found = node_candidates(splits.test[0].raw, fitted, target, objective)
            for method, features, every in found:
                outputs = method.fit(features, target[fitted].numpy()).predict(every)
                answers = objective.decode(outputs[labels[-1] != IGNORE])
                yield f"seqkit: {method.name}", np.array(answers)
            return
        samples = [sample for part in parts[:-1] for sample in part]
        kind = kind_of(tokenizer, samples[0].raw)
        rows = [read(kind, tokenizer, sample.raw) for sample in samples]
        target = torch.stack(
            [torch.as_tensor(objective.encode_target(sample.label)) for sample in samples]
        )
        order = np.arange(len(splits.test))
        if case.kind in ("image", "audio"):  # by folder; the name of a file is its number
            order = np.argsort([int(Path(splits.test.name(i)).stem) for i in order])
        test = [sample.raw for sample in splits.test]
        for method, features, transformer in candidates(kind, rows, tokenizer, objective):
            method.fit(features, wanted_of(target, objective))
            outputs = Member(kind, transformer, method, tokenizer).predict(test)
            yield f"seqkit: {method.name}", np.array(objective.decode(outputs))[order]


def of_bench(case: Case, season: int | None) -> Answers:
    """The methods of this file. season: steps of a year, of forecasts."""
    train = ~case.is_test
    numbers = _numbers(case)
    targets = np.array(case.targets)
    for name, estimator in _estimators(case.is_regression):
        estimator.fit(numbers[train], targets[train])
        yield f"bench: {name}", estimator.predict(numbers[case.is_test])
    if case.kind == "forecast":
        past = np.stack([row[:, 0] for row, test in zip(case.rows, case.is_test) if test])
        ahead = targets.shape[1]
        yield "bench: last value", np.repeat(past[:, -1:], ahead, axis=1)
        if season is not None and ahead <= season <= past.shape[1]:
            start = past.shape[1] - season
            yield "bench: value a year before", past[:, start : start + ahead]


def _estimators(is_regression: bool) -> list[tuple[str, BaseEstimator]]:
    if is_regression:
        return [
            ("extra trees", ExtraTreesRegressor(300, random_state=0)),
            ("5 neighbours", make_pipeline(StandardScaler(), KNeighborsRegressor(5))),
            ("ridge", make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))),
        ]
    return [
        ("extra trees", ExtraTreesClassifier(300, random_state=0)),
        ("5 neighbours", make_pipeline(StandardScaler(), KNeighborsClassifier(5))),
        ("logistic", make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))),
    ]


def _numbers(case: Case) -> np.ndarray:
    """Numbers [n f] of the raw rows; what is learned of them is learned of training rows."""
    match case.kind:
        case "text":
            known = [text for text, test in zip(case.rows, case.is_test) if not test]
            letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), max_features=2000)
            return letters.fit(known).transform(case.rows).toarray()
        case "table":
            return _cells(case)
        case "image":
            return np.stack([_pixels(row) for row in case.rows])
        case "audio":
            return np.stack([_bands(row) for row in case.rows])
        case "molecule":
            return np.stack([_morgan(row) for row in case.rows])
        case "nodes":
            return _neighbours(case)
    return np.stack([row.ravel() for row in case.rows])


def _cells(case: Case) -> np.ndarray:
    """Numbers with the training median in gaps, and a column for each word of training."""
    columns = []
    train = ~case.is_test
    for name in case.rows[0]:
        values = [row[name] for row in case.rows]
        if all(isinstance(x, int | float) or x == "" for x in values):
            column = np.array([np.nan if x == "" else float(x) for x in values])
            columns.append(np.where(np.isnan(column), np.nanmedian(column[train]), column)[:, None])
        else:
            words = np.array([str(x) for x in values])[:, None]
            one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
            columns.append(one_hot.fit(words[train]).transform(words))
    return np.hstack(columns)


def _pixels(pixels: np.ndarray) -> np.ndarray:
    """Colours of a small square, transparency on white."""
    from PIL import Image

    image = Image.fromarray(pixels)
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return np.asarray(white.convert("RGB").resize((PIXELS, PIXELS))).ravel() / 255


def _bands(samples: np.ndarray) -> np.ndarray:
    """Mean and deviation over time of the log power of each band, and the length."""
    from scipy.signal import spectrogram

    padded = np.pad(samples, (0, max(0, 2 * BANDS - len(samples))))
    _, _, power = spectrogram(padded, nperseg=2 * BANDS, noverlap=BANDS)
    log = np.log(power + 1e-10)
    return np.concatenate([log.mean(axis=1), log.std(axis=1), [len(samples)]])


def _morgan(smiles: str) -> np.ndarray:
    from rdkit import Chem
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    generator = GetMorganGenerator(radius=2, fpSize=BITS)
    return generator.GetCountFingerprintAsNumPy(Chem.MolFromSmiles(smiles)).astype(float)


def _neighbours(case: Case) -> np.ndarray:
    """Shares of the classes among labelled neighbours, in one and two steps, and the neighbours."""
    adjacency, features, _ = case.rows
    classes = sorted(set(case.targets))
    known = np.array([[y == one for one in classes] for y in case.targets], dtype=float)
    known[case.is_test] = 0
    near = adjacency @ known
    far = adjacency @ near - adjacency.sum(axis=1, keepdims=True) * known  # without the way back
    shares = [votes / np.maximum(votes.sum(axis=1, keepdims=True), 1) for votes in (near, far)]
    return np.hstack([*shares, adjacency, features])


def quiet(answers: Answers) -> Answers:
    """The same, without warnings of solvers that have not converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from answers
