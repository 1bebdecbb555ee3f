"""The loss of a training batch through torch.compile, whole: embedder, backbone, head and loss in one graph.

b batch · n tokens
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from seqkit.data.batching import BatchLoader
from seqkit.errors import UsageError, one_line
from seqkit.interfaces import LabeledBatch
from seqkit.training.module import Task, TrainingModule, training_loss

log = logging.getLogger("seqkit")

WORTH_COMPILING = 1000
"""Optimizer steps from which on `trainer.compile: auto` compiles on a GPU."""


class CompiledLoss:
    """`training_loss` of one task, compiled at the first batch.

    rows: examples of a full batch. One with fewer, the last of an epoch, is not compiled: its shape is not worth it.
    is_ragged: True: sizes are symbols in the graph, since batches differ in them, and all batches count as padded.
    is_asked: False: if the compiler fails, the loss is computed without it, and one line says why.
    """

    def __init__(self, rows: int, *, is_ragged: bool, is_asked: bool):
        self.rows, self.is_ragged, self.is_asked = rows, is_ragged, is_asked
        self._compiled: Any = torch.compile(training_loss, dynamic=True if is_ragged else None)
        self._started: float | None = None
        self._has_told = False

    def __call__(self, task: Task, batch: LabeledBatch) -> tuple[Tensor, Tensor, Tensor]:
        tokens, labels = batch
        num_rows, num_columns = tokens.valid.shape
        is_odd = min(num_rows, num_columns) < 2 if self.is_ragged else num_rows != self.rows
        if self._compiled is None or (is_odd and self.rows > 1):
            return training_loss(task, batch)
        if self._started is None:
            self._started = time.perf_counter()
        elif not self._has_told:
            self._has_told = True
            log.info("compiled model and loss in %.0f s", time.perf_counter() - self._started)
        if self.is_ragged:
            tokens = replace(tokens)
            object.__setattr__(tokens, "is_padded", True)  # one that is not would be another graph
        try:
            found: tuple[Tensor, Tensor, Tensor] = self._compiled(task, (tokens, labels))
            return found
        except torch._dynamo.exc.TorchDynamoException as error:
            why = one_line(str(error).strip().partition("\n")[0])
            if self.is_asked:
                raise UsageError(f"trainer.compile: torch.compile fails ({why}); leave it out") from error
            log.warning("training goes on without torch.compile, which fails: %s", why)
            self._compiled = None
            return training_loss(task, batch)


def compile_loss(module: TrainingModule, loader: BatchLoader, settings: Mapping[str, Any], *, uses_cuda: bool) -> None:
    """Compile the module's loss if `trainer.compile` asks for it, or if that is `auto` and it pays.

    Raises UsageError if it asks for it and the module trains several tasks.
    """
    asked = settings["compile"]
    if asked is False or (asked == "auto" and not (uses_cuda and module.num_steps >= WORTH_COMPILING)):
        return
    if len(module.tasks) > 1 or settings["strategy"] == "fsdp":
        if asked is True:
            raise UsageError("trainer.compile: a mixture of tasks is not known to compile; leave it out")
        return
    sampler = loader.epoch_batches.batch_sampler
    lengths = sampler.lengths
    is_ragged = bool((lengths != lengths[:1]).any()) or sampler.sort_keys is not None
    module.loss_of = CompiledLoss(min(sampler.batch_size, len(lengths)), is_ragged=is_ragged, is_asked=asked is True)
