"""How the steps of a generation are computed: by packed weights, by the modules in a CUDA graph, or by modules alone.

b sequences · v vocabulary
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import torch
from einops import rearrange, repeat
from torch import Tensor, nn

from seqkit.generation.captured import leaves
from seqkit.generation.packed import PackedStep, is_known
from seqkit.generation.recurrent_step import RecurrentStep, is_recurrent
from seqkit.generation.step_graph import StepGraph, structure
from seqkit.interfaces import Cache, TokenBatch
from seqkit.model import Model
from seqkit.nn.embedder import Embedder

MIN_STEPS = 8
"""Fewest remaining steps for which a decoder is made; that takes the time that about ten steps save."""

MAX_KEPT = 4
KEPT_SHARE = 1 / 8
"""Decoders that a model keeps on CUDA at most, and the share of the GPU's memory that their buffers have together."""


class Step(Protocol):
    """Computes the steps that follow a full forward pass.

    is_proven: False: its first step is to be compared with the modules'.
    """

    is_proven: bool

    def state(self, cache: Any, positions: Tensor, /) -> Cache:
        """Take over the cache of a full forward pass; the next tokens are at positions [b].

        Raises ValueError for a cache that grows with the tokens, where buffers are static.
        """

    def __call__(self, ids: Tensor, state: Any, /) -> Tensor:
        """Logits [b v] after one more token: ids [b]; valid until the next step."""


@dataclass(eq=False)
class ModuleState(Cache):
    """The modules' cache, whose shapes must be constant, and the positions [b] of the next tokens."""

    cache: Cache
    positions: Tensor

    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order."""
        self.cache.reorder(rows)
        self.positions = self.positions.index_select(0, rows)


class ModuleStep:
    """The modules' own step, for a CUDA graph."""

    is_proven = True

    def __init__(self, model: Model):
        self._model = model
        self._batch: TokenBatch | None = None

    def state(self, cache: Cache, positions: Tensor) -> ModuleState:
        """The cache that a full forward pass filled."""
        cache = copy.copy(cache)
        # a graph does not count, so its user does; a step knows by it that it is not the first
        cache.num_tokens = 1
        return ModuleState(cache, positions)

    def __call__(self, ids: Tensor, state: ModuleState) -> Tensor:
        """Logits [b v] after one more token: ids [b]."""
        content = rearrange(ids, "b -> b 1")
        positions = repeat(state.positions.float(), "b -> b 1 p", p=self._model.spec.num_axes)
        if self._batch is None or len(self._batch) != len(ids):
            # made on the CPU, a batch knows that none of its tokens is padding
            valid = torch.ones(content.shape, dtype=torch.bool)
            self._batch = TokenBatch(content.cpu(), positions.cpu(), valid).to(ids.device)
        batch = self._batch.replace(content=content, positions=positions)
        logits: Tensor = self._model(batch, cache=state.cache)
        state.cache.num_tokens = 1
        state.positions = state.positions + 1
        return logits[:, -1]


class GraphedCache(Cache):
    """State of steps that run as a CUDA graph. graph: None: there are more sequences than in the last one."""

    def __init__(self, graph: StepGraph, num_tokens: int):
        self.state = graph.state
        self.graph: StepGraph | None = graph
        self.num_tokens = num_tokens

    def reorder(self, rows: Tensor) -> None:
        """Keep these examples, [b'] indices, in this order; rows of a graph that are left over are computed, too."""
        self.state = structure(self.state)
        if self.graph is None or len(rows) > self.graph.num_sequences:
            self.state.reorder(rows)
            self.graph = None
        else:
            self.state.reorder(_filled(rows, self.graph.num_sequences))
            self.graph.load(leaves(self.state))
            self.state = self.graph.state


def _filled(rows: Tensor, num: int) -> Tensor:
    return torch.cat([rows, rows[:1].expand(num - len(rows))])


