"""Results of a classical method in seconds, to set beside a model: plain features, and an estimator of scikit-learn.

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
from torch import Tensor

from seqkit.analysis.forecasts import forecast
from seqkit.data.module import DataModule
from seqkit.data.sample import Sample, Samples
from seqkit.data.source import import_optional
from seqkit.data.splits import shuffled
from seqkit.data.tables.schema import CELLS
from seqkit.interfaces import IGNORE, Tokenizer
from seqkit.objectives import Classify, MultiLabel, NextToken, Regress
from seqkit.objectives.metrics import MeanLoss, needs_probabilities, update
from seqkit.raw import Waveform
from seqkit.tokenizers import Cells, Join, LogMel, Molecule, Series

MOST = 5_000
"""Most training examples of an estimator; the others are left out at random: the time of an SVM grows as their square.
"""

FRAMES, SIDE = 32, 32
"""Log-mel frames that a recording is stretched to, and pixels of a side of larger images, or of many sizes."""

NUM_WORDS = 300
"""Words of the texts of a row that are features."""

LONGEST = 6
"""Longest n-gram, in ids."""


class Features(NamedTuple):
    """Features of the training and the test examples, as arrays or sparse matrices, and the estimator that suits them.

    suits: "linear", "kernel", "scaled kernel", "forest" or "boosting".
    """

    name: str
    train: Any
    test: Any
    suits: str


class Found(NamedTuple):
    """A method, its metrics on the test split, and the number of training examples; of n-grams, that of tokens."""

    name: str
    metrics: dict[str, float]
    num_train: int


def strong_baseline(data: DataModule) -> dict[str, Any] | None:
    """Name, metrics on the test split, number of training examples and seconds of the method; None: none is known.

    The metrics are the objective's own and the loss. Those of probabilities are left out if the method has none, and
    a loss that is not finite: a random forest gives some classes the probability 0.
    Raises DataError if scikit-learn is missing.
    """
    started, objective = time.perf_counter(), data.objective
    found: Found | None = None
    if type(objective) is NextToken and data.tokenizer.spec.ids and data.window is not None:
        found = _n_grams(data, objective)
    elif isinstance(objective, Classify | Regress | MultiLabel):
        import_optional("sklearn", "baselines")
        found = _of_examples(data, objective) if getattr(objective, "level", "sequence") == "sequence" else None
    return None if found is None else {**found._asdict(), "seconds": round(time.perf_counter() - started, 1)}


def _of_examples(data: DataModule, objective: Classify | Regress | MultiLabel) -> Found | None:
    """The method that suits the examples; None: none does."""
    splits = data.splits()
    train: Sequence[Sample] = splits.train
    if len(train) > MOST:
        train = [train[i] for i in shuffled(len(train), 0)[:MOST]]
    raws = [[sample.raw for sample in split] for split in (train, splits.test)]
    target, asked = (_targets(objective, split) for split in (train, splits.test))
    has_probabilities = True
    if isinstance(objective, Regress) and isinstance(data.tokenizer, Series):
        name, values = forecast(raws[0], raws[1], target.double().numpy())
        prediction = _standardised(objective, values)
    elif (features := _features(data.tokenizer, *raws)) is None:
        return None
    else:
        name, estimator = _estimator(features.suits, is_number=isinstance(objective, Regress))
        name += f" on {features.name}"
        has_probabilities = isinstance(objective, Regress) or hasattr(estimator, "predict_proba")
        prediction = _predicted(objective, estimator, features, target.numpy())
    return Found(name, _metrics(objective, prediction, asked, has_probabilities=has_probabilities), len(train))


def _targets(objective: Classify | Regress | MultiLabel, samples: Sequence[Sample]) -> Tensor:
    """Classes [m], or numbers or labels [m k]."""
    return torch.stack([torch.as_tensor(objective.encode_target(label)) for label in Samples.of(samples).labels])


# ── features ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _features(tokenizer: Tokenizer, train: Sequence[Any], test: Sequence[Any]) -> Features | None:
    """Features that suit the first raw example; those of its tokens, where nothing else is known of it.

    Of rows of several parts, their cells and the words of their texts; None: they have neither.
    """
    first = train[0]
    if isinstance(tokenizer, Join):
        return _of_rows(train, test)
    if isinstance(tokenizer, Cells):
        return Features("numbers and categories", *_of_cells(train, test), "boosting")
    if isinstance(tokenizer, Molecule):
        name = "RDKit's descriptors and Morgan counts"
        return Features(name, _of_molecules(train), _of_molecules(test), "forest")
    if isinstance(first, str):
        return Features("TF-IDF of words and letters", *_of_texts(train, test), "linear")
    if isinstance(first, Waveform):
        return Features("log-mel frames", _of_sounds(train), _of_sounds(test), "scaled kernel")
    if isinstance(first, Tensor) and first.ndim == 3:
        is_small = max(first.shape[1:]) <= SIDE and len({raw.shape for raws in (train, test) for raw in raws}) == 1
        pixels = [_of_images(raws, resize=not is_small) for raws in (train, test)]
        return Features("pixels", pixels[0], pixels[1], "kernel")
    statistics = [_of_tokens(tokenizer, raws) for raws in (train, test)]
    return Features("statistics of the tokens", statistics[0], statistics[1], "forest")


def _of_rows(train: Sequence[Any], test: Sequence[Any]) -> Features | None:
    """Cells of rows of several parts, and whether a text of the row has each of the most frequent words."""
    from sklearn.feature_extraction.text import CountVectorizer

    rows = [[raw if isinstance(raw, Mapping) else {} for raw in raws] for raws in (train, test)]
    cells = [[row.get(CELLS) or {} for row in each] for each in rows]
    texts = [[" ".join(x for x in row.values() if isinstance(x, str)) for row in each] for each in rows]
    blocks = [_of_cells(*cells)] if any(cells[0]) else []
    if any(texts[0]):
        words = CountVectorizer(binary=True, max_features=NUM_WORDS).fit(texts[0])
        blocks.append((words.transform(texts[0]).toarray(), words.transform(texts[1]).toarray()))
    if not blocks:
        return None
    return Features("cells and words", np.hstack([x for x, _ in blocks]), np.hstack([x for _, x in blocks]), "boosting")


def _of_cells(train: Sequence[Mapping[str, Any]], test: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, NaN where they are missing, and a column for each word of a category."""
    from sklearn.feature_extraction import DictVectorizer

    rows = [[{k: v for k, v in raw.items() if v is not None} for raw in raws] for raws in (train, test)]
    vectors = DictVectorizer(sparse=False).fit(rows[0])
    found = [vectors.transform(each) for each in rows]
    numbers = {column for row in rows[0] for column, value in row.items() if not isinstance(value, str)}
    for place, column in enumerate(vectors.feature_names_):
        if column in numbers:  # words have columns of their own, column=word
            for values, each in zip(found, rows):
                values[[column not in row for row in each], place] = np.nan
    return found[0], found[1]


