"""`seqkit.tokenizers` imports nothing heavy, and every name in it is in the registry."""

import subprocess
import sys

import pytest
import torch

import seqkit.tokenizers
from seqkit.interfaces import Tokenizer
from seqkit.pretrained.audio_tokenizers import WhisperMel
from seqkit.raw import GraphData
from seqkit.registry import components
from seqkit.tokenizers import Graph, LogMel, Tubelets, Words

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


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (lambda: LogMel(hop_ms=5.0, window_ms=50.0), "LogMel(window_ms=50.0, hop_ms=5.0)"),
        (lambda: Graph(None, directed=None), "Graph(num_features=None, directed=None)"),
        (lambda: Tubelets((2, 4, 4), stride=3), "Tubelets(tubelet=(2, 4, 4), stride=3)"),
        (lambda: WhisperMel(seconds=5), "WhisperMel(seconds=5)"),
        (lambda: Words(7, lowercase=True), "Words(max_words=7, lowercase=True)"),
    ],
)
def test_a_tokenizer_shows_the_settings_that_it_was_given(made, shown):
    assert repr(made()) == shown


def test_what_a_graph_tokenizer_learned_does_not_hide_that_it_was_left_open():
    graph = Graph(None)
    graph.fit([GraphData(torch.zeros(2, 3), torch.tensor([[0], [1]]))])
    assert graph.num_features == 3
    assert repr(graph) == "Graph(num_features=None)"
