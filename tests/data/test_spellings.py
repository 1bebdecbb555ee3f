"""One class is one class: equal values get one spelling, and words that look alike are named, wherever classes are."""

import json

import pytest

from seqkit.data import GraphFile, Table, TextFolder
from seqkit.data.spellings import alike, one_spelling
from seqkit.data.tables.schema import Given


@pytest.mark.parametrize(
    ("words", "classes"),
    [
        (["3", "3.00", "7"], {"3", "7"}),
        (["1", "true", "False", "0.0"], {"1", "0.0"}),
        (["True", "true", "FALSE"], {"true", "FALSE"}),
        (["3", "03"], {"3", "03"}),  # codes
        (["1E2", "100"], {"1E2", "100"}),
        (["1", "1.0", "one"], {"1", "1.0", "one"}),
        (["a", "A", "O"], {"a", "A", "O"}),
    ],
)
def test_equal_values_get_one_spelling_where_all_words_are_values(words, classes):
    spelling = one_spelling(words)
    assert {*spelling} == {*words}
    assert {*spelling.values()} == classes


def test_words_that_look_alike_are_named_with_their_counts():
    said = alike({"Ärger": 3, "a\u0308rger": 4, "Lob": 5, "Tag": 2, "Tag\u00a0": 6})
    assert "'\\xc4rger' (3)" in said or "'Ärger' (3)" in said
    assert "'Tag' (2) and 'Tag\\xa0' (6)" in said
    assert "Lob" not in said
    assert "a\\u0308" in alike({"\u00e4": 1, "a\u0308": 1}), "two Unicode forms are told apart"
    assert not alike({"A": 1, "B": 2, "AB": 3, "O": 4, "A+": 5, "A-": 6})


def table(folder, **columns):
    path = folder / "t.jsonl"
    rows = [{name: column(i) for name, column in columns.items()} for i in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_table_has_one_class_for_a_number_and_names_classes_and_categories_that_look_alike(
    tmp_path, caplog
):
    words = "fine {}".format
    path = table(tmp_path, text=words, label=lambda i: i % 3 if i < 30 else f"{i % 3}.0")
    splits = Table(path).splits()
    assert splits.names == ["0", "1", "2"]
    assert {*splits.train.labels} == {0, 1, 2}
    assert "look alike" not in caplog.text
    path = table(
        tmp_path,
        town=lambda i: ("Ulm", "ULM", "Bonn")[i % 3],
        text=words,
        label=lambda i: ("No", "no", "si")[i % 3],
    )
    Table(path, Given(target="label")).splits()
    assert "classes of label: 'No' (20) and 'no' (20) look alike" in caplog.text
    assert "categories of town: 'ULM' (20) and 'Ulm' (20) look alike" in caplog.text


def test_folders_and_nodes_whose_classes_look_alike_are_named(tmp_path, caplog):
    for name in ("ham", "ham ", "spam"):
        (tmp_path / "mail" / name).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "mail" / name / f"{i}.txt").write_text(f"{name} {i}")
    TextFolder(str(tmp_path / "mail")).splits()
    assert "classes 'ham' (5) and 'ham ' (5) look alike" in caplog.text
    (tmp_path / "g").mkdir()
    edges = "".join(f"{i},{(i + 1) % 30}\n" for i in range(30))
    (tmp_path / "g" / "edges.csv").write_text("source,target\n" + edges)
    nodes = "".join(f"{i},{('Rot', 'rot', 'blau')[i % 3]},{i}\n" for i in range(30))
    (tmp_path / "g" / "nodes.csv").write_text("id,label,age\n" + nodes)
    assert GraphFile(str(tmp_path / "g")).splits().names == ["Rot", "blau", "rot"]
    assert "classes 'Rot' (10) and 'rot' (10) look alike" in caplog.text
    nodes = "".join(f"{i},{('1', '1.0', '2')[i % 3]},{i}\n" for i in range(30))
    (tmp_path / "g" / "nodes.csv").write_text("id,label,age\n" + nodes)
    assert GraphFile(str(tmp_path / "g")).splits().names == ["1", "2"]
