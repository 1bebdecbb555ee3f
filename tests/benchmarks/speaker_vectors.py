"""Speaker vectors of Resemblyzer's published LSTM beside those of its own computation: the largest difference.

python tests/benchmarks/speaker_vectors.py PRETRAINED FOLDER

PRETRAINED: `resemblyzer/pretrained.pt` of its wheel (`pip download resemblyzer --no-deps`, unzipped). FOLDER: is made,
and can be imported: `seqkit import FOLDER RUN`. Needs `pip install librosa`, which makes their mel frames; the model is
`torch.nn.LSTM`, a linear layer, ReLU and the division by the length, as in `VoiceEncoder.forward` (0.1.4).
"""

import argparse
from pathlib import Path

import librosa
import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

import seqkit
from seqkit.data.inputs import Input
from seqkit.raw import Waveform
from seqkit.runs.answers import vectors

RATE = 16_000


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("pretrained", type=Path)
    options.add_argument("folder", type=Path)
    given = options.parse_args()
    weights = torch.load(given.pretrained, map_location="cpu", weights_only=True)["model_state"]
    given.folder.mkdir(parents=True)
    save_file(weights, given.folder / "model.safetensors")
    (given.folder / "config.json").write_text('{"model_type": "resemblyzer"}')
    rng = np.random.default_rng(0)
    voices = [
        0.1 * sum(np.sin(np.arange(n) * f * k) / k for k in range(1, 20)) for n, f in ((31_013, 0.05), (9_001, 0.08))
    ]
    waves = [(voice + 0.01 * rng.standard_normal(len(voice))).astype(np.float32) for voice in voices]
    waves.append(rng.standard_normal(16_001).astype(np.float32))
    inputs = [Input(str(i), Waveform(wave, RATE)) for i, wave in enumerate(waves)]
    ours = torch.stack([found.values for found in vectors(seqkit.load(given.folder), inputs)])
    lstm, linear = nn.LSTM(40, 256, 3, batch_first=True), nn.Linear(256, 256)
    nn.ModuleDict({"lstm": lstm, "linear": linear}).load_state_dict(
        {name: x for name, x in weights.items() if not name.startswith("similarity_")}
    )
    theirs = []
    with torch.no_grad():
        for wave in waves:
            frames = librosa.feature.melspectrogram(y=wave, sr=RATE, n_fft=400, hop_length=160, n_mels=40)
            _, (hidden, _) = lstm(torch.from_numpy(frames.astype(np.float32).T)[None])
            raw = linear(hidden[-1]).relu()[0]
            theirs.append(raw / raw.norm())
    difference = (ours - torch.stack(theirs)).abs().max()
    print(f"{len(waves)} sounds, {ours.shape[1]} numbers each: largest difference {difference:.1e}")


if __name__ == "__main__":
    main()
