"""Feature extractors of transformers, as settings of tokenizers: saved, read, and refused."""

import json

import pytest
import transformers

from seqkit.errors import DataError
from seqkit.pretrained.audio_inputs import audio_settings

AST = {
    "type": "MelPatches", "num_mels": 17, "num_frames": 23, "normalize": [-1.5, 2.0],
}  # fmt: skip


def test_settings_are_those_of_the_extractor(tmp_path):
    transformers.ASTFeatureExtractor(num_mel_bins=17, max_length=23, mean=-1.5, std=2.0).save_pretrained(tmp_path)
    assert audio_settings(tmp_path) == AST
    transformers.ASTFeatureExtractor(num_mel_bins=17, max_length=23, do_normalize=False).save_pretrained(tmp_path)
    assert audio_settings(tmp_path) == {**AST, "normalize": None}
    transformers.WhisperFeatureExtractor(feature_size=128, chunk_length=7).save_pretrained(tmp_path)
    assert audio_settings(tmp_path) == {"type": "WhisperMel", "num_mels": 128, "seconds": 7}
    transformers.Wav2Vec2FeatureExtractor(sampling_rate=8_000, do_normalize=False).save_pretrained(tmp_path)
    assert audio_settings(tmp_path) == {"type": "SampleWindows", "sample_rate": 8_000, "normalize": False}


def test_an_extractor_beside_a_tokenizer_is_found(tmp_path):
    inner = {**transformers.ASTFeatureExtractor(num_mel_bins=17, max_length=23, mean=-1.5, std=2.0).to_dict()}
    (tmp_path / "processor_config.json").write_text(json.dumps({"feature_extractor": inner, "processor_class": "AST"}))
    assert audio_settings(tmp_path) == AST


@pytest.mark.parametrize(
    ("kind", "keys", "said"),
    [
        ("AST", {"sampling_rate": 8_000}, "sampling_rate is 8000"),
        ("AST", {"std": 0.0}, "std is 0.0"),
        ("AST", {"do_normalize": 3}, "do_normalize is 3"),
        ("Whisper", {"hop_length": 80}, "hop_length is 80"),
        ("Whisper", {"dither": 0.1}, "dither is 0.1"),
        ("Wav2Vec2", {"padding_value": -1.0}, "padding_value is -1.0"),
        ("Wav2Vec2", {"emphasis": 0.9}, "the key emphasis"),
        ("AST", {"feature_extractor_type": "ClapFeatureExtractor"}, "Clap"),
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
