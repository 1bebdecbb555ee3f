"""The strong baseline of a model: the best of some classical methods on features of raw examples, found in seconds.

Each kind of data has its methods, most of scikit-learn. The one with the best score on held-out rows of the training
and validation splits is then fitted on all of these rows, and evaluated on the test split.

n tokens, time steps or nodes · m rows: examples or nodes · f features · k classes, labels or targets
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from seqkit.analysis.forecasts import forecast
from seqkit.analysis.n_grams import n_grams
from seqkit.data.module import DataModule
from seqkit.data.sample import Sample
from seqkit.data.source import import_optional
from seqkit.data.splits import shuffled
from seqkit.data.tables.schema import CELLS
from seqkit.interfaces import IGNORE, Tokenizer
from seqkit.objectives import Classify, MultiLabel, NextToken, Regress, Seq2Seq
from seqkit.objectives.metrics import MeanLoss, needs_probabilities, update
from seqkit.raw import GraphData, Waveform
from seqkit.tokenizers import Cells, Join, LogMel, Molecule, Series

MAX_FITTED = 5_000
"""Most examples on which a method is fitted; others are left out at random."""

MAX_NEIGHBOURS = 20_000
"""Most texts among which the nearest is sought; others are left out at random."""

MAX_REPEATED = 1_000
"""Most rows for which a method's score is the mean over five random fifths; if there are more, it is that of one."""

MAX_SECONDS = 30
"""Processor time after which no further method is tried; the best so far is fitted on all rows."""

NUM_FRAMES = 32
"""Frames to which the spectrogram of a recording is resized."""

SIDE = 32
"""Height and width in pixels to which large images are resized; frames of clips have half of it."""

NUM_WORDS = 300
"""Number of words, the most frequent ones, that become features of the texts in rows of several parts."""


class Method(NamedTuple):
    """A classical method: features [m f] of all rows, and an estimator of scikit-learn to be fitted on some of them."""

    name: str
    features: Any
    estimator: Any


def strong_baseline(data: DataModule) -> tuple[dict[str, Any] | None, Tensor | None]:
    """The best method's result, and its predictions [m k] for the test split as a model's head gives them.

    The result is None if no method is known for such data; the predictions are also None for n-grams and texts.
    name: of the method and its features. num_train: number of training rows, for n-grams of tokens.
    metrics: the objective's own and the loss, on the test split. Metrics of probabilities are left out if the method
    has no probabilities, and so is a loss that is not finite: a forest gives some classes the probability 0.
    Raises DataError if scikit-learn is missing.
    """
    started = time.perf_counter()
    objective = data.objective
    found = None
    prediction = None
    if type(objective) is NextToken and data.tokenizer.spec.ids and data.window is not None:
        found = n_grams(data, objective)
    elif isinstance(objective, Classify | Regress | MultiLabel):
        import_optional("sklearn", "baselines")
        found, prediction = _of_labels(data, objective)
    elif isinstance(objective, Seq2Seq) and isinstance(data.splits().test[0].raw, str):
        import_optional("sklearn", "baselines")
        found = _of_neighbours(data, objective)
    if found is not None:
        found["seconds"] = round(time.perf_counter() - started, 1)
    return found, prediction


