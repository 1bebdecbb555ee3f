"""A model card, `README.md`, from the files of a run: what is known of the model, and what is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup

from seqkit.errors import UsageError, one_line, printable, shortened
from seqkit.files import read_mapping, to_yaml
from seqkit.pretrained.hub import parsed
from seqkit.registry import components
from seqkit.report.headline import cautions, format_metric, is_trial, metric_label
from seqkit.report.numbers import finite
from seqkit.report.templates import fill
from seqkit.runs.exported import without_folders
from seqkit.runs.folder import CONFIG, STATE
from seqkit.runs.listing import data_name
from seqkit.runs.summary import check_trained, read_summary

MODALITIES = {
    **dict.fromkeys(("Bytes", "Characters", "Words", "BPE", "FromFile"), "text"),
    **dict.fromkeys(("LogMel", "MelPatches", "SampleWindows", "WhisperMel"), "audio"),
    "Patches": "image", "Graph": "graph", "Molecule": "graph", "Cells": "tabular",
}  # fmt: skip
"""Kind of input by the name of the tokenizer, as the hub speaks of it."""

CLASSES = ("Classify", "MultiLabel")
PIPELINES = {
    **{(each, kind): f"{kind}-classification" for each in CLASSES for kind in ("text", "image", "audio", "tabular")},
    **{(each, "graph"): "graph-ml" for each in (*CLASSES, "Regress")},
    ("Regress", "tabular"): "tabular-regression",
    ("NextToken", "text"): "text-generation",
    ("Masked", "text"): "fill-mask",
    ("Features", "text"): "feature-extraction",
}
"""Task of the hub (`pipeline_tag`) by objective and kind of input; a model of another pair has none."""

MAX_CLASSES = 20
"""Most classes whose names a card lists."""

AUTO = {
    "text-classification": "SequenceClassification", "token-classification": "TokenClassification",
    "fill-mask": "MaskedLM", "text-generation": "CausalLM",
}  # fmt: skip
"""Class of transformers that loads a model with its head, behind `AutoModelFor`, by task of the hub."""

CODE = {
    "seqkit": (
        "import seqkit\n\n# the folder of these files, by: hf download OWNER/NAME --local-dir FOLDER\n"
        'model = seqkit.load("FOLDER")'
    ),
    "transformers": (
        'from transformers import AutoModel, AutoTokenizer\n\ntokenizer = AutoTokenizer.from_pretrained("OWNER/NAME")\n'
        'model = AutoModel.from_pretrained("OWNER/NAME")'
    ),
}
"""How each library loads the folder that the card is in."""


def card(run: Path, *, library: Literal["seqkit", "transformers"] = "seqkit", missing_head: str | None = None) -> str:
    """Text of the `README.md` of a run: metadata of the hub as YAML, then what is known as Markdown.

    library: which one loads the folder that the card goes into. missing_head: None: the folder has the head of the
    objective; else it has not, and a sentence on how it would: the card is then that of an encoder.
    All facts are from `summary.json`, `state.json` and `config.yaml`. The license is `unknown`, and what the model is
    for is not guessed. Texts of the run are shown as text, whatever marks they hold, and paths without their folders.
    Raises UsageError for a folder that is no trained run, or is a mixture; DataError if a file is damaged.
    """
    check_trained(run)
    config = read_mapping(run / CONFIG)
    if "tasks" in config:
        raise UsageError(f"{run} is a mixture of tasks; give the folder of one of them, below {run / 'tasks'}")
    read_mapping(run / CONFIG, "tokenizer", "model")
    summary = read_summary(run)
    facts = _Facts(config, summary, read_mapping(run / STATE), missing_head)
    auto = AUTO.get(facts.task or "")
    code = CODE[library] if auto is None else CODE[library].replace("AutoModel", f"AutoModelFor{auto}")
    shown = printable(to_yaml(without_folders(config)).strip())
    fence = "`" * max([3, *(1 + len(each) for each in re.findall("`+", shown))])
    text = fill(
        "card.md",
        title=facts.title,
        what=facts.what,
        data=facts.data,
        counts=facts.counts,
        rule=facts.rule,
        digests=sorted(summary.get("data_sha256", {}).items()),
        origin=facts.origin,
        rows=facts.rows,
        num_test=f"{summary['num_test']:,}" if "num_test" in summary else "",
        strong_name=summary.get("strong_baseline", {}).get("name", ""),
        cautions=cautions(summary) if facts.rows else [],
        missing_head=missing_head,
        objective=facts.objective,
        unmeasured=facts.unmeasured,
        use=facts.use,
        code=Markup(code),  # noqa: S704 - ours
        training=facts.training,
        is_trained=summary["steps"] > 0,
        versions=summary["versions"],
        fence=Markup(fence),  # noqa: S704 - backticks
        config=Markup(shown),  # noqa: S704 - in a code block
    )
    metadata = to_yaml(facts.metadata(library))
    return f"---\n{metadata}---\n\n" + re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


class _Facts:
    """Sentences of a card. config: of the run. summary: checked by `read_summary`. state: what `state.json` holds.

    missing_head: as of `card`.
    """

    def __init__(
        self, config: Mapping[str, Any], summary: Mapping[str, Any], state: Mapping[str, Any], missing_head: str | None
    ):
        self.config, self.summary, self.missing_head = config, summary, missing_head
        model = config["model"] if isinstance(config["model"], Mapping) else {}
        self.objective = str(summary.get("objective") or _name(model.get("objective")))
        self.level = model["objective"].get("level") if isinstance(model.get("objective"), Mapping) else None
        self.tokenizer = _name(config["tokenizer"])
        self.modality = MODALITIES.get(self.tokenizer)
        own = state.get("objective")
        names = own.get("names") if isinstance(own, Mapping) else None
        self.classes = [str(name) for name in names] if isinstance(names, list) and missing_head is None else []
        initial = summary.get("initial")
        source = str(initial.get("run", "")) if isinstance(initial, Mapping) else ""
        self.base = ""
        with suppress(UsageError):  # a path
            self.base = parsed(source)[0]
        self.origin = source if self.base else Path(source).name

    @property
    def title(self) -> str:
        """The recipe, with the model that it began with where nothing was trained."""
        return self.origin if self.summary["steps"] == 0 and self.origin else self.summary["recipe"]

    @property
    def data(self) -> str:
        """Name of the data: a file without its folder, or a data source."""
        return str(self.summary.get("data") or data_name(self.config))

    @property
    def counts(self) -> str:
        """Number of examples of each split."""
        names = (("num_train", "training"), ("num_valid", "validation"), ("num_test", "test"))
        return ", ".join(f"{self.summary[key]:,} {name}" for key, name in names if key in self.summary)

    @property
    def rule(self) -> str:
        """How the splits were made."""
        return str(self.summary.get("split_rule", "")).removesuffix(".")

    @property
    def what(self) -> str:
        """Sentence on what the model learnt to do, with its parts."""
        known = [each.what for each in components("objective").values() if each.name == self.objective]
        lines = [f"{self.summary['backbone']} with {self.summary['num_parameters']:,} parameters"]
        trained = self.summary.get("trained_parameters")
        lines[0] += f", of which {trained:,} trained" if isinstance(trained, int) else ""
        lines[0] += f". Input: {self.tokenizer}{f' ({self.modality})' if self.modality else ''}."
        lines.append(f"Objective: {self.objective}{f' ({known[0]})' if known else ''}.")
        return " ".join(lines)

    @property
    def use(self) -> str:
        """The classes that it tells apart, as far as they are few."""
        if not self.classes:
            return ""
        more = f" and {len(self.classes) - MAX_CLASSES:,} more" if len(self.classes) > MAX_CLASSES else ""
        return f"It answers with one of these: {', '.join(self.classes[:MAX_CLASSES])}{more}."

    @property
    def rows(self) -> list[dict[str, str]]:
        """Each metric of the test split beside its baselines."""
        if self.missing_head is not None:
            return []
        strong = self.summary.get("strong_baseline", {}).get("metrics", {})
        constant = self.summary.get("baseline", {})
        return [
            {
                "name": metric_label(self.summary, name),
                "value": format_metric(name, value),
                "baseline": format_metric(name, constant.get(name)),
                "strong": format_metric(name, strong.get(name)),
            }
            for name, value in self.summary["metrics"].items()
        ]

    @property
    def unmeasured(self) -> list[str]:
        """List of what a reader would look for, and does not find."""
        summary, found = self.summary, []
        if summary["steps"] > 0:
            found.append(
                f"How far another training would fall from these figures: there is one seed, {summary['seed']}."
            )
        if self.rows:
            found.append("Any data but this test split: other sources, languages, devices and times.")
            if "strong_baseline" not in summary:
                found.append("What a specialised method reaches on the same data: none was set beside it.")
            if self.objective in CLASSES and "calibration_error" not in summary["metrics"]:
                found.append("Calibration: whether its probabilities are shares of right answers.")
        if summary.get("unknown"):
            shares = (f"{n:,} of {all_:,} {split} tokens" for split, (n, all_) in summary["unknown"].items())
            found.append(f"Tokens that its vocabulary lacks share one id: {', '.join(shares)}.")
        return [*found, "Fairness between groups of people, and misuse."]

    @property
    def training(self) -> str:
        """Recipe, steps, time and weights."""
        summary = self.summary
        if summary["steps"] == 0:
            return f"Nothing was trained: the weights are those of {self.origin or 'another model'}."
        date = f" on {str(summary['date'])[:10]}" if "date" in summary else ""
        skipped = f" Weights: {summary['weights']}." if isinstance(summary.get("weights"), str) else ""
        return (
            f"Recipe {summary['recipe']}, seed {summary['seed']}: {summary['steps']:,} optimizer steps over "
            f"{summary['tokens_seen']:,} tokens in {summary['wall_seconds']:,.0f} s{date}.{skipped} SHA-256 of the "
            f"weights in the run: {summary['sha256']}."
        )

    @property
    def task(self) -> str | None:
        """Task of the hub; None: it has none for this model."""
        if self.missing_head is not None:
            return "image-feature-extraction" if self.modality == "image" else "feature-extraction"
        task = PIPELINES.get((self.objective, self.modality or ""))
        return "token-classification" if task == "text-classification" and self.level == "token" else task

    def metadata(self, library: str) -> dict[str, Any]:
        """Metadata of the hub. Results of a trial run are left out: they say nothing of the model."""
        task = self.task
        found: dict[str, Any] = {"library_name": library, "license": "unknown", "tags": ["seqkit"]}
        if task is not None:
            found["pipeline_tag"] = task
        if self.base:
            found["base_model"] = self.base
        metrics = {name: value for name, value in finite(self.summary["metrics"]).items() if value is not None}
        if metrics and self.missing_head is None and not is_trial(dict(self.summary)):
            name = _plain(self.data) or "unknown"
            slug = re.sub("[^a-z0-9._-]+", "-", name.lower()).strip("-.") or "unknown"
            result = {
                "task": {"type": task or "other", "name": _plain(self.objective)},
                "dataset": {"type": slug, "name": name, "split": "test"},
                "metrics": [{"type": _plain(each), "name": _plain(each), "value": metrics[each]} for each in metrics],
            }
            found["model-index"] = [{"name": _plain(self.title), "results": [result]}]
        return found


def _name(section: Any) -> str:
    """Name of a component in a configuration."""
    return str(section.get("type", "")) if isinstance(section, Mapping) else str(section or "")


def _plain(text: str) -> str:
    """A text of a run for metadata: a line of a size that a page shows."""
    return shortened(one_line(text), 200)
