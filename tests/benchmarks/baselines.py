"""What well-known methods reach on the recipes' own splits (scikit-learn; `pip install "seqkit[demo]"`).

python tests/benchmarks/baselines.py
"""

from __future__ import annotations

import time

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from seqkit.data.audio import Fsdd, SpokenDigits
from seqkit.data.graph import Solubility
from seqkit.data.image import Mnist5k
from seqkit.data.source import Source
from seqkit.tokenizers.audio import LogMel


def svm(train: np.ndarray, labels: list[int], test: np.ndarray, truth: list[int], *, scale: bool) -> float:
    """Accuracy in % of an RBF support vector machine with C = 10."""
    machine = make_pipeline(StandardScaler(), SVC(C=10)) if scale else SVC(C=10)
    return 100 * float(np.mean(machine.fit(train, labels).predict(test) == np.array(truth)))


def digits() -> float:
    """Pixels of mnist-5k."""
    splits = Mnist5k().splits()
    pixels = {part: np.stack([s.raw.flatten().numpy() for s in getattr(splits, part)]) for part in ("train", "test")}
    return svm(
        pixels["train"], [s.label for s in splits.train], pixels["test"], [s.label for s in splits.test], scale=False
    )


def spoken(source: Source) -> float:
    """Log-mel frames stretched to 32 of them."""
    splits = source.splits()
    tokenizer = LogMel(8000, num_mels=40)

    def stretched(raw: object) -> np.ndarray:
        frames = tokenizer.encode(raw).content
        return F.interpolate(frames.T[None], 32, mode="linear").flatten().numpy()

    train, test = (np.stack([stretched(s.raw) for s in part]) for part in (splits.train, splits.test))
    return svm(train, [s.label for s in splits.train], test, [s.label for s in splits.test], scale=True)


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
    for name, features in (("Morgan counts", morgan.GetCountFingerprintAsNumPy), ("RDKit descriptors", descriptors)):
        train, test = (
            np.array([features(s.raw) for s in part], dtype=np.float64).clip(-1e6, 1e6)
            for part in (splits.train, splits.test)
        )
        forest = RandomForestRegressor(500, random_state=1, n_jobs=1).fit(train, [s.label for s in splits.train])
        results[name] = float(np.sqrt(np.mean((forest.predict(test) - [s.label for s in splits.test]) ** 2)))
    return results


def main() -> None:
    torch.set_num_threads(1)
    started = time.perf_counter()
    print(f"mnist-5k, RBF-SVM on pixels: {digits():.1f} %", flush=True)
    print(f"fsdd official, RBF-SVM on log-mels: {spoken(Fsdd()):.1f} %", flush=True)
    folds = [spoken(Fsdd(held_out=who)) for who in ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")]
    print(
        f"fsdd leave one speaker out, RBF-SVM on log-mels: {np.mean(folds):.1f} % "
        f"({', '.join(f'{x:.1f}' for x in folds)})",
        flush=True,
    )
    print(f"spoken-digits, RBF-SVM on log-mels: {spoken(SpokenDigits()):.1f} %", flush=True)
    for name, rmse in solubility().items():
        print(f"solubility, random forest on {name}: RMSE {rmse:.3f}", flush=True)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
