"""The frame of the project: which package imports which, the words that it speaks, what stays light, what is packed."""

import ast
import json
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from pathlib import Path

import pytest

import seqkit
from seqkit.cli.parser import COMMANDS
from seqkit.config import find_recipe, recipe_names
from tests.house import FILES, PACKAGE, ROOT, density, measure, sizes, wide_functions

# ── packages ──────────────────────────────────────────────────────────────────────────────────────────────────────────

ORDER = [
    {"errors"},
    {"raw", "files", "progress", "recipes", "registry"},
    {"interfaces"},
    {"nn", "tokenizers"},
    {"backbones"},
    {"model"},
    {"generation", "mixture"},
    {"objectives", "data"},
    {"testing"},
    {"training"},
    {"pretrained"},
    {"config", "classical"},
    {"runs"},
    {"analysis", "serve"},
    {"doctor"},
    {"comparison"},
    {"report"},
    {"export"},
    {"cli"},
    {"__init__", "__main__"},
]
"""A package imports only packages above it, and itself; those of one row do not import each other."""


@pytest.fixture(scope="module")
def trees():
    return {path: ast.parse((PACKAGE / path).read_text(encoding="utf-8")) for path in FILES}


def rank(package):
    (place,) = [i for i, row in enumerate(ORDER) if package in row]
    return place


def package_of(path):
    return path.parts[0].removesuffix(".py")


def imports(tree):
    """Packages of seqkit that a module imports, wherever in it; what only type checkers see does not count."""
    for node in ast.walk(_without_type_checking(tree)):
        if isinstance(node, ast.Import):
            yield from (
                name.name.split(".")[1] for name in node.names if name.name.startswith("seqkit.")
            )
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import hides where it goes"
            if (node.module or "").split(".")[0] == "seqkit":
                inner = node.module.split(".")[1:]
                names = [name.name for name in node.names]
                yield from inner[:1] or [
                    name
                    for name in names
                    if (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()
                ]


def test_groups_of_which_the_fast_tier_runs_a_part_are_there():
    known = tomllib.loads((ROOT / "tests/fast_tier.toml").read_text(encoding="utf-8"))
    named = [
        (file, name) for files in known.values() for file, names in files.items() for name in names
    ]
    assert len(named) > 50
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {name}"


def test_one_function_alone_loads_a_pickle_and_it_is_of_our_own_process(trees):
    loading = [
        path.as_posix()
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node).startswith("pickle.")
        and node.attr != "dumps"
    ]
    assert loading == ["testing/another_process.py"]


def test_imports_run_one_way(trees):
    for path in FILES:
        own = package_of(path)
        for package in imports(trees[path]):
            allowed = package == own or rank(package) < rank(own)
            assert allowed, (
                f"seqkit/{path} imports seqkit.{package}, which is beside or below {own} (see ORDER)"
            )


def test_modules_of_one_package_import_each_other_without_a_cycle(trees):
    """By module, imports inside functions included."""
    modules = {
        ".".join(("seqkit", *path.with_suffix("").parts)).removesuffix(".__init__"): path
        for path in FILES
    }
    graph = {name: set() for name in modules}
    for name, path in modules.items():
        for node in ast.walk(_without_type_checking(trees[path])):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module in modules
                and path.name != "__init__.py"
            ):
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & set(modules)
                graph[name] |= inner or {node.module}
    done, trail = set(), []

    def visit(name):
        assert name not in trail, (
            f"a cycle of imports: {' → '.join([*trail[trail.index(name) :], name])}"
        )
        if name not in done:
            trail.append(name)
            for other in sorted(graph[name] - {name}):
                visit(other)
            trail.pop()
            done.add(name)

    for name in graph:
        visit(name)


def _without_type_checking(tree):
    body = [
        node for node in tree.body
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]  # fmt: skip
    return ast.Module(body, type_ignores=[])


def test_the_check_of_imports_sees_them_all():
    source = """
from typing import TYPE_CHECKING
import seqkit.nn.block
from seqkit import interfaces
if TYPE_CHECKING:
    from seqkit.runs.run import TrainedModel
def f():
    from seqkit.data.module import DataModule
"""
    assert list(imports(ast.parse(source))) == ["nn", "interfaces", "data"]
    with pytest.raises(AssertionError, match="relative"):
        list(imports(ast.parse("from . import block")))


