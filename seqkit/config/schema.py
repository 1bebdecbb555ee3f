"""Keys of a configuration, read from the signatures of the components themselves.

A parameter of a component is a key. Its annotation says what the key holds: a plain value, a component of some kind
(`backbone: Backbone`), or a factory of one that the owner calls itself (`norm: Callable[[int], nn.Module]`). Of a
built-in component that is not imported yet, the table `known_keys` says the same without torch.
"""

from __future__ import annotations

import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, reduce
from operator import or_
from typing import Any

from seqkit.config.key_table import look_up
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
    "RotaryScaling": "rotary_scaling",
    "DataSource": "data_source",
    "OptimizerFactory": "optimizer",
    "Schedule": "schedule",
    "LoggerFactory": "logger",
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
    "callbacks": "callback",
    "logger": "logger",
}
"""Kind of a parameter whose annotation says no more than `nn.Module` or `Any`."""

REQUIRED = inspect.Parameter.empty
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "null"}


@dataclass(frozen=True)
class Field:
    """One key.

    default: as plain data; REQUIRED: there is none. kind: of the component that it holds; None: a plain value.
    num_given: arguments that the owner of a factory passes itself; None: the component is built here. many: a list of
    components. listable: one component or a list, one for each layer. section: `module:Class`, the class whose
    parameters are the keys below this one. hint: what a plain value may be, as an annotation. nullable: True: null is
    a value of a component's key. meant: the type where none is written, if the default is null.
    """

    name: str
    default: Any = REQUIRED
    kind: str | None = None
    num_given: int | None = None
    many: bool = False
    listable: bool = False
    section: str | None = None
    skip: tuple[str, ...] = ()
    hint: Any = Any
    nullable: bool = False
    meant: str | None = None

    @property
    def one(self) -> Field:
        """The key of one component of a list."""
        return replace(self, many=False, listable=False)

    def is_list(self, value: Any) -> bool:
        """True: the value is to be a list of components."""
        return self.many or (self.listable and isinstance(value, list))

    @property
    def default_type(self) -> str | None:
        """The type that is meant where none is written."""
        return self.default.get("type", self.meant) if isinstance(self.default, dict) else self.meant

    def keys_below(self, type_name: str | None, path: str) -> dict[str, Field]:
        """The keys below this one, for a component of that type. Raises UsageError for an unknown type."""
        if self.section is not None:
            return _without(_known_or_read(self.section), self.skip)
        component = self.component(type_name, path)
        # torch's own get the parameters first, or the optimizer
        num_given = 1 if component.path.startswith("torch.optim") else self.num_given or 0
        assert self.kind is not None
        if component in (*BUILT_IN[self.kind], *BUILT_IN["preset"]):
            return _without(_known_or_read(component.path), num_given=num_given)
        cls = component.load()
        bases = [name for name, kind in KIND_BY_TYPE.items() if kind == self.kind]
        if not inspect.isclass(cls) and component not in components("preset").values():
            raise UsageError(f"{path}: {component.name} at {component.path} is no class; register a class")
        if inspect.isclass(cls) and bases and _kind(cls) != self.kind:
            raise UsageError(f"{path}: {component.name} is no {bases[0]}; make it a subclass of it")
        return _without(read_parameters(cls), num_given=num_given)

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


def _known_or_read(path: str) -> dict[str, Field | None]:
    """Parameters of the class at `module:Class`: as the table has them while it is not imported, or from itself."""
    module, _, name = path.partition(":")
    known = None if module in sys.modules else look_up(path)
    if known is None:
        return read_parameters(Component(name, path).load())
    return {key: None if field is None else Field(key, **field) for key, field in known.items()}


def _without(
    parameters: Mapping[str, Field | None], skip: Sequence[str] = (), *, num_given: int = 0
) -> dict[str, Field]:
    """The keys among parameters. skip: those that are no keys here. num_given: leading parameters, the owner's."""
    mine = list(parameters.items())[num_given:]
    return {name: field for name, field in mine if field is not None and name not in skip}


