"""Embedder, backbone and head as one module, checked when it is built.

b batch · n tokens
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from torch import Tensor, nn

from seqkit.backbones.transformer import Transformer
from seqkit.interfaces import Backbone, Cache, Embedded, LabeledBatch, Objective, TokenBatch, TokenSpec
from seqkit.nn.embedder import Embedder, JoinEmbedder, TokenEmbedder, default_position
from seqkit.nn.position.base import PositionalEncoding


class Model(nn.Module):
    """Embedder, backbone and head for one tokenizer's tokens and one objective.

    spec: shape of the tokenizer's tokens. backbone: network between embeddings and head. objective: training objective,
    which makes the head. position: positional encoding that is added to the embeddings, `(dim, num_axes) ->
    PositionalEncoding`; None: sinusoidal, unless the backbone encodes positions itself, is recurrent over one axis, or
    is to know no order. source_position: that of an encoder–decoder's source; None: as `position`.
    positions: by name of a part of joined tokens, its positional encoding in the place of that.
    dropout: dropout of the embeddings. adjacency: "use", or "ignore": drop it, for backbones that do not support it (a
    comparison should say so).
    embedding_dim: width of an embedding table narrower than the backbone; None: as wide. embedding_norm: norm of the
    embeddings before they are projected to the backbone's width (ELECTRA); None: none. embedding_scale: factor of the
    embedded content before positions are added (Gemma, Granite). embedding_bias: whether linear layers that embed
    numbers, such as patches, have a bias (not in CLIP). share_embeddings: True: source and target of an
    encoder–decoder have one table (BART, T5); their tokenizers must be alike. set_as_sequence: True: tokens that are a
    set (`TokenSpec.is_set`) may go through a backbone that knows their order, as they come.
    encoders: by name of a part of joined tokens, a backbone that encodes its tokens before they are joined, such as GIN
    over the atoms of a molecule; it has the part's edges, whatever `adjacency` says of the joined sequence.
    Raises ValueError, with what to change, where tokenizer, backbone and objective are incompatible.

    causal: whether tokens attend to earlier ones only: the backbone's own, or where that is None, what the objective
    needs.
    """

    def __init__(
        self,
        spec: TokenSpec,
        backbone: Backbone,
        objective: Objective,
        *,
        position: Callable[[int, int], PositionalEncoding] | None = None,
        source_position: Callable[[int, int], PositionalEncoding] | None = None,
        dropout: float = 0.0,
        adjacency: Literal["use", "ignore"] = "use",
        embedding_dim: int | None = None,
        embedding_norm: Callable[[int], nn.Module] | None = None,
        embedding_scale: float = 1.0,
        embedding_bias: bool = True,
        share_embeddings: bool = False,
        set_as_sequence: bool = False,
        encoders: Mapping[str, Backbone] | None = None,
        positions: Mapping[str, Callable[[int, int], PositionalEncoding]] | None = None,
    ):
        super().__init__()
        for name in positions or ():
            spec.part(name)
        if encoders:
            _check_encoders(encoders, spec, backbone, objective)
        self.ignores_adjacency = adjacency == "ignore" and spec.num_edge_types > 0
        if self.ignores_adjacency:
            spec = spec.without_edges()
        if set_as_sequence:
            spec = spec.as_sequence()
        check_compatible(spec, backbone, objective)

        dim = backbone.dim

        def make_embedder(
            spec: TokenSpec,
            backbone: Backbone | None,
            position: Callable[[int, int], PositionalEncoding] | None,
            uses_mask_token: bool = False,
        ) -> TokenEmbedder:
            def embedder(spec: TokenSpec, backbone: Backbone | None, part: str = "") -> Embedder:
                made = Embedder(
                    spec,
                    dim if backbone is None else backbone.dim,
                    position=(positions or {}).get(part) or position or default_position(backbone, spec),
                    dropout=dropout,
                    uses_mask_token=uses_mask_token,
                    embedding_dim=embedding_dim,
                    norm=embedding_norm,
                    scale=embedding_scale,
                    bias=embedding_bias,
                )
                if made.position.mixes_tokens:
                    _check_may_mix(made, backbone, objective)
                return made

            for own, part in [] if backbone is None else backbones_of(backbone, spec):
                if part.num_edge_types:
                    own.add_edge_bias(part.num_edge_types)
            if not spec.is_joined:
                return embedder(spec, backbone)

            def of_part(name: str, part: TokenSpec) -> Embedder:
                return embedder(part, (encoders or {}).get(name) or (backbone and backbone.part(name)), name)

            is_shared = all(backbone is None or backbone.part(name) is backbone for name, _ in spec.parts)
            return JoinEmbedder(spec, dim, of_part, encoders, is_shared=is_shared)

        target_spec = objective.target_spec
        if target_spec is None and source_position is not None:
            raise ValueError("source_position is that of a source, which only an encoder–decoder has; leave it out")
        of_source = position if source_position is None else source_position
        self.source_embedder = None if target_spec is None else make_embedder(spec, backbone.get_encoder(), of_source)
        self.spec = spec if target_spec is None else target_spec
        self.embedder = make_embedder(self.spec, backbone, position, objective.uses_mask_token)
        if share_embeddings:
            self._share_embeddings()
        self.backbone = backbone
        self.causal = is_causal(backbone, objective)
        self.head = objective.head(self.embedder)

    def forward(self, batch: TokenBatch, masked: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """The head's prediction.

        masked: [b n] bool, True: the mask token replaces the token's content. cache: `batch` continues its columns.
        """
        embedded = self.embed(batch, masked)
        return self.head(self.backbone(embedded, cache), embedded)

    def embed(self, batch: TokenBatch, masked: Tensor | None = None) -> Embedded:
        """Input of the backbone: the embeddings, those of the source, and how far tokens may attend."""
        source = batch.source
        if self.ignores_adjacency:
            source = None if source is None else source.replace(adjacency=None)
            batch = batch.replace(adjacency=None)
        embedded = cast(Embedded, self.embedder(batch, masked))
        if source is not None:
            if self.source_embedder is None:
                raise ValueError("this model takes one sequence; a batch with a source is for the objective Seq2Seq")
            embedded = embedded.replace(source=self.source_embedder(source))
        if self.backbone.causal is None:
            embedded = embedded.replace(causal=self.causal and batch.reach is None, reach=batch.reach)
        elif batch.reach is not None and not self.causal:  # a causal backbone keeps every reach: it sees less
            raise ValueError("the batch says how far tokens may attend (reach), and this backbone has causal=False")
        return embedded

    def _share_embeddings(self) -> None:
        source = self.source_embedder
        if not (isinstance(source, Embedder) and isinstance(self.embedder, Embedder)) or not (
            source.spec.ids and self.spec.ids
        ):
            raise ValueError("share_embeddings=True is for an encoder–decoder over ids; leave it out")
        if source.spec.vocab_size > self.spec.vocab_size:
            raise ValueError(
                f"share_embeddings=True, but the source has {source.spec.vocab_size} ids and the target "
                f"{self.spec.vocab_size}; use the same tokenizer for both"
            )
        source.content = self.embedder.content

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters; shared ones count once."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


def first_call(objective: Objective, model: nn.Module, batch: LabeledBatch) -> tuple[TokenBatch, Tensor | None]:
    """The batch and the masked tokens with which a training step calls the model first; the model does not run."""

    class Called(Exception):
        pass

    calls: list[tuple[TokenBatch, Tensor | None]] = []

    def note(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = dict(zip(("batch", "masked"), args)) | kwargs
        calls.append((given["batch"], given.get("masked")))
        raise Called

    hook = model.register_forward_pre_hook(note, with_kwargs=True, prepend=True)
    try:
        objective.step(model, batch, training=True)
    except Called:
        return calls[0]
    finally:
        hook.remove()
    raise ValueError(f"a step of {type(objective).__name__} does not call the model; Objective.step gets it")


def backbones_of(backbone: Backbone, spec: TokenSpec) -> list[tuple[Backbone, TokenSpec]]:
    """Backbones with the tokens that each gets: all, or those of its part."""
    parts = [(backbone.part(name), part) for name, part in spec.parts]
    return [(backbone, spec)] if not parts or parts[0][0] is backbone else parts


def is_causal(backbone: Backbone, objective: Objective) -> bool:
    """Whether tokens attend to earlier ones only in a model of these two."""
    return bool(objective.causal) if backbone.causal is None else backbone.causal


def _check_encoders(
    encoders: Mapping[str, Backbone], spec: TokenSpec, backbone: Backbone, objective: Objective
) -> None:
    """Prepare encoders of parts. Raises ValueError for one of no part, of another width, or that sees what follows."""
    for name, encoder in encoders.items():
        part, kind = spec.part(name), type(encoder).__name__
        if encoder.dim != (width := backbone.part(name).dim):
            raise ValueError(f"the encoder of {name} has dim={encoder.dim}, and the backbone {width}; use one width")
        if part.num_edge_types and not encoder.supports_adjacency:
            raise ValueError(f"{kind}, the encoder of {name}, does not support adjacency; use GIN or Transformer")
        if objective.causal and getattr(objective, "part", None) == name and not encoder.causal:
            raise ValueError(
                f"{kind}, the encoder of {name}, would see the tokens to predict; build it with causal=True"
            )
        encoder.check_supported(part)
        if part.num_edge_types:
            encoder.add_edge_bias(part.num_edge_types)


def _check_may_mix(embedder: Embedder, backbone: Backbone | None, objective: Objective) -> None:
    """Raise ValueError where positions that mix tokens would show them later ones, or give a set an order."""
    name = type(embedder.position).__name__
    if embedder.spec.is_set:
        raise ValueError(f"these tokens are a set, whose order means nothing, and {name} uses it; use NoPosition")
    if backbone is not None and is_causal(backbone, objective):
        raise ValueError(
            f"{name} adds to a token what depends on later ones, and this model predicts them; use Sinusoidal, or a "
            "bidirectional backbone"
        )


def check_compatible(spec: TokenSpec, backbone: Backbone, objective: Objective) -> None:
    """Raise ValueError, with what to change, if these three do not give right results together."""
    name, goal = type(backbone).__name__, type(objective).__name__
    dim = getattr(backbone, "dim", None)
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
        raise ValueError(f"dim of {name} is {dim!r}; it is the width of its hidden states: make it an integer from 1")
    if backbone.causal is None and not backbone.takes_causality:
        raise ValueError(f"{name} has causal=None, and cannot take it from the batch; give True or False")
    if objective.causal is not None and objective.causal != is_causal(backbone, objective):
        needs = "causal" if objective.causal else "bidirectional"
        raise ValueError(
            f"{goal} needs a {needs} backbone, and this {name} is not; build it with causal={objective.causal}"
        )
    if spec.num_edge_types and not backbone.supports_adjacency:
        types = "1 edge type" if spec.num_edge_types == 1 else f"{spec.num_edge_types} edge types"
        others = "" if spec.is_joined else " or GIN"
        with_mechanism = " with ScaledDotProductAttention" if isinstance(backbone, Transformer) else ""
        raise ValueError(
            f"{name} does not support adjacency (these tokens have {types}); "
            f"use Transformer{with_mechanism}{others}, or set model.adjacency=ignore"
        )
    if spec.is_joined and spec.num_edge_types and not backbone.joins_graphs:
        raise ValueError(
            f"{name} attends along edges alone, so tokens of other parts beside a graph would get nothing; use "
            "Transformer with ScaledDotProductAttention, or set model.adjacency=ignore"
        )
    if spec.is_set and (backbone.is_recurrent or backbone.knows_columns or is_causal(backbone, objective)):
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
