"""How much a trained model needs each column of a table: permutation importance (Breiman 2001)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch.nn.functional import cross_entropy

from seqkit.data.dataset import TokenizedDataset, collate_targets
from seqkit.data.inputs import schema_of
from seqkit.data.module import DataModule
from seqkit.data.tables.schema import CELLS, OF_CELLS
from seqkit.interfaces import IGNORE, TokenBatch
from seqkit.objectives import Classify, Regress
from seqkit.runs.trained_model import TrainedModel
from seqkit.tokenizers.join import Join

NUM_PERMUTATIONS, MAX_EXAMPLES, BATCH_SIZE = 5, 200, 64
"""Permutations of each column, and most test examples that are looked at, the first ones of the split."""


class Importance(NamedTuple):
    """By column, by how much loss or RMSE is higher with permuted cells, the largest first.

    metric: loss or RMSE with the true cells. num_examples: examples that were looked at.
    """

    columns: dict[str, float]
    metric: float
    num_examples: int


def column_importance(trained: TrainedModel, data: DataModule) -> Importance | None:
    """Importance of each column: of classes in nats of the loss, of a number in RMSE.

    The cells of one column, gaps among them, are permuted among the test examples, and the model predicts again; a row
    that would lose its last cell keeps it. None: the run is on no table of several columns, or learns neither classes
    nor one number.
    """
    objective, source, schema = trained.objective, trained.config["data"].get("source"), schema_of(trained.config)
    kinds = {} if schema is None else {column.name: str(column.kind) for column in schema.inputs}
    is_known = isinstance(objective, Classify) or (isinstance(objective, Regress) and len(objective.mean) == 1)
    is_table = isinstance(trained.tokenizer, Join) and isinstance(source, Mapping) and "columns" in source
    examples, samples = data.test_dataloader().examples, data.splits().test
    if not (is_table and is_known and len(kinds) > 1 and getattr(objective, "level", "") == "sequence"):
        return None
    assert isinstance(examples, TokenizedDataset)
    known = [i for i in range(min(len(samples), MAX_EXAMPLES)) if _is_known(examples.targets[i])]
    if len(known) < 2:
        return None
    rows = [{**samples[i].raw.get(CELLS, {}), **samples[i].raw} for i in known]
    targets = [examples.targets[i] for i in known]
    right = _metric(trained, rows, targets, kinds)
    found = {}
    for place, column in enumerate(kinds):
        permuted = []
        for i in range(NUM_PERMUTATIONS):
            order = np.random.default_rng((0, place, i)).permutation(len(rows))
            changed = [{**row, column: rows[other].get(column)} for row, other in zip(rows, order.tolist())]
            kept = [new if any(new.get(name) is not None for name in kinds) else row for new, row in zip(changed, rows)]
            permuted.append(_metric(trained, kept, targets, kinds))
        found[column] = float(np.mean(permuted)) - right
    return Importance(dict(sorted(found.items(), key=lambda one: -one[1])), right, len(rows))


def _is_known(target: Any) -> bool:
    """Whether an example has a target: a class of training, or a number."""
    return bool(target != IGNORE) if isinstance(target, int) else bool(np.isfinite(np.asarray(target)).all())


def _metric(trained: TrainedModel, rows: Sequence[Any], targets: Sequence[Any], kinds: Mapping[str, str]) -> float:
    """Mean cross-entropy in nats, or RMSE, of rows of cells by column."""
    tokenizer, objective, most = trained.tokenizer, trained.objective, trained.config["data"].get("max_tokens")
    tokens = []
    for row in rows:
        parts = {name: row[name] for name, kind in kinds.items() if kind not in OF_CELLS and row.get(name) is not None}
        cells = {name: row[name] for name, kind in kinds.items() if kind in OF_CELLS and row.get(name) is not None}
        tokens.append(tokenizer.encode({**parts, CELLS: cells} if cells else parts))
    if most is not None:
        tokens = [tokenizer.cut(one, most) for one in tokens]
    scores: list[float] = []
    for start in range(0, len(tokens), BATCH_SIZE):
        label = collate_targets(targets[start : start + BATCH_SIZE])
        batch = TokenBatch.collate(tokens[start : start + BATCH_SIZE])
        prediction = trained.predictor.step(objective, (batch, label)).prediction
        assert label is not None
        assert prediction is not None
        if isinstance(objective, Regress):
            numbers = zip(objective.decode(prediction), objective.in_unit(label).reshape(-1).tolist())
            scores += [(number - right) ** 2 for number, right in numbers]
        else:
            scores += cross_entropy(prediction.double(), label, reduction="none").tolist()
    return float(np.mean(scores) ** (0.5 if isinstance(objective, Regress) else 1))
