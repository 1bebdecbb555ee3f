"""Functions of Python files: no code holds its own name, whole files are held out, nothing is run."""

import pytest

from seqkit.data import PythonFiles
from seqkit.data.inputs import Inputs
from seqkit.data.sources.python_files import functions
from seqkit.errors import DataError
from seqkit.tokenizers import PythonCode

SOURCE = '''
raise SystemExit("this file is read, and never run")

class Tree:
    @cached(key="walk")
    async def _walkAll(self, depth, *, _walkAll=None):
        """Walk, as _walkAll does."""
        global _walkAll
        walkAll = await self._walkAll(depth - 1)  # _walkAll again
        return super()._walkAll, f"{_walkAll}: _walkAll()", walkAll

    def __init__(self): ...

    def get(self):
        """Only a docstring."""
'''


def written(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def test_a_function_does_not_hold_its_own_name(tmp_path):
    walk, get = functions(written(tmp_path, m=SOURCE) / "m.py")
    assert "_walkAll" not in walk.raw.split()
    assert walk.raw == (
        "async def _(self, depth, *, _=None):\n    global _\n    walkAll = await self._(depth - 1)\n"
        "    return (super()._, f'{_}: _()', walkAll)"
    )
    assert (walk.label, walk.name) == ("walk all", f"{tmp_path}/m.py:6 _walkAll")
    assert (get.raw, get.label) == ("def _(self):\n    pass", "get")


def test_a_statement_that_is_called_as_the_function_stays(tmp_path):
    source = "def match(x):\n    match x.match:\n        case 1:\n            match = re.match(x)\n"
    (one,) = functions(written(tmp_path, m=source) / "m.py")
    assert one.raw == "def _(x):\n    match x._:\n        case 1:\n            _ = re._(x)"


def test_whole_files_are_held_out_and_equal_code_counts_once(tmp_path):
    own = [
        "".join(f"def read_{i}_{j}(x): return x + {j}{i}\n" for j in range(1, 4)) for i in range(7)
    ]
    files = {f"m{i}": f"{code}def same(y): return y\n" for i, code in enumerate(own)}
    splits = PythonFiles(str(written(tmp_path, **files, empty="")), test_fraction=0.3).splits()
    samples = [*splits.train, *splits.test]
    assert len(samples) == 22
    assert sum(sample.label == "same" for sample in samples) == 1
    assert not {sample.group for sample in splits.train} & {sample.group for sample in splits.test}


def test_functions_of_one_file_are_split(tmp_path):
    path = written(tmp_path, m="".join(f"def f{i}(x): return {i}\n" for i in range(20))) / "m.py"
    splits = PythonFiles(str(path)).splits()
    assert (len(splits.train), len(splits.test)) == (18, 2)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"x = 1\ndef f(:\n", "line 2"),
        (b"# coding: nonsense\n", "encoding"),
        (b"x = '\xff'\n", "utf-8"),
        (b"\0", "null"),
    ],
)
def test_a_file_that_does_not_parse_is_named(tmp_path, content, fact):
    path = tmp_path / "bad.py"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"bad\.py: .*{fact}"):
        PythonFiles(str(tmp_path)).splits()


def test_a_file_is_read_in_the_encoding_that_it_declares(tmp_path):
    path = tmp_path / "old.py"
    path.write_bytes("# coding: latin-1\ndef f(): return 'é'\n".encode("latin-1"))
    assert "é" in functions(path)[0].raw


def test_each_function_is_an_input_beside_other_files(tmp_path):
    written(tmp_path, m=SOURCE, broken="def f(:")
    (tmp_path / "README.md").write_text("About it.")
    broken, walk, get = Inputs([str(tmp_path)], PythonCode())
    assert "line 1" in broken.error
    assert [walk.name, get.name] == [f"{tmp_path}/m.py:6 _walkAll", f"{tmp_path}/m.py:14 get"]


def test_a_function_inside_another_is_a_part_of_it(tmp_path):
    source = "def outer():\n    if 1:\n        def inner(): pass\nclass A:\n    if 1:\n        def method(self): pass\n"
    assert [one.label for one in functions(written(tmp_path, m=source) / "m.py")] == [
        "outer",
        "method",
    ]
