"""Each backbone beside an independent implementation, trained on the same data by the same loop.

    SEQKIT_DATA=FOLDER OMP_NUM_THREADS=1 python tests/benchmarks/plain_peers.py --out runs/peers --jobs 2
    … --only copy char-lm --backbones LSTM GRU --seeds 10
    … --table            # the table of what was measured, and nothing is run

Equal are data, batches, steps, the optimizer with its schedule, the number of parameters (ours is the widest model
within the budget of the task), and the trials: each rate with one seed, judged by the loss on validation data. The best
rate is then trained with the seeds, with the weights of the last step, and measured on the test split. A peer is all of
a model: embedding, network, pooling and output layer, as somebody would write it with torch or with a package
(pytorch-tcn, mambapy, torch_geometric; for mixers see `mixer_peers`). Ours is the model that a recipe builds, with the
defaults of its backbone.

An interval is Welch's, at 95 %, for the difference of the means of the seeds; above 0 ours is better.
SEQKIT_DATA holds tiny-shakespeare, Cora and FSDD. Results are kept in FOLDER/results.jsonl: the same command goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from mixer_peers import MIXERS, NUM_HEADS
from scipy.stats import t as student
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqkit.config import complete
from seqkit.data.module import DataModule
from seqkit.interfaces import TokenBatch, TokenSpec
from seqkit.runs.prepare import prepare

# ── the peers ────────────────────────────────────────────────────────────────────────────────────────────────────────

Body = Callable[[int, int, bool, int], nn.Module]
"""Builds a network from vectors [b n d] and a batch to vectors [b n d], from its width, depth, causality and length."""


class Recurrent(nn.Module):
    """torch's stack; padded sequences are packed."""

    def __init__(self, cell: type[nn.RNNBase], dim: int, depth: int, causal: bool, length: int):
        super().__init__()
        self.net = cell(
            dim, dim if causal else dim // 2, depth, batch_first=True, bidirectional=not causal
        )

    def forward(self, x: Tensor, batch: TokenBatch) -> Tensor:
        if bool(batch.valid.all()):
            return self.net(x)[0]
        packed = pack_padded_sequence(
            x, batch.valid.sum(dim=1), batch_first=True, enforce_sorted=False
        )
        return pad_packed_sequence(self.net(packed)[0], batch_first=True, total_length=x.shape[1])[
            0
        ]


class Convolutions(nn.Module):
    """pytorch-tcn with its defaults, but for dropout and the length of kernels, which ours share."""

    def __init__(self, dim: int, depth: int, causal: bool, length: int):
        super().__init__()
        from pytorch_tcn import TCN

        self.net = TCN(
            dim, [dim] * depth, kernel_size=3, dropout=0.0, causal=causal, input_shape="NLC"
        )

    def forward(self, x: Tensor, batch: TokenBatch) -> Tensor:
        return self.net(x)


class Selective(nn.Module):
    """mambapy, with the norm that its language model has behind the layers."""

    def __init__(self, dim: int, depth: int, causal: bool, length: int):
        super().__init__()
        from mambapy.mamba import Mamba, MambaConfig, RMSNorm

        assert causal
        self.net, self.norm = Mamba(MambaConfig(d_model=dim, n_layers=depth)), RMSNorm(dim)

    def forward(self, x: Tensor, batch: TokenBatch) -> Tensor:
        return self.norm(self.net(x))


