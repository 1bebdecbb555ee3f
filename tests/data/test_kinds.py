"""The tables of kinds name what there is: recipes, tokenizers and objectives, and each is decided once."""

from typing import get_args

from seqkit.config import complete
from seqkit.data.formats import FORMATS
from seqkit.data.kinds import KIND_OF_TOKENIZER, KINDS, TARGET_OF_OBJECTIVE, TARGETS, TargetKind
from seqkit.data.tables.schema import _READERS
from seqkit.registry import components


def test_each_kind_has_a_reader_of_cells_and_each_file_format_a_kind():
    assert KINDS.keys() == _READERS.keys()
    assert {known.kind for known in FORMATS} - {""} <= KINDS.keys()


def test_recipes_tokenizers_and_objectives_of_the_tables_exist():
    recipes = {kind.recipe for kind in KINDS.values()} | {one.of_texts for one in TARGETS.values()}
    for recipe in recipes - {"", "own/classify"}:  # which waits for a tokenizer
        assert complete(recipe)["recipe"] == recipe
    assert KIND_OF_TOKENIZER.keys() <= components("tokenizer").keys()
    assert TARGET_OF_OBJECTIVE.keys() <= components("objective").keys()


def test_the_kinds_of_targets_are_those_that_a_table_may_be_given():
    assert set(get_args(TargetKind)) == TARGETS.keys()
    assert set(TARGET_OF_OBJECTIVE.values()) < TARGETS.keys()
