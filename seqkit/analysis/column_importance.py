"""How much a trained model needs each column of a table of several columns: permutation importance.

n examples · r permutations · b bootstrap samples
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.nn.functional import cross_entropy

from seqkit.data.dataset import TokenizedDataset, collate_targets
from seqkit.data.inputs import schema_of
from seqkit.data.module import DataModule
from seqkit.data.tables.schema import CELLS, OF_CELLS
from seqkit.interfaces import IGNORE, TokenBatch, Tokens
from seqkit.objectives import Classify, Regress
from seqkit.runs.trained_model import TrainedModel
from seqkit.tokenizers.join import Join

NUM_PERMUTATIONS, NUM_BOOTSTRAP = 5, 1000

MAX_EXAMPLES = 500
"""Most test examples that are looked at, the first ones of the split."""

MAX_SECONDS = 20.0
"""After that time no further column is begun."""

BATCH_SIZE = 64


@dataclass(frozen=True)
class Importance:
    """By column, by how much loss or RMSE is higher with permuted cells, and the ends of a 95 % interval of that.

    metric: loss or RMSE with the true cells. num_examples: examples that were looked at. left_out: columns for
    which there was no time.
    """

    columns: dict[str, tuple[float, float, float]]
    metric: float
    num_examples: int
    left_out: list[str]


def column_importance(
    trained: TrainedModel, data: DataModule, *, max_seconds: float = MAX_SECONDS
) -> Importance | None:
    """Permutation importance of each column (Breiman 2001), largest first: of classes in nats of the loss, which sees
    what changes no likeliest class; of a number in RMSE.

    The cells of one column, gaps among them, are permuted among the test examples, and the model predicts again. A row
    that would lose its last cell keeps it. The same seed draws the permutations each time. The interval is that of the
    bootstrap, over rows (over groups where rows have some) and permutations.
    None: the run is on no table of several columns, or learns neither classes nor one number.
    """
    tokenizer, objective, source = trained.tokenizer, trained.objective, trained.config["data"].get("source")
    schema = schema_of(trained.config)
    kinds = {} if schema is None else {column.name: column.kind for column in schema.inputs}
    columns, is_table = list(kinds), isinstance(source, Mapping) and "columns" in source
    is_known = isinstance(objective, Classify) or (isinstance(objective, Regress) and len(objective.mean) == 1)
    if not (isinstance(tokenizer, Join) and is_table and is_known):
        return None
    if getattr(objective, "level", "") != "sequence":
        return None
    examples, samples = data.test_dataloader().examples, data.splits().test
    if not isinstance(examples, TokenizedDataset) or len(columns) < 2:
        return None
    known = [i for i in range(min(len(samples), MAX_EXAMPLES)) if _is_known(examples.targets[i])]
    if len(known) < 2:
        return None
    rows = [_Row(tokenizer, samples[i].raw) for i in known]
    targets = [examples.targets[i] for i in known]

    def scores(changed: Sequence[_Row]) -> np.ndarray:
        return _scores(trained, [row.tokens(trained) for row in changed], targets)

    started, right = time.monotonic(), scores(rows)
    weights = _resampled(samples.groups, known)
    found: dict[str, tuple[float, float, float]] = {}
    for place, column in enumerate(columns):
        if time.monotonic() - started > max_seconds:
            break
        orders = [np.random.default_rng((0, place, i)).permutation(len(rows)) for i in range(NUM_PERMUTATIONS)]
        wrong = np.stack([scores(_permuted(rows, column, kinds[column], order)) for order in orders])
        found[column] = _worse(right, wrong, weights, is_root=isinstance(objective, Regress))
    ordered = dict(sorted(found.items(), key=lambda one: -one[1][0]))
    metric = float(np.sqrt(right.mean()) if isinstance(objective, Regress) else right.mean())
    return Importance(ordered, metric, len(rows), [name for name in columns if name not in found])


class _Row:
    """A row as the tokens of its parts, and as its cells, which are encoded again if one of them changes."""

    def __init__(self, tokenizer: Join, raw: Mapping[str, Any]):
        self.columns = {name: tokenizer.reads.get(name, name) for name in tokenizer.parts}
        self.cells: dict[str, Any] = dict(raw.get(CELLS, {}))
        self.parts = {
            self.columns[name]: tokenizer.parts[name].encode(part)
            for name, part in tokenizer.runs(raw)
            if self.columns[name] != CELLS
        }

    def with_cell(self, column: str, kind: str, other: _Row) -> _Row:
        """The row with the other's cell in a column; as it is, if no cell would be left."""
        new = _Row.__new__(_Row)
        new.columns, new.cells, new.parts = self.columns, dict(self.cells), dict(self.parts)
        mine, theirs = (new.cells, other.cells) if kind in OF_CELLS else (new.parts, other.parts)
        mine.pop(column, None)
        if column in theirs:
            mine[column] = theirs[column]
        return new if new.cells or new.parts else self

    def tokens(self, trained: TrainedModel) -> Tokens:
        """The joined tokens, as the run's data has them."""
        tokenizer: Any = trained.tokenizer
        runs = []
        for name, column in self.columns.items():
            if column == CELLS and self.cells:
                runs.append((name, tokenizer.parts[name].encode(self.cells)))
            elif column in self.parts:
                runs.append((name, self.parts[column]))
        joined: Tokens = tokenizer.spec.join(runs, runs_on=False)
        most = trained.config["data"].get("max_tokens")
        return joined if most is None else tokenizer.cut(joined, most)


