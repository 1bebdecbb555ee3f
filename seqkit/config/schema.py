"""Keys of a configuration, read from the signatures of the components themselves.

A parameter of a component is a key. Its annotation says what the key holds: a plain value, a component of some kind
(`backbone: Backbone`), or a factory of one that the owner calls itself (`norm: Callable[[int], nn.Module]`). A
parameter whose annotation is a dataclass with `is_settings = True` is no key: its fields are keys in its place.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, reduce
from operator import or_
from typing import Annotated, Any

from seqkit.errors import UsageError
from seqkit.registry import BUILT_IN, KINDS, Component, components, find
from seqkit.registry.lookup import registered

KIND_BY_TYPE = {
    "Tokenizer": "tokenizer", "Backbone": "backbone", "Objective": "objective", "PositionalEncoding": "position",
    "RelativePosition": "relative_position", "BaseBlock": "block", "Mixer": "mixer",
    "AttentionMechanism": "mechanism", "CausalConvolution": "convolution", "RotaryScaling": "rotary_scaling",
    "DataSource": "data_source", "OptimizerFactory": "optimizer", "Schedule": "schedule", "LoggerFactory": "logger",
    "FineTuning": "fine_tuning", "Transform": "transform", "Projection": "projection",
    "GraphEncoding": "graph_encoding",
}  # fmt: skip
"""Kind of a parameter whose annotation names this class, or a subclass of it."""

KIND_BY_NAME = {
    "expert": "mlp",
    "augment": "augmentation",
    "callbacks": "callback",
    "encodings": "graph_encoding",
}
"""Kind of a parameter whose annotation says no more than `nn.Module` or `Any`; others, as `qk_norm`, end with it."""

MOST = {
    "num_workers": 256, "expand": 1024, "devices": 4096, "depth": 10_000, "num_steps": 10_000, "ns_steps": 10_000,
    "dim": 2**16, "embedding_dim": 2**16, "head_dim": 2**16, "num_states": 2**16, "num_experts": 2**16, "rank": 2**16,
    "num_buckets": 2**16, "num_mels": 2**16, "kernel_size": 2**16, "num_prefix_tokens": 2**16, "max_hops": 2**16,
    "num_edge_types": 2**16, "max_edge_type": 2**16, "width": 2**20, "num_frames": 2**20, "vocab_size": 2**24,
    "num_categories": 2**24, "num_eigenvectors": 2**16, "num_symbols": 2**24, "max_words": 2**24,
}  # fmt: skip
"""Largest value of each key that asks for memory, time or processes by its number alone."""

REQUIRED = inspect.Parameter.empty
WORDS = {
    "integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text", "null": "null",
    "object": "keys with a value each", "array": "a list",
}  # fmt: skip
"""Types of JSON as a user would say them."""

BOUNDS = {
    "minimum": "of at least",
    "exclusiveMinimum": "above",
    "maximum": "of at most",
    "exclusiveMaximum": "below",
}
"""Bounds of JSON's numbers, likewise."""


