"""A backbone behind an embedder of its own, as laws call it: in float64 and eval mode.

b batch · n tokens · d width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from seqkit.interfaces import Backbone, Cache, Embedded, TokenBatch, Tokens, TokenSpec
from seqkit.nn.embedder import Embedder
from seqkit.nn.join_embedder import JoinEmbedder
from seqkit.nn.position.absolute import default_position
from seqkit.nn.position.bias import EdgeBias
from seqkit.testing.process import fixed_generator

Examples = Sequence[Tokens]

NEARLY_ZERO = 1e-3
"""Largest number of parameters that are given another size."""


class InFloat64(TorchFunctionMode):
    """Context in which float64 is what code gets that asks for float32 or less, so that no difference is rounding."""

    CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.CASTS:
            return args[0].double()
        return func(
            *map(self._widened, args),
            **{name: self._widened(x) for name, x in (kwargs or {}).items()},
        )

    @staticmethod
    def _widened(given: Any) -> Any:
        if isinstance(given, torch.dtype) and given.is_floating_point:
            return torch.float64
        return given


class EmbeddedBackbone(nn.Module):
    """Hidden states of a token batch, as in a `Model`: an `Embedder`, then the backbone; in float64 and eval mode.

    causal: whether tokens attend to earlier ones only, for a backbone that takes that from the batch.
    Raises ValueError if the backbone does not support such tokens.
    """

    def __init__(self, spec: TokenSpec, backbone: Backbone, *, causal: bool = False):
        super().__init__()
        backbone.check_supported(spec)
        self.causal = causal if backbone.causal is None else backbone.causal

        def embedder(own: TokenSpec) -> Embedder:
            position = default_position(backbone, own)
            return Embedder(own, backbone.dim, position=position, unit=backbone.needs_unit_inputs)

        self.embedder: nn.Module
        if spec.is_joined:
            self.embedder = JoinEmbedder(spec, backbone.dim, lambda _, own: embedder(own))
            # it starts at zero, as the edge bias does
            nn.init.normal_(self.embedder.get_parameter("modality"))
        else:
            self.embedder = embedder(spec)
        if spec.num_edge_types:
            backbone.add_edge_bias(spec.num_edge_types)
        for module in backbone.modules():
            if isinstance(module, EdgeBias):
                # it starts at zero, where ignoring it would not be noticed
                nn.init.normal_(module.weight)
        self.spec = spec
        self.backbone = backbone
        self.dtype = torch.float64
        self.double().eval()

    def embed(self, batch: TokenBatch) -> Embedded:
        """The batch as input of the backbone."""
        embedded: Embedded = self.embedder(batch.with_dtype(self.dtype))
        if self.backbone.causal is not None:
            return embedded
        return embedded.replace(causal=self.causal and batch.reach is None, reach=batch.reach)

    def forward(self, batch: TokenBatch, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d]."""
        return self.backbone(self.embed(batch), cache)

    def alone(self, x: Tokens) -> Tensor:
        """Hidden states [n d] of one example."""
        hidden: Tensor = self(TokenBatch.collate([x]))
        return hidden[0]


def leave_zero(backbone: nn.Module) -> None:
    """Give parameters that start at zero or nearly so, as an output projection may, the size that training gives them.

    What is behind them would have no effect and no gradient yet, or one that is taken for rounding.
    """
    generator = fixed_generator()
    for parameter in backbone.parameters():
        if parameter.requires_grad and not bool((parameter.abs() > NEARLY_ZERO).any()):
            with torch.no_grad():
                parameter.copy_(
                    0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                )


def has_cache(backbone: Backbone) -> bool:
    """Whether it gives a cache: `init_cache` raises ValueError where there is none, as the base class does."""
    try:
        backbone.init_cache(8)
    except ValueError:
        return False
    return True