class Diagonal(nn.Module):
    """One layer of S4D-Lin (Gu et al. 2022, equation 9 and appendix A), causal, then GELU and a gated linear layer."""

    def __init__(self, dim: int, num_states: int = 64):
        super().__init__()
        half = num_states // 2
        self.log_dt = nn.Parameter(
            torch.rand(dim) * (math.log(0.1) - math.log(0.001)) + math.log(0.001)
        )
        self.C = nn.Parameter(torch.randn(dim, half, 2) * 0.5**0.5)
        self.log_A_real = nn.Parameter(torch.full((dim, half), math.log(0.5)))
        self.A_imag = nn.Parameter(math.pi * torch.arange(half).float().repeat(dim, 1))
        self.D = nn.Parameter(torch.randn(dim))
        self.norm, self.output = nn.LayerNorm(dim), nn.Linear(dim, 2 * dim)

    def forward(self, x: Tensor) -> Tensor:
        u, n = rearrange(self.norm(x), "b n d -> b d n"), x.shape[1]
        A = torch.complex(-self.log_A_real.exp(), self.A_imag)
        dtA = A * rearrange(self.log_dt.exp(), "d -> d 1")
        C = torch.view_as_complex(self.C) * (dtA.exp() - 1) / A
        steps = rearrange(dtA, "d s -> d s 1") * torch.arange(n)
        kernel = 2 * torch.einsum("ds,dsn->dn", C, steps.exp()).real
        y = torch.fft.irfft(torch.fft.rfft(u, n=2 * n) * torch.fft.rfft(kernel, n=2 * n), n=2 * n)[
            ..., :n
        ]
        y = F.gelu(y + u * rearrange(self.D, "d -> d 1"))
        return x + F.glu(self.output(rearrange(y, "b d n -> b n d")), dim=-1)


