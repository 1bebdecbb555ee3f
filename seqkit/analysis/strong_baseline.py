"""Results of a specialist in seconds, to set beside a model: classical features, and an estimator of scikit-learn.

The features go by what the examples are, the estimator by what is asked. Texts under next-token prediction get n-grams.

n tokens or time steps · f features · m examples · k classes, labels or targets · v vocabulary size
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import coo_array
from torch import Tensor

from seqkit.analysis.forecasts import forecasts, windows_of
from seqkit.data.module import DataModule
from seqkit.data.sample import Sample, Samples
from seqkit.data.source import import_optional
from seqkit.data.splits import shuffled
from seqkit.interfaces import IGNORE, LossOutput, Objective, Tokenizer
from seqkit.objectives import Classify, MultiLabel, NextToken, Regress
from seqkit.objectives.classify import NEED_PROBABILITIES
from seqkit.objectives.metrics import MeanLoss, needs_probabilities, update
from seqkit.objectives.regress import large_offset
from seqkit.raw import GraphData, Waveform
from seqkit.tokenizers import Cells, Join, LogMel, Molecule

MOST = 4_000
"""Most training examples of an estimator whose time grows faster than their number; the others are left out at random.
"""

FRAMES, SIDE = 32, 32
"""Log-mel frames that a recording is stretched to, and pixels of a side of larger images, or of many sizes."""

LONGEST = 6
"""Longest n-gram, in ids."""

AROUND = (-2, -1, 0, 1, 2)
"""Places of the tokens by which a token is labelled, from its own."""
MOST_TOKENS = 300_000
"""Most labelled tokens that the labeller learns from: so many take 10 s."""


class Features(NamedTuple):
    """Features of the training and the test examples, as arrays or sparse matrices, and what suits them.

    suits: "linear", "scaled linear", "kernel", "scaled kernel" or "forest".
    """

    name: str
    train: Any
    test: Any
    suits: str


class Predicted(NamedTuple):
    """Predictions [m k] of a method as the model's head would give them. has_probabilities: whether logits are such."""

    name: str
    prediction: Tensor
    has_probabilities: bool = True


class Found(NamedTuple):
    """A method, its metrics on the test split, and the number of training examples.

    candidates: main metric on validation data of each method that it was chosen from; empty: there was no choice.
    """

    name: str
    metrics: dict[str, float]
    number: int
    candidates: dict[str, float] = {}  # noqa: RUF012


def strong_baseline(data: DataModule) -> dict[str, Any] | None:
    """Name, metrics on the test split, number of training examples and seconds of the specialist; None: none is known.

    The metrics are the objective's own and the loss, as far as the method has probabilities and they are finite: the
    loss of a class to which a random forest gives the probability 0 is not. Of several methods, `candidates` holds the
    main metric on validation data, by which the best is chosen.
    Raises DataError if scikit-learn is missing.
    """
    started, objective, splits = time.perf_counter(), data.objective, data.splits()
    found: Found | None = None
    if type(objective) is NextToken and data.tokenizer.spec.ids and data.window is not None:
        found = _of_ids(data, objective)
    elif isinstance(objective, Classify | Regress | MultiLabel):
        import_optional("sklearn", "baselines")
        sample = splits.train[0]
        is_of_tokens = getattr(objective, "level", "sequence") == "token"
        if isinstance(sample.raw, GraphData) and isinstance(sample.label, Tensor) and is_of_tokens:
            found = _of_nodes(objective, splits.train, splits.test)
        elif isinstance(objective, Classify) and is_of_tokens and data.tokenizer.spec.ids:
            found = _of_labels(data, objective)
        elif not is_of_tokens:
            found = _of_examples(data, objective)
    if found is None:
        return None
    seconds = round(time.perf_counter() - started, 1)
    candidates = {"candidates": found.candidates} if found.candidates else {}
    return {"name": found.name, "metrics": found.metrics, "num_train": found.number, "seconds": seconds, **candidates}


