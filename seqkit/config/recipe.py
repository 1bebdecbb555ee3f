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
    """Plain data only: no tags, no anchors, no key twice; numbers, true and false are written as in YAML 1.2."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        alias = "an alias" if isinstance(event, yaml.AliasEvent) else event.anchor and "an anchor"
        if special := alias or (event.tag and "a tag"):
            raise yaml.YAMLError(f"there is {special} at line {event.start_mark.line + 1}; write the plain value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [self.construct_object(key) for key, _ in node.value]
        for i, key in enumerate(keys):
            line = node.value[i][0].start_mark.line + 1
            if not isinstance(key, str):
                raise yaml.YAMLError(f"the key {key!r} in line {line} is not a text")
            if key in keys[:i]:
                raise yaml.YAMLError(f"the key {key!r} is given twice, again in line {line}")
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: Any) -> int:
        if len(node.value) > 20:
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"the number in line {line} has {len(node.value):,} digits; give at most 20")
        return int(node.value)


_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)


class _Dumper(yaml.SafeDumper):
    """Quotes a text that YAML 1.1 or a recipe would take for something else."""


for _tag, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"[-+]?[0-9]+$", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.inf|\.nan)$",
        "-+.0123456789",
    ),
):
    for _reads_or_writes in (_StrictLoader, _Dumper):
        _reads_or_writes.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


def load_yaml(text: str) -> Any:
    """YAML as plain data. Raises yaml.YAMLError for anything else: tags, anchors, keys twice."""
    try:
        return _StrictLoader(text).get_single_data()
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


def to_yaml(config: Any) -> str:
    """Plain data as YAML, keys in their order."""
    dumped: str = yaml.dump(config, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return dumped


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
    if path.is_dir():
        raise UsageError(f"{name} is a folder; give a recipe's name or a YAML file, for a run its config.yaml")
    raise UsageError(f"there is no recipe called {name!r}; {suggest(name, recipe_names())}")


def read_recipe(name: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """A recipe as plain data, and its presets by name.

    Raises UsageError where the file is not a YAML mapping, or its presets are not what they should be.
    """
    title, path = find_recipe(name)
    if path.stat().st_size > MAX_BYTES:
        raise UsageError(f"{path} has {path.stat().st_size:,} bytes; a recipe has at most {MAX_BYTES:,}")
    try:
        config = load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not readable as YAML: {' '.join(str(error).split())}") from error
    if config is None:
        raise UsageError(f"{path} is empty; write `key: value` lines, such as data: digits")
    if not isinstance(config, dict):
        raise UsageError(f"{path} should hold `key: value` lines, but holds {type(config).__name__}")
    presets = config.pop("presets", None) or {}
    if not isinstance(presets, dict) or not all(isinstance(keys, dict) for keys in presets.values()):
        raise UsageError(f"{path}: presets should hold a name and its keys each, such as debug: {{seed: 2}}")
    return {"recipe": title, **config}, presets
