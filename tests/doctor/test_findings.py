"""Keys of a configuration are found wherever they are nested."""

from seqkit.config import complete
from seqkit.doctor.findings import key_of_type, keys_named, listed

CONFIG = {"a": {"lr": 1, "b": [{"type": "X", "lr": 2}, {"type": "Y"}]}, "lr": None}


def test_a_key_is_found_at_every_depth_and_in_lists():
    assert list(keys_named(CONFIG, "lr")) == [("a.lr", 1), ("a.b.0.lr", 2), ("lr", None)]


def test_the_key_of_a_component_is_one_that_the_command_line_takes():
    config = complete("image/digits", None, ["--model.backbone.block", "PostNormBlock"])
    key = key_of_type(config, "PostNormBlock")
    assert complete("image/digits", None, [f"--{key}", "ParallelBlock"])["model"]["backbone"]["block"]["type"] == (
        "ParallelBlock"
    )
    assert key_of_type(config, "ParallelBlock") is None


def test_a_long_list_of_names_is_cut():
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcde")) == "a, b, c and 2 more"