def _of_examples(data: DataModule, objective: Classify | Regress | MultiLabel) -> Found:
    """The method that suits the examples; of several, the one that is best on validation data.

    Without a validation split, a fifth of the training split is in its place.
    """
    splits = data.splits()
    train: Sequence[Sample] = splits.train
    if len(train) > MOST:
        train = [train[i] for i in shuffled(len(train), 0)[:MOST]]
    is_forecast = isinstance(objective, Regress) and windows_of(data.tokenizer, [train[0].raw]) is not None
    judged: Sequence[Sample] = []
    if is_forecast or isinstance(objective, MultiLabel):
        judged, fifth = splits.valid or [], max(1, len(train) // 5)
        if not judged and len(train) > 1:
            train, judged = train[:-fifth], train[-fifth:]
    raws = [[sample.raw for sample in split] for split in (train, [*judged, *splits.test])]
    targets = [_targets(objective, split) for split in (train, judged, splits.test)]
    target = targets[0].double().numpy() if targets[0].is_floating_point() else targets[0].numpy()
    features = _features(data.tokenizer, *raws)
    tried = [_predicted(objective, features, target)]
    if isinstance(objective, MultiLabel) and features.suits == "forest":
        tried.append(_predicted(objective, features, target, "scaled linear"))
    windows = windows_of(data.tokenizer, [*raws[0], *raws[1]]) if is_forecast else None
    if isinstance(objective, Regress) and windows is not None:
        found = forecasts(windows[: len(train)], windows[len(train) :], target)
        tried += (Predicted(name, _standardised(objective, values)) for name, values in found)
    candidates, chosen = {}, tried[0]
    if len(tried) > 1 and judged:
        main = "auroc" if isinstance(objective, MultiLabel) else "rmse"
        for one in tried:
            known = _metrics(objective, one.prediction[: len(judged)], targets[1], has_probabilities=False)
            if main in known:
                candidates[one.name] = known[main]
        candidates = dict(sorted(candidates.items(), key=lambda each: each[1], reverse=main == "auroc"))
        name = next(iter(candidates), chosen.name)
        chosen = next(one for one in tried if one.name == name)
    metrics = _metrics(
        objective, chosen.prediction[len(judged) :], targets[2], has_probabilities=chosen.has_probabilities
    )
    return Found(chosen.name, metrics, len(train), candidates)


def _targets(objective: Classify | Regress | MultiLabel, samples: Sequence[Sample]) -> Tensor:
    """Classes [m], or numbers or labels [m k]."""
    labels = [torch.as_tensor(objective.encode_target(label)) for label in Samples.of(samples).labels]
    return torch.stack(labels) if labels else torch.zeros(0)


# ── features ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _features(tokenizer: Tokenizer, train: Sequence[Any], test: Sequence[Any]) -> Features:
    """Features that suit the first raw example; those of its tokens, where nothing else is known of it."""
    raws, first = (train, test), train[0]
    if isinstance(tokenizer, Join):
        return _of_parts(tokenizer, train, test)
    if isinstance(tokenizer, Cells):
        return _of_cells(train, test)
    if isinstance(tokenizer, Molecule):
        return _of_molecules(*raws)
    if isinstance(first, str):
        return _of_texts(*raws)
    if isinstance(first, Waveform):
        return Features("log-mel frames", _of_sounds(raws[0]), _of_sounds(raws[1]), "scaled kernel")
    if isinstance(first, Tensor) and first.ndim == 3:
        is_small = max(first.shape[1:]) <= SIDE and len({raw.shape for each in raws for raw in each}) == 1
        pixels = [_of_images(each, resize=not is_small) for each in raws]
        return Features("pixels and their statistics", pixels[0], pixels[1], "kernel")
    statistics = [_of_tokens(tokenizer, each) for each in raws]
    return Features("statistics of the tokens", statistics[0], statistics[1], "forest")


def _of_parts(tokenizer: Join, train: Sequence[Any], test: Sequence[Any]) -> Features:
    """Features of each part, side by side, with a column that says whether an example has it.

    Of an example without the part they are the means over the training examples that have it.
    """
    from scipy import sparse

    columns: tuple[list[Any], list[Any]] = ([], [])
    names, suits = [], set()
    for name, own in tokenizer.parts.items():
        raws = [[dict(tokenizer.runs(raw)).get(name) for raw in each] for each in (train, test)]
        there = [np.array([raw is not None for raw in each]) for each in raws]
        if not there[0].any():
            continue
        given = [[raw for raw in each if raw is not None] for each in raws]
        found = _features(own, given[0], given[1] or given[0][:1])
        names.append(f"{found.name} ({name})")
        suits.add(found.suits)
        for side, values, known in zip(columns, (found.train, found.test), there):
            dense = values.toarray() if sparse.issparse(values) else values
            average = np.asarray(found.train.mean(axis=0)).reshape(-1)
            filled = np.tile(average, (len(known), 1))
            filled[known] = dense[: known.sum()]
            side.append(np.column_stack([filled, known]))
    kind = "scaled kernel" if suits <= {"kernel", "scaled kernel"} else "forest"
    return Features(" and ".join(names), np.hstack(columns[0]), np.hstack(columns[1]), kind)


def _of_cells(train: Sequence[Mapping[str, Any]], test: Sequence[Mapping[str, Any]]) -> Features:
    """Numbers, and a column for each word of a category; a missing number is the mean over training."""
    from sklearn.feature_extraction import DictVectorizer

    rows = [[{k: v for k, v in raw.items() if v is not None} for raw in each] for each in (train, test)]
    vectors = DictVectorizer(sparse=False).fit(rows[0])
    found = [vectors.transform(each) for each in rows]
    for place, column in enumerate(vectors.feature_names_):
        missing = [np.array([column not in row for row in each]) for each in rows]
        if any(column in row for row in rows[0]):  # a number; words have columns of their own, column=word
            mean = found[0][~missing[0], place].mean()
            offset = large_offset(mean, found[0][~missing[0], place].std())
            for values, gaps in zip(found, missing):
                values[gaps, place] = mean
                values[:, place] -= offset  # trees compute in float32
    return Features("numbers and categories", found[0], found[1], "forest")


def _of_texts(train: Sequence[str], test: Sequence[str]) -> Features:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    letters = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(2, 5))
    both = make_union(words, letters)
    return Features("TF-IDF of words and letters", both.fit_transform(train), both.transform(test), "linear")


