"""Pages of the site: each has its place in the navigation, and links lead to pages of the site."""

import re
from pathlib import PurePosixPath

import pytest

from docs.website.reference import packages, write_reference
from docs.website.stage import ROOT, configuration, places, relinked, stage, write_comparisons

WHERE = {
    PurePosixPath(origin): PurePosixPath(page)
    for origin, page in {
        "README.md": "overview.md",
        "docs/index.md": "index.md",
        "docs/data/text.md": "data/text.md",
        "docs/notebooks/first.py": "notebooks/first.md",
        "docs/comparisons/parity": "comparisons/parity.md",
        "recipes/README.md": "recipes.md",
    }.items()
}


@pytest.mark.parametrize(
    ("origin", "link", "moved"),
    [
        ("README.md", "docs/data/text.md#words", "data/text.md#words"),
        ("docs/data/text.md", "../../README.md", "../overview.md"),
        ("docs/data/text.md", "../notebooks/first.py", "../notebooks/first.md"),
        ("recipes/README.md", "../docs/index.md", "index.md"),
        ("recipes/README.md", "../docs/comparisons/parity/", "comparisons/parity.md"),
        ("docs/index.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("docs/index.md", "#here", "#here"),
    ],
)
def test_a_link_leads_to_the_page_of_the_site(origin, link, moved):
    assert relinked(f"see [it]({link}).", PurePosixPath(origin), WHERE) == f"see [it]({moved})."


def test_code_blocks_stay_as_they_are():
    text = "```python\nx[i](gone.md)\n```\n[it](data/text.md)\n"
    assert relinked(text, PurePosixPath("docs/index.md"), WHERE) == text


def test_a_link_to_no_page_is_an_error_with_its_line():
    with pytest.raises(ValueError, match=r"docs/index.md:2 .*\.\./pyproject.toml"):
        relinked("one\n[two](../pyproject.toml)", PurePosixPath("docs/index.md"), WHERE)


@pytest.mark.slow
def test_every_page_is_in_the_navigation_once(tmp_path):
    stage(tmp_path / "docs")
    write_comparisons(tmp_path / "docs")
    write_reference(tmp_path / "docs" / "reference")
    text = configuration(tmp_path).read_text(encoding="utf-8")
    listed = re.findall(
        r"^ +- (?:[^:\n]+: |\"[^\"]+\": )?([\w/.-]+\.md)$", text, flags=re.MULTILINE
    )
    pages = {page.as_posix() for page in places().values() if page.suffix == ".md"} | {"gallery.md"}
    pages |= {f"reference/{package}.md" for package in packages()}
    assert sorted(listed) == sorted(pages)


def test_the_list_of_notebooks_names_each():
    text = (ROOT / "docs" / "notebooks" / "index.md").read_text(encoding="utf-8")
    names = {path.name for path in (ROOT / "docs" / "notebooks").glob("*.py")}
    assert set(re.findall(r"\]\(([\w-]+\.py)\)", text)) == names
