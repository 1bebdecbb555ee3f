"""`seqkit check PACKAGE.Class`: the laws of `seqkit.testing` over one of your own components."""

from __future__ import annotations

import inspect
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.config.overrides import Switch, dotted
from seqkit.errors import UsageError, described, one_line, suggest
from seqkit.registry import components, find
from seqkit.registry.plugins import import_plugins, quietly

if TYPE_CHECKING:
    from seqkit.testing import Checked

KINDS = ("tokenizer", "backbone", "mechanism", "position", "relative_position")
CHECKED = "tokenizer, backbone, mechanism or position"
BASES = (
    "seqkit.Tokenizer, seqkit.Backbone, seqkit.nn.attention.mechanism.AttentionMechanism, "
    "seqkit.nn.position.base.PositionalEncoding or RelativePosition"
)


def run(args: Namespace) -> int:
    """Check each class that `args.what` names; print which laws it keeps.

    Raises UsageError with class, law and example if a law is broken, or if there is nothing to check it on.
    """
    settings = dict(_settings(args.overrides))
    from seqkit.runs.trained_model import find_device

    device = str(find_device(args.device))
    for cls in _classes(args.what):
        checked = _checked(cls, settings, args.input, quick=args.quick, device=device)
        names = list(dict.fromkeys(law.__name__ for law in checked))
        print(one_line(f"{cls.__name__} keeps {len(names)} laws: {', '.join(names)}"))
        for reason in sorted(set(checked.left_out.values())):
            names = [name for name, why in checked.left_out.items() if why == reason]
            print(one_line(f"not checked ({reason}): {', '.join(names)}"))
    return 0


def _classes(what: str) -> list[type]:
    """The classes that `what` names: all of a file, one of a file or of a module, or a registered name."""
    path, _, name = what.partition(":")
    if path.endswith(".py"):
        return _of_file(Path(path), name)
    kinds = [kind for kind in KINDS if what.lower() in map(str.lower, components(kind))]
    found = find(kinds[0], what).load() if kinds else _of_module(what)
    if not isinstance(found, type) or not issubclass(found, _bases()):
        raise UsageError(f"{what} is no class that derives from {BASES}")
    return [found]


def _bases() -> tuple[type, ...]:
    """The base classes of what can be checked."""
    from seqkit.interfaces import Backbone, Tokenizer
    from seqkit.nn.attention.mechanism import AttentionMechanism
    from seqkit.nn.position.base import PositionalEncoding, RelativePosition

    return Tokenizer, Backbone, AttentionMechanism, PositionalEncoding, RelativePosition


def _of_module(what: str) -> Any:
    """Import what `package.module.Class` or `package.module:Class` names."""
    module, _, name = what.replace(":", ".").rpartition(".")
    if not module:
        known = [known for kind in KINDS for known in components(kind)]
        raise UsageError(f"there is no {CHECKED} called {what!r}; {suggest(what, known)}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it
    try:
        with quietly(module):
            found = import_module(module)
    except (Exception, SystemExit) as error:  # the user's own code: whatever it raises
        raise UsageError(f"{module} cannot be imported: {described(error)}") from error
    if not hasattr(found, name):
        raise UsageError(f"{module} has no {name}; {suggest(name, getattr(found, '__all__', dir(found)))}")
    return getattr(found, name)


def _of_file(path: Path, name: str) -> list[type]:
    """The class of that name in a Python file; all of its own that are not abstract if the name is empty."""
    import_plugins([path], option="")
    members = inspect.getmembers(sys.modules[path.stem], inspect.isclass)
    own = {each: cls for each, cls in members if issubclass(cls, _bases()) and cls.__module__ == path.stem}
    if name and name not in own:
        raise UsageError(f"{path} has no {CHECKED} called {name!r}; {suggest(name, own)}")
    found = [own[name]] if name else [cls for cls in own.values() if not inspect.isabstract(cls)]
    if not found:
        raise UsageError(f"{path} has no class that derives from {BASES}; write one")
    return found


def _checked(cls: Any, settings: dict[str, Any], inputs: Sequence[str], *, quick: bool, device: str) -> Checked:
    """The laws that a class keeps."""
    from seqkit.interfaces import Tokenizer
    from seqkit.nn.attention.mechanism import AttentionMechanism
    from seqkit.nn.position.base import PositionalEncoding, RelativePosition
    from seqkit.testing import check_backbone, check_mechanism, check_position, check_relative_position

    try:
        if issubclass(cls, Tokenizer):
            return _check_tokenizer(cls, settings, inputs, quick=quick)
        for base, check in (
            (AttentionMechanism, check_mechanism),
            (PositionalEncoding, check_position),
            (RelativePosition, check_relative_position),
        ):
            if issubclass(cls, base):
                return check(partial(cls, **settings), quick=quick, device=device)  # type: ignore[operator]
        if cls.is_encoder_decoder:
            raise UsageError(f"{cls.__name__} is an encoder–decoder; the laws here are for backbones of one sequence")
        has_causal = "causal" in inspect.signature(cls).parameters

        def build(dim: int, causal: bool) -> Any:
            return cls(dim, causal=causal, **settings) if has_causal else cls(dim, **settings)

        ways = (False, True) if has_causal else (bool(cls(24, **settings).causal),)
        return check_backbone(build, causal=ways, quick=quick, device=device)
    except AssertionError as error:
        raise UsageError(str(error)) from error
    except TypeError as error:  # of its constructor: what its methods raise names a law
        raise UsageError(f"{cls.__name__} cannot be built: {error}; give its settings, as --NAME VALUE") from error


def _check_tokenizer(cls: Any, settings: dict[str, Any], inputs: Sequence[str], *, quick: bool) -> Checked:
    """The laws that a tokenizer keeps on the inputs or, without any, on its own examples."""
    from seqkit.data.inputs import read_inputs
    from seqkit.testing import check_tokenizer

    tokenizer = cls(**settings)
    raws = [raw for given in inputs for _, raw in read_inputs(given, tokenizer, "text")] or list(cls.examples)
    if len(raws) < 2:
        raise UsageError(
            f"{cls.__name__} is checked on two raw examples or more, and there are {len(raws)}; give --input for each "
            "(a file, or a text), or list some in the class as `examples`"
        )
    if hasattr(tokenizer, "fit"):
        tokenizer.fit(list(raws))
    return check_tokenizer(tokenizer, raws, unfitted=cls(**settings), quick=quick)


def _settings(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Names and values of `--name value` and `--name=value`, the values read as YAML."""
    for name, word in dotted(words):
        if isinstance(word, Switch):
            raise UsageError(f"--{one_line(name)} is no setting with its value; give --NAME VALUE")
        yield name.replace("-", "_"), word.read()


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add = parser.add_argument
    add("what", metavar="PACKAGE.CLASS", help="a class, a Python file, or a name (seqkit list)")
    add("--quick", action="store_true", help="leave out slow laws, and name them")
    add("--device", default="cpu", metavar="NAME", help="auto, cpu (default), cuda or mps")
    add("--input", action="append", default=[], metavar="FILE", help="raw example: a file or a text")
    parser.set_defaults(takes_keys=True)
    parser.epilog = "Also takes the arguments of the class, such as --depth 2."
