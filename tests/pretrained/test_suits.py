"""A recipe that cannot train a foreign model is refused at once, with what the model is and a recipe that can."""

import pytest
from every_type import model_of, save, small_models
from foreign_models import kept

from seqkit.config import complete
from seqkit.errors import UsageError


def folder_of(place, kind):
    """A folder of the first row of a type."""
    kept(place, _save, kind)
    return str(place)


def _save(place, kind):
    save(place, model_of(*small_models()[kind][0]))


def begun(recipe, folder, **overrides):
    return complete(recipe, "debug", {"model.init": folder, **overrides})


@pytest.mark.parametrize(
    ("recipe", "kind", "said", "nearest"),
    [
        ("image/digits", "bert", "BertForMaskedLM, which reads texts, and the recipe has images", "text/classify"),
        ("text/classify", "vit", "reads images, and the recipe has texts", "image/classify"),
        ("text/char-lm", "whisper", "reads sounds, and the recipe has texts", "audio/classify"),
        ("image/digits", "clip", "CLIPModel, which reads several parts", "multimodal/clip"),
        ("multimodal/clip", "bert", "reads texts, and the recipe has several parts", "text/masked-lm"),
        ("graph/molecules", "bert", "the recipe has molecules", "text/masked-lm"),
        ("graph/nodes", "bert", "the recipe has graphs", "text/masked-lm"),
        ("text/masked-lm", "llama", "sees only tokens before it, and Masked needs tokens on both", "text/char-lm"),
        ("text/char-lm", "bert", "sees tokens on both sides, and NextToken needs only", "text/masked-lm"),
        ("text/char-lm", "t5", "sees tokens on both sides", "text/translate"),
        ("text/translate", "llama", "is no encoder with a decoder", "text/char-lm"),
    ],
)  # fmt: skip
def test_a_recipe_of_another_kind_is_refused_with_the_nearest(
    tmp_path, recipe, kind, said, nearest
):
    folder = folder_of(tmp_path, kind)
    with pytest.raises(UsageError, match=said) as refused:
        begun(recipe, folder)
    assert "\n" not in str(refused.value)
    assert f"`seqkit fit {nearest} --model.init {folder}`" in str(refused.value)
    assert begun(nearest, folder)["model"]["init"] == folder


def test_an_objective_of_the_command_line_is_checked(tmp_path):
    with pytest.raises(UsageError, match="NextToken needs only tokens before it"):
        begun("text/classify", folder_of(tmp_path, "bert"), **{"model.objective": "NextToken"})


@pytest.mark.parametrize(
    ("recipe", "kind", "overrides"),
    [
        # another mask over the same weights
        ("text/char-lm", "bert", {"model.backbone.causal": True}),
        # other data than the recipe.s own
        ("text/classify", "vit", {"data": "digits"}),
        ("text/classify", "vit", {"tokenizer": "Characters"}),
    ],
)
def test_what_the_command_line_says_otherwise_is_not_refused(tmp_path, recipe, kind, overrides):
    assert begun(recipe, folder_of(tmp_path, kind), **overrides)["model"]["backbone"]["dim"]


def test_windows_of_a_text_are_not_cut_where_positions_end(tmp_path):
    folder = folder_of(tmp_path, "bert")
    assert begun("text/masked-lm", folder)["data"]["max_tokens"] is None
    assert begun("text/classify", folder)["data"]["max_tokens"] > 0