def _of_labels(data: DataModule, objective: Any) -> tuple[dict[str, Any] | None, Tensor | None]:
    """Result and predictions, as of `strong_baseline`, for examples with a target each or for nodes of one graph."""
    splits = data.splits()
    is_number = isinstance(objective, Regress)
    groups = None
    parts = [part for part in (splits.valid, splits.train, splits.test) if part]
    if is_number and isinstance(data.tokenizer, Series):
        # in order of time, since a forecast is chosen by the latest windows
        parts[:-1] = reversed(parts[:-1])
    raw: Any = splits.test[0].raw
    if getattr(objective, "level", "sequence") == "token":
        is_one_graph = isinstance(raw, GraphData) and max(map(len, parts)) == 1
        if not is_one_graph or not isinstance(objective, Classify):
            return None, None
        *train_labels, test_labels = (torch.as_tensor(part.labels[0]) for part in parts)
        # nodes of other splits have the label IGNORE, which is less than any class
        fitted_labels = torch.stack(train_labels).amax(dim=0)
        target = torch.maximum(fitted_labels, test_labels)
        kind = "nodes"
        rows = raw
        fitted = (fitted_labels != IGNORE).nonzero()[:, 0].numpy()
        test = (test_labels != IGNORE).nonzero()[:, 0].numpy()
    else:
        samples = [_small(sample) for part in parts[:-1] for sample in part]
        samples = [samples[i] for i in sorted(shuffled(len(samples), 0)[:MAX_FITTED])]
        if samples[0].group is not None:
            groups = np.array([sample.group for sample in samples])
        fitted, test = np.split(np.arange(len(samples) + len(splits.test)), [len(samples)])
        samples = [*samples, *map(_small, splits.test)]
        kind = _kind(data.tokenizer, raw)
        rows = [sample.raw for sample in samples]
        target = torch.stack(
            [torch.as_tensor(objective.encode_target(sample.label)) for sample in samples]
        )
    num_train = len(fitted)
    if is_number and kind == "series":
        name, values = forecast(
            rows[:num_train], rows[num_train:], target[:num_train].double().numpy()
        )
        forecasts = torch.from_numpy(values).float().reshape(target[num_train:].shape)
        prediction = _standardized(forecasts, objective)
    else:
        wanted = _standardized(target, objective) if is_number else target
        columns = []
        for column in wanted.reshape(len(target), -1).T.numpy():
            is_unknown = column == IGNORE if isinstance(objective, Classify) else np.isnan(column)
            known = fitted[~is_unknown[fitted]]
            columns.append((known, column[known]))
        methods = _methods(kind, rows, fitted, target, data.tokenizer, objective)
        best = _best(methods, columns, groups)
        if best is None:
            return None, None
        name = best.name
        prediction = _predicted(best, objective, columns, test)
    metrics = _metrics(objective, prediction, target[test])
    return {"name": name, "metrics": metrics, "num_train": num_train}, prediction


def _standardized(values: Tensor, objective: Any) -> Tensor:
    """Numbers as the head of a model predicts them."""
    return (values - torch.tensor(objective.centred_mean)) / torch.tensor(objective.std)


