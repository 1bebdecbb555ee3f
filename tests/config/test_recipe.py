"""A recipe file is data: what is refused in it, and what its run is called."""

import pytest
import yaml

from seqkit.config import load_yaml, read_recipe
from seqkit.errors import UsageError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recipe: ../../elsewhere\n", "recipe is '../../elsewhere'"),
        ("recipe: /elsewhere\n", "recipe is '/elsewhere'"),
        ("recipe: 7\n", "recipe is 7"),
        ("presets: 7\n", "presets should hold"),
        ("presets: {debug: 7}\n", "presets should hold"),
        ("- seed\n", "but holds list"),
        ("", "but holds NoneType"),
        ("x: !!python/object/apply:os.getcwd []\n", "is not readable as YAML"),
        ("x: &a [1]\ny: *a\n", "an alias stands at line 2"),
        ("seed: 1\nseed: 2\n", "the key 'seed' stands twice"),
        ("data: {limit: 1, limit: 2}\n", "the key 'limit' stands twice"),
        ("1: 2\n", "the key 1 .* is not a text"),
        ("[" * 5000, "is not readable as YAML"),
        ("x: \x00\n", "is not readable as YAML"),
    ],
)
def test_a_malformed_recipe_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as caught:
        read_recipe(str(path))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_recipe_by_its_size_is_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("seed: 1\n" + "#" * 2**20, encoding="utf-8")
    with pytest.raises(UsageError, match="a recipe has at most 1,048,576"):
        read_recipe(str(path))


def test_a_recipe_without_a_name_is_called_as_its_file(tmp_path):
    path = tmp_path / "my digits.yaml"
    path.write_text("seed: 2\npresets: {debug: {seed: 3}}\n", encoding="utf-8")
    assert read_recipe(str(path)) == ({"seed": 2, "recipe": "my digits"}, {"debug": {"seed": 3}})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("-2E5", -200000.0),
        (".5", 0.5),
        ("7", 7),
        ("1.", 1.0),
        ("2026-01-31", "2026-01-31"),
        ("no", False),
    ],
)
def test_numbers_are_read_as_they_are_written(text, value):
    assert load_yaml(text) == value
    assert type(load_yaml(text)) is type(value)


def test_the_loader_itself_refuses_code():
    with pytest.raises(yaml.YAMLError):
        load_yaml("!!python/name:os.system")
