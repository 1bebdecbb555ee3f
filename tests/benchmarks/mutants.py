"""Mutants of the package, and which of them the tests see.

    python tests/benchmarks/mutants.py reach OUT [PYTEST ARGUMENTS]      # OUT/*.jsonl: the functions of each test
    python tests/benchmarks/mutants.py draw OUT --number 150 --seed 0    # OUT/mutants.json
    python tests/benchmarks/mutants.py try OUT --tier fast               # OUT/results-*.txt: which test killed each

A mutant has one operator, constant or statement of one function changed. Tests that reach the function are tried in a
copy of the tree, those of few functions first. Those of the package's own folder may reach it in another process.
"""

import argparse
import ast
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "seqkit"

# ── reach: a plugin of pytest ────────────────────────────────────────────────────────────────────────────────────────


class Reach:
    """Writes a line for each test: its name, whether it is slow, its seconds, and the functions that it called."""

    def __init__(self, folder):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self.file = (Path(folder) / f"{worker}.jsonl").open("w", encoding="utf-8")
        self.codes = set()

    def trace(self, frame, event, argument):
        self.codes.add(frame.f_code)

    def pytest_runtest_protocol(self, item, nextitem):
        self.codes.clear()
        self.began = time.process_time()
        threading.settrace(self.trace)
        sys.settrace(self.trace)

    def pytest_runtest_teardown(self, item, nextitem):
        sys.settrace(None)
        places = (code.co_filename.partition(f"{ROOT}/seqkit/")[2] + f":{code.co_firstlineno}" for code in self.codes)
        row = {
            "test": item.nodeid,
            "slow": item.get_closest_marker("slow") is not None,
            "seconds": time.process_time() - self.began,
            "functions": sorted(place for place in places if not place.startswith(":")),
        }
        print(json.dumps(row), file=self.file, flush=True)


def pytest_configure(config):
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Reach(os.environ["REACH"]), "functions that tests reach")


# ── draw ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}


def mutate(node):
    """Change a node in place, and say how; None: nothing here to change."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARED:
            node.ops = [COMPARED[type(operator)]()]
            return f"{type(operator).__name__} → {type(node.ops[0]).__name__}"
        case ast.BinOp(op=operator) if type(operator) in COMPUTED:
            node.op = COMPUTED[type(operator)]()
            return f"{type(operator).__name__} → {type(node.op).__name__}"
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            return "and ↔ or"
        case ast.Constant(value=bool()):
            node.value = not node.value
            return f"{not node.value} → {node.value}"
        case ast.Constant(value=int() | float()):
            node.value += 1
            return f"{node.value - 1} → {node.value}"
        case ast.IfExp():
            node.body, node.orelse = node.orelse, node.body
            return "the other branch"
        case ast.Expr(value=ast.Call()) | ast.Raise():
            node.__class__, node._fields = ast.Pass, ()
            return "left out"
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
            return "returns None"
    return None


def places(path):
    """(index in ast.walk, first line of the function) of each node inside a function that can be changed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {}
    for function in ast.walk(tree):  # outer ones first, so that inner ones win
        if isinstance(function, ast.FunctionDef):
            first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
            inside |= {id(node): first for statement in function.body for node in ast.walk(statement)}
    return [(i, inside[id(node)]) for i, node in enumerate(ast.walk(tree)) if id(node) in inside and mutate(node)]


def changed(path, index):
    """(source with the change, line, what it is)."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    node = list(ast.walk(tree))[index]
    before, lines = ast.get_source_segment(source, node), source.splitlines(keepends=True)
    said = mutate(node)
    # the rest of the file stays as it is written, so that line numbers stay
    after = "pass" if isinstance(node, ast.Pass) else ast.unparse(node)
    after = f"({after})" if isinstance(node, ast.expr) else after
    after += "\n" * (node.end_lineno - node.lineno) if isinstance(node, ast.stmt) else ""
    begin = len("".join(lines[: node.lineno - 1]).encode()) + node.col_offset
    whole = source.encode()
    return (whole[:begin] + after.encode() + whole[begin + len(before.encode()) :]).decode(), node.lineno, said


def draw(number, seed):
    """Mutants, equally many from each package as far as that goes."""
    rng, rooms = random.Random(seed), defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        inner = path.relative_to(PACKAGE)
        if inner.parts[0] != "_recipes":
            rooms[inner.parts[0] if len(inner.parts) > 1 else "modules"] += [(str(inner), *p) for p in places(path)]
    for found in rooms.values():
        rng.shuffle(found)
    turns = (found[turn] for turn in range(number) for found in rooms.values() if turn < len(found))
    mutants = []
    while len(mutants) < number:
        file, index, function = next(turns)
        source, line, said = changed(PACKAGE / file, index)
        try:
            compile(source, file, "exec")
        except SyntaxError:
            continue
        mutants.append({"file": file, "index": index, "function": function, "line": line, "change": said})
    return mutants


MOST_TESTS, MOST_SECONDS = 600, 600
"""Tests to try a mutant with, and seconds for them; a mutant that they do not kill counts as alive."""

# ── try ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def tests_of(mutant, rows, tier):
    """Tests that reach the function, cheap and narrow ones first, then the others of the package's own folder."""
    place, (room, inner, _) = f"{mutant['file']}:{mutant['function']}", mutant["file"].partition("/")
    own = f"tests/{room}/" if inner else f"tests/test_{room}"
    fitting = [row for row in rows if tier == "all" or row["slow"] == (tier == "slow")]
    reaching = [row for row in fitting if place in row["functions"]]
    reaching.sort(key=lambda row: (not row["test"].startswith(own), row["seconds"] * (len(row["functions"]) + 10)))
    others = [row for row in fitting if row["test"].startswith(own) and place not in row["functions"]]
    return [row["test"] for row in reaching + (others if len(reaching) < 3 else [])][:MOST_TESTS]


