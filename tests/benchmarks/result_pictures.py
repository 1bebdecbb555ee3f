"""Draws the pictures of docs/results.md, of runs that `claims.py` made (their first seed).

    python tests/benchmarks/claims.py --only "graph/molecules" "graph/nodes" …      # the runs, in runs/claims
    python -m tests.benchmarks.result_pictures runs/claims                          # docs/images/results/*.png
    python -m tests.benchmarks.result_pictures runs/claims --only molecules nodes

Examples are not chosen: they are the first ones of the test split, evenly spaced, or the worst where that is said.

k classes · n tokens · t steps
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqkit.comparison.results import read_results
from seqkit.interfaces import IGNORE
from seqkit.report.figures import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    STYLE,
    VERMILION,
    YELLOW,
    new_figure,
    png,
)
from seqkit.report.modality import find_renderer
from seqkit.report.modality.series import steps_of
from seqkit.report.samples.picker import Picker
from seqkit.runs.reopened import reopened
from seqkit.runs.trained_model import load_one

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "images" / "results"
COLORS = [BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW, INK]
RIGHT, WRONG = GREEN, VERMILION
WIDTH = 7.5


def molecules(picker: Picker) -> Figure:
    """Measured and predicted energies, and the formulas of the three largest errors."""
    from rdkit.Chem import MolFromSmiles
    from rdkit.Chem.Draw import MolToImage

    target, found = numbers(picker)
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    grid = figure.add_gridspec(3, 2, width_ratios=[2, 1])
    axes = figure.add_subplot(grid[:, 0])
    ends = [min(target.min(), found.min()), max(target.max(), found.max())]
    axes.plot(ends, ends, color=INK, linewidth=0.8, linestyle="--")
    axes.scatter(target, found, s=16, color=BLUE, alpha=0.7, linewidths=0)
    axes.set(xlabel="measured, kcal/mol", ylabel="predicted, kcal/mol")
    worst = np.argsort(-np.abs(target - found))[:3].tolist()
    axes.scatter(target[worst], found[worst], s=22, color=WRONG, linewidths=0)
    for row, (place, raw) in enumerate(zip(worst, picker.raws(worst))):
        one = figure.add_subplot(grid[row, 1])
        one.imshow(MolToImage(MolFromSmiles(raw), size=(600, 300)))
        one.set_axis_off()
        one.set_title(f"{found[place]:.1f}, not {target[place]:.1f}", color=WRONG, loc="center")
    return figure


def numbers(picker: Picker) -> tuple[np.ndarray, np.ndarray]:
    """Targets and predictions of the test split in the target's unit, in its order."""
    objective = picker.trained.objective
    target = np.zeros(len(picker.examples))
    found = np.zeros(len(picker.examples))
    for places, label, output in picker.outputs():
        target[places] = objective.in_unit(label).reshape(-1).numpy()
        found[places] = np.array(objective.decode(output.prediction)).reshape(-1)
    return target, found


def classes(picker: Picker, places: list[int]) -> list[tuple[str, str]]:
    """Predicted and right class of test examples."""
    names = picker.trained.objective.classes
    batch, label = picker.examples[0, places]
    found = picker.trained.outputs(batch, picker.raws(places)).argmax(dim=-1)
    return [(names[one], names[right]) for one, right in zip(found.tolist(), label.tolist())]


def verdict(axes: Axes, found: str, right: str) -> None:
    """The title of an example: what was predicted, and what is right where that is something else."""
    axes.set_title(
        found if found == right else f"{found}, not {right}",
        color=RIGHT if found == right else WRONG,
        fontsize=8.5,
    )


def nodes(picker: Picker) -> Figure:
    """Test papers near those with alike probabilities (t-SNE), coloured by their class; wrong ones are crosses."""
    from sklearn.manifold import TSNE

    trained = picker.trained
    batch, label = picker.examples[0, [0]]
    shares = trained.outputs(batch, picker.raws([0]))[0].softmax(dim=-1)
    asked = label[0] != IGNORE
    right = label[0][asked].numpy()
    preds = shares[asked].argmax(dim=-1).numpy()
    logs = shares[asked].clamp(min=1e-3).log().numpy()
    x, y = TSNE(perplexity=40, random_state=0, init="pca").fit_transform(logs).T
    figure, (axes,) = new_figure(WIDTH, 3.8)
    for i, name in enumerate(trained.objective.classes):
        good = (right == i) & (preds == i)
        bad = (right == i) & (preds != i)
        axes.scatter(
            x[good], y[good], s=10, color=COLORS[i], linewidths=0, label=name.replace("_", " ")
        )
        axes.scatter(x[bad], y[bad], s=20, color=COLORS[i], marker="x", linewidths=1)
    axes.scatter([], [], s=20, color=INK, marker="x", linewidths=1, label="predicted wrong")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set_axis_off()
    return figure


