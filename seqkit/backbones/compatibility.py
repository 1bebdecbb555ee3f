"""Whether tokens, a backbone and an objective give right results together: what a model checks when it is built."""

from __future__ import annotations

from collections.abc import Mapping

from seqkit.backbones.transformer import Transformer
from seqkit.interfaces import Backbone, Objective, TokenSpec
from seqkit.nn.embedder import Embedder


def backbones_of(backbone: Backbone, spec: TokenSpec) -> list[tuple[Backbone, TokenSpec]]:
    """Backbones with the tokens that each gets: all, or those of its part."""
    parts = [(backbone.part(name), part) for name, part in spec.parts]
    if not parts or parts[0][0] is backbone:
        return [(backbone, spec)]
    return parts


def is_causal(backbone: Backbone, objective: Objective) -> bool:
    """Whether tokens attend to earlier ones only in a model of these two."""
    if backbone.causal is None:
        return bool(objective.causal)
    return backbone.causal


def check_encoders(
    encoders: Mapping[str, Backbone], spec: TokenSpec, backbone: Backbone, objective: Objective
) -> None:
    """Prepare encoders of parts. Raises ValueError for one of no part, of another width, or that sees what follows."""
    for name, encoder in encoders.items():
        part = spec.part(name)
        kind = type(encoder).__name__
        if encoder.dim != (width := backbone.part(name).dim):
            raise ValueError(
                f"the encoder of {name} has dim={encoder.dim}, and the backbone {width}; use one width"
            )
        if part.num_edge_types and not encoder.supports_adjacency:
            raise ValueError(
                f"{kind}, the encoder of {name}, does not support adjacency; use GIN or Transformer"
            )
        if objective.causal and getattr(objective, "part", None) == name and not encoder.causal:
            raise ValueError(
                f"{kind}, the encoder of {name}, would see the tokens to predict; build it with causal=True"
            )
        encoder.check_supported(part)
        if part.num_edge_types:
            encoder.add_edge_bias(part.num_edge_types)


def check_may_mix(embedder: Embedder, backbone: Backbone | None, objective: Objective) -> None:
    """Raise ValueError where positions that mix tokens would show them later ones, or give a set an order."""
    name = type(embedder.position).__name__
    if embedder.spec.is_set:
        raise ValueError(
            f"these tokens are a set, whose order means nothing, and {name} uses it; use NoPosition"
        )
    if backbone is not None and is_causal(backbone, objective):
        raise ValueError(
            f"{name} adds to a token what depends on later ones, and this model predicts them; use Sinusoidal, or a "
            "bidirectional backbone"
        )


def check_compatible(spec: TokenSpec, backbone: Backbone, objective: Objective) -> None:
    """Raise ValueError, with what to change, if these three do not give right results together."""
    name = type(backbone).__name__
    goal = type(objective).__name__
    dim = getattr(backbone, "dim", None)
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
        raise ValueError(
            f"dim of {name} is {dim!r}; it is the width of its hidden states: make it an integer from 1"
        )
    if backbone.causal is None and not backbone.takes_causality:
        raise ValueError(
            f"{name} has causal=None, and cannot take it from the batch; give True or False"
        )
    if objective.causal is not None and objective.causal != is_causal(backbone, objective):
        needs = "causal" if objective.causal else "bidirectional"
        raise ValueError(
            f"{goal} needs a {needs} backbone, and this {name} is not; build it with causal={objective.causal}"
        )
    if spec.num_edge_types and not backbone.supports_adjacency:
        if spec.num_edge_types == 1:
            types = "1 edge type"
        else:
            types = f"{spec.num_edge_types} edge types"
        others = "" if spec.is_joined else " or GIN"
        if isinstance(backbone, Transformer):
            with_mechanism = " with ScaledDotProductAttention"
        else:
            with_mechanism = ""
        raise ValueError(
            f"{name} does not support adjacency (these tokens have {types}); "
            f"use Transformer{with_mechanism}{others}, or set model.adjacency=ignore"
        )
    if spec.is_joined and spec.num_edge_types and not backbone.joins_graphs:
        raise ValueError(
            f"{name} attends along edges alone, so tokens of other parts beside a graph would get nothing; use "
            "Transformer with ScaledDotProductAttention, or set model.adjacency=ignore"
        )
    if spec.is_set and (
        backbone.is_recurrent or backbone.knows_columns or is_causal(backbone, objective)
    ):
        why = "is recurrent" if backbone.is_recurrent else "is causal"
        why = "uses the order of columns" if backbone.knows_columns else why
        raise ValueError(
            f"these tokens are a set, whose order means nothing, and {name} {why}; use a bidirectional Transformer, or "
            "set model.set_as_sequence=true"
        )
    seq2seq = objective.target_spec is not None
    if seq2seq != backbone.is_encoder_decoder:
        raise ValueError(
            f"{goal} generates one sequence from another, and {name} takes only one; use the backbone EncoderDecoder"
            if seq2seq
            else f"{name} generates one sequence from another, and {goal} has only one; use the objective Seq2Seq, "
            "or a backbone that is not an encoder–decoder"
        )
    if spec.num_edge_types and not spec.num_axes and objective.causal and not seq2seq:
        raise ValueError(
            f"{goal} needs an order from left to right, which nodes without positions do not have; "
            "use Masked, Classify or Regress"
        )
    backbone.check_supported(spec)
    for own, part in backbones_of(backbone, spec):
        if own is not backbone:
            if not objective.encodes_parts_alone:
                raise ValueError(
                    f"{name} encodes each part by itself, and {goal} needs the parts together; use one backbone for "
                    "all of them, or the objective Contrastive"
                )
            check_compatible(part, own, objective)
