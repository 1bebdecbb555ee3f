from reliability import page


def test_the_page_says_what_the_results_give(tmp_path, monkeypatch):
    published = page.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", tmp_path / "reliability.md")
    page.write_page()
    assert page.PAGE.read_text(encoding="utf-8") == published
