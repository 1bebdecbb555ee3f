"""Attention maps: who read how much of whom, taken while a model runs. What it computes does not change.

b batch · h heads · n tokens that read · m tokens that are read · l layers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from einops import reduce
from torch import Tensor, nn

from seqkit.contract import TokenBatch
from seqkit.layers.attention import Attention
from seqkit.layers.reading import Reading
from seqkit.model import Model


@dataclass(frozen=True)
class AttentionMap:
    """One attention's weights in one forward pass.

    name: of the module, such as `backbone.blocks.0.attention`. weights: [b h n m], rows sum to 1 (0 where nothing may
    be read). across: True: tokens of one sequence read another's; False: their own.
    """

    name: str
    weights: Tensor
    across: bool

    @property
    def part(self) -> str:
        """Which attentions it belongs to: "encoder", "decoder", "across" or "" where the model is one stack."""
        words = self.name.split(".")
        return "across" if self.across else next((w for w in words if w in ("encoder", "decoder")), "")


@contextmanager
def taking_maps(model: nn.Module) -> Iterator[list[AttentionMap]]:
    """Within it, every forward pass of `model` leaves its maps in the list. An attention that runs several times in a
    pass (a recurrent decoder's steps) leaves one map, its readers in order.

    The weights are computed beside what the model computes, from the same queries and keys; after it nothing is left
    in the model. Raises ValueError, naming the mechanism, where one has no weights to show.
    """
    taken: dict[str, AttentionMap] = {}
    listed: list[AttentionMap] = []
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, Attention):
                going: dict[str, bool] = {}
                before = module.register_forward_pre_hook(partial(_note_source, going), with_kwargs=True)
                after = module.mechanism.register_forward_hook(partial(_take, name, going, taken))
                hooks.callback(before.remove)
                hooks.callback(after.remove)
        try:
            yield listed
        finally:
            listed.extend(taken.values())


def _note_source(going: dict[str, bool], _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    going["across"] = kwargs.get("source") is not None or (len(args) > 3 and args[3] is not None)


def _take(
    name: str,
    going: dict[str, bool],
    taken: dict[str, AttentionMap],
    mechanism: Any,
    args: tuple[Any, ...],
    _output: Tensor,
) -> None:
    q, k, _, reading = args[:4]
    assert isinstance(reading, Reading)
    with torch.no_grad():
        weights = mechanism.weights(q, k, reading)
    if name in taken:
        weights = torch.cat([taken[name].weights, weights], dim=2)
    taken[name] = AttentionMap(name, weights, going["across"])


@torch.no_grad()
def attention_maps(model: Model, batch: TokenBatch) -> list[AttentionMap]:
    """The maps of one evaluation of `batch`, in the order in which the attentions ran.

    Raises ValueError where the model has no attention, or a mechanism that has no weights.
    """
    training = model.training
    model.eval()
    try:
        with taking_maps(model) as maps:
            model(batch)
    finally:
        model.train(training)
    if not maps:
        raise ValueError(f"{type(model.backbone).__name__} has no attention to look at; train a Transformer")
    return maps


def entropy(weights: Tensor, valid: Tensor) -> Tensor:
    """How widely each head reads: [b h] nats, the mean over real readers. 0: one token; log m: all m alike.

    weights: [b h n m]. valid: [b n], True = a real reader. NaN for a head with weights below 0 (Linformer's mixtures).
    """
    spread = -torch.special.xlogy(weights, weights).sum(dim=-1)
    real = valid[:, None].to(spread.dtype)
    return (spread * real).sum(dim=-1) / real.sum(dim=-1)


def rollout(maps: Sequence[AttentionMap]) -> Tensor:
    """How much of each input token reaches each output token, [b n n], through all layers and the paths around them.

    Each layer is the mean of its heads and, by half, the identity (Abnar and Zuidema 2020, section 3).
    Raises ValueError where maps are of different sequences.
    """
    if not maps or any(one.across or one.weights.shape != maps[0].weights.shape for one in maps):
        raise ValueError("rollout follows one sequence through a stack: give the maps of its self-attentions, in order")
    n = maps[0].weights.shape[-1]
    itself = torch.eye(n, dtype=maps[0].weights.dtype, device=maps[0].weights.device)
    total = itself
    for one in maps:
        total = (0.5 * reduce(one.weights, "b h n m -> b n m", "mean") + 0.5 * itself) @ total
    return total