def test_every_package_has_its_place_in_the_order():
    assert {package_of(path) for path in FILES} <= {name for row in ORDER for name in row}


def test_at_most_eight_modules_are_outside_packages():
    assert len([path for path in FILES if len(path.parts) == 1]) <= 8


# ── budget ───────────────────────────────────────────────────────────────────────────────────────────────────────────

BUDGET = "tests/house.toml"


def test_comments_docstrings_and_line_breaks_are_no_tokens():
    text = '"""What it is."""\n\n# why\ndef twice(x):\n    """Double."""\n    return (\n        2 * x\n    )\n'
    tokens = ["def", "twice", "(", "x", ")", ":", "return", "(", "2", "*", "x", ")"]
    assert (measure(text)["tokens"], measure(text)["lines"]) == (len(tokens), 4)


DENSE = {
    "a, b = c, d": "parallel",
    "x = a if b else c": "ternaries",
    "x = a if b else c if d else e": "nested",
    "def f(x: Mapping[str, Any]): pass": "open",
}


@pytest.mark.parametrize(("line", "kind"), DENSE.items())
def test_what_makes_code_dense_is_counted(line, kind):
    assert measure(line)[kind] == 1
    assert measure("a, b = b, a")[kind] == 0


def test_a_function_of_nine_parameters_is_wide(tmp_path):
    names = "abcdefgh"
    path = tmp_path / "one.py"
    path.write_text(f"""
class Narrow:
    def __init__(self, {", ".join(names)}): pass
class Wide:
    def __init__(self, {", ".join(names)}, *, i): pass
def wide({", ".join(names)}, i): pass
""")
    assert list(wide_functions(path)) == ["wide", "Wide"]


def outside(budget, sizes):
    """A sentence for each room that is over its budget, or so far below it that the budget can go down."""
    for kind, rooms in budget.items():
        assert rooms.keys() == sizes[kind].keys(), (
            f"{BUDGET} [{kind}] and the tree have other rooms"
        )
        for room, most in rooms.items():
            size = sizes[kind][room]
            if size > most:
                yield f"{room} has {size} {kind}, {size - most} more than its budget: take something away"
            if size < 0.97 * most - 20:
                yield f"{room} has {size} {kind}, and its budget is {most}: write {size} into {BUDGET}"


