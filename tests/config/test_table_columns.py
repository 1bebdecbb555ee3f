"""A user's own table in a configuration: one key names it, others reach it, and what was inferred is written out."""

import pytest
import yaml

from seqkit.config import build, complete
from seqkit.errors import UsageError
from seqkit.runs.prepare import prepare

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010800000000"
    "3a7e9b550000000a49444154789c6360000000020001e221bc330000000049454e44ae426082"
)
"""An image of one pixel."""

MINE = {
    "recipe": "mine",
    "tokenizer": {
        "type": "Join",
        "parts": {"text": "Bytes", "smiles": {"type": "Words"}, "cells": "Cells"},
    },
    "model": {
        "objective": {"type": "Regress", "pool": "parts"},
        "backbone": {"type": "Transformer", "dim": 8, "depth": 1, "num_heads": 2},
    },
}


@pytest.fixture
def table(tmp_path):
    def write(head, row, num=20, name="own.csv"):
        rows = [row.format(i=i, n=i % 4, ab="AB"[i % 2], c="C" * (i % 9 + 1)) for i in range(num)]
        (tmp_path / name).write_text("\n".join([head, *rows]), encoding="utf-8")
        return str(tmp_path / name)

    return write


def mine(tmp_path, path, **parts):
    file = tmp_path / "mine.yaml"
    tokenizer = MINE["tokenizer"] | ({"parts": parts} if parts else {})
    file.write_text(
        yaml.safe_dump({**MINE, "data": path, "tokenizer": tokenizer}), encoding="utf-8"
    )
    return file


# ── completing a configuration opens no table ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [
        ("text/classify", "classes"),
        ("text/tag", "tags"),
        ("text/translate", "text"),
        ("text/char-lm", "none"),
        ("graph/molecules", "numbers"),
        ("image/digits", "classes"),
        ("multimodal/clip", "none"),
        ("multimodal/table", "classes"),
    ],
)
def test_the_objective_says_what_the_target_holds_and_no_table_is_opened(tmp_path, recipe, kind):
    (tmp_path / "own.csv").write_bytes(b"\0")
    source = complete(recipe, None, ["--data", f"{tmp_path}/own.csv"])["data"]["source"]
    assert (source["type"], source["path"], source["target_kind"]) == (
        "Table",
        f"{tmp_path}/own.csv",
        kind,
    )
    named = [
        "--data.source",
        "Table",
        "--data.path",
        f"{tmp_path}/gone.csv",
        "--data.target_kind",
        "labels",
    ]
    assert complete(recipe, None, named)["data"]["source"]["target_kind"] == "labels"


@pytest.mark.parametrize("order", [1, -1])
def test_a_key_that_the_data_module_lacks_is_one_of_the_source(table, order):
    path = table("body,stars", "a text {i},{n}")
    pairs = [
        ("--data", path),
        ("--data.target", "stars"),
        ("--data.group", "body"),
        ("--data.batch_size", "5"),
    ]
    config = complete("text/classify", None, [word for pair in pairs[::order] for word in pair])
    keys = {
        "data.source": path,
        "data.source.target": "stars",
        "data.source.group": "body",
        "data.batch_size": 5,
    }
    assert config == complete("text/classify", None, keys)
    assert (config["data"]["source"]["group"], config["data"]["batch_size"]) == ("body", 5)
    assert complete("mechanism/tasks", None, {"data.limit": 7})["data"]["limit"] == 7, (
        "a key of both is the module's"
    )


