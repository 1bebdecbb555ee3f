"""Raw examples that are named on the command line."""

import numpy as np
import pytest
from PIL import Image

from seqkit.data.inputs import read_inputs
from seqkit.errors import DataError
from seqkit.tokenizers import Bytes, LogMel, Molecule, Patches


def test_an_image_has_the_channels_of_the_tokenizer(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(np.zeros((7, 5, 3), np.uint8)).save(path)
    for tokenizer, channels in ((Patches(5), 1), (Patches(5, channels=3), 3), (LogMel(8000), 3)):
        ((name, image),) = read_inputs(str(path), tokenizer)
        assert name == str(path)
        assert image.shape == (channels, 7, 5)
    with pytest.raises(DataError, match="is a Waveform"):
        LogMel(8000).encode(image)


def test_a_string_is_itself_and_a_smi_file_one_molecule_a_line(tmp_path):
    assert list(read_inputs("CCO", Molecule())) == [("CCO", "CCO")]
    (tmp_path / "a.smi").write_text("CCO ethanol\n\nC\n", encoding="utf-8")
    assert [raw for _, raw in read_inputs(str(tmp_path / "a.smi"), Molecule())] == ["CCO", "C"]


def test_a_text_file_is_one_example_and_a_long_text_no_path(tmp_path):
    path = tmp_path / "a.TXT"
    path.write_text("to be", encoding="utf-8")
    assert list(read_inputs(str(path), Bytes())) == [(str(path), "to be")]
    assert list(read_inputs("or not to be " * 1000, Bytes())) == [("or not to be " * 1000,) * 2]


def test_a_file_of_another_format_is_refused_with_those_there_are(tmp_path):
    for name, ending in (("a.csv", r"\.csv"), ("b", "nothing")):
        (tmp_path / name).write_text("content", encoding="utf-8")
        with pytest.raises(DataError, match=rf"ends in {ending}; raw files end in .*\.wav.*\.png.*\.txt.*\.smi$"):
            list(read_inputs(str(tmp_path / name), Bytes()))


@pytest.mark.parametrize(("given", "what"), [("nosuch.png", "no file"), ("", "nothing"), (".", "a folder here")])
def test_a_name_without_a_file_is_refused(given, what):
    with pytest.raises(DataError, match=f"'{given}' is {what}; give a file"):
        list(read_inputs(given, Patches(5)))
