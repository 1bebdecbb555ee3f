"""How big and how dense the code is, as `tests/house.toml` bounds it; `python -m tests.house` prints it by room."""

import ast
import functools
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "seqkit"
FILES = sorted(
    path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if "_recipes" not in path.parts
)

UNCOUNTED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
"""Kinds of tokens that are not counted; docstrings are not, either. So only what has to be understood counts."""

MOST_PARAMETERS = 8
"""A function of more parameters, without `self`, is wide."""

OPEN_TYPES = ("dict[str, Any]", "Mapping[str, Any]")
"""Types that say nothing of what they hold."""


def docstring_lines(tree):
    """Lines that texts fill which stand as statements: docstrings, also those below an assignment."""
    lines = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            is_text = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
            if is_text and isinstance(one.value.value, str):
                lines.update(range(one.lineno, one.end_lineno + 1))
    return lines


def is_parallel(node):
    """Whether a statement is `a, b = c, d`; a swap is none."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple):
        return False
    given = {ast.dump(one) for one in node.value.elts}
    return given != {ast.dump(one).replace("Store()", "Load()") for one in target.elts}


def num_parameters(function):
    """Number of a function's parameters, without `self` and `cls`."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    has_self = bool(named) and named[0].arg in ("self", "cls")
    return len(named) + len(arguments.kwonlyargs) - has_self


def num_open_types(function):
    """How often a signature says `dict[str, Any]` or `Mapping[str, Any]`."""
    signature = ast.unparse(function.args)
    if function.returns is not None:
        signature += ast.unparse(function.returns)
    return sum(signature.count(one) for one in OPEN_TYPES)


def measure(text):
    """Counter of `lines` with code, `tokens`, `parallel` assignments, `ternaries`, `nested` ones, and `open` types.

    tokens: of Python's own `tokenize`, without docstrings, comments and line breaks.
    """
    tree = ast.parse(text)
    docstrings = docstring_lines(tree)
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in UNCOUNTED
        and not (token.type == tokenize.STRING and token.start[0] in docstrings)
    ]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    counts = Counter(tokens=len(tokens), lines=len(lines))
    for node in ast.walk(tree):
        counts["parallel"] += is_parallel(node)
        if isinstance(node, ast.IfExp):
            counts["ternaries"] += 1
            inside = (one for one in ast.walk(node) if one is not node)
            counts["nested"] += any(isinstance(one, ast.IfExp) for one in inside)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            counts["open"] += num_open_types(node)
    return counts


def wide_functions(path):
    """Names of a file's functions of more than eight parameters; `__init__` goes by its class."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for owner in ast.walk(tree):
        for node in ast.iter_child_nodes(owner):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and num_parameters(node) > MOST_PARAMETERS:
                yield owner.name if node.name == "__init__" else node.name


@functools.cache
def measured(path):
    """Counter of a file, as `measure` gives it; a file is read once a process."""
    return measure(path.read_text(encoding="utf-8"))


def is_counted(test):
    """Whether a file of tests counts: neither a benchmark nor components with planted faults."""
    is_planted = test.name.startswith(("faulty_", "faults", "sound_"))
    return "benchmarks" not in test.parts and not is_planted


def rooms():
    """Counter of each package of seqkit/, and of `modules`, those beside the packages."""
    found = {}
    for path in FILES:
        room = path.parts[0] if len(path.parts) > 1 else "modules"
        found.setdefault(room, Counter()).update(measured(PACKAGE / path))
    return found


def sizes():
    """Tokens of each package, of data sets beside recipes, of other modules, of tests; words of pages."""
    tokens = {room: counts["tokens"] for room, counts in rooms().items()}
    recipes = (ROOT / "recipes").rglob("*.py")
    tests = filter(is_counted, (ROOT / "tests").rglob("*.py"))
    tokens["recipes"] += sum(measured(path)["tokens"] for path in recipes)
    tokens["tests"] = sum(measured(path)["tokens"] for path in tests)
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").rglob("*.md")]
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    return {"tokens": tokens, "words": {"docs": words}}


def density():
    """What a reader feels, over all of seqkit/, by the names in `[density]` of `tests/house.toml`."""
    total = sum(rooms().values(), Counter())
    return {
        "tokens": total["tokens"],
        "tokens_per_line": round(total["tokens"] / total["lines"], 2),
        "parallel_per_1000": round(1000 * total["parallel"] / total["lines"], 2),
        "ternaries_per_1000": round(1000 * total["ternaries"] / total["lines"], 2),
        "nested_ternaries": total["nested"],
        "open_signatures": total["open"],
    }


if __name__ == "__main__":
    for name, counts in rooms().items():
        print(f"{name:12}", *(f"{key} {count}" for key, count in counts.items()))
    print(density())
