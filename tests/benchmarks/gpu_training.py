"""Training speed of `seqkit fit` on one GPU beside a bare compiled loop and a plain torch model, compiled.

    python tests/benchmarks/gpu_training.py                      # all shapes
    python tests/benchmarks/gpu_training.py --only gpt2 --words "--trainer.compile false"

`fit` is the whole of `seqkit fit` between two optimizer steps, with its default settings, on random data: the loader,
Lightning's loop and hooks, the guard, metrics.csv. The bare loop computes loss, gradient, clipping and AdamW of a copy
of the model, compiled whole, on one batch that lies on the device. The peer is a plain torch model of the same shape in
the same loop (nanoGPT's, written here; timm's ViT), in bfloat16 under autocast. All take turns inside a callback of the
run, and the ratio is taken within a round; a round's median, lowest and highest are printed. MFU: FLOPs of the matrix
products of a step (`torch.utils.flop_counter`, without recomputation) over the peak of bfloat16 products without
sparsity, where the card is known.
"""

from __future__ import annotations

import argparse
import copy
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange
from pytorch_lightning import Callback
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seqkit.config import complete
from seqkit.data.sample import Sample, Splits
from seqkit.data.source import DataSource
from seqkit.registry import register
from seqkit.runs.run import run
from seqkit.training.module import training_loss
from seqkit.training.step_graph import StepGraph

PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
"""FLOP/s of dense bfloat16 products, from NVIDIA's data sheets."""
WARM_UP = 12
PLAIN_NORM = {"type": "LayerNorm", "bias": False}
LANGUAGE = {
    "model": {
        "objective": {"type": "NextToken", "tied": True},
        "backbone": {
            "type": "Transformer", "causal": True, "norm": PLAIN_NORM,
            "block": {
                "norm": PLAIN_NORM, "attention": {"bias": False},
                "mlp": {"activation": {"type": "GELU", "approximate": "tanh"}, "bias": False},
            },
        },
    },
    "optimizer": {"type": "AdamW", "lr": 6e-4, "betas": [0.9, 0.95]},
}  # fmt: skip
SHAPES = {"gpt2": (12, 12, 768, 50304, 16, 1024), "char": (6, 6, 384, 65, 64, 256)}
"""depth, heads, width, vocabulary, batch, tokens."""
IMAGES, CLASSES = 256, 1000


class DoneError(Exception):
    """All rounds are measured."""


