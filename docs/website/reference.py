"""Pages of the reference: one for each package, on which mkdocstrings writes what its docstrings say."""

from __future__ import annotations

import ast
from pathlib import Path

from docs.website.stage import PAGES, ROOT, write_changed


def packages(root: Path = ROOT) -> dict[str, list[str]]:
    """Maps each package to its modules that have public names with docstrings; `seqkit` to those outside packages."""
    found: dict[str, list[str]] = {}
    for path in sorted((root / "seqkit").rglob("*.py")):
        if path.name in ("__init__.py", "__main__.py") or "_recipes" in path.parts:
            continue
        if _is_documented(ast.parse(path.read_text(encoding="utf-8"))):
            parts = path.relative_to(root).with_suffix("").parts
            found.setdefault(".".join(parts[:-1]), []).append(".".join(parts))
    return found


def _is_documented(module: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name[0] != "_" and ast.get_docstring(node)
        for node in module.body
    )


def write_reference(to: Path = PAGES / "reference", root: Path = ROOT) -> None:
    """Write the page of each package, and remove those of packages that are gone."""
    wanted = packages(root)
    for old in to.glob("*.md"):
        if old.stem not in wanted:
            old.unlink()
    for package, modules in wanted.items():
        init = root.joinpath(*package.split("."), "__init__.py").read_text(encoding="utf-8")
        what = (ast.get_docstring(ast.parse(init)) or "").partition("\n\n")[0]
        public = _public(init)
        # names to import come first, and what may go wrong after what there is
        ordered = sorted(modules, key=lambda module: (_last(module) not in public, _last(module) == "errors"))
        listed = "\n\n".join(f"::: {module}" for module in ordered)
        write_changed(to / f"{package}.md", f"# {package}\n\n{what}\n\n{listed}\n")


def _last(module: str) -> str:
    return module.rpartition(".")[2]


def _public(init: str) -> set[str]:
    """Modules of whose names a package's `__init__.py` has some: imported, or attached to be imported when used."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(init)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.rpartition(".")[2])
        elif isinstance(node, ast.keyword) and node.arg == "submod_attrs":
            found |= set(ast.literal_eval(node.value))
    return found
