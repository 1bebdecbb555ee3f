"""Mixers as candidates: by their names, as patterns in one word, and as values of the key."""

import shlex

import pytest

from seqkit.cli.compare import _settings
from seqkit.cli.parser import parser
from seqkit.comparison.candidates import backbone_values, candidates
from seqkit.comparison.patterns import backbone_or_mixers, in_a_word
from seqkit.comparison.settings import Settings, read_vary
from seqkit.config import complete
from seqkit.errors import UsageError


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("lstm", {"type": "LSTM"}),
        ("gpt_nano", {"type": "gpt_nano"}),
        ("MultiHeadAttention", {"type": "Transformer", "mixer": "MultiHeadAttention"}),
        ("2GRU", {"type": "Transformer", "mixer": ["GRU", "GRU"]}),
        ("1Mamba", {"type": "Transformer", "mixer": "Mamba"}),
        ("2mamba+null", {"type": "Transformer", "mixer": ["Mamba", "Mamba", None]}),
        ("S4D+GRU+S4D", {"type": "Transformer", "mixer": ["S4D", "GRU", "S4D"]}),
    ],
)
def test_a_word_is_a_backbone_or_the_mixers_of_a_transformer(word, found):
    assert backbone_or_mixers(word) == found


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("LSTN", "no backbone called 'LSTN'; did you mean LSTM"),
        ("MultiHeadAttentoin", "did you mean MultiHeadAttention"),
        ("3Mambo+GRU", "no mixer called 'Mambo'; did you mean Mamba"),
        ("Mamba+", "no mixer called ''"),
        ("0Mamba", "0Mamba"),
    ],
)
def test_a_word_that_is_neither_is_answered_with_the_nearest(word, said):
    with pytest.raises(UsageError, match=said.replace("+", r"\+")) as caught:
        backbone_or_mixers(word)
    assert "\n" not in str(caught.value)


def test_a_pattern_in_one_word_is_read_as_it_was_written():
    for word in ("3Mamba+MultiHeadAttention", "GRU+2S4D+null"):
        assert in_a_word(backbone_or_mixers(word)["mixer"]) == word


def test_mixers_are_put_into_every_transformer_of_the_recipe():
    pair = complete("text/translate", "debug")
    values = backbone_values(pair, "3GRU")
    mixers = {"type": "Transformer", "mixer": ["GRU"] * 3}
    assert values == {"model.backbone.encoder": mixers, "model.backbone.decoder": mixers}
    over = complete(dict(pair), None, backbone_values(pair, "MultiHeadAttention"))
    decoder = over["model"]["backbone"]["decoder"]
    assert decoder["block"]["cross_attention"], "the decoder stays one"
    assert decoder["mixer"] == pair["model"]["backbone"]["decoder"]["block"]["attention"]


def test_a_candidate_is_called_by_its_mixers_and_the_command_says_them_again():
    words = ["GRU", "[{type: Mamba, num_states: 8}, Mamba, null]"]
    vary = read_vary([f"model.backbone.mixer={','.join(words)}"])
    settings = Settings(recipe="text/char-lm", backbones=["Transformer", "3S4D+null"], vary=vary)
    assert [variant.name for variant in settings.variants()] == [
        "Transformer, mixer=GRU",
        "Transformer, mixer=2Mamba+null",
        "3S4D+null, mixer=GRU",
        "3S4D+null, mixer=2Mamba+null",
    ]
    args, args.overrides = parser().parse_known_args(shlex.split(settings.command())[1:])
    assert _settings(args) == settings


@pytest.mark.slow
def test_candidates_with_mixers_cost_what_the_reference_does():
    """Also where the recipe's attention has settings and a position of its own, which a recurrent mixer does not."""
    settings = Settings(
        recipe="mechanism/tasks",
        preset="debug",
        backbones=["Transformer", "GRU+RNN", "GRU+null"],
        lr_trials=0,
        measure=False,
    )
    for one in candidates(settings):
        assert abs(one.size.budget_gap) < 0.06, one.name
        assert (one.config["model"]["backbone"]["position"] is None) == (one.name == "GRU+RNN")


@pytest.mark.slow
def test_a_pattern_that_does_not_divide_the_depth_gets_the_next_that_it_does():
    settings = Settings(
        recipe="mechanism/tasks",
        preset="parity",
        overrides=["--model.backbone={type: Transformer, num_heads: 2, position: Rotary}"],
        backbones=["Transformer", "3MinGRU+MultiHeadAttention", "2MinGRU"],
        lr_trials=0,
    )
    found = candidates(settings)
    assert [one.size.depth for one in found] == [2, 4, 2]
    # what the command says of a Transformer is kept in all of them
    assert {one.config["model"]["backbone"]["num_heads"] for one in found} == {2}
    # heads of an even width let only every fourth width be; the inner width of the MLPs makes up for it
    assert max(abs(one.size.budget_gap) for one in found) < 0.02
