"""What padding changes in models that carry a state, in ours and in transformers' own.

    OMP_NUM_THREADS=1 python tests/benchmarks/hybrid_padding.py             # all types of tests/pretrained
    OMP_NUM_THREADS=1 python tests/benchmarks/hybrid_padding.py lfm mamba   # those whose name holds one of the words

Small models with random weights read a row of nine tokens with four columns of padding. A figure is the largest
difference of a logit from the row by itself, divided by the standard deviation of its logits: of the row's own tokens,
and after the slash of a further token from the cache. Ours are in float64, theirs in float32; 0.00 stands for less
than 0.005.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "pretrained"), str(HERE.parent / "parity")]

from foreign_models import DECODERS, OF_STATES, saved  # noqa: E402  the folder is found above
from padded_rows import PADDED, alone, by_ours, by_theirs  # noqa: E402
from test_hybrids import IDS, LAST  # noqa: E402

import seqkit  # noqa: E402


def figures(compute, model):
    """A cell for each kind of padding."""
    right, next_right = alone(model, IDS, LAST)
    cells = []
    for runs in PADDED.values():
        logits, after = compute(model, IDS, runs, LAST)
        shares = (logits - right).abs().max(), (after - next_right).abs().max()
        cells.append(" / ".join(f"{float(share / right.std()):.2f}" for share in shares))
    return cells


@torch.no_grad()
def main(words):
    print("| type |", " | ".join(f"{where}, transformers" for where in PADDED), "| all, seqkit |")
    print("|---" * (len(PADDED) + 2) + "|")
    # transformers keeps the states of RecurrentGemma in its modules, and returns none
    for name in [name for name in OF_STATES if name != "RecurrentGemma"]:
        if words and not any(word in name.lower() for word in words):
            continue
        with tempfile.TemporaryDirectory() as place:
            theirs = saved(Path(place), name, DECODERS[name], "ForCausalLM", std=0.4)
            ours = seqkit.load(place).model.double().eval()
            found = {*figures(by_ours, ours)}
            print(f"| {name} | {' | '.join(figures(by_theirs, theirs))} | {', '.join(found)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