def _of_images(raws: Sequence[Tensor], *, resize: bool) -> np.ndarray:
    """Pixels, of one size and three channels if `resize`; mean, deviation and quantiles of each channel."""
    found = []
    for raw in raws:
        image = raw.float() / (255 if raw.dtype == torch.uint8 else 1)
        if resize:  # grey pictures, or an alpha channel, may be among the others
            image = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
        small = F.interpolate(image[None], (SIDE, SIDE), mode="area")[0] if resize else image
        flat = small.flatten(1)
        levels = torch.quantile(flat, torch.tensor([0.1, 0.5, 0.9]), dim=1).flatten()
        found.append(torch.cat([small.flatten(), flat.mean(1), flat.std(1), levels]).numpy())
    return np.stack(found)


def _of_sounds(raws: Sequence[Waveform]) -> np.ndarray:
    """Log-mel frames stretched to `FRAMES` of them."""
    rate = raws[0].sample_rate
    tokenizer = LogMel(rate, num_mels=40)
    frames = [tokenizer.encode(raw).content for raw in raws]
    return np.stack([F.interpolate(one.T[None], FRAMES, mode="linear").flatten().numpy() for one in frames])


def _of_molecules(train: Sequence[Any], test: Sequence[Any]) -> Features:
    """RDKit's descriptors, and counts of Morgan fragments (radius 2, 2,048 places)."""
    from rdkit import Chem
    from rdkit.Chem import Descriptors, rdFingerprintGenerator

    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)

    def of(raws: Sequence[Any]) -> np.ndarray:
        rows = []
        for raw in raws:
            molecule = Chem.MolFromSmiles(raw) if isinstance(raw, str) else raw
            known = [value for _, function in Descriptors.descList if (value := function(molecule)) is not None]
            counts = morgan.GetCountFingerprintAsNumPy(molecule)
            rows.append(np.concatenate([np.nan_to_num(known, posinf=0, neginf=0), counts]))
        return np.stack(rows).clip(-1e6, 1e6)

    return Features("RDKit's descriptors and Morgan counts", of(train), of(test), "forest")


