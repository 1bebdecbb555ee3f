"""Source code as words, and edges along its syntax tree."""

import pytest

from seqkit.errors import DataError
from seqkit.tokenizers.python_code import PythonCode, lexemes, parsed, tree_edges

SOURCE = '''
def read_file(path, *, size=3):
    with openFile(path) as é:  # é takes two bytes
        return [x.strip() for x in é if "a b"]
'''


def words(source):
    return [one.word for one in lexemes(source)]


def test_names_are_cut_and_values_are_one_word():
    assert words("read_HTTPFile2(x, 'a b', 3.5)  # so") == [
        *("read", "_", "HTTP", "File", "2", "(", "x", ",", "<string>", ",", "<number>", ")", "<newline>")
    ]  # fmt: skip


def test_a_word_belongs_to_the_innermost_node_around_it():
    found = words(SOURCE)
    edges = {(found[a], found[b]) for a, b in tree_edges(parsed(SOURCE), lexemes(SOURCE))}
    assert {("def", "path"), ("def", "with"), ("with", "return"), ("return", "["), ("[", "<string>")} <= edges
    assert ("x", "strip") in edges  # x.strip begins with x
    assert ("with", "x") not in edges


def test_a_change_of_layout_changes_no_token():
    spread = "x = f(1,\n      2)  # a comment\n"
    assert words(spread) == words("x = f(1, 2)\n")


def test_tokens_far_apart_in_the_tree_do_not_attend():
    code = PythonCode(tree=True, max_distance=1)
    code.fit([SOURCE])
    tokens = code.encode(SOURCE)
    found, pairs = words(SOURCE), set(map(tuple, tokens.adjacency.edge_index.T.tolist()))
    first, last = found.index("def"), len(found) - found[::-1].index("<string>") - 1
    assert (first, last) not in pairs
    assert all((i, i + 1) in pairs for i in range(len(found) - 1))


def test_a_long_sum_is_no_deep_recursion():
    code = PythonCode(tree=True)
    raw = " + ".join(["a"] * 300)
    code.fit([raw])
    assert len(code.encode(raw)) == 600


@pytest.mark.parametrize("raw", ["def f(:", "x = (", "\x00", "# alone", "if x:\npass", "(" * 300])
def test_what_is_no_python_is_refused(raw):
    with pytest.raises(DataError):
        lexemes(raw)


def test_a_file_is_read_in_the_encoding_that_it_declares(tmp_path):
    path = tmp_path / "old.py"
    path.write_bytes("# coding: latin-1\nx = 'é'\n".encode("latin-1"))
    assert "é" in PythonCode().read(path)
    path.write_bytes(b"# coding: nonsense\n")
    with pytest.raises(DataError, match=r"old\.py"):
        PythonCode().read(path)
