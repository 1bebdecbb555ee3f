"""Recipes for one's own data learn from few examples. Data is synthetic; half of it or less is one class."""

import json
import math
import random

import numpy as np
import pytest
from PIL import Image, ImageDraw

from seqkit.config import complete
from seqkit.runs.run import run

pytestmark = pytest.mark.slow

QUIET = {"trainer.enable_progress_bar": False, "trainer.accelerator": "cpu"}
SUBJECTS = "my sister|the baker|our neighbour|the new teacher|his uncle|the driver|the whole team|her friend".split("|")
MOODS = {
    "praise": "loved|enjoyed|admired|recommends|was delighted by|could not stop praising".split("|"),
    "blame": "hated|disliked|regrets|was bored by|complained about|could not stand".split("|"),
    "question": "asked about|wondered about|was curious about|inquired into|wanted to know about".split("|"),
}
THINGS = "the film|that long book|the dinner|a trip to the sea|the concert|this old phone|the hotel|their garden".split("|")


def texts(folder, rng):
    """160 sentences in three classes, which the verb decides."""
    rows = ["text,label"]
    for i in range(160):
        label = list(MOODS)[i % 3]
        rows.append(f"{rng.choice(SUBJECTS)} {rng.choice(MOODS[label])} {rng.choice(THINGS)},{label}")
    (folder / "texts.csv").write_text("\n".join(rows), encoding="utf-8")
    return "text/classify", {"data": str(folder / "texts.csv")}


def series(folder, rng):
    """50 noisy series of 90 steps: one bump, which rises at once or slowly, somewhere."""
    with (folder / "series.jsonl").open("w", encoding="utf-8") as file:
        for i in range(50):
            start, rise = rng.randint(10, 40), (3, 15)[i % 2]
            bump = (min(1.0, max(0.0, (t - start) / rise)) * (t < start + 30) for t in range(90))
            row = {"values": [round(x + rng.gauss(0, 0.05), 3) for x in bump], "label": ("fast", "slow")[i % 2]}
            file.write(json.dumps(row) + "\n")
    return "own/classify", {"data": str(folder / "series.jsonl"), "tokenizer": "Series"}


def icons(folder, rng):
    """75 drawings of three shapes, in any colour, place and size."""
    for i in range(75):
        image = Image.new("RGB", (48, 48), tuple(rng.randint(200, 255) for _ in range(3)))
        size, x, y = (rng.randint(*bounds) for bounds in ((9, 16), (16, 31), (16, 31)))
        colour, corners = tuple(rng.randint(0, 150) for _ in range(3)), (40, 3, 4)[i % 3]
        turns = [2 * math.pi * k / corners + (0.8 if corners == 4 else 0.5) for k in range(corners)]
        points = [(x + size * math.cos(a), y + size * math.sin(a)) for a in turns]
        ImageDraw.Draw(image).polygon(points, fill=colour)
        place = folder / "icons" / ("disc", "triangle", "square")[i % 3]
        place.mkdir(parents=True, exist_ok=True)
        image.save(place / f"{i}.png")
    return "image/classify", {"data": str(folder / "icons")}


@pytest.mark.parametrize("data", [texts, series, icons])
def test_a_default_does_not_answer_the_most_frequent_class(tmp_path, data):
    recipe, words = data(tmp_path, random.Random(7))
    summary = run(complete(recipe, None, QUIET | words), tmp_path / "run")
    assert summary["steps"] >= 300
    assert summary["metrics"]["accuracy"] > 1.5 * summary["baseline"]["accuracy"] - 0.1
    assert np.isfinite(summary["metrics"]["loss"])
