"""Recipes for one's own data learn from few examples: 160 texts, 50 series, 75 icons."""

import json
import math
import random

import pytest
from PIL import Image, ImageDraw

from seqkit.config import complete
from seqkit.runs.run import run

pytestmark = pytest.mark.slow

VERBS = {"praise": ["loved", "enjoyed", "praised"], "blame": ["hated", "disliked", "cursed"]}
NOUNS = [
    ["sister", "baker", "neighbour", "teacher", "driver"],
    ["film", "book", "dinner", "concert", "hotel"],
]


def texts(folder, rng):
    """Sentences in two classes, which the verb decides."""
    labels = [label for _ in range(80) for label in VERBS]
    rows = [
        f"the {rng.choice(NOUNS[0])} {rng.choice(VERBS[x])} the {rng.choice(NOUNS[1])},{x}"
        for x in labels
    ]
    (folder / "texts.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return "text/classify", {"data": str(folder / "texts.csv")}


def series(folder, rng):
    """A bump somewhere in 90 steps, which rises in 3 of them or in 15."""
    with (folder / "series.jsonl").open("w", encoding="utf-8") as file:
        for i in range(50):
            start, rise = rng.randint(10, 40), (3, 15)[i % 2]
            values = [
                min(1.0, max(0.0, (t - start) / rise)) + rng.gauss(0, 0.05) for t in range(90)
            ]
            file.write(json.dumps({"values": values, "label": ("fast", "slow")[i % 2]}) + "\n")
    return "own/classify", {"data": str(folder / "series.jsonl"), "tokenizer": "Series"}


def icons(folder, rng):
    """Discs, triangles and squares of any colour, place and size."""
    for i in range(75):
        image, corners = Image.new("RGB", (48, 48), "white"), (40, 3, 4)[i % 3]
        size, x, y = rng.randint(9, 16), rng.randint(16, 31), rng.randint(16, 31)
        turns = [2 * math.pi * (k + 0.5) / corners for k in range(corners)]
        points = [(x + size * math.cos(a), y + size * math.sin(a)) for a in turns]
        ImageDraw.Draw(image).polygon(points, fill=tuple(rng.randint(0, 150) for _ in range(3)))
        (folder / "icons" / str(corners)).mkdir(parents=True, exist_ok=True)
        image.save(folder / "icons" / str(corners) / f"{i}.png")
    return "image/classify", {"data": str(folder / "icons")}


@pytest.mark.parametrize("data", [texts, series, icons])
def test_a_default_does_not_answer_the_most_frequent_class(tmp_path, data):
    recipe, words = data(tmp_path, random.Random(7))
    quiet = {"trainer.enable_progress_bar": False, "trainer.accelerator": "cpu"}
    summary = run(complete(recipe, None, quiet | words), tmp_path / "run")
    assert summary["steps"] >= 300
    assert summary["metrics"]["accuracy"] > summary["baseline"]["accuracy"] + 0.2
