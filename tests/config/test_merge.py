"""From recipe, preset and overrides to a complete configuration: one rule of merging, one line for every mistake."""

import copy
import shlex
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from seqkit.config import build, builder, complete, explain, read_recipe, recipe_names
from seqkit.config.merge import Node
from seqkit.config.schema import MOST, Field
from seqkit.errors import UsageError
from seqkit.interfaces import Backbone
from seqkit.registry import register

RECIPE = {
    "data": "digits",
    "tokenizer": {"type": "Patches", "patch": 4},
    "model": {
        "objective": "Classify",
        "backbone": {
            "type": "Transformer",
            "dim": 32,
            "depth": 3,
            "num_heads": 2,
            "norm": {"type": "LayerNorm", "eps": 0.001},
            "block": {
                "zero_init": True,
                "mlp": {"activation": "ReLU", "bias": False, "ratio": 2.0},
            },
        },
    },
    "optimizer": {"type": "Muon", "lr": 0.01, "ns_steps": 4},
}


def completed(*words, **changes):
    recipe = {**copy.deepcopy(RECIPE), **changes}
    recipe["data"] = (
        {"source": recipe["data"]} if isinstance(recipe["data"], str) else recipe["data"]
    )
    return complete(recipe, None, words)


def refused(*words, **changes):
    with pytest.raises(UsageError) as caught:
        completed(*words, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ── merging ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_type_keeps_what_was_written_and_it_has_too():
    backbone = completed("--model.backbone", "LSTM")["model"]["backbone"]
    assert backbone == {
        "type": "LSTM",
        "dim": 32,
        "depth": 3,
        "causal": False,
        "residual": True,
        "dropout": 0.0,
    }


def test_another_type_has_its_own_defaults():
    mlp = completed("--model.backbone.block.mlp", "GatedMLP")["model"]["backbone"]["block"]["mlp"]
    assert mlp["activation"] == {"type": "ReLU", "inplace": False}, "the recipe wrote it"
    assert mlp["bias"] is False, "the recipe wrote it"
    assert "ratio" not in mlp
    assert mlp["width"] is None
    plain = completed(
        "--model.backbone.block",
        "{mlp: GatedMLP}",
        model={"backbone": {"type": "Transformer", "dim": 8, "depth": 1}, "objective": "Classify"},
    )
    assert plain["model"]["backbone"]["block"]["mlp"]["activation"]["type"] == "SiLU", (
        "not MLP's GELU"
    )


def test_the_same_type_named_again_changes_nothing():
    assert completed("--model.backbone", "Transformer") == completed()


def test_a_component_of_another_kind_under_the_same_key_is_not_kept():
    recipe = copy.deepcopy(RECIPE)
    recipe["model"]["backbone"]["position"] = "Rotary"
    config = complete(
        {**recipe, "data": {"source": "digits"}}, None, ["--model.backbone", "Reversible"]
    )
    assert config["model"]["backbone"]["position"]["type"] == "Rotary"
    assert "input_norm" not in config["model"]["backbone"]


def test_null_takes_a_component_away_and_a_name_brings_one():
    with_norm = completed(
        "--model.backbone.block.attention.qk_norm",
        "RMSNorm",
        "--model.backbone.block.attention.qk_norm.eps",
        "1e-3",
    )
    assert with_norm["model"]["backbone"]["block"]["attention"]["qk_norm"]["eps"] == 0.001
    without = completed("--model.backbone.block.attention.qk_norm", "null")
    assert without["model"]["backbone"]["block"]["attention"]["qk_norm"] is None


def test_overrides_reach_every_level_and_the_later_wins():
    config = completed(
        "--model.backbone.block.mlp.activation",
        "gelu",
        "--seed=3",
        "--seed",
        "5",
        "--data.limit",
        "7",
    )
    assert config["model"]["backbone"]["block"]["mlp"]["activation"]["type"] == "GELU"
    assert (config["seed"], config["data"]["limit"]) == (5, 7)
    assert (
        completed("--optimizer.lr", "0.1", "--optimizer", "{lr: 0.2}")["optimizer"]["lr"] == 0.1
    ), "it has more dots"
    assert (
        completed("--data.source.type", "mnist", "--data=digits")["data"]["source"]["type"]
        == "mnist"
    )


def test_presets_and_the_command_line_merge_alike():
    by_preset = complete("text/char-lm", "gru")["model"]["backbone"]
    words = [
        "--model.backbone",
        "GRU",
        "--model.backbone.dim",
        "256",
        "--model.backbone.depth",
        "2",
    ]
    assert by_preset == complete("text/char-lm", None, words)["model"]["backbone"]
    assert by_preset["causal"], "written by the recipe for the Transformer"


def test_an_instance_from_python_is_refused_in_one_line():
    from seqkit.backbones import MeanPool

    for given in ({"model.backbone": MeanPool(8)}, {"model": {"backbone": MeanPool(8)}}):
        with pytest.raises(UsageError, match=r"model\.backbone .*instance of MeanPool") as got:
            complete("image/digits", "debug", given)
        assert "\n" not in str(got.value)
    with pytest.raises(UsageError, match=r"model\.backbone is a class.*MeanPool"):
        complete("image/digits", "debug", {"model.backbone": MeanPool})


def test_overrides_from_python_are_dotted_keys():
    assert complete("image/digits", "debug", {"model.backbone": "LSTM", "seed": 7}) == complete(
        "image/digits", "debug", ["--model.backbone", "LSTM", "--seed", "7"]
    )


def test_data_alone_is_the_source(tmp_path):
    assert completed("--data", "mnist-5k")["data"]["source"] == {"type": "mnist-5k"}
    (tmp_path / "notes.txt").write_text("some text", encoding="utf-8")
    source = completed("--data", str(tmp_path / "notes.txt"))["data"]["source"]
    assert source["type"] == "TextFiles"
    assert completed(data=str(tmp_path / "notes.txt"))["data"]["source"] == source


def test_torchs_optimizers_and_schedules_can_be_named():
    config = completed("--optimizer", "torch.optim.SGD", "--optimizer.momentum", "0.9")
    assert config["optimizer"]["type"] == "torch.optim.SGD"
    assert (config["optimizer"]["lr"], config["optimizer"]["momentum"]) == (0.01, 0.9)
    assert "ns_steps" not in config["optimizer"]
    steps = completed("--schedule", "torch.optim.lr_scheduler.StepLR", "--schedule.step_size", "3")
    assert steps["schedule"]["step_size"] == 3


@pytest.mark.parametrize("name", recipe_names())
def test_a_complete_configuration_is_its_own_completion(name):
    for preset in (None, *read_recipe(name)[1]):
        config = complete(name, preset, may_mix=True)
        assert complete(config, may_mix=True) == config


def test_a_block_and_a_position_for_each_layer():
    local = "{attention: {mechanism: {type: SlidingWindowAttention, size: 3}}}"
    words = ["--model.backbone.depth", "4", "--model.backbone.block", f"[{local}, PreNormBlock]"]
    config = completed(*words, "--model.backbone.position", "[{type: Rotary, base: 10}, null]")
    backbone = build(config).model["backbone"]
    kinds = [type(block.attention.mechanism).__name__ for block in backbone.blocks]
    assert kinds == ["SlidingWindowAttention", "ScaledDotProductAttention"] * 2
    assert [kind.position for kind in backbone.kinds] == [0, None] * 2
    assert complete(config) == config
    assert "is a list; give the whole of it" in refused(
        *words, "--model.backbone.block.zero_init", "true"
    )
    assert any(
        key == "model.backbone.block" and what == "a list of blocks"
        for key, _, what, _ in explain(config)
    )


@pytest.mark.parametrize("given", ["TensorBoard", "{type: TensorBoard}"])
def test_one_component_is_a_list_of_one(given):
    one, listed = (
        completed("--trainer.logger", words, trainer={})["trainer"]["logger"]
        for words in (given, f"[{given}]")
    )
    assert one == listed != []


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


MISTAKES = [
    ("--seed one", "seed is 'one'; give a whole number"),
    ("--seed null", "seed is null"),
    ("--data.batch_size many", "data.batch_size is 'many'; give a whole number"),
    ("--data.limit 2.5", "data.limit is 2.5; give a whole number or null"),
    ("--data.augment 5", "data.augment is 5; give a list"),
    ("--optimizer.lr fast", "optimizer.lr is 'fast'; give a number"),
    ("--model.backbone.depth [2]", "model.backbone.depth is [2]; give a whole number"),
    (
        "--model.backbone.block.zero_init 7",
        "model.backbone.block.zero_init is 7; give true or false",
    ),
    ("--model.backbone.block.mlp.ratio x", "model.backbone.block.mlp.ratio is 'x'; give a number"),
    ("--model.backbone.norm 3", "model.backbone.norm is 3; give the name of a norm"),
    ("--model.backbone.norm null", "model.backbone.norm is null"),
    ("--model.adjacency drop", "model.adjacency is 'drop'; give use or ignore"),
    ("--tokenizer 7", "tokenizer is 7; give the name of a tokenizer"),
    ("--trainer [3]", "trainer is [3]; write keys below it"),
    ("--optimizer 3", "optimizer is 3; give the name of an optimizer"),
    (
        "--optimizer SGD",
        "optimizer: there is no optimizer called 'SGD'; did you mean torch.optim.SGD",
    ),
    (
        "--optimizer '{type: torch.optim.SGD, foreach: maybe}'",
        "optimizer.foreach is 'maybe'; give true or",
    ),
    ("--optimizer '{type: torch.optim.SGD, lr: fast}'", "optimizer.lr is 'fast'; give a number"),
    (
        "--optimizer '{type: torch.optim.Adam, betas: [0.9]}'",
        "optimizer.betas is [0.9]; give a list of 2",
    ),
    ("--optimizer '{type: AdamW, betas: [0.9]}'", "optimizer.betas is [0.9]; give a list of 2"),
    ("--seed 1e3", "seed is 1000.0; give a whole number"),
    ("--seed 1_000", "seed is '1_000'"),
    (f"--seed {'7' * 5000}", "seed is '777"),
    ("--seed .nan", "seed is nan; give a finite number"),
    ("--optimizer.lr .inf", "optimizer.lr is inf; give a finite number"),
    ("--model.dropout 1e999", "model.dropout is inf"),
    ("--seed 99999999999999999999", "seed is 99999999999999999999; give a number of 64 bits"),
    (
        "--optimizer '{type: AdamW, type: Muon}'",
        "optimizer is '{type: AdamW, type: Muon}', which is not readabl",
    ),
    (
        "--optimizer '&a {lr: 1}'",
        "optimizer is '&a {lr: 1}', which is not readable as YAML: there is an anchor",
    ),
    ("--seed '!!int 3'", "seed is '!!int 3', which is not readable as YAML: there is a tag"),
    ("--seed '*a'", "seed is '*a', which is not readable as YAML: there is an alias"),
    (f"--model.backbone {'[' * 99}", "model.backbone is '[[[[[["),
    ("--trainer '!x'", "trainer is '!x', which is not readable as YAML: there is a tag"),
    ("--data null", "data is null; write keys below it"),
    ("--batch_size 3", "there is no key 'batch_size'; type --data.batch_size 3"),
    ("--epochs 10", "there is no key 'epochs'; type --trainer.max_epochs 10"),
    ("--learning-rate=1e-3", "there is no key 'learning-rate'; type --optimizer.lr 1e-3"),
    ("--tokenizer Bytes --tokenizer.x 3", "tokenizer: Bytes has no argument 'x'"),
    ("--recipe null", "recipe is null"),
    *(
        (f"--recipe '{name}'", "recipe is ")
        for name in ("../../evil", "/evil", ".", "", "a//b", "a\\b", "x" * 300)
    ),
    (
        "--model.backbone LTSM",
        "model.backbone: there is no backbone called 'LTSM'; did you mean LSTM?",
    ),
    (
        "--model.backbone.block.mlp MPL",
        "model.backbone.block.mlp: there is no mlp called 'MPL'; did you mean MLP?",
    ),
    ("--model.backbone os.system", "model.backbone: there is no backbone called 'os.system'"),
    (
        "--data.augment '[{type: os.system}]'",
        "data.augment: there is no augmentation called 'os.system'",
    ),
    ("--data.batchsize 3", "there is no key 'data.batchsize'; did you mean data.batch_size?"),
    ("--model.bakbone LSTM", "there is no key 'model.bakbone'; did you mean model.backbone?"),
    (
        "--model.backbone.dephts 3",
        "model.backbone: Transformer has no argument 'dephts'; did you mean depth",
    ),
    ("--sed 3", "there is no key 'sed'; did you mean seed?"),
    ("--seed.x 3", "there is no key 'seed.x'"),
    ("--seed", "--seed has no value"),
    ("--optimizer", "--optimizer has no value; give the name of an optimizer"),
    ("--tokenizer.type", "--tokenizer.type has no value"),
    ("--seed --data.limit 3", "--seed has no value"),
    ("seed 3", "'seed' belongs to no key"),
    ("--data nowhere/notes.txt", "data.source: there is no file or folder nowhere/notes.txt"),
    (
        "--data '$MINE/notes.txt'",
        "data.source: there is no file or folder $MINE/notes.txt; $NAME is not",
    ),
    ("--data mnits", "data.source: there is no data source called 'mnits'; did you mean mnist"),
]


def test_a_mistake_is_said_with_its_key_and_what_is_right(subtests):
    for words, fact in MISTAKES:
        with subtests.test(words[:60]):
            assert refused(*shlex.split(words)).startswith(fact)


def test_a_key_that_is_true_or_false_is_switched_on_without_a_value():
    for words in (["--data.stress", "--data.limit", "9"], ["--data.limit", "9", "--data.stress"]):
        config = completed("--data", "cmudict", *words)
        assert config["data"]["source"]["stress"] is True
        assert config["data"]["limit"] == 9


def test_what_is_missing_is_named():
    assert refused(model={}).startswith("model.backbone and model.objective are missing")
    assert refused(model={"backbone": "LSTM", "objective": "Classify"}).startswith(
        "model.backbone.dim is missing"
    )


def test_a_section_that_is_no_mapping_is_named():
    assert refused(data=[3]).startswith("data is [3]; write keys below it")
    assert refused(trainer=None).startswith("trainer is null; write keys below it")
    assert refused(**{"model.dim": 3}).startswith("the key 'model.dim' has a dot")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None,), "the recipe is null; give a name"),
        ((3,), "the recipe is 3; give a name"),
        (("image/digits", 3), "recipe image/digits has no preset 3"),
        (("image/digits", ["debug"]), "recipe image/digits has no preset \\['debug'\\]"),
        (("image/digits", None, 3), "the overrides are 3; give a value for each dotted key"),
        (("image/digits", None, [1]), "'1' belongs to no key"),
        (("image/digits", None, {1: 2}), "there is no key '1'"),
        (("image/digits", None, {"recipe": "../../evil"}), "recipe is '../../evil'"),
        (({**RECIPE, "data": {"source": "digits"}, "recipe": "a\nb"},), "recipe is "),
    ],
)
def test_a_mistake_from_python_is_said_in_the_same_way(arguments, message):
    with pytest.raises(UsageError, match=f"^{message}"):
        complete(*arguments)