def _of_neighbours(data: DataModule, objective: Seq2Seq) -> dict[str, Any]:
    """Result of predicting, for each test text, the target of the nearest training or validation text."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neighbors import NearestNeighbors

    splits = data.splits()
    metrics = objective.generation_metrics()
    known = [sample for part in (splits.train, splits.valid or ()) for sample in part]
    known = [known[i] for i in shuffled(len(known), 0)[:MAX_NEIGHBOURS]]
    letters = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(2, 5))
    nearest = NearestNeighbors(n_neighbors=1, metric="cosine").fit(
        letters.fit_transform([x.raw for x in known])
    )
    found = nearest.kneighbors(
        letters.transform([x.raw for x in splits.test]), return_distance=False
    )[:, 0]
    for i, sample in zip(found, splits.test):
        for metric in metrics.values():
            metric.update(
                objective.encode_target(known[i].label)[:1],
                objective.encode_target(sample.label)[None],
            )
    values = {name: float(metric.compute()) for name, metric in metrics.items()}
    return {
        "name": "the nearest text's target, by TF-IDF of letters",
        "metrics": values,
        "num_train": len(known),
    }


def _kind(tokenizer: Tokenizer, raw: Any) -> str:
    """Kind of data, as `_methods` names it. raw: one of the examples."""
    by_tokenizer = {Join: "cells", Cells: "cells", Molecule: "molecules", Series: "series"}
    for known, kind in by_tokenizer.items():
        if isinstance(tokenizer, known):
            return kind
    if isinstance(raw, str):
        return "texts"
    if isinstance(raw, Waveform):
        return "sounds"
    if isinstance(raw, Tensor):
        return {3: "images", 4: "videos"}.get(raw.ndim, "tokens")
    return "tokens"


def _methods(
    kind: str, rows: Any, fitted: Any, target: Tensor, tokenizer: Tokenizer, objective: Any
) -> Iterator[Method]:
    """Yields the methods for a kind of data.

    rows: all examples, or the graph of the nodes. fitted: indices of the rows on which features that are learned, such
    as a vocabulary, are fitted. target: of all rows; only that of the fitted ones is read.
    """
    from scipy.fft import dct
    from sklearn import ensemble, impute, linear_model, neighbors, pipeline, preprocessing, svm
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    def linear(c: float) -> tuple[str, Any]:
        if is_number:
            return "ridge regression", linear_model.RidgeCV(np.logspace(-2, 4, 7))
        logistic = linear_model.LogisticRegression(C=c, max_iter=500)
        return f"logistic regression (C {c:g})", logistic

    def scaled(method: tuple[str, Any]) -> tuple[str, Any]:
        return method[0], pipeline.make_pipeline(
            impute.SimpleImputer(), preprocessing.StandardScaler(), method[1]
        )

    def on(name: str, features: Any, *methods: tuple[str, Any]) -> Iterator[Method]:
        """Each of the methods (name, estimator) on the features of this name."""
        x = np.stack(list(features)) if isinstance(features, Iterator) else features
        return (Method(f"{method} on {name}", x, estimator) for method, estimator in methods)

    is_number = isinstance(objective, Regress)
    if is_number:
        svms = svm.SVR
        forest = ensemble.RandomForestRegressor(100, max_features=0.2, random_state=1)
        boosted = ensemble.HistGradientBoostingRegressor(min_samples_leaf=5, random_state=1)
    else:
        svms = svm.SVC
        forest = ensemble.RandomForestClassifier(100, random_state=1)
        boosted = ensemble.HistGradientBoostingClassifier(min_samples_leaf=5, random_state=1)
    trees = ("a random forest", forest)
    boosting = ("gradient boosting", boosted)
    soft = ("an RBF-SVM (C 1)", svms(C=1))
    hard = ("an RBF-SVM (C 10)", svms(C=10))
    if kind == "texts":
        words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
        letters = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(2, 5))
        both = pipeline.make_union(words, letters)
        for name, made in (("words", words), ("words and letters", both)):
            x = made.fit([rows[i] for i in fitted]).transform(rows)
            yield from on(f"TF-IDF of {name}", x, linear(10))
    elif kind == "images":
        images = _same_size(rows)
        pixels = np.stack([x.flatten().numpy() for x in images])
        yield from on("pixels", pixels, hard, soft)
        yield from on(
            "colours", (_statistics(rearrange(x, "c h w -> (h w) c")) for x in images), trees
        )
        yield from on("pixels", pixels, scaled(linear(0.01)))
    elif kind == "videos":
        pixels = np.stack([x.flatten().numpy() for x in rows])
        yield from on("a frame and frame differences", pixels, hard, soft, scaled(linear(0.01)))
    elif kind == "sounds":
        frames = [
            LogMel(raw.sample_rate, num_mels=40, normalize=False).encode(raw).content
            for raw in rows
        ]
        cepstra = (
            _statistics(torch.from_numpy(dct(x.numpy(), norm="ortho")[:, :20])) for x in frames
        )
        yield from on("MFCC statistics", cepstra, scaled(hard), scaled(linear(1)), scaled(soft))
        stretched = (
            F.interpolate(x.T[None], NUM_FRAMES, mode="linear").flatten().numpy() for x in frames
        )
        yield from on("log-mel frames", stretched, scaled(hard))
    elif kind == "molecules":
        yield from on(
            "RDKit's descriptors and Morgan counts", map(_molecule, rows), trees, boosting
        )
    elif kind == "cells":
        cells = rows
        texts = [""] * len(rows)
        if isinstance(tokenizer, Join):
            cells = [row.get(CELLS) or {} for row in rows]
            texts = [" ".join(x for x in row.values() if isinstance(x, str)) for row in rows]
        name = "numbers and categories"
        x = _cells(cells, fitted)
        if any(texts[i] for i in fitted):
            counts = CountVectorizer(binary=True, max_features=NUM_WORDS).fit(
                [texts[i] for i in fitted]
            )
            name = "cells and words"
            x = np.hstack([x, counts.transform(texts).toarray()])
        if x.size:
            yield from on(name, x, scaled(linear(1)), boosting)
    elif kind == "series":
        series = [torch.as_tensor(raw).float().nan_to_num().reshape(len(raw), -1) for raw in rows]
        length = int(np.median([len(x) for x in series]))
        values = (F.interpolate(x.T[None], length, mode="linear").flatten().numpy() for x in series)
        nearest = ("1-nearest-neighbour", neighbors.KNeighborsClassifier(1))
        yield from on("values", values, nearest, scaled(linear(1)))
        yield from on("statistics", map(_statistics, series), scaled(hard))
    elif kind == "nodes":
        x = _of_nodes(rows, fitted, target)
        yield from on("features and classes of neighbours", x[:, :-8], linear(1), linear(10))
        yield from on("features, classes of neighbours and eigenvectors", x, linear(1))
    else:
        x = (_of_tokens(tokenizer, raw) for raw in rows)
        yield from on("statistics of the tokens", x, trees, scaled(linear(1)))


def _best(
    methods: Iterator[Method], columns: list[Any], groups: np.ndarray | None
) -> Method | None:
    """The method with the best accuracy, or R², on held-out rows, summed over columns; None: there is no method.

    columns: for each column of the target, the rows whose value is known, and the values. groups: of the rows, if they
    have any; rows of one group are held out together, unless there are fewer than five groups.
    """
    from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit, cross_val_score

    started = time.process_time()
    best: Method | None = None
    highest = -math.inf
    draws = ShuffleSplit if groups is None or len(set(groups)) < 5 else GroupShuffleSplit
    num_draws = 5 if len(columns[0][0]) <= MAX_REPEATED else 1
    folds = draws(num_draws, test_size=0.2, random_state=0)
    for method in methods:
        score = 0.0
        for rows, target in columns:
            row_groups = None if groups is None else groups[rows]
            with suppress(ValueError):  # a column of one class cannot be fitted, and adds nothing
                x = method.features[rows]
                score += cross_val_score(
                    method.estimator, x, target, groups=row_groups, cv=folds
                ).mean()
        if best is None or score > highest:
            best = method
            highest = score
        if time.process_time() - started > MAX_SECONDS:
            break
    return best


def _predicted(method: Method, objective: Any, columns: list[Any], test: np.ndarray) -> Tensor:
    """Predictions [m k] for the test rows as a model's head gives them: log-probabilities, logits or numbers.

    If the estimator has no probabilities, the predicted class gets the probability 1. If a label is the same in all
    rows, nothing is fitted: its logit is that of its share, with half a row added to both sides.
    """
    found = []
    _, x, estimator = method
    is_multiple = isinstance(objective, MultiLabel)
    for rows, target in columns:
        shares = np.zeros((len(test), 2 if is_multiple else objective.num_outputs))
        if is_multiple and len(np.unique(target)) < 2:
            shares += [len(target) * (1 - target[0]) + 0.5, len(target) * target[0] + 0.5]
        else:
            estimator.fit(x[rows], target)
            if isinstance(objective, Regress):
                shares = estimator.predict(x[test])
            elif hasattr(estimator, "predict_proba"):
                shares[:, estimator.classes_.astype(int)] = estimator.predict_proba(x[test])
            else:
                shares[np.arange(len(test)), estimator.predict(x[test]).astype(int)] = 1
        found.append(torch.from_numpy(shares))
    if is_multiple:
        return torch.stack([(one[:, 1] / one[:, 0]).log() for one in found], dim=1).float()
    if isinstance(objective, Classify):
        return found[0].log().float()
    return torch.stack(found, dim=1).float()


def _metrics(objective: Any, prediction: Tensor, target: Tensor) -> dict[str, float]:
    """The loss and the objective's metrics of these predictions, without those that are undefined or not finite."""
    found = {}
    # without probabilities, one class has the logarithm of 1, and the others that of 0
    has_classes_alone = isinstance(objective, Classify) and bool(
        (prediction.isfinite().sum(dim=1) == 1).all()
    )
    for name, metric in {"loss": MeanLoss(), **objective.metrics(None)}.items():
        if has_classes_alone and (isinstance(metric, MeanLoss) or needs_probabilities(metric)):
            continue
        update(metric, objective.loss(prediction, target))
        found[name] = float(metric.compute())
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _statistics(x: Tensor) -> np.ndarray:
    """Statistics of each column of x [n f]: mean and standard deviation, those of its changes over a few rows, mean
    absolute change from row to row, least and greatest value."""
    step = min(4, len(x) - 1)
    change = x[step:] - x[: len(x) - step]  # over a few rows, so that noise is less than a slope
    found = []
    for values in (x, change):
        found += [values.mean(dim=0), values.std(dim=0, correction=0)]
    found += [x.diff(dim=0, prepend=x[:1]).abs().mean(0), x.amin(0), x.amax(0)]
    return torch.cat(found).float().numpy()


