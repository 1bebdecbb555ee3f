"""Pages of the repository as the site has them: copied into one folder, links between them rewritten.

The pages stay plain Markdown, which a code host renders too. There a link may lead out of docs/, or to a notebook; on
the site all of them are pages of one folder.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from functools import partial
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

LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s]+)|(?<=src=\")(?P<src>[^\"]+)")
FENCE = re.compile(r"^ *```")


def places(root: Path = ROOT) -> dict[PurePosixPath, PurePosixPath]:
    """Maps each file of the repository that is on the site to its place there; a notebook's is that of its page."""
    docs = root / "docs"
    found = {
        PurePosixPath("docs", (at := path.relative_to(docs).as_posix())): PurePosixPath(_page(at))
        for path in sorted(docs.rglob("*"))
        if path.is_file() and not {"__pycache__", "website", "__init__.py"} & set(path.relative_to(docs).parts)
    }
    found |= {PurePosixPath(path): PurePosixPath(page) for path, page in OUTSIDE.items()}
    if twice := [str(page) for page in set(found.values()) if list(found.values()).count(page) > 1]:
        raise ValueError(f"two files are the page {', '.join(twice)} of the site; rename one, or change OUTSIDE")
    return found


def _page(at: str) -> str:
    return f"{at.removesuffix('.py')}.md" if at.startswith("notebooks/") and at.endswith(".py") else at


def stage(to: Path = PAGES, root: Path = ROOT) -> None:
    """Copy all pages and their pictures to a folder; notebooks are left to `notebook`, which runs them."""
    where = places(root)
    for origin, page in where.items():
        target = to / page
        if origin.suffix == ".py":
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix != ".md":
            shutil.copyfile(root / origin, target)
            continue
        text = (root / origin).read_text(encoding="utf-8")
        text = f"# License\n\n```text\n{text}```\n" if origin.suffix != ".md" else relinked(text, origin, where)
        write_changed(target, text)


def relinked(text: str, origin: PurePosixPath, where: Mapping[PurePosixPath, PurePosixPath]) -> str:
    """Text of a page with its relative links as the site has them. Raises ValueError if one leads to no page."""
    own = where[origin].parent
    fenced = False
    lines = []
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if FENCE.match(line):
            fenced = not fenced
        lines.append(line if fenced else LINK.sub(partial(_moved, origin, own, where, number), line))
    return "".join(lines)


def _moved(
    origin: PurePosixPath,
    own: PurePosixPath,
    where: Mapping[PurePosixPath, PurePosixPath],
    line: int,
    found: re.Match[str],
) -> str:
    link = found[0]
    if "://" in link or link.startswith("mailto:"):
        return link
    target = PurePosixPath(os.path.normpath(origin.parent / link))
    if target not in where:
        raise ValueError(f"{origin}:{line} links to {link}, which is no file of docs/ and none of {', '.join(OUTSIDE)}")
    return PurePosixPath(os.path.relpath(where[target], own)).as_posix()


def configuration(to: Path = BUILD, root: Path = ROOT) -> Path:
    """mkdocs.yml for the staged pages: an entry such as `reference/*` of the navigation becomes the pages there.

    Zensical writes below the folder of its configuration only, so the site is built here, and moved by its builder.
    """
    text = (root / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w/.-]+\.md", text))
    lines = []
    for line in text.splitlines():
        if entry := re.fullmatch(r"( *- )(\w[\w/]*)/\*", line):
            lines += [f"{entry[1]}{page}" for page in sorted(set(_below(to / "docs", entry[2])) - named)]
        else:
            lines.append(line)
    write_changed(path := to / "mkdocs.yml", "\n".join(lines) + "\n")
    return path


def _below(docs: Path, folder: str) -> Iterable[str]:
    return (path.relative_to(docs).as_posix() for path in (docs / folder).glob("*.md"))


def write_changed(path: Path, text: str) -> None:
    """Write a text file, unless it holds this text already: what is served is built again when a file changes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
