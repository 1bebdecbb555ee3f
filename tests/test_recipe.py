"""A recipe is data: what it may name, where its run may go, and what is said of one that is malformed."""

import pytest

from seqkit import registry
from seqkit.recipe import UsageError, check_trusted, read_recipe


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("recipe: ../../elsewhere\n", "recipe is '../../elsewhere'"),
        ("recipe: /elsewhere\n", "recipe is '/elsewhere'"),
        ("recipe: 7\n", "recipe is 7"),
        ("presets: 7\n", "presets should hold"),
        ("presets: {debug: 7}\n", "presets should hold"),
        ("tokenizer: {class_path: Bytes, init_args: 7}\n", "init_args is 7"),
        ("- seed\n", "but holds list"),
        ("x: !!python/object/apply:os.getcwd []\n", "is not readable as YAML"),
    ],
)
def test_a_malformed_recipe_is_refused_in_one_line(tmp_path, text, said):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said) as caught:
        read_recipe(str(path), "debug" if "debug" in text else None)
    assert "\n" not in str(caught.value)


def test_a_recipe_without_a_name_is_called_as_its_file(tmp_path):
    path = tmp_path / "my digits.yaml"
    path.write_text("seed: 2\n", encoding="utf-8")
    assert read_recipe(str(path)) == {"seed": 2, "recipe": "my digits"}


@pytest.mark.parametrize(
    "path", ["os.system", "seqkit.weights.os.system", "seqkit.cli.main", "seqkit.data.download.fetch", "torch.load"]
)
def test_a_class_path_outside_the_parts_is_refused(path):
    with pytest.raises(UsageError, match=f"the recipe names {path}"):
        check_trusted({"data": {"augment": [{"class_path": path}]}})


def test_parts_and_layers_may_be_named():
    for path in ("seqkit.layers.mlp.MLP", "torch.nn.LayerNorm", "torchvision.transforms.v2.RandomAffine"):
        check_trusted({"x": [{"class_path": path}]})


@pytest.mark.parametrize("kind", registry.KINDS)
def test_a_registered_part_of_any_kind_may_be_named(monkeypatch, kind):
    monkeypatch.setattr(registry, "_PARTS", {known: dict(there) for known, there in registry._PARTS.items()})
    with pytest.raises(UsageError, match=r"mine\.Mine, which is neither"):
        check_trusted({"class_path": "mine.Mine"})
    registry.register(kind)(type("Mine", (), {"__module__": "mine"}))
    check_trusted({"class_path": "mine.Mine"})
