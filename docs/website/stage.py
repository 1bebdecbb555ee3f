"""Pages of the repository as the site has them: copied into one folder, links between them rewritten.

The pages stay plain Markdown, which a code host renders too. There a link may lead out of docs/, to a notebook, or to
the folder of a published comparison; on the site all of them are pages of one folder.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "site"
PAGES = BUILD / "docs"

OUTSIDE = {
    "README.md": "overview.md",
    "recipes/README.md": "recipes.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
}
"""Files outside docs/ that are pages of the site."""

LINK = re.compile(r"(?<=\]\()[^)#\s]+|(?<=src=\")[^\"]+")


def places() -> dict[PurePosixPath, PurePosixPath]:
    """Maps each file of the repository that is on the site to its place there.

    That of a notebook, and of the folder of a published comparison, is its page.
    """
    found = {PurePosixPath(path): PurePosixPath(page) for path, page in OUTSIDE.items()}
    for path in sorted((ROOT / "docs").rglob("*")):
        at = PurePosixPath(path.relative_to(ROOT / "docs"))
        if path.is_file() and not {"__pycache__", "website", "__init__.py"} & set(at.parts):
            found["docs" / at] = at.with_suffix(".md") if at.suffix == ".py" else at
            if at.name == "results.json":
                found["docs" / at.parent] = at.parent.with_suffix(".md")
    return found


def stage(to: Path = PAGES) -> None:
    """Copy all pages and files to a folder, except the pages that are made: of notebooks and of comparisons."""
    where = places()
    for origin, page in where.items():
        source, target = ROOT / origin, to / page
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix != ".md":
            shutil.copyfile(source, target)
        elif origin.name == "LICENSE":
            write_changed(
                target, f"# License\n\n```text\n{source.read_text(encoding='utf-8')}```\n"
            )
        elif origin.suffix == ".md":
            write_changed(target, relinked(source.read_text(encoding="utf-8"), origin, where))


def write_comparisons(to: Path = PAGES) -> None:
    """Write the page of each published comparison, and its HTML report, from the results that `stage` copied."""
    from seqkit.comparison.results import read_results
    from seqkit.report.comparison import write_comparison

    for path in (to / "comparisons").glob("*/results.json"):
        folder = write_comparison(path.parent, read_results(path)).parent
        (folder / "results.md").rename(folder.with_suffix(".md"))


def relinked(text: str, origin: PurePosixPath, where: Mapping[PurePosixPath, PurePosixPath]) -> str:
    """Text of a page with its relative links as the site has them. Raises ValueError if one leads to no page."""
    lines: list[str] = []

    def moved(found: re.Match[str]) -> str:
        link = found[0]
        if "://" in link or link.startswith("mailto:"):
            return link
        target = PurePosixPath(os.path.normpath(origin.parent / link))
        if target not in where:
            missing = f"which is no file of docs/ and none of {', '.join(OUTSIDE)}"
            raise ValueError(f"{origin}:{len(lines) + 1} links to {link}, {missing}")
        return os.path.relpath(where[target], where[origin].parent)

    fenced = False
    for line in text.splitlines(keepends=True):
        fenced ^= line.lstrip().startswith("```")
        lines.append(line if fenced else LINK.sub(moved, line))
    return "".join(lines)


def configuration(to: Path = BUILD) -> Path:
    """mkdocs.yml for the staged pages: an entry such as `reference/*` of the navigation becomes the pages there.

    Zensical writes below the folder of its configuration only, so the site is built here, and moved by its builder.
    """
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w/.-]+\.md", text))

    def listed(entry: re.Match[str]) -> str:
        pages = {
            path.relative_to(to / "docs").as_posix()
            for path in (to / "docs" / entry[2]).glob("*.md")
        }
        return "\n".join(f"{entry[1]}{page}" for page in sorted(pages - named))

    write_changed(
        to / "mkdocs.yml", re.sub(r"^( *- )(\w[\w/]*)/\*$", listed, text, flags=re.MULTILINE)
    )
    return to / "mkdocs.yml"


def write_changed(path: Path, text: str) -> None:
    """Write a text file, unless it holds this text already: what is served is built again when a file changes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
