"""Recipe files: YAML beside the package or the user's own, read as plain data, never code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from seqkit.data.formats import FORMATS
from seqkit.errors import DataError, UsageError
from seqkit.files import decoded, load_yaml, read_small, to_yaml
from seqkit.recipes import FOLDER
from seqkit.registry import suggest

__all__ = ["find_recipe", "load_yaml", "read_recipe", "recipe_folder", "recipe_names", "to_yaml"]

MAX_BYTES = 2**20
MAX_VALUES = 20_000
"""A recipe is a page of text; what is larger is something else."""

NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
"""A part of a recipe's name, or the whole: no part is an option, a hidden file, or `..`."""


def check_name(name: str) -> None:
    """Raise UsageError if a recipe's name, which is the folder of its runs, has other characters than are safe."""
    if (
        not all(re.fullmatch(NAME, part) and ".." not in part for part in name.split("/"))
        or len(name) > 200
    ):
        shown = repr(name) if len(name) <= 200 else f"{name[:200]!r}…"
        raise UsageError(
            f"recipe is {shown}; give a name of letters, digits, -, _, / and ., such as text/mine"
        )


def recipe_folder() -> Path:
    """Folder of the recipes: inside an installed package, or beside it in a checkout."""
    return FOLDER


def recipe_names() -> list[str]:
    """Names such as `text/char-lm`."""
    folder = recipe_folder()
    return sorted(
        path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*/*.yaml")
    )


def is_recipe(name: str) -> bool:
    """Whether a name, or a path of a YAML file, is a recipe's."""
    return name in recipe_names() or (name.endswith((".yaml", ".yml")) and Path(name).is_file())


def find_recipe(name: str) -> tuple[str, Path]:
    """A recipe's name and file, given its name or a path. Raises UsageError with the nearest names."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.exists():
            raise UsageError(
                f"there is no recipe file {name}; give a YAML file or one of: {', '.join(recipe_names())}"
            )
        name = re.sub(r"[^A-Za-z0-9_.-]+|^[.-]+|\.(?=\.)", "-", path.stem).lstrip("-")
        return name or "mine", path
    if name in recipe_names():
        return name, recipe_folder() / f"{name}.yaml"
    if path.is_dir():
        raise UsageError(
            f"{name} is a folder; give a recipe's name or a YAML file, for a run its config.yaml"
        )
    if (
        name.lower().endswith(tuple(suffix for one in FORMATS for suffix in one.suffixes))
        and not path.exists()
    ):
        raise UsageError(
            f"there is no file {name}; give one that exists, or a recipe (seqkit list recipes)"
        )
    raise UsageError(f"there is no recipe called {name!r}; {suggest(name, recipe_names())}")


def read_recipe(name: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """A recipe as plain data, and its presets by name.

    Raises UsageError where the file is not a YAML mapping, or its presets are not what they should be.
    """
    title, path = find_recipe(name)
    try:
        config = load_yaml(decoded(read_small(path, MAX_BYTES)), max_values=MAX_VALUES)
    except DataError as error:
        raise UsageError(str(error)) from error
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(
            f"{path} is not readable as YAML: {' '.join(str(error).split())}"
        ) from error
    if config is None:
        raise UsageError(f"{path} is empty; write `key: value` lines, such as data: digits")
    if not isinstance(config, dict):
        raise UsageError(
            f"{path} should hold `key: value` lines, but holds {type(config).__name__}"
        )
    presets = config.pop("presets", None) or {}
    is_one = isinstance(presets, dict) and all(isinstance(keys, dict) for keys in presets.values())
    if not is_one or any("presets" in keys for keys in presets.values()):
        raise UsageError(
            f"{path}: presets should hold a name and its keys each, such as debug: {{seed: 2}}"
        )
    return {"recipe": title, **config}, presets
