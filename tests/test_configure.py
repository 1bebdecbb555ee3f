"""From a dictionary to parts: nothing outside the parts is imported, let alone called."""

import pytest

from seqkit.configure import parse
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
