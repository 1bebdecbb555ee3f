"""The checks of pages in a browser find each fault that is planted."""

import pytest
from browser_checks import VIEWS, contrast, faults

PAGE = """<!doctype html><html><head><meta charset="utf-8"><style>* {{ margin: 0; background: white }}</style></head>
<body>{}</body></html>"""
SVG = '<svg width="300" height="90">{}</svg>'
PLANTED = {
    '<p style="width: 2000px">wide</p>': "the page is 2000 pixels wide",
    '<p style="position: absolute">one text</p><p>another</p>': "'one text' overlaps 'another'",
    SVG.format('<text y="30">one</text><text y="34" x="9">two</text>'): "'one' overlaps 'two'",
    SVG.format('<text transform="translate(9 9) rotate(45)">one long</text><text y="40" x="30">two</text>'):
        "'one long' overlaps 'two'",
    '<p style="color: #999">pale</p>': "'pale' has a contrast of 2.8",
    SVG.format('<rect width="300" height="90" fill="#222"/><text y="30">dark</text>'): "'dark' has a contrast of 1.3",
    "<h2>one</h2><h2>two</h2><p>text</p>": 'nothing below "one"',
    "<p> </p>": "empty <p> </p>",
    "<table><tr><th>name</th></tr></table>": "a table without cells",
    '<p id="a">one</p><p id="a">two</p>': "id a twice",
    '<img src="http://127.0.0.1:9/a.png" alt="">': "asked for http://127.0.0.1:9/a.png",
}  # fmt: skip


@pytest.mark.slow
def test_a_planted_fault_is_found(browser, tmp_path):
    for body, fault in PLANTED.items():
        (tmp_path / "page.html").write_text(PAGE.format(body), encoding="utf-8")
        assert fault in faults(browser, tmp_path / "page.html", *VIEWS[0]), body


@pytest.mark.slow
def test_a_sound_page_has_none(browser, tmp_path):
    body = "<h1>title</h1><p>one</p><p>two</p>" + SVG.format(
        # their upright hulls overlap, the texts do not
        '<text transform="translate(9 9) rotate(45)">one long</text>'
        '<text transform="translate(39 9) rotate(45)">other long</text>'
    )
    scrolls = (
        '<div style="overflow-x: auto"><p style="width: 2000px">wide</p></div>'
        "<details><summary>s</summary></details>"
    )
    (tmp_path / "page.html").write_text(PAGE.format(body + scrolls), encoding="utf-8")
    assert faults(browser, tmp_path / "page.html", *VIEWS[1]) == []


def test_contrast_is_that_of_the_definition():
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.005)
