"""From a recipe and dotted overrides to built parts. jsonargparse does the work.

Order: file, then its preset, then `--key value`. A part may be given by its registered name (`backbone: LSTM`), by its
class path, or with arguments (`class_path` / `init_args`).
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from seqkit.messages import one_line
from seqkit.recipe import NAMED, TRUSTED, UNTRUSTED, UsageError, check_trusted, class_path, is_trusted
from seqkit.registry import find, registered_paths

SECTIONS = ("data", "model", "trainer")
"""Keys that hold keys; the others hold a value or a part."""


def parser(*, with_data: bool = True, prog: str = "seqkit fit RECIPE") -> Any:
    """The jsonargparse parser of all keys. with_data=False: only what a model needs (`tokenizer`, `model`)."""
    import pytorch_lightning as pl
    from jsonargparse import ArgumentParser, set_parsing_settings

    from seqkit.contract import Tokenizer
    from seqkit.model import Model
    from seqkit.optim import OptimizerPart, Schedule

    # jsonargparse looks at where a thing is defined, so a path such as seqkit.data.speech.subprocess.run is refused too
    own = [path.split(".")[0] for path in registered_paths()]
    allowed = [
        root for root in (*TRUSTED, *own) if all(word.isidentifier() for word in root.split(".")) and root != "seqkit"
    ]
    set_parsing_settings(import_path_denylist=["*", *UNTRUSTED], import_path_allowlist=allowed)
    p = ArgumentParser(
        prog=prog,
        exit_on_error=False,
        allow_abbrev=False,
        description="Every key of a recipe; give `--key value` to override it.",
    )
    p.add_argument("--config", action="config", help="(the recipe)")
    p.add_argument(
        "--tokenizer", type=Tokenizer, required=True, help="cuts raw examples into tokens (seqkit list tokenizers)"
    )
    p.add_class_arguments(Model, "model", skip={"spec"}, instantiate=False)
    if with_data:
        from seqkit.data.loader import Data

        p.add_argument("--recipe", type=str, default="", help="what the run is called")
        p.add_argument("--seed", type=int, default=1, help="of weights, order, hiding and dropout")
        p.add_class_arguments(Data, "data")
        p.add_argument("--optimizer", type=OptimizerPart, default={"class_path": "seqkit.optim.AdamW"})
        p.add_argument("--schedule", type=Schedule, default={"class_path": "seqkit.optim.Cosine"})
        skip = {
            "fast_dev_run",  # these four would measure on part of the test data without saying so
            "limit_test_batches",
            "limit_predict_batches",
            "overfit_batches",
            "logger",
            "callbacks",
            "default_root_dir",
            "enable_checkpointing",
            "plugins",
            "profiler",
            "model_registry",
        }
        skip &= set(inspect.signature(pl.Trainer.__init__).parameters)
        p.add_class_arguments(pl.Trainer, "trainer", instantiate=False, skip=skip)
        p.set_defaults(
            {"trainer.max_epochs": None, "trainer.enable_model_summary": False, "trainer.log_every_n_steps": 20}
        )
    return p


def parse(config: dict[str, Any], overrides: Sequence[str] = (), *, with_data: bool = True) -> Any:
    """A complete configuration (jsonargparse Namespace) from a dictionary and `--key value` words.

    Raises UsageError in one line, with the nearest key or name.
    """
    p = parser(with_data=with_data)
    nulls: list[str] = []  # said again as words: a null in a file jsonargparse takes for any type
    for section in SECTIONS:
        if not isinstance(config.get(section, {}), dict):
            raise UsageError(f"{section} is {config[section] or 'null'}; give keys with a value each")
        nulls += [f"--{section}.{key}=null" for key, value in config.get(section, {}).items() if value is None]
    check_trusted(config)
    config = _with_own_defaults(config)
    words = [*nulls, *_resolved_words(overrides)]
    from jsonargparse import ArgumentError

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "recipe.yaml")
        file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        try:
            full = p.parse_args(["--config", str(file), *words])
        except (ArgumentError, TypeError, ValueError) as error:
            raise UsageError(one_line(str(error), p, config)) from None
    full.pop("config", None)
    check_trusted(full.as_dict())
    return full


def _with_own_defaults(value: Any) -> Any:
    """A configuration in which every class that it names has its own defaults written out.

    Left to itself, jsonargparse gives it those of the class that stood there by default, wherever names agree: GatedMLP
    would get the GELU and the biases of MLP.
    """
    if isinstance(value, list):
        return [_with_own_defaults(item) for item in value]
    if isinstance(value, str) and _class(value) is not None:
        value = {"class_path": value}
    if not isinstance(value, dict):
        return value
    value = {key: item if key == "class_path" else _with_own_defaults(item) for key, item in value.items()}
    cls = _class(value.get("class_path"))
    if cls is None:
        return value
    own: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        default = parameter.default
        if inspect.isclass(default) and default is not inspect.Parameter.empty:
            own[name] = _with_own_defaults(f"{default.__module__}.{default.__qualname__}")
        elif default is None or isinstance(default, bool | int | float | str):
            own[name] = default
    return {**value, "init_args": {**own, **(value.get("init_args") or {})}}


def _class(path: Any) -> type | None:
    """The class of a trusted dotted path, or None."""
    module, _, name = path.rpartition(".") if isinstance(path, str) else ("", "", "")
    if not module or not is_trusted(path):
        return None
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return None
    return found if inspect.isclass(found) else None


def dump(config: Any, *, with_data: bool = True) -> str:
    """A configuration as YAML, every default written out."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*Unable to serialize.*")
        try:
            return parser(with_data=with_data).dump(config, skip_validation=True)
        except UserWarning as warning:
            raise UsageError(f"{warning}; give it in a form that YAML can hold") from None


