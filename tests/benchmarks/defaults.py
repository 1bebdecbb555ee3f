"""Defaults beside classical methods, on data sets that packages ship (`defaults_data.py`).

    export OMP_NUM_THREADS=1
    python -m tests.benchmarks.defaults --half tune                      # one seed, the sets that may be looked at
    python -m tests.benchmarks.defaults --half judge --seeds 3           # once, when nothing changes any more
    python -m tests.benchmarks.defaults text/fortunes --words --preset transformer      # one set, with other keys

The default is `seqkit fit FILE`, the command that a newcomer types. The rival is the best of two or three methods of
scikit-learn by five-fold cross-validation within the training rows. The difference is paired by test example, with a
95 % interval (t): of the share of right answers, in points, or of the squared error, relative to that of the best
constant. Above 0 the default is better. Both halves were drawn by a hash before anything was run.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from tests.benchmarks.defaults_data import Case, cases, halves


def features_of(case: Case) -> dict[str, Any]:
    """Rows as classical methods see them: one array (or list of texts) for each view."""
    if case.kind == "text":
        return {"texts": case.rows}
    if case.kind == "table":
        return {"columns": _columns(case.rows, ~case.is_test)}
    if case.kind == "image":
        from PIL import Image

        small = [np.asarray(Image.fromarray(x).resize((16, 16))).reshape(-1) / 255 for x in case.rows]
        colours = [
            [f(x.reshape(-1, x.shape[2] if x.ndim == 3 else 1), axis=0) for f in (np.mean, np.std)] for x in case.rows
        ]
        return {
            "pixels": np.array(small),
            "pixels and colours": np.array([[*s, *np.ravel(c) / 255] for s, c in zip(small, colours)]),
        }
    if case.kind == "audio":
        return {"MFCC": np.array([_mfcc(x) for x in case.rows])}
    if case.kind == "molecule":
        return {"descriptors": np.array([_molecule(x) for x in case.rows])}
    if case.kind == "nodes":
        return {"neighbours": _neighbours(case)}
    length = min(map(len, case.rows))
    flat = np.array([row[:length].ravel() for row in case.rows])
    if case.kind == "forecast":
        return {"lags": flat}
    each = [
        [f(row, axis=0) for f in (np.mean, np.std, np.min, np.max)] + [np.abs(np.diff(row, axis=0)).mean(0)]
        for row in case.rows
    ]
    return {"series": flat, "statistics": np.array([np.ravel(one) for one in each])}


def _columns(rows: list[dict[str, Any]], train: np.ndarray) -> np.ndarray:
    """Numbers as they are, dates as day of the year, other cells one-hot."""
    columns: list[np.ndarray] = []
    for name in rows[0]:
        cells = [str(row[name]) for row in rows]
        try:
            columns.append(np.array([float(x) if x else np.nan for x in cells])[:, None])
            continue
        except ValueError:
            pass
        if all(len(x) >= 10 and x[4] == "-" for x in cells):
            columns.append(np.array([[int(x[5:7]) * 30.5 + int(x[8:10])] for x in cells]))
        elif len(set(cells)) <= 100:
            encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
            column = np.array(cells)[:, None]
            columns.append(encoder.fit(column[train]).transform(column))
    return np.concatenate(columns, axis=1)


def _mfcc(samples: np.ndarray) -> np.ndarray:
    import torch
    import torchaudio

    mfcc = torchaudio.transforms.MFCC(8_000, n_mfcc=20, melkwargs={"n_fft": 256, "n_mels": 40, "hop_length": 80})
    x = mfcc(torch.tensor(samples, dtype=torch.float32))
    delta = torchaudio.functional.compute_deltas(x)
    return torch.cat([x.mean(1), x.std(1), delta.mean(1), delta.std(1)]).numpy()


def _molecule(smiles: str) -> np.ndarray:
    from rdkit import Chem
    from rdkit.Chem import Descriptors, rdFingerprintGenerator

    molecule = Chem.MolFromSmiles(smiles)
    values = [function(molecule) for _, function in Descriptors.descList]
    prints = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=512).GetFingerprintAsNumPy(molecule)
    return np.nan_to_num(np.clip(np.concatenate([values, prints]), -1e6, 1e6))


def _neighbours(case: Case) -> np.ndarray:
    """Features of a node and of its neighbours, votes of labelled neighbours, and the graph's first eigenvectors."""
    adjacency, features, part = case.rows
    known = (
        np.array([[y == name for name in sorted(set(case.targets))] for y in case.targets], float)
        * (part == "train")[:, None]
    )
    mean = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
    scale = 1 / np.sqrt(np.maximum(adjacency.sum(1), 1))
    spectrum = PCA(8, random_state=0).fit_transform(scale[:, None] * adjacency * scale)
    return np.concatenate([features, mean @ features, mean @ known, mean @ mean @ known, 20 * spectrum], axis=1)


