"""Models of sound that transformers saved: the raw waveform goes in, their hidden states come out; written back."""

import json
import re

import numpy as np
import pytest
import torch
import transformers
from foreign_models import kept
from parity import assert_equal, doubled
from safetensors.torch import load_file, save_file

from seqkit.config import complete
from seqkit.errors import DataError
from seqkit.interfaces import TokenBatch
from seqkit.raw import Waveform
from seqkit.runs.exported import to_hf
from seqkit.runs.imported import import_model
from seqkit.runs.trained_model import load_one

RATE = 16_000
SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
}
WAVES = {
    **SIZES, "conv_dim": [5, 7, 11], "conv_kernel": [10, 3, 2], "conv_stride": [5, 2, 2],
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
WHISPER = {
    "d_model": 24, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 3, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 40, "decoder_ffn_dim": 32, "num_mel_bins": 17, "max_source_positions": 50, "vocab_size": 31,
    "max_target_positions": 13, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 1,
}  # fmt: skip
MODELS = {
    "wav2vec 2.0 base": ("Wav2Vec2", "ForCTC", WAVES, {}),
    "wav2vec 2.0 large": (
        "Wav2Vec2", "Model", {**WAVES, "feat_extract_norm": "layer", "conv_bias": True, "do_stable_layer_norm": True},
        {"return_attention_mask": True},
    ),
    "HuBERT": ("Hubert", "Model", WAVES, {"do_normalize": False}),
    "HuBERT without a norm": ("Hubert", "Model", {**WAVES, "feat_proj_layer_norm": False}, {}),
    "UniSpeech": ("UniSpeech", "ForPreTraining", {**WAVES, "feat_extract_norm": "layer"}, {}),
    "UniSpeechSat": ("UniSpeechSat", "ForPreTraining", {**WAVES, "do_stable_layer_norm": True}, {}),
    "WavLM": ("WavLM", "ForSequenceClassification", {**WAVES, "num_buckets": 12, "max_bucket_distance": 30}, {}),
    "WavLM large": (
        "WavLM", "Model", {**WAVES, "feat_extract_norm": "layer", "do_stable_layer_norm": True, "num_buckets": 16}, {}),
    "Whisper with classes": ("Whisper", "ForAudioClassification", WHISPER, {"feature_size": 17, "chunk_length": 1}),
}  # fmt: skip
NOT_READ = re.compile(
    r"classifier\.|lm_head\.|projector\.|(model\.)?decoder\.|([a-z0-9_]+\.)?masked_spec_embed|quantizer\.|project_|"
    r"ctc_proj\.|speaker_proj\.|label_embeddings_concat|layer_norm_for_extract\."
)
"""Names in their files that are no weights of the encoder."""


def saved(place, name):
    """Their model with random weights and its feature extractor, both saved in `theirs`."""
    return kept(place / "theirs", _saved, name)


def _saved(folder, name):
    family, kind, settings, features = MODELS[name]
    model_class = getattr(transformers, family + kind)
    torch.manual_seed(3)
    model = model_class(model_class.config_class(**settings, attn_implementation="eager")).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(folder)
    kind = family if family in ("Whisper",) else "Wav2Vec2"
    extractor = getattr(transformers, f"{kind}FeatureExtractor")(**features)
    extractor.save_pretrained(folder)
    return model, extractor


def encoder(model):
    """The part of their model that is read."""
    base = getattr(model, model.base_model_prefix, model)
    return base.encoder if isinstance(model, transformers.WhisperPreTrainedModel) else base


def waves():
    """Two sounds of unlike lengths, a tone in noise each."""
    rng = np.random.default_rng(5)
    tones = [np.sin(np.arange(n) * f) for n, f in ((3_217, 0.1), (1_913, 0.23))]
    return [(0.3 * x + 0.1 * rng.standard_normal(len(x))).astype(np.float32) for x in tones]


def configured(place, file="config.json", **keys):
    """The saved folder with other keys in one of its files."""
    path = place / "theirs" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


@pytest.mark.parametrize("name", MODELS)
def test_raw_waveforms_give_their_hidden_states_alone_and_in_a_batch(tmp_path, name):
    model, extractor = saved(tmp_path, name)
    import_model(tmp_path / "theirs", tmp_path / "run", "theirs")
    run = load_one(tmp_path / "run")
    assert run.summary["objective"] == "Features"
    batch = TokenBatch.collate([run.tokenizer.encode(Waveform(wave, RATE)) for wave in waves()])
    with torch.no_grad():
        ours, theirs = doubled(run.model), doubled(encoder(model))
        hidden = ours.backbone(ours.embed(batch))
        for i, wave in enumerate(waves()):
            given = extractor(wave, sampling_rate=RATE, return_tensors="pt")[
                extractor.model_input_names[0]
            ]
            right = theirs(given.double()).last_hidden_state[0]
            assert len(right) == batch.valid[i].sum()
            assert_equal(hidden[i, : len(right)], right)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_is_written_back_bit_for_bit(tmp_path, name):
    model, _ = saved(tmp_path, name)
    summary = import_model(tmp_path / "theirs", tmp_path / "run", "theirs")
    assert to_hf(load_one(tmp_path / "run"), tmp_path / "back") == []
    held, back = (load_file(tmp_path / part / "model.safetensors") for part in ("theirs", "back"))
    prefix = f"{model.base_model_prefix}."
    read = {key.removeprefix(prefix): x for key, x in held.items() if not NOT_READ.match(key)}
    assert read.keys() == back.keys()
    assert all(read[key].equal(x) for key, x in back.items())
    assert len(read) == len(held) or summary["initial"]["left_out"]
    for file in ("config.json", "preprocessor_config.json"):
        assert (tmp_path / "theirs" / file).read_text() == (tmp_path / "back" / file).read_text()
    again = encoder(type(model).from_pretrained(tmp_path / "back")).state_dict()
    right = encoder(model).state_dict()
    assert all(again[key].equal(x) for key, x in right.items() if not NOT_READ.match(key))


def test_a_bias_of_keys_that_training_left_is_dropped_and_changes_nothing(tmp_path):
    model, extractor = saved(tmp_path, "Whisper with classes")
    import_model(tmp_path / "theirs", tmp_path / "run", "theirs")
    run = load_one(tmp_path / "run")
    given = extractor(waves()[0], sampling_rate=RATE, return_tensors="pt").input_features
    with torch.no_grad():
        for block in run.model.backbone.blocks:
            assert block.attention.qkv_proj.bias[24:48].eq(0).all()
            block.attention.qkv_proj.bias[24:48] += torch.randn(24)
        assert to_hf(run, tmp_path / "back") == []
        tokens = TokenBatch.collate([run.tokenizer.encode(Waveform(waves()[0], RATE))])
        ours = doubled(run.model)
        right = doubled(encoder(type(model).from_pretrained(tmp_path / "back")))(
            given.double()
        ).last_hidden_state
        assert_equal(ours.backbone(ours.embed(tokens)), right)


def test_weights_of_old_files_are_read(tmp_path):
    saved(tmp_path, "wav2vec 2.0 base")
    import_model(tmp_path / "theirs", tmp_path / "run", "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    held = load_file(path)
    for i, old in enumerate(("weight_g", "weight_v")):
        conv = "wav2vec2.encoder.pos_conv_embed.conv"
        held[f"{conv}.{old}"] = held.pop(f"{conv}.parametrizations.weight.original{i}")
    save_file(held, path)
    import_model(tmp_path / "theirs", tmp_path / "old", "theirs")
    right, got = (load_one(tmp_path / name).model.state_dict() for name in ("run", "old"))
    assert all(got[name].equal(x) for name, x in right.items())


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("wav2vec 2.0 base", {"add_adapter": True}, "add_adapter is True"),
        ("wav2vec 2.0 base", {"adapter_attn_dim": 16}, "adapter_attn_dim is 16"),
        ("wav2vec 2.0 base", {"feat_extract_activation": "relu"}, "feat_extract_activation"),
        ("wav2vec 2.0 base", {"feat_extract_norm": "batch"}, "feat_extract_norm is 'batch'"),
        ("wav2vec 2.0 base", {"do_stable_layer_norm": "yes"}, "do_stable_layer_norm is 'yes'"),
        ("wav2vec 2.0 base", {"conv_dim": [5, 7]}, "conv_dim"),
        ("wav2vec 2.0 base", {"conv_kernel": [10, "x", 2]}, "conv_kernel .*whole numbers"),
        ("wav2vec 2.0 base", {"conv_kernel": [4, 3, 2]}, "conv_kernel .*strides"),
        ("wav2vec 2.0 base", {"num_conv_pos_embedding_groups": 5}, "num_conv_pos_embedding_groups"),
        ("HuBERT", {"conv_pos_batch_norm": True}, "conv_pos_batch_norm is True"),
        ("Whisper with classes", {"scale_embedding": True}, "scale_embedding is True"),
        ("Whisper with classes", {"max_source_positions": 51}, "max_source_positions is 51"),
        ("Whisper with classes", {"max_source_positions": 100}, "seconds=2"),
    ],
)
def test_a_setting_that_is_not_read_is_refused(tmp_path, name, keys, said):
    saved(tmp_path, name)
    configured(tmp_path, **keys)
    with pytest.raises(DataError, match=said) as refused:
        import_model(tmp_path / "theirs", tmp_path / "run", "theirs")
    assert "\n" not in str(refused.value)


def test_a_feature_extractor_of_another_kind_is_refused(tmp_path):
    saved(tmp_path, "wav2vec 2.0 base")
    transformers.WhisperFeatureExtractor().save_pretrained(tmp_path / "theirs")
    with pytest.raises(DataError, match=r"WhisperMel.*SampleWindows"):
        import_model(tmp_path / "theirs", tmp_path / "run", "theirs")


@pytest.mark.parametrize("name", ["wav2vec 2.0 base", "Whisper with classes"])
def test_a_recipe_begins_with_the_encoder(tmp_path, name):
    saved(tmp_path, name)
    config = complete("audio/spoken-digits", "debug", {"model.init": str(tmp_path / "theirs")})
    assert config["tokenizer"]["type"] == (
        "WhisperMel" if name.startswith("Whisper") else "SampleWindows"
    )
    assert config["model"]["objective"]["type"] == "Classify"
    assert config["model"]["backbone"]["dim"] == 24
