"""Pages of the reference: one for each package, on which mkdocstrings writes what its docstrings say."""

from __future__ import annotations

import ast
from pathlib import Path

from docs.website.stage import PAGES, ROOT, write_changed


def packages() -> dict[str, list[str]]:
    """Maps each package to its modules that have public names with docstrings; `seqkit` to those outside packages."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "seqkit").rglob("*.py")):
        if path.name in ("__init__.py", "__main__.py") or "_recipes" in path.parts:
            continue
        if any(
            isinstance(node, ast.ClassDef | ast.FunctionDef)
            and node.name[0] != "_"
            and ast.get_docstring(node)
            for node in ast.parse(path.read_text(encoding="utf-8")).body
        ):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.setdefault(".".join(parts[:-1]), []).append(".".join(parts))
    return found


def write_reference(to: Path = PAGES / "reference") -> None:
    """Write the page of each package."""
    for package, modules in packages().items():
        init = ROOT.joinpath(*package.split("."), "__init__.py").read_text(encoding="utf-8")
        what = (ast.get_docstring(ast.parse(init)) or "").partition("\n\n")[0]
        listed = "\n\n".join(f"::: {module}" for module in modules)
        write_changed(to / f"{package}.md", f"# {package}\n\n{what}\n\n{listed}\n")
