"""The first error on somebody's own file ends in a flag, and with that flag the file is read."""

import json
import re
import shlex

import pytest

from seqkit.cli.guess import _guess
from seqkit.config import complete
from seqkit.config.overrides import dotted
from seqkit.data import Given, GraphFile, Table
from seqkit.errors import DataError
from seqkit.runs.prepare import untrained


def series(tmp_path, *, null, is_sized=False):
    rows = [
        {"wave": [i % 3 + 0.5, 1.0, i / 7, 2.0], "kind": "ab"[i % 2]}
        | ({"size": i % 9 + 0.5} if is_sized else {})
        for i in range(40)
    ]
    for i in null:
        rows[i]["wave"][2] = None
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def printed(error):
    """The words of the flags at the end of an error."""
    return shlex.split(re.search(r"--data\.(?:(?! leaves).)*", str(error.value))[0].rstrip(")"))


@pytest.mark.parametrize("null", [[5], [3, 4, 39]])
@pytest.mark.parametrize("given", [[], ["--data.target", "kind"]])
def test_a_null_in_a_series_is_named_with_its_row_and_the_printed_flags_leave_it_out(
    tmp_path, null, given
):
    path = series(tmp_path, null=null)
    with pytest.raises(DataError, match=rf"s\.jsonl, line {null[0] + 1}: .*null") as error:
        _guess(path, list(dotted(given)), reads_files=False)
    words = ["--data", str(path), *given, *printed(error)]
    guess = _guess(path, list(dotted(words[2:])), reads_files=False)
    _, data = untrained(complete(guess.recipe, "debug", words))
    splits = data.splits()
    assert sum(map(len, (splits.train, splits.valid, splits.test))) == 40 - len(null)


def test_a_null_in_a_series_beside_other_inputs_is_said_and_lists_of_words_are_no_series(
    tmp_path, caplog
):
    path = series(tmp_path, null=[5], is_sized=True)
    Table(str(path), Given(target="kind")).inferred()
    assert "line 6: a number of wave is null" in caplog.text
    caplog.clear()
    Table(str(series(tmp_path, null=[])), Given(target="kind")).inferred()
    rows = [{"tags": ["a", None], "text": f"a text {i}", "y": i % 2} for i in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    Table(str(path), Given(target="y")).inferred()
    assert "is null" not in caplog.text


def test_molecules_that_cannot_be_read_are_counted_and_the_printed_flag_leaves_them_out(tmp_path):
    pytest.importorskip("rdkit")
    ways = [f"{'C' * (i % 7 + 1)}{'O' * (i % 3)}N" for i in range(40)]
    path = tmp_path / "m.csv"
    rows = [f"{way},{i % 5 + 0.5}" for i, way in enumerate([*ways, "C1CC", "C(", "CCF"])]
    path.write_text("\n".join(["smiles,y", *rows]) + "\n", encoding="utf-8")
    words = ["--data", str(path)]
    with pytest.raises(DataError, match=r"not a valid SMILES.*2 of 43 rows") as error:
        _, data = untrained(complete("graph/molecules", "debug", words))
        data.train_dataloader(), data.val_dataloader(), data.test_dataloader()
    _, data = untrained(complete("graph/molecules", "debug", [*words, *printed(error)]))
    splits = data.splits()
    data.train_dataloader(), data.val_dataloader(), data.test_dataloader()
    assert sum(map(len, (splits.train, splits.valid, splits.test))) == 41


def test_the_attribute_of_a_graph_is_named_with_the_flag(tmp_path):
    (tmp_path / "nodes.csv").write_text(
        "id,team\n" + "".join(f"n{i},{'ab'[i % 2]}\n" for i in range(20)), encoding="utf-8"
    )
    (tmp_path / "edges.csv").write_text(
        "source,target\n" + "".join(f"n{i},n{i + 1}\n" for i in range(19)), encoding="utf-8"
    )
    with pytest.raises(DataError, match=r"label \(team\).*--data\.target team$") as error:
        GraphFile(str(tmp_path)).splits()
    assert GraphFile(str(tmp_path), target=printed(error)[1]).splits().names == ["a", "b"]
