"""Two backbones as one: the first reads a sequence both ways, the second writes another from it.

b batch · n tokens written · m tokens read · d width
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from seqkit.contract import Backbone, Cache, Embedded, TokenSpec


class Seq2Seq(Backbone):
    """Encoder and decoder (Sutskever et al. 2014; Vaswani et al. 2017, figure 1).

    encoder: any backbone that reads both ways. decoder: causal, and reads another sequence: a `Transformer` whose
    blocks have cross=True, or a `RecurrentDecoder`.
    Raises ValueError where one is not what its place asks, or widths differ.
    """

    def __init__(self, encoder: Backbone, decoder: Backbone):
        super().__init__()
        if encoder.causal or encoder.reads_memory:
            raise ValueError(
                f"the encoder ({type(encoder).__name__}) should read one sequence, both ways; "
                "build it with causal=False and blocks that do not cross"
            )
        if not decoder.causal or not decoder.reads_memory:
            raise ValueError(
                f"the decoder ({type(decoder).__name__}) should be causal and read the encoder's sequence; "
                "build it with causal=True and blocks with cross=True"
            )
        if encoder.dim != decoder.dim:
            raise ValueError(f"encoder and decoder differ in width ({encoder.dim} and {decoder.dim}); make them equal")
        self.encoder, self.decoder = encoder, decoder
        self.dim, self.causal, self.num_heads = decoder.dim, True, encoder.num_heads
        self.reads_links, self.reads_memory = encoder.reads_links, True
        self.reads_positions, self.ordered = decoder.reads_positions, decoder.ordered

    def source_reader(self) -> Backbone:
        """The encoder."""
        return self.encoder

    def check(self, spec: TokenSpec) -> None:
        """Raise ValueError if the encoder cannot read tokens of that spec."""
        self.encoder.check(spec)

    def forward(self, embedded: Embedded, cache: Cache | None = None) -> Tensor:
        """Hidden vectors [b n d] of the tokens written. `embedded.memory`: what is read; with a cache, once."""
        memory = embedded.memory
        if memory is not None:
            memory = replace(memory, hidden=self.encoder(memory), links=None, link_bias=None, segments=None)
        return self.decoder(replace(embedded, memory=memory), cache)

    def init_cache(self, max_tokens: int) -> Cache:
        """The decoder's cache, which keeps what the encoder gave too."""
        return self.decoder.init_cache(max_tokens)
