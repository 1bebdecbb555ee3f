"""The frame of the project: who may import whom, what stays light, what is packed."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import seqkit
from seqkit.recipe import recipe_folder, recipe_names

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "seqkit"
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if "_recipes" not in path.parts)

ORDER = [
    {"parts"},
    {"registry", "__init__", "quiet"},
    {"recipe", "front"},
    {"contract", "messages"},
    {"weights"},
    {"layers", "tokenizers"},
    {"mask"},
    {"embed"},
    {"heads", "backbones"},
    {"objectives", "conformance", "presets"},
    {"model"},
    {"maps"},
    {"optim"},
    {"learner", "trainer", "data", "generate", "progress"},
    {"configure", "doctor", "plugins"},
    {"run"},
    {"describe"},
    {"report"},
    {"cli"},
    {"__main__"},
]
"""A module imports only what stands above it, and its own package; parts of one row know nothing of each other."""
UPWARD: set[tuple[str, str]] = set()
"""Exceptions, each with its reason. There are none."""


def rank(part):
    (place,) = [i for i, row in enumerate(ORDER) if part in row]
    return place


def part_of(path):
    return path.parts[0].removesuffix(".py")


def imports(tree):
    """Parts of seqkit that a module imports, wherever in it; what only type checkers see does not count."""
    if isinstance(tree, ast.If) and isinstance(tree.test, ast.Name) and tree.test.id == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.Import):
        yield from (name.name.split(".")[1] for name in tree.names if name.name.startswith("seqkit."))
    if isinstance(tree, ast.ImportFrom) and (tree.module or "").split(".")[0] == "seqkit":
        inner = tree.module.split(".")[1:]
        yield from inner[:1] or [name.name for name in tree.names if (PACKAGE / f"{name.name}.py").exists()
                                 or (PACKAGE / name.name).is_dir()]  # fmt: skip
    assert not (isinstance(tree, ast.ImportFrom) and tree.level), "a relative import hides where it goes"
    for child in ast.iter_child_nodes(tree):
        yield from imports(child)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_run_one_way(path):
    own = part_of(path)
    for part in imports(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))):
        allowed = part == own or rank(part) < rank(own) or (path.as_posix(), part) in UPWARD
        assert allowed, f"seqkit/{path} imports seqkit.{part}, which stands beside or below {own} (see ORDER)"


def test_the_check_of_imports_sees_them_all():
    source = """
from typing import TYPE_CHECKING
import seqkit.mask
from seqkit import contract
if TYPE_CHECKING:
    from seqkit.run import Loaded
def f():
    from seqkit.data.loader import Data
"""
    assert list(imports(ast.parse(source))) == ["mask", "contract", "data"]
    with pytest.raises(AssertionError, match="relative"):
        list(imports(ast.parse("from . import mask")))


def test_every_part_has_its_place_in_the_order():
    assert {part_of(path) for path in FILES} <= {name for row in ORDER for name in row}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_holds_one_idea(path):
    count = len((PACKAGE / path).read_text(encoding="utf-8").splitlines())
    limit = 450 if path.as_posix() == "contract.py" else 300  # the contract is read as a whole, once
    assert count <= limit, f"seqkit/{path} has {count} lines: it holds two ideas"


HEAVY = {
    "torch",
    "torchvision",
    "torchaudio",
    "pytorch_lightning",
    "timm",
    "torchmetrics",
    "matplotlib",
    "numpy",
}


def modules_after(code):
    """Top-level modules that a fresh Python holds after `code`, what it wrote, and its exit code."""
    script = f"""
import sys
try:
    {code}
except SystemExit as stop:
    code = stop.code
finally:
    print("\\n" + " ".join(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *said, modules = done.stdout.rstrip().split("\n")
    return set(modules.split()), "\n".join(said)


def test_importing_seqkit_brings_nothing_heavy():
    modules, _ = modules_after("import seqkit")
    assert "seqkit" in modules
    assert not modules & HEAVY


@pytest.mark.parametrize(
    ("words", "answer"),
    [("--help", "COMMAND"), ("--version", seqkit.__version__), ("list", "text/char-lm"), ("fit --help", "recipe")],
)
def test_help_version_and_lists_import_no_torch(words, answer):
    modules, said = modules_after(f"import seqkit.cli; seqkit.cli.main({words.split()!r})")
    assert answer in said
    assert not modules & HEAVY


def test_doctor_reads_metadata_before_it_imports_torch():
    modules, _ = modules_after("import seqkit.doctor")
    assert not modules & HEAVY


def test_recipes_are_found_and_begin_with_what_they_are():
    assert {"text/char-lm", "image/digits", "audio/spoken-digits", "graph/solubility"} <= set(recipe_names())
    for name in recipe_names():
        first = (recipe_folder() / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith("# "), f"recipes/{name}.yaml should begin with a line that `seqkit list` shows"


def test_no_module_names_a_place_on_somebodys_machine():
    own = {Path(__file__)}
    for path in [
        *ROOT.glob("*.*"),
        *(p for d in ("seqkit", "recipes", "tests", "docs") for p in (ROOT / d).rglob("*")),
    ]:
        if path.is_file() and path.suffix in (".py", ".md", ".yaml", ".toml", ".txt", ".html") and path not in own:
            text = path.read_text(encoding="utf-8")
            for place in ("/work/", "/home/", "/root/", "/tmp/"):
                assert place not in text, f"{path.relative_to(ROOT)} names {place}"


def test_constraints_pin_every_dependency_once():
    import tomllib

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(str(pin.specifier).startswith("==") and pin.url is None for pin in pins)
    versions = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pins}
    assert len(versions) == len(pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    for need in map(Requirement, [*project["dependencies"], *extras]):
        if need.name != "seqkit":
            assert versions.get(canonicalize_name(need.name), "0") in need.specifier, f"constraints.txt lacks {need}"


@pytest.mark.slow
def test_the_wheel_holds_recipes_and_page_but_no_tests(tmp_path):
    pytest.importorskip("build")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"seqkit/_recipes/{name}.yaml" for name in recipe_names()} <= names
    assert {"seqkit/contract.py", "seqkit/report/page.html"} <= names
    assert not [name for name in names if name.startswith(("tests/", "runs/", ".ci/"))]
