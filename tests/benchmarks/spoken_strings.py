"""What a classical method makes of `audio/ctc-digits`: pieces between pauses, each classified by an RBF-SVM.

    python -m tests.benchmarks.spoken_strings [--held-out SPEAKER]

The SVM learns from the single recordings of the training strings, the model of `audio/spoken-digits`' strong baseline.
The threshold of a pause and its least length are those with the fewest word errors on the validation strings.
"""

import argparse
import itertools

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import binary_closing, label
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torchmetrics.functional.text import word_error_rate

from seqkit.recipes.audio.digit_strings import VALID_TAKES, DigitStrings, take_of
from seqkit.recipes.audio.fsdd import Fsdd
from seqkit.recipes.audio.spoken_digits import WORDS
from seqkit.tokenizers import LogMel

SIDE, FRAME = 32, 80  # frames to which a piece is stretched; samples of a frame of 10 ms
MEL = LogMel(8_000, num_mels=40, normalize=False)


def features(samples):
    frames = MEL.encode((samples, 8_000)).content
    return F.interpolate(frames.T[None], SIDE, mode="linear").flatten().numpy()


def pieces(samples, decibels, gap):
    """Stretches [t] that are louder than so many decibels below the loudest frame; shorter pauses are filled."""
    frames = samples[0, : samples.shape[1] // FRAME * FRAME].reshape(-1, FRAME).square().mean(dim=1)
    loud = (10 * torch.log10(frames / frames.max() + 1e-12) > -decibels).numpy()
    loud = binary_closing(np.pad(loud, gap), np.ones(gap))[gap : len(loud) + gap]
    numbers, count = label(loud)
    found = [np.flatnonzero(numbers == i + 1) for i in range(count)]
    return [
        samples[:, each[0] * FRAME : (each[-1] + 1) * FRAME] for each in found if len(each) >= 8
    ]


def words(svm, strings, decibels, gap):
    cut = [pieces(string.raw.samples, decibels, gap) for string in strings]
    flat = [features(piece) for each in cut for piece in each]
    digits = iter(svm.predict(np.stack(flat)))
    return [" ".join(WORDS[next(digits)] for _ in each) for each in cut]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--held-out")
    held_out = parser.parse_args().held_out
    single = [one for one in Fsdd(held_out).splits().train if take_of(one) not in VALID_TAKES]
    svm = make_pipeline(StandardScaler(), SVC(C=10))
    svm.fit(np.stack([features(one.raw.samples) for one in single]), [one.label for one in single])
    splits = DigitStrings(held_out=held_out).splits()

    def errors(strings, *settings):
        return float(
            word_error_rate(words(svm, strings, *settings), [one.label for one in strings])
        )

    settings = min(
        itertools.product((10, 13, 16, 20, 25, 30), (2, 4, 6, 8, 12)),
        key=lambda x: errors(splits.valid, *x),
    )
    print(
        "pause: dB below the loudest, least frames",
        settings,
        "validation WER",
        errors(splits.valid, *settings),
    )
    print("test WER", errors(splits.test, *settings))


if __name__ == "__main__":
    main()