def test_a_pattern_and_a_hub_name_are_tables_too(table, tmp_path):
    table("body,tone", "a text,{n}")
    for path in (f"{tmp_path}/*.csv", "hf://owner/name"):
        source = complete("text/classify", None, ["--data", path])["data"]["source"]
        assert (source["type"], source["path"]) == ("Table", path)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (
            ["--data.targte", "x"],
            r"there is no key 'data\.targte'; did you mean data\.target or data\.target_kind\?",
        ),
        (["--data.batchsize", "3"], r"did you mean data\.batch_size\?"),
        (["--data.target.x", "3"], r"data\.source\.target is a plain value"),
        (["--data.test_fraction", "many"], r"data\.source\.test_fraction is 'many'; give a number"),
        (["--data.test_fraction", "1.5"], r"test_fraction is 1\.5; give a number between 0 and 1"),
        (["--data.columns", "{body: film}"], r"columns says that 'body' is 'film'; "),
        (["--data.split", "x", "--data.test", "y.csv"], "leave test and valid out"),
    ],
)
def test_a_mistyped_key_of_the_source_is_answered_with_the_nearest(table, words, advice):
    with pytest.raises(UsageError, match=advice):
        build(
            complete(
                "text/classify", None, ["--data", table("body,stars", "a text {i},{n}"), *words]
            )
        )


def test_a_metric_of_another_objective_is_refused_with_the_objectives_that_have_it():
    with pytest.raises(
        UsageError, match=r"for the objective Regress, or another .*--model\.objective Classify"
    ):
        complete("graph/molecules", None, ["--model.objective.metrics", "[BalancedAccuracy]"])


# ── what is inferred where the data is read ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("head", "row", "keys", "read"),
    [
        ("source,target", "{i} a {i},number {i}", {}, ("source", "target")),
        ("target,source", "number {i},{i} a {i}", {}, ("source", "target")),
        ("one,other,third", "{i},number {i},{c}", {"data.input": "one", "data.target": "third"}, ("one", "third")),
    ],
)  # fmt: skip
def test_a_recipe_of_texts_reads_one_column_also_where_its_texts_are_digits(
    table, head, row, keys, read
):
    built = build(complete("text/translate", None, {"data": table(head, row), **keys}))
    samples = built.data["source"].splits().train
    schema = built.data["source"].schema()
    assert (schema.inputs[0].name, schema.targets[0].name) == read
    assert all(isinstance(text, str) for text in (samples[0].raw, samples[0].label))


def test_parts_follow_from_the_columns_and_get_names_that_are_said_once(table, tmp_path, caplog):
    path = table("a title,type,price,y", "the title {i},note of {i},{i}.25,{i}.5")
    done = prepare(
        complete(mine(tmp_path, path), None, {"data.target": "y", "data.batch_size": 4})
    ).config
    source, tokenizer = done["data"]["source"], done["tokenizer"]
    assert source["columns"] == {"a title": "text", "type": "text", "price": "number"}
    assert (source["target"], source["target_kind"]) == ("y", "numbers")
    assert tokenizer["reads"] == {"a_title": "a title", "type_1": "type", "cells": "cells"}
    assert [part["type"] for part in tokenizer["parts"].values()] == ["Bytes", "Bytes", "Cells"]
    assert (
        "the part of column 'a title' is called a_title, as no part can have that name"
        in caplog.text
    )
    assert (
        "own.csv: number: 'price', input; to change: --data.columns '{price: category}'"
        in caplog.text
    )
    assert complete(done) == done
    caplog.clear()
    assert prepare(complete(done)).config == done
    assert "to change" not in caplog.text, "what was decided is not said again"
    assert "is called" not in caplog.text


def test_columns_and_parts_that_are_given_decide(table, tmp_path):
    path = table("a title,type,price,y", "the title {i},note of {i},{i}.25,{i}.5")
    own = {"text": "Bytes", "a title": {"type": "Words", "max_words": 7}, "cells": "Cells"}
    parts = build(
        complete(mine(tmp_path, path, **own), None, {"data.target": "y"})
    ).tokenizer_section["parts"]
    assert parts["a_title"]["max_words"] == 7
    assert parts["type_1"]["type"] == "Bytes"
    given = [
        "--data.target",
        "y",
        "--data.columns",
        "{type: unused, price: category, a title: smiles}",
    ]
    built = build(complete(mine(tmp_path, path), None, given))
    assert built.tokenizer_section["reads"] == {"a_title": "a title", "cells": "cells"}
    assert built.tokenizer_section["parts"]["a_title"]["type"] == "Words"