@register("data_source", "random-ids")
class RandomIds(DataSource):
    """One long sequence of random ids."""

    def __init__(self, vocab_size: int, length: int):
        self.vocab_size, self.length = vocab_size, length

    def splits(self) -> Splits:
        ids = torch.randint(
            self.vocab_size, (self.length,), generator=torch.Generator().manual_seed(0)
        )
        return Splits(train=[Sample(ids)], test=[Sample(ids[: self.length // 10])])


@register("data_source", "random-images")
class RandomImages(DataSource):
    """Random images of 224 × 224 pixels, each with one of CLASSES classes."""

    def __init__(self, number: int):
        self.number = number

    def splits(self) -> Splits:
        images = torch.rand(self.number, 3, 224, 224, generator=torch.Generator().manual_seed(0))
        samples = [Sample(image, i % CLASSES) for i, image in enumerate(images)]
        return Splits(train=samples, test=samples[:10])


class Block(nn.Module):
    """nanoGPT's."""

    def __init__(self, dim: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.norm1, self.norm2 = nn.LayerNorm(dim, bias=False), nn.LayerNorm(dim, bias=False)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = (
            nn.Linear(dim, 4 * dim, bias=False),
            nn.Linear(4 * dim, dim, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = rearrange(
            self.qkv(self.norm1(x)), "b n (three h d) -> three b h n d", three=3, h=self.heads
        )
        dropped = self.dropout.p if self.training else 0.0
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropped)
        x = x + self.dropout(self.out(rearrange(attended, "b h n d -> b n (h d)")))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class Plain(nn.Module):
    """nanoGPT: learned positions, pre-norm, tied head, no biases; the loss of ids [b n + 1]."""

    def __init__(
        self,
        depth: int,
        heads: int,
        dim: int,
        vocab_size: int,
        _: int,
        n: int,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.content, self.position = nn.Embedding(vocab_size, dim), nn.Embedding(n, dim)
        self.blocks = nn.Sequential(*(Block(dim, heads, dropout) for _ in range(depth)))
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(dim, bias=False)
        nn.init.normal_(self.content.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.dropout(self.content(ids[:, :-1]) + self.position.weight)
        logits = self.norm(self.blocks(x)) @ self.content.weight.T
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def language(name: str) -> tuple[dict[str, Any], Callable[[], tuple[nn.Module, list[Tensor]]], int]:
    """Recipe, peer with its batch, and tokens of a step."""
    shape = SHAPES[name]
    depth, heads, dim, vocab_size, b, n = shape
    recipe = copy.deepcopy(LANGUAGE) | {
        "recipe": f"benchmark/{name}",
        "data": {"source": {"type": "random-ids", "vocab_size": vocab_size, "length": 40 * b * n}, "batch_size": b,
                 "window": n, "valid_fraction": 0},
        "tokenizer": {"type": "Ids", "vocab_size": vocab_size},
    }  # fmt: skip
    recipe["model"]["backbone"] |= {"dim": dim, "depth": depth, "num_heads": heads}
    recipe["model"]["position"] = {"type": "Learned", "sizes": [n]}
    return recipe, lambda: (Plain(*shape), [torch.randint(vocab_size, (b, n + 1))]), b * n


def images() -> tuple[dict[str, Any], Callable[[], tuple[nn.Module, list[Tensor]]], int]:
    """Recipe of ViT-S/16, peer with its batch, and images of a step."""
    recipe = {
        "recipe": "benchmark/vit",
        "data": {"source": {"type": "random-images", "number": 4 * IMAGES}, "batch_size": IMAGES, "valid_fraction": 0},
        "tokenizer": {"type": "Patches", "patch": 16, "channels": 3},
        "model": {
            "objective": {"type": "Classify"}, "position": {"type": "Learned", "sizes": [14, 14]},
            "backbone": {"type": "Transformer", "dim": 384, "depth": 12, "num_heads": 6},
        },
        "optimizer": {"type": "AdamW", "lr": 1e-3},
    }  # fmt: skip

    def peer() -> tuple[nn.Module, list[Tensor]]:
        import timm

        model = timm.create_model(
            "vit_small_patch16_224", num_classes=CLASSES, class_token=False, global_pool="avg"
        )
        return WithLoss(model), [torch.rand(IMAGES, 3, 224, 224), torch.randint(CLASSES, (IMAGES,))]

    return recipe, peer, IMAGES


class WithLoss(nn.Module):
    """A classifier and its loss."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x), label)


def loop(model: nn.Module, loss: Callable[[], Tensor]) -> Iterator[None]:
    """A bare training, one step each time."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    while True:
        with torch.autocast("cuda", torch.bfloat16):
            value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield


@register("callback")
class GpuTurns(Callback):
    """Lets `fit` and the other loops take turns. seconds: of a step of each, by name, one a round."""

    seconds: ClassVar[dict[str, list[float]]] = {}
    flops: ClassVar[dict[str, float]] = {}
    peer: ClassVar[Callable[[], tuple[nn.Module, list[Tensor]]]]
    graph: ClassVar[StepGraph]

    def __init__(self, rounds: int, steps: int):
        self.rounds, self.steps, self.count = rounds, steps, -WARM_UP
        self.others: dict[str, Iterator[None]] = {}

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == 0 and not self.others:
            self._build(pl_module, batch)
        self.count += 1
        if self.count < 0 or self.count % self.steps:
            return
        torch.cuda.synchronize()
        if self.count:
            self.seconds.setdefault("fit", []).append(
                (time.perf_counter() - self.started) / self.steps
            )
            for name, other in self.others.items():
                started = time.perf_counter()
                for _ in range(self.steps):
                    next(other)
                torch.cuda.synchronize()
                self.seconds.setdefault(name, []).append(
                    (time.perf_counter() - started) / self.steps
                )
        if self.count == self.rounds * self.steps:
            type(self).graph = next(one for one in trainer.callbacks if isinstance(one, StepGraph))
            raise DoneError
        self.started = time.perf_counter()

    def _build(self, module: Any, batch: Any) -> None:
        task, batch = copy.deepcopy(module.tasks[""]), batch[:2]
        compiled = torch.compile(lambda: training_loss(task, batch)[:2])

        def bare() -> Tensor:
            loss, count = compiled()
            return loss / count

        theirs, given = type(self).peer()
        theirs, given = theirs.cuda(), [x.cuda() for x in given]
        with FlopCounterMode(display=False) as counter, torch.autocast("cuda", torch.bfloat16):
            training_loss(task, batch)[0].backward()
        self.flops["step"] = counter.get_total_flops()
        whole = torch.compile(theirs)
        self.others = {"bare": loop(task.model, bare), "peer": loop(theirs, lambda: whole(*given))}
        for other in self.others.values():
            for _ in range(WARM_UP):
                next(other)


def measure(name: str, rounds: int, words: list[str]) -> None:
    recipe, peer, tokens = images() if name == "vit" else language(name)
    GpuTurns.seconds.clear()
    GpuTurns.peer = peer
    torch._dynamo.reset()
    trainer = {
        "max_steps": 100_000,
        "gradient_clip_val": 1.0,
        "enable_progress_bar": False,
        "weights": "last",
    }
    trainer["callbacks"] = [{"type": "GpuTurns", "rounds": rounds, "steps": 20}]
    with tempfile.TemporaryDirectory() as folder, suppress(DoneError):
        run(complete(recipe | {"trainer": trainer}, None, words), Path(folder) / "run")
    peak = next(
        (peak for card, peak in PEAKS.items() if card in torch.cuda.get_device_name()), None
    )
    for who, seconds in GpuTurns.seconds.items():
        middle = statistics.median(seconds)
        ratios = sorted(theirs / own for theirs, own in zip(GpuTurns.seconds["peer"], seconds))
        used = f", MFU {GpuTurns.flops['step'] / middle / peak:.3f}" if peak else ""
        print(
            f"{name} {who:5} {1000 * middle:7.2f} ms a step, {tokens / middle:11,.0f} a second, to the peer "
            f"{statistics.median(ratios):.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f}){used}",
            flush=True,
        )
    print(f"{name} fit replayed {GpuTurns.graph.num_replayed} steps as CUDA graphs", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", choices=[*SHAPES, "vit"])
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--words", default="", help="more settings of `seqkit fit`, in one string")
    args = options.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # what `fit` chose
    for name in [args.only] if args.only else [*SHAPES, "vit"]:
        measure(name, args.rounds, args.words.split())


if __name__ == "__main__":
    main()
