"""Attention maps: the attention weights of every layer and head, recorded while a model runs.

b batch · h heads · n queries · m keys
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import torch
from einops import rearrange, reduce
from torch import Tensor, nn

from seqkit.interfaces import TokenBatch
from seqkit.model import Model
from seqkit.nn.attention.context import AttentionContext
from seqkit.nn.attention.multi_head import MultiHeadAttention


@dataclass(frozen=True)
class AttentionMap:
    """Attention weights of one module in one forward pass.

    name: name of the module, such as `backbone.blocks.0.attention`. weights: [b h n m], rows sum to 1, to less in
    heads with a sink, to 0 where every key is masked. is_cross: True: cross-attention to another sequence; False:
    self-attention.
    """

    name: str
    weights: Tensor
    is_cross: bool

    @property
    def stack(self) -> str:
        """The stack that the module belongs to: "encoder", "decoder", "cross", or "" if the model is one stack."""
        words = self.name.split(".")
        if self.is_cross:
            return "cross"
        return next((w for w in words if w in ("encoder", "decoder")), "")


@contextmanager
def record_attention_maps(model: nn.Module) -> Iterator[list[AttentionMap]]:
    """Records the attention maps of forward passes of `model` inside this context; its list is filled at the end.

    An attention that runs several times in a pass (the steps of a recurrent decoder) gives one map, its queries in
    order. The weights are computed again from the same queries and keys, so the model's output does not change.
    The hooks are removed at the end. Raises ValueError, naming the mechanism, if one has no attention weights.
    """
    recorded: dict[str, AttentionMap] = {}
    maps: list[AttentionMap] = []
    with ExitStack() as hooks:
        names: dict[nn.Module, list[str]] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            names.setdefault(module, []).append(name)
        for module, own in names.items():
            if isinstance(module, MultiHeadAttention):
                call: dict[str, bool] = {}
                before = module.register_forward_pre_hook(
                    partial(_note_memory, call), with_kwargs=True
                )
                after = module.mechanism.register_forward_hook(
                    partial(_record, cycle(own), call, recorded)
                )
                hooks.callback(before.remove)
                hooks.callback(after.remove)
        try:
            yield maps
        finally:
            maps.extend(recorded.values())


def _note_memory(
    call: dict[str, bool], _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Records whether this call of `MultiHeadAttention.forward(x, context, cache)` has a memory."""
    call["is_cross"] = dict(zip(("x", "context"), args), **kwargs)["context"].memory is not None


def _record(
    names: Iterator[str],
    call: dict[str, bool],
    recorded: dict[str, AttentionMap],
    mechanism: Any,
    args: tuple[Any, ...],
    _output: Tensor,
) -> None:
    q, k, _, context = args[:4]
    assert isinstance(context, AttentionContext)
    name = next(names)  # blocks that are one run one after the other
    with torch.no_grad():
        weights = mechanism.attention_weights(q, k, context)
    if name in recorded:
        weights = torch.cat([recorded[name].weights, weights], dim=2)
    recorded[name] = AttentionMap(name, weights, call["is_cross"])


@torch.no_grad()
def attention_maps(model: Model, batch: TokenBatch) -> list[AttentionMap]:
    """Attention maps of one forward pass of `batch` in evaluation mode, in the order in which the attentions ran.

    Raises ValueError if the model has no attention, or a mechanism has no attention weights.
    """
    training = model.training
    model.eval()
    try:
        with record_attention_maps(model) as maps:
            model(batch)
    finally:
        model.train(training)
    if not maps:
        raise ValueError(
            f"{type(model.backbone).__name__} has no attention weights; train a Transformer (seqkit fit RECIPE "
            "--model.backbone Transformer)"
        )
    return maps


def entropy(weights: Tensor, valid: Tensor) -> Tensor:
    """Entropy of each head's attention weights in nats [b h], mean over real queries: 0 for one key, log m for m alike.

    weights: [b h n m]; what a row lacks to sum to 1 is the weight of the head's sink, which counts as one more key.
    valid: [b n], True = a real query. NaN for a head with weights below 0 (Linformer's mixtures).
    """
    sink = (1 - weights.sum(dim=-1, keepdim=True)).clamp(min=0)
    weights = torch.cat([weights, sink], dim=-1)
    nats = -torch.special.xlogy(weights, weights).sum(dim=-1)
    real = rearrange(valid, "b n -> b 1 n").to(nats.dtype)
    return (nats * real).sum(dim=-1) / real.sum(dim=-1)


def rollout(maps: Sequence[AttentionMap]) -> Tensor:
    """Attention rollout: how much each output token draws on each input token, [b n n], through all layers.

    Each layer is the mean of its heads and, by half, the identity of the residual connection (Abnar and Zuidema 2020,
    section 3). What heads give to their sinks is drawn from no token: rows then sum to less than 1.
    Raises ValueError if the maps are of different sequences.
    """
    if not maps or any(one.is_cross or one.weights.shape != maps[0].weights.shape for one in maps):
        raise ValueError(
            "rollout follows one sequence through a stack: give the maps of its self-attentions, in order"
        )
    n = maps[0].weights.shape[-1]
    itself = torch.eye(n, dtype=maps[0].weights.dtype, device=maps[0].weights.device)
    total = itself
    for one in maps:
        total = (0.5 * reduce(one.weights, "b h n m -> b n m", "mean") + 0.5 * itself) @ total
    return total
