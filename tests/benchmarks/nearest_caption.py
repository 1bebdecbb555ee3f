"""A rival of `multimodal/caption`: the sentence of the nearest training image.

    python -m tests.benchmarks.nearest_caption

The share of test images whose sentence is wrong in a word, where each gets the sentence of the training image at the
smallest squared distance of pixels. The splits are the recipe's; training and validation images are both searched.
"""

from __future__ import annotations

import torch

from seqkit.recipes.multimodal.arrangements import Arrangements


def main() -> None:
    splits = Arrangements().splits()
    known = [sample.raw for part in (splits.train, splits.valid) for sample in part]
    asked = [sample.raw for sample in splits.test]
    near = torch.cdist(pixels(asked), pixels(known)).argmin(dim=1).tolist()
    wrong = [one["text"] != known[place]["text"] for one, place in zip(asked, near)]
    print(f"{100 * sum(wrong) / len(wrong):.1f} % of {len(wrong):,} sentences are wrong")


def pixels(raws: list[dict]) -> torch.Tensor:
    """Images as rows."""
    return torch.stack([raw["image"].reshape(-1) for raw in raws])


if __name__ == "__main__":
    main()
