"""Results of comparisons that never ran: what the report's tests and its eye-witness read.

python tests/report/synthetic_results.py FOLDER      # writes results.json and report.html of each kind
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from seqkit.comparison.scores import METRICS
from seqkit.comparison.types import (
    ClassicalMethod,
    Cost,
    CurvePoint,
    Difference,
    Failure,
    Results,
    Row,
    Run,
    Trial,
    Tuning,
    Unmatched,
)

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
CONFIG = "recipe: image/digits\ndata: {limit: null}\noptimizer: {lr: 0.003}\n"


def candidate(index, *, seeds=(1, 2, 3), failed=False):
    """A candidate with everything that a row has; number `index` decides its name and its curves."""
    rng, name = np.random.default_rng(index), NAMES[index]
    rate, mean = (0.003, 0.001, 0.01)[index % 3], 0.965 + 0.025 * float(np.exp(-index / 3))
    slow, power = 1 + 0.3 * index, 2 if index % 2 == 0 else 1
    lengths = (16, 64, 256, 1024)

    def run(seed):
        if failed:
            return Run(seed=seed, folder="", error="loss is NaN at step 12")
        curve = []
        for step in range(4, STEPS + 1, 4):
            loss = 2.3 * (step / 4) ** (-0.5 - 0.02 * index) + 0.02 * rng.random()
            curve.append(
                CurvePoint(step=step, train_loss=loss, valid_loss=loss if step % 28 == 0 else None)
            )
        value = mean + 0.003 * (seed - 2)
        return Run(
            seed=seed,
            folder="",
            value=value,
            steps=STEPS,
            tokens=STEPS * 1024,
            seconds=9.0,
            curve=curve,
        )

    trials = [
        Trial(
            values={"optimizer.lr": lr},
            seed=1001,
            score=None if failed else 0.9 - abs(float(np.log10(lr / rate))),
            loss=1.0,
        )
        for lr in (0.0003, 0.001, 0.003, 0.01)
    ]
    row = Row(
        name=name, parameters=203914 + 137 * index, training_flops=10**9 + index, width=128, depth=3,
        budget_gap=0.004 * index, trials=trials, config=CONFIG, runs=[run(seed) for seed in seeds],
    )  # fmt: skip
    if failed:
        return row
    cost = Cost(
        tokens_per_second=81234.0 / slow, step_seconds=0.012 * slow,
        seconds_by_length=[(n, 0.004 * (1 + (n / 256) ** power)) for n in lengths],
        latency_by_context=[(n, 0.001 * slow) for n in lengths],
        memory_by_length=[(n, 1.2e7 * (1 + n / 256) + 1e6 * index) for n in lengths],
    )  # fmt: skip
    return replace(
        row, mean=mean, std=0.003 if len(seeds) > 1 else None, interval=(mean - 0.006, mean + 0.006), longest=256,
        constant=0.1, chosen={"optimizer.lr": rate}, cost=cost,
    )  # fmt: skip


def difference(a, b):
    """A difference of means with an interval of ± 0.006."""
    value = a.mean - b.mean
    better = a.name if value > 0.006 else b.name if value < -0.006 else None
    p = 0.012 if better else 0.4
    interval = (value - 0.006, value + 0.006)
    return Difference(
        a=a.name,
        b=b.name,
        difference=value,
        interval=interval,
        p=p,
        p_holm=p,
        pairs="1,000 examples",
        better=better,
    )


def comparison(num=4, *, seeds=(1, 2, 3), failed=()):
    """A comparison of the first `num` candidates. failed: numbers of those that failed."""
    rows = [candidate(i, seeds=seeds, failed=i in failed) for i in range(num)]
    sound = [row for row in rows if row.mean is not None]
    return Results(
        recipe="image/digits", metric=METRICS["accuracy"],
        candidates=rows, preset="debug", overrides=["--trainer.max_epochs", "8"],
        commands=["seqkit compare image/digits --backbones Transformer,LSTM,GRU,Mamba"], match="parameters",
        budget=203_914, tuning=Tuning(
            lr_trials=4, optimizers=["AdamW"], depths=True, seeds=[1001, 1002], by="accuracy"
        ),
        seeds=list(seeds), num_test=1000,
        differences=[difference(a, b) for i, a in enumerate(sound) for b in sound[:i]],
        strong_baseline=ClassicalMethod(name="an RBF-SVM", value=0.98, num_train=1257),
        unmatched=[Unmatched(kind="note", what="dropout", text="Each has its own."),
                   Unmatched(kind="warning", what="trials", text="Transformer had 4 trials, LSTM 3.")],
        failures=[Failure(candidate=NAMES[i], stage="run", what="seed-2", error="loss is NaN") for i in failed],
        versions={"seqkit": "0.1", "torch": "2.11.0"}, machine={"cpu": "AMD EPYC 9654", "threads": 1},
        started="2026-11-22T00:30:00", run_minutes=14.2,
    )  # fmt: skip


def without_values():
    """A comparison with nothing wherever the types allow it."""
    bare = Row(name="Bare", parameters=0, config=CONFIG, runs=[Run(seed=1, folder="")])
    half = replace(candidate(1), name="Half", std=None, interval=None, cost=None)
    return Results(recipe="image/digits", metric=METRICS["accuracy"], candidates=[bare, half])


HOSTILE = "<script>alert('x')</script> $\\frac$ & \"quoted\" [red] a name of sixty"


def hostile():
    """A comparison whose every text tries to be markup."""
    results = comparison(3, failed=(2,))
    failure = Failure(
        candidate=HOSTILE, stage="tune", what="<b>lr</b>", error="<img src=x>" + "x" * 300
    )
    return Results.from_json(
        _replaced(replace(results, failures=[failure]).to_json(), "Transformer", HOSTILE)
    )


def _replaced(value, old, new):
    if isinstance(value, dict):
        return {key: _replaced(inner, old, new) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner, old, new) for inner in value]
    return value.replace(old, new) if isinstance(value, str) else value


RESULTS = {
    "four": lambda: comparison(4, failed=(3,)).to_json(),
    "one": lambda: comparison(1, seeds=(7,)).to_json(),
    "twelve": lambda: comparison(12).to_json(),
    "null": lambda: without_values().to_json(),
    "hostile": lambda: hostile().to_json(),
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