@dataclass(frozen=True)
class Field:
    """One key.

    default: plain data; REQUIRED: there is none. kind: kind of the component that the key holds; None: a plain value.
    num_given: number of arguments that the owner of a factory passes itself; None: the component is built here.
    shape: `one` component, a `list` of them, components by `names` of the user's, or one or a list for the `layers`.
    section: `module:Class`, the class whose parameters are the keys below this one. skip: parameters of it that are no
    keys. more: keys below this one that are no parameters of it. hint: annotation of a plain value. nullable: True: the
    component may be null. default_type: type of the component if none is written. settings: the parameter that takes
    this key with others, and its dataclass.
    """

    name: str
    default: Any = REQUIRED
    kind: str | None = None
    num_given: int | None = None
    shape: str = "one"
    section: str | None = None
    skip: tuple[str, ...] = ()
    more: tuple[Field, ...] = ()
    hint: Any = Any
    nullable: bool = False
    default_type: str | None = None
    settings: tuple[str, type] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the key holds a plain value, neither a component nor a section."""
        return self.kind is None and self.section is None

    @property
    def one(self) -> Field:
        """The key of one component of the list."""
        return replace(self, shape="one")

    def by_name(self, names: Iterable[str]) -> dict[str, Field]:
        """The keys of components that have names, for those names."""
        return {
            name: replace(self, name=name, shape="one", default=REQUIRED, nullable=False)
            for name in names
        }

    def is_list(self, value: Any) -> bool:
        """Whether the value has to be a list of components."""
        return self.shape == "list" or (self.shape == "layers" and isinstance(value, list))

    def keys_below(self, type_name: str | None, path: str) -> dict[str, Field]:
        """The keys below this one, for a component of that type. Raises UsageError for an unknown type."""
        component = self.component(type_name, path)
        owner = component.load()
        num_given = self.num_given or 0
        if is_torchs(component):
            num_given = 1  # the parameters, or the optimizer
        elif self.kind is not None and component not in components("preset").values():
            base = next((name for name, kind in KIND_BY_TYPE.items() if kind == self.kind), None)
            if not inspect.isclass(owner) or (base is not None and _kind(owner) != self.kind):
                if base is None:
                    what = "class; register a class"
                else:
                    what = f"{base}; make it a subclass of it"
                raise UsageError(f"{path}: {component.name} at {component.path} is no {what}")
        parameters = list(read_parameters(owner, registered()).items())[num_given:]
        found = {name: key for name, key in parameters if key is not None and name not in self.skip}
        return found | {key.name: key for key in self.more}

    def component(self, type_name: str | None, path: str) -> Component:
        """The component of that name, or the class of a section. Raises UsageError with the nearest names."""
        if self.kind is None:
            return Component(path, str(self.section))
        if type_name is None:
            raise UsageError(
                f"{path} has no type; give {path}.type, one of: {', '.join(components(self.kind))}"
            )
        try:
            return find(self.kind, str(type_name), *(["preset"] if self.kind == "backbone" else []))
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None


def is_torchs(component: Component) -> bool:
    """Whether a component is an optimizer or a schedule of torch, which `training.optim` wraps."""
    return component.path.startswith(("torch.optim:", "torch.optim.lr_scheduler:"))


@lru_cache(maxsize=1000)
def read_parameters(cls: Any, _registered_now: tuple[Component, ...]) -> Mapping[str, Field | None]:
    """The parameters of a class or function as keys; None for one that cannot be written in YAML.

    A recipe asks for 50 of them, a comparison for thousands; what is registered is part of the question. Raises
    UsageError for parameters that no recipe can write: `**kwargs`, and one called `type`.
    """
    try:
        hints = typing.get_type_hints(
            cls.__init__ if inspect.isclass(cls) else cls, include_extras=True
        )
    except (NameError, TypeError):  # not every package writes annotations that can be evaluated
        hints = {}
    parameters = list(inspect.signature(cls).parameters.values())
    # (*args, **kwargs) of nn.Module: it has no arguments
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        parameters = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    found: dict[str, Field | None] = {}
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD or parameter.name == "type":
            stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
            raise UsageError(
                f"{cls.__name__} takes {stars}{parameter.name}, which no key of a recipe can reach; "
                "write each argument out, under a name other than type"
            )
        hint = hints.get(parameter.name, _hint_of(parameter.default))
        settings: Any = (
            hint if inspect.isclass(hint) and getattr(hint, "is_settings", False) else None
        )
        if settings is None:
            found[parameter.name] = _field(parameter, hint)
            continue
        for name, key in read_parameters(settings, _registered_now).items():
            if key is not None and key.is_plain and isinstance(parameter.default, settings):
                key = replace(key, default=plain_data(getattr(parameter.default, name)))
            if key is None:
                found[name] = None
            else:
                found[name] = replace(key, settings=(parameter.name, settings))
    return found


def _field(parameter: inspect.Parameter, hint: Any) -> Field | None:
    """The key of a parameter; None if only Python can pass it, as a function or a device."""
    name = parameter.name
    default = parameter.default
    # functions of torch: `scale_fn`
    if name in ("device", "dtype") or (name.endswith("_fn") and default is None):
        return None
    everything = _alternatives(hint)
    others = [one for one in everything if one is not type(None)]
    nullable = len(others) < len(everything)
    for one in others:
        shape = "one"
        num_given = None
        made = one
        kind_by_name = _kind_by_name(name)
        if typing.get_origin(made) in (list, tuple, Sequence) and kind_by_name is not None:
            return Field(name, default, kind_by_name, shape="list", nullable=nullable)
        if typing.get_origin(made) is Mapping:
            shape = "names"
            made = typing.get_args(made)[1]
        elif len(others) > 1 and any(typing.get_origin(other) is Sequence for other in others):
            shape = "layers"
        if typing.get_origin(made) is Callable:
            given, made = typing.get_args(made)
            num_given = 0 if given is Ellipsis else len(given)
        kind = _kind(made) or (kind_by_name if num_given is not None and shape != "names" else None)
        if kind is not None:
            only = BUILT_IN[kind][0].name if len(BUILT_IN[kind]) == 1 else None
            if shape == "names":
                usual = None
            else:
                usual = _registered(default, kind) or _registered(made, kind) or only
            if default in (REQUIRED, None) or shape == "names":
                default = default
            else:
                default = {"type": usual}
            return Field(
                name, default, kind, num_given, shape, nullable=nullable, default_type=usual
            )
        if typing.get_origin(one) is Callable:
            return None
    plain = plain_data(default)
    writable = [
        one for one in everything if _schema(one) is not None
    ]  # only `float` of another package's `float | Tensor`
    if not any(one is not type(None) for one in writable):
        writable = [_hint_of(default)]
        plain = NotImplemented if default is None and others else plain
    if name in MOST:
        from pydantic import Field as Bound

        writable = [Annotated[int, Bound(le=MOST[name])] if one is int else one for one in writable]
    if plain is NotImplemented:
        return None
    return Field(name, plain, hint=reduce(or_, writable))


def _hint_of(default: Any) -> Any:
    """The annotation that a default stands for, if there is none or it does not describe plain data."""
    if isinstance(default, tuple):
        return tuple[tuple(_hint_of(item) for item in default)]  # type: ignore[misc]
    if isinstance(default, int) and not isinstance(default, bool):
        return int | float
    return next((kind for kind in (bool, float, str, list) if isinstance(default, kind)), Any)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """`A | B` → A, B."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _kind(hint: Any) -> str | None:
    """The kind of component that an annotation names, itself or by a base class."""
    bases = hint.__mro__ if inspect.isclass(hint) else ()
    # torchvision has a Transform
    names = [base.__name__ for base in bases if base.__module__.startswith("seqkit.")]
    return next((KIND_BY_TYPE[name] for name in names if name in KIND_BY_TYPE), None)