class StateSpace(nn.Module):
    """Layers of S4D, and a norm."""

    def __init__(self, dim: int, depth: int, causal: bool, length: int):
        super().__init__()
        assert causal
        self.layers, self.norm = (
            nn.ModuleList(Diagonal(dim) for _ in range(depth)),
            nn.LayerNorm(dim),
        )

    def forward(self, x: Tensor, batch: TokenBatch) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Attention(nn.Module):
    """GPT-2's composition, by torch's own layers: learned positions, pre-norm, GELU."""

    def __init__(self, dim: int, depth: int, causal: bool, length: int):
        super().__init__()
        assert causal
        self.positions = nn.Parameter(torch.randn(length, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(
            dim, 2, 4 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.net = nn.TransformerEncoder(
            layer, depth, nn.LayerNorm(dim), enable_nested_tensor=False
        )
        for name, weight in self.net.named_parameters():
            if weight.ndim == 2:  # the layers are copies of one
                shrink = (
                    (2 * depth) ** -0.5
                    if name.endswith(("out_proj.weight", "linear2.weight"))
                    else 1.0
                )
                nn.init.normal_(weight, std=0.02 * shrink)

    def forward(self, x: Tensor, batch: TokenBatch) -> Tensor:
        n = x.shape[1]
        hidden = torch.triu(torch.ones(n, n, dtype=torch.bool), diagonal=1)
        return self.net(x + self.positions[:n], mask=hidden, is_causal=True)


class Messages(nn.Module):
    """GIN with edge types as in PyG's example for molecules: GINEConv, an MLP with a batch norm inside, ReLU."""

    def __init__(self, dim: int, depth: int, causal: bool, length: int):
        super().__init__()
        from torch_geometric.nn import GINEConv

        def mlp() -> nn.Module:
            return nn.Sequential(
                nn.Linear(dim, 2 * dim), nn.BatchNorm1d(2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim)
            )

        self.convolutions = nn.ModuleList(GINEConv(mlp(), train_eps=True) for _ in range(depth))
        self.edges = nn.ModuleList(nn.Embedding(64, dim) for _ in range(depth))

    def forward(self, x: Tensor, batch: TokenBatch) -> Tensor:
        assert batch.adjacency is not None
        real = rearrange(batch.valid, "b n -> (b n)")
        number = real.cumsum(0) - 1
        edges, types = number[batch.adjacency.edge_index], batch.adjacency.edge_type
        nodes = rearrange(x, "b n d -> (b n) d")[real]
        for convolution, table in zip(self.convolutions, self.edges):
            nodes = F.dropout(convolution(nodes, edges, table(types)).relu(), 0.1, self.training)
        out = x.new_zeros(real.numel(), x.shape[2]).index_put((real.nonzero()[:, 0],), nodes)
        return rearrange(out, "(b n) d -> b n d", b=len(x))


class Citations(nn.Module):
    """PyG's GCN as Kipf and Welling (2017) train it on Cora: 16 hidden units, dropout 0.5, normalised rows."""

    def __init__(self, num_features: int, num_classes: int):
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.first, self.second = GCNConv(num_features, 16), GCNConv(16, num_classes)

    def forward(self, batch: TokenBatch, masked: Tensor | None = None) -> Tensor:
        assert batch.adjacency is not None
        x, edges = batch.content[0], batch.adjacency.edge_index
        x = x / x.sum(dim=1, keepdim=True).clamp(min=1e-9)
        x = self.first(F.dropout(x, 0.5, self.training), edges).relu()
        return rearrange(self.second(F.dropout(x, 0.5, self.training), edges), "n k -> 1 n k")


PEERS: dict[str, Body] = {
    "LSTM": partial(Recurrent, nn.LSTM),
    "GRU": partial(Recurrent, nn.GRU),
    "RNN": partial(Recurrent, nn.RNN),
    "TCN": Convolutions,
    "Mamba": Selective,
    "S4D": StateSpace,
    "Transformer": Attention,
    "GIN": Messages,
    **MIXERS,
}


class Peer(nn.Module):
    """Embedding, network, pooling and output layer, each as torch initialises it."""

    def __init__(
        self, body: nn.Module, spec: TokenSpec, dim: int, num_outputs: int, *, pooled: bool
    ):
        super().__init__()
        self.fields = nn.ModuleList()
        if spec.vocab_sizes:
            self.fields.extend(nn.Embedding(size, dim) for size in spec.vocab_sizes)
        elif spec.ids:
            self.fields.append(nn.Embedding(spec.vocab_size, dim))
        for table in self.fields:
            if isinstance(body, Attention):  # as GPT-2's; other bodies begin with torch's own, of 1
                nn.init.normal_(table.weight, std=0.02)
        self.linear = nn.Linear(spec.num_features, dim) if spec.num_features else None
        self.body, self.output, self.pooled = body, nn.Linear(dim, num_outputs), pooled

    def forward(self, batch: TokenBatch, masked: Tensor | None = None) -> Tensor:
        ids = batch.content if batch.content.ndim == 3 else rearrange(batch.content, "b n -> b n 1")
        x = sum(table(ids[..., i].long()) for i, table in enumerate(self.fields))
        if self.linear is not None:
            numbers = batch.content if batch.features is None else batch.features
            x = x + self.linear(numbers)
        hidden = self.body(x, batch)
        if not self.pooled:
            return self.output(hidden)
        real = rearrange(batch.valid, "b n -> b n 1").float()
        return self.output((hidden * real).sum(dim=1) / real.sum(dim=1))


# ── the tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Task:
    """What is trained: a recipe with keys, its steps, budget of parameters and rates.

    rates: learning rates to try, by backbone; others have `OTHERS`. pooled: True: an example has one output, from the
    mean over its tokens; False: each token has one. metric: "accuracy", "loss" or "rmse". settings: of our backbone, by
    name. rates_from: the task whose trials choose the rate; None: its own.
    """

    recipe: str
    steps: int
    budget: int
    rates: dict[str, tuple[float, ...]]
    backbones: tuple[str, ...]
    metric: str
    preset: str | None = None
    keys: dict[str, Any] = field(default_factory=dict)
    depth: int = 2
    causal: bool = True
    pooled: bool = False
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    weight_decay: float = 0.1
    rates_from: str | None = None


SEQUENCES = ("LSTM", "GRU", "RNN", "TCN", "S4D", "Mamba", "Transformer", *MIXERS)
SETTINGS: dict[str, dict[str, Any]] = {
    "Transformer": {"num_heads": 2, "position": "Rotary"},
    "TCN": {"depth": 4},
    # the peers' blocks, so that only the mixer is another
    **{name: {"block": {"zero_init": False, "mlp": {"activation": "GELU"}}} for name in MIXERS},
}
SHAKESPEARE = {"data.source": "tinyshakespeare"}
RATES = {"LSTM": (0.01, 0.03), "GRU": (0.01, 0.03)}
"""Rates to try where they are not `OTHERS`."""

OTHERS = (0.003, 0.01)
TASKS = {
    "copy": Task("mechanism/tasks", 1565, 27_000, RATES, SEQUENCES, "accuracy", settings=SETTINGS),
    "recall": Task(
        "mechanism/tasks", 1565, 28_000, RATES, SEQUENCES, "accuracy", "associative-recall", settings=SETTINGS
    ),
    "char-lm": Task("text/char-lm", 400, 800_000, RATES, SEQUENCES, "loss", keys=SHAKESPEARE, settings=SETTINGS),
    "char-lm-2000": Task(
        "text/char-lm", 2000, 800_000, RATES, ("LSTM", "GRU"), "loss", keys=SHAKESPEARE, rates_from="char-lm"
    ),
    "mnist1d": Task(
        "series/classify", 1000, 60_000, RATES, ("LSTM", "GRU", "TCN"), "accuracy", causal=False, pooled=True,
        keys={"data.source": "mnist1d", "data.batch_size": 64}, settings=SETTINGS,
    ),
    "digits-rows": Task(
        "image/digits", 400, 60_000, RATES, ("LSTM", "GRU"), "accuracy", causal=False, pooled=True,
        keys={"tokenizer.patch": [1, 28], "model.position": None, "data.augment": None},
    ),
    "spoken-digits": Task(
        "audio/spoken-digits", 400, 120_000, RATES, ("LSTM", "GRU"), "accuracy", causal=False, pooled=True,
        keys={"data.source": "fsdd", "model.position": None, "model.dropout": 0.0},
    ),
    "freesolv": Task(
        "graph/molecules", 640, 160_000, {"GIN": (0.001, 0.003, 0.01)}, ("GIN",), "rmse", depth=4, causal=False,
        # bonds alone
        pooled=True, keys={"tokenizer.encodings": []}, settings={"GIN": {"dropout": 0.1}},
    ),
} | {
    f"screen-{name}": Task(
        "mechanism/screen", 200, 26_000, RATES, SEQUENCES, "accuracy", name, settings=SETTINGS
    )
    for name in ("associative-recall", "parity", "selective-copy", "induction-heads", "copy")
}  # fmt: skip
CORA = "cora"


def config_of(task: Task, backbone: str, dim: int, seed: int) -> dict[str, Any]:
    """Complete configuration of ours."""
    causal = {} if backbone == "GIN" else {"causal": task.causal}
    if backbone in MIXERS:
        kind = {"type": "Transformer", "mixer": backbone, "num_heads": NUM_HEADS}
    else:
        kind = {"type": backbone}
    own = {
        **kind,
        "dim": dim,
        "depth": task.depth,
        **causal,
        **task.settings.get(backbone, {}),
    }
    return complete(task.recipe, task.preset, {"seed": seed, "model.backbone": own, **task.keys})


def depth_of(task: Task, backbone: str) -> int:
    """Number of layers, of ours and of the peer."""
    return task.settings.get(backbone, {}).get("depth", task.depth)


def ours(task: Task, backbone: str, dim: int, data: DataModule) -> nn.Module:
    """The model of the recipe with that backbone."""
    return prepare(config_of(task, backbone, dim, data.seed)).model


def theirs(task: Task, backbone: str, dim: int, data: DataModule) -> nn.Module:
    """The peer, with as many outputs as our head has."""
    spec = data.tokenizer.spec
    outputs = len(data.objective.classes) or (spec.vocab_size if task.metric == "loss" else 1)
    loaders = data.train_dataloader(), data.test_dataloader()
    length = max(batch[0].valid.shape[1] for loader in loaders for batch in loader)
    body = PEERS[backbone](dim, depth_of(task, backbone), task.causal, length)
    return Peer(body, spec, dim, outputs, pooled=task.pooled)


def widest(build: Callable[[int], nn.Module], budget: int) -> int:
    """The largest width, in steps of 4, whose model has at most that many parameters."""
    low, high = 4, 1024
    while high - low > 4:
        middle = (low + high) // 8 * 4
        if num_parameters(build(middle)) <= budget:
            low = middle
        else:
            high = middle
    return low


def nearest(build: Callable[[int], nn.Module], target: int, around: int) -> int:
    """The even width near `around` whose model's number of parameters is nearest to the target."""
    return min(
        range(max(4, around - 8), around + 9, 2),
        key=lambda dim: abs(num_parameters(build(dim)) - target),
    )


def num_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# ── the training ─────────────────────────────────────────────────────────────────────────────────────────────────────


def train(model: nn.Module, data: DataModule, steps: int, rate: float, weight_decay: float) -> None:
    """AdamW with decay of matrices, warm-up over a twentieth of the steps, a cosine to zero, gradients clipped at 1."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99), fused=True)
    warmup = steps // 20

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    model.train()
    epochs = itertools.repeat(data.train_dataloader())
    for batch in itertools.islice(itertools.chain.from_iterable(epochs), steps):
        output = data.objective.step(model, batch, training=True)
        optimizer.zero_grad()
        (output.loss / output.count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def measured(model: nn.Module, data: DataModule, loader: Any, metric: str) -> float:
    """Accuracy in percent, loss, or root mean square error."""
    model.eval()
    total, count, squares, right, number = 0.0, 0.0, 0.0, 0, 0
    for batch in loader:
        output = data.objective.step(model, batch)
        total, count = total + float(output.loss), count + float(output.count)
        assert output.preds is not None
        assert output.target is not None
        number += output.target.numel()
        if metric == "rmse":
            squares += float((output.preds - output.target).square().sum())
        else:
            right += int((output.preds == output.target).sum())
    return {
        "loss": total / count,
        "rmse": (squares / number) ** 0.5,
        "accuracy": 100 * right / number,
    }[metric]


@dataclass(frozen=True)
class Job:
    """One training: of whom ("ours" or "peer"), with which rate and seed; trial: judged on validation data."""

    task: str
    backbone: str
    who: str
    rate: float
    seed: int
    trial: bool


def run(job: Job) -> dict[str, Any]:
    """The job with its result."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    if job.task == CORA:
        found, size = citations(job)
    else:
        task = TASKS[job.task]
        data = prepare(config_of(task, job.backbone, 8, job.seed)).data
        build = partial(ours, task, job.backbone, data=data)
        dim = widest(build, task.budget)
        if job.who == "peer":
            target = num_parameters(build(dim))
            build = partial(theirs, task, job.backbone, data=data)
            dim = nearest(build, target, dim)
        torch.manual_seed(job.seed)
        model = build(dim)
        size = num_parameters(model)
        train(model, data, task.steps, job.rate, task.weight_decay)
        loader = data.val_dataloader() if job.trial else data.test_dataloader()
        found = measured(model, data, loader, "loss" if job.trial else task.metric)
    return {
        **vars(job),
        "value": found,
        "parameters": size,
        "seconds": round(time.perf_counter() - started),
    }


def citations(job: Job) -> tuple[float, int]:
    """Cora: ours is the recipe's preset gcn, trained as it is; the peer as its paper trains it, last weights."""
    import seqkit

    if job.who == "ours":
        with tempfile.TemporaryDirectory() as folder:
            run = seqkit.fit("graph/nodes", {"seed": job.seed}, preset="gcn", out=f"{folder}/run")
            return 100 * run.summary["metrics"]["accuracy"], run.model.num_parameters
    data = prepare(complete("graph/nodes", "gcn", {"seed": job.seed})).data
    torch.manual_seed(job.seed)
    spec = data.tokenizer.spec
    model = Citations(spec.num_features, len(data.objective.classes))
    groups = [
        {"params": model.first.parameters(), "weight_decay": 5e-4},
        {"params": model.second.parameters()},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.01)
    batch, label = next(iter(data.train_dataloader()))[:2]
    for _ in range(200):
        model.train()
        logits = model(batch)
        optimizer.zero_grad()
        F.cross_entropy(logits[0], label[0]).backward()
        optimizer.step()
    return measured(model, data, data.test_dataloader(), "accuracy"), num_parameters(model)


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def best_rate(rows: list[dict[str, Any]], name: str, backbone: str, who: str) -> float:
    """Rate with the lowest validation loss in the trials."""
    source = TASKS[name].rates_from or name
    trials = [
        r
        for r in rows
        if (r["task"], r["backbone"], r["who"], r["trial"]) == (source, backbone, who, True)
    ]
    return min(trials, key=lambda r: r["value"])["rate"]


def interval(ours: list[float], theirs: list[float], sign: float) -> tuple[float, float, float]:
    """Difference of the means, above 0 where ours is better, and Welch's interval at 95 %."""
    difference = sign * (statistics.mean(ours) - statistics.mean(theirs))
    a, b = (statistics.variance(x) / len(x) for x in (ours, theirs))
    if a + b == 0:
        return difference, difference, difference
    freedom = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1))
    half = float(student.ppf(0.975, freedom)) * (a + b) ** 0.5
    return difference, difference - half, difference + half


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Lines of a Markdown table of what was measured."""
    yield "| task | backbone | ours | peer | difference | parameters | rates | seeds |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    finals = [row for row in rows if not row["trial"]]
    for task, backbone in dict.fromkeys((row["task"], row["backbone"]) for row in finals):
        own = {
            who: [
                r for r in finals if (r["task"], r["backbone"], r["who"]) == (task, backbone, who)
            ]
            for who in ("ours", "peer")
        }
        if min(map(len, own.values())) < 2:
            continue
        values = {who: [r["value"] for r in found] for who, found in own.items()}
        smaller = task != CORA and TASKS[task].metric != "accuracy"
        difference, low, high = interval(values["ours"], values["peer"], -1.0 if smaller else 1.0)
        digits = 3 if smaller else 1
        said = "worse" if high < 0 else "better" if low > 0 else "even"
        cells = [
            task,
            backbone,
            *(
                f"{statistics.mean(x):.{digits}f} ± {statistics.stdev(x):.{digits}f}"
                for x in values.values()
            ),
            f"{difference:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}] {said}",
            *(
                " / ".join(f"{found[0][key]:,}" for found in own.values())
                for key in ("parameters", "rate")
            ),
            " / ".join(str(len(found)) for found in own.values()),
        ]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--out", type=Path, default=Path("runs/peers"))
    options.add_argument("--only", nargs="+", choices=[*TASKS, CORA], default=[*TASKS, CORA])
    options.add_argument("--backbones", nargs="+", choices=[*PEERS, "GCN"], default=[*PEERS, "GCN"])
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--table", action="store_true")
    args = options.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "results.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def finish(jobs: list[Job]) -> None:
        done = {
            tuple(row[x] for x in ("task", "backbone", "who", "rate", "seed", "trial"))
            for row in rows
        }
        left = [job for job in jobs if tuple(vars(job).values()) not in done]
        with multiprocessing.get_context("spawn").Pool(args.jobs, maxtasksperchild=8) as pool:
            for row in pool.imap_unordered(run, left):
                rows.append(row)
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)

    if not args.table:
        names = [name for name in args.only if name != CORA]
        pairs = [(name, x) for name in names for x in TASKS[name].backbones if x in args.backbones]
        tried = [(name, x) for name, x in pairs if TASKS[name].rates_from is None]
        whose = ("ours", "peer")
        finish(
            [
                Job(n, x, who, rate, 0, True)
                for n, x in tried
                for who in whose
                for rate in TASKS[n].rates.get(x, OTHERS)
            ]
        )
        final = [(n, x, who, best_rate(rows, n, x, who)) for n, x in pairs for who in whose]
        if CORA in args.only and "GCN" in args.backbones:
            final += [(CORA, "GCN", who, 0.01) for who in whose]
        finish([Job(*one, seed, False) for seed in range(1, args.seeds + 1) for one in final])
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
