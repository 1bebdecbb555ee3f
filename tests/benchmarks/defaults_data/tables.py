"""Tables, with classes or a number to predict."""

from __future__ import annotations

import csv
import io
from functools import partial
from typing import Any

from tests.benchmarks.defaults_data.case import Case, distinct, fewer, split, write_table
from tests.benchmarks.defaults_data.packages import r_table, text_of

TUNE = {
    "table/diabetes": lambda: _diabetes(),
    "table/penguins": lambda: _csv_table(
        "palmerpenguins", "palmerpenguins/data/penguins.csv", "species"
    ),
    "table/affairs": lambda: _csv_table(
        "statsmodels", "statsmodels/datasets/fair/fair.csv", "rate_marriage"
    ),
    "table/wages": lambda: _r("ISLR/Wage", "wage", without=["logwage", "region"]),
    "table/concrete": lambda: _r("modeldata/concrete", "compressive_strength"),
    "table/cells": lambda: _r("modeldata/cells", "class", without=["case"]),
}
DRAWN = [
    "wooldridge/benefits", "Ecdat/Forward", "wooldridge/expendshares", "stevedata/fakeTSCS", "openintro/mlb",
    "HistData/GaltonFamilies", "texmex/winter", "openintro/ucla_f18", "DAAG/mifem", "wooldridge/charity",
    "AER/RecreationDemand", "AER/Guns",
]  # fmt: skip
"""The first twelve of the package's 2,294 tables by SHA-256 of "draw 4 NAME" that were not seen and have 250 to 5,000
different rows, 4 to 40 columns, and as their last column, the target, a number of more than 20 values, or 2 to 10 words
of 10 rows each, without gaps."""

JUDGE = {
    f"table/{name.partition('/')[2].lower()}": partial(lambda name: _r(name, None), name)
    for name in DRAWN
}


def _table(name: str, rows: list[dict[str, Any]], targets: list[Any]) -> Case:
    rows, targets = fewer(rows, targets)
    is_test = split(len(rows), name)
    return Case(
        "table", rows, targets, is_test, lambda folder: write_table(folder, rows, targets, is_test)
    )


def _r(name: str, target: str | None, *, without: list[str] | None = None) -> Case:
    """A table of R's packages, equal rows once. target: None: the last column. without: columns with the answer."""
    frame = r_table(name).drop(columns=without or [])
    values = frame.pop(target or frame.columns[-1]).tolist()
    rows = [
        {key: "" if x != x else x for key, x in row.items()} for row in frame.to_dict("records")
    ]
    return _table(
        name, *distinct(rows, [str(x) if isinstance(x, str | bool) else float(x) for x in values])
    )


def _diabetes() -> Case:
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    rows = [dict(zip(data.feature_names, map(float, row), strict=True)) for row in data.data]
    return _table("load_diabetes", rows, data.target.tolist())


def _csv_table(package: str, path: str, target: str) -> Case:
    rows = [dict(row) for row in csv.DictReader(io.StringIO(text_of(package, path)))]
    rows = [{key: "" if value == "NA" else value for key, value in row.items()} for row in rows]
    targets: list[Any] = [row.pop(target) for row in rows]
    return _table(
        path, rows, [f"rated {x}" if x.replace(".", "").isdigit() else x for x in targets]
    )
