"""What is said of a wrong recipe: one line that names the key, what was got and what is right."""

import copy

import pytest

from seqkit.configure import parse
from seqkit.messages import one_line
from seqkit.recipe import UsageError, read_recipe

BACKBONE = "model.backbone.init_args"


def changed(path, value):
    """The smallest recipe of characters with another value under a dotted path."""
    recipe = inner = copy.deepcopy(read_recipe("text/char-lm", "debug"))
    *sections, key = path.split(".")
    for section in sections:
        inner = inner[section]
    inner[key] = value
    return recipe


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("seed", "one", "seed is one; give a whole number"),
        ("recipe", ["a"], "recipe is ['a']; give a text"),
        ("data.batch_size", "many", "data.batch_size is many; give a whole number"),
        ("data.batch_size", None, "data.batch_size is null; give a whole number"),
        ("data.limit", 2.5, "data.limit is 2.5; give a whole number or null"),
        ("data.augment", 5, "data.augment is 5; give a list (each: the class path of a part) or null"),
        ("optimizer.init_args.lr", "fast", "optimizer.lr is fast; give a number"),
        (f"{BACKBONE}.depth", [2], "model.backbone.depth is [2]; give a whole number"),
        (f"{BACKBONE}.block.init_args.zero_init", 7, "model.backbone.block.zero_init is 7; give true or false"),
        (f"{BACKBONE}.block.init_args.mlp.init_args.ratio", "x", "model.backbone.block.mlp.ratio is x; give a number"),
        (f"{BACKBONE}.norm", 3, "model.backbone.norm is 3; give the class path of a part"),
        ("model.links", "drop", "model.links is drop; give read or ignore"),
        ("trainer.max_steps", {"a": 1}, "trainer.max_steps is {'a': 1}; give a whole number"),
        ("tokenizer", 7, "tokenizer is 7; give the name of a part (seqkit list tokenizers)"),
        ("data", None, "data is null; give keys with a value each"),
        ("trainer", [3], "trainer is [3]; give keys with a value each"),
        (
            "model.backbone.class_path",
            "seqkit.layers.mlp.MLP",
            "model.backbone is seqkit.layers.mlp.MLP; give a Backbone: the name of a part (seqkit list backbones)",
        ),
    ],
)
def test_a_value_of_a_wrong_type_is_named_with_its_key_and_what_is_right(path, value, said):
    with pytest.raises(UsageError) as error:
        parse(changed(path, value))
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--data.window", "wide"), "data.window is wide; give a whole number or null"),
        (("--seed", "null"), "seed is null; give a whole number"),
        (("--trainer.precision", "17"), "trainer.precision is 17; give 64, 32, 16, transformer-engine, "),
        (("--model.position", "torch.nn.Linear"), "model.position is torch.nn.Linear; give an AddedPosition: the name"),
        (("--data.batchsize", "3"), "there is no key 'data.batchsize'; did you mean data.batch_size?"),
        (("--model.backbone.dephts", "3"), "Transformer has no argument 'dephts'; did you mean depth?"),
        (("--nothing.like.it", "3"), "there is no key 'nothing.like.it'; --print_config shows all keys"),
    ],
)
def test_so_are_words_of_the_command_line(words, said):
    with pytest.raises(UsageError) as error:
        parse(read_recipe("text/char-lm", "debug"), words)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_what_is_missing_is_named():
    recipe = changed("data.window", 3)
    del recipe["model"]
    with pytest.raises(UsageError, match=r"^model\.backbone and model\.objective are missing; say so in the recipe"):
        parse(recipe)


def test_an_unknown_message_stays_but_in_one_line():
    class Parser:
        _actions = ()

    assert one_line("something\n  else", Parser, {}) == "something else"
