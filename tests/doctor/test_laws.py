"""Masks that leak, targets that are given and positions that are dropped are found, each by its own check."""

import pytest
import torch

from seqkit.doctor import laws
from seqkit.doctor.laws import _cuts, check_future, check_padding, check_positions, check_target
from seqkit.interfaces import TokenBatch, Tokens

LAWS = [check_padding, check_future, check_target, check_positions]
BIDIRECTIONAL = ["--model.backbone.causal", "false", "--model.backbone.block.attention.convolution", "null"]
WITHOUT_ROTARY = ["--model.backbone.position", "null", "--model.position", "NoPosition"]


@pytest.mark.parametrize(
    ("recipe", "words", "check", "fix"),
    [
        ("audio/spoken-digits", ["--model.backbone", "SeesPadding"], check_padding, "(now SeesPadding)"),
        ("mechanism/copy", ["--model.backbone", "SeesTheFuture"], check_future, "--model.backbone Transformer"),
        (
            "text/char-lm",
            ["--model.objective", "NextTokenOfAnything", *BIDIRECTIONAL],
            check_future,
            "--model.backbone.causal true",
        ),
        ("text/char-lm", ["--model.objective", "SameToken"], check_target, "--model.objective NextToken"),
        ("image/masked-patches", ["--model.objective", "MasksNothing"], check_target, "--model.objective"),
        ("image/digits", ["--model.position", "NoPosition"], check_positions, "--model.position Sinusoidal"),
        ("image/digits", ["--model.position", "Forgotten"], check_positions, "--model.position Sinusoidal"),
        ("multimodal/regress", ["--model.position", "NoPosition"], check_positions, "--model.position Sinusoidal"),
        ("image/digits", ["--tokenizer", "WithoutPlaces"], check_positions, "--tokenizer (now WithoutPlaces)"),
        ("text/char-lm", WITHOUT_ROTARY, check_positions, "--model.backbone.position Rotary"),
        pytest.param(
            "text/g2p",
            ["--model.position", "NoPosition", "--model.backbone.encoder.position", "null"],
            check_positions,
            "--model.backbone.encoder.position Rotary",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_broken_law_is_found_and_no_other(subject, recipe, words, check, fix):
    made = subject(recipe, *words)
    found = {law: law(made).finding for law in LAWS}
    assert [law for law, finding in found.items() if finding] == [check]
    assert fix in found[check].fix


CONVOLUTION = "{type: ConvolutionalPosition, kernel_size: 5, num_groups: 2}"


def test_content_that_reaches_the_model_under_the_mask_is_found(subject):
    made = subject("image/masked-patches")
    made.model.embedder.mask_token.requires_grad_(False)
    forward = type(made.model.embedder).forward
    type(made.model.embedder).forward = lambda self, batch, masked=None: forward(self, batch)
    try:
        finding = check_target(made).finding
    finally:
        type(made.model.embedder).forward = forward
    assert "does not replace the content" in finding.cause


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("text/char-lm", []),
        ("text/char-lm", ["--model.backbone.position", "ALiBi"]),
        ("text/char-lm", ["--model.backbone.position", "null", "--model.position", "{type: Learned, sizes: [64]}"]),
        ("text/masked-lm", ["--model.backbone.position", "null", "--model.position", CONVOLUTION]),
        ("text/char-lm", ["--model.backbone", "LSTM"]),
        ("image/digits", ["--model.backbone", "Mamba"]),
        ("image/digits", ["--model.backbone", "MeanPool"]),
        pytest.param("text/g2p", ["--model.backbone.encoder", "GRU"], marks=pytest.mark.slow),
        ("graph/solubility", ["--model.backbone", "GIN"]),
    ],
)
def test_other_backbones_and_positions_keep_the_laws(subject, recipe, words):
    made = subject(recipe, *words)
    assert [law.__name__ for law in LAWS if law(made).finding] == []


@pytest.mark.parametrize(
    ("recipe", "check", "why"),
    [
        ("image/digits", check_future, "bidirectional"),
        ("image/digits", check_target, "labels"),
        ("graph/karate", check_positions, "no positions"),
        ("mechanism/parity", check_positions, "in their order"),
    ],
)
def test_a_law_that_says_nothing_here_says_why(subject, recipe, check, why):
    result = check(subject(recipe))
    assert not result.applies
    assert why in result.measured


@pytest.mark.parametrize(
    ("lengths", "cuts"), [([3, 11], [0, 3, 6, 9]), ([5], [0, 1, 2, 3]), ([3], [0, 1]), ([2, 1], [0]), ([1], [])]
)
def test_the_future_is_changed_after_four_columns_from_the_first_to_the_last_but_one(lengths, cuts):
    tokens = [Tokens(torch.zeros(n, dtype=torch.int64), torch.zeros(n, 1)) for n in lengths]
    assert _cuts(TokenBatch.collate(tokens)) == cuts


def test_not_a_number_after_one_of_several_tokens_is_a_leak(subject, monkeypatch):
    differences = iter([0.0, float("nan"), 0.0, 0.0])
    monkeypatch.setattr(laws, "_future_difference", lambda *_: next(differences))
    assert check_future(subject("mechanism/copy")).finding
