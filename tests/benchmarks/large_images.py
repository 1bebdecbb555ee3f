"""Seconds from the start of a process to its first training step on many small images, the first time and the second.

    OMP_NUM_THREADS=1 python tests/benchmarks/large_images.py            # 100,000 PNG files of 32 x 32 pixels
    OMP_NUM_THREADS=1 python tests/benchmarks/large_images.py 20000

The files hold noise in ten class folders, which compresses least. Each time is a process of its own with a new, and
then the same, cache folder. Memory is the largest sum over the process and its workers, asked for twice a second: of
proportional set sizes (PSS), once with and once without the pages of mapped files, which the system takes back at will.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

STEP = "--step"


def images(folder: Path, number: int) -> None:
    """PNG files of noise, in ten folders."""
    rng = np.random.default_rng(0)
    for label in range(10):
        (folder / f"class {label}").mkdir()
    for i in range(number):
        pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"class {i % 10}" / f"{i}.png", compress_level=1)


def step(path: str) -> None:
    """Read the folder, tokenize, and train one step, as `seqkit fit image/classify --data PATH` does."""
    started = time.perf_counter()
    import torch

    from seqkit.backbones import Transformer
    from seqkit.config import complete
    from seqkit.data import DataModule, ImageFolder
    from seqkit.model import Model
    from seqkit.objectives import Classify
    from seqkit.tokenizers import Patches

    torch.set_num_threads(1)
    config = complete("image/classify", None, ["--data", path])
    print(f"  {time.perf_counter() - started:6.1f} s until the data source is chosen", flush=True)
    data = DataModule(ImageFolder(config["data"]["source"]["path"]), Patches(8, channels=3), Classify())
    data.setup()
    print(f"  {time.perf_counter() - started:6.1f} s until the headers are checked", flush=True)
    loader = data.train_dataloader()
    data.val_dataloader()
    print(f"  {time.perf_counter() - started:6.1f} s until training and validation are encoded", flush=True)
    batch, label = next(iter(loader))
    model = Model(data.tokenizer.spec, Transformer(64, 4, num_heads=4), data.objective)
    prepared = data.objective.prepare(batch, label)
    out = data.objective.loss(model(prepared.batch), prepared.target, training=True)
    (out.loss / out.count).backward()
    print(f"  {time.perf_counter() - started:6.1f} s until step 1", flush=True)
    for _ in loader:  # an epoch of reading
        pass
    print(f"  {time.perf_counter() - started:6.1f} s until every batch of an epoch was read", flush=True)
    used = os.times()  # of this process and of the workers that have ended
    processor = used.user + used.system + used.children_user + used.children_system
    print(f"  {processor:6.1f} s of processor time, workers included", flush=True)


def tree(pid: int) -> Iterator[int]:
    """The process and those below it."""
    yield pid
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for one in below:
        yield from tree(int(one))


def memory(pid: int) -> tuple[float, float]:
    """MB of the process and its workers: all of PSS, and what of it is no mapped file."""
    total = anonymous = 0
    for one in tree(pid):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith("kB")}
        total += sizes.get("Pss", 0)
        anonymous += sizes.get("Pss_Anon", 0)
    return total / 1000, anonymous / 1000


def main() -> None:
    """Make the files, and run `step` twice."""
    if STEP in sys.argv:
        step(sys.argv[sys.argv.index(STEP) + 1])
        return
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "photos"
        folder.mkdir()
        started = time.perf_counter()
        images(folder, number)
        size = sum(file.stat().st_size for file in folder.rglob("*.png")) / 1e6
        print(f"{number:,} images, {size:,.0f} MB, written in {time.perf_counter() - started:.0f} s", flush=True)
        environment = os.environ | {"SEQKIT_CACHE": str(Path(temporary) / "cache")}
        for what in ("first time", "second time"):
            print(f"{what}:", flush=True)
            command = [sys.executable, __file__, STEP, str(folder)]
            process = subprocess.Popen(command, env=environment)
            peaks = (0.0, 0.0)
            while process.poll() is None:
                peaks = tuple(map(max, peaks, memory(process.pid)))  # type: ignore[assignment]
                time.sleep(0.5)
            print(f"  {peaks[0]:6.0f} MB at most, {peaks[1]:.0f} MB of them no pages of mapped files", flush=True)
        kept = sum(file.stat().st_size for file in (Path(temporary) / "cache").rglob("*") if file.is_file()) / 1e6
        print(f"the cache holds {kept:,.0f} MB")


if __name__ == "__main__":
    main()