def _of_tokens(tokenizer: Tokenizer, raws: Sequence[Any]) -> np.ndarray:
    """How often each id occurs; mean, deviation, extremes, first and last of each number and position; the length."""
    spec, rows = tokenizer.spec, []
    for tokens in map(tokenizer.encode, raws):
        x, ids = torch.cat([spec.numbers_of(tokens), tokens.positions], dim=1), spec.ids_of(tokens)
        kinds = [min(size, 1000) for size in spec.id_sizes]
        counts = [torch.bincount(ids[:, k].clamp(max=999), minlength=number) for k, number in enumerate(kinds)]
        known = [x.mean(0), x.std(0, correction=0), x.amin(0), x.amax(0), x[0], x[-1]]
        edges = 0 if tokens.adjacency is None else len(tokens.adjacency)
        rows.append(torch.cat([*counts, *known, torch.tensor([len(tokens), edges])]).float().numpy())
    return np.stack(rows)


# ── estimators ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _predicted(
    objective: Classify | Regress | MultiLabel, features: Features, target: np.ndarray, suits: str = ""
) -> Predicted:
    """The estimator's predictions of the test features. target: [n] classes, or [n k]. suits: other than `features`."""
    suits = suits or features.suits
    if isinstance(objective, Regress):
        name, estimator = _regressor(suits)
        if target.shape[1] > 1 and suits != "forest":  # which has several targets itself
            from sklearn.multioutput import MultiOutputRegressor

            estimator = MultiOutputRegressor(estimator)
        known = ~np.isnan(target).any(axis=1)
        numbers = target[known].squeeze(1) if target.shape[1] == 1 else target[known]
        found = estimator.fit(features.train[known], numbers).predict(features.test)
        return Predicted(f"{name} on {features.name}", _standardised(objective, found))
    name, estimator = _classifier(suits)
    if isinstance(objective, MultiLabel):
        logits, has_probabilities = _of_each_label(estimator, features, target)
        each = " for each label" if target.shape[1] > 1 else ""
        return Predicted(f"{name} on {features.name}{each}", logits, has_probabilities)
    known = target != IGNORE
    target = target[known]
    fewest = int(np.unique(target, return_counts=True)[1].min())
    if not hasattr(estimator, "predict_proba") and fewest > 1 and NEED_PROBABILITIES & set(objective.chosen_metrics):
        from sklearn.calibration import CalibratedClassifierCV

        name += " with Platt scaling"
        estimator = CalibratedClassifierCV(estimator, cv=min(5, fewest), ensemble=False)
    prediction, has_probabilities = _as_head(objective, estimator.fit(features.train[known], target), features.test)
    return Predicted(f"{name} on {features.name}", prediction, has_probabilities)


def _scaled(estimator: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), estimator)


def _classifier(suits: str) -> tuple[str, Any]:
    """Name and estimator of classes."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    return {
        "linear": ("logistic regression", LogisticRegression(C=100, max_iter=1000)),
        "scaled linear": ("logistic regression", _scaled(LogisticRegression(max_iter=1000))),
        "kernel": ("an RBF-SVM", SVC(C=10)),
        "scaled kernel": ("an RBF-SVM", _scaled(SVC(C=10))),
        "forest": ("a random forest", RandomForestClassifier(100, random_state=1)),
    }[suits]


def _regressor(suits: str) -> tuple[str, Any]:
    """Name and estimator of numbers."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.svm import SVR

    return {
        "linear": ("ridge regression", RidgeCV(np.logspace(-2, 3, 6))),
        "kernel": ("an RBF-SVM", SVR(C=10)),
        "scaled kernel": ("an RBF-SVM", _scaled(SVR(C=10))),
        "forest": ("a random forest", RandomForestRegressor(100, max_features=0.2, random_state=1)),
    }[suits]


def _as_head(objective: Classify, estimator: Any, asked: Any) -> tuple[Tensor, bool]:
    """Log-probabilities of the classes [m k]; without probabilities, 1 for the predicted class and 0 for others."""
    k = len(objective.names)
    if not hasattr(estimator, "predict_proba"):
        return F.one_hot(torch.from_numpy(estimator.predict(asked)).long(), k).float(), False
    shares = np.zeros((asked.shape[0], k))
    shares[:, estimator.classes_] = estimator.predict_proba(asked)
    return torch.from_numpy(shares).log().float(), True