def _permuted(rows: Sequence[_Row], column: str, kind: str, order: np.ndarray) -> list[_Row]:
    return [row.with_cell(column, kind, rows[other]) for row, other in zip(rows, order.tolist())]


def _is_known(target: Any) -> bool:
    """Whether an example has a target: a class of training, or a number."""
    return bool(target != IGNORE) if isinstance(target, int) else bool(np.isfinite(np.asarray(target)).all())


def _scores(trained: TrainedModel, tokens: Sequence[Tokens], targets: Sequence[Any]) -> np.ndarray:
    """[n]: of classes, the cross-entropy in nats; of numbers, the squared error."""
    found: list[float] = []
    for start in range(0, len(tokens), BATCH_SIZE):
        here = slice(start, start + BATCH_SIZE)
        label = collate_targets(targets[here])
        assert label is not None
        prediction = trained.predictor.step(trained.objective, (TokenBatch.collate(tokens[here]), label)).prediction
        assert prediction is not None
        if not isinstance(trained.objective, Regress):
            found += cross_entropy(prediction.double(), label, reduction="none").tolist()
        else:
            numbers = zip(trained.objective.decode(prediction), trained.objective.in_unit(label).reshape(-1).tolist())
            found += [(number - right) ** 2 for number, right in numbers]
    return np.array(found)


def _resampled(groups: Sequence[str | None] | None, known: Sequence[int]) -> np.ndarray:
    """[b n]: how often each example is in each bootstrap sample; those of a group are in it together."""
    names = [str(i) if groups is None or (group := groups[i]) is None else f"group {group}" for i in known]
    _, unit = np.unique(names, return_inverse=True)
    number = int(unit.max()) + 1
    counts = np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), size=NUM_BOOTSTRAP)
    return np.asarray(counts[:, unit], dtype=float)


def _worse(right: np.ndarray, wrong: np.ndarray, weights: np.ndarray, *, is_root: bool) -> tuple[float, float, float]:
    """By how much the mean of scores [r n], or its root, is above that of [n], and the bootstrap's 95 % interval."""

    def metric(mean: np.ndarray) -> np.ndarray:
        return np.sqrt(mean) if is_root else mean

    total = weights.sum(axis=1)
    before = metric(weights @ right / total)
    after = metric(weights @ wrong.T / total[:, None])
    drawn = np.random.default_rng(1).integers(len(wrong), size=after.shape)
    low, high = np.quantile(np.take_along_axis(after, drawn, axis=1).mean(axis=1) - before, (0.025, 0.975))
    worse = metric(wrong.mean(axis=1)).mean() - metric(right.mean())
    rounding = 1e-9 * float(np.abs(after).max())
    found = [0.0 if abs(x) <= rounding else float(x) for x in (worse, low, high)]
    return found[0], found[1], found[2]
