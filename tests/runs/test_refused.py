"""What a run refuses before it trains: a backbone without a width, a picture's folder that is a file."""

import pytest

from seqkit.backbones import LSTM, Transformer
from seqkit.config import complete
from seqkit.errors import UsageError
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.objectives import Masked
from seqkit.report.inspect import inspect


@pytest.mark.parametrize("dim", [0, -1, "24", 24.0, True, None])
def test_a_backbone_whose_width_is_no_positive_integer_is_refused(dim):
    backbone = LSTM(24)
    backbone.dim = dim
    with pytest.raises(ValueError, match=f"dim of LSTM is {dim!r}"):
        Model(TokenSpec(vocab_size=11), backbone, Masked())


@pytest.mark.parametrize(("dim", "num_heads"), [(-1, 8), (0, 8), (24, 0), (24, -3)])
def test_a_transformer_without_width_or_heads_is_refused(dim, num_heads):
    wrong = f"dim={dim}" if dim < 1 else f"num_heads={num_heads}"
    with pytest.raises(ValueError, match=f"^{wrong}; make it 1 or more"):
        Transformer(dim, 1, num_heads=num_heads)


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_picture_in_a_folder_that_is_a_file_is_refused(out, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file is a file"):
        inspect(complete("image/digits", "debug", []), tmp_path / out / "picture.png")
