"""From a dictionary to parts: nothing outside the parts is imported, let alone called."""

import pytest
import torch

from seqkit.configure import instantiate, parse
from seqkit.recipe import UsageError, read_recipe


@pytest.mark.parametrize(
    "named",
    [
        "os.system",
        "torch.serialization.os.system",
        "seqkit.data.speech.subprocess.check_output",
        {"class_path": "seqkit.data.files.struct.pack", "init_args": {"fmt": "b"}},
    ],
)
def test_a_callable_from_elsewhere_is_refused_however_it_is_spelled(named):
    recipe = read_recipe("image/digits")
    recipe["data"] = {**recipe["data"], "augment": [named]}
    with pytest.raises(UsageError, match="is neither seqkit's nor a registered plug-in"):
        parse(recipe)


def test_torchs_own_modules_are_taken():
    recipe = read_recipe("image/digits")
    recipe["model"]["backbone"]["init_args"]["norm"] = "torch.nn.RMSNorm"
    assert "RMSNorm" in str(parse(recipe).model.backbone)


def test_a_part_has_its_own_defaults_not_those_of_what_stood_there():
    recipe = read_recipe("text/char-lm", "debug")
    recipe["model"]["backbone"]["init_args"]["block"]["init_args"]["mlp"] = "seqkit.layers.mlp.GatedMLP"
    mlp = instantiate(parse(recipe)).model.backbone.blocks[0].mlp
    assert isinstance(mlp.activation, torch.nn.SiLU)
    assert mlp.widen.bias is None
    assert mlp.out.bias is None
