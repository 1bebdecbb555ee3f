"""A recipe file is data: what is refused in it, and what its run is called."""

import os
from pathlib import Path

import pytest
import yaml

from seqkit.config import load_yaml, read_recipe, to_yaml
from seqkit.config.recipe import check_name
from seqkit.errors import UsageError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("presets: 7\n", "presets should hold"),
        ("presets: {debug: 7}\n", "presets should hold"),
        ("- seed\n", "but holds list"),
        ("", "is empty"),
        ("seed: 1\nx: !!str y\n", "there is a tag at line 2"),
        ("x: 1\n<<: {y: 2}\n", "there is a merge key in line 2"),
        ("presets: {debug: {presets: {}}}\n", "presets should hold"),
        ("\ufeff\ufeffseed: 1\n", "two byte-order marks"),
        ("x: [" + "1," * 20_000 + "]\n", "more than 20,000 values"),
        ("x: &a 1\n", "there is an anchor at line 1"),
        ("seed: " + "7" * 5000, "the number in line 1 has 5,000 digits"),
        ("x: !!python/object/apply:os.getcwd []\n", "is not readable as YAML"),
        ("x: &a [1]\ny: *a\n", "there is an anchor at line 1"),
        ("x: 0\nseed: 1\nseed: 2\n", "the key 'seed' is given twice, again in line 3"),
        ("seed: 1\nseed: 2\n", "the key 'seed' is given twice"),
        ("data: {limit: 1, limit: 2}\n", "the key 'limit' is given twice"),
        ("1: 2\n", "the key 1 .* is not a text"),
        ("[" * 5000, "is not readable as YAML"),
        ("x: \x00\n", "is not readable as YAML"),
    ],
    ids=lambda text: text[:40],
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
    with pytest.raises(UsageError, match="1,048,576 bytes"):
        read_recipe(str(path))


def test_a_recipe_without_a_name_is_called_as_its_file(tmp_path):
    path = tmp_path / "my digits.yaml"
    path.write_text("seed: 2\npresets: {debug: {seed: 3}}\n", encoding="utf-8")
    assert read_recipe(str(path)) == ({"seed": 2, "recipe": "my-digits"}, {"debug": {"seed": 3}})


@pytest.mark.parametrize(
    "stem",
    [
        "a..b",
        "-x",
        ".hidden",
        "größe",
        "a\nb",
        "$(id)",
        "--out",
        "...",
        "a b/../c".replace("/", "_"),
    ],
)
def test_the_name_from_a_file_is_a_name_that_a_recipe_may_have(tmp_path, stem):
    path = tmp_path / f"{stem}.yaml"
    path.write_text("seed: 2\n", encoding="utf-8")
    check_name(read_recipe(str(path))[0]["recipe"])


@pytest.mark.parametrize("name", ["text/mine", "a", "0", "a_b-c.d/e", "v1.2", "_x", "x" * 200])
def test_a_name_of_letters_digits_and_a_few_marks_is_taken(name):
    check_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a..b", "../a", "a/../b", "/a", "a/", "a//b", "-a", "a/-b", "--resume", ".a", "a/.b", "a b", "a\nb",
     "a\n", "a;b", "$(id)", "`id`", "a'b", 'a"b', "a\\b", "a:b", "a*", "ä", "a\u202eb", "a\0", "x" * 201],
)  # fmt: skip
def test_any_other_name_is_refused_in_one_line(name):
    with pytest.raises(UsageError, match="letters, digits") as caught:
        check_name(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("-2E5", -200000.0),
        (".5", 0.5),
        ("7", 7),
        ("1.", 1.0),
        ("2026-01-31", "2026-01-31"),
        ("no", "no"),
        ("true", True),
        ("010", 10),
        ("-7", -7),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("null", None),
    ],
)
def test_numbers_are_read_as_they_are_written(text, value):
    assert load_yaml(text) == value
    assert type(load_yaml(text)) is type(value)


@pytest.mark.parametrize(
    "text", ["1e3", "010", "1:30", "no", "true", "null", "7", "-.5", "2026-01-31", "text"]
)
def test_a_text_is_written_so_that_it_is_read_as_a_text(text):
    assert load_yaml(to_yaml({"x": text})) == {"x": text} == yaml.safe_load(to_yaml({"x": text}))


def test_a_folder_is_no_recipe(tmp_path):
    with pytest.raises(UsageError, match=r"is a folder"):
        read_recipe(str(tmp_path))


def test_the_loader_itself_refuses_code():
    with pytest.raises(yaml.YAMLError):
        load_yaml("!!python/name:os.system")


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xef\xbb\xbfseed: 2\n")
    assert read_recipe(str(path))[0] == {"seed": 2, "recipe": "mine"}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_a_recipe_of_another_encoding_is_refused_with_its_line(tmp_path, encoding):
    path = tmp_path / "mine.yaml"
    path.write_bytes("seed: 1 # é\n".encode(encoding))
    with pytest.raises(UsageError, match=r"mine\.yaml"):
        read_recipe(str(path))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (os.mkfifo, "FIFO"),
        (Path.mkdir, "folder"),
        (lambda path: path.symlink_to("/dev/zero"), "device"),
    ],
)
def test_a_recipe_is_a_regular_file(tmp_path, make, what):
    make(tmp_path / "mine.yaml")
    with pytest.raises(UsageError, match=rf"mine\.yaml is a {what}"):
        read_recipe(str(tmp_path / "mine.yaml"))
