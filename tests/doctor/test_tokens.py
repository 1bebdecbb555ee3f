"""Tokens that do not tell examples apart, and inputs that no model can use, are found."""

import pytest
import torch

from seqkit.doctor.tokens import check_inputs, check_tokens


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("text/char-lm", ["--tokenizer", "SameIds"]),
        ("text/char-lm", ["--tokenizer", "SameTokens", "--data.window", "3"]),
        ("image/digits", ["--tokenizer", "Constant"]),
    ],
)
def test_a_tokenizer_that_gives_the_same_for_everything_is_found(subject, recipe, words):
    finding = check_tokens(subject(recipe, *words)).finding
    assert finding is not None
    assert f"--tokenizer (now {words[1]})" in finding.fix


@pytest.mark.parametrize(
    ("recipe", "tokenizer"),
    [
        ("text/char-lm", "DropsTheSecondHalf"),
        ("text/char-lm", "DropsHalfOfTheAlphabet"),
        pytest.param("text/classify", "DropsWordsOfEvenLength", marks=pytest.mark.slow),
        ("image/digits", "DropsHalfOfTheImage"),
    ],
)
def test_a_tokenizer_that_drops_half_of_its_input_is_found(subject, recipe, tokenizer):
    finding = check_tokens(subject(recipe, "--tokenizer", tokenizer)).finding
    assert "changes no token" in finding.problem
    assert f"--tokenizer (now {tokenizer})" in finding.fix


def test_positions_that_are_rounded_are_found(subject):
    finding = check_tokens(subject("text/char-lm", "--tokenizer", "FarAway")).finding
    assert "1.7e+09" in finding.problem
    assert "FarAway" in finding.fix


@pytest.mark.slow
def test_an_id_that_nearly_all_targets_have_is_found(subject, monkeypatch):
    made = subject("text/g2p")
    assert check_tokens(made).finding is None
    for _, label in made.batches:
        label[label > 0] = 1
    assert "target ids" in check_tokens(made).finding.problem


@pytest.mark.parametrize(
    ("recipe", "words", "problem"),
    [
        ("image/digits", ["--tokenizer", "Amplified"], "content has size"),
        ("image/digits", ["--tokenizer", "Constant"], "no feature varies"),
        ("audio/spoken-digits", ["--data", "Overdriven"], "largest amplitude"),
    ],
)
def test_saturated_inputs_are_found(subject, recipe, words, problem):
    assert problem in check_inputs(subject(recipe, *words)).finding.problem


def test_tokens_that_are_all_equal_are_found_however_their_features_differ(subject):
    made = subject("image/digits")
    for batch, _ in made.batches:
        batch.content.copy_(torch.linspace(-1.0, 1.0, batch.content.shape[-1]).expand_as(batch.content))
    assert "no feature varies" in check_inputs(made).finding.problem


def test_one_column_in_another_unit_is_found(subject):
    made = subject("graph/solubility")
    assert check_inputs(made).finding is None
    for i, (batch, _) in enumerate(made.batches):
        batch.content[..., 3] = 50.0 * (i % 2)
    assert "feature 3 has size 3" in check_inputs(made).finding.problem


def test_vanishing_inputs_are_found(subject):
    made = subject("image/digits")
    for batch, _ in made.batches:
        batch.content.mul_(1e-3)
    assert "positions drown them" in check_inputs(made).finding.cause


@pytest.mark.slow
def test_content_of_ids_has_no_size(subject):
    assert not check_inputs(subject("mechanism/copy")).applies
