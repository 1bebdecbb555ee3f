"""results.json of comparisons that never ran: what the report's tests and its eye-witness read.

python tests/report/synthetic_results.py FOLDER      # writes results.json and report.html of each kind
"""

import sys
from pathlib import Path

import numpy as np

NAMES = (
    "Transformer",
    "LSTM",
    "GRU",
    "Mamba",
    "RNN",
    "TCN",
    "Reversible",
    "MeanPool",
    "RetNet",
    "S4D",
    "MinGRU",
    "Hyena",
)
STEPS = 252
BATCH_TOKENS = 1024


def candidate(index, *, seeds=(1, 2, 3), group=None, failed=False, generator=None):
    """One candidate with everything that the schema has; number `index` decides its name and its curves."""
    generator = generator or np.random.default_rng(index)
    name = NAMES[index] if group is None else f"{NAMES[index]} + {group}"
    rate = (0.003, 0.001, 0.01)[index % 3]
    best = 0.965 + 0.025 * np.exp(-index / 3) + (0.004 if group else 0)
    runs = [_run(name, seed, best + generator.normal(0, 0.003), index, generator) for seed in seeds]
    values = [run["value"] for run in runs]
    mean, std = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {
        "name": name, "group": group, "error": "no seed finished: loss is NaN at step 12" if failed else None,
        "parameters": 203914 + 137 * index, "training_flops": 1.2e9 * (1 + 0.3 * index), "width": 128 - 8 * index,
        "depth": 3, "budget_gap": 0.004 * index,
        "chosen": {} if failed else {"optimizer.lr": rate},
        "trials": [_trial(lr, rate, failed) for lr in (0.0003, 0.001, 0.003, 0.01)],
        "runs": [_failed(run) if failed else run for run in runs],
        "mean": None if failed else mean, "std": None if failed else std,
        "interval": None if failed else [mean - 0.006, mean + 0.006],
        "by_length": [] if failed else [
            {"tokens": n, "value": mean - 0.0004 * (1 + index % 4) * n**0.8,
             "interval": [mean - 0.0006 * (1 + index % 4) * n**0.8, mean - 0.0002 * (1 + index % 4) * n**0.8]}
            for n in (16, 32, 64, 128, 256)
        ],
        "by_steps": [] if failed else [_after(steps, mean, std, index) for steps in (63, 126, STEPS)],
        "cost": None if failed else _cost(index),
        "gradient_flow": None if failed else [
            [t, float(np.exp(-t * (0.01 + 0.04 * index)) * (1 + 0.2 * generator.random()))] for t in range(64)
        ],
        "config": f"recipe: image/digits\nseed: 1\nmodel:\n  backbone: {name}\n",
    }  # fmt: skip


def _after(steps, mean, std, index):
    value = mean - 0.01 * (1 + index % 4) * float(np.log2(STEPS / steps))
    return {
        "steps": steps, "flops": steps * 1.2e9 * (1 + 0.3 * index), "seconds": steps * 0.02 * (1 + 0.3 * index),
        "values": [value], "mean": value, "std": std, "interval": [value - 0.006, value + 0.006],
    }  # fmt: skip


def _failed(run):
    return {**run, "value": None, "curve": run["curve"][:2], "error": "loss is NaN"}


def _trial(lr, rate, failed):
    if failed or (lr > 0.005 and rate < 0.005):
        return {"values": {"optimizer.lr": lr}, "loss": None, "error": "loss is NaN at step 12"}
    return {"values": {"optimizer.lr": lr}, "loss": 0.31 + 0.2 * abs(np.log10(lr / rate)), "error": None}