def killed_by(mutant, tests, tree, most_seconds):
    """The first test that fails; "timeout"; None: it survived. Tries in a fork, which has torch imported already."""
    target = tree / "seqkit" / mutant["file"]
    target.write_text(changed(PACKAGE / mutant["file"], mutant["index"])[0], encoding="utf-8")
    (tree / "tests.txt").write_text("\n".join(tests), encoding="utf-8")
    process = multiprocessing.get_context("fork").Process(target=_run, args=(tree,))
    process.start()
    process.join(most_seconds)
    try:
        if process.exitcode is None:
            return "timeout"
        said = (tree / "said.txt").read_text(encoding="utf-8").splitlines()
        named = [line for line in said if line.startswith(("FAILED", "ERROR"))]
        return None if process.exitcode in (0, 5) else (named or [f"exit code {process.exitcode}"])[0]
    finally:
        if process.exitcode is None:
            os.killpg(process.pid, signal.SIGKILL)
        shutil.copy(PACKAGE / mutant["file"], target)


def _run(tree):
    os.setpgrp()
    os.chdir(tree)
    os.environ |= {"PYTHONPATH": str(tree), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # their modules are imported already
    sys.path.insert(0, str(tree))
    with (tree / "said.txt").open("w", encoding="utf-8") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        code = pytest.main(
            ["-x", "-p", "no:cacheprovider", "-rfE", "--no-header", "--rootdir", str(tree), "@tests.txt"]
        )
        sys.stdout.flush()
    os._exit(int(code))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["reach", "draw", "try"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--number", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tier", choices=["fast", "slow", "all"], default="all")
    parser.add_argument(
        "--part", default="0/1", help="I/N: every Nth mutant from the Ith, to run N of these beside each other"
    )
    args, rest = parser.parse_known_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.what == "reach":
        environment = {**os.environ, "REACH": str(args.out.resolve()), "PYTHONPATH": str(ROOT / "tests")}
        command = [sys.executable, "-m", "pytest", "-p", "benchmarks.mutants", *rest]
        sys.exit(subprocess.run(command, cwd=ROOT, env=environment).returncode)
    listed = args.out / "mutants.json"
    if args.what == "draw":
        listed.write_text(json.dumps(draw(args.number, args.seed), indent=0), encoding="utf-8")
        return
    rows = [json.loads(line) for file in args.out.glob("*.jsonl") for line in file.open(encoding="utf-8")]
    import pytorch_lightning  # noqa: F401  (what every fork needs; the package itself is not imported here)
    import timm  # noqa: F401
    import torchmetrics  # noqa: F401
    import torchvision  # noqa: F401

    part, parts = map(int, args.part.split("/"))
    tree, results = args.out / f"tree-{part}", args.out / f"results-{args.tier}-{part}.txt"
    tree.mkdir()
    for place in (*ROOT.glob("[a-zA-Z]*.*"), *(ROOT / name for name in ("seqkit", "recipes", "tests", "docs"))):
        (shutil.copytree if place.is_dir() else shutil.copy)(place, tree / place.name)
    with results.open("a", encoding="utf-8") as file:
        for number, mutant in list(enumerate(json.loads(listed.read_text(encoding="utf-8"))))[part::parts]:
            tests = tests_of(mutant, rows, args.tier)
            answer = killed_by(mutant, tests, tree, MOST_SECONDS) if tests else None
            print(
                json.dumps({"number": number, **mutant, "tests": len(tests), "killed": answer}), file=file, flush=True
            )


if __name__ == "__main__":
    main()
