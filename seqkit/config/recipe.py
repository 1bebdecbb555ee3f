"""Recipe files: YAML beside the package or the user's own, read as plain data, never code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from seqkit.errors import UsageError
from seqkit.registry import suggest

MAX_BYTES = 2**20
"""A recipe is a page of text; a larger file is something else."""


class _StrictLoader(yaml.SafeLoader):
    """Plain data only: no tags, no aliases, no key twice; 1e-3 is a number, as in YAML 1.2."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(
                f"an alias stands at line {self.peek_event().start_mark.line + 1}; write the value out"
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [self.construct_object(key) for key, _ in node.value]
        for i, key in enumerate(keys):
            if not isinstance(key, str):
                raise yaml.YAMLError(f"the key {key!r} in line {node.start_mark.line + 1} is not a text")
            if key in keys[:i]:
                raise yaml.YAMLError(f"the key {key!r} stands twice from line {node.start_mark.line + 1} on")
        return super().construct_mapping(node, deep)


_StrictLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in pairs
        if tag not in ("tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")
    ]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.inf|\.nan)$"),
    list("-+.0123456789"),
)


def load_yaml(text: str) -> Any:
    """YAML as plain data. Raises yaml.YAMLError for anything else: tags, aliases, keys twice."""
    try:
        return _StrictLoader(text).get_single_data()
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


def to_yaml(config: Any) -> str:
    """Plain data as YAML, keys in their order."""
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)


def recipe_folder() -> Path:
    """Where the recipes are: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    return package / "_recipes" if (package / "_recipes").is_dir() else package.parent / "recipes"


def recipe_names() -> list[str]:
    """Names such as `text/char-lm`."""
    folder = recipe_folder()
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*/*.yaml"))


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


def read_recipe(name: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """A recipe as plain data, and its presets by name.

    Raises UsageError where the file is not a YAML mapping, or its name or presets are not what they should be.
    """
    title, path = find_recipe(name)
    if path.stat().st_size > MAX_BYTES:
        raise UsageError(f"{path} has {path.stat().st_size:,} bytes; a recipe has at most {MAX_BYTES:,}")
    try:
        config = load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not readable as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path} should hold `key: value` lines, but holds {type(config).__name__}")
    presets = config.pop("presets", None) or {}
    if not isinstance(presets, dict) or not all(isinstance(keys, dict) for keys in presets.values()):
        raise UsageError(f"{path}: presets should hold a name and its keys each, such as debug: {{seed: 2}}")
    called = config.setdefault("recipe", title)
    # it names the folder of the run, so it must not lead out of `runs`
    if not isinstance(called, str) or not called or Path(called).is_absolute() or ".." in Path(called).parts:
        raise UsageError(f"{path}: recipe is {called!r}; give a name such as text/mine, which is its folder in runs")
    return config, presets