def _run(name, seed, value, index, generator):
    curve = []
    for step in range(4, STEPS + 1, 4):
        loss = 2.3 * (step / 4) ** (-0.5 - 0.02 * index) + 0.05 + 0.02 * generator.random()
        seconds = step * 0.02 * (1 + 0.3 * index) * (1 + 0.01 * seed)
        valid = loss + 0.03 if step % 28 == 0 else None
        curve.append(
            {"step": step, "tokens": step * BATCH_TOKENS, "seconds": seconds, "flops": step * 1.2e9 * (1 + 0.3 * index),
             "train_loss": loss, "valid_loss": valid}
        )  # fmt: skip
    return {
        "seed": seed, "folder": f"runs/{name}/seed-{seed}", "value": float(value),
        "metrics": {"loss": 0.07, "accuracy": float(value)}, "steps": STEPS, "tokens": STEPS * BATCH_TOKENS,
        "seconds": curve[-1]["seconds"], "flops": curve[-1]["flops"], "curve": curve, "error": None,
    }  # fmt: skip


def _cost(index):
    lengths = (16, 64, 256, 1024)
    power = 2 if index % 2 == 0 else 1
    return {
        "tokens_per_second": 81234.0 / (1 + 0.3 * index), "step_seconds": 0.012 * (1 + 0.3 * index),
        "seconds_by_length": [[n, 0.004 * (1 + 0.1 * index) * (1 + (n / 256) ** power)] for n in lengths],
        "latency_by_context": [[n, 0.001 * (1 + 0.2 * index) * (1 + n / 500 * (power - 1))] for n in lengths],
        "memory_by_length": [[n, 1.2e7 * (1 + (n / 256) ** power) + 1e6 * index] for n in lengths],
    }  # fmt: skip


def difference(a, b):
    """A difference of means with an interval of ± 0.006."""
    value = a["mean"] - b["mean"]
    better = a["name"] if value > 0.006 else b["name"] if value < -0.006 else None
    return {
        "a": a["name"], "b": b["name"], "difference": value, "interval": [value - 0.006, value + 0.006],
        "better": better, "pairs": "3 seeds × 1,000 examples",
    }  # fmt: skip


def comparison(num=4, *, seeds=(1, 2, 3), group=None, failed=()):
    """A comparison of the first `num` candidates; with a group, of each twice. failed: numbers of those that failed."""
    candidates = [candidate(i, seeds=seeds, failed=i in failed) for i in range(num)]
    if group:
        pretrained = np.random.default_rng(5)
        candidates += [candidate(i, seeds=seeds, group=group, generator=pretrained) for i in range(num)]
    sound = [one for one in candidates if one["error"] is None]
    return {
        "kind": "comparison", "title": f"image/digits: {', '.join(NAMES[:num])}",
        "answer": "Transformer is better than LSTM at an equal number of parameters. Its mean test accuracy is 0.63 "
        "percentage points higher (95 % confidence interval 0.03 to 1.23; p = 0.012). Transformer trains at 1.30 × the "
        "speed of LSTM.",
        "answers": ["Transformer is also better than GRU."],
        "recipe": "image/digits", "preset": "debug", "overrides": ["data.limit=200"],
        "command": "seqkit compare image/digits --backbones Transformer,LSTM,GRU,Mamba --seeds 3",
        "match": "parameters", "reference": "Transformer",
        "metric": {"name": "accuracy", "label": "test accuracy", "unit": "%", "scale": 100, "digits": 2,
                   "higher_is_better": True},
        "tuning": {"lr_trials": 4, "dropout_trials": 0, "fraction_of_steps": 0.25, "split": "valid"},
        "seeds": list(seeds), "num_test": 1000, "candidates": candidates,
        "differences": [difference(a, b) for i, a in enumerate(sound) for b in sound[:i]],
        "crossovers": [{"text": "LSTM is better after 63 steps, and GRU after 252. They cross at 130 steps (95 % "
                                "confidence interval 90 to 180)."}],
        "exchange_rates": [{"text": "LSTM needs 1.70 × the steps of Transformer to reach 98.27 %, the mean of LSTM "
                                    "after 252 steps (95 % confidence interval 1.40 × to 2.10 ×). This is 1.50 × the "
                                    "FLOPs and 2.00 × the time."}],
        "unmatched": [
            {"kind": "note", "what": "dropout", "text": "Each candidate has the dropout of its configuration."},
            {"kind": "warning", "what": "learning-rate trials", "text": "Transformer had 4 trials, LSTM 3."},
        ],
        "failures": [{"candidate": NAMES[i], "stage": "seed", "what": "lr 0.03, seed 2", "error": "loss is NaN"}
                     for i in failed],
        "versions": {"seqkit": "0.1", "torch": "2.11.0"},
        "machine": {"cpu": "AMD EPYC 9654 96-Core Processor", "cores": 2, "threads": 1, "accelerator": None,
                    "system": "Linux-6.1.0-x86_64-with-glibc2.36"},
        "started": "2026-11-22T00:30:00", "run_minutes": 14.2,
    }  # fmt: skip


