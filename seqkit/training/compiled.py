"""The loss of a training batch through torch.compile, whole: embedder, backbone, head and loss in one graph.

b batch · n tokens
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from seqkit.data.batching import BatchLoader
from seqkit.errors import UsageError, one_line
from seqkit.interfaces import LabeledBatch
from seqkit.interfaces.batch import Padding
from seqkit.training.module import Task, TrainingModule, training_loss
from seqkit.training.private_names import compiler_error

log = logging.getLogger("seqkit")

WORTH_COMPILING = 3e15
"""Parameters times training tokens from which on `trainer.compile: auto` compiles on a GPU. On an H200, the 42 s of
GPT-2 124M (16 × 1,024 tokens a step) are repaid after about 1,800 steps: 3.7e15."""

FEW = 0.1
"""Largest share of examples shorter than the longest with which batches count as of one shape."""


class CompiledLoss:
    """`training_loss` of one task, compiled at the first batch.

    shape: (b, n) of a full batch without padding. The few others, such as the last of an epoch, are not compiled, as
    each would be another graph. None: batches differ; sizes are symbols in one graph, and all batches count as padded.
    is_asked: False: if the compiler fails, the loss is computed without it, and one line says why.
    """

    def __init__(self, shape: tuple[int, int] | None, *, is_asked: bool):
        self.shape = shape
        self.is_asked = is_asked
        self._compiled: Any = torch.compile(training_loss, dynamic=True if shape is None else None)
        self._started: float | None = None
        self._has_told = False

    def __call__(self, task: Task, batch: LabeledBatch) -> tuple[Tensor, Tensor, Tensor]:
        tokens, labels = batch
        found = tokens.valid.shape
        if self.shape is None:
            is_usual = min(found) > 1
        else:
            is_usual = found == self.shape and not tokens.is_padded
        if self._compiled is None or not is_usual:
            return training_loss(task, batch)
        if self._started is None:
            self._started = time.perf_counter()
        elif not self._has_told:
            self._has_told = True
            log.info("compiled model and loss in %.0f s", time.perf_counter() - self._started)
        if self.shape is None:
            # tokens without padding would be another graph
            tokens = tokens.replace().know(Padding(True, tokens.valid.numel()))
        try:
            return cast("tuple[Tensor, Tensor, Tensor]", self._compiled(task, (tokens, labels)))
        except compiler_error() as error:
            why = one_line(str(error).strip().partition("\n")[0])
            if self.is_asked:
                raise UsageError(
                    f"trainer.compile: torch.compile fails ({why}); leave it out"
                ) from error
            log.warning("training goes on without torch.compile, which fails: %s", why)
            self._compiled = None
            return training_loss(task, batch)


def compile_loss(
    module: TrainingModule, loader: BatchLoader, settings: Mapping[str, Any], *, uses_cuda: bool
) -> None:
    """Compile the module's loss if `trainer.compile` asks for it, or if that is `auto` and it pays.

    Raises UsageError if it asks for it and the module trains several tasks.
    """
    asked = settings["compile"]
    sampler = loader.epoch_batches.batch_sampler
    if asked is False or (asked == "auto" and not uses_cuda):
        return
    if len(module.tasks) > 1 or settings["strategy"] == "fsdp":
        if asked is True:
            raise UsageError(
                "trainer.compile: a mixture of tasks is not known to compile; leave it out"
            )
        return
    lengths = sampler.lengths
    longest = int(sampler.lengths.max())
    tokens = (
        module.num_steps * settings["accumulate_grad_batches"] * float(lengths.sum()) / len(sampler)
    )
    if (
        asked == "auto"
        and tokens * sum(p.numel() for p in module.model.parameters()) < WORTH_COMPILING
    ):
        return
    is_ragged = sampler.sort_keys is not None or float((lengths < longest).float().mean()) > FEW
    shape = None if is_ragged else (min(sampler.batch_size, len(lengths)), longest)
    module.loss_of = CompiledLoss(shape, is_asked=asked is True)
