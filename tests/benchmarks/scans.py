"""Time of the shared scans, forward and backward, beside loops over tokens and torch's LSTM; and memory by length.

    OMP_NUM_THREADS=1 python tests/benchmarks/scans.py                   # two minutes
    OMP_NUM_THREADS=1 python tests/benchmarks/scans.py --rounds 9 --lengths 2048 --heads 16

    chunked_scan   beside the same recurrence written token by token, with torch's autograd through it
    memory         of a chunked scan and its backward pass above that of its inputs, at three lengths
    linear_scan    beside torch's LSTM of as many channels, which reads and gives as many numbers

Processor time of one thread in float32. A ratio is the median over interleaved rounds, with its range; above 1 the scan
is faster.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from seqkit.nn.chunked_scan import chunked_scan
from seqkit.nn.linear_scan import linear_scan

LENGTHS = (1024, 2048, 4096)


def tokens(h: int, n: int, d: int, delta: bool) -> list[Tensor]:
    """q, k, v, log_decay and, with `delta`, beta of one example; d keys and values."""
    q, k, v = torch.randn(3, 1, h, n, d)
    log_decay = -0.1 * torch.rand(1, h, n)
    inputs = [q, nn.functional.normalize(k, dim=-1), v, log_decay]
    if delta:
        inputs.append(torch.rand(1, h, n))
    return [t.requires_grad_() for t in inputs]


def by_chunks(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, *beta: Tensor) -> Tensor:
    return chunked_scan(q, k, v, log_decay, None, *beta)[0]


def by_token(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, *beta: Tensor) -> Tensor:
    """A step is a few operations of torch; what can be done for all tokens at once is."""
    state = v.new_zeros(*k.shape[:2], k.shape[3], v.shape[3])
    decays = log_decay.exp()[..., None, None]
    factors = beta[0][..., None, None].unbind(2) if beta else [None] * v.shape[2]
    steps = [decays, q[..., None, :], k[..., None, :], v[..., None, :]]
    outputs = []
    for decay, q_t, k_t, v_t, beta_t in zip(*(t.unbind(2) for t in steps), factors):
        state = decay * state
        if beta_t is not None:
            v_t = beta_t * (v_t - k_t @ state)
        state = torch.addcmul(state, k_t.mT, v_t)
        outputs.append(q_t @ state)
    return torch.cat(outputs, dim=2)


def train(run: Callable[..., Tensor], inputs: list[Tensor]) -> None:
    """Forward and backward."""
    y = run(*inputs)
    torch.autograd.grad(y, inputs, torch.ones_like(y))


def ratio(mine: Callable[[], None], other: Callable[[], None], rounds: int) -> str:
    """Of processor times, the other's to mine."""
    seconds: dict[Callable[[], None], list[float]] = {mine: [], other: []}
    for i in range(rounds + 1):  # the first is a warm-up
        for run, taken in seconds.items():
            started = time.process_time()
            run()
            if i:
                taken.append(time.process_time() - started)
    ratios = [b / a for a, b in zip(seconds[mine], seconds[other])]
    lowest = [f"{1000 * min(taken):.0f} ms" for taken in seconds.values()]
    spread = f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    return f"{lowest[0]} beside {lowest[1]}: {spread}"


def peak_mib(h: int, n: int, d: int, delta: bool) -> float:
    """Of a scan and its backward pass above its inputs, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_peak, args=(sender, h, n, d, delta))
    process.start()
    process.join()
    return receiver.recv()


def _send_peak(sender, h: int, n: int, d: int, delta: bool) -> None:
    torch.set_num_threads(1)
    train(by_chunks, tokens(1, 64, d, delta))  # libraries are loaded, and code is
    inputs = tokens(h, n, d, delta)
    before = _peak_kib()
    train(by_chunks, inputs)
    sender.send((_peak_kib() - before) / 1024)


def _peak_kib() -> int:
    """Of this process on Linux; `resource` would say that of its parent where that was larger."""
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--heads", type=int, nargs="+", default=[4, 16], help="times the batch")
    parser.add_argument("--dims", type=int, nargs="+", default=[32, 64], help="keys and values")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("chunked_scan beside the loop over tokens")
    for delta in (False, True):
        for h in args.heads:
            for d in args.dims:
                for n in args.lengths:
                    inputs = tokens(h, n, d, delta)
                    runs = [partial(train, run, inputs) for run in (by_chunks, by_token)]
                    rule = "delta rule" if delta else "sum"
                    print(f"  {rule}, {h} × {n} × {d}: {ratio(*runs, args.rounds)}", flush=True)
    print("memory of chunked_scan above its inputs, 16 heads of 64")
    for delta in (False, True):
        each = [f"{n}: {peak_mib(16, n, 64, delta):.0f} MiB" for n in LENGTHS]
        print(f"  {'delta rule' if delta else 'sum'}, {', '.join(each)}", flush=True)
    print("linear_scan beside torch's LSTM")
    for b, n, e in ((1, 2048, 64), (8, 512, 128), (32, 256, 256)):
        x = torch.randn(b, n, e, requires_grad=True)
        decay = torch.rand(b, n, e, requires_grad=True)
        cell = nn.LSTM(e, e, batch_first=True)
        mine = partial(train, lambda *given: linear_scan(*given)[0], [decay, x])
        other = partial(train, lambda x, *_, cell=cell: cell(x)[0], [x, *cell.parameters()])
        print(f"  {b} × {n} × {e}: {ratio(mine, other, args.rounds)}", flush=True)


if __name__ == "__main__":
    main()
