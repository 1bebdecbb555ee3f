"""Checks of the built site: links lead to pages and anchors that exist, and no page asks another host for anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = ("src", "srcset", "poster", "data", "href", "xlink:href")
"""Attributes that a browser fetches by itself; `a href` waits for the reader."""

FETCHES = {"mermaid", "glightbox", "pyodide"}
"""Classes of elements for which the theme's script would load a library from another host."""

CSS = re.compile(r"(?:url\(\s*|@import\s+)['\"]?([^'\")]+)")
"""What a style sheet fetches."""


class Page(HTMLParser):
    """What a page has, links to and fetches."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.classes = set[str](), set[str]()
        self.links, self.fetched = list[str](), list[str]()
        self.is_style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the ids, links and resources of an element."""
        values = {name: value for name, value in attrs if value}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        self.classes |= set(values.get("class", "").split())
        self.is_style = tag == "style"
        found = [values[name].split(" ")[0] for name in FETCHED if name in values]
        (self.links if tag == "a" else self.fetched).extend(found)
        self.fetched += CSS.findall(values.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        """Leave a style element."""
        self.is_style = False

    def handle_data(self, data: str) -> None:
        """Note the resources of a style sheet."""
        if self.is_style:
            self.fetched += CSS.findall(data)


def faults(site: Path) -> Iterator[str]:
    """Sentences on links that lead nowhere and on what is fetched from elsewhere, in the order of pages."""
    site = site.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    fetched = {path: page.fetched for path, page in pages.items()}
    fetched |= {
        path: CSS.findall(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.css"))
    }
    for path, page in pages.items():
        own = path.relative_to(site)
        for name in page.classes & FETCHES:
            yield f"{own}: the class {name} makes the theme load a library from another host"
        for link in page.links:
            parts, target = urlsplit(link), _target(link, path, site)
            if parts.scheme or parts.netloc:
                continue
            if not target.is_file() or not target.is_relative_to(site):
                yield f"{own}: the link {link} leads to no file"
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].ids
            ):
                yield f"{own}: the link {link} leads to a page that has no #{unquote(parts.fragment)}"
    for path, links in fetched.items():
        for link in links:
            parts = urlsplit(link)
            if parts.netloc or parts.scheme not in ("", "data"):
                yield f"{path.relative_to(site)}: {link} is fetched from another host"
            elif not parts.scheme and not _target(link, path, site).is_file():
                yield f"{path.relative_to(site)}: {link} is fetched and is no file"


def _target(link: str, path: Path, site: Path) -> Path:
    place = unquote(urlsplit(link).path)
    target = (
        (site / place.lstrip("/") if place.startswith("/") else path.parent / place).resolve()
        if place
        else path
    )
    return target / "index.html" if target.is_dir() else target
