"""Scaling laws: loss = a N^-alpha + c, over the size of the model and over the share of the training data.

Kaplan et al. 2020 (section 1.2) and Hoffmann et al. 2022 (section 3.3, whose robust fit in the logarithm this is).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize

from seqkit.comparison.compare import compare, make_plan
from seqkit.comparison.settings import Settings
from seqkit.errors import UsageError
from seqkit.files import write_atomic, write_json

RESAMPLES = 200
LEVEL = 0.95
HUBER = 1e-2
"""Residuals of the logarithm above this count linearly, so that one bad run does not bend the curve."""

POINTS = 60
"""Points of a drawn curve."""


@dataclass(frozen=True)
class PowerLaw:
    """loss = a x^-alpha + c."""

    a: float
    alpha: float
    c: float

    def at(self, x: np.ndarray) -> np.ndarray:
        """The loss at x, of x's shape."""
        return self.a * x**-self.alpha + self.c


def fit_power_law(x: Sequence[float], loss: Sequence[float], near: PowerLaw | None = None) -> PowerLaw:
    """The power law nearest to the points, by Huber's loss of the difference of logarithms.

    near: the law that the search begins with; None: it begins at 16 points, and the best end counts.
    Raises ValueError for fewer than three distinct x, or values that are not above 0.
    """
    at, seen = np.asarray(x, dtype=float), np.asarray(loss, dtype=float)
    if len(set(at.tolist())) < 3:
        raise ValueError(f"{len(set(at.tolist()))} sizes do not determine a, alpha and c; give three or more")
    if not (np.all(at > 0) and np.all(seen > 0) and np.all(np.isfinite(seen))):
        raise ValueError("sizes and losses of a power law are finite and above 0")
    scale = float(np.exp(np.log(at).mean()))  # around 1, a and c are of the losses' size

    def residuals(p: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # of a steep trial step, which the search then rejects
            law = np.exp(p[0]) * (at / scale) ** -np.exp(p[1]) + np.exp(p[2])
        return np.log(law) - np.log(seen)

    lowest, range_ = float(seen.min()), max(float(np.ptp(seen)), 1e-3 * float(seen.min()))
    starts = [(range_, alpha, lowest * floor) for alpha in (0.05, 0.2, 0.5, 1.0) for floor in (0.05, 0.5, 0.9, 0.99)]
    if near is not None:
        starts = [(near.a * scale**-near.alpha, near.alpha, near.c)]
    best: Any = None
    for start in starts:
        begin = np.log(np.maximum(start, 1e-9))
        found = optimize.least_squares(residuals, begin, loss="huber", f_scale=HUBER, max_nfev=500)
        if best is None or found.cost < best.cost:
            best = found
    a, alpha, c = np.exp(best.x)
    return PowerLaw(float(a * scale**alpha), float(alpha), float(c))


def with_intervals(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Fit, intervals by resampling the runs of each size, and the curve with its band. points: x, loss, seed, name.

    With one run for each size there are no intervals, and the curve has no band.
    """
    sizes = sorted({point["x"] for point in points})
    by_size = {x: [point["loss"] for point in points if point["x"] == x] for x in sizes}
    law = fit_power_law([p["x"] for p in points], [p["loss"] for p in points])
    rng, laws, is_single = np.random.default_rng(0), [law], max(map(len, by_size.values())) < 2
    for _ in range(0 if is_single else RESAMPLES):
        drawn = [(x, loss) for x, losses in by_size.items() for loss in rng.choice(losses, len(losses))]
        laws.append(fit_power_law([x for x, _ in drawn], [loss for _, loss in drawn], near=law))
    grid = np.geomspace(sizes[0], sizes[-1] * 4, POINTS)
    bands = np.quantile([one.at(grid) for one in laws], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    notes = []
    if len(sizes) == 3:
        notes.append("Three sizes determine a, α and c exactly, so this fit does not test the power law.")
    if is_single:
        notes.append("With one run for each size, the variation between seeds is unknown, so there are no intervals.")
    elif min(map(len, by_size.values())) < 2:
        notes.append("Some sizes have one run, so the intervals are too narrow.")
    if law.c < 0.01 * min(p["loss"] for p in points):
        notes.append("No floor is visible: c is close to 0.")
    intervals = {name: _interval([getattr(one, name) for one in laws]) for name in ("a", "alpha", "c")}
    return {
        "a": law.a,
        "alpha": law.alpha,
        "c": law.c,
        "intervals": None if is_single else intervals,
        "deviation": max(abs(p["loss"] / float(law.at(np.array(p["x"]))) - 1) for p in points),
        "points": list(points),
        "curve": np.column_stack([grid, law.at(grid), *([] if is_single else bands)]).tolist(),
        "note": " ".join(notes) or None,
    }


def _interval(values: Sequence[float]) -> list[float]:
    return [float(x) for x in np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])]


def comparisons(
    base: Mapping[str, Any], widths: Sequence[int], shares: Sequence[float]
) -> list[tuple[str, Settings, str]]:
    """(variable, its comparison, its folder) of every law that is to be fitted.

    base: arguments of `Settings`. Raises UsageError for fewer than three sizes of either.
    """
    for option, values in (("--sizes", widths), ("--data-sizes", shares)):
        if values and len(set(values)) < 3:
            raise UsageError(f"{option} has {len(set(values))} values; a power law with a floor needs three or more")
    if not widths:
        raise UsageError("--sizes is empty; give three widths or more, such as 16,32,64,128")
    shared: dict[str, Any] = {**base, "match": "none", "measure": False, "backbones": []}
    of_width = {"width": [str(width) for width in sorted(set(widths))]}
    parts = [("parameters", Settings(**shared, vary=of_width), "width")]
    if shares:
        of_share = {"width": [str(max(widths))], "data.train_share": [f"{share:g}" for share in sorted(set(shares))]}
        parts.append(("training tokens", Settings(**shared, vary=of_share), "data"))
    return parts


def scale(
    base: Mapping[str, Any], widths: Sequence[int], shares: Sequence[float], folder: Path, *, jobs: int = 1
) -> dict[str, Any]:
    """Train every width, and the largest on every share of the data; fit both laws; write results and page.

    Each is a comparison in a folder of its own, so that a scaling which was killed goes on. Raises as `comparisons`,
    and UsageError where too many runs failed for a fit.
    """
    fits, parts = [], []
    for variable, settings, name in comparisons(base, widths, shares):
        results = compare(make_plan(settings), folder / name, jobs=jobs).to_json()
        parts.append(results)
        points = [
            {
                "x": float(row["parameters"] if variable == "parameters" else one["train_tokens"]),
                "loss": one["metrics"]["loss"],
                "seed": one["seed"],
                "name": row["name"],
            }
            for row in results["candidates"]
            for one in row["runs"]
            if one["error"] is None
        ]
        try:
            fits.append({"variable": variable, **with_intervals(points)})
        except ValueError as error:
            limited = " (data.limit leaves the same number for every share)" if name == "data" else ""
            failed = f"; {len(results['failures'])} runs failed" if results["failures"] else ""
            raise UsageError(f"{variable}: {error}{limited}{failed}") from error
    words = ["seqkit", "scale", base["recipe"], "--sizes", ",".join(map(str, widths))]
    words += ["--data-sizes", ",".join(map(str, shares))] if shares else []
    for name in ("preset", "seeds", "lr_trials", "trial_share"):
        if base.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(base[name])]
    page = {
        "kind": "scaling",
        "title": f"{base['recipe']}: loss against size",
        "answer": " ".join(map(_sentence, fits)),
        "recipe": base["recipe"],
        "command": shlex.join([*words, *base.get("overrides", [])]),
        "fits": fits,
        "failures": [failure for part in parts for failure in part["failures"]],
        "run_minutes": sum(part["run_minutes"] for part in parts),
        "unmatched": _unique(finding for part in parts for finding in part["unmatched"]),
        **{key: parts[-1][key] for key in ("versions", "machine", "started")},
    }
    write_json(folder / "results.json", page)
    write_atomic(folder / "results.csv", _csv(fits).encode())
    return page


def _unique(findings: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Findings of several comparisons, warnings first, without those that are the same in both."""
    once = {(finding["what"], finding["text"]): finding for finding in findings}
    return sorted(once.values(), key=lambda finding: finding["kind"] != "warning")


def _sentence(fit: Mapping[str, Any]) -> str:
    text = f"The loss is {fit['a']:.3g} · N^−{fit['alpha']:.3f} + {fit['c']:.3f} for N {fit['variable']}"
    if fit["intervals"] is not None:
        low, high = fit["intervals"]["alpha"]
        text += f" (95 % confidence interval of the exponent {low:.3f} to {high:.3f})"
    if len({point["x"] for point in fit["points"]}) == 3 and fit["intervals"] is None:
        return f"{text}. Three points determine it exactly, so nothing tests this law."
    return f"{text}. Runs deviate from this law by up to {100 * fit['deviation']:.1f} %."


def _csv(fits: Sequence[Mapping[str, Any]]) -> str:
    lines = ["variable,x,loss,seed,name"]
    lines += [
        f"{fit['variable']},{p['x']:g},{p['loss']:.6f},{p['seed']},{json.dumps(p['name'])}"
        for fit in fits
        for p in fit["points"]
    ]
    return "\n".join(lines) + "\n"
