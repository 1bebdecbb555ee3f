"""Completes a recipe, with preset and overrides, to a configuration that has every key with its value.

One rule of merging for presets and the command line: naming another `type` keeps those arguments that were written and
that the new type has too; everything else starts from the new type's own defaults.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

import yaml

from seqkit.config.docstrings import explanation
from seqkit.config.recipe import check_name, load_yaml, read_recipe
from seqkit.config.schema import REQUIRED, Field, check_value, fits, in_words
from seqkit.config.spellings import check_spelling
from seqkit.config.table_columns import TARGET_KINDS, reads_files, settle
from seqkit.errors import UsageError
from seqkit.registry import components, suggest

MODEL = "seqkit.model:Model"
DATA = "seqkit.data.module:DataModule"
TRAINER = "seqkit.training.trainer:TrainerSettings"
"""The classes whose parameters are the keys of a section, named and not imported: it would take seconds."""

MODEL_KEYS = ("tokenizer", "model")
"""Keys from which a trained model is built again; the others are for training."""


def root(only: Sequence[str] | None = None) -> dict[str, Field]:
    """The keys at the top of a configuration. only: their names; None: all."""
    fields = [Field("tokenizer", kind="tokenizer"), Field("model", {}, section=MODEL, skip=("spec",))]
    if only is None:
        fields = [
            Field("recipe", "mine", hint=str),
            Field("seed", 1, hint=int),
            Field("data", {}, section=DATA, skip=("tokenizer", "objective", "seed")),
            *fields,
            Field("optimizer", {"type": "AdamW"}, "optimizer"),
            Field("schedule", {"type": "Cosine"}, "schedule"),
            Field("trainer", {}, section=TRAINER),
        ]
    return {field.name: field for field in fields}


def complete(
    recipe: str | Path | Mapping[str, Any],
    preset: str | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    only: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A complete configuration as plain data.

    recipe: name, path, or a configuration as plain data. overrides: dotted keys with values, or command-line words
    (`--model.backbone LSTM`). only: keys at the top; None: all.
    Raises UsageError in one line, with the nearest key or name.
    """
    if not isinstance(recipe, str | Path | Mapping):
        raise UsageError(f"the recipe is {_shown(recipe)}; give a name, a path, or keys with a value each")
    config, presets = (_plain(recipe), {}) if isinstance(recipe, Mapping) else read_recipe(str(recipe))
    if preset is not None and preset not in list(presets):
        raise UsageError(f"recipe {config.get('recipe')} has no preset {preset!r}; {suggest(str(preset), presets)}")
    config, pairs = _with_own_files(config, presets.get(preset or ""), list(dotted(overrides)))
    _check_early(config, pairs)
    top = _Node(root(only), "")

    def merged(*names: str | None) -> dict[str, Any]:
        """The recipe with presets and overrides, completed."""
        written = reduce(top.merge, (presets[name] for name in names if name is not None), config)
        return top.complete(_overridden(top, written, pairs))

    completed = merged(preset)
    if "data" not in completed or only is not None:
        return completed
    check_name(completed["recipe"])
    kind = settle(completed, open_to=_open_to(presets, pairs))
    if kind in presets and kind != preset:  # the recipe leaves it to the table
        source, completed = completed["data"]["source"], merged(kind, preset)
        completed["data"]["source"] = source
    return completed


NAMED = {
    "tokenizer": "tokenizer", "model.backbone": "backbone", "model.objective": "objective", "optimizer": "optimizer",
    "schedule": "schedule", "data": "data_source", "data.source": "data_source",
}  # fmt: skip
"""Keys that hold a component, whatever the recipe, and its kind."""


def _with_own_files(
    config: Mapping[str, Any], preset: Mapping[str, Any] | None, pairs: Sequence[tuple[str, Any]]
) -> tuple[Mapping[str, Any], Sequence[tuple[str, Any]]]:
    """Recipe and overrides, in which the source of a folder is written out if the tokenizer reads its files itself."""
    if not reads_files(named_tokenizer([*config.items(), *(preset or {}).items(), *pairs])):
        return config, pairs

    def written(key: str, value: Any) -> Any:
        if key == "data" and isinstance(value, Mapping):
            return {**value, **{name: written("data.source", one) for name, one in value.items() if name == "source"}}
        folder = value.read() if isinstance(value, Word) else value
        if key not in ("data", "data.source") or not isinstance(folder, str) or not _own_path(folder).is_dir():
            return value
        source = _data_source(folder, "data.source", reads_files=True)
        return source if key == "data.source" else {"source": source}

    return {key: written(key, value) for key, value in config.items()}, [(key, written(key, v)) for key, v in pairs]


