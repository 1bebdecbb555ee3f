"""Labels as plain data: numbers of NumPy, of torch and of Python count alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, from_numpy


def plain(label: Any) -> Any:
    """A label as an int, a float, a list of them, or an int64 or floating-point tensor; itself if it is one, or else.

    Truth values are 0 and 1, and an array without axes is its number. Floats in arrays of NumPy become float32.
    """
    if type(label) in (int, float):
        return label
    if isinstance(label, list | tuple):
        made = [plain(one) for one in label]
        return label if all(one is given for one, given in zip(made, label)) else made
    if isinstance(label, np.ndarray | np.generic | Tensor) and label.ndim == 0:
        label = label.item()
    if isinstance(label, bool):
        return int(label)
    if isinstance(label, np.longdouble):  # its item() is itself
        return float(label)
    if isinstance(label, np.ndarray) and label.dtype.kind in "biuf":
        return from_numpy(label.astype(np.float32 if label.dtype.kind == "f" else np.int64))
    if isinstance(label, Tensor) and not label.is_floating_point() and not label.is_complex():
        return label.long()
    return label