def strings(picker: Picker) -> Figure:
    """Spectrograms of three strings of spoken digits, with what was heard above."""
    places = spread(picker, 3)
    renderer = find_renderer(picker.trained.tokenizer)
    figure, axes = new_figure(WIDTH, 4.6, rows=3)
    raws = picker.raws(places)
    found = picker.trained.predict(raws)
    test = picker.data.splits().test
    for one, place, raw, text in zip(axes, places, raws, found):
        renderer.draw(one, raw, picker.trained.encode(raw))
        verdict(one, str(text), str(test[place].label))
    for one in axes[:-1]:
        one.set_xlabel("")
    return figure


def series(picker: Picker) -> Figure:
    """Ten series, with their class."""
    places = spread(picker, 10)
    figure, axes = new_figure(WIDTH, 2.6, rows=2, columns=5)
    for one, raw, (found, right) in zip(axes, picker.raws(places), classes(picker, places)):
        one.plot(steps_of(raw), color=BLUE, linewidth=0.9)
        one.set(xticks=[], yticks=[])
        verdict(one, found, right)
    return figure


def forecasts(picker: Picker) -> Figure:
    """Three windows of a column with what followed, and the forecast."""
    places = spread(picker, 3)
    objective = picker.trained.objective
    batch, label = picker.examples[0, places]
    raws = picker.raws(places)
    target = objective.in_unit(label).numpy()
    predicted = np.array(objective.decode(picker.trained.outputs(batch, raws))).reshape(
        target.shape
    )
    column, *_ = objective.learned["column"]
    figure, axes = new_figure(WIDTH, 2.2, columns=3)
    for one, raw, right, found in zip(axes, raws, target, predicted):
        past = steps_of(raw)[-2 * len(right) :, column]
        ahead = np.arange(1, len(right) + 1)
        one.plot(
            np.arange(1 - len(past), len(right) + 1), [*past, *right], color=INK, linewidth=0.8
        )
        one.plot(ahead, found, color=VERMILION)
        one.axvline(0, color=INK, linewidth=0.6, linestyle=":")
        one.set(xlabel="hours ahead")
    axes[0].set_ylabel("standardised")
    return figure


def clips(picker: Picker) -> Figure:
    """Frames of three clips, with digit and direction."""
    places = spread(picker, 3)
    raws = picker.raws(places)
    figure, axes = new_figure(WIDTH, 3.2, rows=3, columns=len(raws[0]))
    for row, (raw, (found, right)) in enumerate(zip(raws, classes(picker, places))):
        for column, frame in enumerate(raw):
            one = axes[row * len(raw) + column]
            one.imshow(frame[0], cmap="gray", vmin=0, vmax=1)
            one.set(xticks=[], yticks=[])
        verdict(axes[row * len(raw)], found, right)
        axes[row * len(raw)].title.set_horizontalalignment("left")
    return figure


def captions(picker: Picker) -> Figure:
    """Four images, with the sentence that was written."""
    places = spread(picker, 4)
    raws = picker.raws(places)
    found = picker.trained.predict([{"image": raw["image"]} for raw in raws])
    figure, axes = new_figure(WIDTH, 2.4, columns=4)
    for one, raw, text in zip(axes, raws, found):
        one.imshow(raw["image"][0], cmap="gray", vmin=0, vmax=1)
        one.set(xticks=[], yticks=[])
        words, right = (
            re.findall(r"\w+,?", sentence.replace(" ,", ",")) for sentence in (text, raw["text"])
        )
        lines = "\n".join(" ".join(words[i : i + 5]) for i in range(0, len(words), 5))
        one.set_xlabel(lines, color=RIGHT if words == right else WRONG, fontsize=8)
    return figure


def pairs(picker: Picker) -> Figure:
    """Five pairs of an image and a sound, with the digit."""
    places = spread(picker, 5)
    raws = picker.raws(places)
    parts = picker.trained.tokenizer.parts
    figure, axes = new_figure(WIDTH, 2.8, rows=2, columns=5)
    for i, (raw, (found, right)) in enumerate(zip(raws, classes(picker, places))):
        axes[i].imshow(raw["image"][0], cmap="gray", vmin=0, vmax=1)
        axes[i].set(xticks=[], yticks=[])
        verdict(axes[i], found, right)
        sound = parts["sound"]
        find_renderer(sound).draw(axes[5 + i], raw["sound"], sound.encode(raw["sound"]))
        axes[5 + i].set(ylabel="kHz" if i == 0 else "")
    return figure


