"""Words of the command line as raw examples."""

import numpy as np
import pytest
from PIL import Image

from seqkit.contract import DataError
from seqkit.data.raw import read_raws
from seqkit.tokenizers import LogMel, Molecule, Patches


def test_a_picture_has_the_channels_that_the_tokenizer_reads(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(np.zeros((7, 5, 3), np.uint8)).save(path)
    for tokenizer, channels in ((Patches(5), 1), (Patches(5, channels=3), 3), (LogMel(8000), 3)):
        ((name, image),) = read_raws(str(path), tokenizer)
        assert name == str(path)
        assert image.shape == (channels, 7, 5)
    with pytest.raises(DataError, match="sound is a Waveform"):
        LogMel(8000).encode(image)


def test_a_word_is_itself_and_a_smi_file_one_molecule_a_line(tmp_path):
    assert list(read_raws("CCO", Molecule())) == [("CCO", "CCO")]
    (tmp_path / "a.smi").write_text("CCO ethanol\n\nC\n", encoding="utf-8")
    assert [raw for _, raw in read_raws(str(tmp_path / "a.smi"), Molecule())] == ["CCO", "C"]


@pytest.mark.parametrize(("given", "what"), [("nosuch.png", "no file"), ("", "nothing"), (".", "a folder here")])
def test_a_name_without_a_file_is_refused(given, what):
    with pytest.raises(DataError, match=f"'{given}' is {what}; give a file"):
        list(read_raws(given, Patches(5)))