def instantiate(config: Any, *, with_data: bool = True) -> Any:
    """The parts that a configuration names, built; `model` stays a namespace until the tokenizer's spec is known.

    Raises UsageError where a part refuses its arguments.
    """
    try:
        return parser(with_data=with_data).instantiate(config)
    except TypeError as error:
        raise UsageError(" ".join(str(error).split())) from error


def _resolved_words(words: Sequence[str]) -> Iterator[str]:
    """`--model.backbone LSTM` → `--model.backbone seqkit.backbones.recurrent.LSTM`."""
    key = ""
    for word in words:
        if word.startswith("--"):
            key, is_pair, value = word[2:].partition("=")
            key = key.replace(".init_args", "")
            yield f"--{key}={_value(key, value)}" if is_pair else f"--{key}"
        else:
            yield _value(key, word)


def _value(key: str, value: str) -> str:
    if key.removesuffix(".class_path") not in NAMED or value in ("null", "None") or value[:1] in "{[":
        return value
    kind = NAMED[key.removesuffix(".class_path")]
    if kind == "source" and Path(value).exists():
        return yaml.safe_dump(_source_for(Path(value)), default_flow_style=True).strip()
    if kind == "source" and ("/" in value or Path(value).suffix.lower() in (".txt", ".csv", ".md")):
        raise UsageError(f"--data.source {value}: there is no such file or folder")
    return class_path(kind, value)


def _source_for(path: Path) -> dict[str, Any]:
    """The source that reads a user's own file or folder, judged by what is in it. Raises UsageError if nothing fits."""
    from seqkit.data.files import AUDIO_SUFFIXES, IMAGE_SUFFIXES

    files = [p for p in sorted(path.rglob("*")) if p.is_file()] if path.is_dir() else [path]
    text, table = (".txt", ".md"), (".csv",)
    in_folders = {"AudioFolder": AUDIO_SUFFIXES, "ImageFolder": IMAGE_SUFFIXES, "TextFiles": text}
    for name, suffixes in (in_folders if path.is_dir() else {"SmilesTable": table, "TextFiles": text}).items():
        fitting = [str(p) for p in files if p.suffix.lower() in suffixes]
        if fitting:
            given = fitting if name == "TextFiles" else str(path)
            return {"class_path": find("source", name).class_path, "init_args": {"path": given}}
    raise UsageError(f"{path} holds neither text, nor images or sounds in folders by class, nor a CSV of molecules")
