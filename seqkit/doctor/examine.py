"""All checks of a model and its data; a fault may explain those that are found after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from seqkit.doctor.findings import Result, faulty, not_applicable
from seqkit.doctor.labels import check_labels
from seqkit.doctor.laws import check_future, check_padding, check_positions, check_target
from seqkit.doctor.runs import check_curve, check_trained_weights
from seqkit.doctor.subject import Subject, subject_of
from seqkit.doctor.tokens import check_embeddings, check_inputs, check_tokens
from seqkit.doctor.training import (
    Trials,
    check_gradients,
    check_learning_rate,
    check_overfitting,
    check_start,
    check_trained_parameters,
)
from seqkit.errors import DataError, UsageError, one_line, shortened
from seqkit.progress import track

MODEL_AND_DATA_CHECKS: dict[str, Callable[[Subject], Result]] = {
    "tokens": check_tokens, "inputs": check_inputs, "embeddings": check_embeddings, "labels": check_labels,
    "padding": check_padding, "future": check_future, "target": check_target, "positions": check_positions,
}  # fmt: skip
TRAINING_CHECKS: dict[str, Callable[[Trials], Result]] = {
    "initial loss": check_start, "trained layers": check_trained_parameters, "learning rate": check_learning_rate,
    "gradients": check_gradients, "overfitting": check_overfitting,
}  # fmt: skip
RUN_CHECKS: dict[str, Callable[[Subject], Result]] = {
    "trained weights": check_trained_weights, "learning curve": check_curve,
}  # fmt: skip


def examine(config: Mapping[str, Any], run: Path | None = None) -> list[Result]:
    """Results of all checks of a complete configuration, and of the run in the folder `run`.

    Raises DataError or UsageError if the data cannot be read or the model cannot be built.
    """
    subject = subject_of(config, run)
    checks = {name: partial(check, subject) for name, check in MODEL_AND_DATA_CHECKS.items()}
    trials = Trials(subject)
    if trials.num_steps:
        checks |= {name: partial(check, trials) for name, check in TRAINING_CHECKS.items()}
    else:
        why = "steps of this model cost too much to try them here"
        checks["training"] = partial(not_applicable, why)
    if run is not None:
        checks |= {name: partial(check, subject) for name, check in RUN_CHECKS.items()}
    named = track(checks.items(), "examining", len(checks))
    return [replace(_result(check), name=name) for name, check in named]


def _result(check: Callable[[], Result]) -> Result:
    """The result of a check; an error in it, raised by the user's own component, is a finding."""
    try:
        return check()
    except (DataError, UsageError):
        raise
    except Exception as error:
        problem = f"the check ends with {type(error).__name__}: {shortened(one_line(error))}"
        fix = "--model, --data or --tokenizer: mend the component that raises it"
        return faulty(problem, "a component fails in this check", fix)