def _of_texts(train: Sequence[str], test: Sequence[str]) -> tuple[Any, Any]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    letters = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(2, 5))
    both = make_union(words, letters)
    return both.fit_transform(train), both.transform(test)


def _of_images(raws: Sequence[Tensor], *, resize: bool) -> np.ndarray:
    """Pixels, of one size and three channels if `resize`."""
    found = []
    for raw in raws:
        image = raw.float() / (255 if raw.dtype == torch.uint8 else 1)
        if resize:  # grey pictures, or an alpha channel, may be among the others
            image = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
            image = F.interpolate(image[None], (SIDE, SIDE), mode="area")[0]
        found.append(image.flatten().numpy())
    return np.stack(found)


def _of_sounds(raws: Sequence[Waveform]) -> np.ndarray:
    """Log-mel frames stretched to `FRAMES` of them."""
    tokenizer = LogMel(raws[0].sample_rate, num_mels=40)
    frames = [tokenizer.encode(raw).content for raw in raws]
    return np.stack([F.interpolate(one.T[None], FRAMES, mode="linear").flatten().numpy() for one in frames])


def _of_molecules(raws: Sequence[Any]) -> np.ndarray:
    """RDKit's descriptors, and counts of Morgan fragments (radius 2, 2,048 places)."""
    from rdkit import Chem
    from rdkit.Chem import Descriptors, rdFingerprintGenerator

    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    rows = []
    for raw in raws:
        molecule = Chem.MolFromSmiles(raw) if isinstance(raw, str) else raw
        known = [value for _, function in Descriptors.descList if (value := function(molecule)) is not None]
        counts = morgan.GetCountFingerprintAsNumPy(molecule)
        rows.append(np.concatenate([np.nan_to_num(known, posinf=0, neginf=0), counts]))
    return np.stack(rows).clip(-1e6, 1e6)


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


