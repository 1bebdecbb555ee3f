"""How the steps of a generation are computed: by packed weights, by the modules in a CUDA graph, or by modules alone.

b sequences · v vocabulary
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any, cast

import torch
from einops import rearrange, repeat
from torch import Tensor, nn

from seqkit.generation.packed import PackedDecoder, is_known
from seqkit.generation.step_graph import StepGraph
from seqkit.interfaces import Cache, TokenBatch
from seqkit.model import Model
from seqkit.nn.embedder import Embedder

MIN_STEPS = 8
"""Fewest remaining steps for which a decoder is made; that takes the time that about ten steps save."""

MAX_KEPT, MAX_KEPT_BYTES = 4, 2**30
"""Decoders that a model keeps on CUDA at most, and the size of the keys and values of one."""


class GraphedCache(Cache):
    """A cache of constant shapes, such as the state of an RNN, in buffers that a CUDA graph reads and writes."""

    def __init__(self, cache: Cache, graph: StepGraph | None):
        self.num_tokens, self.cache, self.graph = cache.num_tokens, cache, graph

    def reorder(self, rows: Tensor) -> None:
        moved = copy.deepcopy(self.cache)
        moved.reorder(rows)
        if self.graph is not None and len(rows) == self.graph.num_sequences:
            self.graph.load(moved)
        else:
            self.cache, self.graph = moved, None


class GraphedDecoder:
    """The modules' own step as a CUDA graph, for caches whose shapes are constant."""

    def __init__(self, model: Model):
        self._model, self._graph = model, cast("StepGraph | None", None)
        self.user: Callable[[], Cache | None] = lambda: None

    def take_over(self, cache: Cache, positions: Tensor) -> GraphedCache:
        """Copy the cache that a full forward pass filled. Raises ValueError for one that grows with the tokens."""
        if self._graph is None or self._graph.num_sequences != len(positions):
            self._graph = self._captured(cache, positions)
        self._graph.load(cache)
        taken = GraphedCache(self._graph.state, self._graph)
        taken.num_tokens, self.user = cache.num_tokens, weakref.ref(taken)
        return taken

    def step(self, ids: Tensor, positions: Tensor, cache: GraphedCache) -> Tensor:
        """Logits [b v] after one more token: ids [b] at positions [b]; valid until the next step."""
        cache.num_tokens += 1
        if cache.graph is None:
            cache.graph = self._captured(cache.cache, positions)
            cache.graph.load(cache.cache)
            cache.cache = cache.graph.state
        return cache.graph(ids, positions)

    def _captured(self, cache: Cache, positions: Tensor) -> StepGraph:
        b, p = len(positions), self._model.spec.num_axes
        # made on the CPU, a batch knows that none of its tokens is padding
        one = TokenBatch(torch.zeros(b, 1).long(), torch.zeros(b, 1, p), torch.ones(b, 1).bool()).to(positions.device)

        def step(ids: Tensor, positions: Tensor, state: Any) -> Tensor:
            content, places = rearrange(ids, "b -> b 1"), repeat(positions.float(), "b -> b 1 p", p=p)
            logits: Tensor = self._model(one.replace(content=content, positions=places), cache=state)
            state.num_tokens -= 1  # which nothing reads in a step
            return logits[:, -1]

        return StepGraph(step, copy.deepcopy(cache), positions)


Decoder = PackedDecoder | GraphedDecoder


class Kept(dict[Any, Decoder]):
    """Decoders with their graphs, on the model that they belong to; a copy of the model has none."""

    def __deepcopy__(self, memo: Any) -> Kept:
        return Kept()

    def __reduce__(self) -> Any:
        return Kept, ()


def find_decoder(model: Model, num_sequences: int, max_tokens: int) -> Decoder | None:
    """A faster step than the modules'; None: on a CPU, if a part of the model is unknown to `PackedDecoder`.

    num_sequences: number of sequences that weights are packed for; steps may have any number. max_tokens: columns of
    the cache. None, too, with gradients, autocast, hooks, or weights of several types or devices.
    On CUDA the model keeps up to `MAX_KEPT` decoders. Their graphs read weights where they are, so weights may change
    in place; where a module, a setting or an address has changed, a new decoder is made.
    """
    device = next(model.parameters()).device
    is_cuda, is_packed = device.type == "cuda", is_known(model)
    if torch.is_grad_enabled() or torch.is_autocast_enabled(device.type) or not _is_plain(model):
        return None
    if not is_cuda:
        return PackedDecoder(model, num_sequences, max_tokens) if is_packed else None
    limit = cast(Embedder, model.embedder).position.num_positions
    rounded = max(128, 1 << (max_tokens - 1).bit_length())  # calls of like lengths share a graph
    max_tokens = rounded if limit is None else max(max_tokens, min(rounded, limit))
    kept, signature = vars(model).setdefault("_kept_decoders", Kept()), _signature(model)
    key = (num_sequences, max_tokens if is_packed else 0)
    if key in kept and kept[key].user() is None and kept[key].signature == signature:
        return kept[key]
    made = PackedDecoder(model, num_sequences, max_tokens) if is_packed else GraphedDecoder(model)
    made.signature = signature
    if not isinstance(made, PackedDecoder) or made.num_bytes <= MAX_KEPT_BYTES:
        kept.pop(key, None)
        while len(kept) >= MAX_KEPT:
            del kept[next(iter(kept))]
        kept[key] = made
    return made


def _signature(model: Model) -> list[Any]:
    """What a graph has read once: modules, their settings, and addresses of weights."""
    found: list[Any] = [(x.data_ptr(), x.dtype, x.shape) for x in (*model.parameters(), *model.buffers())]
    for module in model.modules():
        found += [id(module), *(value for value in vars(module).values() if isinstance(value, int | float | str))]
    return found


def _is_plain(model: nn.Module) -> bool:
    """Whether modules compute what their classes define: no hooks, no own `forward`, no dropout, plain parameters."""
    first = next(model.parameters())
    usual = all(type(p) is nn.Parameter and p.dtype == first.dtype and p.device == first.device
                for p in model.parameters())  # fmt: skip
    on_all = nn.modules.module
    return usual and not (on_all._global_forward_hooks or on_all._global_forward_pre_hooks) and not any(
        module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
        or module._compiled_call_impl is not None or module.training for module in model.modules()
    )  # fmt: skip