def _kind_by_name(name: str) -> str | None:
    """The kind of component that the last word of a parameter's name names."""
    last = name.rpartition("_")[2]
    return KIND_BY_NAME.get(last, last if last in KINDS else None)


def _registered(cls: Any, kind: str) -> str | None:
    """The name of a class in the registry."""
    if not inspect.isclass(cls):
        return None
    known = [one for one in components(kind).values() if one.path.endswith(f":{cls.__qualname__}")]
    return next((component.name for component in known if component.load() is cls), None)


def plain_data(value: Any) -> Any:
    """A default as YAML would have it; NotImplemented if it is no plain data."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        if value is REQUIRED:
            return value
        return to_jsonable_python(value)
    except PydanticSerializationError:
        return NotImplemented


def check_value(value: Any, hint: Any) -> Any:
    """A plain value as its annotation wants it: a list as a tuple, an enum's value as its member.

    Raises ValueError, `give …`, if it is of another type, not finite, or larger than 64 bits.
    """
    import json

    import numpy as np
    from pydantic import TypeAdapter, ValidationError

    try:
        # as JSON, whose types are YAML's: a list may be a tuple, a whole number a float, but "7" is no number
        text = json.dumps(value, allow_nan=False)
        json.loads(text, parse_int=np.int64)
        return TypeAdapter(hint).validate_json(text, strict=True)
    except OverflowError:
        raise ValueError("give a number of 64 bits") from None
    except ValidationError as error:
        own = [fault["ctx"]["error"] for fault in error.errors() if fault["type"] == "value_error"]
        # a class of ours says it itself
        raise ValueError(str(own[0]) if own else f"give {in_words(hint)}") from None
    except ValueError:
        raise ValueError("give a finite number") from None
    except TypeError:  # no JSON
        raise ValueError(f"give {in_words(hint)}") from None


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is what its annotation wants."""
    try:
        check_value(value, hint)
    except ValueError:
        return False
    return True


@cache
def _schema(hint: Any) -> dict[str, Any] | None:
    """The values that an annotation allows, as a schema of JSON; None if it is not of plain data."""
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(hint).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError):
        return None


def in_words(hint: Any) -> str:
    """An annotation as a user would say it."""
    schema = _schema(hint) or {}
    return _joined(_words(schema, schema.get("$defs", {})))


def _joined(words: Iterable[str]) -> str:
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last


def _words(schema: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """The values that a schema of JSON allows. known: the schemas that it refers to."""
    if "$ref" in schema:
        return _words(known[schema["$ref"].rpartition("/")[2]], known)
    if "anyOf" in schema:
        return [word for one in schema["anyOf"] for word in _words(one, known)]
    if "enum" in schema or "const" in schema:
        return list(map(str, schema.get("enum", [schema.get("const")])))
    if "properties" in schema:
        return [f"the keys {', '.join(schema['properties'])}"]
    words = WORDS[schema["type"]] if "type" in schema else "any value"
    words += "".join(
        f" {bound} {schema[name]:,}" for name, bound in BOUNDS.items() if name in schema
    )
    if each := schema.get("prefixItems"):
        words += f" of {len(each)}"
    if item := schema.get("items") or (each and each[0]):
        words += f" (each: {_joined(_words(item, known))})"
    return [words]
