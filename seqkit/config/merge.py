"""Completes a recipe, with preset and overrides, to a configuration that has every key with its value.

One rule of merging for presets and the command line: naming another `type` keeps those arguments that were written and
that the new type has too; everything else starts from the new type's own defaults.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import yaml

from seqkit.config.foreign_models import with_foreign
from seqkit.config.mixers import MIXER, with_mixers, without_replaced
from seqkit.config.overrides import Switch, Word, shown
from seqkit.config.own_files import data_source, tell_unread, with_own_files
from seqkit.config.recipe import check_name, load_yaml
from seqkit.config.record import Written
from seqkit.config.schema import REQUIRED, Field, check_value, fits
from seqkit.config.table_columns import settle
from seqkit.errors import UsageError
from seqkit.registry import components, suggest

MODEL = "seqkit.model:Model"
DATA = "seqkit.data.module:DataModule"
TRAINER = "seqkit.training.trainer:TrainerSettings"
"""The classes whose parameters are the keys of a section, named and not imported: it would take seconds."""

RETIRED = {
    "trainer.deterministic=None", "trainer.limit_train_batches=None", "trainer.max_time=None",
    "model.objective.linear=False", "model.objective.linear=True",
}  # fmt: skip
"""Keys of earlier versions, as config.yaml of their runs has them, with values that say nothing today."""

MODEL_KEYS = ("tokenizer", "model")
"""Keys from which a trained model is built again; the others are for training."""

INIT = Field("init", None, hint=str | None)
"""The run with whose weights training begins."""

TRAINING = (
    Field("optimizer", {"type": "AdamW"}, "optimizer", default_type="AdamW"),
    Field("schedule", {"type": "Cosine"}, "schedule", default_type="Cosine"),
    Field("trainer", {}, section=TRAINER),
)
"""Keys of every training, of one task or of several."""


def root(only: Sequence[str] | None = None) -> dict[str, Field]:
    """The keys at the top of a configuration. only: their names; None: all."""
    fields = [
        Field("recipe", "mine", hint=str),
        Field("seed", 1, hint=int),
        Field("classical", "join", hint=Literal["join", "beside", "off"]),
        Field("data", {}, section=DATA, skip=("tokenizer", "objective", "seed")),
        Field("tokenizer", kind="tokenizer"),
        Field("model", {}, section=MODEL, skip=("spec",), more=(INIT,)),
        *TRAINING,
    ]
    return {field.name: field for field in fields if only is None or field.name in only}


NAMED = {
    "tokenizer": "tokenizer", "model.backbone": "backbone", "model.objective": "objective", "optimizer": "optimizer",
}  # fmt: skip
"""Keys that hold a component, whatever the recipe, and its kind."""

Pairs = Sequence[tuple[str, Any]]
"""Overrides: a dotted key and its value each."""


def completed(
    config: Written,
    presets: Mapping[str, Written],
    preset: str | None,
    pairs: Pairs,
    *,
    only: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A complete configuration of a recipe as `read_recipe` gives it. pairs: overrides, as `dotted` gives them."""
    top = Node(root(only))
    for key, value in pairs:  # wrong names are answered before torch is imported
        top.field(key.partition(".")[0])
        kind = NAMED.get(key.removesuffix(".type"))
        if kind is not None and isinstance(value, Switch):
            raise UsageError(f"--{key} has no value; give the name of {named(kind)}")
        if kind is not None and isinstance(value, Word) and re.fullmatch(r"[A-Za-z][\w.]*", value):
            Field(key, kind=kind).component(value, key)
    config, pairs = with_own_files(config, presets.get(preset or ""), pairs)

    written = config if preset is None else top.merge(config, presets[preset])
    found = top.complete(overridden(top, *with_foreign(written, pairs)))
    if only is None:
        check_name(found["recipe"])
        settle(found)
    return found


def overridden(top: Node, config: Written, pairs: Pairs) -> Written:
    """A configuration with overrides, by dotted key, on top.

    `data.X` is `data.source.X` where X is an argument of the data source. Keys with fewer dots come first, so a type
    comes before its arguments. Of two equal keys the last counts.
    """
    of_data = top.fields["data"].keys_below(None, "data") if "data" in top.fields else {}
    paths = []
    for key, value in pairs:
        first, *rest = key.removesuffix(".type").split(".")
        is_of_source = first == "data" and rest != [] and rest[0] not in of_data
        paths.append(
            ([first, *(["source"] if is_of_source else []), *rest], key.endswith(".type"), value)
        )
    last = {".".join(path): value for path, _, value in paths}
    for path, _, _ in paths:  # a key below one that is null would bring it back without a word
        for above in (".".join(path[:i]) for i in range(1, len(path))):
            if above in last and last[above] in (None, "null", "~"):
                raise UsageError(
                    f"{above} is null, so {'.'.join(path)} has no place; leave one of the two out"
                )
    for path, is_type, value in sorted(paths, key=_order):
        if is_type:
            over = {"type": value.read() if isinstance(value, Word) else value}
        else:
            over = value
        for name in reversed(path):
            over = {name: over}
        config = top.merge(config, over)
    return config