def rivals_of(case: Case) -> dict[str, tuple[Any, str]]:
    """Classical methods by name: the method, and the view that it takes."""
    linear: Any = RidgeCV(np.logspace(-3, 4, 15)) if case.is_regression else LogisticRegression(max_iter=2_000)
    scaled = make_pipeline(SimpleImputer(), StandardScaler(), linear)
    boosting = (
        HistGradientBoostingRegressor(random_state=0)
        if case.is_regression
        else HistGradientBoostingClassifier(random_state=0)
    )
    svm = {f"SVM, C {c}": make_pipeline(SimpleImputer(), StandardScaler(), SVC(C=c)) for c in (1, 10)}
    if case.kind == "text":
        words, letters = (
            TfidfVectorizer(sublinear_tf=True),
            TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True),
        )
        strong = RidgeCV(np.logspace(-2, 3, 11)) if case.is_regression else LogisticRegression(C=10, max_iter=2_000)
        return {
            "TF-IDF of words": (make_pipeline(words, strong), "texts"),
            "TF-IDF of words and letters": (make_pipeline(make_union(words, letters), strong), "texts"),
        }
    if case.kind == "molecule":
        forest = RandomForestRegressor(300, max_features=0.3, random_state=0)
        return {"forest": (forest, "descriptors"), "boosting": (boosting, "descriptors")}
    if case.kind == "forecast":
        return {"ridge on lags": (linear, "lags")}
    views = features_of(case)
    if case.kind == "series":
        return {
            "1-nearest neighbour": (KNeighborsClassifier(1), "series"),
            "SVM of statistics": (svm["SVM, C 10"], "statistics"),
            "logistic regression": (scaled, "series"),
        }
    found = {f"{'ridge' if case.is_regression else 'logistic regression'} of {view}": (scaled, view) for view in views}
    if case.kind in ("table", "nodes"):
        found["boosting"] = (boosting, next(iter(views)))
    if not case.is_regression and case.kind != "table":
        found |= {f"{name} of {view}": (method, view) for name, method in svm.items() for view in views}
    return found


def rival_answers(case: Case) -> tuple[str, np.ndarray]:
    """Name and answers for the test rows of the rival that is best within the training rows."""
    views, y = features_of(case), np.array(case.targets)
    train = np.flatnonzero(~case.is_test if case.kind != "nodes" else case.rows[2] == "train")
    test = np.flatnonzero(case.is_test)
    scores: dict[str, float] = {}
    rivals = rivals_of(case)
    for name, (method, view) in rivals.items():
        own = [views[view][i] for i in train]
        scores[name] = cross_val_score(
            clone(method), own, y[train], cv=min(5, _least(y[train])), error_score="raise"
        ).mean()
    best = max(scores, key=lambda name: scores[name])
    method, view = rivals[best]
    method.fit([views[view][i] for i in train], y[train])
    answers = method.predict([views[view][i] for i in test])
    if case.kind == "forecast":  # the last value, and the one before, need no fit; the best by training error
        simple = {f"the value {lag} before": lag for lag in (1, 12, 24) if lag <= len(case.rows[0])}
        naive = {
            name: np.array([[row[-lag + h % lag, 0] for h in range(y.shape[1])] for row in case.rows])
            for name, lag in simple.items()
        }
        errors = {name: np.square(x[train] - y[train]).mean() for name, x in naive.items()}
        errors[best] = np.square(method.predict([views[view][i] for i in train]) - y[train]).mean()
        best = min(errors, key=lambda name: errors[name])
        answers = naive[best][test] if best in naive else answers
    return best, answers


