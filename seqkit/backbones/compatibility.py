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
    for fault, is_given in _faults(spec, backbone, objective).items():
        if is_given:
            raise ValueError(fault)
    backbone.check_supported(spec)
    for own, part in backbones_of(backbone, spec):
        if own is backbone:
            continue
        if not objective.encodes_parts_alone:
            name = type(backbone).__name__
            goal = type(objective).__name__
            raise ValueError(
                f"{name} encodes each part by itself, and {goal} needs the parts together; use one backbone for all "
                "of them, or the objective Contrastive"
            )
        check_compatible(part, own, objective)


def _faults(spec: TokenSpec, backbone: Backbone, objective: Objective) -> dict[str, bool]:
    """Combinations that cannot work: each a sentence, with what to change, and whether it is given here."""
    name = type(backbone).__name__
    goal = type(objective).__name__
    dim = getattr(backbone, "dim", None)
    causal = is_causal(backbone, objective)
    needs = "causal" if objective.causal else "bidirectional"
    has_edges = spec.num_edge_types > 0
    types = "1 edge type" if spec.num_edge_types == 1 else f"{spec.num_edge_types} edge types"
    mechanism = ""
    if isinstance(backbone, Transformer):
        mechanism = " with ScaledDotProductAttention"
        if backbone.is_recurrent:
            mechanism = " with the mixer MultiHeadAttention in every layer"
    others = "" if spec.is_joined else " or GIN"
    seq2seq = objective.target_spec is not None
    a_set = f"these tokens are a set, whose order means nothing, and {name}"
    for_a_set = "use a bidirectional Transformer, or set model.set_as_sequence=true"
    return {
        f"dim of {name} is {dim!r}; it is the width of its hidden states: make it an integer from 1": (
            type(dim) is not int or dim < 1
        ),
        f"{name} has causal=None, and cannot take it from the batch; give True or False": (
            backbone.causal is None and not backbone.takes_causality
        ),
        f"{goal} needs a {needs} backbone, and this {name} is not; build it with causal={objective.causal}": (
            objective.causal not in (None, causal)
        ),
        f"{name} does not support adjacency (these tokens have {types}); use Transformer{mechanism}{others}, or set "
        "model.adjacency=ignore": has_edges and not backbone.supports_adjacency,
        f"{name} attends along edges alone, so tokens of other parts beside a graph would get nothing; use Transformer "
        "with ScaledDotProductAttention, or set model.adjacency=ignore": (
            spec.is_joined and has_edges and not backbone.joins_graphs
        ),
        f"{a_set} uses the order of columns; {for_a_set}": spec.is_set and backbone.knows_columns,
        f"{a_set} is recurrent; {for_a_set}": spec.is_set and backbone.is_recurrent,
        f"{a_set} is causal; {for_a_set}": spec.is_set and causal,
        f"{goal} generates one sequence from another, and {name} takes only one; use the backbone EncoderDecoder": (
            seq2seq and not backbone.is_encoder_decoder
        ),
        f"{name} generates one sequence from another, and {goal} has only one; use the objective Seq2Seq, or a "
        "backbone that is not an encoder–decoder": backbone.is_encoder_decoder and not seq2seq,
        f"{goal} needs an order from left to right, which nodes without positions do not have; use Masked, Classify or "
        "Regress": has_edges and not spec.num_axes and bool(objective.causal) and not seq2seq,
    }
