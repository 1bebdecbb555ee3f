"""The power law of loss and size: loss = a · N^−b (Kaplan et al. 2020, section 1.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class PowerLaw(NamedTuple):
    """loss = a · N^−b, and the 95 % confidence interval of b.

    >>> law = PowerLaw(a=10.0, b=0.5, interval=(0.4, 0.6))
    >>> law.at(100)
    1.0
    """

    a: float
    b: float
    interval: tuple[float, float]

    def at(self, size: float) -> float:
        """Loss of a model of that size."""
        return float(self.a * size**-self.b)

    def __str__(self) -> str:
        low, high = self.interval
        return f"loss = {self.a:.4g} · N^−{self.b:.3f}, exponent {low:.3f} to {high:.3f} (95 %)"


def fit_power_law(sizes: Sequence[float], losses: Sequence[float]) -> PowerLaw:
    """Straight line through the logarithms, by least squares; the interval is that of its slope.

    sizes, losses: of each run. Raises ValueError for fewer than three sizes, or values that are not above 0.
    """
    from scipy import stats

    if (number := len(set(sizes))) < 3:
        raise ValueError(f"{number} sizes determine no power law; give runs of three or more")
    if not all(np.isfinite(value) and value > 0 for value in (*sizes, *losses)):
        raise ValueError("sizes and losses of a power law are finite and above 0")
    line = stats.linregress(np.log(sizes), np.log(losses))
    half = float(stats.t.ppf(0.975, len(sizes) - 2) * line.stderr)
    return PowerLaw(
        float(np.exp(line.intercept)), -float(line.slope), (-line.slope - half, -line.slope + half)
    )