def read_parameters(cls: Any) -> dict[str, Field | None]:
    """Each parameter of a class or function as a key; None: it cannot be written in YAML.

    Raises UsageError for parameters that no recipe can write: `**kwargs`, and one called `type`.
    """
    target = cls.__init__ if inspect.isclass(cls) else cls
    try:
        hints = typing.get_type_hints(target)
    except (NameError, TypeError):  # not every package writes annotations that can be evaluated
        hints = {}
    found: dict[str, Field | None] = {}
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
        hint = hints.get(parameter.name, REQUIRED)
        is_key = parameter.name not in ("device", "dtype")
        found[parameter.name] = (
            _field(parameter, _hint_of(parameter.default) if hint is REQUIRED else hint) if is_key else None
        )
    return found


def _field(parameter: inspect.Parameter, hint: Any) -> Field | None:
    """None: a function or the like, which only Python can pass."""
    name, default = parameter.name, parameter.default
    if name.endswith("_fn") and default is None:  # torch's name for a function: `scale_fn` of CyclicLR
        return None
    alternatives = [h for h in _alternatives(hint) if h is not type(None)]
    nullable = len(alternatives) < len(_alternatives(hint))
    listable = len(alternatives) > 1 and any(
        typing.get_origin(h) is typing.get_origin(Sequence[int]) for h in alternatives
    )
    for one in alternatives:
        origin, arguments = typing.get_origin(one), typing.get_args(one)
        if origin is Callable or origin is typing.get_origin(Callable[[], int]):
            given, returned = arguments
            kind = _kind(returned) or KIND_BY_NAME.get(name)
            if kind is None:
                return None
            number, meant = 0 if given is Ellipsis else len(given), _meant(returned, kind)
            return Field(name, _default(default, kind), kind, number, listable=listable, nullable=nullable, meant=meant)
        if origin in (list, tuple, Sequence, typing.get_origin(Sequence[int])) and name in KIND_BY_NAME:
            return Field(name, default, KIND_BY_NAME[name], many=True, nullable=nullable)
        if kind := _kind(one):
            meant = _meant(one, kind)
            return Field(name, _default(default, kind), kind, listable=listable, nullable=nullable, meant=meant)
    plain = plain_data(default) if default is not REQUIRED else REQUIRED
    writable = [one for one in _alternatives(hint) if _is_plain(one)]  # of another package's `float | Tensor` float
    if not any(one is not type(None) for one in writable):
        writable = [Any if default is REQUIRED else _hint_of(default)]
        plain = NotImplemented if default is None and alternatives else plain
    return None if plain is NotImplemented else Field(name, plain, hint=reduce(or_, writable))


def _hint_of(default: Any) -> Any:
    """What a parameter holds by its default, where its annotation is missing or does not describe plain data."""
    if isinstance(default, tuple):
        return tuple[tuple(_hint_of(item) for item in default)]  # type: ignore[misc]
    if isinstance(default, int) and not isinstance(default, bool):
        return int | float
    return next((kind for kind in (bool, float, str, list) if isinstance(default, kind)), Any)


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

    Raises ValueError, `give …`, where it is of another type.
    """
    import json

    from pydantic import TypeAdapter, ValidationError

    _check_numbers(value)
    for enum in _enums(hint):
        for member in enum:
            if value in (member.name, member.value):
                return member
    try:
        # as JSON, whose types are YAML's: a list may be a tuple, a whole number a float, but "7" is no number
        return TypeAdapter(hint).validate_json(json.dumps(value), strict=True)
    except (ValidationError, TypeError):
        if isinstance(value, float) and int in _alternatives(hint) and value.is_integer():
            raise ValueError(f"write {value:.0f}, without point or exponent") from None
        raise ValueError(f"give {in_words(hint)}") from None


@cache
def _is_plain(hint: Any) -> bool:
    """True: plain data can be checked against this annotation."""
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

    try:
        TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return False
    return True


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
            if origin is tuple and each == list(arguments) != []:
                kind = in_words(each[0])
                words.append(f"a list of {len(each)}" + (" numbers" if kind == WORDS[float] else f" (each: {kind})"))
                continue
            words.append(f"a list (each: {in_words(each[0])})" if each else "a list")
        elif origin is dict or one is dict:
            words.append("keys with a value each")
        elif inspect.isclass(one) and issubclass(one, Enum):
            words += [str(member.value) for member in one]
        else:
            words.append(getattr(one, "__name__", str(one)))
    *most, last = dict.fromkeys(words)
    return f"{', '.join(most)} or {last}" if most else last
