"""Functions of the standard library: without their names, whole modules held out."""

import ast

from seqkit.recipes.code.functions import StdlibFunctions, functions, split_of, words_of


def test_words_of_a_name():
    assert [words_of(x) for x in ("_readFile", "get_HTTPStatus2", "add")] == ["read file", "get http status 2", "add"]


def test_a_function_does_not_hold_its_name(tmp_path):
    path = tmp_path / "m.py"
    path.write_text('class A:\n    @staticmethod\n    def walk(x):\n        """Walk."""\n        y = A.walk(x)\n        return y\n')
    (sample,) = functions(path, "m.py")
    assert (sample.raw, sample.label) == ("def _(x):\n    y = A._(x)\n    return y\n", "walk")


def test_modules_are_in_one_split():
    splits = StdlibFunctions(["json", "email"]).splits()
    assert len(splits.train) > 50
    for name in ("train", "valid", "test"):
        for sample in getattr(splits, name):
            assert split_of(sample.group) == name
            ast.parse(sample.raw)
