"""Training speed on one core beside x-transformers, Hugging Face GPT-2 and `nn.TransformerEncoder`.

    OMP_NUM_THREADS=1 python tests/benchmarks/speed.py            # both sizes, 7 rounds

All four are causal language models of one shape with the same weights (copied; their outputs are compared before the
clock runs): learned positions, pre-norm, GELU, biases, a head of its own. A step is forward, cross-entropy, backward,
clipping to 1 and fused AdamW. Rounds are interleaved in one process, so that a busy machine slows all alike; the ratio
is taken within a round, and the median over rounds is printed. The clock is the processor time of
the process, which waiting for a busy core does not add to. Nothing is asserted: machines are noisy.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

from seqkit.backbones import Transformer
from seqkit.contract import TokenBatch, TokenSpec
from seqkit.layers.block import Block
from seqkit.layers.mlp import MLP
from seqkit.layers.position import Learned
from seqkit.model import Model
from seqkit.objectives import NextToken

VOCABULARY = 65
SIZES = {"small": (4, 4, 128, 64, 12), "large": (6, 6, 384, 256, 8)}
"""depth, heads, width, tokens, batch: those of docs/decisions.md."""


class Ours(nn.Module):
    """seqkit's model, called with ids alone."""

    def __init__(self, depth: int, heads: int, dim: int, n: int):
        super().__init__()
        block = partial(Block, mlp=partial(MLP, activation=partial(nn.GELU, approximate="tanh")))
        backbone = Transformer(dim, depth, num_heads=heads, causal=True, block=block)
        self.model = Model(
            TokenSpec(vocab_size=VOCABULARY), backbone, NextToken(bias=False), position=partial(Learned, sizes=[n])
        )

    def forward(self, ids: Tensor) -> Tensor:
        b, n = ids.shape
        positions = torch.arange(float(n)).expand(b, n)[..., None]
        return self.model(TokenBatch(ids, positions, torch.ones(b, n, dtype=torch.bool)))


class Torch(nn.Module):
    """`nn.TransformerEncoder` with a causal mask."""

    def __init__(self, depth: int, heads: int, dim: int, n: int):
        super().__init__()
        self.content, self.position = nn.Embedding(VOCABULARY, dim), nn.Embedding(n, dim)
        layer = nn.TransformerEncoderLayer(
            dim, heads, 4 * dim, 0.0, partial(F.gelu, approximate="tanh"), batch_first=True, norm_first=True
        )
        self.stack = nn.TransformerEncoder(layer, depth, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        n = ids.shape[1]
        later = nn.Transformer.generate_square_subsequent_mask(n)
        x = self.content(ids) + self.position.weight[:n]
        return self.head(self.stack(x, mask=later, is_causal=True))

    def load(self, ours: Ours) -> None:
        model = ours.model
        copy(self.content.weight, model.embedder.content.weight)
        copy(self.position.weight, model.embedder.position.tables[0])
        copy(self.head.weight, model.head.linear.weight)
        self.stack.norm.load_state_dict(model.backbone.norm.state_dict())
        for theirs, block in zip(self.stack.layers, model.backbone.blocks):
            copy(theirs.self_attn.in_proj_weight, block.attention.qkv.weight)
            copy(theirs.self_attn.in_proj_bias, block.attention.qkv.bias)
            theirs.self_attn.out_proj.load_state_dict(block.attention.out.state_dict())
            theirs.linear1.load_state_dict(block.mlp.widen.state_dict())
            theirs.linear2.load_state_dict(block.mlp.out.state_dict())
            theirs.norm1.load_state_dict(block.attention_norm.state_dict())
            theirs.norm2.load_state_dict(block.mlp_norm.state_dict())


class HuggingFace(nn.Module):
    """`GPT2LMHeadModel` with scaled_dot_product_attention."""

    def __init__(self, depth: int, heads: int, dim: int, n: int):
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        config = GPT2Config(
            vocab_size=VOCABULARY, n_positions=n, n_embd=dim, n_layer=depth, n_head=heads, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=False, use_cache=False, bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        config._attn_implementation = "sdpa"
        self.model = GPT2LMHeadModel(config)

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids).logits

    def load(self, ours: Ours) -> None:
        theirs, model = self.model, ours.model
        copy(theirs.transformer.wte.weight, model.embedder.content.weight)
        copy(theirs.transformer.wpe.weight, model.embedder.position.tables[0])
        copy(theirs.lm_head.weight, model.head.linear.weight)
        theirs.transformer.ln_f.load_state_dict(model.backbone.norm.state_dict())
        for layer, block in zip(theirs.transformer.h, model.backbone.blocks):
            layer.ln_1.load_state_dict(block.attention_norm.state_dict())
            layer.ln_2.load_state_dict(block.mlp_norm.state_dict())
            pairs = ((layer.attn.c_attn, block.attention.qkv), (layer.attn.c_proj, block.attention.out))
            for conv, linear in (*pairs, (layer.mlp.c_fc, block.mlp.widen), (layer.mlp.c_proj, block.mlp.out)):
                copy(conv.weight, linear.weight.T)
                copy(conv.bias, linear.bias)


class XTransformers(nn.Module):
    """x-transformers' `Decoder` with flash attention (SDPA)."""

    def __init__(self, depth: int, heads: int, dim: int, n: int):
        from x_transformers import Decoder, TransformerWrapper

        super().__init__()
        self.model = TransformerWrapper(
            num_tokens=VOCABULARY, max_seq_len=n, scaled_sinu_pos_emb=False, logits_dim=VOCABULARY,
            attn_layers=Decoder(
                dim=dim, depth=depth, heads=heads, attn_dim_head=dim // heads, attn_flash=True, ff_glu=False,
            ),
        )  # fmt: skip

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids)


