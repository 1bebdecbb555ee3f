"""Keys of the built-in components from the table `known_keys`, without importing a component or torch.

So a mistake in a recipe is answered in a tenth of a second; importing what the recipe names takes several. The table
counts only while the signatures that it was made from stand: where one was edited, or torch is another version, the
class itself is read.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]


def look_up(path: str) -> dict[str, dict[str, Any] | None] | None:
    """Parameters of the class at `module:Class`, as arguments of a `Field`; None for one that is no key.

    None: the table does not have the class, or is older than its signature.
    """
    from seqkit.config.known_keys import FINGERPRINTS, KEYS

    if path not in KEYS:
        return None
    sources, parameters = KEYS[path]
    return parameters if all(fingerprint(name) == FINGERPRINTS[name] for name in sources) else None


@cache
def fingerprint(name: str) -> str:
    """What the signatures in a module of seqkit look like, or the version of another package.

    name: `seqkit.nn.mlp`, or `torch`. Code and docstrings do not count: only what decides a signature. "" where there
    is no source.
    """
    from hashlib import sha256

    if not name.startswith("seqkit."):
        return version(name).partition("+")[0]  # 2.11.0 of 2.11.0+cpu
    try:
        source = PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py").read_text(encoding="utf-8")
    except OSError:
        return ""
    return sha256("\n".join(_signatures(ast.parse(source))).encode()).hexdigest()[:16]


def _signatures(node: ast.AST, of: str = "") -> list[str]:
    """Lines for the classes of a module with their bases, constructors, constants and fields, and for its functions."""
    lines = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            lines += [f"{child.name}({', '.join(map(ast.unparse, child.bases))})", *_signatures(child, child.name)]
        elif isinstance(child, ast.FunctionDef) and (not of or child.name == "__init__"):
            lines.append(f"{of}.{child.name}({ast.unparse(child.args)})")
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            lines.append(f"{of}.{ast.unparse(child)}")
    return lines
