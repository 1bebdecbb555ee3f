"""How often an image is nearer to its sentence than to the sentence whose relations are exchanged.

    python tests/benchmarks/swapped_captions.py RUN …    # runs of multimodal/clip on `arrangements`

Both sentences have the same words in another order, so a bag of words is right in half of the cases: "one is above
four , four is left of seven" beside "one is left of four , four is above seven". Ties count half. After ARO
(Yuksekgonul et al. 2023, arXiv 2210.01936), whose sentences exchange what stands around a relation.
"""

from __future__ import annotations

import re
import sys

import torch

import seqkit
from seqkit.recipes.multimodal.arrangements import Arrangements


def exchanged(sentence: str) -> str:
    """The sentence with its two relations exchanged; the same one where they are equal."""
    return re.sub(
        r"(\w+) is (.+) (\w+) , (\w+) is (.+) (\w+)", r"\1 is \5 \3 , \4 is \2 \6", sentence
    )


def main(runs: list[str]) -> None:
    """Print for each run the share of test images that are nearer to their own sentence, in percent."""
    raws = [sample.raw for sample in Arrangements().splits().test]
    raws = [raw for raw in raws if exchanged(raw["text"]) != raw["text"]]
    for run in runs:
        trained = seqkit.load(run, "cpu")
        own, other = (
            torch.tensor([found["image, text"] for found in trained.predict(pairs, batch_size=64)])
            for pairs in (raws, [{**raw, "text": exchanged(raw["text"])} for raw in raws])
        )
        right = (own > other).double() + (own == other).double() / 2
        print(f"{100 * right.mean():.1f} % of {len(raws)}  {run}")


if __name__ == "__main__":
    main(sys.argv[1:])
