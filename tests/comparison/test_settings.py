"""Settings of a comparison: candidates, the command that repeats it, refusals."""

import shlex

import pytest

from seqkit.cli.compare import _settings
from seqkit.cli.parser import parser
from seqkit.comparison import compare
from seqkit.comparison.settings import Settings, read_vary
from seqkit.comparison.stages import slug_of
from seqkit.config import complete
from seqkit.errors import UsageError


def test_a_component_in_braces_is_called_by_its_type():
    vary = read_vary(["tokenizer=Characters,{type: BPE, vocab_size: 300}"])
    assert vary == {"tokenizer": ["Characters", "{type: BPE, vocab_size: 300}"]}
    settings = Settings(recipe="text/char-lm", vary=vary)
    assert [variant.name for variant in settings.variants()] == [
        "tokenizer=Characters",
        "tokenizer=BPE",
    ]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["Mamba", "{type: Mamba, num_states: 8}"], ["Mamba", "{type: Mamba, num_states: 8}"]),
        (["{type: Mamba, num_states: 8}", "GRU"], ["Mamba", "GRU"]),
        (["[Mamba, GRU]", "[{type: Mamba, expand: 1}, GRU]", "GRU"],
         ["[Mamba, GRU]", "[{type: Mamba, expand: 1}, GRU]", "GRU"]),
    ],
)  # fmt: skip
def test_candidates_of_one_type_are_called_as_they_are_written(values, names):
    settings = Settings(recipe="text/char-lm", vary={"model.backbone.mixer": values})
    assert [one.name for one in settings.variants()] == [f"mixer={name}" for name in names]
    assert len({slug_of(one.name) for one in settings.variants()}) == len(values)


def test_the_command_on_the_page_asks_for_the_same_comparison():
    settings = Settings(
        recipe="image/digits",
        preset="debug",
        overrides=["--data.limit=50"],
        backbones=["LSTM", "S4D"],
        vary={"model.position": ["Sinusoidal", "{type: Learned, sizes: [4, 4]}"]},
        match="flops",
        seeds=2,
        lr_trials=4,
        tuning_seeds=1,
        measure=False,
        threads=1,
    )
    words = shlex.split(settings.command())
    args, args.overrides = parser().parse_known_args(words[1:])
    assert _settings(args) == settings


def test_settings_that_mean_nothing_are_refused():
    for wrong, fact in (
        ({"backbones": ["LSTM"]}, "one candidate"),
        ({"vary": {"seed": ["1", "2"]}}, "--seeds 5"),
        ({"vary": {"width": ["32", "64"]}}, "--match none"),
        ({"vary": {"model.backbone.depth": ["1", "2"]}}, "--match none"),
        ({"threads": 0}, "--threads is 0"),
        ({"match": "memory"}, "--match"),
        ({"seeds": 0}, "--seeds is 0"),
        ({"lr_trials": -1}, "--lr-trials is -1"),
        ({"tuning_seeds": 3}, "--tuning-seeds is 3; give 1 or 2"),
    ):
        with pytest.raises(UsageError, match=fact):
            Settings(**{"recipe": "image/digits", "backbones": ["LSTM", "GRU"], **wrong})


def test_a_variation_needs_a_key_and_two_values():
    for word in ("model.position", "model.position=Rotary", "=a,b", ""):
        with pytest.raises(UsageError, match="two values"):
            read_vary([word])


def test_positions_inside_attention_are_compared_with_those_that_are_added():
    settings = Settings(
        recipe="text/char-lm", vary={"model.backbone.position": ["Rotary", "Sinusoidal"]}
    )
    inside, added = (
        complete("text/char-lm", None, variant.values)["model"] for variant in settings.variants()
    )
    assert inside["backbone"]["position"]["type"] == "Rotary"
    assert inside["position"] is None
    assert added["backbone"]["position"] is None
    assert added["position"]["type"] == "Sinusoidal"


@pytest.mark.parametrize(
    ("threads", "variable", "jobs", "found"),
    [(3, "2", 2, 3), (None, "2", 2, 2), (None, "", 2, 4), (None, "", 16, 1)],
)
def test_threads_are_those_set_or_of_the_environment_or_the_cores_of_a_job(
    monkeypatch, threads, variable, jobs, found
):
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    monkeypatch.setattr(compare, "available_cores", lambda: 8)
    settings = Settings(recipe="image/digits", backbones=["LSTM", "GRU"], threads=threads)
    assert compare.num_threads(settings, jobs) == found