def test_what_python_passes_becomes_plain_data(tmp_path):
    (tmp_path / "notes.txt").write_text("some text", encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(
        f"data: {tmp_path / 'notes.txt'}\npresets: {{x: {{data: digits}}}}\n"
    )
    model = {"model": {"backbone": "LSTM", "objective": "NextToken"}, "tokenizer": "Bytes"}
    overrides = {
        "model.backbone.dim": np.int64(8),
        "model.backbone.depth": 1,
        "optimizer.betas": (0.5, np.float32(0)),
    }
    config = complete(tmp_path / "mine.yaml", None, model | overrides)
    assert config["data"]["source"] == {"type": "TextFiles", **config["data"]["source"]}
    assert type(config["model"]["backbone"]["dim"]) is int
    assert config["optimizer"]["betas"] == [0.5, 0.0]
    own = complete(
        tmp_path / "mine.yaml", "x", {**model, **overrides, "data.source": tmp_path / "notes.txt"}
    )
    assert own["data"] == config["data"]
    assert complete(tmp_path / "mine.yaml", "x", model | overrides)["data"]["source"] == {
        "type": "digits"
    }


def test_a_type_may_be_named_after_its_arguments():
    words = ["--data.source.path", "x.csv", "--data.source.target", "y", "--data", "Table"]
    assert completed(*words)["data"]["source"]["path"] == "x.csv"


def test_an_unknown_preset_shows_the_nearest():
    with pytest.raises(UsageError, match=r"has no preset 'debgu'"):
        complete("image/digits", "debgu")


def test_what_only_python_can_pass_is_no_key():
    message = refused(
        "--model.backbone.block.attention.mechanism", "{type: LinearAttention, feature_map: relu}"
    )
    assert "LinearAttention has no argument 'feature_map'" in message


def test_a_number_that_is_wanted_as_a_text_is_a_text():
    words = ["--data", "fsdd", "--data.source.held_out", "7"]
    assert complete("audio/spoken-digits", None, words)["data"]["source"]["held_out"] == "7"


def test_every_key_is_explained():
    config = completed()
    rows = {key: (value, what) for key, value, what, _ in explain(config)}
    assert rows["model.backbone"] == ("Transformer", "a backbone (seqkit list backbones)")
    assert rows["model.backbone.block.mlp.ratio"] == ("2.0", "a number")
    assert rows["data.window"] == ("null", "a whole number or null")
    build(config)


@pytest.mark.parametrize("word", ["*.txt", "!", "&b", "[", "a: b: c", "@x", "`x`", "%x"])
def test_a_word_that_is_no_yaml_is_a_text_where_a_text_is_wanted(word):
    assert (
        completed("--tokenizer.alphabet", word, tokenizer="Characters")["tokenizer"]["alphabet"]
        == word
    )


# ── components that have names ───────────────────────────────────────────────────────────────────────────────────────

JOINED = {
    "tokenizer": {
        "type": "Join",
        "parts": {"image": {"type": "Patches", "patch": 4}, "text": "Words"},
    },
    "model": {"objective": "Classify", "backbone": {"type": "Transformer", "dim": 8, "depth": 1}},
}
KEYS = ("tokenizer", "model")


def test_components_that_have_names_are_completed_each():
    parts = complete(JOINED, only=KEYS)["tokenizer"]["parts"]
    assert list(parts) == ["image", "text"]
    assert parts["image"]["patch"] == 4
    assert parts["image"]["channels"] == 1
    assert parts["text"] == complete({**JOINED, "tokenizer": "Words"}, only=KEYS)["tokenizer"]


def test_a_key_of_a_named_component_can_be_overridden_and_a_new_one_added():
    words = [
        "--tokenizer.parts.image.patch",
        "7",
        "--tokenizer.parts.sound",
        "LogMel",
        "--model.encoders.image",
        "GIN",
    ]
    with pytest.raises(UsageError, match=r"model.encoders.image.dim"):
        complete(JOINED, None, words, only=KEYS)
    words += ["--model.encoders.image.dim", "8", "--model.encoders.image.depth", "1"]
    config = complete(JOINED, None, words, only=KEYS)
    assert list(config["tokenizer"]["parts"]) == ["image", "text", "sound"]
    assert config["tokenizer"]["parts"]["image"]["patch"] == 7
    assert config["model"]["encoders"]["image"]["type"] == "GIN"
    assert complete(config, only=KEYS) == config


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ("Words", "tokenizer.parts is 'Words'; give names, with a tokenizer each"),
        ({"text": "Wrds"}, r"tokenizer.parts.text: .*did you mean Words"),
        (
            {"text": {"type": "Words", "lower": True}},
            r"tokenizer.parts.text: Words has no argument 'lower'",
        ),
        ({"text": None}, "tokenizer.parts.text is null; give the name of a tokenizer"),
    ],
)
def test_a_fault_in_a_named_component_is_named_by_its_path(parts, fault):
    with pytest.raises(UsageError, match=fault):
        complete({**JOINED, "tokenizer": {"type": "Join", "parts": parts}}, only=KEYS)