def copy(theirs: Tensor, ours: Tensor) -> None:
    with torch.no_grad():
        theirs.copy_(ours)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, ids: Tensor) -> None:
    prediction = model(ids[:, :-1])
    loss = F.cross_entropy(prediction.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def measure(size: str, rounds: int, seconds: float, advance: Callable[[], None]) -> dict[str, list[float]]:
    """Tokens per second of each model in each round."""
    depth, heads, dim, n, b = SIZES[size]
    torch.manual_seed(0)
    ours = Ours(depth, heads, dim, n)
    models: dict[str, nn.Module] = {"seqkit": ours}
    ids = torch.randint(VOCABULARY, (b, n + 1))
    for name, build in (
        ("nn.TransformerEncoder", Torch),
        ("Hugging Face GPT-2", HuggingFace),
        ("x-transformers", XTransformers),
    ):
        models[name] = build(depth, heads, dim, n)
        if hasattr(models[name], "load"):
            models[name].load(ours)  # type: ignore[operator]
            with torch.no_grad():
                torch.testing.assert_close(models[name](ids[:, :-1]), ours(ids[:, :-1]), rtol=1e-4, atol=1e-4)
    optimizers = {name: torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True) for name, model in models.items()}
    for name, model in models.items():
        for _ in range(2):
            step(model, optimizers[name], ids)
    speeds: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(rounds):
        order = list(models)[turn % len(models) :] + list(models)[: turn % len(models)]
        for name in order:
            count, started = 0, time.process_time()
            while time.process_time() - started < seconds:
                step(models[name], optimizers[name], ids)
                count += 1
            speeds[name].append(count * b * n / (time.process_time() - started))
            advance()
    sizes = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    print(f"{size}: parameters {sizes}")
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), action="append", help="default: both")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each model in each round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    versions = ", ".join(f"{name} {version(name)}" for name in ("seqkit", "torch", "transformers", "x-transformers"))
    print(versions)
    for size in args.size or list(SIZES):
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(size, total=args.rounds * 4)
            speeds = measure(size, args.rounds, args.seconds, partial(progress.advance, task))
        table = Table("model", "tokens/s (median)", "seqkit / it: median", "lowest", "highest", title=size)
        for name, values in speeds.items():
            ratios = [ours / theirs for ours, theirs in zip(speeds["seqkit"], values)]
            table.add_row(
                name,
                f"{statistics.median(values):,.0f}",
                f"{statistics.median(ratios):.3f}",
                f"{min(ratios):.3f}",
                f"{max(ratios):.3f}",
            )
        Console().print(table)


if __name__ == "__main__":
    main()
