"""Backbones: embeddings to contextual hidden states, all behind `seqkit.interfaces.Backbone`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "attention_decoder": ["AttentionDecoder"],
        "encoder_decoder": ["EncoderDecoder"],
        "gps": ["GPSBlock"],
        "mamba": ["Mamba"],
        "mean_pool": ["MeanPool"],
        "message_passing": ["APPNP", "GCN", "GIN"],
        "reversible": ["Reversible"],
        "rnn": ["GRU", "LSTM", "RNN"],
        "rnn_decoder": ["RNNDecoder"],
        "s4d": ["S4D"],
        "tcn": ["TCN"],
        "towers": ["Towers"],
        "transformer": ["Transformer"],
    },
)
