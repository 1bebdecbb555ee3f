"""Each planted fault is found by its own check; healthy recipes pass, or the check says why it does not apply."""

import pytest
import torch

from seqkit.config import complete
from seqkit.config.record import learning_rates
from seqkit.doctor.laws import check_future, check_padding, check_positions, check_target
from seqkit.doctor.subject import recipe_or_run
from seqkit.doctor.tokens import check_embeddings, check_inputs, check_tokens
from seqkit.doctor.training import (
    Trials,
    check_gradients,
    check_learning_rate,
    check_overfitting,
    check_start,
    check_trained_parameters,
)

LAWS = [check_padding, check_future, check_target, check_positions]
BIDIRECTIONAL = [
    "--model.backbone.causal",
    "false",
    "--model.backbone.block.attention.convolution",
    "null",
]
WITHOUT_ROTARY = ["--model.backbone.position", "null", "--model.position", "NoPosition"]
VANISHES = [
    "--model.backbone",
    "{type: Vanishes, dim: 64, depth: 8}",
    "--model.backbone.depth",
    "8",
]


@pytest.mark.parametrize(
    ("recipe", "words", "check", "fix"),
    [
        ("image/digits", ["--model.backbone", "SeesPadding"], check_padding, "(now SeesPadding)"),
        (
            "text/char-lm",
            ["--model.backbone", "SeesTheFuture"],
            check_future,
            "--model.backbone Transformer",
        ),
        (
            "text/char-lm",
            ["--model.objective", "NextTokenOfAnything", *BIDIRECTIONAL],
            check_future,
            "causal true",
        ),
        (
            "text/char-lm",
            ["--model.objective", "SameToken"],
            check_target,
            "--model.objective NextToken",
        ),
        (
            "image/digits",
            ["--model.position", "Forgotten"],
            check_positions,
            "--model.position Sinusoidal",
        ),
        (
            "image/digits",
            ["--tokenizer", "WithoutPlaces"],
            check_positions,
            "--tokenizer (now WithoutPlaces)",
        ),
        ("text/char-lm", WITHOUT_ROTARY, check_positions, "--model.backbone.position Rotary"),
    ],
)
def test_a_broken_law_is_found_and_no_other(subject, recipe, words, check, fix):
    made = subject(recipe, *words)
    found = {law: law(made).finding for law in LAWS}
    assert [law for law, finding in found.items() if finding] == [check]
    assert fix in found[check].fix


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("text/char-lm", ["--model.backbone.position", "ALiBi"]),
        (
            "text/char-lm",
            [
                "--model.backbone.position",
                "null",
                "--model.position",
                "{type: Learned, sizes: [64]}",
            ],
        ),
        ("text/char-lm", ["--model.backbone", "LSTM"]),
        ("image/digits", ["--model.backbone", "MeanPool"]),
        ("graph/molecules", ["--model.backbone", "GIN"]),
        ("text/masked-lm", []),
        pytest.param("text/translate", [], marks=pytest.mark.slow),
        pytest.param("multimodal/caption", [], marks=pytest.mark.slow),
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
        ("series/classify", check_positions, "in their order"),
        ("mechanism/tasks", check_inputs, "ids"),
        ("mechanism/tasks", check_embeddings, "normalises its inputs"),
    ],
)
def test_a_check_that_says_nothing_here_says_why(subject, recipe, check, why):
    result = check(subject(recipe))
    assert not result.applies
    assert why in result.measured


@pytest.mark.parametrize(
    ("recipe", "words", "check", "problem"),
    [
        ("text/char-lm", ["SameTokens", "--data.window", "3"], check_tokens, "a change in 0 %"),
        ("text/char-lm", ["DropsTheSecondHalf"], check_tokens, "changes its tokens"),
        pytest.param(
            "image/digits", ["Constant"], check_tokens, "a change in 0 %", marks=pytest.mark.slow
        ),
        ("image/digits", ["Amplified"], check_inputs, "has size"),
        ("image/digits", ["Constant"], check_inputs, "no feature varies"),
    ],
)
def test_poor_tokens_and_inputs_are_found(subject, recipe, words, check, problem):
    finding = check(subject(recipe, "--tokenizer", *words)).finding
    assert problem in finding.problem
    assert words[0] in finding.fix


BARE = ["--model.backbone", "LSTM", "--model.backbone.residual", "false"]


@pytest.mark.parametrize("recipe", ["mechanism/tasks", "image/digits", "graph/molecules"])
def test_a_bare_network_gets_embeddings_of_its_size(subject, recipe):
    graph = ["--model.adjacency", "ignore"] if recipe == "graph/molecules" else []
    result = check_embeddings(subject(recipe, *BARE, *graph))
    assert result.applies
    assert result.finding is None


