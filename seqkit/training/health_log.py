"""Callbacks that watch a training's health: loss spikes, and the doctor's figures by layer and head.

They change nothing of the training. Their state is in checkpoints, so a resumed run says what an uninterrupted one
says. In a distributed run every process watches, and the first one speaks.
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
from seqkit.training.health import (
    EXPLODING_NORM,
    SPIKE_WINDOW,
    HeadEntropy,
    collapsed_layers,
    gradient_norms,
    indifferent_layers,
    is_spike,
    record_attention_entropy,
    total_norm,
    vanishing_layers,
)

log = logging.getLogger("seqkit")

EVERY = 20
"""Optimizer steps between two readings of an accelerator's losses, where no rows are logged."""


class LossSpikes(Callback):
    """Says in one log line when the training loss jumps (`health.is_spike`), by the losses that are there anyway.

    On accelerators they are read when a row is logged, since each reading waits for the device. After a line it is
    silent for SPIKE_WINDOW optimizer steps, and twice as long after each further one, so that an unstable run does not
    fill its log.
    """

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.silent_until, self.silence = 0, SPIKE_WINDOW
        self._unread: list[tuple[int, Any]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Compare the loss of an optimizer step with those of the steps before it."""
        if trainer.fit_loop.epoch_loop._should_accumulate():
            return
        every, step = trainer.log_every_n_steps, trainer.global_step
        self._unread.append((step - 1, pl_module.step_loss))
        if pl_module.device.type != "cpu" and step % (every or EVERY) and step != pl_module.num_steps:
            return
        unread, self._unread = self._unread, []
        for number, loss in unread:
            self._look(number, float(loss), speaks=trainer.is_global_zero)

    def _look(self, step: int, loss: float, *, speaks: bool) -> None:
        before, self.losses = self.losses, [*self.losses, loss][-SPIKE_WINDOW:]
        if step < self.silent_until or not is_spike(before, loss) or not math.isfinite(loss):
            return  # one that is not finite is said by the training module
        self.silent_until, self.silence = step + self.silence, 2 * self.silence
        if speaks:
            log.warning(
                "step %d: the loss jumps from %.3g to %.3g; if it does not come down again, lower the learning rate, "
                "clip gradients (trainer.gradient_clip_val) or warm up longer",
                step,
                statistics.median(one for one in before if math.isfinite(one)),
                loss,
            )

    def state_dict(self) -> dict[str, Any]:
        """The window, what was not read yet, and how long it is silent."""
        return {
            "losses": list(self.losses),
            "unread": [[step, float(loss)] for step, loss in self._unread],
            "silent_until": self.silent_until,
            "silence": self.silence,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        self.losses = [float(loss) for loss in state_dict["losses"]]
        self._unread = [(int(step), loss) for step, loss in state_dict["unread"]]
        self.silent_until, self.silence = int(state_dict["silent_until"]), int(state_dict["silence"])


class TrainingHealth(Callback):
    """Logs the gradient norm of each layer and the attention entropy of each head; says when they collapse.

    every_n_steps: optimizer steps between two rows, and the last step. gradients: columns grad_norm/LAYER, before
    clipping, and a log line where the whole gradient explodes or a layer's vanishes. attention: columns
    entropy/MODULE/HEAD, as a share of the largest that masks and biases allow, over the first micro-batch of the step
    on this process, and a log line where no head of a module attends to more than one key, or none looks at the
    content. Each line is said once for each layer. Thresholds are those of `seqkit doctor`.
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
        """Raise UsageError where attention runs inside compiled blocks, whose hooks torch does not call."""
        is_compiled = any(module._compiled_call_impl is not None for module in pl_module.modules())
        if self.attention and is_compiled:
            raise UsageError(
                "TrainingHealth cannot see the attention of compiled blocks; "
                "give it attention: false, or --trainer.compile false"
            )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """A training or a resumed one begins with a whole optimizer step."""
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
            self._say_gradients(trainer, step, norms)
        for one in heads:
            row |= {f"entropy/{one.name}/{i}": float(share) for i, share in enumerate(one.entropy)}
        self._say_attention(trainer, step, heads)
        if row:
            for logger in trainer.loggers:
                logger.log_metrics(row, step=step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Remove the hooks."""
        self._recording.close()

    def _is_due(self, trainer: Any, pl_module: Any) -> bool:
        """Whether the optimizer step that is under way is logged."""
        step = trainer.global_step + 1
        return step % self.every_n_steps == 0 or step == pl_module.num_steps

    def _say_gradients(self, trainer: Any, step: int, norms: dict[str, float]) -> None:
        whole = total_norm(norms)
        if whole > EXPLODING_NORM:
            largest = max(norms, key=norms.__getitem__)
            advice = "lower the learning rate, clip gradients (trainer.gradient_clip_val) or warm up longer"
            text = f"the norm of the gradient is {whole:.3g}, the largest of {largest}; {advice}"
            self._say(trainer, step, "exploding", text)
        for layer in vanishing_layers(norms):
            advice = "use PreNormBlock, or fewer layers"
            text = f"the gradient of {layer} has vanished (norm {norms[layer]:.1g} of {whole:.3g}); {advice}"
            self._say(trainer, step, f"vanishing {layer}", text)

    def _say_attention(self, trainer: Any, step: int, heads: Sequence[HeadEntropy]) -> None:
        advice = "lower the learning rate, or bound the scores (qk_norm)"
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
        """What was said."""
        return {"said": list(self.said)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self.said = [str(key) for key in state_dict["said"]]
