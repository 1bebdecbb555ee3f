"""Builds the components of a complete configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from seqkit.config.image_sizes import with_image_size
from seqkit.config.merge import INIT, MODEL_KEYS, root
from seqkit.config.own_files import with_paths
from seqkit.config.record import Config
from seqkit.config.schema import Field, check_value, is_torchs
from seqkit.config.table_columns import with_parts
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import Tokenizer, TokenSpec

if TYPE_CHECKING:
    from seqkit.data.tables.read import Tables
    from seqkit.model import Model


class Built(NamedTuple):
    """Components of a run. model, data: keyword arguments of `Model` and `DataModule`, built after fitting.

    init: folder of the run with whose weights training begins; None: they are random. tokenizer_section: section of the
    tokenizer in the configuration, with a part for each column of a table.
    """

    tokenizer: Tokenizer
    model: dict[str, Any]
    data: dict[str, Any]
    optimizer: Any
    schedule: Any
    trainer: dict[str, Any]
    init: str | None = None
    tokenizer_section: Mapping[str, Any] | None = None


def build(config: Config, tables: Tables | None = None) -> Built:
    """The components of a complete configuration, or of its tokenizer and model alone.

    tables: has read a user's table already; None: a table is read here, where its columns are parts.
    Raises UsageError if a component refuses its arguments; DataError if its data is at fault.
    """
    fields = root(None if "data" in config else MODEL_KEYS)
    sections = {name: config[name] for name in fields if name in config}
    made = {}
    if "data" in sections:
        data = sections.pop("data")
        if isinstance(data.get("source"), Mapping):
            data = {**data, "source": with_paths(data["source"], "data.source.path")}
        made["data"] = _value(fields["data"], data, "data")
        source = made["data"].get("source")
        if tables is not None and hasattr(source, "tables"):
            source.tables = tables
        if "tokenizer" in sections:
            section = with_parts(sections["tokenizer"], source)
            sections["tokenizer"] = with_image_size(section, source)
    elif "tokenizer" in sections:
        sections["tokenizer"] = with_image_size(sections["tokenizer"], None)
    made |= {name: _value(fields[name], section, name) for name, section in sections.items()}
    init = made.get("model", {}).pop(INIT.name, None)
    arguments: dict[str, Any] = {name: made.get(name) for name in Built._fields}
    return Built(**arguments)._replace(init=init, tokenizer_section=sections.get("tokenizer"))


def build_model(built: Built, spec: TokenSpec) -> Model:
    """The model of built components. spec: spec of the fitted tokenizer.

    Raises UsageError if components refuse each other or the model does not fit into memory; DataError as they do.
    """
    from seqkit.model import Model

    try:
        return Model(spec, **built.model)
    except (DataError, UsageError):
        raise
    except (ValueError, TypeError, OverflowError, RuntimeError, MemoryError) as error:
        raise UsageError(_reason(error)) from error


def _reason(error: Exception) -> str:
    """An error in one line, without the stack of C++ that torch adds."""
    if isinstance(error, TypeError | ValueError):
        what = ""
    else:
        what = f"{type(error).__name__}: "
    return what + " ".join(str(error).partition("Exception raised from")[0].split())


def _value(field: Field, value: Any, path: str) -> Any:
    """The argument that a key stands for."""
    if field.is_list(value) and value is not None:
        return [_value(field.one, item, f"{path}.{i}") for i, item in enumerate(value)]
    if field.shape == "names" and value is not None:
        return {
            name: _value(below, value[name], f"{path}.{name}")
            for name, below in field.by_name(value).items()
        }
    if field.section is not None:
        return _arguments(field, value, path)
    if field.kind is None:
        return check_value(value, field.hint)
    return None if value is None else _component(field, value, path)


def _arguments(field: Field, value: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The arguments of a component or section; keys of settings become one argument."""
    fields = field.keys_below(value.get("type"), path)
    arguments: dict[str, Any] = {}
    settings: dict[tuple[str, type], dict[str, Any]] = {}
    for name, item in value.items():
        if name == "type" and field.kind is not None:
            continue
        group = fields[name].settings
        own = arguments if group is None else settings.setdefault(group, {})
        own[name] = _value(fields[name], item, f"{path}.{name}")
    return arguments | {
        name: _made(partial(cls, **own), path, () if field.kind else own)
        for (name, cls), own in settings.items()
    }


def _component(field: Field, value: Mapping[str, Any], path: str) -> Any:
    component = field.component(value["type"], path)
    cls = component.load()
    check_whole(cls, f"{path}: {value['type']}")
    if is_torchs(component):
        from seqkit.training.optim import TorchOptimizer, TorchSchedule

        wrapper: Any = TorchOptimizer if field.kind == "optimizer" else TorchSchedule
        cls = partial(wrapper, cls)
    factory = partial(cls, **_arguments(field, value, path))
    if field.num_given is not None:
        return factory
    return _made(factory, path)


def check_whole(cls: Any, name: str) -> None:
    """Raise UsageError if a class lacks a method that its base class leaves to it."""
    if lacking := sorted(getattr(cls, "__abstractmethods__", ())):
        raise UsageError(
            f"{name} has no {', '.join(lacking)}, which its base class leaves to it; write it"
        )


def _made(factory: Callable[[], Any], path: str, keys: Collection[str] = ()) -> Any:
    """Result of a factory. Raises UsageError, with the path of its keys, if it refuses them.

    keys: of which an error begins with the one that is refused.
    """
    try:
        return factory()
    except (DataError, UsageError):
        raise
    except Exception as error:  # it may be the user's own code: whatever it raises
        reason = _reason(error)
        where = f"{path}." if reason.partition(" ")[0] in keys else f"{path}: "
        raise UsageError(f"{where}{reason}") from error