def named_tokenizer(pairs: Sequence[tuple[str, Any]]) -> Any:
    """The name of the tokenizer that the last of (key, value) names; None: none does."""
    named = [value for key, value in pairs if key.removesuffix(".type") == "tokenizer"]
    last = named[-1].read() if named and isinstance(named[-1], Word) else named[-1] if named else None
    return last.get("type") if isinstance(last, Mapping) else last


def _check_early(config: Mapping[str, Any], pairs: Sequence[tuple[str, Any]]) -> None:
    """Raise UsageError for a wrong name of a component, or a key as others spell it, before torch is imported."""
    model = config.get("model")
    inside = {f"model.{key}": value for key, value in model.items()} if isinstance(model, Mapping) else {}
    written = {
        key: value for key, value in {**config, **inside}.items() if NAMED.get(key, "data_source") != "data_source"
    }
    for key, value in [*((name, "VALUE") for name in config if name not in root()), *pairs]:
        check_spelling(key, str(value))
        near = suggest(key.partition(".")[0], root())
        if key.partition(".")[0] not in root() and near.startswith("did you mean"):
            raise UsageError(f"there is no key {key!r}; {near}")
    for key, value in pairs:
        written[key.removesuffix(".type")] = value.read() if isinstance(value, Word) else value
    for key, value in written.items():
        name, path = value.get("type") if isinstance(value, Mapping) else value, key
        if key in ("data", "data.source"):
            name = _data_source(value, "data.source")["type"] if isinstance(value, str) else name
            path = "data.source"
        if key in NAMED and isinstance(name, str) and re.fullmatch(r"\w[\w.-]*", name):
            Field(path, kind=NAMED[key]).component(name, path)


