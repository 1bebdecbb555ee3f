import pytest

from seqkit.config import Config, complete, to_yaml
from seqkit.config.record import learning_rates, value_at, walk, with_values
from seqkit.files import load_yaml

GIVEN = {"seed": 1, "data": {"source": {"type": "Table", "columns": None}}, "trainer": {"lr": [1]}}


def test_what_was_decided_is_read_and_what_was_given_is_kept():
    config = Config(GIVEN).deciding({"data.source.columns": {"a.b": "text"}, "seed": 1})
    assert config["data"]["source"] == {"type": "Table", "columns": {"a.b": "text"}}
    assert config.given == GIVEN
    assert config.left_open == {"data.source.columns": None}, "a seed that stays was not left open"
    again = Config(load_yaml(to_yaml(config))).of_open(config.left_open)
    assert (again.given, dict(again)) == (GIVEN, dict(config))


def test_a_configuration_is_a_mapping_that_is_not_written_to():
    config = Config(GIVEN)
    assert config == GIVEN
    assert {**config, "seed": 2} == {**GIVEN, "seed": 2}
    with pytest.raises(TypeError):
        config["seed"] = 2
    with pytest.raises(AttributeError):
        config.given = {}
    assert config.changed({"data.source.type": "Text"})["data"]["source"]["type"] == "Text"
    assert config == GIVEN, "a change is a copy's"


def test_every_value_is_walked_to_by_its_key():
    value = {"a": {"b": 1, "c": [2, {"d": None}]}, "e": [], "f": {}}
    assert list(walk(value)) == [
        (("a", "b"), 1),
        (("a", "c", 0), 2),
        (("a", "c", 1, "d"), None),
        (("e",), []),
        (("f",), {}),
    ]
    assert with_values(value, {"a.c": 3})["a"] == {"b": 1, "c": 3}
    assert (value_at(value, "a.b"), value_at(value, "a.x")) == (1, None)
    for key in ("x.y", "e.y", "a.b.c"):
        with pytest.raises((KeyError, TypeError)):
            with_values(value, {key: 1})


def test_all_learning_rates_of_an_optimizer_are_found():
    muon = complete("image/digits", "debug", {"optimizer": "Muon"})["optimizer"]
    assert len(learning_rates(muon)) > 1
    assert learning_rates({"type": "SGD", "lr": None}) == {}
