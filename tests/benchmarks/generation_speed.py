"""Speed of cached generation against Hugging Face: same sizes, interleaved rounds in one process.

OMP_NUM_THREADS=1 python tests/benchmarks/generation_speed.py --rounds 7
python tests/benchmarks/generation_speed.py --device cuda --batch 1 8 64

On a CPU, one thread: processor time of the best round, as other work on the machine may disturb one; an LSTM of the
same width and depth stands beside. On CUDA, GPT-2's 124 million parameters in bfloat16: seconds of the median round, of
`stream` and of Hugging Face with a static cache, which it compiles. A ratio is the median over rounds, of the time that
Hugging Face or seqkit takes for greedy decoding to that of the candidate.
"""

from __future__ import annotations

import argparse
import copy
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
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

GREEDY = Sampling(temperature=0)

Generate = Callable[[int], torch.Tensor]
"""Ids [b t] for a batch size."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the models, and of what they generate."""

    vocab: int
    context: int
    depth: int
    dim: int
    num_heads: int
    num_prompt: int
    num_new: int


CPU = Sizes(65, 256, 6, 384, 6, 1, 255)
CUDA = Sizes(50304, 1024, 12, 768, 12, 16, 256)


def transformer(sizes: Sizes) -> Model:
    """GPT-2's composition: learned positions, pre-norm, tanh-approximated GELU, tied head."""
    block = partial(PreNormBlock, mlp=partial(MLP, activation=partial(nn.GELU, approximate="tanh")))
    backbone = Transformer(
        sizes.dim, sizes.depth, num_heads=sizes.num_heads, causal=True, block=block
    )
    return _model(sizes, backbone, partial(Learned, sizes=[sizes.context]))


def _model(sizes: Sizes, backbone: Backbone, position: Callable) -> Model:
    return Model(
        TokenSpec(vocab_size=sizes.vocab), backbone, NextToken(tied=True), position=position
    ).eval()


def ours(sizes: Sizes, model: Model, sampling: Sampling = GREEDY) -> Generate:
    """Through `stream`, as a user does."""

    def generate(b: int) -> torch.Tensor:
        steps = list(
            stream(
                model, [torch.full((sizes.num_prompt,), 3)] * b, sizes.num_new, sampling=sampling
            )
        )
        assert len(steps) == sizes.num_new
        return torch.stack(steps, dim=1)

    return generate


def unpacked(model: Model) -> Model:
    """The same model, whose modules run in each step: a hook that changes nothing forbids packing."""
    other = copy.deepcopy(model)
    other.register_forward_hook(lambda module, args, output: None)
    return other


def hugging_face(sizes: Sizes, dtype: torch.dtype, device: str = "cpu") -> nn.Module:
    """Its GPT-2, with SDPA."""
    transformers.logging.set_verbosity_error()
    given = {
        "vocab_size": sizes.vocab,
        "n_positions": sizes.context,
        "n_embd": sizes.dim,
        "n_layer": sizes.depth,
    }
    config = transformers.GPT2Config(
        **given, n_head=sizes.num_heads, bos_token_id=None, eos_token_id=None
    )
    return transformers.GPT2LMHeadModel(config).eval().to(device, dtype)


def theirs(sizes: Sizes, model: nn.Module, **settings: object) -> Generate:
    """Through `generate`, greedily and with its dynamic cache unless `settings` say otherwise."""
    settings = {"do_sample": False, "use_cache": True, "pad_token_id": 0, **settings}

    def generate(b: int) -> torch.Tensor:
        ids = torch.full((b, sizes.num_prompt), 3, device=model.device)
        generated = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=sizes.num_new, **settings
        )
        assert generated.shape == (b, sizes.num_prompt + sizes.num_new)
        return generated[:, sizes.num_prompt :]

    return generate


def candidates_on_cpu() -> dict[str, Generate]:
    """Names and what they generate; the first one is the reference."""
    model, lstm = transformer(CPU), _model(CPU, LSTM(CPU.dim, CPU.depth, causal=True), NoPosition)
    return {
        "Hugging Face": theirs(CPU, hugging_face(CPU, torch.float32)),
        "Hugging Face, bfloat16": theirs(CPU, hugging_face(CPU, torch.bfloat16)),
        "seqkit": ours(CPU, model),
        "seqkit, not packed": ours(CPU, unpacked(model)),
        "seqkit, bfloat16": ours(CPU, copy.deepcopy(model).to(torch.bfloat16)),
        "seqkit, LSTM": ours(CPU, lstm),
    }


def candidates_on_cuda() -> dict[str, Generate]:
    """The same; Hugging Face compiles the step of a static cache by itself."""
    model, other = (
        transformer(CUDA).to("cuda", torch.bfloat16),
        hugging_face(CUDA, torch.bfloat16, "cuda"),
    )
    return {
        "Hugging Face": theirs(CUDA, other, cache_implementation="static"),
        "Hugging Face, sampling": theirs(
            CUDA, other, cache_implementation="static", do_sample=True, top_k=0
        ),
        "seqkit": ours(CUDA, model),
        "seqkit, sampling": ours(CUDA, model, Sampling()),
        "seqkit, top_k 50": ours(CUDA, model, Sampling(top_k=50)),
        "seqkit, top_p 0.9": ours(CUDA, model, Sampling(top_p=0.9)),
        "seqkit, not packed": ours(CUDA, unpacked(model)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="candidates to run, in place of all"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    is_cpu = args.device == "cpu"
    sizes, where = (CPU, "1 thread") if is_cpu else (CUDA, torch.cuda.get_device_name())
    print(f"seqkit {seqkit.__version__}, transformers {transformers.__version__}, torch {torch.__version__}, "
          f"Python {platform.python_version()}, {where}; {sizes}")  # fmt: skip
    candidates = candidates_on_cpu() if is_cpu else candidates_on_cuda()
    candidates = {name: candidates[name] for name in args.only or candidates}
    now = time.process_time if is_cpu else time.perf_counter
    for b in args.batch:
        seconds: dict[str, list[float]] = {name: [] for name in candidates}
        ids = {}
        for name, generate in candidates.items():  # warm-up
            started = time.perf_counter()
            ids[name] = generate(b).cpu()
            print(
                f"batch {b:2}  {name:22} {time.perf_counter() - started:5.1f} s the first time",
                flush=True,
            )
        for _ in range(args.rounds):
            for name, generate in candidates.items():
                started = now()
                generate(b).cpu()
                seconds[name].append(now() - started)
        for name, taken in seconds.items():
            rate = sizes.num_new * b / (min(taken) if is_cpu else statistics.median(taken))
            references = [x for x in ("Hugging Face", "seqkit") if x in seconds]
            said = ", ".join(f"{_ratio(seconds[other], taken)} of {other}" for other in references)
            print(f"batch {b:2}  {name:22} {rate:7.0f} tokens/s  {said}", flush=True)
        if {"seqkit", "seqkit, not packed"} <= ids.keys():
            same = (ids["seqkit"] == ids["seqkit, not packed"]).float().mean()
            print(
                f"batch {b:2}  greedy ids that are the same packed and not packed: {same:.3f}",
                flush=True,
            )


def _ratio(reference: list[float], taken: list[float]) -> str:
    """Median and range of how many times as fast as the reference."""
    ratios = [theirs / mine for mine, theirs in zip(taken, reference)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
