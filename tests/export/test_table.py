"""docs/export.md's tables: every registered component and every recipe is equal as a graph, or refused, as they say."""

import re
from pathlib import Path

import pytest
from export import exported_models

from seqkit.config import complete, read_recipe, recipe_names
from seqkit.errors import UsageError
from seqkit.runs.prepare import untrained

PAGE = (Path(__file__).parents[2] / "docs/export.md").read_text(encoding="utf-8")
COLUMNS = ("text", "sound", "image", "graph", "part")
"""Tokens of the columns of the table."""


def rows(first):
    """Cells of the table whose header begins with that."""
    _, _, rest = PAGE.partition(f"\n| {first}")
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def table():
    """(kind, name) to what the table says: of each kind of tokens, and of each format."""
    found = {}
    for kind, names, *marks in rows("`model.…`"):
        for name in names.split(", "):
            assert (kind, name) not in found, f"{name} has two rows"
            found[kind, name] = (marks[: len(COLUMNS)], marks[len(COLUMNS) :])
    return found


TABLE = table()
CASES = [(kind, name) for kind in exported_models.KINDS for name in exported_models.names(kind)]


def test_the_table_has_a_row_for_each_registered_component():
    assert sorted(TABLE) == sorted(CASES)


@pytest.mark.parametrize("kind", exported_models.KINDS)
def test_the_table_says_which_tokens_a_component_takes(kind):
    for name in exported_models.names(kind):
        taken = exported_models.kinds_of_tokens(kind, name)
        said = dict(zip(COLUMNS, TABLE[kind, name][0], strict=True))
        assert said == {x: "yes" if x in taken else "–" for x in COLUMNS}, name


def exported_of(kind, name):
    """Kinds of tokens over which a component is exported, of those that the table has: two at most, and a part."""
    marks = dict(zip(COLUMNS, TABLE[kind, name][0], strict=True))
    taken = [x for x in COLUMNS[:-1] if marks[x] == "yes"] or ["parts"]
    chosen = {taken[-1]}
    if kind in ("backbone", "mixer", "mechanism"):
        chosen.add(taken[0])
    if (kind, name) == ("backbone", "Transformer"):
        chosen.add("part")
    return sorted(chosen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "tokens"),
    [(*case, tokens) for case in CASES for tokens in exported_of(*case)],
)
def test_a_component_is_exported_or_refused_as_the_table_says(assert_exported, kind, name, tokens):
    assert_exported(exported_models.model(kind, name, tokens), TABLE[kind, name][1])


def marks_of(recipe):
    """What the table of recipes says of it."""
    (refused, *marks), (others, *rest) = rows("recipes")
    assert others == "all others"
    named = re.findall(r"\w+/[\w-]+", refused)
    assert set(named) <= set(recipe_names())
    return marks if recipe in named else rest


@pytest.mark.slow
@pytest.mark.parametrize("recipe", recipe_names())
def test_a_recipe_is_exported_or_refused_as_the_table_says(assert_exported, recipe):
    if "tasks" in read_recipe(recipe)[0]:
        assert marks_of(recipe) == ["refused", "refused"]
        with pytest.raises(UsageError, match="trains several tasks"):
            complete(recipe, "debug")
        return
    model, _ = untrained(complete(recipe, "debug"))
    assert_exported(model, marks_of(recipe))
