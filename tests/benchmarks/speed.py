"""Training speed on one core against x-transformers, Hugging Face GPT-2 and `nn.TransformerEncoder`.

    OMP_NUM_THREADS=1 python tests/benchmarks/speed.py            # both sizes, 7 rounds

Causal language models: learned positions, pre-norm, GELU, an untied head. Each peer is compared with a model of ours of
the same composition and weights (copied; the outputs are compared before the measurement): GPT-2's, with biases and
tanh-approximated GELU, or x-transformers' default, with neither. A step is forward, cross-entropy, backward, clipping
to 1 and fused AdamW. Rounds are interleaved in one process, so that a busy machine slows all alike; the ratio is taken
within a round, and the median over rounds is printed. The clock is the processor time of the process, which does not
count waiting for a busy core. No speed is asserted: machines are noisy.
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
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.model import Model
from seqkit.nn.attention.multi_head import MultiHeadAttention
from seqkit.nn.block import MLP, PreNormBlock
from seqkit.nn.position.absolute import Learned
from seqkit.objectives import NextToken

VOCAB = 65
SIZES = {"small": (4, 4, 128, 64, 12), "large": (6, 6, 384, 256, 8)}
"""depth, heads, width, tokens, batch: those of docs/decisions.md."""


class Ours(nn.Module):
    """seqkit's model, called with ids alone. plain: True: no biases in attention and norms, and exact GELU."""

    def __init__(self, depth: int, heads: int, dim: int, n: int, *, plain: bool = False):
        super().__init__()
        norm = partial(nn.LayerNorm, bias=not plain)
        mlp = partial(MLP, activation=partial(nn.GELU, approximate="none" if plain else "tanh"))
        block = partial(
            PreNormBlock, attention=partial(MultiHeadAttention, bias=not plain), mlp=mlp, norm=norm
        )
        backbone = Transformer(dim, depth, num_heads=heads, causal=True, block=block, norm=norm)
        self.model = Model(
            TokenSpec(vocab_size=VOCAB),
            backbone,
            NextToken(bias=False),
            position=partial(Learned, sizes=[n]),
        )

    def forward(self, ids: Tensor) -> Tensor:
        b, n = ids.shape
        positions = torch.arange(float(n)).expand(b, n)[..., None]
        return self.model(TokenBatch(ids, positions, torch.ones(b, n, dtype=torch.bool)))


class Torch(nn.Module):
    """`nn.TransformerEncoder` with a causal mask."""

    def __init__(self, depth: int, heads: int, dim: int, n: int):
        super().__init__()
        self.content, self.position = nn.Embedding(VOCAB, dim), nn.Embedding(n, dim)
        layer = nn.TransformerEncoderLayer(
            dim,
            heads,
            4 * dim,
            0.0,
            partial(F.gelu, approximate="tanh"),
            batch_first=True,
            norm_first=True,
        )
        self.stack = nn.TransformerEncoder(
            layer, depth, nn.LayerNorm(dim), enable_nested_tensor=False
        )
        self.head = nn.Linear(dim, VOCAB, bias=False)

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
            copy(theirs.self_attn.in_proj_weight, block.attention.qkv_proj.weight)
            copy(theirs.self_attn.in_proj_bias, block.attention.qkv_proj.bias)
            theirs.self_attn.out_proj.load_state_dict(block.attention.out_proj.state_dict())
            theirs.linear1.load_state_dict(block.mlp.up_proj.state_dict())
            theirs.linear2.load_state_dict(block.mlp.down_proj.state_dict())
            theirs.norm1.load_state_dict(block.attention_norm.state_dict())
            theirs.norm2.load_state_dict(block.mlp_norm.state_dict())


