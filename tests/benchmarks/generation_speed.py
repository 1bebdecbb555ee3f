"""Speed of cached greedy generation against Hugging Face: same sizes, one thread, interleaved rounds in one process.

OMP_NUM_THREADS=1 python tests/benchmarks/generation_speed.py --rounds 7

Processor time of the best round, as other work on the machine may disturb one; the ratio is the median over rounds.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
import transformers
from torch import nn

import seqkit
from seqkit.backbones import Transformer
from seqkit.generation import Sampling, stream
from seqkit.interfaces import TokenSpec
from seqkit.model import Model
from seqkit.nn.block import PreNormBlock
from seqkit.nn.mlp import MLP
from seqkit.nn.position.absolute import Learned
from seqkit.objectives import NextToken

VOCAB, CONTEXT, DEPTH, DIM, HEADS = 65, 256, 6, 384, 6
NUM_NEW = CONTEXT - 1


def ours() -> Callable[[int], None]:
    """GPT-2's composition: learned positions, pre-norm, tanh-approximated GELU, tied head."""
    block = partial(PreNormBlock, mlp=partial(MLP, activation=partial(nn.GELU, approximate="tanh")))
    backbone = Transformer(DIM, DEPTH, num_heads=HEADS, causal=True, block=block)
    position = partial(Learned, sizes=[CONTEXT])
    model = Model(TokenSpec(vocab_size=VOCAB), backbone, NextToken(tied=True), position=position).eval()

    def generate(b: int) -> None:
        steps = list(stream(model, [torch.tensor([3])] * b, NUM_NEW, sampling=Sampling(temperature=0)))
        assert len(steps) == NUM_NEW

    return generate


def hugging_face() -> Callable[[int], None]:
    """Its GPT-2 with the default settings (SDPA, dynamic cache)."""
    transformers.logging.set_verbosity_error()
    sizes = {"vocab_size": VOCAB, "n_positions": CONTEXT, "n_embd": DIM, "n_layer": DEPTH, "n_head": HEADS}
    config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval()

    def generate(b: int) -> None:
        ids, valid = torch.full((b, 1), 3), torch.ones(b, 1, dtype=torch.int64)
        generated = model.generate(
            ids, attention_mask=valid, max_new_tokens=NUM_NEW, do_sample=False, use_cache=True, pad_token_id=0
        )
        assert generated.shape == (b, CONTEXT)

    return generate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"seqkit {seqkit.__version__}, transformers {transformers.__version__}, torch {torch.__version__}, "
          f"Python {platform.python_version()}, 1 thread; {DEPTH} layers, d {DIM}, {NUM_NEW} new tokens")  # fmt: skip
    generators = {"seqkit": ours(), "Hugging Face": hugging_face()}
    for b in (1, 8):
        seconds: dict[str, list[float]] = {name: [] for name in generators}
        for generate in generators.values():
            generate(b)  # warm-up
        for _ in range(rounds):
            for name, generate in generators.items():
                started = time.process_time()
                generate(b)
                seconds[name].append(time.process_time() - started)
        for name, taken in seconds.items():
            print(f"batch {b}  {name:12} {NUM_NEW * b / min(taken):7.0f} tokens/s")
        ratios = [theirs / mine for mine, theirs in zip(seconds["seqkit"], seconds["Hugging Face"])]
        spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"batch {b}  seqkit is {statistics.median(ratios):.2f} times as fast {spread}")


if __name__ == "__main__":
    main()
