"""A training and the laws that its model breaks: it refuses, or says so from then on."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Sequence

from seqkit.data.batching import BatchDataset
from seqkit.errors import UsageError, described, is_out_of_memory
from seqkit.interfaces import LabeledBatch, Objective, PredictionObjective
from seqkit.model import Model
from seqkit.registry.lookup import registered
from seqkit.runs.examined.given import a_few, given_examples
from seqkit.runs.examined.laws import broken_laws, farthest, longest
from seqkit.runs.examined.targets import labels_reach_inputs, predicts_next, target_is_input
from seqkit.runs.prepare import Prepared
from seqkit.testing.process import seeded

log = logging.getLogger("seqkit")

KEY = "allow_broken_laws"
"""Key of the trainer's settings with which a model trains that breaks a law."""


def examined(prepared: Prepared) -> list[str]:
    """Sentences on the laws that the model of a run breaks, or those of its tasks.

    Raises UsageError for one that breaks a law where the trainer's settings do not allow it.
    """
    return allowed(faults_of_tasks(prepared), is_allowed=prepared.built.trainer[KEY])


def grown(prepared: Prepared) -> list[str]:
    """Sentences on the laws that a trained model breaks: what began too small to be seen may have grown.

    A model of nothing but what comes with seqkit is not looked at: tests/laws has its components with larger weights.
    """
    if not registered():
        return []
    return [f"{line} after training" for line in faults_of_tasks(prepared)]


def faults_of_tasks(prepared: Prepared) -> list[str]:
    """Sentences on the laws that the model of a run breaks, or those of its tasks, whose names stand before them."""
    tasks = prepared.tasks or {"": prepared}
    found = []
    for name, task in tasks.items():
        where = f"tasks.{name}: " if name else ""
        examples = task.data.train_dataloader().examples
        lines = faults(task.model, task.data.objective, examples)
        found += [f"{where}{line}" for line in lines]
    return found


def allowed(faults: Sequence[str], *, is_allowed: bool) -> list[str]:
    """The sentences on broken laws. Raises UsageError with the first of them where they are not allowed."""
    if faults and not is_allowed:
        others = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise UsageError(
            f"{faults[0]}{others}; mend it, or train it all the same with --allow-broken-laws"
        )
    return list(faults)


def faults(model: Model, objective: Objective, examples: BatchDataset) -> list[str]:
    """Sentences on the laws that a model breaks on a few training examples; model and random numbers stay as they are.

    One that does not run here, such as a kernel that needs a GPU, is not examined, and the log says so.
    Raises DataError for an example that cannot be encoded, as the first step would.
    """
    batch = a_few(examples)
    if any(p.device.type != "cpu" for p in model.parameters()):  # one that was trained there
        model = copy.deepcopy(model).cpu()
    try:
        return list(_faults(model, objective, batch))
    except Exception as error:  # a plug-in's own code, whatever it raises: the first step shows it
        if is_out_of_memory(error):
            raise
        name = type(model.backbone).__name__
        log.info("the laws of %s were not examined (%s)", name, described(error))
        return []


def _faults(model: Model, objective: Objective, batch: LabeledBatch) -> Iterator[str]:
    is_causal = bool(model.causal)
    if isinstance(objective, PredictionObjective) and labels_reach_inputs(objective, batch):
        law = f"{type(objective).__name__} breaks the law that labels reach the loss alone"
        yield f"{law}: other labels change what the model gets"
    if isinstance(objective, PredictionObjective) and not objective.needs_labels:
        with seeded(0):
            inputs = objective.prepare(*batch)
        is_causal |= predicts_next(inputs)
        if inputs.masked is None and target_is_input(inputs):
            law = (
                f"{type(objective).__name__} breaks the law that the target is not among the inputs"
            )
            yield f"{law}: what it predicts of each token is an input of that token"
    known = set()
    for rows in given_examples(model, objective, batch, longest(model)):
        for one in broken_laws(model, rows, is_causal=is_causal):
            if (one.law, one.module) not in known:
                known.add((one.law, one.module))
                yield str(one)
    if known or not is_causal:
        return
    for rows in given_examples(model, objective, batch, farthest(model)):
        if len(rows[0].tokens) > longest(model):
            yield from map(str, broken_laws(model, rows[:1], is_causal=True, is_far=True))
