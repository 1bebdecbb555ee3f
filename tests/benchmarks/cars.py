"""Preset `cars` of `multimodal/table` over five folds of all cars, beside specialists on the same rows.

    python tests/benchmarks/cars.py [--seeds 1,2] [--keys JSON]    # 5 runs a seed; keys: others of the recipe

Each car is in the test part of one fold, and every figure is over all of them. Each seed draws folds of its own: all
rotary engines in one fold cost gradient boosting 0.4. Intervals are those of `seqkit compare`: over seeds and cars,
paired.
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy import sparse
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import RidgeCV

import seqkit
from seqkit.classical.features import Cells
from seqkit.comparison.scores import METRICS
from seqkit.comparison.statistics import Scores, differences, spread
from seqkit.data.splits import shuffled
from seqkit.recipes.multimodal.cars import KINDS as ALL_KINDS
from seqkit.recipes.multimodal.cars import cars

FOLDS = 5
RMSE = METRICS["rmse"]
TARGET = "Miles_per_Gallon"
KINDS = {name: kind for name, kind in ALL_KINDS.items() if name != TARGET}


def specialists(seed, train, target, test):
    """Predictions for the test examples by the name of a specialist."""
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2)).fit(
        [raw["Name"] for raw in train]
    )
    features = Cells().fit([raw["cells"] for raw in train])
    cells = [features.transform([raw["cells"] for raw in raws]) for raws in (train, test)]
    texts = [words.transform([raw["Name"] for raw in raws]) for raws in (train, test)]
    gaps = np.nanmean(cells[0], axis=0)
    cells = [np.where(np.isnan(own), gaps, own) for own in cells]
    both = [sparse.hstack([own, text]).tocsr() for own, text in zip(cells, texts)]
    forest = RandomForestRegressor(300, max_features=1 / 3, random_state=seed).fit(both[0], target)
    return {
        "gradient boosting without the names": GradientBoostingRegressor(random_state=seed)
        .fit(cells[0], target)
        .predict(cells[1]),
        "random forest with TF-IDF of the names": forest.predict(both[1]),
        "ridge regression on TF-IDF of the names": RidgeCV(np.logspace(-2, 3, 6))
        .fit(texts[0], target)
        .predict(texts[1]),
        "the mean": np.full(len(test), target.mean()),
    }


def folds(rows, folder, seed):
    """A table of all rows for each fold, whose column `split` says which are its test part; and their numbers."""
    order = np.array(shuffled(len(rows), seed))
    for k in range(FOLDS):
        aside = set(order[k::FOLDS].tolist())
        table = folder / f"seed-{seed}-fold-{k}.jsonl"
        lines = [
            json.dumps({**row, "split": "test" if i in aside else "train"})
            for i, row in enumerate(rows)
        ]
        table.write_text("\n".join(lines), encoding="utf-8")
        yield table, sorted(aside)


def errors(seed, rows, folder, keys):
    """Squared error of each car by the name of what predicted it, [m]."""
    found = {}
    for table, aside in folds(rows, folder, seed):
        source = {
            "type": "Table",
            "path": str(table),
            "target": TARGET,
            "split": "split",
            "columns": KINDS,
        }
        words = {"data.source": source, "seed": seed, "trainer.enable_progress_bar": False, **keys}
        run = seqkit.fit(
            "multimodal/table", words, preset="cars", out=folder / table.stem, classical="off"
        )
        columns, division = (
            seqkit.data.Given(target=TARGET, columns=KINDS),
            seqkit.data.Division(split="split"),
        )
        splits = seqkit.data.Table(str(table), columns, division).splits()
        train, test = (
            [(one.raw, one.label) for one in split] for split in (splits.train, splits.test)
        )
        raws, target = [raw for raw, *_ in test], np.array([label for _, label, *_ in test])
        own = {"the preset": np.array(run.predict(raws))}
        own |= specialists(
            seed, [raw for raw, *_ in train], np.array([label for _, label, *_ in train]), raws
        )
        assert target.tolist() == [rows[i][TARGET] for i in aside]
        for name, predicted in own.items():
            found.setdefault(name, np.zeros(len(rows)))[aside] = (predicted - target) ** 2
    return found


def main():
    """Print the RMSE of each over all cars, and the recipe's difference to it."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seeds", default="1")
    options.add_argument(
        "--keys", type=json.loads, default={}, help="other keys of the recipe, as a JSON object"
    )
    args = options.parse_args()
    rows = [row for row in cars() if row[TARGET] is not None]
    with TemporaryDirectory() as folder:
        by_seed = {
            seed: errors(seed, rows, Path(folder), args.keys)
            for seed in map(int, args.seeds.split(","))
        }
    scores = {
        name: Scores.of([(seed, one[name], np.ones(len(rows))) for seed, one in by_seed.items()])
        for name in next(iter(by_seed.values()))
    }
    for name, own in scores.items():
        told = differences({"the preset": scores["the preset"], "other": own}, RMSE)[0]
        beside = (
            f"the recipe {RMSE.signed(told.difference)} {RMSE.interval(told.interval, signed=True)}"
        )
        print(f"{name}: {RMSE.number(spread(own, RMSE)[0])}; {beside}", flush=True)


if __name__ == "__main__":
    main()