def _of_tokens(tokenizer: Tokenizer, raw: Any) -> np.ndarray:
    """How often each id occurs, statistics of numbers and positions, number of tokens and of edges."""
    spec = tokenizer.spec
    tokens = tokenizer.encode(raw)
    ids = spec.ids_of(tokens).T.clamp(max=999).numpy()
    counts = [np.bincount(one, minlength=min(size, 1000)) for size, one in zip(spec.id_sizes, ids)]
    edges = 0 if tokens.adjacency is None else len(tokens.adjacency)
    numbers = torch.cat([spec.numbers_of(tokens), tokens.positions], dim=1)
    return np.concatenate([*counts, _statistics(numbers), [len(tokens), edges]])


def _same_size(rows: Sequence[Tensor]) -> list[Tensor]:
    """Images [c h w] with values in [0, 1]. If they are large or differ in shape, they are resized to SIDE x SIDE, and
    get three channels: grey is repeated, alpha is dropped."""
    found = [raw.float() / (255 if raw.dtype == torch.uint8 else 1) for raw in rows]
    if max(found[0].shape[1:]) <= SIDE and len({x.shape for x in found}) == 1:
        return found
    found = [x[:3] if len(x) >= 3 else x[:1].expand(3, -1, -1) for x in found]
    return [F.interpolate(x[None], (SIDE, SIDE), mode="area")[0] for x in found]


