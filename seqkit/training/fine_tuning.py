"""Fine-tuning of a model that begins with the weights of another (`model.init`): which of its parameters train.

What came from the other model is its *taken* components, such as `backbone` and `embedder`; new ones always train.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from seqkit.errors import UsageError, suggest

if TYPE_CHECKING:
    from torch import nn


class FineTuning(ABC):
    """Which parameters train (`trainer.fine_tuning`)."""

    @abstractmethod
    def begin(self, model: nn.Module, taken: Collection[str]) -> None:
        """Prepare the model for training. taken: components whose weights came from another model.

        Raises UsageError if nothing would train, or the model has no place for it.
        """

    def end(self, model: nn.Module) -> None:
        """Give the trained model the parameters that it had before `begin`, by name and shape."""
        for parameter in model.parameters():
            parameter.requires_grad_(True)


class Freeze(FineTuning):
    """Parts of the model keep their weights.

    parts: names of modules, such as `embedder` or `backbone.blocks.0`; None: all that was taken from the other model,
    but for the head. Dropout stays on in them. Gradients are computed down to the lowest part that trains, so frozen
    parts below it cost a forward pass alone.
    """

    def __init__(self, parts: Sequence[str] | None = None):
        if parts is not None and not parts:
            raise ValueError("parts=[] freezes nothing; give names of modules, such as [embedder]")
        self.parts = parts

    def begin(self, model: nn.Module, taken: Collection[str]) -> None:
        if self.parts is None:
            frozen = _taken_names(model, [name for name in taken if name != "head"], "Freeze")
        else:
            modules = dict(model.named_modules())
            known = [name for name, one in modules.items() if name and list(one.parameters())]
            for part in self.parts:
                if part not in known:
                    raise UsageError(
                        f"trainer.fine_tuning: the model has no part {part!r}; {suggest(part, known)}"
                    )
            ids = {id(p) for part in self.parts for p in modules[part].parameters()}
            frozen = {name for name, p in model.named_parameters() if id(p) in ids}
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in frozen)
        if not any(p.requires_grad for p in model.parameters()):
            raise UsageError(
                "trainer.fine_tuning: Freeze leaves no parameter to train; name fewer parts"
            )


class LoRA(FineTuning):
    """Low-rank changes of the backbone's linear maps train, its own weights do not (Hu et al. 2022, section 4.1).

    A map W x becomes W x + (alpha / rank) B A x, with A [rank, in] random and B [out, rank] zero. All `nn.Linear` of
    the backbone have one (Dettmers et al. 2023, section 4). A taken embedder or head is frozen, too.
    The run's weights have the changes added: it is used, exported and fine-tuned like any other. Made by peft's
    `inject_adapter_in_model` (extra `lora`).
    alpha: None: twice the rank. dropout: on x, in the change alone. targets: last words of the names of the linear maps
    that are changed, such as `qkv_proj`; None: all.
    Raises UsageError for a recurrent layer, whose matrices are no linear maps of their own.
    """

    def __init__(
        self,
        rank: int = 8,
        *,
        alpha: float | None = None,
        dropout: float = 0.0,
        targets: Sequence[str] | None = None,
    ):
        self.rank = rank
        self.alpha = alpha
        self.dropout = dropout
        self.targets = targets

    def begin(self, model: nn.Module, taken: Collection[str]) -> None:
        try:
            from peft import LoraConfig, inject_adapter_in_model
        except ImportError as error:
            raise UsageError("LoRA needs peft; pip install 'seqkit[lora]'") from error
        frozen = _taken_names(model, taken, "LoRA")
        maps = self._maps(model)
        config = LoraConfig(
            r=self.rank,
            lora_alpha=2 * self.rank if self.alpha is None else self.alpha,  # type: ignore[arg-type]
            lora_dropout=self.dropout,
            target_modules=maps,
        )
        inject_adapter_in_model(config, model)
        for name, parameter in model.named_parameters():  # peft has frozen all but the adapters
            parameter.requires_grad_(name.replace(".base_layer.", ".") not in frozen)

    def _maps(self, model: nn.Module) -> list[str]:
        """Names of the linear maps that get a change."""
        from torch import nn

        backbone = model.get_submodule("backbone")
        title = type(backbone).__name__
        maps = [
            f"backbone.{name}"
            for name, module in backbone.named_modules()
            if type(module) is nn.Linear
        ]
        if not maps or any(
            isinstance(module, nn.RNNBase | nn.RNNCellBase) for module in backbone.modules()
        ):
            raise UsageError(
                f"trainer.fine_tuning: LoRA changes linear maps alone, and {title} has none, or recurrent layers; use "
                "Freeze, or optimizer.layer_decay"
            )
        last = sorted({name.rpartition(".")[2] for name in maps})
        for target in self.targets or ():
            if target not in last:
                raise UsageError(
                    f"trainer.fine_tuning.targets: no linear map is called {target!r}; {suggest(target, last)}"
                )
        if self.targets is None:
            return maps
        return [name for name in maps if name.rpartition(".")[2] in self.targets]

    def end(self, model: nn.Module) -> None:
        from peft.tuners.tuners_utils import BaseTunerLayer

        for name, module in list(model.named_modules()):
            if isinstance(module, BaseTunerLayer):
                module.merge()
                model.set_submodule(name, module.get_base_layer())
        super().end(model)


def _taken_names(model: nn.Module, taken: Collection[str], method: str) -> set[str]:
    """Names of the parameters that came from another model. Raises UsageError if there is none."""
    if not taken:
        raise UsageError(
            f"trainer.fine_tuning: {method} keeps the weights that the model begins with, and they are random; give "
            "--model.init RUN"
        )
    from seqkit.training.weights import component_of

    ours = dict(model.named_parameters(remove_duplicate=False))
    # a tied head is the embedder's
    ids = {id(p) for name, p in ours.items() if component_of(name) in taken}
    return {name for name, p in ours.items() if id(p) in ids}
