"""`seqkit check PACKAGE.Class`: the laws of `seqkit.testing` over a tokenizer or a backbone."""

from __future__ import annotations

import inspect
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from seqkit.errors import UsageError, one_line, suggest
from seqkit.registry import components, find

KINDS = ("tokenizer", "backbone")


def run(args: Namespace) -> int:
    """Check each class that `args.what` names; print which laws it keeps.

    Raises UsageError with class, law and example where a law is broken, or where there is nothing to check it on.
    """
    settings = dict(_settings(args.overrides))
    for cls in _classes(args.what):
        laws = _checked(cls, settings, args.input)
        names = list(dict.fromkeys(law.__name__ for law in laws))
        print(one_line(f"{cls.__name__} keeps {len(names)} laws: {', '.join(names)}"))
    return 0


def _classes(what: str) -> list[type]:
    """The classes that `what` names: all of a file, one of a file or of a module, or a registered name."""
    path, _, name = what.partition(":")
    if path.endswith(".py"):
        return _of_file(Path(path), name)
    for kind in KINDS:
        if what.lower() in map(str.lower, components(kind)):
            return [_of_kind(find(kind, what).load(), what)]
    module, _, name = what.replace(":", ".").rpartition(".")
    if not module:
        known = [known for kind in KINDS for known in components(kind)]
        raise UsageError(f"there is no tokenizer or backbone called {what!r}; {suggest(what, known)}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it
    from seqkit.registry.plugins import in_time

    try:
        with in_time(module):
            found = import_module(module)
    except (Exception, SystemExit) as error:  # the user's own code: whatever it raises
        raise UsageError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(found, name):
        raise UsageError(f"{module} has no {name}; {suggest(name, getattr(found, '__all__', dir(found)))}")
    return [_of_kind(getattr(found, name), what)]


def _of_file(path: Path, name: str) -> list[type]:
    from seqkit.interfaces import Backbone, Tokenizer
    from seqkit.registry.plugins import import_plugins

    import_plugins([path])
    module = sys.modules[path.stem]
    own = {
        each: cls
        for each, cls in vars(module).items()
        if isinstance(cls, type) and issubclass(cls, Tokenizer | Backbone) and cls.__module__ == path.stem
    }
    if name and name not in own:
        raise UsageError(f"{path} has no tokenizer or backbone called {name!r}; {suggest(name, own)}")
    found = [own[name]] if name else [cls for cls in own.values() if not inspect.isabstract(cls)]
    if not found:
        raise UsageError(f"{path} has no class that derives from seqkit.Tokenizer or seqkit.Backbone; write one")
    return found


def _of_kind(cls: Any, what: str) -> type:
    from seqkit.interfaces import Backbone, Tokenizer

    if not isinstance(cls, type) or not issubclass(cls, Tokenizer | Backbone):
        raise UsageError(f"{what} is no class that derives from seqkit.Tokenizer or seqkit.Backbone")
    return cls


def _checked(cls: Any, settings: dict[str, Any], inputs: Sequence[str]) -> Sequence[Any]:
    from seqkit.interfaces import Tokenizer
    from seqkit.testing import check_backbone

    try:
        if issubclass(cls, Tokenizer):
            return _check_tokenizer(cls, settings, inputs)
        if cls.is_encoder_decoder:
            raise UsageError(f"{cls.__name__} is an encoder–decoder; the laws here are for backbones of one sequence")
        has_causal = "causal" in inspect.signature(cls).parameters

        def build(dim: int, causal: bool) -> Any:
            return cls(dim, causal=causal, **settings) if has_causal else cls(dim, **settings)

        return check_backbone(build, causal=(False, True) if has_causal else (False,))
    except AssertionError as error:
        raise UsageError(str(error)) from error
    except TypeError as error:  # of its constructor: what its methods raise names a law
        raise UsageError(f"{cls.__name__} cannot be built: {error}; give its settings, as --NAME VALUE") from error


def _check_tokenizer(cls: Any, settings: dict[str, Any], inputs: Sequence[str]) -> Sequence[Any]:
    from seqkit.data.inputs import read_inputs
    from seqkit.testing import check_tokenizer

    tokenizer = cls(**settings)
    raws = [raw for given in inputs for _, raw in read_inputs(given, tokenizer)] or list(cls.examples)
    if len(raws) < 2:
        raise UsageError(
            f"{cls.__name__} is checked on two raw examples or more, and there are {len(raws)}; give --input for each "
            "(a file, or a text), or list some in the class as `examples`"
        )
    if hasattr(tokenizer, "fit"):
        tokenizer.fit(list(raws))
    return check_tokenizer(tokenizer, raws, unfitted=cls(**settings))


def _settings(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """`--name value` and `--name=value` as names with values, read as YAML."""
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not name.startswith("--") or not (equals or rest):
            raise UsageError(f"{one_line(name)} is no setting with its value; give --NAME VALUE")
        try:
            yield name[2:].replace("-", "_"), yaml.safe_load(value if equals else rest.pop(0))
        except yaml.YAMLError as error:
            raise UsageError(f"the value of {name} is no YAML: {' '.join(str(error).split())}") from error
