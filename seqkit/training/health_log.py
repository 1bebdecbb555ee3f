"""Callbacks that watch a training's health: loss spikes, and the doctor's figures by layer and head.

They change nothing of the training. Their state is in checkpoints, so a resumed run logs what an uninterrupted one
logs. In a distributed run every process watches, and the first one logs.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from pytorch_lightning import Callback

from seqkit.errors import UsageError
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import PostNormBlock
from seqkit.training.health import (
    EXPLODING_NORM,
    SPIKE_WINDOW,
    HeadEntropy,
    collapsed_layers,
    gradient_norms,
    highest_usual,
    indifferent_layers,
    is_spike,
    record_attention_entropy,
    total_norm,
    vanishing_layers,
)

log = logging.getLogger("seqkit")

EVERY = 20
"""Optimizer steps between two readings of an accelerator's losses, if no rows are logged."""

RISE = 0.1
"""Share by which the validation loss rises with a jump of the training loss that makes the model worse."""


class LossSpikes(Callback):
    """Says in one log line that the training loss jumped (`health.is_spike`), if the training got worse with it.

    A batch may be hard by itself, and is again in every epoch, so the losses of the steps after the jump have to stay
    as high. If there was a validation before the jump, the next one has to be worse, too. On accelerators losses are
    read when a row is logged or a validation ends, since each reading waits for the device. After a line it is
    silent for SPIKE_WINDOW optimizer steps, and twice as long after each further one.
    """

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.jump: list[float] = []
        """A jump that is not decided yet: step, usual loss, loss, highest loss that would be usual, and, if there
        was one since, the last validation loss."""
        self.valid_loss = math.inf
        """Last validation loss, or that before the jump."""
        self.silent_until, self.silence = 0, SPIKE_WINDOW
        self._unread: list[tuple[int, Any]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Compare the loss of an optimizer step with those of the steps before it."""
        if trainer.fit_loop.epoch_loop._should_accumulate():
            return
        every, step = trainer.log_every_n_steps, trainer.global_step
        self._unread.append((step - 1, pl_module.step_loss))
        if pl_module.device.type == "cpu" or not step % (every or EVERY) or step == pl_module.num_steps:
            self._read(trainer, pl_module)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Compare the validation loss with the one before the jump."""
        if trainer.sanity_checking or "valid/loss" not in trainer.callback_metrics:
            return
        self._read(trainer, pl_module)
        valid_loss = float(trainer.callback_metrics["valid/loss"])
        if self.jump:
            self.jump = [*self.jump[:4], valid_loss]
            self._decide(trainer, pl_module, trainer.global_step - 1, is_validated=True)
        else:
            self.valid_loss = valid_loss

    def _read(self, trainer: Any, pl_module: Any) -> None:
        unread, self._unread = self._unread, []
        for step, given in unread:
            loss = float(given)
            before, self.losses = self.losses, [*self.losses, loss][-SPIKE_WINDOW:]
            finite = [one for one in before if math.isfinite(one)]
            if self.jump:
                self._decide(trainer, pl_module, step)
            # a loss that is not finite is said by the training module
            elif step >= self.silent_until and math.isfinite(loss) and is_spike(before, loss):
                self.jump = [step, statistics.median(finite), loss, highest_usual(finite)]

    def _decide(self, trainer: Any, pl_module: Any, step: int, *, is_validated: bool = False) -> None:
        """Say the jump or forget it, if enough is known by now. is_validated: whether a validation has just ended."""
        enough, since = SPIKE_WINDOW // 2, step - int(self.jump[0])
        if since < enough and not (is_validated and step + 1 >= pl_module.num_steps):
            return
        after, before = statistics.median(self.losses[-max(1, min(since, enough)) :]), self.valid_loss
        valid_loss = self.jump[4] if self.jump[4:] else before
        if after > self.jump[3] and not math.isfinite(before) and since >= enough:
            self._say(trainer, pl_module, step, f"stays at {after:.3g}")
        elif after > self.jump[3] and valid_loss > before + RISE * abs(before):
            self._say(trainer, pl_module, step, f"the validation loss rises from {before:.3g} to {valid_loss:.3g}")
        elif after > self.jump[3] and not is_validated:
            return  # the next validation decides
        self.jump, self.valid_loss = [], valid_loss

    def _say(self, trainer: Any, pl_module: Any, now: int, change: str) -> None:
        step, usual, loss, *_ = self.jump
        self.silent_until, self.silence = now + self.silence, 2 * self.silence
        if trainer.is_global_zero:
            told = "step %d: the loss jumps from %.3g to %.3g, and %s; if it does not come down again, %s"
            log.warning(told, step, usual, loss, change, pl_module.stabilizers())

    def state_dict(self) -> dict[str, Any]:
        """Losses, those that were not read yet, an undecided jump, and how long it is silent."""
        names = ("losses", "jump", "valid_loss", "silent_until", "silence")
        return {name: getattr(self, name) for name in names} | {
            "unread": [[step, float(loss)] for step, loss in self._unread]
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._unread = [(int(step), loss) for step, loss in state_dict["unread"]]
        for name in ("losses", "jump", "valid_loss", "silent_until", "silence"):
            setattr(self, name, state_dict[name])


class TrainingHealth(Callback):
    """Logs the gradient norm of each layer and the attention entropy of each head; says when they collapse.

    every_n_steps: optimizer steps between two rows, and the last step. gradients: columns grad_norm/LAYER, before
    clipping, and a log line if the whole gradient explodes or a layer's vanishes. attention: columns
    entropy/MODULE/HEAD, as a share of the largest that masks and biases allow, over the first micro-batch of the step
    on this process, and a log line if no head of a module attends to more than one key, or none looks at the content.
    Each line is logged once for each layer. Thresholds are those of `seqkit doctor`.
    """

    def __init__(self, *, every_n_steps: int = 100, gradients: bool = True, attention: bool = True) -> None:
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps is {every_n_steps}; give 1 or more optimizer steps")
        if not gradients and not attention:
            raise ValueError(
                "gradients and attention are both false, which leaves nothing to log; leave the callback out"
            )
        self.every_n_steps, self.gradients, self.attention = every_n_steps, gradients, attention
        self.said: list[str] = []
        self._recording, self._heads = ExitStack(), list[HeadEntropy]()
        self._norms: dict[str, float] = {}
        self._step_begins = True

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Raise UsageError if attention runs inside compiled blocks, whose hooks torch does not call."""
        is_compiled = any(module._compiled_call_impl is not None for module in pl_module.modules())
        if self.attention and is_compiled:
            raise UsageError(
                "TrainingHealth cannot see the attention of compiled blocks; "
                "give it attention: false, or --trainer.compile false"
            )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step_begins = True

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Record the attention of the first micro-batch of a step that is logged."""
        if self.attention and self._step_begins and self._is_due(trainer, pl_module):
            self._heads = self._recording.enter_context(record_attention_entropy(pl_module.model))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Note the norms of the gradient of the summed loss; the training module divides it later."""
        if self.gradients and self._is_due(trainer, pl_module):
            self._norms = gradient_norms(pl_module.model)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write the row, and say what is wrong in it."""
        self._recording.close()
        self._step_begins = not trainer.fit_loop.epoch_loop._should_accumulate()
        if not self._step_begins:
            return
        heads, norms = self._heads, self._norms
        self._heads, self._norms = [], {}
        step = trainer.global_step - 1
        whole, now = total_norm(norms), float(pl_module.gradient_norm)
        row: dict[str, float] = {}
        if norms and math.isfinite(whole) and math.isfinite(now):
            scale = now / whole if whole else 0.0
            norms = {layer: norm * scale for layer, norm in norms.items()}
            row |= {f"grad_norm/{layer}": norm for layer, norm in norms.items()}
            self._say_gradients(trainer, step, norms, pl_module)
        for one in heads:
            row |= {f"entropy/{one.name}/{i}": float(share) for i, share in enumerate(one.entropy)}
        self._say_attention(trainer, step, heads, _bounds_scores(pl_module.model))
        if row:
            for logger in trainer.loggers:
                logger.log_metrics(row, step=step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._recording.close()

    def _is_due(self, trainer: Any, pl_module: Any) -> bool:
        """Whether the current optimizer step is logged."""
        step = trainer.global_step + 1
        return step % self.every_n_steps == 0 or step == pl_module.num_steps

    def _say_gradients(self, trainer: Any, step: int, norms: dict[str, float], pl_module: Any) -> None:
        whole = total_norm(norms)
        if whole > EXPLODING_NORM:
            largest = max(norms, key=norms.__getitem__)
            text = f"the norm of the gradient is {whole:.3g}, the largest of {largest}; {pl_module.stabilizers()}"
            self._say(trainer, step, "exploding", text)
        for layer in vanishing_layers(norms):
            has_post_norm = any(isinstance(module, PostNormBlock) for module in pl_module.model.modules())
            advice = "use PreNormBlock, or fewer layers" if has_post_norm else "use fewer layers"
            text = f"the gradient of {layer} has vanished (norm {norms[layer]:.1g} of {whole:.3g}); {advice}"
            self._say(trainer, step, f"vanishing {layer}", text)

    def _say_attention(self, trainer: Any, step: int, heads: Sequence[HeadEntropy], is_bounded: bool) -> None:
        advice = "lower the learning rate" + ("" if is_bounded else ", or bound the scores (qk_norm)")
        for name in collapsed_layers(heads):
            text = f"the attention of {name} has collapsed: each of its heads attends to one key; {advice}"
            self._say(trainer, step, f"collapsed {name}", text)
        for name in indifferent_layers(heads):
            text = f"the attention of {name} no longer looks at the content: all keys are alike to its heads; {advice}"
            self._say(trainer, step, f"indifferent {name}", text)

    def _say(self, trainer: Any, step: int, key: str, text: str) -> None:
        if key in self.said:
            return
        self.said.append(key)
        if trainer.is_global_zero:
            log.warning("step %d (epoch %d): %s", step, trainer.current_epoch, text)

    def state_dict(self) -> dict[str, Any]:
        return {"said": list(self.said)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.said = [str(key) for key in state_dict["said"]]


def _bounds_scores(model: Any) -> bool:
    """Whether queries and keys are normalised, or scores capped, which bounds the scores of attention."""
    attentions = [one for one in model.modules() if isinstance(one, MultiHeadAttention)]
    return any(one.query_norm is not None or getattr(one.mechanism, "softcap", None) for one in attentions)
