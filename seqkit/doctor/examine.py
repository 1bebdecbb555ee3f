"""All checks of a model and its data; a fault may explain those that are found after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

MODEL_AND_DATA_CHECKS: tuple[Callable[[Subject], Result], ...] = (
    check_tokens, check_inputs, check_embeddings, check_labels,
    check_padding, check_future, check_target, check_positions,
)  # fmt: skip
TRAINING_CHECKS: tuple[Callable[[Trials], Result], ...] = (
    check_start, check_trained_parameters, check_learning_rate, check_gradients, check_overfitting,
)  # fmt: skip
RUN_CHECKS: tuple[Callable[[Subject], Result], ...] = (check_trained_weights, check_curve)


def examine(config: Mapping[str, Any], run: Path | None = None) -> list[Result]:
    """Results of all checks of a complete configuration, and of the run in the folder `run`.

    Raises DataError or UsageError if the data cannot be read or the model cannot be built.
    """
    subject = subject_of(config, run)
    checks = [partial(check, subject) for check in MODEL_AND_DATA_CHECKS]
    if (trials := Trials(subject)).num_steps:
        checks += [partial(check, trials) for check in TRAINING_CHECKS]
    else:
        checks.append(
            partial(
                not_applicable, "training", "steps of this model cost too much to try them here"
            )
        )
    checks += [partial(check, subject) for check in RUN_CHECKS if run is not None]
    return [_result(check) for check in track(checks, "examining", len(checks))]


def _result(check: partial[Result]) -> Result:
    """The result of a check; an error in it, raised by the user's own component, is a finding."""
    try:
        return check()
    except (DataError, UsageError):
        raise
    except Exception as error:
        name = check.func.__name__.removeprefix("check_").replace("_", " ")
        problem = f"the check ends with {type(error).__name__}: {shortened(one_line(error))}"
        fix = "--model, --data or --tokenizer: mend the component that raises it"
        return faulty(name, problem, "a component fails in this check", fix)