def _of_each_label(estimator: Any, features: Features, target: np.ndarray) -> tuple[Tensor, bool]:
    """Logits of yes of each label [m k], by an estimator of its own, and whether they are of probabilities.

    Unknown labels are left out. A label that is always yes, or never, in training has the log-odds of its share.
    """
    from sklearn.base import clone

    has_probabilities, columns = hasattr(estimator, "predict_proba"), []
    for label in target.T:
        known = ~np.isnan(label)
        yes = label[known].astype(int)
        if len(np.unique(yes)) < 2:
            share = (yes.sum() + 0.5) / (len(yes) + 1)
            columns.append(np.full(features.test.shape[0], np.log(share / (1 - share))))
            continue
        fitted = clone(estimator).fit(features.train[known], yes)
        if has_probabilities:
            with np.errstate(divide="ignore"):
                no, share = np.log(fitted.predict_proba(features.test)).T
            columns.append(share - no)
        else:
            columns.append(fitted.decision_function(features.test))
    return torch.from_numpy(np.stack(columns, axis=1)).float(), has_probabilities


def _standardised(objective: Regress, found: np.ndarray) -> Tensor:
    """Numbers in the targets' unit as the model's head gives them [m k]."""
    mean, std = torch.tensor(objective.centred_mean), torch.tensor(objective.std)
    return (torch.from_numpy(found).float().reshape(len(found), -1) - mean) / std


def _metrics(objective: Objective, prediction: Tensor, target: Tensor, *, has_probabilities: bool) -> dict[str, float]:
    """The objective's metrics of these predictions, and the loss, as far as they are defined.

    has_probabilities: False: metrics of probabilities, and the loss of classes, are left out.
    """
    output: LossOutput = objective.loss(prediction, target)  # type: ignore[attr-defined]
    metrics: dict[str, Any] = {"loss": MeanLoss(), **objective.metrics(None)}  # type: ignore[arg-type]
    found = {}
    for name, metric in metrics.items():
        if has_probabilities or not (isinstance(metric, MeanLoss) or needs_probabilities(metric)):
            update(metric, output)
            found[name] = float(metric.compute())
    return {name: value for name, value in found.items() if np.isfinite(value)}


# ── nodes of one graph ───────────────────────────────────────────────────────────────────────────────────────────────


def _of_nodes(
    objective: Classify | Regress | MultiLabel, train: Sequence[Sample], test: Sequence[Sample]
) -> Found | None:
    """Logistic regression on each node's features, mixed with its neighbours' twice (SGC, Wu et al. 2019)."""
    from sklearn.linear_model import LogisticRegression

    if not isinstance(objective, Classify) or len(train) > 1 or len(test) > 1:
        return None

    def mixed(graph: GraphData) -> np.ndarray:
        x = F.one_hot(graph.nodes) if graph.nodes.ndim == 1 else graph.nodes
        n = len(x)
        x = x.float() if x.shape[1] else torch.eye(n)
        loops = torch.arange(n).repeat(2, 1)
        edges = torch.cat([graph.edges, graph.edges.flip(0), loops], dim=1).unique(dim=1).numpy()
        root = np.bincount(edges[0], minlength=n) ** -0.5
        matrix = coo_array((root[edges[0]] * root[edges[1]], (edges[0], edges[1])), shape=(n, n)).tocsr()
        twice: np.ndarray = matrix @ (matrix @ x.numpy())
        return twice

    known, asked = (sample.label != IGNORE for sample in (train[0], test[0]))
    machine = LogisticRegression(C=100, max_iter=1000)
    machine.fit(mixed(train[0].raw)[known.numpy()], train[0].label[known].numpy())
    prediction, _ = _as_head(objective, machine, mixed(test[0].raw)[asked.numpy()])
    metrics = _metrics(objective, prediction, test[0].label[asked], has_probabilities=True)
    return Found("logistic regression on the nodes and their neighbours' features", metrics, int(known.sum()))


# ── labels of tokens ─────────────────────────────────────────────────────────────────────────────────────────────────


