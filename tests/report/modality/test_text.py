"""Text in pictures: the pieces are the tokens', and colours stand where attention goes."""

from seqkit.report.figures import svg
from seqkit.report.modality import attended, picture
from seqkit.report.modality.base import WARM
from seqkit.report.modality.text import LINE_WIDTH, MAX_NAME, MAX_PIECES, TextRenderer
from seqkit.tokenizers import CharNGrams
from seqkit.tokenizers.bpe import BPE
from seqkit.tokenizers.text import Bytes, Characters, Words


def fitted(tokenizer, text):
    tokenizer.fit([text])
    return tokenizer


def texts_in(figure):
    return [t.get_text() for axes in figure.axes for t in axes.texts]


def test_pieces_join_to_the_text():
    tokenizer = fitted(BPE(271), "so so so so near, so far")
    assert (
        "".join(TextRenderer(tokenizer).pieces(tokenizer.encode("so far\nso near")))
        == "so␣far↵so␣near"
    )


def test_an_incomplete_character_is_shown_as_its_byte():
    assert TextRenderer(Bytes()).pieces(Bytes().encode("aé\x00")) == ["a", "‹c3›", "‹a9›", "‹00›"]


def test_a_token_is_named_by_its_piece_which_may_be_shortened():
    letters = fitted(Characters(), "to be\n")
    assert TextRenderer(letters).token_names("o e\n", letters.encode("o e\n")) == [
        "o",
        "␣",
        "e",
        "↵",
    ]
    words = fitted(Words(), "a " + "b" * 30)
    name = TextRenderer(words).token_names("b" * 30, words.encode("b" * 30))[0]
    assert len(name) == MAX_NAME
    assert name.endswith("b…")


def test_a_bag_of_ngrams_is_named_by_its_word():
    bags = fitted(CharNGrams(), "to be, or not")
    tokens = bags.encode("to begin")
    assert TextRenderer(bags).token_names("to begin", tokens) == ["to", "‹00›"]
    assert texts_in(picture(TextRenderer(bags), "to be", bags.encode("to")))[0] == "to"


def test_text_shows_piece_and_id_of_each_of_the_first_tokens():
    tokenizer = Characters("abc")
    renderer = TextRenderer(tokenizer)
    assert texts_in(picture(renderer, "cab", tokenizer.encode("cab"))) == [
        "c",
        "2",
        "a",
        "0",
        "b",
        "1",
    ]
    assert len(texts_in(picture(renderer, "cab", tokenizer.encode("cab" * 400)))) == 2 * MAX_PIECES


def test_text_is_coloured_by_attention_in_lines(attention_to):
    letters = fitted(Characters(), "abc <&$ ")
    raw = "a <b & $c$ " * 5
    tokens = letters.encode(raw)
    received = attention_to(len(tokens), hot=4)
    figure = attended(TextRenderer(letters), raw, tokens, received)
    boxes = figure.axes[0].patches
    assert [box.get_facecolor() for box in boxes] == [WARM.to_rgba(one) for one in received]
    assert all(box.get_x() + box.get_width() <= LINE_WIDTH for box in boxes)
    assert len({box.get_y() for box in boxes}) == 2
    assert texts_in(figure) == TextRenderer(letters).pieces(tokens)
    page = svg(figure)
    assert "&lt;" in page
    assert "&amp;" in page