def _small(sample: Sample) -> Sample:
    """A clip [t c h w] as its middle frame, and the changes from the first frame to it and from it to the last.

    They are [3 c SIDE/2 SIDE/2]. Samples of other kinds are left as they are.
    """
    clip = sample.raw
    if not (isinstance(clip, Tensor) and clip.ndim == 4):
        return sample
    frames = clip[[0, len(clip) // 2, -1]].float() / (255 if clip.dtype == torch.uint8 else 1)
    first, middle, last = F.interpolate(frames, (SIDE // 2, SIDE // 2), mode="area")
    return sample._replace(raw=torch.stack([middle, middle - first, last - middle]))


def _molecule(raw: Any) -> np.ndarray:
    """RDKit's descriptors, and counts of Morgan fragments (radius 2), hashed to 512 numbers."""
    from rdkit import Chem
    from rdkit.Chem import Descriptors, rdFingerprintGenerator

    molecule = Chem.MolFromSmiles(raw) if isinstance(raw, str) else raw
    counts = rdFingerprintGenerator.GetMorganGenerator(
        radius=2, fpSize=512
    ).GetCountFingerprintAsNumPy(molecule)
    known = [
        value for _, function in Descriptors.descList if (value := function(molecule)) is not None
    ]
    return np.nan_to_num(np.concatenate([known, counts]), posinf=0, neginf=0).clip(-1e6, 1e6)


def _cells(rows: Sequence[Mapping[str, object]], fitted: np.ndarray) -> np.ndarray:
    """Features [m f]: numbers, NaN where they are missing, and a column of 0 and 1 for each value of a category."""
    from sklearn.feature_extraction import DictVectorizer

    known = [
        {name: x for name, x in row.items() if isinstance(x, int | float | str)} for row in rows
    ]
    missing: dict[str, int | float | str] = {}
    for row in known:
        missing |= {name: math.nan for name, x in row.items() if not isinstance(x, str)}
    rows = [missing | row for row in known]
    return DictVectorizer(sparse=False).fit([rows[i] for i in fitted]).transform(rows)


def _of_nodes(graph: GraphData, fitted: np.ndarray, target: Tensor) -> Any:
    """Features of nodes, sparse [n f].

    Each node has its own features, their mean over its neighbours, the shares of fitted classes one and two steps away,
    and its entries in 8 eigenvectors of the normalized adjacency.
    """
    from scipy import sparse

    n = len(graph.nodes)
    start, end = graph.edges[:, graph.edges[0] != graph.edges[1]].numpy()
    both_ways = (np.r_[start, end], np.r_[end, start])
    adjacency = sparse.coo_array((np.ones(2 * len(start)), both_ways), (n, n)).tocsr() > 0
    own = graph.nodes.numpy()  # features [n f], or an id of each node [n]
    if own.ndim == 1:
        own = sparse.eye_array(own.max() + 1).tocsr()[own]
    degree = np.maximum(adjacency.sum(axis=1), 1)
    classes = np.zeros((n, int(target.max()) + 1))
    classes[fitted, target[fitted]] = 1
    mean = sparse.diags_array(1 / degree) @ adjacency
    scale = sparse.diags_array(degree**-0.5)
    far = mean @ mean
    far.setdiag(0)  # two steps also lead back to the node itself, whose class would leak
    if n > 9:
        vectors = sparse.linalg.eigsh(scale @ adjacency @ scale, 8, v0=np.ones(n))[1]
    else:
        vectors = np.zeros((n, 8))
    each = (own, mean @ own, mean @ classes, far @ classes, np.sqrt(n) * vectors)
    return sparse.hstack([sparse.csr_array(x) for x in each]).tocsr()