def test_embeddings_that_are_too_large_for_a_bare_network_are_found(subject):
    finding = check_embeddings(subject("image/digits", "--tokenizer", "Amplified", *BARE)).finding
    assert "inputs have a root mean square of" in finding.problem
    assert "LSTM does not normalise" in finding.cause


@pytest.mark.parametrize(("value", "problem"), [(50.0, "feature 3 has size"), (torch.nan, "nan")])
def test_a_column_in_another_unit_and_nan_are_found(subject, value, problem):
    made = subject("graph/molecules")
    assert check_inputs(made).finding is None
    for i, (batch, _) in enumerate(made.batches):
        batch.content[..., 3] = value * (i % 2)
    assert problem in check_inputs(made).finding.problem


@pytest.mark.parametrize(
    ("recipe", "words", "check", "problem", "fix"),
    [
        (
            "mechanism/tasks",
            ["--optimizer.lr", "0.3"],
            check_learning_rate,
            "an update changes",
            "--optimizer.lr 0.00",
        ),
        (
            "image/digits",
            ["--model.backbone", "FreezesALayer"],
            check_trained_parameters,
            "blocks.1 cannot",
            "Freezes",
        ),
        (
            "image/digits",
            ["--model.backbone", "DetachesALayer"],
            check_trained_parameters,
            "no gradient",
            "Detaches",
        ),
        (
            "image/digits",
            ["--optimizer", "ForgetsALayer"],
            check_trained_parameters,
            "did not change",
            "ForgetsALayer",
        ),
        ("image/digits", VANISHES, check_gradients, "backbone.layers.0", "PreNormBlock"),
        (
            "image/digits",
            ["--model.backbone", "Explodes"],
            check_gradients,
            "median norm",
            "--optimizer.lr",
        ),
        (
            "image/digits",
            ["--model.backbone", "Explodes"],
            check_start,
            "the initial loss",
            "--model.backbone.norm",
        ),
        (
            "image/digits",
            ["--model.backbone", "GivesNaN"],
            check_start,
            "the initial loss is nan",
            "--model.backbone",
        ),
        (
            "image/digits",
            ["--model.backbone", "GivesNaN"],
            check_gradients,
            "nan",
            "--optimizer.lr",
        ),
        (
            "image/digits",
            ["--tokenizer", "Constant"],
            check_overfitting,
            "cannot be learned",
            "--tokenizer",
        ),
    ],
)
@pytest.mark.slow
def test_a_fault_of_training_is_found(subject, recipe, words, check, problem, fix):
    result = check(Trials(subject(recipe, *words)))
    assert problem in result.finding.problem
    assert fix in result.finding.fix


def test_what_a_wild_learning_rate_does_is_not_blamed_on_the_model(subject):
    trials = Trials(
        subject("mechanism/tasks", "--optimizer", "{type: torch.optim.SGD, lr: 1.0e+30}")
    )
    assert check_learning_rate(trials).finding is not None
    assert not trials.short.is_finite
    assert len(trials.short.losses) < 10, "it ends at once"
    assert check_gradients(trials).finding is None


def test_a_loss_that_starts_too_low_is_found(subject, monkeypatch):
    trials = Trials(subject("mechanism/tasks"))
    monkeypatch.setattr("seqkit.doctor.training.LOW_START", 100.0)
    assert "part of the input" in check_start(trials).finding.cause


@pytest.mark.slow
def test_a_trial_changes_nothing_and_repeats_bit_for_bit(subject):
    made = subject("mechanism/tasks", "--model.backbone.dropout", "0.3")
    before, state = (
        {name: p.clone() for name, p in made.model.named_parameters()},
        torch.get_rng_state(),
    )
    first = Trials(made).short.losses
    assert torch.get_rng_state().equal(state)
    torch.rand(7)
    assert Trials(made).short.losses == first
    assert all(
        p.grad is None and p.equal(before[name]) for name, p in made.model.named_parameters()
    )


@pytest.mark.slow
def test_a_model_whose_steps_cost_too_much_is_not_trained(subject, monkeypatch):
    monkeypatch.setattr("seqkit.doctor.training.STEP_FLOPS", 1e3)
    assert Trials(subject("mechanism/tasks")).num_steps == 0
    monkeypatch.setattr("seqkit.doctor.subject.STEP_FLOPS", 1.0)
    assert {len(tokens) for tokens, _ in subject("mechanism/tasks").batches} == {1}


def test_every_learning_rate_of_an_optimizer_has_its_key():
    config = complete("image/digits")["optimizer"]
    assert learning_rates(config) == {"lr": 0.01, "adamw.lr": 0.003}


def test_a_run_is_told_from_a_recipe_and_other_keys_make_it_one(tmp_path):
    from seqkit.config import to_yaml

    config = complete("image/digits", "debug")
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert recipe_or_run(str(tmp_path), None, []) == (config, tmp_path)
    config, folder = recipe_or_run(str(tmp_path), None, ["--seed", "7"])
    assert (config["seed"], folder) == (7, None)
