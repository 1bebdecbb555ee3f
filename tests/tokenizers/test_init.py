"""`seqkit.tokenizers` imports nothing heavy, and every name in it is in the registry."""

import subprocess
import sys

import pytest

import seqkit.tokenizers
from seqkit.interfaces import Tokenizer
from seqkit.registry import components

PARTS = {"Resize", "Degree", "EdgeTokens", "Laplacian", "RandomWalk", "ShortestPath", "VirtualNode"}
"""Names of what tokenizers are given."""


def test_importing_the_package_imports_no_heavy_library():
    heavy = ("torch", "numpy", "rdkit", "tokenizers")
    code = f"import sys, seqkit.tokenizers; print([m for m in {heavy} if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_every_name_loads_and_is_registered():
    paths = {name: component.path for name, component in components("tokenizer").items()}
    built_in = {name for name, path in paths.items() if path.startswith("seqkit.tokenizers:")}
    assert built_in == set(seqkit.tokenizers.__all__) - PARTS
    for name in seqkit.tokenizers.__all__:
        assert getattr(seqkit.tokenizers, name).__name__ == name
    assert all(issubclass(components("tokenizer")[name].load(), Tokenizer) for name in built_in)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="attribute Morse"):
        _ = seqkit.tokenizers.Morse
