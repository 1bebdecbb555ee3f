"""Backbones: embeddings to contextual hidden states, all behind `seqkit.interfaces.Backbone`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "encoder_decoder": ["EncoderDecoder"],
        "reversible": ["Reversible"],
        "rnn": ["GRU", "LSTM", "RNN"],
        "rnn_decoder": ["RNNDecoder"],
        "transformer": ["Transformer"],
    },
)
