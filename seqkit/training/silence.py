"""Filters Lightning's warnings about workers, logs and data loaders; its errors pass."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

ADVICE = (
    "does not have many workers",
    "isinstance.treespec, LeafSpec",
    "exists and is not empty",
    "smaller than the logging interval",
    "no `val_dataloader`",
    "Total length of `list`",
    "sync_dist=True",
    "overrides the configure_model callback",
    # of torchmetrics: a class without examples has no ROC curve, and is left out of the mean
    "Ignoring these classes in macro-average",
    "No positive samples",
    "No negative samples",
)
"""Parts of the warnings that are silenced."""


@contextmanager
def silence_lightning() -> Iterator[None]:
    """Silence that advice, and Lightning's notes about devices, inside this context."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "pytorch_lightning.utilities.rank_zero")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for advice in ADVICE:
                warnings.filterwarnings("ignore", message=f".*{advice}.*")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
