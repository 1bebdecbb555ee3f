"""Columns of a mixed table, written into a configuration as parts of the tokenizer, once."""

import pytest

from seqkit.config import complete
from seqkit.errors import UsageError

TOKENIZER = {"type": "Join", "parts": {"text": "Bytes", "smiles": {"type": "Words"}, "cells": "Cells"}}


def recipe(path, **tokenizer):
    objective = {"type": "Regress", "pool": "parts"}
    backbone = {"type": "Transformer", "dim": 8, "depth": 1, "num_heads": 2}
    return {
        "data": str(path),
        "tokenizer": {**TOKENIZER, **tokenizer},
        "model": {"objective": objective, "backbone": backbone},
    }


@pytest.fixture
def table(tmp_path):
    rows = [f"the title {i},note of {i},{i / 3},{i % 4}" for i in range(20)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["a title,type,price,y", *rows]), encoding="utf-8")
    return path


def test_parts_follow_from_the_columns_and_get_names_that_are_said(table, caplog):
    config = complete(recipe(table), None, {"data.target": "y"})
    assert config["data"]["source"]["columns"] == {"a title": "text", "type": "text", "price": "number"}
    assert config["data"]["source"]["target_kind"] == "numbers"
    tokenizer = config["tokenizer"]
    assert tokenizer["reads"] == {"a_title": "a title", "type_1": "type", "cells": "cells"}
    assert {name: part["type"] for name, part in tokenizer["parts"].items()} == {
        "a_title": "Bytes", "type_1": "Bytes", "cells": "Cells",
    }  # fmt: skip
    assert "the part of column 'a title' is called a_title, as no part can have that name" in caplog.text
    assert "the part of column 'type' is called type_1" in caplog.text


def test_a_complete_configuration_is_not_settled_again(table, caplog):
    config = complete(recipe(table), None, {"data.target": "y"})
    table.unlink()
    caplog.clear()
    assert complete(config) == config
    assert not caplog.records


def test_a_column_may_have_a_part_of_its_own(table):
    own = {"text": "Bytes", "a title": {"type": "Words", "max_words": 7}, "cells": "Cells"}
    parts = complete(recipe(table, parts=own), None, {"data.target": "y"})["tokenizer"]["parts"]
    assert parts["a_title"]["max_words"] == 7
    assert parts["type_1"]["type"] == "Bytes"


def test_kinds_that_are_given_decide(table):
    given = "{type: unused, price: category, a title: smiles}"
    config = complete(recipe(table), None, ["--data.target", "y", "--data.columns", given])
    assert config["data"]["source"]["columns"] == {"a title": "smiles", "type": "unused", "price": "category"}
    assert config["tokenizer"]["parts"]["a_title"]["type"] == "Words"
    assert "type_1" not in config["tokenizer"]["parts"]


@pytest.mark.parametrize(
    ("tokenizer", "overrides", "said"),
    [
        ({}, {"data.columns": {"type": "image"}}, "column 'type' holds image, and the recipe has no part for that"),
        ({"parts": {"texts": "Bytes", "cells": "Cells"}}, {}, "tokenizer.parts.texts is no column and no kind"),
        ({}, {"data.columns": {"type": "texts"}}, "columns says that 'type' is 'texts'; did you mean text"),
    ],
)
def test_each_mistake_is_answered_in_one_line(tokenizer, overrides, said, table):
    with pytest.raises(UsageError) as error:
        complete(recipe(table, **tokenizer), None, {"data.target": "y", **overrides})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_several_parts_need_a_tokenizer_that_joins_them(table):
    config = {**recipe(table), "data": {"source": {"type": "MixedTable", "path": str(table)}}, "tokenizer": "Bytes"}
    with pytest.raises(UsageError, match=r"Join.*--data\.source\.type Table"):
        complete(config)


def test_a_table_for_another_tokenizer_has_one_input(table):
    config = {**recipe(table), "tokenizer": "Bytes"}
    source = complete(config, None, {"data.target": "y", "data.source.input": "type"})["data"]["source"]
    assert (source["type"], source["input"]) == ("Table", "type")


def test_presets_by_the_kind_of_target_keep_the_parts(table, tmp_path):
    import yaml

    file = tmp_path / "mine.yaml"
    presets = {"classes": {"model": {"objective": "Classify"}}, "numbers": {"model": {"objective": "Regress"}}}
    file.write_text(yaml.safe_dump({**recipe(table), "recipe": "mine", "presets": presets}), encoding="utf-8")
    config = complete(file, None, {"data.target": "price"})
    assert config["tokenizer"]["reads"] == {"a_title": "a title", "type_1": "type", "cells": "cells"}
    assert config["model"]["objective"]["type"] == "Regress"
