"""A row's tokens are named by column and cell, whichever cells are missing."""

from datetime import date

from seqkit.raw import Years
from seqkit.report.modality import AttentionSummary, find_renderer
from seqkit.report.modality.cells import MAX_NAME
from seqkit.tokenizers import Cells, Join, Words
from tests.report.modality.test_join import summary_of

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
        right = {"age": "age = 41", "city": "city = Oslo", "crp": "crp = 4.125", "seen": "seen = 2022-02-21"}
        assert names == [right[key] for key in row]
    assert renderer.token_names(None, made.encode(ROW)) == ["age", "city", "crp", "seen"]


def test_a_long_name_is_cut_and_a_hostile_one_is_drawn_as_it_is():
    made, row = Cells(min_count=1), {"a $column$ of a very long name\n": "a $word$ of many letters"}
    made.fit([row])
    tokens = made.encode(row)
    (name,) = find_renderer(made).token_names(row, tokens)
    assert len(name) <= MAX_NAME
    assert "\n" not in name
    for figure in (
        find_renderer(made).picture(row, tokens),
        find_renderer(made).overlay(row, tokens, summary_of(tokens)),
    ):
        figure.canvas.draw()


def test_bars_and_strips_have_the_names_and_the_colours_a_legend():
    made, row = cells(), {key: ROW[key] for key in ("city", "crp")}
    tokens = made.encode(row)
    figure = find_renderer(made).overlay(row, tokens, summary_of(tokens))
    assert [tick.get_text() for tick in figure.axes[-1].get_xticklabels()] == ["city = Oslo", "crp = 4.125"]
    both = Join({"note": Words(), "cells": made})
    both.parts["note"].fit(["came back"])
    raw = {"note": "came", "cells": row}
    tokens = both.encode(raw)
    summary: AttentionSummary = summary_of(tokens)
    *pictures, bar = find_renderer(both).from_tokens(raw, tokens, summary).axes  # type: ignore[attr-defined]
    assert [tick.get_text() for tick in pictures[0].get_xticklabels()] == ["city = Oslo", "crp = 4.125"]
    assert len(pictures[0].images) == 1, "no colours of ids below"
    assert bar.get_ylabel() == "times average"
