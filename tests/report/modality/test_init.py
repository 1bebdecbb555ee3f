"""Every tokenizer finds its renderer, and every renderer draws its examples."""

import networkx
import pytest
import torch
from graphs import graph_of

from seqkit.interfaces import Tokenizer, TokenSpec
from seqkit.raw import Waveform
from seqkit.report.figures import svg
from seqkit.report.modality import RENDERERS, Renderer, attended, find_renderer, picture
from seqkit.tokenizers.audio import LogMel
from seqkit.tokenizers.bpe import BPE
from seqkit.tokenizers.graph import Graph
from seqkit.tokenizers.graph_encodings import Degree, EdgeTokens, ShortestPath, VirtualNode
from seqkit.tokenizers.image import Patches
from seqkit.tokenizers.molecule import Molecule
from seqkit.tokenizers.text import Bytes, Characters, Words


def fitted(tokenizer, text):
    tokenizer.fit([text])
    return tokenizer


TEXT = "to be or not\nto be"
EXAMPLES = [
    (Bytes(), TEXT),
    (fitted(Characters(), TEXT), TEXT),
    (fitted(Words(), TEXT), TEXT),
    (fitted(BPE(263), TEXT), TEXT),
    (Patches(7), torch.rand(1, 21, 35)),
    (Patches((5, 3), channels=3), torch.rand(3, 10, 9)),
    (Patches(5, resize=(10, 15), num_prefix_tokens=2), torch.rand(1, 10, 9)),
    (Patches(5, resize=(10, 15), num_prefix_tokens=2, positions="index"), torch.rand(1, 10, 9)),
    (LogMel(8000, num_mels=13), Waveform(torch.randn(1, 3011) / 10, 8000)),
    (LogMel(8000, num_mels=13, normalize=False), Waveform(torch.zeros(907), 11_025)),
    (Graph(num_categories=5), graph_of([0, 4, 2, 1], [(0, 1), (1, 2)])),
    (
        Graph(encodings=[Degree(), ShortestPath(max_hops=3, unreachable=False)]),
        networkx.path_graph(7),
    ),
    (Graph(), graph_of(53, [(i, i + 1) for i in range(52)])),
    (Graph(), graph_of(3)),
    (Molecule(), "CC(=O)Oc1ccccc1C(=O)O"),
    (Molecule(encodings=[]), "[Na+].[Cl-]"),
    (Molecule(encodings=[EdgeTokens(), VirtualNode()]), "CC(=O)O"),
]


@pytest.mark.parametrize(("tokenizer", "raw"), EXAMPLES, ids=lambda x: type(x).__name__)
def test_every_renderer_draws_an_example_with_its_tokens_and_their_attention(
    tokenizer, raw, attention_to
):
    renderer, tokens = find_renderer(tokenizer), tokenizer.encode(raw)
    assert type(renderer) is not Renderer
    (part,) = picture(renderer, raw, tokens).subfigs
    assert (
        part.axes[0].get_title(loc="left") == f"{len(tokens)} tokens of {type(tokenizer).__name__}"
    )
    assert "<svg" in svg(attended(renderer, raw, tokens, attention_to(len(tokens), 0)))
    assert renderer.small_svg(raw, tokens).startswith("<svg")
    assert len(renderer.token_names(raw, tokens)) == len(tokens)


def test_a_subclass_is_rendered_as_its_nearest_base_class(monkeypatch):
    class Mine(Bytes):
        pass

    assert type(find_renderer(Mine())).__name__ == "TextRenderer"
    monkeypatch.setitem(RENDERERS, Mine, Renderer)
    assert type(find_renderer(Mine())) is Renderer


def test_a_plug_in_of_the_same_name_gets_the_generic_renderer():
    class Graph(Tokenizer):
        @property
        def spec(self):
            return TokenSpec(num_features=2)

        def encode(self, raw, /):
            raise NotImplementedError

    assert type(find_renderer(Graph())) is Renderer
