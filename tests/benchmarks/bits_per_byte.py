"""Bits for each byte of the test split of a language model's run, of n-grams on the same tokens, and of xz.

    python tests/benchmarks/bits_per_byte.py RUN      # of code/modules, or any run of NextToken on texts

Unlike the loss of a token, bits per byte compare tokenizers. Each document's first token, which no model predicts, is
counted as bytes and not as bits, for the run and the n-grams alike.
"""

from __future__ import annotations

import json
import lzma
import math
import sys
from pathlib import Path

from seqkit.classical.n_grams import n_grams
from seqkit.config import complete
from seqkit.runs.mixture import load
from seqkit.runs.prepare import data_module


def xz(text: bytes) -> int:
    """Bits of a text that xz has compressed, at its highest setting."""
    return 8 * len(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


def main(run: str) -> None:
    """Print bits per byte of the run, of n-grams, and of xz on the test split alone and behind the training split."""
    trained = load(Path(run), "cpu")
    data = data_module(complete(trained.config), trained.tokenizer, trained.objective)
    splits = data.splits()
    texts = [sample.raw.encode() for sample in splits.test]
    test = b"".join(texts)
    train = b"".join(sample.raw.encode() for sample in splits.train)
    encoded = [trained.tokenizer.encode(sample.raw) for sample in splits.test]
    num_predicted = sum(len(tokens.content) - 1 for tokens in encoded)
    bits_of_a_nat = num_predicted / math.log(2)
    metrics = json.loads((Path(run) / "summary.json").read_text(encoding="utf-8"))["metrics"]
    classical = n_grams(data, trained.objective)
    for name, bits in (
        (run, metrics["loss"] * bits_of_a_nat),
        (classical["name"], classical["metrics"]["loss"] * bits_of_a_nat),
        ("xz, the test split alone", xz(test)),
        ("xz, behind the training split", xz(train + test) - xz(train)),
    ):
        print(f"{bits / len(test):.3f}  {name}")


if __name__ == "__main__":
    main(sys.argv[1])
