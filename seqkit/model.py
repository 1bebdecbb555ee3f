"""Embedder, backbone and head as one module, checked when it is built.

b batch · n tokens
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, cast

from torch import Tensor, nn

from seqkit.backbones.compatibility import (
    backbones_of,
    check_compatible,
    check_encoders,
    check_may_mix,
    is_causal,
)
from seqkit.interfaces import Backbone, Cache, Embedded, Objective, TokenBatch, TokenSpec
from seqkit.nn.embedder import Embedder, EmbeddingSettings, TokenEmbedder
from seqkit.nn.join_embedder import JoinEmbedder
from seqkit.nn.position.absolute import default_position
from seqkit.nn.position.base import PositionalEncoding

Position = Callable[[int, int], PositionalEncoding]
"""Builds a positional encoding from the width and the number of axes."""


class Model(nn.Module):
    """Embedder, backbone and head for one tokenizer's tokens and one objective.

    spec: shape of the tokenizer's tokens. backbone: network between embeddings and head. objective: training objective,
    which makes the head. position: positional encoding that is added to the embeddings, `(dim, num_axes) ->
    PositionalEncoding`; None: sinusoidal, unless the backbone encodes positions itself, is recurrent over one axis, or
    is to know no order. positions: by name of a part of joined tokens, or for the source of an encoder–decoder by the
    name "source", its positional encoding in the place of that.
    dropout: dropout of the embeddings. adjacency: "use", or "ignore": drop it, for backbones that do not support it (a
    comparison should say so). embedding: how content is embedded. set_as_sequence: True: tokens that are a set
    (`TokenSpec.is_set`) may go through a backbone that knows their order, as they come.
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
        position: Position | None = None,
        dropout: float = 0.0,
        adjacency: Literal["use", "ignore"] = "use",
        embedding: EmbeddingSettings = EmbeddingSettings(),  # noqa: B008, it is frozen
        set_as_sequence: bool = False,
        encoders: Mapping[str, Backbone] | None = None,
        positions: Mapping[str, Position] | None = None,
    ):
        super().__init__()
        encoders = dict(encoders or {})
        positions = dict(positions or {})
        target_spec = objective.target_spec
        of_source = position if target_spec is None else positions.pop("source", position)
        for name in positions:
            spec.part(name)
        check_encoders(encoders, spec, backbone, objective)
        self.ignores_adjacency = adjacency == "ignore" and spec.num_edge_types > 0
        if self.ignores_adjacency:
            spec = spec.without_edges()
        if set_as_sequence:
            spec = spec.as_sequence()
        check_compatible(spec, backbone, objective)

        ends = (backbone, backbone.get_encoder())
        shares_unit = embedding.share_embeddings and any(
            end is not None and end.needs_unit_inputs for end in ends
        )

        def embedder(
            spec: TokenSpec, backbone: Backbone | None, position: Position | None, masks: bool
        ) -> Embedder:
            made = Embedder(
                spec,
                dim if backbone is None else backbone.dim,
                position=position or default_position(backbone, spec),
                dropout=dropout,
                uses_mask_token=masks,
                embedding=embedding,
                unit=shares_unit or (backbone is not None and backbone.needs_unit_inputs),
            )
            if made.position.mixes_tokens:
                check_may_mix(made, backbone, objective)
            return made

        def embedder_of(
            spec: TokenSpec,
            backbone: Backbone | None,
            position: Position | None,
            masks: bool = False,
        ) -> TokenEmbedder:
            parts = [] if backbone is None else backbones_of(backbone, spec)
            for own, part in parts:
                if part.num_edge_types:
                    own.add_edge_bias(part.num_edge_types)
            if not spec.is_joined:
                return embedder(spec, backbone, position, masks)

            def of_part(name: str, part: TokenSpec) -> Embedder:
                encoder = encoders.get(name) or (backbone and backbone.part(name))
                return embedder(part, encoder, positions.get(name) or position, masks)

            is_shared = all(own is backbone for own, _ in parts)
            return JoinEmbedder(spec, dim, of_part, encoders, is_shared=is_shared)

        dim = backbone.dim
        if target_spec is None:
            self.source_embedder = None
        else:
            self.source_embedder = embedder_of(spec, backbone.get_encoder(), of_source)
        self.spec = spec if target_spec is None else target_spec
        self.embedder = embedder_of(self.spec, backbone, position, objective.uses_mask_token)
        if embedding.share_embeddings:
            self._share_embeddings()
        self.backbone = backbone
        self.causal = is_causal(backbone, objective)
        self.head = objective.head(self.embedder)
        self.shortcut = objective.shortcut()

    def forward(
        self, batch: TokenBatch, masked: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """The head's prediction.

        masked: [b n] bool, True: the mask token replaces the token's content. cache: `batch` continues its columns.
        """
        embedded = self.embed(batch, masked)
        outputs: Tensor = self.head(self.backbone(embedded, cache), embedded)
        if self.shortcut is None:
            return outputs
        return self.shortcut(outputs, batch)

    def embed(self, batch: TokenBatch, masked: Tensor | None = None) -> Embedded:
        """Input of the backbone: the embeddings, those of the source, and how far tokens may attend."""
        if self.shortcut is not None:
            batch = self.shortcut.differences(batch)
        source = batch.source
        if self.ignores_adjacency:
            source = None if source is None else source.replace(adjacency=None)
            batch = batch.replace(adjacency=None)
        embedded = cast(Embedded, self.embedder(batch, masked))
        if source is not None:
            if self.source_embedder is None:
                raise ValueError(
                    "this model takes one sequence; a batch with a source is for the objective Seq2Seq"
                )
            embedded = embedded.replace(source=self.source_embedder(source))
        if self.backbone.causal is None:
            causal = self.causal and batch.reach is None
            embedded = embedded.replace(causal=causal, reach=batch.reach)
        # a causal backbone keeps every reach: it sees less
        elif batch.reach is not None and not self.causal:
            raise ValueError(
                "the batch says how far tokens may attend (reach), and this backbone has causal=False"
            )
        return embedded

    def _share_embeddings(self) -> None:
        source = self.source_embedder
        if not (isinstance(source, Embedder) and isinstance(self.embedder, Embedder)) or not (
            source.spec.ids and self.spec.ids
        ):
            raise ValueError(
                "share_embeddings=True is for an encoder–decoder over ids; leave it out"
            )
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
