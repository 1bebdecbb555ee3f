"""Code of others that misbehaves when it is imported is named, by file or package, without a traceback."""

import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from seqkit.cli.main import main
from seqkit.registry import find, lookup, plugins

MODULES = {
    "raises": ("1 / 0", "ZeroDivisionError: division by zero"),
    "leaves": ("raise SystemExit(5)", "SystemExit: 5"),
    "lacks": ("", "has no attribute 'Tok'"),
}


class _Distribution:
    def __init__(self, name):
        self.name = name


def install(monkeypatch, tmp_path, *packages):
    """Have packages (name, name of its tokenizer, source of its module) found as if they were installed."""
    points = []
    for package, name, source in packages:
        (tmp_path / f"{package}_module.py").write_text(source, encoding="utf-8")
        point = EntryPoint(name, f"{package}_module:Tok", "seqkit.tokenizers")
        vars(point).update(dist=_Distribution(package))
        points.append(point)
        monkeypatch.delitem(sys.modules, f"{package}_module", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lookup, "entry_points", lambda: EntryPoints(points))
    monkeypatch.setattr(lookup, "_of_every_kind", lookup._of_every_kind.__wrapped__)
    monkeypatch.setenv("COLUMNS", "400")


@pytest.mark.parametrize("fault", MODULES)
def test_a_package_that_cannot_be_imported_is_listed_and_named_in_the_error(
    monkeypatch, tmp_path, capsys, fault
):
    source, message = MODULES[fault]
    install(monkeypatch, tmp_path, (fault, "Odd", source))
    assert main(["list", "tokenizers"]) == 0
    assert "Odd" in capsys.readouterr().out
    with pytest.raises(ValueError, match=message) as refused:
        find("tokenizer", "Odd").load()
    assert fault in str(refused.value)


def test_a_package_that_prints_is_named_on_stderr_and_used(monkeypatch, tmp_path, capsys):
    install(monkeypatch, tmp_path, ("chatty", "Odd", "print('hello')\nclass Tok: ..."))
    assert find("tokenizer", "Odd").load().__name__ == "Tok"
    said = capsys.readouterr()
    assert not said.out
    assert "chatty_module from chatty prints while it is imported: hello" in said.err


def test_names_that_are_taken_are_named_in_the_list_and_the_first_is_used(
    monkeypatch, tmp_path, capsys
):
    source = "class Tok: ..."
    install(
        monkeypatch,
        tmp_path,
        ("one", "bytes", source),
        ("two", "Odd", source),
        ("three", "odd", source),
    )
    assert find("tokenizer", "Bytes").path == "seqkit.tokenizers:Bytes"
    assert find("tokenizer", "ODD").package == "two"
    assert main(["list", "tokenizers"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    assert (
        "one also has a tokenizer called bytes, which is not used: seqkit has that name" in listed
    )
    assert "three also has a tokenizer called odd, which is not used: two has that name" in listed


def test_a_plug_in_file_is_listed(tmp_path, capsys, monkeypatch):
    source = "import seqkit\n@seqkit.register('tokenizer', 'Mine', what='of mine')\nclass Mine(seqkit.Tokenizer): ...\n"
    (tmp_path / "mine_file.py").write_text(source, encoding="utf-8")
    assert main(["list", "tokenizers", "--plugin", str(tmp_path / "mine_file.py")]) == 0
    assert "Mine" in capsys.readouterr().out


def test_a_file_may_import_modules_of_its_folder_but_shadows_none(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_the_file.py").write_text(
        "from json import dumps\nVALUE = dumps(7)\n", encoding="utf-8"
    )
    (tmp_path / "json.py").write_text("raise AssertionError\n", encoding="utf-8")
    file = tmp_path / "that_needs_another.py"
    file.write_text("from beside_the_file import VALUE\n", encoding="utf-8")
    try:
        plugins.import_plugins([file])
        assert sys.modules["that_needs_another"].VALUE == "7"
    finally:
        for name in ("that_needs_another", "beside_the_file"):
            sys.modules.pop(name, None)