def _estimator(suits: str, *, is_number: bool) -> tuple[str, Any]:
    """Name and estimator of classes, or of numbers."""
    from sklearn import ensemble, linear_model, svm
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if suits == "linear":
        if is_number:
            return "ridge regression", linear_model.RidgeCV(np.logspace(-2, 3, 6))
        return "logistic regression", linear_model.LogisticRegression(C=100, max_iter=1000)
    if suits == "forest":
        if is_number:
            return "a random forest", ensemble.RandomForestRegressor(100, max_features=0.2, random_state=1)
        return "a random forest", ensemble.RandomForestClassifier(100, random_state=1)
    if suits == "boosting":
        boosting = ensemble.HistGradientBoostingRegressor if is_number else ensemble.HistGradientBoostingClassifier
        name, estimator = "gradient boosting", boosting(min_samples_leaf=5, random_state=1)
    else:
        name, estimator = "an RBF-SVM", svm.SVR(C=10) if is_number else svm.SVC(C=10)
        estimator = make_pipeline(StandardScaler(), estimator) if suits == "scaled kernel" else estimator
    return name, estimator


def _predicted(objective: Any, estimator: Any, features: Features, target: np.ndarray) -> Tensor:
    """Predictions of the test features as a model's head gives them [m k]: log-probabilities, logits or numbers.

    Examples of unknown targets are left out. Without probabilities, the predicted class has 1 and others 0.
    """
    if isinstance(objective, MultiLabel):
        return torch.stack([_logits(estimator, features, label) for label in target.T], dim=1)
    if isinstance(objective, Regress):
        from sklearn.multioutput import MultiOutputRegressor

        known = ~np.isnan(target).any(axis=1)
        fitted = MultiOutputRegressor(estimator).fit(features.train[known], target[known])
        return _standardised(objective, fitted.predict(features.test))
    known = target != IGNORE
    fitted = estimator.fit(features.train[known], target[known])
    if not hasattr(fitted, "predict_proba"):
        return F.one_hot(torch.from_numpy(fitted.predict(features.test)).long(), len(objective.names)).float()
    shares = np.zeros((features.test.shape[0], len(objective.names)))
    shares[:, fitted.classes_] = fitted.predict_proba(features.test)
    return torch.from_numpy(shares).log().float()


def _logits(estimator: Any, features: Features, label: np.ndarray) -> Tensor:
    """Logits [m] of a label being yes, of the known labels; one that never differs has the logit of its share."""
    known = ~np.isnan(label)
    yes = label[known].astype(int)
    if len(np.unique(yes)) < 2:
        return torch.full((features.test.shape[0],), (yes.sum() + 0.5) / (len(yes) + 1)).logit()
    fitted = estimator.fit(features.train[known], yes)
    if hasattr(fitted, "predict_proba"):
        return torch.from_numpy(fitted.predict_proba(features.test)[:, 1]).logit().float()
    return torch.from_numpy(fitted.decision_function(features.test)).float()


def _standardised(objective: Regress, values: np.ndarray) -> Tensor:
    """Numbers in the targets' unit as the model's head gives them [m k]."""
    mean, std = torch.tensor(objective.centred_mean), torch.tensor(objective.std)
    return (torch.from_numpy(values).float().reshape(len(values), -1) - mean) / std


def _metrics(objective: Any, prediction: Tensor, target: Tensor, *, has_probabilities: bool) -> dict[str, float]:
    """The objective's metrics of these predictions, and the loss, as far as they are defined.

    has_probabilities: False: metrics of probabilities, and the loss, are left out.
    """
    found = {}
    for name, metric in {"loss": MeanLoss(), **objective.metrics(None)}.items():
        if has_probabilities or not (isinstance(metric, MeanLoss) or needs_probabilities(metric)):
            update(metric, objective.loss(prediction, target))
            found[name] = float(metric.compute())
    return {name: value for name, value in found.items() if np.isfinite(value)}


def _n_grams(data: DataModule, objective: NextToken) -> Found:
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
    return Found(f"{order}-grams (Witten–Bell)", {"loss": loss, **perplexity}, sum(map(len, train)))


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
