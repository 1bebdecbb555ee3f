"""Check of memory: does a training step on the largest batch fit?"""

from __future__ import annotations

import torch

from seqkit.analysis.cost import describe_model
from seqkit.analysis.units import size
from seqkit.doctor.findings import Finding, Result, not_applicable
from seqkit.doctor.subject import Subject
from seqkit.errors import one_line
from seqkit.training.available_memory import available_memory


def check_memory(subject: Subject, available: int | None = None) -> Result:
    """Does a training step on a batch of the longest examples fit into memory?

    The estimate is that of `seqkit list` (weights, gradients and two moments in float32, and the activations that
    are saved for the backward pass) and the memory of the loss. It is 0.96 to 1.13 of the measured peak for the
    transformers of the recipes, 0.5 for LSTM and Mamba, 1.8 for the encoder–decoder.
    available: bytes; None: what the machine has left now, on the accelerator if the recipe uses one.
    """
    data, longest = subject.config["data"], max(subject.lengths)
    batch_size = min(subject.batch_size, len(subject.lengths))
    if (most := data.get("tokens_per_batch")) is not None:
        batch_size = max(1, min(batch_size, most // longest))
    try:
        description = describe_model(subject.model, longest)
    except (NotImplementedError, RuntimeError) as error:  # a component for an accelerator alone
        return not_applicable(
            "memory", f"not measured: the model runs neither on device meta nor on the CPU ({one_line(error)[:80]})"
        )
    each = (description.activations + _loss_bytes(subject, longest)) * (
        0.5 if "16" in str(subject.config["trainer"]["precision"]) else 1.0
    )
    needed = description.weights_and_adam + batch_size * each
    where, left = "memory", available
    if left is None:
        where, left = available_memory(subject.config["trainer"]["accelerator"])
    what = (
        f"a step on {batch_size:,} examples of {longest:,} tokens takes about {size(needed)}, {where} has {size(left)}"
    )
    if needed <= left:
        return Result("memory", what)
    fitting = int((left - description.weights_and_adam) / max(each, 1.0))
    if fitting < 1:
        key = "--data.window" if data.get("window") else "--model.backbone.dim, depth"
        return Result("memory", what, Finding(what, "not even one example fits", f"{key}: less; or --trainer.devices"))
    fitting = 2 ** (fitting.bit_length() - 1)  # a power of two below it
    times = -(-batch_size // fitting)
    fix = f"--data.batch_size {fitting} --trainer.accumulate_grad_batches {times} (the same steps)"
    return Result("memory", what, Finding(what, "the batch is too large for the memory", fix))


@torch.no_grad()
def _loss_bytes(subject: Subject, num_tokens: int) -> float:
    """Bytes of the loss of one example: predictions in float32, their log-softmax or error, and the gradient."""
    output = subject.step(subject.fresh().eval(), subject.handful)
    if output.inputs is None or output.prediction is None:
        return 0.0
    prediction, batch = output.prediction, output.inputs.batch
    columns = batch.valid.shape[1]
    by_token = prediction.ndim == 3 and prediction.shape[1] == columns
    return 3 * 4 * prediction.numel() / len(batch) * (num_tokens / columns if by_token else 1.0)
