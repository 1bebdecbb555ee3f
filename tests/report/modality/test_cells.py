"""A row's tokens are named by column and cell, whichever cells are missing."""

from datetime import date

import pytest

from seqkit.raw import Years
from seqkit.report.modality import attended, find_renderer, picture
from seqkit.report.modality.cells import MAX_NAME
from seqkit.tokenizers import Cells

ROW = {"age": 41.0, "city": "Oslo", "crp": 4.125, "seen": Years.of(date(2022, 2, 21))}


def cells() -> Cells:
    made = Cells(min_count=1)
    made.fit([ROW])
    return made


def test_a_token_is_named_by_its_column_and_cell():
    made = cells()
    renderer = find_renderer(made)
    for row in (ROW, {key: ROW[key] for key in ("crp", "seen")}):
        names = renderer.token_names(row, made.encode(row))
        right = {
            "age": "age = 41",
            "city": "city = Oslo",
            "crp": "crp = 4.125",
            "seen": "seen = 2022-02-21",
        }
        assert names == [right[key] for key in row]
    assert renderer.token_names(None, made.encode(ROW)) == ["age", "city", "crp", "seen"]


def test_a_long_name_is_cut_and_a_hostile_one_is_drawn_as_it_is(attention_to):
    made, row = Cells(min_count=1), {"a $column$ of a very long name\n": "a $word$ of many letters"}
    made.fit([row])
    tokens, renderer = made.encode(row), find_renderer(made)
    (name,) = renderer.token_names(row, tokens)
    assert len(name) <= MAX_NAME
    assert "\n" not in name
    for figure in (
        picture(renderer, row, tokens),
        attended(renderer, row, tokens, attention_to(1, 0)),
    ):
        figure.canvas.draw()


def test_a_bar_has_the_name_of_its_cell(attention_to):
    made, row = cells(), {key: ROW[key] for key in ("city", "crp")}
    axes = attended(find_renderer(made), row, made.encode(row), attention_to(2, 1)).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["city = Oslo", "crp = 4.125"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([2 / 3, 4 / 3])
