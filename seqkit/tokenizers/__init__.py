"""Tokenizers: each turns one kind of raw example into tokens. A name imports its module when it is first used."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "audio": ["LogMel"],
        "bpe": ["BPE"],
        "cells": ["Cells"],
        "char_ngrams": ["CharNGrams"],
        "from_file": ["FromFile"],
        "given": ["Ids", "Series"],
        "join": ["Join"],
        "graph": ["Graph"],
        "graph_encodings": [
            "Degree",
            "EdgeTokens",
            "Laplacian",
            "RandomWalk",
            "ShortestPath",
            "VirtualNode",
        ],
        "image": ["Patches"],
        "molecule": ["Molecule"],
        "resize": ["Resize"],
        "spectrogram": ["MultiScale", "SpectrogramPatches"],
        "text": ["Bytes", "Characters", "Words"],
        "video": ["Tubelets"],
    },
)
