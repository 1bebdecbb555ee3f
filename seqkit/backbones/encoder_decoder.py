"""Encoder–decoder: two backbones, of which the second generates one sequence from the first's output.

b batch · n tokens of the target · m tokens of the source · d width
"""

from __future__ import annotations

from torch import Tensor

from seqkit.interfaces import Backbone, Cache, Embedded, TokenSpec


class EncoderDecoder(Backbone):
    """Encoder and decoder (Sutskever et al. 2014; Vaswani et al. 2017, figure 1).

    encoder: any bidirectional backbone. decoder: causal, with cross-attention: a `Transformer` whose blocks have
    cross_attention=True, an `RNNDecoder`, or any other backbone in an `AttentionDecoder`.
    Packed targets (`segments`) each begin anew and attend to the whole source of their row; packed sources are refused.
    Raises ValueError where one of them is neither, or widths differ.
    """

    def __init__(self, encoder: Backbone, decoder: Backbone):
        super().__init__()
        if encoder.causal or encoder.is_encoder_decoder:
            raise ValueError(
                f"the encoder ({type(encoder).__name__}) should be bidirectional and take one sequence; "
                "build it with causal=False and blocks with cross_attention=False"
            )
        if not decoder.causal or not decoder.is_encoder_decoder:
            raise ValueError(
                f"the decoder ({type(decoder).__name__}) should be causal and attend to the encoder's output; "
                "build it with causal=True and blocks with cross_attention=True"
            )
        if encoder.dim != decoder.dim:
            raise ValueError(
                f"encoder and decoder differ in width ({encoder.dim} and {decoder.dim}); make them equal"
            )
        self.encoder = encoder
        self.decoder = decoder
        self.dim = decoder.dim
        self.causal = True
        self.num_heads = encoder.num_heads
        self.supports_adjacency = encoder.supports_adjacency
        self.supports_segments = decoder.supports_segments
        self.is_encoder_decoder = True
        self.uses_positions = decoder.uses_positions
        self.is_recurrent = decoder.is_recurrent
        self.ignores_order = decoder.ignores_order
        self.needs_unit_inputs = decoder.needs_unit_inputs

    def get_encoder(self) -> Backbone:
        return self.encoder

    def check_supported(self, spec: TokenSpec) -> None:
        """Raise ValueError if the encoder does not support tokens of that spec."""
        self.encoder.check_supported(spec)

    def add_edge_bias(self, num_edge_types: int) -> None:
        self.encoder.add_edge_bias(num_edge_types)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden states [b n d] of the target tokens.

        With a cache, `embedded.source` is needed only the first time.
        """
        source = embedded.source
        memory = None
        if source is not None:
            memory = source.replace(hidden=self.encoder(source), adjacency=None)
        return self.decoder(embedded.replace(source=None, memory=memory), cache)

    def init_cache(self, max_tokens: int) -> Cache:
        """The decoder's cache, which keeps the encoder's output too."""
        return self.decoder.init_cache(max_tokens)
