"""The gallery: a caption says what its picture shows, and no picture is there twice."""

from docs.website.gallery import shown, write_gallery
from seqkit.config import recipe_names

DEBUG = {"presets": {"debug": {"data": {"source": "digits", "limit": 3}, "tokenizer": {"patch": 4}}}}


def test_a_caption_names_what_the_preset_shows_in_the_place_of_the_recipe():
    picture, caption = shown("image/a", DEBUG, "image/a")
    assert picture == "![An example of image/a as tokens](gallery/image-a.png)"
    assert caption == "The picture is of the preset `debug`, which has `data.source: digits`, `tokenizer.patch: 4`."


def test_the_same_picture_is_shown_once(tmp_path):
    (tmp_path / "drawn").mkdir()
    for name in recipe_names():
        same = name in ("text/char-lm", "text/masked-lm", "mixture/four")
        (tmp_path / "drawn" / f"{name.replace('/', '-')}.png").write_text("same" if same else name)
    write_gallery(tmp_path / "drawn", tmp_path)
    text = (tmp_path / "gallery.md").read_text(encoding="utf-8")
    assert text.count("![An example of") == len(list(recipe_names())) - 2
    assert "](gallery/text-char-lm.png)" in text
    assert "Its picture is that of [text/char-lm](#textchar-lm)." in text
    assert "The picture of its first task is that of [text/char-lm](#textchar-lm)." in text
    assert not (tmp_path / "gallery" / "text-masked-lm.png").exists()