def _order(one: tuple[list[str], bool, Any]) -> tuple[int, bool, bool]:
    """Place of an override among the others: after what takes away others' values."""
    path = one[0]
    return len(path), path[-1] != MIXER, path == ["trainer", "min_steps"]


class Node:
    """A mapping of the configuration: the keys that it may have, its path, and the component that owns them."""

    def __init__(self, fields: Mapping[str, Field], path: str = "", owner: str = ""):
        self.fields = fields
        self.path = path
        self.owner = owner

    def at(self, name: str) -> str:
        return f"{self.path}.{name}".lstrip(".")

    def field(self, name: str) -> Field:
        """The key of that name. Raises UsageError with the nearest."""
        if name in self.fields:
            return self.fields[name]
        if "." in name:
            nested = name.replace(".", ": {", 1)
            raise UsageError(f"the key {self.at(name)!r} has a dot; write it nested, {nested}: …}}")
        if self.path == "data.source":  # `data.X` is X of the data source, too
            known = {**root()["data"].keys_below(None, "data"), **self.fields}
            raise UsageError(
                f"there is no key 'data.{name}'; {suggest(f'data.{name}', [f'data.{x}' for x in known])}"
            )
        if self.owner:
            raise UsageError(
                f"{self.path}: {self.owner} has no argument {name!r}; {suggest(name, self.fields)}"
            )
        near = suggest(self.at(name), [self.at(known) for known in self.fields])
        if not near.startswith("did you mean"):
            sections = [key for key, field in self.fields.items() if field.section is not None]
            deeper = [
                f"{key}.{name}"
                for key in sections
                if name in self.fields[key].keys_below(None, key)
            ]
            near = suggest(name, deeper) if deeper else near
        raise UsageError(f"there is no key {self.at(name)!r}; {near}")

    def below(self, field: Field, value: Written) -> Node:
        """The node of a component or section that `value` writes."""
        path = self.at(field.name)
        if field.shape == "names":
            return Node(field.by_name(value), path)
        name = value.get("type", field.default_type)
        return Node(
            field.keys_below(name, path),
            path,
            field.component(name, path).name if field.kind else "",
        )

    def mapping(self, field: Field, value: Any) -> dict[str, Any] | None:
        """The value of a component or section as a mapping: a bare name becomes its type or, for `data`, its source."""
        path = self.at(field.name)
        if isinstance(value, Mapping):
            return dict(value)
        if value is None and field.section is None:
            return None
        if field.shape == "names":
            raise UsageError(f"{path} is {shown(value)}; give names, with {named(field.kind)} each")
        if isinstance(value, str) and field.kind == "data_source":
            source = data_source(value, path)
            tell_unread(value, source)
            return source
        if isinstance(value, str) and (field.kind is not None or path == "data"):
            return {"source" if field.kind is None else "type": value}
        wanted = f"give the name of {named(field.kind)}"
        if field.kind is None:
            wanted = f"write keys below it, such as {path}.{next(iter(field.keys_below(None, path)))}, or leave it out"
        raise UsageError(f"{path} is {shown(value)}; {wanted}")

    # ── merging ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, field: Field, word: Any) -> Any:
        """The value of a key from its word on the command line: 7 is a text if only a text is allowed."""
        if not isinstance(word, Word):
            return word
        path = self.at(field.name)
        if isinstance(word, Switch) and field.hint is not bool:
            raise UsageError(f"--{path} has no value; write --{path} VALUE")
        if field.is_plain:
            takes_text = fits(str(word), field.hint)
        else:
            takes_text = path == "data" or field.kind == "data_source"
        try:
            value = load_yaml(word)
        except yaml.YAMLError as error:  # such as `*.txt`
            if not takes_text:
                reason = " ".join(str(error).split())
                raise UsageError(
                    f"{path} is {shown(str(word))}, which is not readable as YAML: {reason}"
                ) from None
            return str(word)
        is_text = (
            field.is_plain and takes_text and value is not None and not fits(value, field.hint)
        )
        return str(word) if is_text else value

    def merge(self, base: Written, over: Written) -> dict[str, Any]:
        """`over` on top of `base`."""
        if self.path == "trainer" and over.keys() & {"max_epochs", "max_steps"}:
            # of a recipe, whose length another takes the place of
            base = {**base, "min_steps": None}
        if MIXER in over and MIXER in self.fields:
            base, over = with_mixers(self, base, over)
        merged = {**base, **over}
        for name in [name for name in over if name in base and name in self.fields]:
            field = self.fields[name]
            old = self.read(field, base[name])
            new = self.read(field, over[name])
            if field.is_list(old) and isinstance(new, Mapping) and "type" not in new:
                raise UsageError(
                    f"{self.at(name)} is a list; give the whole of it: --{self.at(name)} '[…]'"
                )
            if field.is_plain or field.is_list(old) or field.is_list(new):
                continue
            old = self.mapping(field, old)
            new = self.mapping(field, new)
            if old is None or new is None:
                merged[name] = new
            else:
                merged[name] = self.merge_component(field, old, new)
        return merged

    def merge_component(
        self, field: Field, old: dict[str, Any], new: dict[str, Any]
    ) -> dict[str, Any]:
        """A component, or components by names, on top of another."""
        if field.shape == "names":
            return self.below(field, {**old, **new}).merge(old, new)
        name = new.get("type", old.get("type"))
        typed = {} if name is None else {"type": name}
        was = self.below(field, old)
        now = self.below(field, {**new, **typed})
        old, new = ({k: v for k, v in written.items() if k != "type"} for written in (old, new))
        if was.owner != now.owner:
            old = {
                k: v
                for k, v in old.items()
                if k in now.fields and was.field(k).kind == now.fields[k].kind
            }
        return typed | now.merge(old, new)

    # ── completing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def complete(self, config: Written) -> dict[str, Any]:
        """Every key with its value. Raises UsageError for one that is unknown, missing or of a wrong type."""
        for name, value in config.items():
            says_nothing = f"{self.at(name)}={value!r}" in RETIRED
            if not says_nothing and (name != "type" or not self.owner):
                self.field(name)
        missing = [
            self.at(f.name)
            for f in self.fields.values()
            if f.default is REQUIRED and f.name not in config
        ]
        if missing:
            be = "is" if len(missing) == 1 else "are"
            what = f"{' and '.join(missing)} {be} missing"
            raise UsageError(f"{what}; write it in the recipe, or give --{missing[0]} VALUE")
        found = {
            name: self._completed(field, config.get(name, field.default))
            for name, field in self.fields.items()
        }
        return without_replaced(self, config, found) if MIXER in self.fields else found

    def _completed(self, field: Field, value: Any) -> Any:
        path = self.at(field.name)
        value = self.read(field, value)
        if field.is_plain:
            try:
                check_value(value, field.hint)
            except ValueError as error:
                if isinstance(value, Mapping) and value and not fits({}, field.hint):
                    raise UsageError(
                        f"there is no key '{path}.{next(iter(value))}'; {path} is a plain value"
                    ) from None
                raise UsageError(
                    f"{path} is {shown(value)}; {error}{self._of_others(field.name, value)}"
                ) from None
            # a default is everyone's
            if isinstance(value, list | dict):
                return copy.deepcopy(value)
            return value
        if field.is_list(value) and value is not None:
            # one is a list of one
            if isinstance(value, str | Mapping):
                value = [value]
            if not isinstance(value, list):
                raise UsageError(f"{path} is {shown(value)}; give a list")
            return [self._completed(field.one, item) for item in value]
        written = self.mapping(field, value)
        if written is None:
            if not field.nullable:
                raise UsageError(f"{path} is null; give the name of {named(field.kind)}")
            return None
        node = self.below(field, written)
        completed = node.complete(written)
        if node.owner:
            return {"type": node.owner, **completed}
        return completed

    def _of_others(self, name: str, value: Any) -> str:
        """The objective that refuses the value of an argument, and those that take it; empty for other components."""
        if self.path != "model.objective":
            return ""
        field = Field("objective", kind="objective")
        takers = []
        for other in components("objective"):
            with suppress(ValueError, ImportError):  # of another package
                known = field.keys_below(other, self.path).get(name)
                takers += (
                    [other]
                    if known is not None and known.is_plain and fits(value, known.hint)
                    else []
                )
        if takers:
            instead = (
                f", or another objective, which takes it: --model.objective {' or '.join(takers)}"
            )
        else:
            instead = ""
        return f" for the objective {self.owner}{instead}"


def named(kind: str | None) -> str:
    """A kind with its article: an optimizer."""
    return f"{'an' if (kind or '')[:1] in 'aeiou' else 'a'} {(kind or '').replace('_', ' ')}"
