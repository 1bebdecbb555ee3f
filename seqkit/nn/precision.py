"""Where the digits of float32 are needed whatever the training's precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def no_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """No autocast inside, on the device of x: sums over many tokens, states and routers do not fit into eight bits."""
    is_on = not x.is_meta and torch.is_autocast_enabled(x.device.type)
    return torch.autocast(x.device.type, enabled=False) if is_on else nullcontext()