def _overridden(top: _Node, config: Mapping[str, Any], pairs: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
    """A configuration with overrides, by dotted key, on top.

    Keys with fewer dots come first, so a type comes before its arguments. Of two equal keys the last counts.
    """
    of_data = top.fields["data"].keys_below(None, "data") if "data" in top.fields else {}

    def depth(pair: tuple[str, Any]) -> int:
        first, _, rest = pair[0].removesuffix(".type").partition(".")
        is_forwarded = first == "data" and rest != "" and rest.partition(".")[0] not in of_data
        return pair[0].removesuffix(".type").count(".") + is_forwarded

    for key, value in sorted(pairs, key=depth):
        config = top.merge(config, top.nested(config, key, value))
    return config


def _open_to(presets: Mapping[str, Any], pairs: Sequence[tuple[str, Any]]) -> set[str]:
    """The kinds of target for which a recipe has presets; none if the command names the objective."""
    if any(key.removesuffix(".type") == "model.objective" for key, _ in pairs):
        return set()
    return set(presets) & set(TARGET_KINDS)


def _plain(value: Any) -> Any:
    """A value from Python as YAML would have it: paths as texts, numbers of NumPy as numbers, tuples as lists."""
    import numpy as np

    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value.item() if isinstance(value, np.generic) else value


def dotted(overrides: Mapping[str, Any] | Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(key, value) of each override; values of the command line are `Word`s.

    Raises UsageError for a word that belongs to no key.
    """
    if isinstance(overrides, Mapping):
        yield from _plain(overrides).items()
        return
    if not isinstance(overrides, Sequence) or isinstance(overrides, str):
        raise UsageError(f"the overrides are {_shown(overrides)}; give a value for each dotted key: {{'seed': 2}}")
    words = list(overrides)
    while words:
        word = words.pop(0)
        if not isinstance(word, str) or not word.startswith("--"):
            if re.match(r"-[A-Za-z]", str(word)):
                key, _, value = word[1:].partition("=")
                check_spelling(key, value or str(next(iter(words), "VALUE")))
            raise UsageError(f"{word!r} belongs to no key; write --key value")
        key, is_pair, value = word[2:].partition("=")
        if is_pair:
            yield key, Word(value)
        elif words and not str(words[0]).startswith("--"):
            yield key, Word(words.pop(0))
        else:  # a switch, or its value was forgotten: the field of that name tells
            yield key, Switch("true")


def check_given_once(words: Sequence[str]) -> None:
    """Raise UsageError if two keys of the command line set one thing differently, of which one would be ignored.

    `--seed 1 --seed 2`, `--optimizer '{lr: 1}' --optimizer.lr 2`, `--schedule null --schedule.warmup_steps 3`, and
    `--data FILE --data.path OTHER`.
    """
    given: dict[str, tuple[str, Word, Any]] = {}
    for key, word in dotted(words):
        for setting, value in (*_settings(key, word.read()), (f"--{key.removesuffix('.type')}", word.read())):
            other, before, known = given.setdefault(setting, (key, word, value))
            if repr(known) != repr(value):
                if _setting(other) == _setting(key):
                    raise UsageError(f"--{key} is given twice, as {before} and as {word}; give it once")
                raise UsageError(f"--{other} {before} and --{key} {word} both set {setting}; give one of them")
    for setting, (key, word, value) in given.items():
        inner = next((one for name, one in given.items() if value is None and name.startswith(f"{setting}.")), None)
        if inner is not None:
            raise UsageError(f"--{key} {word} and --{inner[0]} {inner[1]} both set {setting}; give one of them")
    source = given.get("data", ("", "", None))
    if "data.path" in given and isinstance(source[2], str):
        key, path, value = given["data.path"]
        if _data_source(source[2], "data").get("path", value) != value:
            raise UsageError(f"--{source[0]} {source[1]} and --{key} {path} both set data.path; give one of them")


def _settings(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """(key, value) of everything that a value sets: a mapping sets the keys in it."""
    if not isinstance(value, Mapping):
        yield _setting(key), value
        return
    for name, item in value.items():
        yield from _settings(f"{key}.{name}", item)


def _setting(key: str) -> str:
    """A key by one of its spellings: `data.X` for `data.source.X`, `model.backbone` for `model.backbone.type`."""
    key = key.removesuffix(".type")
    return key.replace("data.source", "data", 1) if f"{key}.".startswith("data.source.") else key


class Word(str):
    """A value from the command line, not yet read as YAML."""

    def read(self) -> Any:
        """The value as YAML, or the word itself if it is none."""
        try:
            return load_yaml(self)
        except yaml.YAMLError:
            return str(self)


class Switch(Word):
    """The value of a key of the command line that has none: true, where a key is true or false."""


class _Node:
    """A mapping of the configuration: its path, the keys that it may have, and the component that owns them."""

    def __init__(self, fields: Mapping[str, Field], path: str, owner: str = ""):
        self.fields, self.path, self.owner = fields, path, owner

    def at(self, name: str) -> str:
        return f"{self.path}.{name}".lstrip(".")

    def field(self, name: str) -> Field:
        """The key of that name. Raises UsageError with the nearest."""
        if name in self.fields:
            return self.fields[name]
        if "." in name:
            raise UsageError(
                f"the key {self.at(name)!r} has a dot; write it nested, {name.replace('.', ': {', 1)}: …}}"
            )
        advice = suggest(name, [self.at(known) for known in self.fields] if not self.owner else self.fields)
        if self.owner:
            raise UsageError(f"{self.path}: {self.owner} has no argument {name!r}; {advice}")
        sections = [self.at(f.name) for f in self.fields.values() if f.section is not None]
        deeper = [f"{path}.{name}" for path in sections if name in self.fields[path].keys_below(None, path)]
        near = suggest(self.at(name), deeper or [self.at(known) for known in self.fields])
        raise UsageError(f"there is no key {self.at(name)!r}; {near}")

    def below(self, field: Field, value: Mapping[str, Any]) -> _Node:
        """The node of a component or section that `value` writes."""
        path = self.at(field.name)
        if field.section is not None:
            return _Node(field.keys_below(None, path), path)
        name = value.get("type", field.default_type)
        keys = field.keys_below(name, path)
        return _Node(keys, path, field.component(name, path).name)

    # ── merging ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def nested(self, config: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
        """A dotted key as nested mappings."""
        first, _, rest = key.partition(".")
        if self.path == "data" and first not in self.fields:
            return {"source": self._of_source(config, key, value)}
        field = self.field(first)
        if not rest:
            return {first: self._word(field, value) if isinstance(value, Word) else value}
        if rest == "type":
            return {first: {"type": value.read() if isinstance(value, Word) else value}}
        if field.is_plain:
            raise UsageError(f"there is no key {self.at(key)!r}; {self.at(first)} is a plain value")
        if field.is_list(config.get(first)):
            raise UsageError(f"{self.at(first)} is a list; give the whole of it: --{self.at(first)} '[…]'")
        here = self.mapping(field, config.get(first))
        if here is None:
            here = {"type": field.default_type} if field.default_type else {}
        return {first: self.below(field, here).nested(here, rest, value)}

    def _of_source(self, config: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
        """A key `data.X` that the data module lacks and the data source has: `data.source.X`."""
        field, first = self.fields["source"], key.partition(".")[0]
        here = self.mapping(field, config.get("source"))
        node = self if here is None else self.below(field, here)
        if first not in node.fields:
            near = suggest(self.at(first), [self.at(known) for known in {**self.fields, **node.fields}])
            raise UsageError(f"there is no key {self.at(first)!r}; {near}")
        return node.nested(here or {}, key, value)

    def _word(self, field: Field, word: Word) -> Any:
        """The value of a key from its word on the command line: 7 is a text if only a text is allowed."""
        path = self.at(field.name)
        if isinstance(word, Switch) and field.hint is not bool:
            raise UsageError(f"--{path} has no value; write --{path} VALUE")
        takes_text = fits(str(word), field.hint) if field.is_plain else path == "data" or field.kind == "data_source"
        try:
            value = load_yaml(word)
        except yaml.YAMLError as error:  # such as `*.txt`
            if not takes_text:
                reason = " ".join(str(error).split())
                raise UsageError(f"{path} is {_shown(str(word))}, which is not readable as YAML: {reason}") from None
            return str(word)
        is_text = field.is_plain and takes_text and value is not None and not fits(value, field.hint)
        return str(word) if is_text else value

    def mapping(self, field: Field, value: Any) -> dict[str, Any] | None:
        """The value of a component or section as a mapping: a bare name becomes its type or, for `data`, its source."""
        path = self.at(field.name)
        if value is None and field.section is None:
            return None
        if isinstance(value, str) and field.kind is not None:
            return _data_source(value, path) if field.kind == "data_source" else {"type": value}
        if isinstance(value, str) and path == "data":
            return {"source": value}
        if not isinstance(value, Mapping):
            first = next(iter(field.keys_below(None, path)), "") if field.kind is None else ""
            wanted = f"write keys below it, such as {path}.{first}, or leave it out"
            raise UsageError(
                f"{path} is {_shown(value)}; {f'give the name of {_named(field.kind)}' if field.kind else wanted}"
            )
        return dict(value)

    def merge(self, base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
        """`over` on top of `base`."""
        merged = dict(base)
        for name, value in over.items():
            field = self.fields.get(name)
            if field is None or field.is_plain or name not in base or field.is_list(value) or field.is_list(base[name]):
                merged[name] = value
                continue
            old, new = self.mapping(field, base[name]), self.mapping(field, value)
            merged[name] = new if old is None or new is None else self._merged(field, old, new)
        return merged

    def _merged(self, field: Field, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        name = new.get("type", old.get("type"))
        typed = {} if name is None else {"type": name}
        was, now = self.below(field, old), self.below(field, {**new, **typed})
        old, new = ({k: v for k, v in written.items() if k != "type"} for written in (old, new))
        if was.owner != now.owner:
            old = {k: v for k, v in old.items() if k in now.fields and was.field(k).kind == now.fields[k].kind}
        return typed | now.merge(old, new)

    # ── completing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def complete(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Every key with its value. Raises UsageError for one that is unknown, missing or of a wrong type."""
        for name in config:
            if name != "type" or not self.owner:
                self.field(name)
        missing = [self.at(f.name) for f in self.fields.values() if f.default is REQUIRED and f.name not in config]
        if missing:
            be = "is" if len(missing) == 1 else "are"
            raise UsageError(
                f"{' and '.join(missing)} {be} missing; write it in the recipe, or give --{missing[0]} VALUE"
            )
        return {name: self._completed(field, config.get(name, field.default)) for name, field in self.fields.items()}

    def _completed(self, field: Field, value: Any) -> Any:
        path = self.at(field.name)
        if field.is_plain:
            try:
                check_value(value, field.hint)
            except ValueError as error:
                raise UsageError(f"{path} is {_shown(value)}; {error}") from None
            return value
        if field.is_list(value) and value is not None:
            if not isinstance(value, list):
                raise UsageError(f"{path} is {_shown(value)}; give a list")
            return [self._completed(field.one, item) for item in value]
        written = self.mapping(field, value)
        if written is None:
            if not field.nullable:
                raise UsageError(f"{path} is null; give the name of {_named(field.kind)}")
            return None
        node = self.below(field, written)
        completed = node.complete(written)
        return completed if field.section is not None else {"type": node.owner, **completed}


def _own_path(name: str) -> Path:
    return Path(name).expanduser() if name.startswith("~/") else Path(name)


def _data_source(value: str, path: str, *, reads_files: bool = False) -> dict[str, Any]:
    """A data source from its name or, for the user's own files, from their path."""
    if value.lower() in {name.lower() for name in components("data_source")}:
        return {"type": value}
    from seqkit.data.formats import TABLE, TEXT, source_for

    file = _own_path(value)
    if file.exists():
        name, arguments = source_for(file, reads_files=reads_files)
        return {"type": name, **arguments}
    if "://" in value:
        return {"type": "Table", "path": value}
    if any(mark in value for mark in "*?["):  # a pattern
        known = next((known for known in (TABLE, TEXT) if file.suffix.lower() in known.suffixes), TEXT)
        return {"type": known.file_source, "path": value}
    if "/" in value or Path(value).suffix:
        raise UsageError(f"{path}: there is no file or folder {value}")
    return {"type": value}


def _named(kind: str | None) -> str:
    """A kind with its article: an optimizer."""
    return f"{'an' if (kind or '')[:1] in 'aeiou' else 'a'} {(kind or '').replace('_', ' ')}"


def _shown(value: Any) -> str:
    shown = "null" if value is None else repr(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= 200 else f"{shown[:200]}…"


# ── explaining ───────────────────────────────────────────────────────────────────────────────────────────────────────

TOP = {
    "recipe": "Name of the recipe, and folder of its runs in runs/.",
    "seed": "Seed of the weights at the start, of the order of the data, and of dropout.",
    "data": "Data set, or file or folder of yours, and how its examples become batches.",
    "tokenizer": "What turns a raw example into tokens.",
    "model": "Embedder, backbone and head.",
    "optimizer": "Updates the weights.",
    "schedule": "Learning rate over the training.",
    "trainer": "Length, hardware and checkpoints of the training.",
}
"""Sentences about the keys at the top."""


def explain(config: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """(key, its value, what it may be, a sentence about it) for every key of a complete configuration."""
    yield from _explained(_Node(root(), ""), config, TOP.__getitem__)


def _explained(
    node: _Node, config: Mapping[str, Any], about: Callable[[str], str]
) -> Iterator[tuple[str, str, str, str]]:
    for name, field in node.fields.items():
        value, path = config.get(name), node.at(name)
        if field.is_plain:
            yield path, _shown(value), in_words(field.hint), about(name)
        elif field.is_list(value):
            yield path, _shown(value), f"a list of {(field.kind or '').replace('_', ' ')}s", about(name)
        else:
            if field.kind is not None:
                shown = "null" if value is None else value["type"]
                yield path, shown, f"{_named(field.kind)} (seqkit list {field.kind}s)", about(name)
            if value is not None:
                owner = field.owner(value.get("type"), path)
                yield from _explained(node.below(field, value), value, partial(explanation, owner))
