"""Recipes: YAML files of parts by name, found beside the package, read as plain dictionaries. Data, never code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from seqkit.registry import parts, registered_paths, suggest

NAMED = {
    "tokenizer": "tokenizer",
    "data.source": "source",
    "model.backbone": "backbone",
    "model.backbone.encoder": "backbone",
    "model.backbone.decoder": "backbone",
    "model.objective": "objective",
    "model.objective.target": "tokenizer",
    "model.position": "position",
    "optimizer": "optimizer",
    "optimizer.adamw": "optimizer",
    "schedule": "schedule",
}
"""Configuration keys whose value is a part, and its kind."""

TRUSTED = (
    *("seqkit.backbones", "seqkit.data", "seqkit.layers", "seqkit.objectives", "seqkit.optim", "seqkit.tokenizers"),
    "seqkit.presets",
    *("torch.nn", "torch._C._nn", "torch.optim", "torchvision.transforms", "torchaudio.transforms", "timm.layers"),
    *("pytorch_lightning.strategies", "pytorch_lightning.accelerators"),
)
"""Where the parts that a recipe may name stand. Not whole packages: they hold loaders, writers and compilers too."""

UNTRUSTED = ("seqkit.data.download", "seqkit.data.espeak", "seqkit.data.speech")
"""Except these, which write files or start processes."""


class UsageError(ValueError):
    """The command, a key or a name is wrong: exit code 2."""


def recipe_folder() -> Path:
    """Where the recipes are: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    return package / "_recipes" if (package / "_recipes").is_dir() else package.parent / "recipes"


def recipe_names() -> list[str]:
    """Names such as `text/char-lm`."""
    folder = recipe_folder()
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.glob("*/*.yaml"))


def find_recipe(name: str) -> tuple[str, Path]:
    """A recipe's name and file, given its name or a path. Raises UsageError with the nearest names."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise UsageError(
                f"there is no recipe file {name}; give a path to a YAML file or one of: {', '.join(recipe_names())}"
            )
        return path.stem, path
    if name in recipe_names():
        return name, recipe_folder() / f"{name}.yaml"
    raise UsageError(f"there is no recipe called {name!r}; {suggest(name, recipe_names())}")


def read_recipe(name: str, preset: str | None = None) -> dict[str, Any]:
    """A recipe as a plain dictionary, its preset merged in, its parts' names made class paths.

    Raises UsageError where the file is not a YAML mapping, or the preset is not there.
    """
    title, path = find_recipe(name)
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = " ".join(str(error).split())
        raise UsageError(f"{path} is not readable as YAML: {where}") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path} should hold `key: value` lines, but holds {type(config).__name__}")
    presets = config.pop("presets", None) or {}
    if not isinstance(presets, dict) or not all(isinstance(keys, dict) for keys in presets.values()):
        raise UsageError(f"{path}: presets should hold a name and its keys each, such as debug: {{seed: 2}}")
    if preset is not None:
        if preset not in presets:
            raise UsageError(
                f"recipe {name} has no preset {preset!r}; {suggest(preset, presets) if presets else 'it has none'}"
            )
        config = _merged(_resolved(config), _resolved(presets[preset]))
    called = config.setdefault("recipe", title)
    # it names the folder of the run, so it must not lead out of `runs`
    if not isinstance(called, str) or not called or Path(called).is_absolute() or ".." in Path(called).parts:
        raise UsageError(f"{path}: recipe is {called!r}; give a name such as text/mine, which is its folder in runs")
    return _resolved(config)


def _merged(base: Any, over: Any) -> Any:
    """`over` on top of `base`; a part of another class replaces, the same class keeps its other arguments."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    if "class_path" in base and over.get("class_path", base["class_path"]) != base["class_path"]:
        return over
    return {
        key: _merged(base[key], over[key]) if key in base and key in over else over.get(key, base.get(key))
        for key in {**base, **over}
    }


def _resolved(config: dict[str, Any]) -> dict[str, Any]:
    """The same with registered names as class paths."""

    def walk(value: Any, key: str) -> Any:
        if isinstance(value, str) and key in NAMED:
            return {"class_path": class_path(NAMED[key], value)}
        if not isinstance(value, dict):
            return value
        if key in NAMED and isinstance(value.get("class_path"), str):
            value = value | {"class_path": class_path(NAMED[key], value["class_path"])}
        if "class_path" in value:
            arguments = value.get("init_args") or {}
            if not isinstance(arguments, dict):
                raise UsageError(f"{key}: init_args is {arguments!r}; it should hold `name: value` pairs")
            return (
                value | {"init_args": {k: walk(v, f"{key}.{k}") for k, v in arguments.items()}} if arguments else value
            )
        return {k: walk(v, f"{key}.{k}".lstrip(".")) for k, v in value.items()}

    return walk(config, "")


def class_path(kind: str, name: str) -> str:
    """A registered name (a backbone's may be a preset's) as a class path; a dotted path stays.

    Raises UsageError with the nearest names.
    """
    if "." in name:
        return name
    known = parts(kind) | (parts("preset") if kind == "backbone" else {})
    spelled = {known_name.lower(): known_name for known_name in known}
    if name.lower() not in spelled:
        raise UsageError(f"there is no {kind} called {name!r}; {suggest(name, known)}")
    return known[spelled[name.lower()]].class_path


def check_trusted(config: Any) -> None:
    """Raise UsageError for a class path outside what recipes may name: a YAML file is data, not code."""

    def walk(value: Any) -> None:
        if isinstance(value, dict) and "class_path" in value:
            path = value["class_path"]
            if not isinstance(path, str):
                raise UsageError(f"class_path is {path!r}; it should be a name (seqkit list)")
            if not is_trusted(path):
                raise UsageError(refusal(path))
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(inner)

    walk(config)


def is_trusted(path: str) -> bool:
    """True: a recipe may name this class path."""
    # in this order: what is registered is asked of all installed packages, which takes a tenth of a second
    return (_under(path, TRUSTED) and not _under(path, UNTRUSTED)) or path in registered_paths()


def refusal(path: str) -> str:
    """What to say of a path that no recipe may name."""
    return (
        f"the recipe names {path}, which is neither seqkit's nor a registered plug-in; "
        "install its package, or name its file with --plugin if you trust it"
    )


def _under(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root}.") for root in roots)
