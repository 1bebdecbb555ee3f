"""Feature extractors of transformers, as settings of tokenizers: saved, read, and refused."""

import json

import pytest
import transformers

from seqkit.errors import DataError
from seqkit.pretrained.audio_inputs import audio_settings


def test_settings_are_those_of_the_extractor(tmp_path):
    transformers.WhisperFeatureExtractor(feature_size=128, chunk_length=7).save_pretrained(tmp_path)
    assert audio_settings(tmp_path) == {"type": "WhisperMel", "num_mels": 128, "seconds": 7}
    transformers.Wav2Vec2FeatureExtractor(sampling_rate=8_000, do_normalize=False).save_pretrained(
        tmp_path
    )
    assert audio_settings(tmp_path) == {
        "type": "SampleWindows",
        "sample_rate": 8_000,
        "normalize": False,
    }


def test_an_extractor_beside_a_tokenizer_is_found(tmp_path):
    inner = transformers.WhisperFeatureExtractor(feature_size=17, chunk_length=7).to_dict()
    (tmp_path / "processor_config.json").write_text(
        json.dumps({"feature_extractor": inner, "processor_class": "Whisper"})
    )
    assert audio_settings(tmp_path) == {"type": "WhisperMel", "num_mels": 17, "seconds": 7}


@pytest.mark.parametrize(
    ("kind", "keys", "said"),
    [
        ("Whisper", {"hop_length": 80}, "hop_length is 80"),
        ("Whisper", {"dither": 0.1}, "dither is 0.1"),
        ("Wav2Vec2", {"padding_value": -1.0}, "padding_value is -1.0"),
        ("Wav2Vec2", {"do_normalize": 3}, "do_normalize is 3"),
        ("Whisper", {"feature_extractor_type": "ClapFeatureExtractor"}, "Clap"),
    ],
)
def test_a_setting_that_is_not_read_is_refused(tmp_path, kind, keys, said):
    getattr(transformers, f"{kind}FeatureExtractor")().save_pretrained(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
    with pytest.raises(DataError, match=said):
        audio_settings(tmp_path)


def test_a_folder_without_an_extractor_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"preprocessor_config\.json"):
        audio_settings(tmp_path)
