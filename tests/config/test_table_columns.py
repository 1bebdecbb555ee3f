"""A user's own table from the command line: one key names it, others reach it, and what it holds is written out."""

import logging

import pytest

from seqkit.config import build, complete
from seqkit.errors import DataError, UsageError

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010800000000"
    "3a7e9b550000000a49444154789c6360000000020001e221bc330000000049454e44ae426082"
)
"""An image of one pixel."""


@pytest.fixture
def table(tmp_path):
    def write(rows, head, name="own.csv"):
        path = tmp_path / name
        path.write_text(f"{head}\n" + "".join(f"{row}\n" for row in rows))
        return str(path)

    return write


def reviews(table):
    return table(
        [f"a rather long review {i},{'good' if i % 2 else 'bad'},{i % 4}" for i in range(12)], "body,tone,stars"
    )


def test_a_table_is_named_by_its_path_and_its_columns_are_written_out(table):
    path = reviews(table)
    config = complete("text/classify", None, ["--data", path, "--data.target", "tone"])
    source = config["data"]["source"]
    assert source["type"] == "Table"
    assert source["path"] == path
    assert (source["input"], source["target"], source["kind"], source["target_kind"]) == (
        "body",
        "tone",
        "text",
        "classes",
    )
    assert config["data"]["valid_fraction"] == 0.1


@pytest.mark.parametrize(
    ("head", "row", "keys", "columns"),
    [
        ("source,target", "{i},number {i}", [], ("source", "target")),
        ("one,other", "{i},number {i}", [], ("one", "other")),
        ("one,other", "number {i},{i}", [], ("one", "other")),
        ("target,source", "number {i},{i}", [], ("source", "target")),
        ("one,other,third", "{i},number {i},{i}", ["--data.input", "one", "--data.target", "third"], ("one", "third")),
        ("one,other", "{i},number {i}", ["--data.target", "other"], ("one", "other")),
    ],
)  # fmt: skip
def test_of_two_columns_the_first_is_read_also_where_its_texts_are_digits(table, head, row, keys, columns):
    path = table([row.format(i=i) for i in range(12)], head)
    source = complete("text/translate", None, ["--data", path, *keys])["data"]["source"]
    assert (source["input"], source["target"]) == columns
    assert (source["kind"], source["target_kind"]) == ("text", "text")


def test_a_graph_of_ones_own_goes_with_the_preset_debug(tmp_path):
    nodes = "".join(f"{i},{'ab'[i % 2]},{i / 7}\n" for i in range(40))
    (tmp_path / "nodes.csv").write_text(f"id,club,age\n{nodes}")
    edges = "".join(f"{i},{(i + 2) % 40}\n" for i in range(40))
    (tmp_path / "edges.csv").write_text(f"source,target\n{edges}")
    built = build(complete("graph/nodes", "debug", ["--data", str(tmp_path), "--data.index", "false"]))
    built.tokenizer.fit([sample.raw for sample in built.data["source"].splits().train])
    assert built.tokenizer.num_features == 1


def test_what_is_written_out_is_not_read_again(table, tmp_path):
    config = complete("text/classify", None, ["--data", reviews(table), "--data.target", "tone"])
    (tmp_path / "own.csv").unlink()
    assert complete(config) == config


def test_columns_that_follow_from_the_command_and_the_recipe_open_no_file(tmp_path):
    words = ["--data.source", "Table", "--data.source.path", str(tmp_path / "gone.csv")]
    words += ["--data.source.input", "body", "--data.source.target", "tone"]
    source = complete("text/classify", None, words)["data"]["source"]
    assert (source["kind"], source["target_kind"]) == ("text", "classes")


@pytest.mark.parametrize("order", [1, -1])
def test_a_key_that_the_data_module_lacks_is_one_of_the_source(table, order):
    path = reviews(table)
    pairs = [("--data", path), ("--data.target", "stars"), ("--data.input", "body"), ("--data.batch_size", "5")]
    words = [word for pair in pairs[::order] for word in pair]
    config = complete("text/classify", None, words)
    written = complete("text/classify", None, {
        "data.source": path, "data.source.target": "stars", "data.source.input": "body", "data.batch_size": 5,
    })  # fmt: skip
    assert config == written
    assert config["data"]["source"]["target"] == "stars"
    assert config["data"]["batch_size"] == 5