def speech(picker: Picker) -> Figure:
    """Speeches of test plays with the marks that were predicted; where another stood there, it follows in brackets."""
    marks = {
        "none": "",
        "comma": ",",
        "stop": ".",
        "question": "?",
        "exclamation": "!",
        "colon": ":",
    }
    names = picker.trained.objective.classes
    figure, (axes,) = new_figure(WIDTH, 2.6)
    axes.set_axis_off()
    x, y = 0.0, 1.0
    for place in spread(picker, 12):
        raw = picker.raws([place])[0]
        if y < 0.1:
            break
        batch, label = picker.examples[0, [place]]
        found = picker.trained.outputs(batch, [raw])[0].argmax(dim=-1).tolist()
        for word, one, right in zip(raw.split(), found, label[0].tolist()):
            is_right = one == right
            mark = marks[names[one]]
            shown = mark if is_right else (mark or "_") + f"[{marks[names[right]] or ' '}]"
            for text, color in ((word, INK), (shown, GREEN if is_right else VERMILION)):
                drawn = axes.text(x, y, text, color=color, fontsize=9, family="monospace", va="top")
                x += 0.0104 * len(text)
                drawn.set_fontweight("bold" if color != INK else "normal")
            x += 0.0104
            if x > 0.93:
                x, y = 0.0, y - 0.085
        x, y = 0.0, y - 0.12
    return figure


def backbones(pages: Path) -> Figure:
    """Accuracy of ten backbones on five tasks, as the published comparisons have it, with every seed a dot."""
    tasks = ("parity", "selective-copy", "induction-heads", "associative-recall", "copy")
    figure, axes = new_figure(WIDTH, 2.9, columns=len(tasks), sharey=True)
    order: list[str] = []
    for one, task in zip(axes, tasks):
        results = read_results(pages / f"screen-{task}" / "results.json")
        rows = {row.name: row for row in results.candidates}
        order = order or list(rows)
        for place, name in enumerate(order):
            dots = [100 * run.value for run in rows[name].sound]
            one.plot(dots, [place] * len(dots), "o", color=BLUE, markersize=3, alpha=0.35)
            one.plot([np.mean(dots)], [place], "|", color=INK, markersize=9)
        one.axvline(100 * rows[order[0]].constant, color=INK, linestyle="--", linewidth=0.7)
        one.set(xlabel="accuracy, %", xlim=(0, 104), ylim=(len(order) - 0.5, -0.5))
        one.set_title(task.replace("-", "\n"), loc="center")
        one.grid(axis="x", color=INK, alpha=0.15, linewidth=0.6)
        one.set_xticks([0, 50, 100])
        one.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(order)), [name.replace("+", " +\n") for name in order])
    return figure


def spread(picker: Picker, number: int) -> list[int]:
    """Places that are evenly spaced over the test split."""
    return np.linspace(0, len(picker.examples) - 1, number).round().astype(int).tolist()


DRAWN: dict[str, tuple[str, Callable[[Picker], Figure]]] = {
    "molecules": ("graph-molecules", molecules),
    "nodes": ("graph-nodes", nodes),
    "strings": ("audio-ctc-digits", strings),
    "series": ("series-classify_mnist1d", series),
    "forecasts": ("series-classify_etth1", forecasts),
    "clips": ("video-classify_digits", clips),
    "captions": ("multimodal-caption", captions),
    "pairs": ("multimodal-av-digits", pairs),
    "speech": ("text-tag", speech),
}
"""Name of a picture, the folder of `claims.py` with its run, and what draws it."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the folder of claims.py")
    parser.add_argument("--only", nargs="*", default=[*DRAWN, "backbones"])
    args = parser.parse_args()
    if "backbones" in args.only:
        with rc_context(STYLE):
            print(png(backbones(PICTURES.parents[1] / "comparisons"), PICTURES / "backbones.png"))
    for name in filter(DRAWN.get, args.only):
        run, draw = DRAWN[name]
        trained: Any = load_one(args.folder / run / "1")
        data, doubt = reopened(trained)
        if doubt:
            raise SystemExit(f"{name}: {doubt}")
        with rc_context(STYLE), torch.inference_mode():
            print(png(draw(Picker(trained, data)), PICTURES / f"{name}.png"))


if __name__ == "__main__":
    main()