@pytest.mark.parametrize(
    ("parts", "keys", "said"),
    [
        (
            {},
            {"data.columns": {"type": "image"}},
            "'type': the recipe has no part for image; give one: ",
        ),
        (
            {"texts": "Bytes", "cells": "Cells"},
            {},
            "tokenizer.parts.texts is no column and no kind",
        ),
        (
            {},
            {"data.columns": {"type": "texts"}},
            "columns says that 'type' is 'texts'; did you mean text",
        ),
    ],
)
def test_each_mistake_is_answered_in_one_line(table, tmp_path, parts, keys, said):
    path = table("a title,type,y", "the title {i},note of {i},{i}.5")
    with pytest.raises(UsageError) as error:
        build(complete(mine(tmp_path, path, **parts), None, {"data.target": "y", **keys}))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("recipe", ["multimodal/caption", "multimodal/clip"])
def test_pairs_without_labels_need_no_target(table, tmp_path, recipe):
    """Captions that come again look like categories, which such a recipe has no part for: the flag is said."""
    for i in range(20):
        (tmp_path / f"{i}.png").write_bytes(PNG)
    with pytest.raises(
        UsageError, match=r"'caption': .* no part for .*categories; .*columns '{caption: text}'"
    ):
        build(complete(recipe, "debug", ["--data", table("picture,caption", "{i}.png,{ab} thing")]))
    words = ["--data.columns", "{caption: text}"]
    built = build(
        complete(
            recipe, "debug", ["--data", table("picture,caption", "{i}.png,{ab} thing"), *words]
        )
    )
    assert list(built.tokenizer_section["reads"].values()) == ["picture", "caption"]
    built = build(
        complete(
            recipe, "debug", ["--data", table("picture,caption", "{i}.png,a caption of {i} words")]
        )
    )
    assert list(built.tokenizer_section["reads"].values()) == ["picture", "caption"]
    assert set(built.data["source"].splits().train[0].raw) == {"picture", "caption"}


@pytest.mark.parametrize("given", ["s*", "[s00,s01,s02]"])
def test_the_columns_of_a_series_are_written_out_and_read_again(table, given):
    """A pattern is resolved once: another table may have more columns that it fits, as the target here."""
    path = table("s00;s01;s02;sort", "{i};{i},5;{n};{ab}")
    words = [
        "--data",
        path,
        "--data.input",
        given,
        "--data.target",
        "sort",
        "--tokenizer",
        "Series",
    ]
    done = prepare(complete("own/classify", "debug", words)).config
    source = done["data"]["source"]
    assert (source["input"], source["forms"]) == (["s00", "s01", "s02"], {"s01": ","})
    for config in (done, complete(done)):
        raws = [sample.raw for sample in build(config).data["source"].splits().train]
        assert all(raw == [raw[0], raw[0] + 0.5, raw[0] % 4] for raw in raws)


def test_a_file_without_a_header_keeps_the_names_that_it_was_given(table):
    path = table("0.5,A", "{i}.25,{ab}", num=19)
    words = ["--data", path, "--data.columns", "[size, sort]", "--data.batch_size", "4"]
    done = prepare(complete("multimodal/table", "debug", words)).config
    source = done["data"]["source"]
    assert (source["header"], source["columns"], source["target"]) == (
        ["size", "sort"],
        {"size": "number"},
        "sort",
    )
    splits = build(done).data["source"].splits()
    assert sum(len(part) for part in (splits.train, splits.test)) == 20


def test_a_graph_of_ones_own_goes_with_the_preset_debug(tmp_path):
    nodes = "".join(f"{i},{'ab'[i % 2]},{i / 7}\n" for i in range(40))
    (tmp_path / "nodes.csv").write_text(f"id,club,age\n{nodes}")
    edges = "".join(f"{i},{(i + 2) % 40}\n" for i in range(40))
    (tmp_path / "edges.csv").write_text(f"source,target\n{edges}")
    built = build(
        complete("graph/nodes", "debug", ["--data", str(tmp_path), "--data.eigenvectors", "0"])
    )
    built.tokenizer.fit([sample.raw for sample in built.data["source"].splits().train])
    assert built.tokenizer.num_features == 1
