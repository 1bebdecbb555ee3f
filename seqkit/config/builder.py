"""From a complete configuration to built components."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from seqkit.config.resolve import root
from seqkit.config.schema import Field, check_value
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import Tokenizer


class Built(NamedTuple):
    """Components of a run. model, data: keyword arguments of `Model` and `DataModule`, which need fitted ends first."""

    tokenizer: Tokenizer
    model: dict[str, Any]
    data: dict[str, Any]
    optimizer: Any
    schedule: Any
    trainer: dict[str, Any]


def build(config: Mapping[str, Any]) -> Built:
    """The components of a complete configuration, or of its tokenizer and model alone.

    Raises UsageError where a component refuses its arguments; DataError where its data is at fault.
    """
    fields = root(None if "data" in config else tuple(config))
    made: dict[str, Any] = {name: _value(field, config[name], name) for name, field in fields.items() if name in config}
    arguments: dict[str, Any] = {name: made.get(name) for name in Built._fields}
    return Built(**arguments)


def _value(field: Field, value: Any, path: str) -> Any:
    if field.is_list(value) and value is not None:
        return [_value(field.one, item, f"{path}.{i}") for i, item in enumerate(value)]
    if field.section is not None:
        fields = field.keys_below(None, path)
        return {name: _value(fields[name], item, f"{path}.{name}") for name, item in value.items()}
    if field.kind is None:
        return check_value(value, field.hint)
    return None if value is None else _component(field, value, path)


def _component(field: Field, value: Mapping[str, Any], path: str) -> Any:
    component, fields = field.component(value["type"], path), field.keys_below(value["type"], path)
    arguments = {name: _value(fields[name], item, f"{path}.{name}") for name, item in value.items() if name != "type"}
    cls = component.load()
    if component.path.startswith(("torch.optim:", "torch.optim.lr_scheduler:")):
        from seqkit.training.optim import TorchOptimizer, TorchSchedule

        wrapper: Any = TorchOptimizer if field.kind == "optimizer" else TorchSchedule
        cls = partial(wrapper, cls)
    if field.num_given is not None:
        return partial(cls, **arguments)
    try:
        return cls(**arguments)
    except (DataError, UsageError):
        raise
    except Exception as error:  # it may be the user's own code: whatever it raises
        what = "" if isinstance(error, TypeError | ValueError) else f"{type(error).__name__}: "
        raise UsageError(f"{path}: {what}{' '.join(str(error).split())}") from error
