"""Columns that number the rows, or grow along a file sorted by its target: what they tell is the order of the file."""

import random
from datetime import datetime, timedelta

import pytest

from seqkit.data import Given, Table
from seqkit.data.tables.infer import infer
from seqkit.data.tables.rows import Rows

N = 60
RNG = random.Random(0)
RISING = [*range(1000)]
STEPS = sorted(RNG.sample(RISING, N))
BEGIN = datetime(2024, 1, 31)
SORTED = [("ham", "spam")[2 * i // N] for i in range(N)]
MIXED = [RNG.choice(["ham", "spam"]) for _ in range(N)]

GROWING = {
    "barcode": [4_000_000 + step for step in STEPS],
    "falls": [f"{4000 - step}" for step in STEPS],
    "prefixed, from three digits to four": [f"A-{900 + 3 * i}" for i in range(N)],
    "hexadecimal": [f"{0xF00 + step:x}" for step in STEPS],
    "plates and wells": [f"P{i // 12}-W{i % 12}" for i in range(N)],
    "moment": [f"{BEGIN + timedelta(seconds=97 * step):%Y-%m-%d %H:%M:%S}" for step in STEPS],
    "seconds with ties": [f"{1.7e9 + step - step % 3 * (step < 60) + 0.5}" for step in STEPS],
    "with a gap": [f"A-{step}" if i != 7 else "" for i, step in enumerate(STEPS)],
}


def roles(cells, target, **given):
    columns = {"size": [f"{RNG.random():.3f}" for _ in target], "x": cells, "kind": target}
    schema = infer(Rows(columns, [("t.csv", len(target))]), Given(target="kind", **given))
    return {column.name: column.role for column in schema.columns}, [*schema.lines()]


@pytest.mark.parametrize("name", GROWING)
def test_what_grows_along_a_file_sorted_by_its_classes_is_left_out_with_a_line(name):
    role, lines = roles(GROWING[name], SORTED)
    assert role["x"] == "unused"
    (line,) = [line for line in lines if "'x'" in line]
    assert "it grows or falls along the file, which is sorted by kind); to change: --data" in line
    kind = line.partition("{x: ")[2].partition("}")[0]
    assert roles(GROWING[name], SORTED, columns={"x": kind})[0]["x"] == "input"
    assert roles(GROWING[name], MIXED)[0]["x"] == "input", "the file is in no order of the target"


@pytest.mark.parametrize(
    "cells",
    [
        [20 + i // 3 for i in range(N)],  # ages that come again
        [f"{i / 2 + RNG.gauss(0, 6):.2f}" for i in range(N)],  # it depends on the class, in no order
        [("Anna", "Berta")[2 * i // N] + " " + "abcdefgh"[i % 8] * (i + 1) for i in range(N)],  # words
    ],
)  # fmt: skip
def test_what_depends_on_the_class_and_does_not_grow_stays(cells):
    assert roles(cells, SORTED)[0]["x"] == "input"


def test_a_column_by_which_the_file_is_sorted_stays_where_the_classes_overlap():
    sizes = sorted(RNG.gauss(0, 1) for _ in range(300))
    classes = ["ny"[size + RNG.gauss(0, 0.6) > 0] for size in sizes]
    assert roles([f"{size:.5f}" for size in sizes], classes)[0]["x"] == "input"


@pytest.mark.parametrize(
    ("cells", "role"),
    [
        (GROWING["barcode"], "unused"),
        (GROWING["hexadecimal"], "unused"),
        (GROWING["moment"], "input"),
        ([step / 4 for step in STEPS], "input"),
    ],
)
def test_of_a_file_sorted_by_a_number_codes_are_left_out_and_measurements_stay(cells, role):
    target = [f"{i**2 / 7:.2f}" for i in range(N)]
    assert roles(cells, target)[0]["x"] == role
    noisy = [f"{i + RNG.gauss(0, 9):.2f}" for i in range(N)]
    assert roles(cells, noisy)[0]["x"] == "input", "a trend is no order"


def test_the_only_input_stays():
    rows = Rows({"x": GROWING["barcode"], "kind": SORTED}, [("t.csv", N)])
    assert [one.name for one in infer(rows, Given(target="kind")).inputs] == ["x"]


PRICES = [RNG.gauss(50, 12) for _ in range(N)]


@pytest.mark.parametrize(
    ("cells", "is_said"),
    [
        ([f"{1.0873 * price:.2f}" for price in PRICES], True),
        ([f"{32 + 1.8 * price:.0f}" for price in PRICES], True),
        ([f"{-1000 * price:.1f} g" for price in PRICES], True),
        ([f"{3 * price + RNG.gauss(0, 0.5):.2f}" for price in PRICES], False),
        ([f"{price // 20:.0f}" for price in PRICES], False),
    ],
)
def test_the_target_in_other_units_is_said_before_training(tmp_path, caplog, cells, is_said):
    rows = [f"{cell},{RNG.random()},{price:.2f}" for cell, price in zip(cells, PRICES)]
    (tmp_path / "t.csv").write_text("\n".join(["x y,size,price", *rows]))
    Table(str(tmp_path / "t.csv"), Given(target="price")).splits()
    said = [line for line in caplog.messages if "grows or falls with price" in line]
    assert len(said) == is_said
    assert all(line.endswith("before the target: --data.columns '{x y: unused}'") for line in said)