# ── settings, and numbers ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes. width: of the hidden states. depth: number of layers."""

    is_settings: ClassVar[bool] = True
    width: int = 3
    depth: int = 2

    def __post_init__(self):
        if self.width % 2 == 0:
            raise ValueError(f"width is {self.width}; give an odd one")


class Grouped(Backbone):
    """A backbone whose sizes are settings."""

    causal, num_outputs = False, 1

    def __init__(self, dim: int, sizes: Sizes = Sizes(width=5)):
        super().__init__()
        self.dim, self.sizes = dim, sizes

    def forward(self, x): ...


@pytest.fixture
def grouped(monkeypatch):
    register("backbone")(Grouped)
    return {
        **RECIPE,
        "data": {"source": "digits"},
        "model": {"objective": "Classify", "backbone": {"type": "Grouped"}},
    }


def test_fields_of_settings_are_keys_of_their_owner(grouped):
    config = complete(grouped, None, ["--model.backbone.dim", "8", "--model.backbone.depth", "7"])
    assert config["model"]["backbone"] == {"type": "Grouped", "dim": 8, "width": 5, "depth": 7}
    assert build(config).model["backbone"].sizes == Sizes(width=5, depth=7)
    rows = {key: rest for key, *rest in explain(config)}
    assert rows["model.backbone.depth"] == [
        "7",
        "a whole number of at most 10,000",
        "Number of layers.",
    ]
    assert "model.backbone.sizes" not in rows


