"""Completes a recipe, with preset and overrides, to a configuration that has every key with its value.

One rule of merging for presets and the command line: naming another `type` keeps those arguments that were written and
that the new type has too; everything else starts from the new type's own defaults.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import yaml

from seqkit.config.docstrings import explanation
from seqkit.config.foreign_models import with_commit, with_foreign
from seqkit.config.overrides import Switch, Word, shown
from seqkit.config.own_files import data_source, tell_unread, with_own_files
from seqkit.config.recipe import check_name, load_yaml
from seqkit.config.schema import REQUIRED, Field, check_value, fits, in_words
from seqkit.config.spellings import check_spelling
from seqkit.config.table_columns import check_new, settle
from seqkit.errors import UsageError
from seqkit.registry import components, suggest

MODEL = "seqkit.model:Model"
DATA = "seqkit.data.module:DataModule"
TRAINER = "seqkit.training.trainer:TrainerSettings"
"""The classes whose parameters are the keys of a section, named and not imported: it would take seconds."""

MODEL_KEYS = ("tokenizer", "model")
"""Keys from which a trained model is built again; the others are for training."""


INIT = Field("init", None, hint=str | None)
"""The run with whose weights training begins."""


def root(only: Sequence[str] | None = None) -> dict[str, Field]:
    """The keys at the top of a configuration. only: their names; None: all."""
    fields = [Field("tokenizer", kind="tokenizer"), Field("model", {}, section=MODEL, skip=("spec",), more=(INIT,))]
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


def completed(
    config: Mapping[str, Any],
    presets: Mapping[str, Mapping[str, Any]],
    preset: str | None,
    pairs: Sequence[tuple[str, Any]],
    *,
    only: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A complete configuration of a recipe as `read_recipe` gives it. pairs: overrides, as `dotted` gives them."""
    check_new(config)
    config, pairs = with_own_files(config, presets.get(preset or ""), pairs)
    _check_early(config, pairs)
    config, pairs = with_commit(config, pairs)
    top = Node(root(only), "")

    written = config if preset is None else top.merge(config, presets[preset])
    found = top.complete(overridden(top, with_foreign(written, pairs), pairs))
    if "data" in found and only is None:
        check_name(found["recipe"])
        settle(found)
    return found


NAMED = {
    "tokenizer": "tokenizer", "model.backbone": "backbone", "model.objective": "objective", "optimizer": "optimizer",
    "schedule": "schedule", "data": "data_source", "data.source": "data_source",
}  # fmt: skip
"""Keys that hold a component, whatever the recipe, and its kind."""


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
            name = data_source(value, "data.source")["type"] if isinstance(value, str) else name
            path = "data.source"
        if key in NAMED and isinstance(name, str) and re.fullmatch(r"\w[\w.-]*", name):
            Field(path, kind=NAMED[key]).component(name, path)


def overridden(top: Node, config: Mapping[str, Any], pairs: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
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


class Node:
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

    def below(self, field: Field, value: Mapping[str, Any]) -> Node:
        """The node of a component or section that `value` writes."""
        path = self.at(field.name)
        if field.named:
            return Node(field.by_name(value), path)
        if field.section is not None:
            return Node(field.keys_below(None, path), path)
        name = value.get("type", field.default_type)
        keys = field.keys_below(name, path)
        return Node(keys, path, field.component(name, path).name)

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
        below = self.below(field, {**here, rest.partition(".")[0]: {}} if field.named else here)
        return {first: below.nested(here, rest, value)}

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
                raise UsageError(f"{path} is {shown(str(word))}, which is not readable as YAML: {reason}") from None
            return str(word)
        is_text = field.is_plain and takes_text and value is not None and not fits(value, field.hint)
        return str(word) if is_text else value

    def mapping(self, field: Field, value: Any) -> dict[str, Any] | None:
        """The value of a component or section as a mapping: a bare name becomes its type or, for `data`, its source."""
        path = self.at(field.name)
        if value is None and field.section is None:
            return None
        if field.named and not isinstance(value, Mapping):
            raise UsageError(f"{path} is {shown(value)}; give names, with {_named(field.kind)} each")
        if isinstance(value, str) and field.kind == "data_source":
            source = data_source(value, path)
            tell_unread(value, source)
            return source
        if isinstance(value, str) and field.kind is not None:
            return {"type": value}
        if isinstance(value, str) and path == "data":
            return {"source": value}
        if not isinstance(value, Mapping):
            first = next(iter(field.keys_below(None, path)), "") if field.kind is None else ""
            wanted = f"write keys below it, such as {path}.{first}, or leave it out"
            raise UsageError(
                f"{path} is {shown(value)}; {f'give the name of {_named(field.kind)}' if field.kind else wanted}"
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
        if field.named:
            return self.below(field, {**old, **new}).merge(old, new)
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
                raise UsageError(f"{path} is {shown(value)}; {error}{self._of_others(field.name, value)}") from None
            return copy.deepcopy(value) if isinstance(value, list | dict) else value  # a default is everyone's
        if field.is_list(value) and value is not None:
            value = [value] if isinstance(value, str | Mapping) else value  # one is a list of one
            if not isinstance(value, list):
                raise UsageError(f"{path} is {shown(value)}; give a list")
            return [self._completed(field.one, item) for item in value]
        written = self.mapping(field, value)
        if written is None:
            if not field.nullable:
                raise UsageError(f"{path} is null; give the name of {_named(field.kind)}")
            return None
        node = self.below(field, written)
        completed = node.complete(written)
        return completed if field.section is not None or field.named else {"type": node.owner, **completed}

    def _of_others(self, name: str, value: Any) -> str:
        """The objective that refuses the value of an argument, and those that take it; empty for other components."""
        if self.path != "model.objective":
            return ""
        field, takers = Field("objective", kind="objective"), []
        for other in components("objective"):
            with suppress(ValueError, ImportError):  # of another package
                known = field.keys_below(other, self.path).get(name)
                takers += [other] if known is not None and known.is_plain and fits(value, known.hint) else []
        instead = f", or another objective, which takes it: --model.objective {' or '.join(takers)}" if takers else ""
        return f" for the objective {self.owner}{instead}"


def _named(kind: str | None) -> str:
    """A kind with its article: an optimizer."""
    return f"{'an' if (kind or '')[:1] in 'aeiou' else 'a'} {(kind or '').replace('_', ' ')}"


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
    "sampling": "Share of the optimizer steps that each task of a mixture gets.",
    "moments": "Whose gradients the optimizer remembers: those of all tasks of a mixture, or of each by itself.",
}
"""Sentences about the keys at the top."""


def explained(
    node: Node, config: Mapping[str, Any], about: Callable[[str], str]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield (key, its value, what it may be, a sentence about it) for every key of a complete node."""
    for name, field in node.fields.items():
        value, path = config.get(name), node.at(name)
        if field.is_plain:
            yield path, shown(value), in_words(field.hint), about(name)
        elif field.is_list(value):
            yield path, shown(value), f"a list of {(field.kind or '').replace('_', ' ')}s", about(name)
        elif field.named and value is not None:
            yield path, ", ".join(value), f"names, with {_named(field.kind)} each", about(name)
            yield from explained(node.below(field, value), value, lambda part: f"Part {part}.")
        else:
            if field.kind is not None:
                name = "null" if value is None else value["type"]
                yield path, name, f"{_named(field.kind)} (seqkit list {field.kind}s)", about(field.name)
            if value is not None:
                owner = field.owner(value.get("type"), path)
                yield from explained(node.below(field, value), value, partial(explanation, owner))