class Decoder:
    """A step of constant shapes, on CUDA as a graph, which it keeps with its buffers.

    keep: called with the decoder once its buffers are there. signature: what the graph has read once.
    """

    is_proven = True

    def __init__(
        self,
        step: Step,
        keep: Callable[[Decoder], None] = lambda _: None,
        signature: Sequence[Any] = (),
    ):
        self.signature = signature
        self._step = step
        self._keep = keep
        self._graph: StepGraph | None = None
        # cache of the generation that uses the buffers
        self.user: Callable[[], Cache | None] = lambda: None

    def state(self, cache: Cache, positions: Tensor) -> GraphedCache:
        """A copy of the cache in the buffers: it may hold the source's own tensors, and these are written to."""
        b = len(positions)
        rows = torch.arange(b, device=positions.device)
        if self._graph is not None and self._graph.num_sequences > b:
            rows = _filled(rows, self._graph.num_sequences)
        cache.reorder(rows)
        positions = positions[rows]
        state = self._step.state(cache, positions)
        if self._graph is not None and self._graph.fits(state):
            self._graph.load(leaves(state))
        else:
            self._graph = StepGraph(self._step, state, len(positions))
            self._keep(self)
        taken = GraphedCache(self._graph, cache.num_tokens)
        self.user = weakref.ref(taken)
        return taken

    @property
    def num_bytes(self) -> int:
        """Size of the buffers."""
        if self._graph is None:
            return 0
        return sum(x.nbytes for x in leaves(self._graph.state) if isinstance(x, Tensor))

    def __call__(self, ids: Tensor, cache: GraphedCache) -> Tensor:
        """Logits [b v] after one more token: ids [b]; valid until the next step."""
        if cache.graph is None:
            cache.graph = StepGraph(self._step, cache.state, len(ids))
        cache.num_tokens += 1
        return cache.graph(ids)


class Kept(dict[Any, Decoder]):
    """Decoders with their graphs, on the model that they belong to; a copy of the model has none."""

    def keep(self, key: Any, limit: float, decoder: Decoder) -> None:
        """Keep it in the place of one with this key, and of the oldest that are too many bytes with it."""
        self.pop(key, None)
        while self and (
            len(self) >= MAX_KEPT
            or decoder.num_bytes + sum(x.num_bytes for x in self.values()) > limit
        ):
            del self[next(iter(self))]
        if decoder.num_bytes <= limit:
            self[key] = decoder

    def __deepcopy__(self, memo: Any) -> Kept:
        return Kept()

    def __reduce__(self) -> Any:
        return Kept, ()


def find_decoder(model: Model, num_sequences: int, max_tokens: int) -> Step | None:
    """A faster step than the modules'; None: on a CPU, if no step is written out for such a model.

    num_sequences, max_tokens: sequences and columns of the generation. None, too, with gradients, autocast, hooks, or
    weights of several types or devices.
    On CUDA the model keeps up to `MAX_KEPT` decoders. Their graphs read weights where they are, so weights may change
    in place; where a module, a setting or an address has changed, a new decoder is made.
    """
    device = next(model.parameters()).device
    if torch.is_grad_enabled() or torch.is_autocast_enabled(device.type) or not _is_plain(model):
        return None
    is_packed = is_known(model)
    if device.type != "cuda":
        if is_recurrent(model):
            return RecurrentStep(model, num_sequences)
        if not is_packed:
            return None
        step = PackedStep(model, num_sequences, max_tokens)
        return Decoder(step) if step.is_static else step
    limit = cast(Embedder, model.embedder).position.num_positions
    unit = max(128, 2 ** ((max_tokens - 1).bit_length() - 2))
    rounded = -(-max_tokens // unit) * unit  # calls of like lengths share a graph
    max_tokens = rounded if limit is None else max(max_tokens, min(rounded, limit))
    kept: Kept = vars(model).setdefault("_kept_decoders", Kept())
    key = (num_sequences, max_tokens if is_packed else 0)
    signature = _signature(model)
    found = kept.get(key)
    if found is None or found.user() is not None or found.signature != signature:
        total = torch.cuda.get_device_properties(device).total_memory
        found = Decoder(
            PackedStep(model, num_sequences, max_tokens) if is_packed else ModuleStep(model),
            partial(kept.keep, key, KEPT_SHARE * total),
            signature,
        )
        # kernels and graphs were seen on few GPUs
        found.is_proven = False
    return found


def _signature(model: Model) -> list[Any]:
    """Modules, their settings, and addresses of weights: all that a graph has read once."""
    found: list[Any] = [
        (x.data_ptr(), x.dtype, x.shape) for x in (*model.parameters(), *model.buffers())
    ]
    for module in model.modules():
        settings = [x for x in vars(module).values() if isinstance(x, int | float | str)]
        found += [id(module), *settings]
    return found


def _is_plain(model: nn.Module) -> bool:
    """Whether modules compute what their classes define: no hooks, no own `forward`, no dropout, plain parameters."""
    first = next(model.parameters())
    for p in model.parameters():
        if type(p) is not nn.Parameter or p.dtype != first.dtype or p.device != first.device:
            return False
    on_all = nn.modules.module
    hooks = [on_all._global_forward_hooks, on_all._global_forward_pre_hooks]
    for module in model.modules():
        hooks += [module._forward_hooks, module._forward_pre_hooks]
        is_compiled = module._compiled_call_impl is not None
        if module.training or is_compiled or "forward" in vars(module):
            return False
    return not any(hooks)