def test_a_section_may_take_settings_too(monkeypatch):
    class Section:
        def __init__(self, *, sizes: Sizes, seed: int = 1): ...

    monkeypatch.setitem(sys.modules[__name__].__dict__, "Section", Section)
    field = Field("data", {}, section=f"{__name__}:Section")
    config = Node({"data": field}).complete({"data": {"width": 7}})
    assert config == {"data": {"width": 7, "depth": 2, "seed": 1}}
    assert builder._value(field, config["data"], "data") == {"sizes": Sizes(width=7), "seed": 1}
    with pytest.raises(UsageError, match=r"^data\.width is 4"):
        builder._value(field, {"width": 4}, "data")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("width", 4, "^model.backbone: width is 4; give an odd one"),
        ("width", "x", "^model.backbone.width is 'x'; give a whole number"),
        ("sizes", {"width": 3}, "^model.backbone: Grouped has no argument 'sizes'"),
        ("widht", 3, "did you mean width"),
    ],
)
def test_settings_that_are_refused_are_named_as_arguments_are(grouped, key, value, message):
    with pytest.raises(UsageError, match=message):
        build(complete(grouped, None, {"model.backbone.dim": 8, f"model.backbone.{key}": value}))


@pytest.mark.slow
def test_a_number_that_asks_for_memory_or_processes_by_itself_has_a_largest_value(subtests):
    """Each such key of each shipped recipe at 10**9 is refused before anything is built."""
    seen = set()
    for recipe in recipe_names():
        config = complete(recipe, may_mix=True)
        if "tasks" in config:
            continue
        for key, *_ in explain(config):
            name = key.rpartition(".")[2]
            if (
                name in MOST
                and (owner := (name, key.count("."))) not in seen
                and ".parts." not in key
            ):
                seen.add(owner)
                with (
                    subtests.test(key),
                    pytest.raises(UsageError, match=f"{name} is 1000000000; give .* of at most"),
                ):
                    complete(recipe, None, {key: 10**9})
    assert {"vocab_size", "num_workers", "depth", "dim"} <= {name for name, _ in seen}