def _of_labels(data: DataModule, objective: Classify) -> Found:
    """Logistic regression on each token's id and those of the two tokens on either side."""
    from sklearn.linear_model import SGDClassifier
    from sklearn.preprocessing import OneHotEncoder

    def rows(samples: Sequence[Sample], most: int | None) -> tuple[np.ndarray, Tensor, int]:
        windows, labels, num_tokens = [], [], 0
        for sample in samples:
            if most is not None and num_tokens >= most:
                break
            ids = F.pad(data.tokenizer.encode(sample.raw).content, [-AROUND[0], AROUND[-1]], value=-1)
            label = torch.as_tensor(sample.label)
            windows.append(ids.unfold(0, len(AROUND), 1)[label != IGNORE])
            labels.append(label[label != IGNORE])
            num_tokens += len(labels[-1])
        return torch.cat(windows).numpy(), torch.cat(labels), len(labels)

    splits = data.splits()
    train = splits.train.at(shuffled(len(splits.train), 0))
    ids, labels, number = rows(train, MOST_TOKENS)
    asked, target, _ = rows(splits.test, None)
    one_hot = OneHotEncoder(handle_unknown="ignore", dtype=np.float32)
    machine = SGDClassifier(loss="log_loss", alpha=1e-6, max_iter=8, tol=None, random_state=1)
    machine.fit(one_hot.fit_transform(ids), labels.numpy())
    prediction, _ = _as_head(objective, machine, one_hot.transform(asked))
    metrics = _metrics(objective, prediction, target, has_probabilities=True)
    return Found("logistic regression on five tokens", metrics, number)


# ── next tokens ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _of_ids(data: DataModule, objective: NextToken) -> Found:
    """Loss of n-grams, smoothed as Witten and Bell (1991), on every token of the test split that a model predicts.

    A context that is not followed by so many kinds of tokens leaves as much probability to the shorter context.
    """
    size = data.tokenizer.spec.vocab_size
    order = min(LONGEST, int(62 / np.log2(max(size, 2))))  # an n-gram is one int64
    splits = data.splits()
    train, test = (
        [data.tokenizer.encode(sample.raw).content.numpy() for sample in split] for split in (splits.train, splits.test)
    )
    probability = np.full(sum(len(ids) - 1 for ids in test), 1 / size)
    for n in range(1, order + 1):
        grams, counts = np.unique(np.concatenate([_grams(ids, n, size) for ids in train]), return_counts=True)
        contexts, kinds = np.unique(grams // size, return_counts=True)
        totals = np.bincount(np.searchsorted(contexts, grams // size), weights=counts)
        # the n-gram that ends at each token but a document's first, id -1 standing for what is before a document
        padded = [np.concatenate([np.full(max(n - 2, 0), -1), ids[1:] if n == 1 else ids]) for ids in test]
        asked = np.concatenate([_grams(ids, n, size) for ids in padded])
        seen, of_gram = _looked_up(asked, grams, counts)
        known, total = _looked_up(asked // size, contexts, totals)
        _, kind = _looked_up(asked // size, contexts, kinds)
        mixed = (of_gram * seen + kind * probability) / np.maximum(total + kind, 1)
        probability = np.where(known & (asked >= 0), mixed, probability)
    loss = float(-np.log(probability).mean())
    perplexity = {"perplexity": float(np.exp(loss))} if "Perplexity" in objective.chosen_metrics else {}
    counted = f"{sum(map(len, train)):,} training tokens"  # with less text, or another, they are worse
    return Found(f"{order}-grams (Witten–Bell) of {counted}", {"loss": loss, **perplexity}, len(train))


def _grams(ids: np.ndarray, n: int, size: int) -> np.ndarray:
    """Every n-gram of the ids as one number; below 0 where it begins before them (id -1)."""
    if len(ids) < n:
        return np.zeros(0, dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(ids.astype(np.int64), n)
    found = windows @ size ** np.arange(n - 1, -1, -1, dtype=np.int64)
    return np.where((windows < 0).any(axis=1), -1, found)


def _looked_up(asked: np.ndarray, known: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether each number is among the sorted known ones, and its value (0 where it is not)."""
    place = np.searchsorted(known, asked).clip(max=len(known) - 1)
    is_known = known[place] == asked
    return is_known, np.where(is_known, values[place], 0)
