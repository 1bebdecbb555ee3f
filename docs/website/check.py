"""Checks of the built site: links lead to pages and anchors that exist, and no page asks another host for anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
"""Attributes of each element that a browser fetches by itself; `a href` waits for the reader."""

FETCHES = ("mermaid", "glightbox", "pyodide")
"""Classes of elements for which the theme's script would load a library from another host."""

CSS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


@dataclass
class Page(HTMLParser):
    """What a page has, links to and fetches."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)
    in_style: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the ids, links and resources of an element."""
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        self.classes |= set(values.get("class", "").split())
        self.in_style = tag == "style"
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.fetched += [values[name].split(" ")[0] for name in FETCHED.get(tag, ()) if values.get(name)]
        self.fetched += css_fetches(values.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        """Leave a style element."""
        self.in_style = False

    def handle_data(self, data: str) -> None:
        """Note the resources of a style sheet."""
        if self.in_style:
            self.fetched += css_fetches(data)


def css_fetches(text: str) -> list[str]:
    """What a style sheet fetches."""
    return [one or other for one, other in CSS.findall(text)]


def faults(site: Path) -> Iterator[str]:
    """Sentences on links that lead nowhere and on what is fetched from elsewhere, in the order of pages."""
    pages = {path: _parsed(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        own = path.relative_to(site).as_posix()
        if found := page.classes & set(FETCHES):
            yield f"{own}: the class {found.pop()} makes the theme load a library from another host"
        for link in page.links:
            yield from (f"{own}: {fault}" for fault in _link(link, path, site, pages))
        for link in page.fetched:
            yield from (f"{own}: {fault}" for fault in _resource(link, path, site))
    for path in sorted(site.rglob("*.css")):
        for link in css_fetches(path.read_text(encoding="utf-8")):
            yield from (f"{path.relative_to(site)}: {fault}" for fault in _resource(link, path, site))


def _parsed(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


def _target(link: str, path: Path, site: Path) -> Path:
    place = unquote(urlsplit(link).path)
    target = site / place.lstrip("/") if place.startswith("/") else path.parent / place
    target = target.resolve() if place else path
    return target / "index.html" if target.is_dir() else target


def _link(link: str, path: Path, site: Path, pages: dict[Path, Page]) -> Iterator[str]:
    parts = urlsplit(link)
    if parts.scheme in ("http", "https", "mailto", "data") or parts.netloc:
        return
    target = _target(link, path, site)
    if not target.is_file() or not target.is_relative_to(site.resolve()):
        yield f"the link {link} leads to no file"
    elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        yield f"the link {link} leads to a page that has no #{unquote(parts.fragment)}"


def _resource(link: str, path: Path, site: Path) -> Iterator[str]:
    parts = urlsplit(link)
    if parts.scheme == "data" or link.startswith("#"):
        return
    if parts.scheme or parts.netloc:
        yield f"{link} is fetched from another host"
    elif not _target(link, path, site).is_file():
        yield f"{link} is fetched and is no file"