def test_a_key_below_one_that_is_null_is_refused():
    with pytest.raises(
        UsageError, match=r"schedule is null, so schedule.warmup_steps has no place"
    ):
        complete("image/digits", None, ["--schedule", "null", "--schedule.warmup_steps", "3"])
    words = ["--schedule", "null", "--schedule", "Cosine", "--schedule.warmup_steps", "3"]
    assert complete("image/digits", None, words)["schedule"]["warmup_steps"] == 3


def test_keys_of_earlier_versions_may_stand_as_in_their_runs():
    now = complete("image/digits")
    before = {**now, "trainer": {**now["trainer"], "max_time": None, "deterministic": None}}
    assert complete(before) == now
    for value in (False, True):
        objective = {**now["model"]["objective"], "linear": value}
        assert complete({**now, "model": {**now["model"], "objective": objective}}) == now
    with pytest.raises(UsageError, match=r"no key 'trainer\.max_time'"):
        complete("image/digits", None, ["--trainer.max_time", "00:01:00:00"])
    with pytest.raises(UsageError, match="no argument 'linear'"):
        complete("image/digits", None, ["--model.objective.linear", "False"])
    with pytest.raises(UsageError, match="no argument 'linear'"):
        complete({**now, "tokenizer": {**now["tokenizer"], "linear": False}})


@pytest.mark.parametrize(
    ("preset", "words", "min_steps"),
    [
        (None, [], 300),
        (None, ["--trainer.gradient_clip_val", "2"], 300),
        ("debug", [], None),
        (None, ["--trainer.max_epochs", "2"], None),
        (None, ["--trainer.max_steps=9"], None),
        (None, ["--trainer.min_steps", "7", "--trainer.max_epochs", "2"], 7),
    ],
    ids=str,
)
def test_a_length_given_on_top_of_a_recipe_takes_its_floor_of_steps_away(preset, words, min_steps):
    assert complete("own/classify", preset, words)["trainer"]["min_steps"] == min_steps
