"""Load on `seqkit serve`: many clients at a time with ragged inputs, some wrong and some killed midway.

    python tests/benchmarks/serve.py RUN [--clients 200] [--requests 20]

RUN: a run on texts that predicts or embeds, and generates if it can. Each client sends its requests one after another.
Prints what became of them, latencies, requests and tokens a second, beside a loop over the model without a server.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter

import numpy as np

import seqkit
from seqkit.data.inputs import Input
from seqkit.generation.prompts_to_text import stream_text
from seqkit.generation.sampling import Sampling
from seqkit.runs.answers import vectors

NEW_TOKENS = 32
BAD = [b'{"input": 3}', b"{", b'{"input": ""}', b'{"input": NaN}']


def texts(count, seed):
    """Ragged texts of letters that a run on English knows."""
    rng = random.Random(seed)
    return ["".join(rng.choices("abcdefghij klmnop", k=rng.randint(5, 300))).strip() or "a" for _ in range(count)]


async def ask(port, path, body, kill):
    """Status of the answer and its body; None: the client was killed on purpose."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + (body[: len(body) // 2] if kill == "half" else body))
    await writer.drain()
    if kill:
        await asyncio.sleep(0.01)
        writer.close()
        return None, b""
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1]), answer.partition(b"\r\n\r\n")[2]


async def client(port, number, count, path, extra, found):
    rng = random.Random(number)
    for text in texts(count, number):
        bad, kill = rng.random() < 0.1, rng.choice(["half", "whole"]) if rng.random() < 0.05 else None
        body = rng.choice(BAD) if bad else json.dumps({"input": text, **extra}).encode()
        start = time.perf_counter()
        try:
            status, answer = await ask(port, path, body, kill)
        except (OSError, IndexError, ValueError) as error:
            found["outcomes"][f"lost: {type(error).__name__}"] += 1
            continue
        if kill:
            found["outcomes"]["killed"] += 1
            continue
        found["seconds"].append(time.perf_counter() - start)
        right = status in ((400, 422) if bad else (200,))
        found["outcomes"][f"{'bad' if bad else 'good'}: {status}{'' if right else ' WRONG'}"] += 1
        if status == 200:
            found["tokens"] += extra.get("max_new_tokens", len(text))
            if number < 5:
                found["kept"].append((text, json.loads(answer)))


async def load(port, path, clients, count, extra):
    found = {"outcomes": Counter(), "seconds": [], "tokens": 0, "kept": []}
    start = time.perf_counter()
    await asyncio.gather(*(client(port, n, count, path, extra, found) for n in range(clients)))
    wall = time.perf_counter() - start
    p50, p99 = np.percentile(found["seconds"], [50, 99])
    total, lost = clients * count, sum(n for what, n in found["outcomes"].items() if "lost" in what or "WRONG" in what)
    outcomes = ", ".join(f"{what} {n:,}" for what, n in sorted(found["outcomes"].items()))
    print(f"{path}: {total:,} requests, {lost} lost or wrong ({outcomes})")
    rates = f"{len(found['seconds']) / wall:.0f} requests/s, {found['tokens'] / wall:,.0f} tokens/s"
    print(f"  {wall:.1f} s, p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, {rates}")
    return found["kept"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--port", type=int, default=8765)
    args = parser.parse_args()
    command = [sys.executable, "-m", "seqkit", "serve", args.run, "--port", str(args.port), "--timeout", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        line = server.stdout.readline()
        print(line.strip())
        try:
            kept = asyncio.run(load(args.port, "/embed", args.clients, args.requests, {}))
            if "generate" in line:
                asyncio.run(load(args.port, "/generate", args.clients, 1, {"max_new_tokens": NEW_TOKENS}))
        finally:
            server.terminate()
    trained = seqkit.load(args.run)
    given = texts(500, 0)
    start = time.perf_counter()
    list(vectors(trained, [Input(text, text) for text in given]))
    wall = time.perf_counter() - start
    print(f"loop over vectors(): {len(given) / wall:.0f} examples/s, {sum(map(len, given)) / wall:,.0f} tokens/s")
    own = list(vectors(trained, [Input(text, text) for text, _ in kept]))
    worst = max(abs(np.array(answer["vector"]) - one.values.numpy()).max() for one, (_, answer) in zip(own, kept))
    print(f"largest difference of {len(kept)} answers from those alone: {worst:.1e}")
    if "generate" in line:
        start = time.perf_counter()
        for text in given[:20]:
            list(stream_text(trained, text, NEW_TOKENS, sampling=Sampling(temperature=0.8)))
        print(f"loop over stream_text(): {20 * NEW_TOKENS / (time.perf_counter() - start):,.0f} tokens/s")


if __name__ == "__main__":
    main()