def test_the_module_comes_before_the_source(table):
    """`limit` is a key of the data module: it goes there whatever the source has."""
    config = complete("mechanism/copy", None, {"data.limit": 7, "data.source.seed": 3})
    assert config["data"]["limit"] == 7
    assert complete("mechanism/copy", None, {"data.limit": 7, "data.seed": 3}) == config


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (
            ["--data.targte", "tone"],
            r"there is no key 'data\.targte'; did you mean data\.target or data\.target_kind\?",
        ),
        (["--data.batchsize", "3"], r"did you mean data\.batch_size\?"),
        (["--data.target.x", "3"], r"data\.source\.target is a plain value"),
        (["--data.test_fraction", "many"], r"data\.source\.test_fraction is 'many'; give a number"),
        (["--data.test_fraction", "1.5"], r"test_fraction is 1\.5; give a number between 0 and 1"),
        (
            ["--data.kind", "video"],
            r"kind is 'video'; give text, image, audio, smiles, series, file or null",
        ),
    ],
)
def test_a_mistyped_key_of_the_source_is_answered_with_the_nearest(table, words, advice):
    with pytest.raises(UsageError, match=advice):
        complete("text/classify", None, ["--data", reviews(table), *words])


@pytest.mark.parametrize(
    ("recipe", "head", "row", "kinds"),
    [
        ("text/classify", "body,stars", "a text {i},{n}", ("text", "classes")),
        ("text/tag", "words,tags", "a b,X {ab}", ("text", "tags")),
        ("text/translate", "de,en", "ein {i},an {i}", ("text", "text")),
        ("text/char-lm", "body,stars", "a text {i},{n}", ("text", "none")),
        ("graph/solubility", "smiles,logS", "{c},{n}.5", ("smiles", "numbers")),
        ("image/digits", "file,label", "{i}.png,{ab}", ("image", "classes")),
    ],
)
def test_tokenizer_and_objective_say_what_the_columns_hold(table, recipe, head, row, kinds):
    rows = [row.format(i=i, n=i % 4, ab="AB"[i % 2], c="C" * (i + 1)) for i in range(12)]
    source = complete(recipe, None, ["--data", table(rows, head)])["data"]["source"]
    assert (source["kind"], source["target_kind"]) == kinds
    assert source["input"] == head.split(",")[0]


OPEN = """
data: {source: solubility}
tokenizer: Molecule
model:
  objective: {type: Regress, pool: sum}
  backbone: {type: Transformer, dim: 8, depth: 1, num_heads: 2}
presets:
  classes: {model: {objective: {type: Classify}}}
  numbers: {}
  debug: {trainer: {max_epochs: 1}}
"""


@pytest.mark.parametrize("preset", [None, "debug"])
@pytest.mark.parametrize(
    ("column", "objective", "words"),
    [
        ("toxic", "Classify", "holds classes, so the recipe's preset classes applies"),
        ("logS", "Regress", "numbers applies"),
    ],
)
def test_the_table_decides_what_a_recipe_leaves_open(table, tmp_path, caplog, preset, column, objective, words):
    (tmp_path / "open.yaml").write_text(OPEN)
    path = table([f"{'C' * (i + 1)},{'yes' if i % 2 else 'no'},{i}.5" for i in range(12)], "smiles,toxic,logS")
    with caplog.at_level(logging.WARNING, "seqkit"):
        config = complete(tmp_path / "open.yaml", preset, ["--data", path, "--data.target", column])
    assert config["model"]["objective"]["type"] == objective
    assert config["model"]["objective"]["pool"] == "sum", "what both have is kept"
    assert [record for record in caplog.records if words in record.getMessage()]
    assert (config["trainer"]["max_epochs"] == 1) == (preset == "debug")
    assert complete(config) == config


def test_the_command_has_the_last_word(table, tmp_path):
    (tmp_path / "open.yaml").write_text(OPEN)
    path = table([f"{'C' * (i + 1)},{i % 2}" for i in range(12)], "smiles,toxic")
    words = ["--data", path, "--model.objective", "Regress"]
    config = complete(tmp_path / "open.yaml", None, words)
    assert config["model"]["objective"]["type"] == "Regress"
    assert config["data"]["source"]["target_kind"] == "numbers"
    assert complete(tmp_path / "open.yaml", None, ["--data", path])["data"]["source"]["target_kind"] == "classes"


def test_a_pattern_and_a_hub_name_are_tables_too(table, tmp_path):
    reviews(table)
    config = complete("text/classify", None, ["--data", f"{tmp_path}/*.csv", "--data.target", "tone"])
    assert config["data"]["source"]["path"] == f"{tmp_path}/*.csv"
    told = {f"data.source.{key}": value for key, value in
            {"input": "text", "target": "label", "kind": "text", "target_kind": "classes"}.items()}  # fmt: skip
    config = complete("text/classify", None, {"data": "hf://owner/name", **told})
    assert config["data"]["source"]["path"] == "hf://owner/name"


