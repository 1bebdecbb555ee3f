"""Keys of a configuration, read from the signatures of the components themselves.

A parameter of a component is a key. Its annotation says what the key holds: a plain value, a component of some kind
(`backbone: Backbone`), or a factory of one that the owner calls itself (`norm: Callable[[int], nn.Module]`).
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from seqkit.errors import UsageError
from seqkit.registry import BUILT_IN, Component, components, suggest

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
    "DataSource": "data_source",
    "OptimizerFactory": "optimizer",
    "Schedule": "schedule",
}
"""Kind of a parameter whose annotation names this class, or a subclass of it."""

KIND_BY_NAME = {
    "norm": "norm",
    "input_norm": "norm",
    "qk_norm": "norm",
    "mlp": "mlp",
    "expert": "mlp",
    "residual": "residual",
    "activation": "activation",
    "augment": "augmentation",
}
"""Kind of a parameter whose annotation says no more than `nn.Module` or `Any`."""

REQUIRED = inspect.Parameter.empty
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "null"}


@dataclass(frozen=True)
class Field:
    """One key.

    default: as plain data; REQUIRED: there is none. kind: of the component that it holds; None: a plain value.
    num_given: arguments that the owner of a factory passes itself; None: the component is built here. many: a list of
    components. section: the class whose parameters are the keys below this one. hint: the parameter's annotation.
    meant: the type where none is written, if the default is null.
    """

    name: str
    default: Any = REQUIRED
    kind: str | None = None
    num_given: int | None = None
    many: bool = False
    section: Any = None
    skip: tuple[str, ...] = ()
    hint: Any = Any
    meant: str | None = None

    @property
    def default_type(self) -> str | None:
        """The type that is meant where none is written."""
        return self.default.get("type", self.meant) if isinstance(self.default, dict) else self.meant

    def keys_below(self, type_name: str | None, path: str) -> dict[str, Field]:
        """The keys below this one, for a component of that type. Raises UsageError for an unknown type."""
        if self.section is not None:
            return fields_of(self.section, self.skip)
        component = self.component(type_name, path)
        # torch's optimisers get the parameters first, its schedulers the optimiser
        given = 1 if component.path.startswith("torch.optim") else self.num_given or 0
        return fields_of(component.load(), num_given=given, whole=not component.path.startswith("torch"))

    def component(self, type_name: str | None, path: str) -> Component:
        """The component of that name. Raises UsageError with the nearest names."""
        assert self.kind is not None
        known = components(self.kind) | (components("preset") if self.kind == "backbone" else {})
        if type_name is None:
            raise UsageError(f"{path} has no type; give {path}.type, one of: {', '.join(known)}")
        spelled = {name.lower(): name for name in known}
        if not isinstance(type_name, str) or type_name.lower() not in spelled:
            kind = self.kind.replace("_", " ")
            raise UsageError(f"{path}: there is no {kind} called {type_name!r}; {suggest(str(type_name), known)}")
        return known[spelled[type_name.lower()]]


def fields_of(cls: Any, skip: Sequence[str] = (), *, num_given: int = 0, whole: bool = True) -> dict[str, Field]:
    """The keys of a class or function by name, without what cannot be written in YAML.

    skip: parameters that are no keys. num_given: so many first parameters are the owner's. whole=False: leave out
    defaults of None, of which torch's classes have many.
    """
    target = cls.__init__ if inspect.isclass(cls) else cls
    try:
        hints = typing.get_type_hints(target)
    except (NameError, TypeError):  # not every package writes annotations that can be evaluated
        hints = {}
    found = {}
    named = [p for p in inspect.signature(cls).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    for parameter in named[num_given:]:
        if parameter.name in skip or parameter.name in ("device", "dtype"):
            continue
        if parameter.default is None and not whole:
            found[parameter.name] = Field(parameter.name, None, hint=Any)
            continue
        field = _field(parameter, hints.get(parameter.name, Any))
        if field is not None:
            found[parameter.name] = field
    return found


def _field(parameter: inspect.Parameter, hint: Any) -> Field | None:
    """None: a function or the like, which only Python can pass."""
    name, default = parameter.name, parameter.default
    alternatives = [h for h in _alternatives(hint) if h is not type(None)]
    for one in alternatives:
        origin, arguments = typing.get_origin(one), typing.get_args(one)
        if origin is Callable or origin is typing.get_origin(Callable[[], int]):
            given, returned = arguments
            kind = _kind(returned) or KIND_BY_NAME.get(name)
            if kind is None:
                return None
            number = 0 if given is Ellipsis else len(given)
            return Field(name, _default(default, kind), kind, number, hint=hint, meant=_meant(returned, kind))
        if origin in (list, tuple, Sequence, typing.get_origin(Sequence[int])) and name in KIND_BY_NAME:
            return Field(name, default, KIND_BY_NAME[name], many=True, hint=hint)
        if kind := _kind(one):
            return Field(name, _default(default, kind), kind, hint=hint, meant=_meant(one, kind))
    plain = plain_data(default) if default is not REQUIRED else REQUIRED
    return None if plain is NotImplemented else Field(name, plain, hint=hint)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """`A | B` → A, B."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _kind(hint: Any) -> str | None:
    names = [base.__name__ for base in hint.__mro__] if inspect.isclass(hint) else []
    return next((KIND_BY_TYPE[name] for name in names if name in KIND_BY_TYPE), None)


