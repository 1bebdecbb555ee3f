"""Source code as words, and edges along its syntax tree."""

import pytest

from seqkit.errors import DataError
from seqkit.tokenizers import Join, Words
from seqkit.tokenizers.python_code import PythonCode, split, tree_edges

SOURCE = """
def read_file(path, *, size=3):
    if path:
        size = 1
    with openFile(path) as é:  # é takes two bytes
        return [x.strip() for x in é if "a b"]
"""


def words(source):
    return split(source)[0]


def test_names_are_cut_and_values_are_one_word():
    assert words("read_HTTPFile2(éA, 'a b', -3.5, f'c', _)  # so") == [
        *("read", "HTTP", "File", "2", "é", "A", "<string>", "-", "<number>", "<string>", "_"),
    ]  # fmt: skip


def test_a_token_belongs_to_the_smallest_node_around_it():
    found, places, module = split(SOURCE)
    edges = {(found[a], found[b]) for a, b in tree_edges(places, module)}
    assert {
        ("def", "path"),
        ("def", "with"),
        ("with", "return"),
        ("return", "x"),
        ("x", "<string>"),
    } <= edges
    assert ("x", "strip") in edges  # x.strip begins with x
    assert ("with", "x") not in edges


def test_a_change_of_layout_changes_no_token():
    assert words("x = f(1,\n      2)  # a comment\n") == words("  x = f(1, 2)\n")


@pytest.mark.parametrize("distance", [1, 2])
def test_tokens_far_apart_in_the_tree_do_not_attend(distance):
    code = PythonCode(tree=True, max_distance=distance)
    code.fit([SOURCE])
    tokens, found = code.encode(SOURCE), words(SOURCE)
    pairs = set(map(tuple, tokens.adjacency.edge_index.T.tolist()))
    assert all((i, i + 1) in pairs for i in range(len(found) - 1))
    start, name, last = found.index("def"), found.index("with"), found.index("return")
    assert (start, name) in pairs  # one hop
    assert ((start, last) in pairs) == (distance == 2)
    assert (start, found.index("<string>")) not in pairs


def test_the_first_tokens_keep_the_edges_among_them():
    code = PythonCode(tree=True)
    code.fit([SOURCE])
    tokens = code.encode(SOURCE)
    first = code.cut(tokens, 7)
    assert len(first) == 7
    kept = (tokens.adjacency.edge_index < 7).all(dim=0)
    assert first.adjacency.edge_index.tolist() == tokens.adjacency.edge_index[:, kept].tolist()


def test_a_long_sum_is_no_deep_recursion():
    code = PythonCode(tree=True)
    raw = " + ".join(["a"] * 300)
    code.fit([raw])
    assert len(code.encode(raw)) == 599


@pytest.mark.parametrize(
    "raw", ["def f(:", "x = (", "\x00", "# alone", "()", "-" * 10_000 + "1", "'\ud800'"]
)
def test_what_is_no_python_is_refused(raw):
    with pytest.raises(DataError):
        split(raw)


def test_code_joins_with_text():
    join = Join({"code": PythonCode(tree=True), "text": Words()})
    raw = {"code": SOURCE, "text": "reads a file"}
    join.fit([raw])
    tokens = join.encode(raw)
    join.spec.check(tokens)
    assert len(tokens) == len(words(SOURCE)) + 3