def budget_at(commit):
    text = subprocess.run(
        ["git", "show", f"{commit}:{BUDGET}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tomllib.loads(text.stdout)


def budgets():
    return tomllib.loads((ROOT / BUDGET).read_text(encoding="utf-8"))


@pytest.mark.slow
def test_every_room_keeps_to_its_budget():
    budget = {kind: budgets()[kind] for kind in ("tokens", "words")}
    assert list(outside(budget, sizes())) == []


@pytest.mark.slow
def test_the_code_is_no_denser_than_its_bounds():
    bounds = budgets()["density"]
    found = density()
    assert found.keys() == bounds.keys()
    assert {name: found[name] for name in bounds if found[name] > bounds[name]} == {}


@pytest.mark.slow
def test_functions_of_more_than_eight_parameters_are_the_listed_ones():
    listed = {name for names in budgets()["wide"].values() for name in names}
    assert {name for path in FILES for name in wide_functions(PACKAGE / path)} == listed


def test_a_room_over_and_one_far_below_its_budget_are_named():
    found = list(
        outside(
            {"tokens": {"nn": 100, "data": 4000, "cli": 50}},
            {"tokens": {"nn": 101, "data": 3000, "cli": 50}},
        )
    )
    assert [sentence.split()[0] for sentence in found] == ["nn", "data"]


def test_a_budget_that_went_up_has_a_decision_that_says_what_users_get():
    """Its heading in docs/decisions.md is `Budget of ROOM: …`."""
    listed = subprocess.run(
        ["git", "log", "--format=%H", "--", BUDGET], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode or not listed.stdout:
        pytest.skip("no history of git here")
    before = [budget_at(commit) for commit in listed.stdout.split()]
    decisions = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    for kind in ("tokens", "words"):
        for room, most in budgets()[kind].items():
            least = min(
                (budget[kind][room] for budget in before if room in budget.get(kind, {})),
                default=most,
            )
            assert most <= least or f"Budget of {room}:" in decisions, (
                f"the budget of {room} was {least} once"
            )


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────

OURS_ALONE = re.compile(
    r"who[ _]reads|reads[ _]whom|honour|\bReading\(|\bclass Reading\b|stand[-_]in\b|\bthinks?\b"
    r"|(?<!\w)Mechanism\b(?! )|class_path|init_args|\bmade_up\b|source_reader|\bread_valid\b|link_bias|num_links"
    r"|reads_links|\bTranslate\b|\bRecurrentDecoder\b|\bScaledDotProduct\b|\bEdgewise\b|AddedPosition"
    r"|AttentionPosition|\bPerToken\b|\bPerSequence\b|encode_label|\bLearner\b|OptimizerPart|ptimiser"
)
"""Words of ours for what the field has its own; see the glossary in docs/concepts.md."""

PAGES = [
    path
    for place in ("seqkit", "docs", "recipes", "README.md", "CONTRIBUTING.md")
    for path in ([ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*")))
    if path.suffix in (".py", ".md", ".yaml", ".html", ".css", ".svg")
]


def test_the_project_speaks_the_fields_words():
    for path in PAGES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            found = OURS_ALONE.search(line)
            assert found is None, (
                f"{path.relative_to(ROOT)}:{number} says {found[0]!r}: {line.strip()}"
            )


def test_the_list_of_words_finds_them():
    for line in (
        "who_reads_whom(",
        "cannot honour",
        "a stand-in",
        "`Mechanism`",
        "class_path: X",
        "class Reading:",
    ):
        assert OURS_ALONE.search(line), line
    for line in (
        "AttentionMechanism",
        "reading the file",
        "the mechanism ScaledDotProductAttention",
        "to rethink",
    ):
        assert not OURS_ALONE.search(line), line


TELEGRAM = re.compile(r"(?:Of|As|Those|That|What|Whose) ")
"""Beginnings of a docstring that leave out what the thing is."""


def first_lines(tree):
    """(line number, first line) of each docstring, also of those below an assignment."""
    for node in ast.walk(tree):
        for inner in (
            getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []
        ):
            if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
                yield inner.lineno, str(inner.value.value).partition("\n")[0]


def test_a_docstring_begins_with_what_the_thing_is(trees):
    for path in FILES:
        lines = first_lines(trees[path])
        assert not [f"seqkit/{path}:{at} {line}" for at, line in lines if TELEGRAM.match(line)]


def test_docstrings_are_found_everywhere():
    source = '"""One."""\nX = 1\n"""Of two."""\nclass C:\n    """As three."""\n    def f(self):\n        """Four."""\n'
    lines = sorted(first_lines(ast.parse(source)))
    assert lines == [(1, "One."), (3, "Of two."), (5, "As three."), (7, "Four.")]
    assert [bool(TELEGRAM.match(line)) for _, line in lines] == [False, True, True, False]


def test_a_recipe_reads_in_a_window_of_120_columns():
    for name in recipe_names():
        assert (
            max(map(len, find_recipe(name)[1].read_text(encoding="utf-8").splitlines())) <= 120
        ), name


# ── weight ───────────────────────────────────────────────────────────────────────────────────────────────────────────

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
{textwrap.indent(textwrap.dedent(code), "    ")}
except SystemExit as stop:
    code = stop.code
finally:
    print("\\n" + " ".join(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    *said, modules = done.stdout.rstrip().split("\n")
    return set(modules.split()), "\n".join(said)


def test_importing_seqkit_brings_nothing_heavy():
    modules, _ = modules_after("import seqkit")
    assert "seqkit" in modules
    assert not modules & HEAVY


LIGHT = {
    "--help": "COMMAND",
    "--version": seqkit.__version__,
    "list": "text/char-lm",
    "fit --help": "recipe",
    **{f"{name} --help": "usage" for name in COMMANDS},
    "fit text/charlm": "did you mean text/char-lm",
    "fit image/digits --preset debgu": "did you mean debug",
    "fit image/digits --model.backbone LTSM": "did you mean LSTM",
    "fit image/digits --epochs 3": "--trainer.max_epochs 3",
    "fit image/digits --out .": "exists already",
    "compare image/digits --sed 3": "did you mean seed",
    "inspect image/digits --sed 3": "did you mean seed",
    "list image/digits --sed 3": "did you mean seed",
    **dict.fromkeys(
        (
            "predict nosuch x",
            "generate nosuch",
            "attention nosuch --input x",
            "report nosuch",
            "evaluate nosuch",
            "export nosuch --to onnx",
            "serve nosuch",
            "fit --resume nosuch",
        ),
        "nosuch is no run",
    ),
    "import nosuch run": "nosuch does not exist",
    "runs nosuch": "nosuch is no folder",
    "check nosuch": "called 'nosuch'",
    "list nosuch": "nothing called 'nosuch'",
    "compare pyproject.toml": "compare takes a recipe",
}
"""Commands that need no torch: help, lists, and wrong names, with a part of the answer."""


def test_help_lists_and_wrong_names_import_no_torch():
    """All in one fresh Python, since each start takes a second."""
    calls = f"""
    import contextlib, io, json
    from seqkit.cli.main import main
    answers = []
    for words in {list(LIGHT)!r}:
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
            try:
                code = main(words.split())
            except SystemExit as stop:
                code = stop.code
        heavy = sorted(set(sys.modules) & {HEAVY!r})
        answers.append((words, code, heavy, said.getvalue()))
    print(json.dumps(answers))
    """
    _, said = modules_after(calls)
    for words, code, heavy, answer in json.loads(said):
        assert LIGHT[words] in answer, words
        assert bool(code) == (
            words.split()[-1] != "--help" and words not in ("--version", "list")
        ), words
        assert not heavy, f"seqkit {words} imports {heavy}"


def test_doctor_reads_metadata_before_it_imports_torch():
    modules, _ = modules_after("import seqkit.cli.doctor")
    assert not modules & HEAVY


def test_recipes_are_found_and_begin_with_what_they_are():
    assert {"text/char-lm", "image/digits", "audio/spoken-digits", "graph/molecules"} <= set(
        recipe_names()
    )
    for name in recipe_names():
        first = (find_recipe(name)[1]).read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith("# "), (
            f"recipes/{name}.yaml should begin with a line that `seqkit list` shows"
        )


# ── places and packages ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_percent_sign_stands_apart_from_its_number():
    """99.2 %, in every sentence: the format `.1%` leaves out the space."""
    texts = [
        *PACKAGE.rglob("*.py"),
        *PACKAGE.glob("report/*.[mh]*"),
        *ROOT.glob("docs/notebooks/*.py"),
    ]
    assert [
        path
        for path in texts
        if re.search(r":[+,]*(\.\d+)?%[}\"']", path.read_text(encoding="utf-8"))
    ] == []


def test_no_module_names_a_place_on_somebodys_machine():
    own = {Path(__file__)}
    for path in [
        *ROOT.glob("*.*"),
        *(p for d in ("seqkit", "recipes", "tests", "docs") for p in (ROOT / d).rglob("*")),
    ]:
        if (
            path.is_file()
            and path.suffix in (".py", ".md", ".yaml", ".toml", ".txt", ".html")
            and path not in own
        ):
            text = path.read_text(encoding="utf-8")
            for place in ("/work/", "/home/", "/root/", "/tmp/"):
                assert place not in text, f"{path.relative_to(ROOT)} names {place}"


def test_constraints_pin_every_dependency_once():
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(str(pin.specifier).startswith("==") and pin.url is None for pin in pins)
    versions = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pins}
    assert len(versions) == len(pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    for requirement in map(Requirement, [*project["dependencies"], *extras]):
        if requirement.name != "seqkit":
            assert (
                versions.get(canonicalize_name(requirement.name), "0") in requirement.specifier
            ), f"constraints.txt lacks {requirement}"


@pytest.mark.slow
def test_the_wheel_that_the_sdist_makes_holds_all_modules_and_recipes_but_no_tests(tmp_path):
    pytest.importorskip("build")
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"seqkit/_recipes/{name}.yaml" for name in recipe_names()} <= names
    assert {
        f"seqkit/_{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "recipes").rglob("*.py")
    } <= names
    assert {f"seqkit/{path.as_posix()}" for path in FILES} | {"seqkit/report/page.html"} <= names
    assert not [name for name in names if name.startswith(("tests/", "runs/", ".ci/"))]
