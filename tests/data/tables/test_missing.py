"""Cells that say that nothing is known: one list for tables and graphs, as targets, features and files."""

import networkx
import pytest

from seqkit.data import Table
from seqkit.data.inputs import Inputs
from seqkit.data.sources.graph_file import GraphFile
from seqkit.data.tables.columns import AMBIGUOUS, is_missing
from seqkit.interfaces import IGNORE
from seqkit.tokenizers import Bytes

WORDS = (
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NULL",
    "NaN", "n/a", "nan", "null", "+nan", "-nan(ind)", "(null)", r"\N", "NaT", " nan ",
)  # fmt: skip


def table(tmp_path, *rows, head="text,label"):
    path = tmp_path / "t.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return str(path)


def test_what_pandas_reads_as_missing_is_missing_or_may_be():
    from pandas.io.parsers.readers import STR_NA_VALUES

    assert {word for word in STR_NA_VALUES if not is_missing(word) and word.lower() not in AMBIGUOUS} == set()
    assert not any(map(is_missing, AMBIGUOUS))


def test_no_class_is_called_missing(tmp_path, caplog, subtests):
    for word in WORDS:
        with subtests.test(word):
            caplog.clear()
            path = table(tmp_path, *(f"a {i},{'ab'[i % 2]}" for i in range(10)), f"x,{word}", f"y,{word}")
            assert Table(path).splits().names == ["a", "b"]
            assert "2 of 12 rows are left out (no label: 2, the first in line 12)" in caplog.text


def test_a_measurement_may_be_missing(tmp_path, caplog, subtests):
    for word in [*WORDS, *sorted(AMBIGUOUS)]:
        with subtests.test(word):
            caplog.clear()
            path = table(tmp_path, *(f"a {i},{i}.5" for i in range(10)), f"x,{word}")
            assert Table(path).settled().target_kind == "numbers"
            Table(path).splits()
            assert "1 of 11 rows are left out (no label: 1, the first in line 12)" in caplog.text


@pytest.mark.parametrize(
    ("word", "suffix"), [*((word, ".graphml") for word in WORDS), *((word, ".csv") for word in WORDS[-3:])]
)
def test_a_node_without_a_label_is_unlabelled_and_a_number_may_be_missing(tmp_path, word, suffix):
    ring = networkx.cycle_graph(20)
    nodes = [{"label": "ab"[i // 10], "town": ("Ulm", "Bonn")[i % 2]} for i in range(20)]
    nodes[3] = {"label": word, "town": word}
    if suffix == ".graphml":
        ring.add_nodes_from(enumerate(nodes))
        networkx.write_graphml(ring, path := tmp_path / "g.graphml")
    else:
        path = tmp_path
        table(tmp_path, *(f"{i},{n['label']},{n['town']}" for i, n in enumerate(nodes)), head="id,label,town")
        (tmp_path / "t.csv").rename(tmp_path / "nodes.csv")
        (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in ring.edges))
    splits = GraphFile(str(path), index=False).splits()
    assert splits.names == ["a", "b"]
    assert all(part[0].label[3] == IGNORE for part in (splits.train, splits.valid, splits.test))
    assert splits.train[0].raw.nodes[3].tolist() == [0, 0, 1]


def test_a_text_stays_a_text_and_is_named(tmp_path, caplog):
    """The word "null" has a pronunciation, and is a word to translate."""
    rows = [f"a {i},b {i}" for i in range(10)]
    path = table(tmp_path, *rows, "null,zero", "nan,bread", "a,NULL", head="source,target")
    splits = Table(path, target_kind="text").splits()
    assert {"null", "nan"} < {splits.train[i].raw for i in range(len(splits.train))} | {s.raw for s in splits.test}
    for found in ("2 rows source is a word for a missing value (first: line 12)", "1 rows target is a word"):
        assert f"t.csv: in {found}" in caplog.text


def test_a_row_may_have_no_molecule_or_image(tmp_path, caplog):
    rows = [f"{'C' * i},{'ab'[i % 2]}" for i in range(1, 11)]
    path = table(tmp_path, *rows, "NaN,a", head="smiles,label")
    Table(path).splits()
    assert "1 of 11 rows are left out (no smiles: 1, the first in line 12)" in caplog.text
    assert [one.error for one in Inputs([path], Bytes())][-1] == f"{path}, line 12: smiles is empty"


def test_tags_of_a_row_may_be_missing_and_a_tag_is_named(tmp_path, caplog):
    rows = [f"red cat,X {'XY'[i % 2]}" for i in range(10)]
    splits = Table(table(tmp_path, *rows, "a,NaN", "a b,X null", head="words,tags"), target_kind="tags").splits()
    assert splits.names == ["X", "Y", "null"]
    assert "1 of 12 rows are left out (no tags: 1, the first in line 12)" in caplog.text
    assert "null counts as a class of tags" in caplog.text


def test_rows_without_a_group_are_each_one_by_themselves_and_counted(tmp_path, caplog):
    rows = [f"a {i},{'ab'[i % 2]},g{i}" for i in range(10)]
    path = table(tmp_path, *rows, "x,a,NaN", "y,a,", head="text,label,who")
    splits = Table(path, input="text", target="label", group="who").splits()
    assert len(splits.train) + len(splits.test) == 12
    assert "2 rows have no who (first: " in caplog.text
    assert "t.csv, line 12)" in caplog.text
    assert "of 12 groups by 'who'" in caplog.text
    with_null = table(tmp_path, *(row[:-3] for row in rows), "null,a")
    assert Table(with_null, input="text", target="label", group="text").splits().names == ["a", "b"]
