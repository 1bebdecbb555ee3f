"""Keys of a configuration, read from the signatures of the components themselves.

A parameter of a component is a key. Its annotation says what the key holds: a plain value, a component of some kind
(`backbone: Backbone`), or a factory of one that the owner calls itself (`norm: Callable[[int], nn.Module]`).
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache, lru_cache, reduce
from operator import or_
from typing import Any

from seqkit.errors import UsageError
from seqkit.registry import BUILT_IN, Component, components, find
from seqkit.registry.lookup import registered

KIND_BY_TYPE = {
    "Tokenizer": "tokenizer",
    "Backbone": "backbone",
    "Objective": "objective",
    "PositionalEncoding": "position",
    "RelativePosition": "relative_position",
    "BaseBlock": "block",
    "AttentionLayer": "attention",
    "AttentionMechanism": "mechanism",
    "CausalConvolution": "convolution",
    "RotaryScaling": "rotary_scaling",
    "DataSource": "data_source",
    "OptimizerFactory": "optimizer",
    "Schedule": "schedule",
    "LoggerFactory": "logger",
    "FineTuning": "fine_tuning",
    "Transform": "transform",
    "Projection": "projection",
}
"""Kind of a parameter whose annotation names this class, or a subclass of it."""

KIND_BY_NAME = {
    "norm": "norm",
    "input_norm": "norm",
    "attention_norm": "norm",
    "embedding_norm": "norm",
    "qk_norm": "norm",
    "mlp": "mlp",
    "expert": "mlp",
    "residual": "residual",
    "activation": "activation",
    "augment": "augmentation",
    "callbacks": "callback",
    "logger": "logger",
}
"""Kind of a parameter whose annotation says no more than `nn.Module` or `Any`."""

REQUIRED = inspect.Parameter.empty
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "null"}


@dataclass(frozen=True)
class Field:
    """One key.

    default: plain data; REQUIRED: there is none. kind: kind of the component that the key holds; None: a plain value.
    num_given: number of arguments that the owner of a factory passes itself; None: the component is built here.
    many: True: a list of components. named: True: components by name, names being the user's. listable: True: one
    component or a list, one for each layer. section: `module:Class`, the class whose parameters are the keys below this
    one. skip: parameters of it that are no keys. more: keys below this one that are no parameters of it.
    hint: annotation of a plain value. nullable: True: the component may be null. implied_type: type of the component
    if none is written and the default is null.
    """

    name: str
    default: Any = REQUIRED
    kind: str | None = None
    num_given: int | None = None
    many: bool = False
    named: bool = False
    listable: bool = False
    section: str | None = None
    skip: tuple[str, ...] = ()
    more: tuple[Field, ...] = ()
    hint: Any = Any
    nullable: bool = False
    implied_type: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the key holds a plain value, neither a component nor a section."""
        return self.kind is None and self.section is None

    @property
    def one(self) -> Field:
        """The key of one component of a list."""
        return replace(self, many=False, listable=False)

    def by_name(self, names: Iterable[str]) -> dict[str, Field]:
        """The keys of components that have names, for those names."""
        return {name: replace(self, name=name, named=False, default=REQUIRED, nullable=False) for name in names}

    def is_list(self, value: Any) -> bool:
        """Whether the value has to be a list of components."""
        return self.many or (self.listable and isinstance(value, list))

    @property
    def default_type(self) -> str | None:
        """The type of the component if none is written."""
        return self.default.get("type", self.implied_type) if isinstance(self.default, dict) else self.implied_type

    def keys_below(self, type_name: str | None, path: str) -> dict[str, Field]:
        """The keys below this one, for a component of that type. Raises UsageError for an unknown type."""
        owner, num_given = self.owner(type_name, path), 0
        if self.kind is not None:
            component = self.component(type_name, path)
            base = next((name for name, kind in KIND_BY_TYPE.items() if kind == self.kind), None)
            if not inspect.isclass(owner) and component not in components("preset").values():
                raise UsageError(f"{path}: {component.name} at {component.path} is no class; register a class")
            if inspect.isclass(owner) and base and not is_torchs(component) and _kind(owner) != self.kind:
                raise UsageError(f"{path}: {component.name} is no {base}; make it a subclass of it")
            # torch's own get the parameters first, or the optimizer
            num_given = 1 if is_torchs(component) else self.num_given or 0
        parameters = list(read_parameters(owner, registered()).items())[num_given:]
        found = {name: key for name, key in parameters if key is not None and name not in self.skip}
        return found | {key.name: key for key in self.more}

    def owner(self, type_name: str | None, path: str) -> Any:
        """The class or function whose parameters are the keys below this one."""
        return (Component(path, self.section) if self.section else self.component(type_name, path)).load()

    def component(self, type_name: str | None, path: str) -> Component:
        """The component of that name. Raises UsageError with the nearest names."""
        assert self.kind is not None
        if type_name is None:
            raise UsageError(f"{path} has no type; give {path}.type, one of: {', '.join(components(self.kind))}")
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
        hints = typing.get_type_hints(cls.__init__ if inspect.isclass(cls) else cls)
    except (NameError, TypeError):  # not every package writes annotations that can be evaluated
        hints = {}
    parameters = list(inspect.signature(cls).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):  # (*args, **kwargs) of nn.Module: it has no arguments
        parameters = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD or parameter.name == "type":
            stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
            raise UsageError(
                f"{cls.__name__} takes {stars}{parameter.name}, which no key of a recipe can reach; "
                "write each argument out, under a name other than type"
            )
    found: dict[str, Field | None] = {}
    for parameter in parameters:
        hint = hints.get(parameter.name, _hint_of(parameter.default))
        if getattr(hint, "is_settings", False):  # its fields are keys beside the others
            found |= read_parameters(hint, _registered_now)
        else:
            found[parameter.name] = _field(parameter, hint)
    return found


