"""Text in pictures: the pieces are the tokens', and colours stand where attention goes."""

from seqkit.report.figures import svg
from seqkit.report.modality.base import HEAT
from seqkit.report.modality.text import MAX_NAME, MAX_PIECES, TextRenderer
from seqkit.tokenizers.bpe import BPE
from seqkit.tokenizers.text import Bytes, Characters, Words


def fitted(tokenizer, text):
    tokenizer.fit([text])
    return tokenizer


def texts_in(figure):
    return [t.get_text() for axes in figure.axes for t in axes.texts]


def test_pieces_join_to_the_text():
    tokenizer = fitted(BPE(271), "so so so so near, so far")
    assert "".join(TextRenderer(tokenizer).pieces(tokenizer.encode("so far\nso near"))) == "so␣far↵so␣near"


def test_an_incomplete_character_is_shown_as_its_byte():
    assert TextRenderer(Bytes()).pieces(Bytes().encode("aé\x00")) == ["a", "‹c3›", "‹a9›", "‹00›"]


def test_a_token_is_named_by_its_piece_which_may_be_shortened():
    letters = fitted(Characters(), "to be\n")
    assert TextRenderer(letters).token_names("o e\n", letters.encode("o e\n")) == ["o", "␣", "e", "↵"]
    words = fitted(Words(), "a " + "b" * 30)
    name = TextRenderer(words).token_names("b" * 30, words.encode("b" * 30))[0]
    assert len(name) == MAX_NAME
    assert name.endswith("b…")


def test_text_shows_piece_id_and_position_of_each_token():
    tokenizer = Characters("abc")
    drawn = texts_in(TextRenderer(tokenizer).picture("cab", tokenizer.encode("cab")))
    assert drawn == ["c", "2", "0", "a", "0", "1", "b", "1", "2"]


def test_a_picture_of_the_beginning_says_how_many_tokens_there_are():
    tokenizer = Characters("abc")
    (axes,) = TextRenderer(tokenizer).picture("cab" * 400, tokenizer.encode("cab" * 400)).axes
    assert axes.get_title("left").startswith(f"Characters: {MAX_PIECES} of 1,200 tokens, ")


def test_text_is_coloured_by_attention_line_by_line(attention_to):
    letters = fitted(Characters(), "abc <&$ ")
    raw = "a <b & $c$ " * 5
    tokens = letters.encode(raw)
    summary = attention_to(len(tokens), hot=4)
    figure = TextRenderer(letters).overlay(raw, tokens, summary)
    boxes = [patch.get_facecolor() for patch in figure.axes[0].patches]
    assert len(boxes) == 3 * len(tokens)
    assert boxes[4] == HEAT(summary.scale()(summary.by_rollout[4]))
    assert boxes[3] == HEAT(summary.scale()(summary.by_rollout[3])) != boxes[4]
    drawn = [text.get_text() for text in figure.axes[0].texts]
    assert {"all layers (rollout)", "layer 0, mean of heads", "layer 1, mean of heads"} <= set(drawn)
    assert drawn.count("40") == 3, "a second line begins with token 40"
    page = svg(figure)
    assert "&lt;" in page
    assert "&amp;" in page
