"""A model card, `README.md`, from the files of a run: what is known of the model, and what is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup

from seqkit.data.formats import OF_KIND, OF_TOKENIZER
from seqkit.errors import UsageError, printable
from seqkit.files import read_mapping, to_yaml
from seqkit.pretrained.hub import parsed
from seqkit.registry import components
from seqkit.report.headline import cautions, split_sizes
from seqkit.report.templates import fill, tidied
from seqkit.runs.exported import without_folders
from seqkit.runs.folder import CONFIG, STATE
from seqkit.runs.summary import check_trained, data_name, read_summary

MODALITIES = {
    **{name: known.kind for name, known in OF_TOKENIZER.items()},
    "Graph": "graph", "Molecule": "graph", "Cells": "tabular",
}  # fmt: skip
"""Kind of input by the name of the tokenizer, as the hub speaks of it."""

CLASSES = ("Classify", "MultiLabel")
PIPELINES = {
    **{
        (each, kind): f"{kind}-classification" for each in CLASSES for kind in (*OF_KIND, "tabular")
    },
    **{(each, "graph"): "graph-ml" for each in (*CLASSES, "Regress")},
    ("Regress", "tabular"): "tabular-regression",
    ("NextToken", "text"): "text-generation",
    ("Masked", "text"): "fill-mask",
    ("Features", "text"): "feature-extraction",
}
"""Task of the hub (`pipeline_tag`) by objective and kind of input; a model of another pair has none."""

AUTO = {
    "text-classification": "ForSequenceClassification", "token-classification": "ForTokenClassification",
    "fill-mask": "ForMaskedLM", "text-generation": "ForCausalLM",
}  # fmt: skip
"""End of the name of transformers' class that loads a model with its head, `AutoModel…`, by task of the hub."""


def card(
    run: Path,
    *,
    library: Literal["seqkit", "transformers"] = "seqkit",
    missing_head: str | None = None,
) -> str:
    """Text of the `README.md` of a run: metadata of the hub as YAML, then what is known as Markdown.

    library: which one loads the folder that the card goes into. missing_head: None: the folder has the head of the
    objective; else it has not, and a sentence on how it would: the card is then that of an encoder.
    All facts are from `summary.json`, `state.json` and `config.yaml`. The license is `unknown`, and what the model is
    for is not guessed. Texts of the run are shown as text, whatever marks they hold, and paths without their folders.
    Raises UsageError for a folder that is no trained run, or is a mixture; DataError if a file is damaged.
    """
    check_trained(run)
    if "tasks" in read_mapping(run / CONFIG):
        raise UsageError(
            f"{run} is a mixture of tasks; give the folder of one of them, below {run / 'tasks'}"
        )
    config = read_mapping(run / CONFIG, "tokenizer", "model")
    summary = read_summary(run)
    if library == "transformers":
        summary = summary.of_network
    section = config["model"].get("objective") if isinstance(config["model"], Mapping) else None
    objective = str(summary.get("objective") or _name(section))
    tokenizer = _name(config["tokenizer"])
    modality = MODALITIES.get(tokenizer, "")
    task = PIPELINES.get((objective, modality))
    is_of_tokens = isinstance(section, Mapping) and section.get("level") == "token"
    if missing_head is not None:
        task = "image-feature-extraction" if modality == "image" else "feature-extraction"
    elif task == "text-classification" and is_of_tokens:
        task = "token-classification"
    source = str(dict(summary.get("initial") or {}).get("run", ""))
    base = ""
    with suppress(UsageError):  # a path
        base = parsed(source)[0]
    shown = printable(to_yaml(without_folders(config)).strip())
    fence = "`" * max([3, *(1 + len(each) for each in re.findall("`+", shown))])
    known = {one.name: one.what for one in components("objective").values()}
    missing = (
        "joined",
        "strong_baseline",
        "date",
        "weights",
        "split_rule",
        "data_sha256",
        "baseline",
    )
    text = fill(
        "card.md",
        summary={**dict.fromkeys(missing), **summary},
        origin=source if base else Path(source).name,
        what=known.get(objective, ""),
        tokenizer=tokenizer,
        modality=modality,
        data=str(summary.get("data") or data_name(config)),
        counts=split_sizes(summary),
        objective=objective,
        is_classifier=objective in CLASSES,
        classes=_classes(read_mapping(run / STATE)),
        cautions=cautions(summary) if summary["metrics"] else [],
        missing_head=missing_head,
        library=library,
        auto=AUTO.get(task or "", ""),
        fence=Markup(fence),  # noqa: S704 - backticks
        config=Markup(shown),  # noqa: S704 - in a code block
    )
    metadata = {"library_name": library, "license": "unknown", "tags": ["seqkit"]}
    if task is not None:
        metadata["pipeline_tag"] = task
    if base:
        metadata["base_model"] = base
    return f"---\n{to_yaml(metadata)}---\n\n{tidied(text)}"


def _classes(state: Mapping[str, object]) -> list[str]:
    """Names of the classes of a run."""
    own = state.get("objective")
    names = own.get("names") if isinstance(own, Mapping) else None
    return [*map(str, names)] if isinstance(names, list) else []


def _name(section: Any) -> str:
    """Name of a component in a configuration."""
    if isinstance(section, Mapping):
        section = section.get("type")
    return str(section or "")