def without_values():
    """A comparison with null and empty lists wherever the schema has them."""
    bare = {
        **candidate(0, seeds=(1,)), "group": None, "training_flops": None, "width": None, "depth": None,
        "budget_gap": None, "chosen": {}, "trials": [], "mean": None, "std": None, "interval": None, "by_length": [],
        "by_steps": [], "cost": None, "gradient_flow": None, "config": "",
    }  # fmt: skip
    bare["runs"] = [
        {**run, "value": None, "metrics": {}, "flops": None,
         "curve": [{**point, "flops": None, "train_loss": None, "valid_loss": None} for point in run["curve"]]}
        for run in bare["runs"]
    ]  # fmt: skip
    idle = {**bare, "name": "Idle", "runs": []}
    half = {
        **candidate(1), "std": None, "interval": None, "name": "Half",
        "cost": {**_cost(1), "latency_by_context": None, "seconds_by_length": [], "tokens_per_second": None},
    }  # fmt: skip
    half["trials"] = [{"values": {"optimizer.lr": 0.001}, "loss": None, "error": None}]
    return {
        **comparison(0), "preset": None, "overrides": [], "answer": "", "answers": [], "seeds": [], "num_test": 0,
        "candidates": [bare, idle, half], "reference": "Idle", "unmatched": [], "failures": [], "versions": {},
        "machine": {}, "match": "none", "command": "",
        "tuning": {"lr_trials": 0, "dropout_trials": 0, "fraction_of_steps": 0.25, "split": "valid"},
        "differences": [{"a": "Half", "b": "Idle", "difference": None, "interval": None, "better": None, "pairs": ""}],
    }  # fmt: skip


HOSTILE = "<script>alert('x')</script> $\\frac$ & \"quoted\" [red] a name of sixty"


def hostile():
    """A comparison whose every text tries to be markup, and whose numbers are NaN where they may be."""
    results = comparison(3, failed=(2,))
    text = str(results).replace("Transformer", HOSTILE)
    assert HOSTILE in text
    results = _replaced(results, "Transformer", HOSTILE)
    results["failures"] = [
        {"candidate": HOSTILE, "stage": "tune", "what": "<b>lr</b>", "error": "<img src=x>" + "x" * 300}
    ]
    results["candidates"][1]["interval"] = [float("nan"), float("inf")]
    results["candidates"][1]["runs"][0]["curve"][3]["train_loss"] = float("nan")
    results["candidates"][0]["training_flops"] = float("inf")
    results["candidates"][2]["error"] = "<img src=x> " + "x" * 300
    return results


def _replaced(value, old, new):
    if isinstance(value, dict):
        return {key: _replaced(inner, old, new) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, old, new) for inner in value]
    return value.replace(old, new) if isinstance(value, str) else value


RESULTS = {
    "four": lambda: comparison(4, failed=(3,)),
    "one": lambda: comparison(1, seeds=(7,)),
    "twelve": lambda: comparison(12),
    "groups": lambda: comparison(4, group="masked pretraining"),
    "none": lambda: comparison(0),
    "null": without_values,
    "hostile": hostile,
}


def main(folder):
    """Write every kind of results with its report."""
    from seqkit.files import write_json
    from seqkit.report.comparison import write_comparison

    for name, make in RESULTS.items():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / "results.json", make())
        print(write_comparison(place))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
