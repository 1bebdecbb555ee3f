"""The solver of budgets, alone and over every backbone of every modality."""

import pytest
from foreign_models import BERT, saved

from seqkit.comparison.budget import nearest
from seqkit.comparison.candidates import NEARLY, candidates
from seqkit.comparison.settings import Settings
from seqkit.errors import UsageError

SMALL = ["--model.backbone.dim=8", "--model.backbone.depth=1"]
DIGITS = {"recipe": "image/digits", "preset": "debug", "overrides": SMALL}
SEQUENCES = ["Transformer", "LSTM", "GRU", "RNN", "TCN", "S4D", "Mamba", "MeanPool"]


@pytest.mark.parametrize("target", [1000, 12_345, 999_983])
@pytest.mark.parametrize("start", [1, 37, 5000])
def test_the_nearest_width_is_found_from_anywhere(target, start):
    def cost(width):
        return 3 * width * width + 7 * width

    width = nearest(cost, target, start)
    assert abs(cost(width) - target) == min(abs(cost(w) - target) for w in range(1, 1000))


def test_widths_that_heads_do_not_divide_are_passed_over():
    def cost(width):
        return None if width % 12 else 4 * width * width

    assert nearest(cost, 4 * 65 * 65, 60) == 60
    assert nearest(cost, 4 * 60 * 60, 24) == 60


def test_a_backbone_of_which_no_width_can_be_built_is_refused():
    with pytest.raises(ValueError, match="no width"):
        nearest(lambda width: None, 1000, 10)


@pytest.mark.slow
def test_other_depths_have_the_budget_of_the_reference_too():
    wide = ["--model.backbone.dim=32", "--model.backbone.depth=2"]
    words = {**DIGITS, "overrides": wide, "backbones": ["Transformer", "LSTM"]}
    found = candidates(Settings(**words))
    for candidate in found:
        assert candidate.size.depth == 2
        known = [other.depth for other in candidate.depths]
        assert known == [depth for depth in (1, 4, 8) if depth in known], "in order"
        assert [
            candidate.ladder[step].depth for step in (-1, 0, 1) if step in candidate.ladder
        ] == [depth for depth in (1, 2, 4) if depth in (2, *known)]
        for other in candidate.depths:
            assert other.budget_gap == pytest.approx(
                other.parameters / found[0].size.parameters - 1
            )
            assert abs(other.budget_gap) <= NEARLY
            assert {other.width, other.depth} <= set(other.values.values())
    assert any(candidate.depths for candidate in found)
    small = {**DIGITS, "backbones": ["Transformer", "LSTM"]}
    assert not Settings(**small, depths=False).tries_depths
    assert not any(candidate.depths for candidate in candidates(Settings(**small, match="none")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "match", "names", "words"),
    [
        ("text/char-lm", "parameters", SEQUENCES, ["--data.limit=24", "--data.window=16"]),
        (
            "text/char-lm",
            "flops",
            ["Transformer", "LSTM", "TCN", "Mamba"],
            ["--data.limit=24", "--data.window=16"],
        ),
        ("image/digits", "parameters", ["Transformer", "GRU", "S4D"], []),
        ("audio/spoken-digits", "parameters", ["Transformer", "MeanPool"], ["--data.limit=50"]),
        (
            "graph/molecules",
            "parameters",
            ["Transformer", "LSTM", "GIN", "GCN", "APPNP"],
            ["--data.limit=50"],
        ),
        ("graph/molecules", "flops", ["Transformer", "GIN"], ["--data.limit=50"]),
    ],
)
def test_every_backbone_gets_the_budget_of_the_transformer_in_every_modality(
    recipe, match, names, words
):
    settings = Settings(recipe=recipe, overrides=words, backbones=names, match=match, depths=False)
    found = candidates(settings)
    assert [candidate.name for candidate in found] == names
    key = "parameters" if match == "parameters" else "flops"
    reference = getattr(found[0].size, key)
    for candidate in found:
        assert abs(getattr(candidate.size, key) / reference - 1) <= NEARLY, candidate.name
        assert candidate.size.budget_gap == pytest.approx(
            getattr(candidate.size, key) / reference - 1
        )
    ignoring = [c.name for c in found if c.notes]
    along_edges = {"Transformer", "GIN", "GCN", "APPNP"}
    assert ignoring == ([n for n in names if n not in along_edges] if "graph" in recipe else [])


@pytest.mark.slow
def test_an_encoder_decoder_gets_the_backbone_on_both_sides():
    settings = Settings(
        recipe="text/translate",
        depths=False,
        overrides=["--data.limit=50"],
        backbones=["Transformer", "GRU", "TCN", "S4D", "Mamba"],
    )
    found = candidates(settings)
    for candidate in found[1:]:
        backbone = candidate.config["model"]["backbone"]
        assert (
            backbone["encoder"]["type"] == backbone["decoder"]["backbone"]["type"] == candidate.name
        )
        assert backbone["encoder"]["dim"] == backbone["decoder"]["backbone"]["dim"]
        assert abs(candidate.size.budget_gap) <= NEARLY


