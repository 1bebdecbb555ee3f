"""Tables, with classes or a number to predict."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from tests.benchmarks.defaults_data.case import Case, distinct, fewer, split, write_table
from tests.benchmarks.defaults_data.packages import r_table, text_of

DRAWS = {
    1: {
        "table/breast-cancer": lambda: _sklearn_table("load_breast_cancer", classes=True),
        "table/wine": lambda: _sklearn_table("load_wine", classes=True),
        "table/diabetes": lambda: _sklearn_table("load_diabetes", classes=False),
        "table/penguins": lambda: _csv_table("palmerpenguins", "palmerpenguins/data/penguins.csv", "species"),
        "table/affairs": lambda: _csv_table("statsmodels", "statsmodels/datasets/fair/fair.csv", "rate_marriage"),
        "table/weather": lambda: _csv_table("vega_datasets", "vega_datasets/_data/seattle-weather.csv", "weather"),
        "table/mpg": lambda: _mpg(),
    },
    2: {
        "table/orange-juice": lambda: _r("ISLR/OJ", "Purchase"),
        "table/wages": lambda: _r("ISLR/Wage", "wage", without=["logwage", "region"]),
        "table/concrete": lambda: _r("modeldata/concrete", "compressive_strength"),
        "table/cells": lambda: _r("modeldata/cells", "class", without=["case"]),
        "table/attrition": lambda: _r("modeldata/attrition", "Attrition"),
        "table/credit": lambda: _r("modeldata/credit_data", "Status"),
    },
}


def _table(name: str, rows: list[dict[str, Any]], targets: list[Any]) -> Case:
    rows, targets = fewer(rows, targets)
    is_test = split(len(rows), name)
    return Case("table", rows, targets, is_test, lambda folder: write_table(folder, rows, targets, is_test))


def _r(name: str, target: str, *, without: list[str] | None = None) -> Case:
    """A table of R's packages, equal rows once; without: columns that hold the answer, or one value only."""
    frame = r_table(name).drop(columns=without or [])
    values = frame.pop(target).tolist()
    rows = [{key: "" if x != x else x for key, x in row.items()} for row in frame.to_dict("records")]
    return _table(name, *distinct(rows, [x if isinstance(x, str) else float(x) for x in values]))


def _sklearn_table(loader: str, *, classes: bool) -> Case:
    from sklearn import datasets

    data = getattr(datasets, loader)()
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    rows = [dict(zip(names, map(float, row), strict=True)) for row in data.data]
    targets = [str(data.target_names[y]) if classes else float(y) for y in data.target]
    return _table(loader, rows, targets)


def _csv_table(package: str, path: str, target: str) -> Case:
    rows = [dict(row) for row in csv.DictReader(io.StringIO(text_of(package, path)))]
    rows = [{key: "" if value == "NA" else value for key, value in row.items()} for row in rows]
    targets: list[Any] = [row.pop(target) for row in rows]
    return _table(path, rows, [f"rated {x}" if x.replace(".", "").isdigit() else x for x in targets])


def _mpg() -> Case:
    rows = [
        row for row in json.loads(text_of("vega_datasets", "vega_datasets/_data/cars.json")) if row["Miles_per_Gallon"]
    ]
    targets = [float(row.pop("Miles_per_Gallon")) for row in rows]
    return _table("mpg", [{k: "" if v is None else v for k, v in row.items()} for row in rows], targets)
