"""Matrices of a model, and how wide their inputs are: what rates that transfer over width are scaled by."""

from __future__ import annotations

from torch import nn

from seqkit.errors import UsageError
from seqkit.interfaces import Backbone
from seqkit.nn.position.base import RelativePosition
from seqkit.nn.position.bias import EdgeBias

TABLES = (nn.Embedding, RelativePosition, EdgeBias)
"""Modules of a backbone whose parameters are looked up: no matrix multiplies by them."""


def matrices(module: nn.Module) -> list[nn.Parameter]:
    """Matrices that something is multiplied by: the parameters with two axes, without tables, trainable or not."""
    # its parameters are a vector for each head; its import takes as long as torch's
    from seqkit.nn.attention.additive import AdditiveAttention

    tables = _inside(module, (*TABLES, AdditiveAttention))
    return [p for p in module.parameters() if p.ndim == 2 and p not in tables]


def input_widths(model: nn.Module) -> dict[nn.Parameter, int]:
    """Width of the backbone that each matrix of the backbones and heads of a model or a mixture takes its input from.

    Other parameters, those of embedders among them, are left out: the number of their inputs does not grow with the
    width. So are a mixer's stacks of a matrix for each head: a wider model is taken to have more heads, no wider ones.
    Raises UsageError for a model without a backbone, with a tied head, whose matrix is also a table, or with LoRA, of
    which one matrix takes its inputs from the other.
    """
    # a recipe is read without them
    from seqkit.model import Model
    from seqkit.nn.attention.linformer import LinformerAttention
    from seqkit.nn.heads import TiedHead

    widths: dict[nn.Parameter, int] = {}
    for module in model.modules():  # a backbone comes before those that it is made of
        if isinstance(module, TiedHead):
            raise UsageError(
                "base_width scales the rate of the head, and a tied head has the embedder's; give "
                "model.objective.tied=false, or leave out base_width"
            )
        if hasattr(module, "base_layer"):  # peft's
            raise UsageError("base_width is not for LoRA; leave out one of them")
        if isinstance(module, Backbone):
            widths |= dict.fromkeys(matrices(module), module.dim)
        if isinstance(module, Model):
            widths |= dict.fromkeys(matrices(module.head), module.backbone.dim)
    if not widths:
        raise UsageError("base_width is for a model with a backbone; leave it out")
    over_tokens = _inside(model, LinformerAttention)
    return {p: width for p, width in widths.items() if p not in over_tokens}


def _inside(
    module: nn.Module, kinds: type[nn.Module] | tuple[type[nn.Module], ...]
) -> set[nn.Parameter]:
    """Parameters of the modules of these kinds."""
    return {p for one in module.modules() if isinstance(one, kinds) for p in one.parameters()}
