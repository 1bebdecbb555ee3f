"""Speed of cached greedy generation against Hugging Face: same sizes, one thread, interleaved rounds in one process.

OMP_NUM_THREADS=1 python tests/benchmarks/generation_speed.py --rounds 7

Processor time of the best round, as other work on the machine may disturb one; a ratio is the median over rounds, of
the time that Hugging Face takes in float32 to that of the candidate. An LSTM of the same width and depth stands beside.
"""

from __future__ import annotations

import argparse
import copy
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
import transformers
from torch import nn

import seqkit
from seqkit.backbones import LSTM, Transformer
from seqkit.generation import Sampling, stream
from seqkit.interfaces import Backbone, TokenSpec
from seqkit.model import Model
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.position.absolute import Learned, NoPosition
from seqkit.objectives import NextToken

VOCAB, CONTEXT, DEPTH, DIM, HEADS = 65, 256, 6, 384, 6
NUM_NEW = CONTEXT - 1
REFERENCE = "Hugging Face"

Generate = Callable[[int], torch.Tensor]
"""Ids [b t] for a batch size."""


def transformer() -> Model:
    """GPT-2's composition: learned positions, pre-norm, tanh-approximated GELU, tied head."""
    block = partial(PreNormBlock, mlp=partial(MLP, activation=partial(nn.GELU, approximate="tanh")))
    return _model(Transformer(DIM, DEPTH, num_heads=HEADS, causal=True, block=block), partial(Learned, sizes=[CONTEXT]))


def _model(backbone: Backbone, position: Callable) -> Model:
    return Model(TokenSpec(vocab_size=VOCAB), backbone, NextToken(tied=True), position=position).eval()


def ours(model: Model) -> Generate:
    """Through `stream`, as a user does."""

    def generate(b: int) -> torch.Tensor:
        steps = list(stream(model, [torch.tensor([3])] * b, NUM_NEW, sampling=Sampling(temperature=0)))
        assert len(steps) == NUM_NEW
        return torch.stack(steps, dim=1)

    return generate


def unpacked(model: Model) -> Model:
    """The same model, whose modules run in each step: a hook that changes nothing forbids packing."""
    other = copy.deepcopy(model)
    other.register_forward_hook(lambda module, args, output: None)
    return other


def hugging_face(dtype: torch.dtype) -> Generate:
    """Its GPT-2 with the default settings (SDPA, dynamic cache)."""
    transformers.logging.set_verbosity_error()
    sizes = {"vocab_size": VOCAB, "n_positions": CONTEXT, "n_embd": DIM, "n_layer": DEPTH, "n_head": HEADS}
    config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval().to(dtype)

    def generate(b: int) -> torch.Tensor:
        ids, valid = torch.full((b, 1), 3), torch.ones(b, 1, dtype=torch.int64)
        generated = model.generate(
            ids, attention_mask=valid, max_new_tokens=NUM_NEW, do_sample=False, use_cache=True, pad_token_id=0
        )
        assert generated.shape == (b, CONTEXT)
        return generated

    return generate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"seqkit {seqkit.__version__}, transformers {transformers.__version__}, torch {torch.__version__}, "
          f"Python {platform.python_version()}, 1 thread; {DEPTH} layers, d {DIM}, {NUM_NEW} new tokens")  # fmt: skip
    model, lstm = transformer(), _model(LSTM(DIM, DEPTH, causal=True), NoPosition)
    candidates = {
        REFERENCE: hugging_face(torch.float32),
        "Hugging Face, bfloat16": hugging_face(torch.bfloat16),
        "seqkit": ours(model),
        "seqkit, not packed": ours(unpacked(model)),
        "seqkit, bfloat16": ours(copy.deepcopy(model).to(torch.bfloat16)),
        "seqkit, LSTM": ours(lstm),
    }
    for b in args.batch:
        seconds: dict[str, list[float]] = {name: [] for name in candidates}
        ids = {name: generate(b) for name, generate in candidates.items()}  # warm-up
        for _ in range(args.rounds):
            for name, generate in candidates.items():
                started = time.process_time()
                generate(b)
                seconds[name].append(time.process_time() - started)
        for name, taken in seconds.items():
            ratios = [theirs / mine for mine, theirs in zip(taken, seconds[REFERENCE])]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"batch {b:2}  {name:22} {NUM_NEW * b / min(taken):7.0f} tokens/s  {spread}", flush=True)
        same = ids["seqkit"].equal(ids["seqkit, not packed"])
        print(f"batch {b:2}  the same greedy ids packed and not packed: {same}", flush=True)


if __name__ == "__main__":
    main()
