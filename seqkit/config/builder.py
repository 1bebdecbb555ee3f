"""Builds the components of a complete configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from seqkit.config.own_files import with_paths
from seqkit.config.resolve import INIT, root
from seqkit.config.schema import Field, check_value, is_torchs, settings_groups
from seqkit.config.table_columns import with_parts
from seqkit.errors import DataError, UsageError
from seqkit.interfaces import Tokenizer, TokenSpec
from seqkit.interfaces.declared import check_declared

if TYPE_CHECKING:
    from seqkit.model import Model


MAX_MODULES = 50_000
"""Most modules of a model; a transformer of 1,000 layers has some 14,000."""


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


def build(config: Mapping[str, Any]) -> Built:
    """The components of a complete configuration, or of its tokenizer and model alone.

    Raises UsageError if a component refuses its arguments; DataError if its data is at fault.
    """
    fields = root(None if "data" in config else tuple(config))
    if "data" in config and isinstance(config["data"].get("source"), Mapping):
        source = with_paths(config["data"]["source"], "data.source.path")
        config = {**config, "data": {**config["data"], "source": source}}
    with within_memory():
        data = {"data": _value(fields["data"], config["data"], "data")} if "data" in config else {}
        tokenizer = with_parts(config["tokenizer"], data["data"].get("source")) if data else config.get("tokenizer")
        config = {**config, "tokenizer": tokenizer} if tokenizer is not None else config
        others = [name for name in fields if name in config and name != "data"]
        made = data | {name: _value(fields[name], config[name], name) for name in others}
    init = made.get("model", {}).pop(INIT.name, None)
    arguments: dict[str, Any] = {name: made.get(name) for name in Built._fields} | {"init": init}
    return Built(**arguments)._replace(tokenizer_section=config.get("tokenizer"))


def build_model(built: Built, spec: TokenSpec) -> Model:
    """The model of built components. spec: spec of the fitted tokenizer.

    Raises UsageError if components refuse each other or the model does not fit into memory; DataError as they do.
    """
    from seqkit.model import Model

    try:
        with within_memory():
            return Model(spec, **built.model)
    except (DataError, UsageError):
        raise
    except (ValueError, TypeError, OverflowError, RuntimeError, MemoryError) as error:
        raise UsageError(_reason(error)) from error


def _reason(error: Exception) -> str:
    """An error in one line, without the stack of C++ that torch adds."""
    what = "" if isinstance(error, TypeError | ValueError) else f"{type(error).__name__}: "
    return what + " ".join(str(error).partition("Exception raised from")[0].split())


@contextmanager
def within_memory() -> Iterator[None]:
    """Raises UsageError as soon as the modules built inside have more weights than the machine has memory.

    A recipe of a line may ask for 10**9 layers: each is counted when its owner registers it, before it is filled.
    Weights on device meta take no memory and are not counted.
    """
    from torch.nn.modules import module as hooks
    from torch.nn.parameter import is_lazy

    from seqkit.training import available_memory

    memory, num_bytes, num_modules = available_memory.total_memory(), 0, 0
    counted: set[int] = set()  # tied weights are registered twice

    def count_tensor(_owner: Any, name: str, tensor: Any) -> None:
        nonlocal num_bytes
        if tensor is not None and not is_lazy(tensor) and not tensor.is_meta and id(tensor) not in counted:
            counted.add(id(tensor))
            num_bytes += tensor.numel() * tensor.element_size()
            if num_bytes > memory:
                raise UsageError(
                    f"the model has more weights than this machine's {memory / 1e9:.0f} GB of memory hold, counted "
                    f"up to a {name} of {list(tensor.shape)}; make it smaller: `seqkit describe` says what it costs"
                )

    def count_module(_owner: Any, _name: str, _module: Any) -> None:
        nonlocal num_modules
        num_modules += 1
        if num_modules > MAX_MODULES:
            raise UsageError(f"the model has more than {MAX_MODULES:,} modules; give it fewer layers or experts")

    handles = [
        hooks.register_module_parameter_registration_hook(count_tensor),
        hooks.register_module_buffer_registration_hook(count_tensor),
        hooks.register_module_module_registration_hook(count_module),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _value(field: Field, value: Any, path: str) -> Any:
    if field.is_list(value) and value is not None:
        return [_value(field.one, item, f"{path}.{i}") for i, item in enumerate(value)]
    if field.named and value is not None:
        fields = field.by_name(value)
        return {name: _value(fields[name], item, f"{path}.{name}") for name, item in value.items()}
    if field.section is not None:
        fields = field.keys_below(None, path)
        return {name: _value(fields[name], item, f"{path}.{name}") for name, item in value.items()}
    if field.kind is None:
        return check_value(value, field.hint)
    return None if value is None else _component(field, value, path)


def _component(field: Field, value: Mapping[str, Any], path: str) -> Any:
    component = field.component(value["type"], path)
    cls = component.load()
    fields = field.keys_below(value["type"], path)
    arguments = {name: _value(fields[name], item, f"{path}.{name}") for name, item in value.items() if name != "type"}
    try:
        arguments = settings_groups(cls, arguments)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    if is_torchs(component):
        from seqkit.training.optim import TorchOptimizer, TorchSchedule

        wrapper: Any = TorchOptimizer if field.kind == "optimizer" else TorchSchedule
        cls = partial(wrapper, cls)
    if field.num_given is not None:
        return partial(cls, **arguments)
    try:
        made = cls(**arguments)
        check_declared(made)  # before any data is read
        return made
    except (DataError, UsageError):
        raise
    except Exception as error:  # it may be the user's own code: whatever it raises
        raise UsageError(f"{path}: {_reason(error)}") from error