class HuggingFace(nn.Module):
    """`GPT2LMHeadModel` with scaled_dot_product_attention."""

    def __init__(self, depth: int, heads: int, dim: int, n: int):
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        config = GPT2Config(
            vocab_size=VOCAB, n_positions=n, n_embd=dim, n_layer=depth, n_head=heads, resid_pdrop=0.0,
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
            pairs = (
                (layer.attn.c_attn, block.attention.qkv_proj),
                (layer.attn.c_proj, block.attention.out_proj),
            )
            for conv, linear in (
                *pairs,
                (layer.mlp.c_fc, block.mlp.up_proj),
                (layer.mlp.c_proj, block.mlp.down_proj),
            ):
                copy(conv.weight, linear.weight.T)
                copy(conv.bias, linear.bias)


class XTransformers(nn.Module):
    """x-transformers' `Decoder` with flash attention (SDPA)."""

    def __init__(self, depth: int, heads: int, dim: int, n: int):
        from x_transformers import Decoder, TransformerWrapper

        super().__init__()
        self.model = TransformerWrapper(
            num_tokens=VOCAB, max_seq_len=n, scaled_sinu_pos_emb=False, logits_dim=VOCAB,
            attn_layers=Decoder(
                dim=dim, depth=depth, heads=heads, attn_dim_head=dim // heads, attn_flash=True, ff_glu=False,
            ),
        )  # fmt: skip

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids)

    def load(self, ours: Ours) -> None:
        theirs, model = self.model, ours.model
        copy(theirs.token_emb.emb.weight, model.embedder.content.weight)
        copy(theirs.pos_emb.emb.weight, model.embedder.position.tables[0] / theirs.pos_emb.scale)
        copy(theirs.to_logits.weight, model.head.linear.weight)
        norms = [(theirs.attn_layers.final_norm, model.backbone.norm)]
        layers = list(theirs.attn_layers.layers)
        for attention_layer, mlp_layer, block in zip(
            layers[::2], layers[1::2], model.backbone.blocks
        ):
            norms += [
                (attention_layer[0][0], block.attention_norm),
                (mlp_layer[0][0], block.mlp_norm),
            ]
            attention, mlp = attention_layer[1], mlp_layer[1].ff
            qkv = block.attention.qkv_proj.weight.chunk(3)
            for linear, weight in zip((attention.to_q, attention.to_k, attention.to_v), qkv):
                copy(linear.weight, weight)
            copy(attention.to_out.weight, block.attention.out_proj.weight)
            mlp[0][0].load_state_dict(block.mlp.up_proj.state_dict())
            mlp[2].load_state_dict(block.mlp.down_proj.state_dict())
        for norm, own in norms:
            copy(norm.gamma, own.weight - float(norm.unit_offset))


GPT2, PLAIN = "seqkit, as GPT-2", "seqkit, as x-transformers"
PEERS = {
    "nn.TransformerEncoder": Torch,
    "Hugging Face GPT-2": HuggingFace,
    "x-transformers": XTransformers,
}
MATCHED = {"nn.TransformerEncoder": GPT2, "Hugging Face GPT-2": GPT2, "x-transformers": PLAIN}
"""Our model of the same composition."""


def copy(theirs: Tensor, ours: Tensor) -> None:
    with torch.no_grad():
        theirs.copy_(ours)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, ids: Tensor) -> None:
    prediction = model(ids[:, :-1])
    loss = F.cross_entropy(prediction.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def measure(
    size: str, rounds: int, seconds: float, advance: Callable[[], None]
) -> dict[str, list[float]]:
    """Tokens per second of each model in each round."""
    depth, heads, dim, n, b = SIZES[size]
    torch.manual_seed(0)
    ids = torch.randint(VOCAB, (b, n + 1))
    models: dict[str, nn.Module] = {}
    for name, peer in PEERS.items():
        mine = MATCHED[name]
        if mine not in models:
            models[mine] = Ours(depth, heads, dim, n, plain=mine == PLAIN)
        models[name] = peer(depth, heads, dim, n)
        models[name].load(models[mine])  # type: ignore[operator]
        with torch.no_grad():
            torch.testing.assert_close(
                models[name](ids[:, :-1]), models[mine](ids[:, :-1]), rtol=1e-4, atol=1e-4
            )
    optimizers = {
        name: torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        for name, model in models.items()
    }
    for name, model in models.items():
        for _ in range(2):
            step(model, optimizers[name], ids)
    speeds: dict[str, list[float]] = {name: [] for name in models}
    for i in range(rounds):
        order = list(models)[i % len(models) :] + list(models)[: i % len(models)]
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=list(SIZES), action="append", help="default: both")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each model in each round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("seqkit", "torch", "transformers", "x-transformers")
    )
    print(versions)
    for size in args.size or list(SIZES):
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(size, total=args.rounds * 5)
            speeds = measure(size, args.rounds, args.seconds, partial(progress.advance, task))
        table = Table(
            "model",
            "tokens/s (median)",
            "ours / it: median",
            "lowest",
            "highest",
            title=size,
            min_width=90,
        )
        for name, values in speeds.items():
            row = [name, f"{statistics.median(values):,.0f}"]
            if name in MATCHED:
                ratios = [ours / theirs for ours, theirs in zip(speeds[MATCHED[name]], values)]
                row += [
                    f"{figure:.3f}"
                    for figure in (statistics.median(ratios), min(ratios), max(ratios))
                ]
            table.add_row(*row)
        Console().print(table)


if __name__ == "__main__":
    main()