def _default(default: Any, kind: str) -> Any:
    """A default class as plain data: `{"type": name}`."""
    if default is REQUIRED or default is None:
        return default
    name = _registered(default, kind)
    assert name is not None, f"the default {default!r} of a {kind} is not in the registry"
    return {"type": name}


def _meant(cls: Any, kind: str) -> str | None:
    """The type that an annotation means by itself: of a registered class its own, of a kind of one component that."""
    built_in = BUILT_IN[kind]
    return _registered(cls, kind) or (built_in[0].name if len(built_in) == 1 else None)


def _registered(cls: Any, kind: str) -> str | None:
    """The name of a class in the registry."""
    for component in components(kind).values():
        name = component.path.partition(":")[2]
        if inspect.isclass(cls) and cls.__qualname__ == name and component.load() is cls:
            return component.name
    return None


def plain_data(value: Any) -> Any:
    """A default as YAML would have it; NotImplemented where it cannot."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        items = [plain_data(item) for item in value]
        return NotImplemented if NotImplemented in items else items
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    return NotImplemented


def check_value(value: Any, hint: Any) -> Any:
    """A plain value as its annotation wants it (a list as a tuple, a name as an enum's member).

    Raises ValueError, `give …`, where it is of another type.
    """
    import json

    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

    for enum in _enums(hint):
        for member in enum:
            if value in (member.name, member.value):
                return member
    try:
        adapter = TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return value  # an annotation of another package that says nothing about plain data
    try:
        # as JSON, whose types are YAML's: a list may be a tuple, a whole number a float, but "7" is no number
        return adapter.validate_json(json.dumps(value), strict=True)
    except (ValidationError, TypeError):
        raise ValueError(f"give {in_words(hint)}") from None


def _enums(hint: Any) -> Iterator[type[Enum]]:
    for one in _alternatives(hint):
        if inspect.isclass(one) and issubclass(one, Enum):
            yield one


def in_words(hint: Any) -> str:
    """An annotation as a user would say it."""
    words: list[str] = []
    for one in _alternatives(hint):
        origin, arguments = typing.get_origin(one), typing.get_args(one)
        if one in WORDS:
            words.append(WORDS[one])
        elif origin is typing.Literal:
            words += [str(choice) for choice in arguments]
        elif origin in (list, tuple) or origin is typing.get_origin(Sequence[int]):
            each = [argument for argument in arguments if argument is not Ellipsis]
            words.append(f"a list (each: {in_words(each[0])})" if each else "a list")
        elif origin is dict or one is dict:
            words.append("keys with a value each")
        elif inspect.isclass(one) and issubclass(one, Enum):
            words += [str(member.value) for member in one]
        else:
            words.append(getattr(one, "__name__", str(one)))
    *most, last = dict.fromkeys(words)
    return f"{', '.join(most)} or {last}" if most else last
