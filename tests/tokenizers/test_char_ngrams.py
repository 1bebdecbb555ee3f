"""Words as bags of character n-grams, checked by scikit-learn's n-grams and by sums that are written out."""

from pathlib import Path

import pytest
import torch

from seqkit.backbones import TCN
from seqkit.errors import DataError
from seqkit.export.graph import export
from seqkit.interfaces import Objective, Tokens
from seqkit.model import Model
from seqkit.objectives import Classify, Masked, NextToken
from seqkit.tokenizers import CharNGrams
from seqkit.tokenizers.char_ngrams import PIECE, BagEmbedding
from seqkit.tokenizers.text import UNKNOWN

TEXTS = ["The cat's hat, the bat", "a rather long-winded sentence", "x"]


def fitted() -> CharNGrams:
    tokenizer = CharNGrams()
    tokenizer.fit(TEXTS)
    return tokenizer


def known(tokens: Tokens) -> list[list[int]]:
    return [[i for i in row if i] for row in tokens.content.tolist()]


def test_ngrams_are_those_of_scikit_learn_within_words() -> None:
    feature_extraction = pytest.importorskip("sklearn.feature_extraction.text")
    by_sklearn = feature_extraction.CountVectorizer(analyzer="char_wb", ngram_range=(2, 5))
    tokenizer, text = fitted(), "the rather long bat"
    vocabulary = set(by_sklearn.fit([text]).vocabulary_) & set(tokenizer.state()["ngrams"])
    ngrams = ["", *tokenizer.state()["ngrams"]]
    assert {
        ngrams[i] for ids in known(tokenizer.encode(text)) for i in ids if len(ngrams[i]) <= 5
    } == vocabulary


def test_a_new_word_shares_ngrams_with_known_ones_and_none_with_others() -> None:
    old, new, other = known(fitted().encode("rather ratherly qqq"))
    assert set(new) & set(old)
    assert len(new) < len(old)
    assert other == []


def test_a_word_too_long_for_a_token_is_divided_and_fills_no_more_ids_than_the_spec_says() -> None:
    tokenizer = CharNGrams()
    letters = "".join(map(chr, range(ord("a"), ord("a") + PIECE)))
    tokenizer.fit([letters + "xyz"])
    first, second = known(tokenizer.encode(letters + "xyz"))
    assert len(first) == len(tokenizer.spec.vocab_sizes)
    assert len(second) == 4 + 3 + 2 + 1  # of " xyz ", which is the word itself


def test_the_order_of_texts_changes_nothing_and_the_most_frequent_ngrams_stay() -> None:
    tokenizer, other = CharNGrams(7), CharNGrams(7)
    tokenizer.fit(TEXTS)
    other.fit(TEXTS[::-1])
    assert tokenizer.state() == other.state()
    assert tokenizer.state()["ngrams"] == fitted().state()["ngrams"][:7]


def test_case_is_dropped() -> None:
    assert known(fitted().encode("CAT")) == known(fitted().encode("cat"))


def test_words_decode_with_spaces_and_unknown_ones_as_such() -> None:
    words = fitted().decode(fitted().encode("The hat, ratherly!")).split()
    assert words == ["the", "hat", ",", UNKNOWN, UNKNOWN]


def test_the_embedding_is_the_sum_of_the_ngrams_over_the_root_of_their_number() -> None:
    embedding = BagEmbedding(11, 3)
    content = torch.tensor([[[1, 5, 7, 0], [0, 0, 0, 0]]])
    rows = embedding.table.weight
    expected = torch.stack([(rows[1] + rows[5] + rows[7]) / 3**0.5, torch.zeros(3)])[None]
    torch.testing.assert_close(embedding(content), expected)


def test_a_compiled_embedding_is_the_same_and_ignores_the_row_of_no_id() -> None:
    embedding = BagEmbedding(11, 3)
    torch.nn.init.normal_(embedding.table.weight)  # the row of padding, too
    content = torch.tensor([[[1, 5, 7, 0], [0, 0, 0, 0]], [[2, 0, 0, 0], [9, 10, 3, 4]]])
    compiled = torch.compile(embedding, backend="eager")
    torch.testing.assert_close(compiled(content), embedding(content))


@pytest.mark.slow
def test_a_model_of_bags_exports_for_any_sizes(tmp_path: Path) -> None:
    objective = Classify()
    objective.fit([0, 1, 2], None)
    model = Model(fitted().spec, TCN(6, 1), objective).eval()
    assert export(model, tmp_path / "graph.pt2", "torch", {}) < 1e-5


@pytest.mark.parametrize("objective", [NextToken(), Masked()])
def test_no_objective_predicts_bags(objective: Objective) -> None:
    with pytest.raises(ValueError, match="bags"):
        Model(fitted().spec, TCN(6, causal=objective.causal), objective)


@pytest.mark.parametrize("raw", ["", " \n", 7])
def test_a_text_without_words_is_an_error(raw: object) -> None:
    with pytest.raises(DataError):
        fitted().encode(raw)
    with pytest.raises(DataError):
        CharNGrams().fit([raw])  # type: ignore[list-item]


def test_impossible_settings_and_states_are_errors() -> None:
    with pytest.raises(ValueError, match="max_ngrams"):
        CharNGrams(0)
    with pytest.raises(ValueError, match="fit"):
        CharNGrams().spec  # noqa: B018  asked for the error
    with pytest.raises(ValueError, match="ngrams"):
        CharNGrams().load_state({"ngrams": "ab"})
