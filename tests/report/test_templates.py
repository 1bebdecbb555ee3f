"""Templates: values are text, and a page is written whole."""

import re

from markupsafe import Markup
from matplotlib.figure import Figure

from seqkit.report.figures import svg
from seqkit.report.templates import fill, write_page


def test_values_are_escaped():
    page = fill("base.html", style="", title="<b>", subtitle="a & b")
    assert "<h1>&lt;b&gt;</h1>" in page
    assert "a &amp; b" in page


def test_a_picture_that_stands_in_a_page_twice_has_ids_of_its_own(tmp_path):
    figure = Figure()
    figure.subplots().plot([1, 2])
    twice = Markup(svg(figure) * 2)
    page = write_page("base.html", tmp_path / "page.html", title="a", subtitle=twice).read_text(
        encoding="utf-8"
    )
    ids, used = (
        re.findall(pattern, page) for pattern in (r'\sid="([^"]+)"', r'(?:url\(|href=")#([^)"]+)')
    )
    assert len(ids) == len(set(ids))
    assert used
    assert set(used) <= set(ids)


def test_a_page_is_written_into_a_new_folder_and_leaves_nothing_beside_it(tmp_path):
    path = write_page("base.html", tmp_path / "deep" / "page.html", title="té", subtitle="")
    assert "<h1>té</h1>" in path.read_text(encoding="utf-8")
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
