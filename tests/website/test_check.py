"""The checks of the built site find what they are for."""

import pytest

from docs.website.check import faults


def site(folder, body, style=""):
    (folder / "page").mkdir()
    (folder / "style.css").write_text(style)
    (folder / "picture.png").write_bytes(b"")
    (folder / "page" / "index.html").write_text("<h1 id='there'>a page</h1>")
    (folder / "index.html").write_text(
        f"<link rel='stylesheet' href='style.css'><p id='own'>{body}</p>"
    )
    return folder


@pytest.mark.parametrize(
    "body",
    [
        "<a href='page/'>a</a>",
        "<a href='page/#there'>a</a>",
        "<a href='/page/index.html#there'>a</a>",
        "<a href='#own'>a</a>",
        "<a href='https://example.org/'>the reader may follow it</a>",
        "<img src='picture.png'>",
        "<img src='data:image/png;base64,AA=='>",
    ],
)
def test_what_is_right_passes(body, tmp_path):
    assert list(faults(site(tmp_path, body, "p { background: url(picture.png) }"))) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<a href='pages/'>a</a>", "the link pages/ leads to no file"),
        ("<a href='page/#their'>a</a>", "has no #their"),
        ("<a href='../index.html'>a</a>", "leads to no file"),
        ("<img src='other.png'>", "other.png is fetched and is no file"),
        ("<img srcset='https://example.org/a.png 2x'>", "is fetched from another host"),
        ("<script src='//example.org/a.js'></script>", "is fetched from another host"),
        (
            "<svg><use xlink:href='https://example.org/a.svg#b'/></svg>",
            "is fetched from another host",
        ),
        ("<style>@import 'https://example.org/a.css'</style>", "is fetched from another host"),
        (
            "<b style='background: url(https://example.org/a.png)'></b>",
            "is fetched from another host",
        ),
        ("<pre class='mermaid'></pre>", "the class mermaid makes the theme load a library"),
    ],
)
def test_what_is_wrong_is_said(body, fault, tmp_path):
    (found,) = faults(site(tmp_path, body))
    assert found.startswith("index.html: ")
    assert fault in found


def test_a_style_sheet_may_fetch_nothing_from_elsewhere(tmp_path):
    found = list(
        faults(site(tmp_path, "", "@font-face { src: url('https://example.org/a.woff2') }"))
    )
    assert found == ["style.css: https://example.org/a.woff2 is fetched from another host"]