def _least(y: np.ndarray) -> int:
    return 5 if y.dtype.kind == "f" else max(2, int(np.unique(y, return_counts=True)[1].min()))


def default_answers(case: Case, seed: int, words: list[str]) -> tuple[np.ndarray, dict[str, Any], float]:
    """Answers of the trained default for the test rows, its summary, and the seconds of `seqkit fit`."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "data"
        folder.mkdir()
        given = [str(x) for x in case.write(folder)]
        run, environment = Path(place) / "run", {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "seqkit"]
        start = time.monotonic()
        subprocess.run(
            [*command, "fit", *given, "--seed", str(seed), "--out", str(run), *words],
            check=True,
            env=environment,
            capture_output=True,
        )
        seconds = time.monotonic() - start
        subprocess.run(
            [*command, "predict", str(run), "--test", "--out", f"{place}/tested.csv"],
            check=True,
            env=environment,
            capture_output=True,
        )
        with Path(place, "tested.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if case.kind in ("image", "audio"):  # in the order of their folders; the name of a file is its number
            rows.sort(key=lambda row: int(Path(row["name"]).stem))
        answers = np.array([_answer(row, case) for row in rows])
        return answers, json.loads((run / "summary.json").read_text()), seconds


def _answer(row: dict[str, str], case: Case) -> Any:
    if not case.is_regression:
        return row["prediction"]
    names = [name for name in row if name.startswith("prediction")]
    values = [json.loads(row[name]) for name in names]
    flat = values[0] if isinstance(values[0], list) else values
    return flat if case.kind == "forecast" else float(flat[0])


def score(case: Case, answers: np.ndarray) -> np.ndarray:
    """Score of each test row: 1 for a right class; squared error as a negative share of the best constant's."""
    y = np.array(case.targets)
    truth, train = y[case.is_test], y[~case.is_test]
    if not case.is_regression:
        return (answers == truth).astype(float)
    errors = np.square(answers - truth).reshape(len(truth), -1).mean(1)
    return -errors / np.square(truth - train.mean(0)).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="sets; none: those of --half")
    parser.add_argument("--half", choices=["tune", "judge"], default="tune")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--words", nargs=argparse.REMAINDER, default=[], help="further words of seqkit fit")
    parser.add_argument("--out", type=Path, default=Path("build/defaults/results.jsonl"))
    args = parser.parse_args()
    tune, judge = halves()
    table = Table("set", "test rows", "default", "rival", "difference [95 %]", "seconds", "rival's name")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=140)
    for name in args.names or (tune if args.half == "tune" else judge):
        case = cases()[name]()
        rival, answers = rival_answers(case)
        theirs, runs = (
            score(case, answers),
            [default_answers(case, seed, args.words) for seed in range(1, args.seeds + 1)],
        )
        ours = np.mean([score(case, found) for found, _, _ in runs], axis=0)
        difference = ours - theirs
        half = stats.t.ppf(0.975, len(difference) - 1) * difference.std(ddof=1) / len(difference) ** 0.5
        middle, seconds = difference.mean(), max(one[2] for one in runs)
        texts = [f"{100 * x.mean():.1f}" for x in (ours, theirs)]
        interval = f"{100 * middle:+.1f} [{100 * (middle - half):+.1f}, {100 * (middle + half):+.1f}]"
        table.add_row(name, str(len(ours)), *texts, interval, f"{seconds:.0f}", rival)
        row = {
            "name": name,
            "words": args.words,
            "seeds": args.seeds,
            "default": ours.mean(),
            "rival": theirs.mean(),
            "by": rival,
        }
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, "difference": middle, "half": half, "seconds": seconds}) + "\n")
        console.print(f"{name}: {texts[0]} : {texts[1]} ({interval}), {seconds:.0f} s, {rival}", highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()
