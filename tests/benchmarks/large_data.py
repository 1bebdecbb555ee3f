"""Seconds from the start of a process to its first training step on many molecules, the first time and the second.

    python tests/benchmarks/large_data.py            # 300,000 SMILES in a CSV file
    python tests/benchmarks/large_data.py 20000

The molecules are made of those at hand by rdkit: two of them joined by a bond, written eight times with their atoms
in a random order, each text once. Each time is a process of its own with a new, and then the same, cache folder.
"""

from __future__ import annotations

import csv
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEP = "--step"


def molecules(number: int) -> list[tuple[str, float]]:
    """Different valid SMILES, and a number for each: how many atoms it has."""
    from rdkit import Chem, rdBase

    from seqkit.recipes.graph.molecules import FreeSolv, Solubility

    rdBase.DisableLog("rdApp.*")
    generator = random.Random(0)
    raws = [sample.raw for sample in Solubility().splits().train]
    raws += [Chem.MolFromSmiles(sample.raw) for sample in FreeSolv().splits().train]
    ends = [[atom.GetIdx() for atom in raw.GetAtoms() if atom.GetTotalNumHs()] for raw in raws]
    usable = [i for i, end in enumerate(ends) if end]
    found: dict[str, float] = {}
    while len(found) < number:
        one, other = generator.choice(usable), generator.choice(usable)
        joined = Chem.RWMol(Chem.CombineMols(raws[one], raws[other]))
        shift = raws[one].GetNumAtoms()
        joined.AddBond(generator.choice(ends[one]), shift + generator.choice(ends[other]), Chem.BondType.SINGLE)
        for atom in joined.GetAtoms():
            atom.SetNoImplicit(False)
            atom.SetNumExplicitHs(0)
        if Chem.MolFromSmiles(Chem.MolToSmiles(joined)) is not None:
            texts = Chem.MolToRandomSmilesVect(joined, 8)
            found |= dict.fromkeys(texts, float(joined.GetNumAtoms()))
    return list(found.items())[:number]


def step(path: str) -> None:
    """Read the table, tokenize, and train one step, as `seqkit fit graph/molecules --data PATH` does."""
    started = time.perf_counter()
    import torch

    from seqkit.backbones import GIN
    from seqkit.data import DataModule, Given, Table
    from seqkit.model import Model
    from seqkit.objectives import Regress
    from seqkit.tokenizers import Molecule

    torch.set_num_threads(1)
    table = Table(path, Given(input="smiles", target="atoms", target_kind="numbers", columns={"smiles": "smiles"}))
    data = DataModule(table, Molecule(), Regress(pool="sum"))
    data.setup()
    print(f"  {time.perf_counter() - started:6.1f} s until the table is read")
    loader = data.train_dataloader()
    print(f"  {time.perf_counter() - started:6.1f} s until the training split is encoded")
    batch, label = next(iter(loader))
    model = Model(data.tokenizer.spec, GIN(96, 4), data.objective)
    prepared = data.objective.prepare(batch, label)
    out = data.objective.loss(model(prepared.batch), prepared.target, training=True)
    (out.loss / out.count).backward()
    used = os.times()  # of this process and of the workers that have ended
    processor = used.user + used.system + used.children_user + used.children_system
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  {time.perf_counter() - started:6.1f} s until step 1")
    print(
        f"  {processor:6.1f} s of processor time, workers included; {memory:.1f} GiB of memory at most, in this process"
    )


def main() -> None:
    if sys.argv[1:2] == [STEP]:
        step(sys.argv[2])
        return
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "molecules.csv"
        rows = molecules(number)
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([("smiles", "atoms"), *rows])
        mean = sum(atoms for _, atoms in rows) / number
        print(f"{number:,} SMILES of {mean:.1f} atoms on average, {path.stat().st_size / 1e6:.0f} MB", flush=True)
        settings = {**os.environ, "SEQKIT_CACHE": str(Path(folder) / "cache"), "XDG_CACHE_HOME": folder}
        for which in ("the first time", "the second time"):
            print(which, flush=True)
            subprocess.run([sys.executable, __file__, STEP, str(path)], check=True, env=settings)
        size = sum(file.stat().st_size for file in (Path(folder) / "cache").rglob("*") if file.is_file())
        print(f"cache: {size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
