"""The table of keys says what the components' own signatures say, and is not believed when they have changed."""

import json
import subprocess
import sys

import pytest

from seqkit.config import complete, key_table, known_keys, read_recipe, recipe_names, schema
from seqkit.config.key_table import fingerprint, look_up
from seqkit.config.write_known_keys import FILE, table
from seqkit.errors import UsageError

ASKED = [
    *([name, preset, []] for name in recipe_names() for preset in (None, *read_recipe(name)[1])),
    *(
        ["image/digits", None, words]
        for words in (
            ["--model.bakbone", "LSTM"],
            ["--batch_size", "3"],
            ["--model.backbone", "LTSM"],
            ["--model.backbone", "{type: bert_mini, depht: 3}"],
            ["--model.backbone.dephts", "3"],
            ["--model.backbone.norm", "null"],
            ["--model.backbone.block.mlp.ratio", "x"],
            ["--model.backbone.block", "[PreNormBlock, {type: ParalelBlock}]"],
            ["--model.backbone.position", "{type: Rotary, scaling: {type: LinearScaling}}"],
            ["--model.adjacency", "drop"],
            ["--data.augment", "[{type: RandomAffine, degrees: 5, interpolation: cubic}]"],
            ["--data.augment", "[{type: RandomAffine, degrees: 5, interpolation: bicubic}]"],
            ["--data.augment", "[{type: Resize, antialias: maybe, size: 3}]"],
            ["--optimizer", "torch.optim.Adam", "--optimizer.betas", "[0.9]"],
            ["--optimizer", "torch.optim.SGD", "--optimizer.params", "3"],
            ["--schedule", "torch.optim.lr_scheduler.OneCycleLR", "--schedule.max_lr", "fast"],
            ["--trainer.max_epoch", "3"],
            ["--tokenizer.patch", "[2, 3, 4]"],
        )
    ),
]
"""Recipe, preset and words: right ones, and a mistake of each kind."""

SAID = """
import json, sys
from seqkit.config import complete
from seqkit.errors import UsageError
def said(recipe, preset, words):
    try:
        return complete(recipe, preset, words)
    except UsageError as error:
        return str(error)
answers = [said(*asked) for asked in json.load(sys.stdin)]
heavy = sorted({"torch", "torchvision", "pytorch_lightning", "numpy"} & set(sys.modules))
print(json.dumps([heavy, answers]))
"""


def test_the_table_is_what_the_components_say():
    assert FILE.read_text(encoding="utf-8") == table(), "run `python -m seqkit.config.write_known_keys`"


def test_a_recipe_is_completed_or_refused_in_the_same_words_with_torch_and_without(monkeypatch):
    command = [sys.executable, "-c", SAID]
    done = subprocess.run(command, input=json.dumps(ASKED), capture_output=True, text=True, check=True)
    heavy, without_torch = json.loads(done.stdout)
    assert heavy == []
    monkeypatch.setattr(schema, "look_up", lambda path: None)
    for (recipe, preset, words), found in zip(ASKED, without_torch, strict=True):
        if isinstance(found, str):
            with pytest.raises(UsageError) as caught:
                complete(recipe, preset, words)
            assert found == str(caught.value)
        else:
            assert found == json.loads(json.dumps(complete(recipe, preset, words)))
    assert 12 < sum(isinstance(found, str) for found in without_torch) < len(ASKED)


SOURCE = '''
LIMIT = 3
class Base:
    def __init__(self, dim: int, *, rate: float = 0.1): ...
class Part(Base):
    """A part."""
    def run(self, x: int) -> int:
        return x
def part(dim: int = 3): ...
'''


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("A part.", "A better part.", True),
        ("return x", "return x + 1", True),
        ("x: int", "x: float", True),
        ("rate: float = 0.1", "rate: float = 0.2", False),
        ("rate: float", "rate: float | None", False),
        ("dim: int,", "dim: int, depth: int,", False),
        ("Part(Base)", "Part", False),
        ("LIMIT = 3", "LIMIT = 5", False),
        ("dim: int = 3", "dim: int = 5", False),
    ],
)
def test_a_changed_signature_is_another_fingerprint_and_changed_code_is_not(monkeypatch, tmp_path, old, new, is_same):
    monkeypatch.setattr(key_table, "PACKAGE", tmp_path)
    (tmp_path / "one.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "other.py").write_text(SOURCE.replace(old, new, 1), encoding="utf-8")
    assert SOURCE.replace(old, new, 1) != SOURCE
    own = fingerprint.__wrapped__
    assert (own("seqkit.one") == own("seqkit.other")) == is_same


@pytest.mark.parametrize(("source", "path"), [("torch", "torch.nn:LayerNorm"), ("seqkit.nn.mlp", "seqkit.nn.mlp:MLP")])
def test_a_table_of_another_version_is_not_believed(monkeypatch, source, path):
    assert look_up(path) is not None
    monkeypatch.setitem(known_keys.FINGERPRINTS, source, "2.10.0")
    assert look_up(path) is None
    assert look_up("somebody.elses:Class") is None


BUILT = """
from seqkit.config import build, complete
(augmentation,) = build(complete("image/digits")).data["augment"]
from torchvision.transforms.v2 import InterpolationMode
print(augmentation.interpolation is InterpolationMode.BILINEAR)
"""


def test_a_fresh_process_builds_components_with_values_of_their_own_types():
    """The table has copies of enumerations; a component gets the members of its own."""
    done = subprocess.run([sys.executable, "-c", BUILT], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
