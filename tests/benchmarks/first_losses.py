"""Initial weights and first losses of every recipe and preset, to compare two commits bit for bit.

    python tests/benchmarks/first_losses.py before.json               # in a checkout of one commit
    python tests/benchmarks/first_losses.py after.json                # in a checkout of the other
    python tests/benchmarks/first_losses.py --compare before.json after.json

A line is the SHA-256 of the initial weights and the losses of the first three training batches, in training mode, of
one recipe and preset. A data set that is not at hand is an error that stands in place of the losses.
"""

from __future__ import annotations

import argparse
import json
import sys
from hashlib import sha256
from pathlib import Path

NUM_BATCHES = 3


def measure(recipe: str, preset: str | None) -> dict[str, object]:
    """Hash of the initial weights, and the losses of the first batches."""
    import torch

    from seqkit.config import complete
    from seqkit.runs.prepare import prepare

    prepared = prepare(complete(recipe, preset))
    weights = sha256()
    for name, weight in prepared.model.state_dict().items():
        weights.update(name.encode() + weight.contiguous().numpy().tobytes())
    objective, losses = prepared.data.objective, []
    torch.manual_seed(0)
    loader = prepared.data.train_dataloader()
    for _, batch in zip(range(NUM_BATCHES), loader):
        output = objective.step(prepared.model, batch, training=True)
        losses.append((float(output.loss).hex(), int(output.count)))
    return {"weights": weights.hexdigest(), "losses": losses}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compare", action="store_true", help="compare two files")
    parser.add_argument("files", nargs="+", type=Path)
    args = parser.parse_args()
    if args.compare:
        before, after = (json.loads(file.read_text()) for file in args.files)
        unlike = [name for name in before if after.get(name) != before[name]]
        print(
            f"{len(before) - len(unlike)} of {len(before)} equal, {len(set(after) - set(before))} new"
        )
        for name in unlike:
            print(f"{name}\n  before {before[name]}\n  after  {after.get(name)}")
        sys.exit(bool(unlike))

    from seqkit.config import read_recipe, recipe_names

    found: dict[str, object] = {}
    for recipe in recipe_names():
        for preset in (None, *read_recipe(recipe)[1]):
            name = recipe if preset is None else f"{recipe} --preset {preset}"
            try:
                found[name] = measure(recipe, preset)
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"
            print(name, found[name], flush=True)
            args.files[0].write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