@pytest.mark.slow
def test_a_combination_that_cannot_be_right_is_refused_before_anything_runs():
    with pytest.raises(UsageError, match=r"GIN: .*adjacency"):
        candidates(Settings(**DIGITS, backbones=["Transformer", "GIN"]))
    with pytest.raises(UsageError, match="LSTM"):
        candidates(Settings(**DIGITS, backbones=["Transformer", "LSTN"]))


@pytest.mark.slow
def test_a_foreign_model_that_has_its_weights_keeps_its_width(tmp_path):
    saved(tmp_path, "Bert", BERT)
    rows = [f"{'ab'[i % 2]} film {i},{'yn'[i % 2]}" for i in range(60)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    of_texts = [f"--data={tmp_path / 'texts.csv'}"]
    words = {
        "recipe": "text/classify",
        "preset": "debug",
        "overrides": of_texts,
        "vary": {"model.init": ["null", str(tmp_path)]},
    }
    with pytest.raises(UsageError, match=r"model\.init .*--match none"):
        candidates(Settings(**words))
    random, begun = candidates(Settings(**words, match="none"))
    assert (
        begun.config["model"]["backbone"]["dim"]
        == BERT["hidden_size"]
        != random.config["model"]["backbone"]["dim"]
    )
    with pytest.raises(UsageError, match=r"LSTM: model\.init "):
        words = {
            "recipe": "text/classify",
            "preset": "debug",
            "overrides": [*of_texts, f"--model.init={tmp_path}"],
        }
        candidates(Settings(**words, backbones=["Transformer", "LSTM"], match="none"))


def test_two_names_of_one_configuration_are_refused():
    settings = Settings(**DIGITS, vary={"model.dropout": ["0.1", "0.10"]})
    with pytest.raises(UsageError, match="same configuration"):
        candidates(settings)


@pytest.mark.slow
def test_data_without_a_validation_split_is_compared_untuned_or_not_at_all():
    words = {**DIGITS, "recipe": "graph/karate", "backbones": ["LSTM", "GRU"], "match": "none"}
    words["overrides"] = [
        *SMALL,
        "--data.source.valid_per_class",
        "0",
        "--data.source.per_class",
        "1",
    ]
    with pytest.raises(UsageError, match=r"LSTM: .*validation"):
        candidates(Settings(**words))
    assert len(candidates(Settings(**words, lr_trials=0))) == 2


@pytest.mark.slow
def test_whatever_a_component_of_ones_own_raises_is_one_line_with_its_candidate(monkeypatch):
    from seqkit.backbones.rnn import GRU

    def wrong(self, embedded, cache=None):
        raise KeyError("my own mistake")

    monkeypatch.setattr(GRU, "forward", wrong)
    with pytest.raises(UsageError, match="GRU: KeyError: 'my own mistake'"):
        candidates(Settings(**DIGITS, backbones=["LSTM", "GRU"]))
    monkeypatch.undo()
    monkeypatch.setattr(
        GRU, "check_supported", lambda self, spec: next(self.parameters()).sum().item()
    )
    with pytest.raises(UsageError, match=r"GRU: .*x\.is_meta"):
        candidates(Settings(**DIGITS, backbones=["LSTM", "GRU"]))


@pytest.mark.slow
def test_a_backbone_that_looks_at_values_is_a_candidate_with_its_flops(monkeypatch):
    from seqkit.backbones.rnn import GRU

    settings, forward = Settings(**DIGITS, backbones=["LSTM", "GRU"]), GRU.forward
    expected = [candidate.size.flops for candidate in candidates(settings)]
    monkeypatch.setattr(
        GRU,
        "forward",
        lambda self, embedded, cache=None: forward(self, embedded) * bool(embedded.valid.tolist()),
    )
    assert [candidate.size.flops for candidate in candidates(settings)] == expected


@pytest.mark.parametrize(
    ("longest", "farthest"), [pytest.param(13, None, marks=pytest.mark.slow), (14, 12)]
)
def test_a_receptive_field_is_compared_with_the_longest_test_example(longest, farthest):
    """Training examples have 12 tokens; a TCN of two blocks sees those up to 12 back."""
    source = {"num_train": 40, "num_test": 20, "test_lengths": [12, longest]}
    found = candidates(
        Settings(
            recipe="mechanism/screen",
            preset="induction-heads",
            overrides=[f"--data.source.{key}={value}" for key, value in source.items()],
            backbones=["LSTM", "TCN"],
            match="none",
            depths=False,
        )
    )
    assert [candidate.size.farthest for candidate in found] == [None, farthest]