def settings_groups(cls: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a class, in which those that are fields of a group of settings are one: the group."""
    rest = dict(arguments)
    if not inspect.isclass(cls):
        return rest
    for name, hint in typing.get_type_hints(cls.__init__).items():
        if getattr(hint, "is_settings", False):
            rest[name] = hint(**{one.name: rest.pop(one.name) for one in fields(hint) if one.name in rest})
    return rest


def _field(parameter: inspect.Parameter, hint: Any) -> Field | None:
    """The key of a parameter; None if only Python can pass it, as a function or a device."""
    name, default = parameter.name, parameter.default
    if name in ("device", "dtype") or (name.endswith("_fn") and default is None):  # functions of torch: `scale_fn`
        return None
    everything = _alternatives(hint)
    components_or_plain = [one for one in everything if one is not type(None)]
    more: dict[str, Any] = {
        "nullable": type(None) in everything,
        "listable": len(components_or_plain) > 1 and any(typing.get_origin(one) is Sequence for one in everything),
    }
    for one in components_or_plain:
        origin, made = typing.get_origin(one), one
        if origin in (list, tuple, Sequence) and name in KIND_BY_NAME:
            return Field(name, default, KIND_BY_NAME[name], many=True, nullable=more["nullable"])
        if is_named := origin is Mapping:
            made = typing.get_args(one)[1]
            origin = typing.get_origin(made)
        if origin is Callable:
            given, made = typing.get_args(made)
            more["num_given"] = 0 if given is Ellipsis else len(given)
        if is_named and (kind := _kind(made)) is not None:
            return Field(name, default, kind, more.get("num_given"), named=True, nullable=more["nullable"])
        kind = None if is_named else _kind(made) or (KIND_BY_NAME.get(name) if origin is Callable else None)
        if kind is not None:
            if default is not REQUIRED and default is not None:
                default = {"type": _registered(default, kind)}
            only = BUILT_IN[kind][0].name if len(BUILT_IN[kind]) == 1 else None
            return Field(name, default, kind, implied_type=_registered(made, kind) or only, **more)
        if origin is Callable:
            return None
    plain = plain_data(default)
    writable = [one for one in everything if _is_plain(one)]  # only `float` of another package's `float | Tensor`
    if not any(one is not type(None) for one in writable):
        writable = [_hint_of(default)]
        plain = NotImplemented if default is None and components_or_plain else plain
    return None if plain is NotImplemented else Field(name, plain, hint=reduce(or_, writable))


def _hint_of(default: Any) -> Any:
    """The annotation that a default stands for, if there is none or it does not describe plain data."""
    if isinstance(default, tuple):
        return tuple[tuple(_hint_of(item) for item in default)]  # type: ignore[misc]
    if isinstance(default, int) and not isinstance(default, bool):
        return int | float
    return next((kind for kind in (bool, float, str, list) if isinstance(default, kind)), Any)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """`A | B` → A, B."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _kind(hint: Any) -> str | None:
    """The kind of component that an annotation names, itself or by a base class."""
    bases = hint.__mro__ if inspect.isclass(hint) else ()
    names = [base.__name__ for base in bases if base.__module__.startswith("seqkit.")]  # torchvision has a Transform
    return next((KIND_BY_TYPE[name] for name in names if name in KIND_BY_TYPE), None)


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
        return value if value is REQUIRED else to_jsonable_python(value)
    except PydanticSerializationError:
        return NotImplemented


def _check_numbers(value: Any) -> None:
    """Raise ValueError for NaN, infinity and whole numbers of more than 64 bits, anywhere in plain data."""
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            _check_numbers(inner)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("give a finite number")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("give a number of 64 bits")


def check_value(value: Any, hint: Any) -> Any:
    """A plain value as its annotation wants it (a list as a tuple, a name as an enum's member).

    Raises ValueError, `give …`, if it is of another type.
    """
    import json

    from pydantic import TypeAdapter, ValidationError

    _check_numbers(value)
    for one in _alternatives(hint):
        for member in one if _is_enum(one) else ():
            if value in (member.name, member.value):
                return member
    try:
        # as JSON, whose types are YAML's: a list may be a tuple, a whole number a float, but "7" is no number
        return TypeAdapter(hint).validate_json(json.dumps(value), strict=True)
    except (ValidationError, TypeError) as error:
        faults = error.errors() if isinstance(error, ValidationError) else []
        if own := [fault["ctx"]["error"] for fault in faults if fault["type"] == "value_error"]:
            raise ValueError(str(own[0])) from None  # of a class of ours, which says what is wrong
        if isinstance(value, float) and int in _alternatives(hint) and value.is_integer():
            raise ValueError(f"write {value:.0f}, without point or exponent") from None
        raise ValueError(f"give {in_words(hint)}") from None


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is what its annotation wants."""
    try:
        check_value(value, hint)
    except ValueError:
        return False
    return True


@cache
def _is_plain(hint: Any) -> bool:
    """Whether plain data can be checked against this annotation."""
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

    try:
        TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return False
    return True


def _is_enum(hint: Any) -> bool:
    return inspect.isclass(hint) and issubclass(hint, Enum)


def in_words(hint: Any) -> str:
    """An annotation as a user would say it."""
    words: list[str] = []
    for one in _alternatives(hint):
        origin, arguments = typing.get_origin(one), typing.get_args(one)
        if one in WORDS:
            words.append(WORDS[one])
        elif origin is typing.Literal:
            words += map(str, arguments)
        elif origin is tuple and arguments and Ellipsis not in arguments:
            each = in_words(arguments[0])
            words.append(f"a list of {len(arguments)}" + (" numbers" if each == WORDS[float] else f" (each: {each})"))
        elif origin in (list, tuple, Sequence) or one in (list, tuple, Sequence):
            words.append(f"a list (each: {in_words(arguments[0])})" if arguments else "a list")
        elif origin is dict or one is dict:
            words.append("keys with a value each")
        elif is_dataclass(one):
            words.append(f"the keys {', '.join(x.name for x in fields(one))}")
        elif _is_enum(one):
            words += [str(member.value) for member in one]
        else:
            words.append(getattr(one, "__name__", str(one)))
    *most, last = dict.fromkeys(words)
    return f"{', '.join(most)} or {last}" if most else last
