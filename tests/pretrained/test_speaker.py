"""Resemblyzer's LSTM from raw waveforms: mel frames, vectors and weights are those of its definition.

t samples · n frames · m mel bands
"""

import json

import numpy as np
import pytest
import torch
from parity import assert_equal, doubled
from safetensors.torch import load_file, save_file
from torch import nn
from torchaudio.functional import melscale_fbanks

from seqkit.config import complete
from seqkit.data.inputs import Input
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import TokenBatch
from seqkit.pretrained.folder import settings
from seqkit.raw import Waveform
from seqkit.runs.answers import vectors
from seqkit.runs.exported import to_hf
from seqkit.runs.imported import import_model
from seqkit.runs.trained_model import load_one
from seqkit.tokenizers import MelEnergies

RATE, MELS, DIM, WIDTH, DEPTH = 16_000, 7, 11, 13, 3
SIZES = {"mel_n_channels": MELS, "model_hidden_size": DIM, "model_embedding_size": WIDTH, "model_num_layers": DEPTH}


class Witness(nn.Module):
    """The last hidden state of an LSTM through a linear layer and ReLU, divided by its length."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(MELS, DIM, DEPTH, batch_first=True)
        self.linear = nn.Linear(DIM, WIDTH)

    def forward(self, frames):
        """[b WIDTH] of frames [b n m]."""
        _, (hidden, _) = self.lstm(frames)
        found = self.linear(hidden[-1]).relu()
        return found / found.norm(dim=1, keepdim=True)


def waves():
    rng = np.random.default_rng(5)
    tones = [np.sin(np.arange(n) * f) for n, f in ((3_217, 0.1), (1_913, 0.23))]
    return [(0.3 * x + 0.1 * rng.standard_normal(len(x))).astype(np.float32) for x in tones]


def frames_of(wave):
    """Mel energies [n m] by the definition: windows around each 160th sample, squared spectra, Slaney's bands."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    padded = np.pad(wave.astype(np.float64), 200)
    spectra = [np.fft.rfft(padded[i : i + 400] * window) for i in range(0, len(wave) + 1, 160)]
    bands = melscale_fbanks(201, 0.0, RATE / 2, MELS, RATE, norm="slaney", mel_scale="slaney").double().numpy()
    return torch.from_numpy((np.abs(spectra) ** 2 @ bands).astype(np.float32))


@pytest.fixture
def saved(tmp_path):
    """Random weights in their file, and the model that they are of."""
    torch.manual_seed(3)
    model = Witness().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    (tmp_path / "theirs").mkdir()
    save_file(model.state_dict(), tmp_path / "theirs" / "model.safetensors")
    (tmp_path / "theirs" / "config.json").write_text(json.dumps({"model_type": "resemblyzer", **SIZES}))
    return model, tmp_path


def test_frames_are_those_of_the_definition():
    for wave in waves():
        found = MelEnergies(MELS).encode(Waveform(wave, RATE)).content
        right = frames_of(wave)
        assert found.shape == (len(wave) // 160 + 1, MELS)
        torch.testing.assert_close(found, right, rtol=0, atol=1e-5 * float(right.max()))


def test_raw_waveforms_give_their_vectors_alone_and_in_a_batch(saved):
    model, place = saved
    import_model(place / "theirs", place / "run", "theirs")
    run = load_one(place / "run")
    with torch.no_grad():
        right = torch.cat([doubled(model)(frames_of(wave)[None].double()) for wave in waves()])
        together = doubled(run.model)(
            TokenBatch.collate([run.tokenizer.encode(Waveform(wave, RATE)) for wave in waves()])
        )
    assert_equal(together, right)
    found = vectors(run, [Input(str(i), Waveform(wave, RATE)) for i, wave in enumerate(waves())])
    torch.testing.assert_close(torch.stack([one.values for one in found]).double(), right, rtol=0, atol=1e-4)


def test_what_is_read_is_written_back_bit_for_bit(saved):
    _, place = saved
    import_model(place / "theirs", place / "run", "theirs")
    run = load_one(place / "run")
    assert to_hf(run, place / "back") == []
    held, back = (load_file(place / name / "model.safetensors") for name in ("theirs", "back"))
    assert held.keys() == back.keys()
    assert all(held[name].equal(x) for name, x in back.items())
    with torch.no_grad():
        run.model.backbone.layers.weight_ih_l0[:, MELS] = 1.0
    with pytest.raises(UsageError, match="last 4 columns"):
        to_hf(run, place / "other")


def test_the_published_file_has_weights_that_are_left_out_and_no_sizes(saved):
    _, place = saved
    path = place / "theirs" / "model.safetensors"
    save_file(load_file(path) | {"similarity_weight": torch.ones(1), "similarity_bias": torch.ones(1)}, path)
    summary = import_model(place / "theirs", place / "run", "theirs")
    assert summary["initial"]["left_out"] == ["similarity_bias", "similarity_weight"]
    (place / "theirs" / "config.json").write_text(json.dumps({"model_type": "resemblyzer"}))
    found = settings(place / "theirs", "Features")
    assert found["tokenizer"] == {"type": "MelEnergies", "num_mels": 40}
    assert (found["model"]["backbone"]["dim"], found["model"]["backbone"]["depth"]) == (256, 3)
    assert found["model"]["objective"]["dim"] == 256


@pytest.mark.parametrize("key", SIZES)
def test_another_size_is_another_model(saved, key):
    _, place = saved
    found = settings(place / "theirs", "Features")
    (place / "theirs" / "config.json").write_text(
        json.dumps({"model_type": "resemblyzer", **SIZES, key: SIZES[key] + 1})
    )
    assert settings(place / "theirs", "Features") != found
    with pytest.raises(DataError, match=r"disagree|of other sizes|has no weight"):
        import_model(place / "theirs", place / "run", "theirs")


def test_more_bands_than_channels_are_refused(saved):
    _, place = saved
    (place / "theirs" / "config.json").write_text(
        json.dumps({"model_type": "resemblyzer", **SIZES, "mel_n_channels": 12})
    )
    with pytest.raises(DataError, match="mel_n_channels is 12"):
        import_model(place / "theirs", place / "run", "theirs")


def test_a_recipe_begins_with_the_lstm(saved):
    _, place = saved
    config = complete("audio/spoken-digits", "debug", {"model.init": str(place / "theirs")})
    assert config["tokenizer"]["type"] == "MelEnergies"
    assert (config["model"]["backbone"]["type"], config["model"]["objective"]["type"]) == ("LSTM", "Classify")
