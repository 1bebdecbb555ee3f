"""Speed of every mixer beside the LSTM: training, generation and memory, with equal parameters.

    OMP_NUM_THREADS=1 python tests/benchmarks/mixer_speed.py --rounds 5
    … --only Mamba GatedDeltaNet --length 2048

A share is tokens a second over those of the backbone LSTM in the same round: above 1 it is faster than an LSTM. A
mixer is measured as the layers of a Transformer, each with its MLP; `Mamba` and `S4D` also as backbones of their own,
which have none. Generation is one more token of one sequence after a short and after a long text. Processor time of
one thread, float32, the median over interleaved rounds, with its range. Memory is that of what autograd saves, by
`saved_tensors_hooks`, each storage once.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from seqkit.backbones import LSTM, S4D, Mamba, Transformer
from seqkit.interfaces import Backbone, Embedded
from seqkit.interfaces.batch import Padding
from seqkit.registry import components, find

DEPTH = 2
NUM_HEADS = 4
WIDTHS = range(16, 513, 16)
SHORT = 64


def candidates() -> dict[str, Callable[[int], Backbone]]:
    """Causal backbones by name, each from its width."""

    def of_mixer(name: str) -> Callable[[int], Backbone]:
        mixer = find("mixer", name).load()
        return lambda dim: Transformer(dim, DEPTH, num_heads=NUM_HEADS, causal=True, mixer=mixer)

    return {
        "backbone LSTM": lambda dim: LSTM(dim, DEPTH, causal=True),
        "backbone Mamba": lambda dim: Mamba(dim, DEPTH, causal=True),
        "backbone S4D": lambda dim: S4D(dim, DEPTH, causal=True),
        **{name: of_mixer(name) for name in components("mixer")},
    }


def size(backbone: Backbone) -> int:
    return sum(p.numel() for p in backbone.parameters())


def nearest(build: Callable[[int], Backbone], target: int) -> Backbone:
    """The backbone whose number of parameters is nearest to the target."""
    with torch.device("meta"):
        sizes = {dim: size(build(dim)) for dim in WIDTHS}
    return build(min(sizes, key=lambda dim: abs(sizes[dim] - target)))


def embedded(b: int, n: int, dim: int) -> Embedded:
    """Tokens that are all real, which a batch says, too."""
    hidden = torch.randn(b, n, dim, requires_grad=True)
    tokens = Embedded(hidden, torch.zeros(b, n, 1), torch.ones(b, n, dtype=torch.bool))
    return tokens.know(Padding(False, b * n))


def train(backbone: Backbone, x: Embedded) -> None:
    backbone.zero_grad()
    backbone(x).square().mean().backward()


def seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def shares(names: list[str], target: int, b: int, n: int, rounds: int) -> None:
    """Print the share of each candidate in training."""
    backbones = {name: nearest(candidates()[name], target) for name in names}
    inputs = {name: embedded(b, n, backbone.dim) for name, backbone in backbones.items()}
    taken: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds + 1):
        for name, backbone in backbones.items():
            spent = seconds(lambda backbone=backbone, name=name: train(backbone, inputs[name]))
            if i:  # the first round warms up
                taken[name].append(spent)
    print(f"training, {b} × {n} tokens, about {target:,} parameters, share of the LSTM's speed")
    for name, backbone in backbones.items():
        each = [base / own for base, own in zip(taken[names[0]], taken[name])]
        share = f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"
        speed = b * n / statistics.median(taken[name])
        print(f"  {name}: {share}, {speed:,.0f} tokens/s, {size(backbone):,} parameters")


@torch.inference_mode()
def step_milliseconds(backbone: Backbone, n: int, num_steps: int = 50) -> float:
    """One more token of one sequence, after n."""
    cache = backbone.init_cache(n + num_steps)
    backbone(embedded(1, n, backbone.dim), cache)
    one = embedded(1, 1, backbone.dim)

    def steps() -> None:
        for _ in range(num_steps):
            backbone(one, cache)

    return 1000 * seconds(steps) / num_steps


def saved_bytes(backbone: Backbone, n: int) -> int:
    """Bytes of what a forward pass over n tokens keeps for the backward pass, weights left out."""
    known = {p.untyped_storage().data_ptr() for p in backbone.parameters()}
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        backbone(embedded(1, n, backbone.dim))
    return sum(kept.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(candidates()))
    parser.add_argument("--parameters", type=int, default=600_000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    names = list(candidates())
    if args.only:
        names = [names[0], *(name for name in names[1:] if name in args.only)]
    shares(names, args.parameters, args.batch, args.length, args.rounds)
    print("milliseconds of one more token after a short and a long text; MB kept for backward")
    for name in names:
        backbone = nearest(candidates()[name], args.parameters).eval()
        short = step_milliseconds(backbone, SHORT)
        long = step_milliseconds(backbone, 32 * SHORT)
        memory = ", ".join(
            f"{saved_bytes(backbone, n) / 1e6:.1f} at {n}" for n in (512, 1024, 2048)
        )
        print(f"  {name}: {short:.2f} after {SHORT}, {long:.2f} after {32 * SHORT}; MB: {memory}")


if __name__ == "__main__":
    main()