def test_a_table_that_cannot_be_read_is_an_error_of_the_data(table):
    with pytest.raises(DataError, match="fit equally as target"):
        complete(
            "text/classify",
            None,
            ["--data", table([f"a long text {i},x{i % 2},y{i % 3}" for i in range(9)], "body,b,c")],
        )


@pytest.mark.parametrize("recipe", ["multimodal/caption", "multimodal/clip"])
def test_pairs_without_labels_need_no_target(table, tmp_path, recipe):
    """Each row is a pair of its own; a text that no other row has is no class."""
    for i in range(12):
        (tmp_path / f"{i}.png").write_bytes(PNG)
    path = table([f"{i}.png,a caption of {i} words" for i in range(12)], "picture,caption")
    config = complete(recipe, "debug", ["--data", path])
    source = config["data"]["source"]
    assert (source["type"], source["target_kind"], source["target"]) == ("MixedTable", "none", None)
    assert source["columns"] == {"picture": "image", "caption": "text"}
    assert list(config["tokenizer"]["parts"]) == ["picture", "caption"]


@pytest.mark.parametrize("recipe", ["multimodal/caption", "multimodal/clip"])
def test_captions_that_are_repeated_are_texts_where_nothing_reads_categories(table, tmp_path, recipe, caplog):
    for i in range(12):
        (tmp_path / f"{i}.png").write_bytes(PNG)
    path = table([f"{i}.png,{('dark', 'bright')[i % 2]} thing" for i in range(12)], "picture,caption")
    config = complete(recipe, "debug", ["--data", path])
    assert config["data"]["source"]["columns"] == {"picture": "image", "caption": "text"}
    assert "text: 'caption' (the recipe reads no categories)" in caplog.text
    other = complete("multimodal/classify", "debug", ["--data", path, "--data.target", "caption"])
    assert other["data"]["source"]["columns"] == {"picture": "image"}


def toxic(table):
    return table([f"{'C' * (i + 1)}O,{i % 2},{i % 3}.5" for i in range(12)], "smiles,toxic,logp")


def test_metrics_are_those_of_the_objective_that_the_table_chooses(table):
    given = ["--data", toxic(table), "--data.target", "toxic", "--model.objective.metrics", "[BalancedAccuracy]"]
    objective = complete("graph/molecules", None, given)["model"]["objective"]
    assert (objective["type"], objective["metrics"], objective["pool"]) == ("Classify", ["BalancedAccuracy"], "mean")


@pytest.mark.parametrize("data", [True, False])
def test_a_metric_of_another_objective_is_refused_with_the_objectives_that_have_it(table, data):
    own = ["--data", toxic(table), "--data.target", "logp"] if data else []
    with pytest.raises(UsageError) as error:
        complete("graph/molecules", None, [*own, "--model.objective.metrics", "[BalancedAccuracy]"])
    assert "RMSE" in str(error.value)
    assert "for the objective Regress, or another objective, which takes it: --model.objective Classify" in str(
        error.value
    )


def test_a_wrong_key_of_the_objective_is_refused_also_where_the_table_chooses_the_objective(table):
    with pytest.raises(UsageError, match="'metricks'; did you mean metrics"):
        complete(
            "graph/molecules",
            None,
            ["--data", toxic(table), "--data.target", "toxic", "--model.objective.metricks", "[]"],
        )


@pytest.mark.parametrize("given", ["s*", "[s00,s01,s02]"])
def test_the_columns_of_a_series_are_written_out_and_read_again(table, given):
    """A pattern is resolved once: another table may have more columns that it fits, as the target here."""
    path = table([f"{i},{i / 2},{2 * i},{'ab'[i % 2]}" for i in range(12)], "s00,s01,s02,sort")
    words = ["--data", path, "--data.input", given, "--data.target", "sort", "--tokenizer", "Series"]
    config = complete("own/classify", None, words)
    source = config["data"]["source"]
    assert (source["input"], source["kind"]) == (["s00", "s01", "s02"], "series")
    assert complete(config) == config
    written = complete("own/classify", None, [*words, "--data.kind=series", "--data.target_kind=classes"])
    assert written == config
    raws = [sample.raw for sample in build(config).data["source"].splits().train]
    assert all(raw == [raw[0], raw[0] / 2, 2 * raw[0]] for raw in raws)


def test_the_group_that_a_warning_proposes_is_taken(table):
    rows = [f"{'C' * (i % 5 + 1)},a note {i},2024-01-{i % 28 + 1:02},site {i % 3},{i / 4}" for i in range(40)]
    path = table(rows, "smiles,note,date,site,logS")
    words = ["--data", path, "--data.target", "logS", "--data.group", "smiles"]
    assert complete("graph/molecules", None, words)["data"]["source"]["input"] == "smiles"
