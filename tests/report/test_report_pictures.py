"""Pictures of tokens: every tokenizer has one, and it shows what is in the tokens."""

import networkx
import numpy as np
import pytest
import torch

from seqkit.contract import Tokenizer, Tokens, TokenSpec
from seqkit.report import graphs
from seqkit.report.figures import svg
from seqkit.report.pictures import picture, pieces, thumbnail
from seqkit.tokenizers.audio import LogMel, Waveform
from seqkit.tokenizers.bpe import BPE
from seqkit.tokenizers.graph import Graph
from seqkit.tokenizers.image import Patches
from seqkit.tokenizers.molecule import Molecule
from seqkit.tokenizers.text import Bytes, Characters, Words


class Windows(Tokenizer):
    """A plug-in that no picture knows."""

    @property
    def spec(self):
        return TokenSpec(num_features=3, num_axes=2)

    def encode(self, raw, /):
        return Tokens(torch.tensor(raw).reshape(-1, 3), torch.rand(len(raw) // 3, 2))


def fitted(tokenizer, text):
    tokenizer.fit([text])
    return tokenizer


def words_in(figure):
    return [t.get_text() for axes in figure.axes for t in axes.texts]


TEXT = "to be or not\nto be"
EXAMPLES = [
    (Bytes(), TEXT),
    (fitted(Characters(), TEXT), TEXT),
    (fitted(Words(), TEXT), TEXT),
    (fitted(BPE(263), TEXT), TEXT),
    (Patches(7), torch.rand(1, 21, 35)),
    (Patches((5, 3), channels=3), torch.rand(3, 10, 9)),
    (LogMel(8000, num_mels=13), Waveform(torch.randn(1, 3011) / 10, 8000)),
    (LogMel(8000, num_mels=13, normalize=False), Waveform(torch.zeros(907), 11_025)),
    (Graph(num_categories=5), ([0, 4, 2, 1], [(0, 1), (1, 2)])),
    (Graph(reach=None, max_hops=3), networkx.path_graph(7)),
    (Graph(), (53, [(i, i + 1) for i in range(52)])),
    (Graph(), (3, [])),
    (Molecule(), "CC(=O)Oc1ccccc1C(=O)O"),
    (Molecule(reach=1), "[Na+].[Cl-]"),
    (Windows(), [float(i) for i in range(33)]),
]


@pytest.mark.parametrize(("tokenizer", "raw"), EXAMPLES, ids=lambda x: type(x).__name__)
def test_every_tokenizer_has_a_picture_and_a_thumbnail(tokenizer, raw):
    tokens = tokenizer.encode(raw)
    figure = picture(tokenizer, raw, tokens)
    assert "<svg" in svg(figure)
    assert str(len(tokens)) in " ".join(axes.get_title(loc="left") for axes in figure.axes)
    axes = figure.add_subplot()
    thumbnail(tokenizer, tokens, axes)
    assert len(axes.images) == 1


def test_pieces_join_to_the_text():
    tokenizer = fitted(BPE(271), "so so so so near, so far")
    tokens = tokenizer.encode("so far\nso near")
    assert "".join(pieces(tokenizer, tokens)) == "so␣far↵so␣near"


def test_half_a_character_is_shown_as_its_byte():
    assert pieces(Bytes(), Bytes().encode("aé\x00")) == ["a", "‹c3›", "‹a9›", "‹00›"]


def test_text_shows_piece_id_and_position_of_each_token():
    tokenizer = Characters("abc")
    drawn = words_in(picture(tokenizer, "cab", tokenizer.encode("cab")))
    assert drawn == ["c", "2", "0", "a", "0", "1", "b", "1", "2"]


def test_the_image_is_the_one_that_was_cut():
    image = torch.rand(1, 14, 21)
    tokenizer = Patches(7)
    shown = picture(tokenizer, image, tokenizer.encode(image)).axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, image[0], atol=1e-6)


def test_the_thumbnail_of_frames_stands_upright():
    tokens = Tokens(torch.arange(15.0).reshape(5, 3), torch.zeros(5, 1))
    figure = picture(Windows(), None, tokens)
    axes = figure.add_subplot()
    thumbnail(LogMel(8000, num_mels=3), tokens, axes)
    np.testing.assert_array_equal(axes.images[0].get_array(), tokens.content.T)
    assert axes.images[0].origin == "lower"


@pytest.mark.parametrize("directed", [True, False])
def test_the_matrix_of_links_has_readers_as_rows(directed):
    tokenizer = Graph(num_categories=3, directed=directed)
    raw = ([0, 1, 2], [(0, 1)])
    image = picture(tokenizer, raw, tokenizer.encode(raw)).axes[1].images[0].get_array()
    # 0 may not read, 1 is the token itself, 2 the only kind of link; node 1 reads node 0
    assert image.tolist() == [[1, 0 if directed else 2, 0], [2, 1, 0], [0, 0, 1]]


def test_a_large_graph_is_drawn_in_part_and_says_so():
    tokenizer = Graph()
    star = networkx.star_graph(101)
    figure = picture(tokenizer, star, tokenizer.encode(star))
    assert f"({graphs.MAX_NODES} of 102 drawn)" in figure.axes[0].get_title(loc="left")
    assert len(figure.axes[1].images[0].get_array()) == graphs.MAX_NODES


def test_kinds_of_link_are_named_in_their_order():
    tokenizer = Molecule(max_hops=3)
    bar = picture(tokenizer, "CCO", tokenizer.encode("CCO")).axes[2]
    named = [label.get_text() for label in bar.get_yticklabels()]
    assert named == [
        "may not read", "itself", "single", "double", "triple", "aromatic", "other", "2 bonds", "3 bonds or more",
    ]  # fmt: skip
    assert len(named) == tokenizer.spec.num_links + 2
