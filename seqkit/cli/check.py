"""`seqkit check FILE[:CLASS]`: the laws of `seqkit.testing` over your own components."""

from __future__ import annotations

import inspect
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.config.overrides import Switch, dotted
from seqkit.errors import UsageError, one_line, suggest
from seqkit.registry import components, find
from seqkit.registry.plugins import import_plugins

if TYPE_CHECKING:
    from seqkit.testing import Checked

KINDS = ("tokenizer", "backbone", "mechanism", "position", "relative_position")
CHECKED = "tokenizer, backbone, mechanism or position"


def run(args: Namespace) -> int:
    """Check each class that `args.what` names; print which laws it keeps.

    Raises UsageError with class, law and example if a law is broken, or if there is nothing to check it on.
    """
    settings: dict[str, object] = {}
    for name, word in dotted(args.overrides):
        if isinstance(word, Switch):
            raise UsageError(f"--{one_line(name)} is no setting with its value; give --NAME VALUE")
        settings[name.replace("-", "_")] = word.read()
    classes = _classes(args.what)
    from seqkit.runs.trained_model import find_device

    device = str(find_device(args.device))
    for cls in classes:
        checked = _checked(cls, settings, args.input, quick=args.quick, device=device)
        names = list(dict.fromkeys(law.__name__ for law in checked))
        print(one_line(f"{cls.__name__} keeps {len(names)} laws: {', '.join(names)}"))
        for reason in sorted(set(checked.left_out.values())):
            names = [name for name, why in checked.left_out.items() if why == reason]
            print(one_line(f"not checked ({reason}): {', '.join(names)}"))
    return 0


def _classes(what: str) -> list[type]:
    """The classes that `what` names: all of a Python file that are not abstract, one of them, or a registered one."""
    path, _, name = what.partition(":")
    if not path.endswith(".py"):
        kinds = [kind for kind in KINDS if what.lower() in map(str.lower, components(kind))]
        if not kinds:
            near = suggest(what, [known for kind in KINDS for known in components(kind)])
            raise UsageError(
                f"there is no {CHECKED} called {what!r}; {near}; or give FILE.py:CLASS"
            )
        return [find(kinds[0], what).load()]
    import_plugins([Path(path)], option="")
    from seqkit.interfaces import Backbone, Tokenizer
    from seqkit.nn.attention.mechanism import AttentionMechanism
    from seqkit.nn.position.base import PositionalEncoding, RelativePosition

    bases = (Tokenizer, Backbone, AttentionMechanism, PositionalEncoding, RelativePosition)
    module = Path(path).stem
    members = inspect.getmembers(sys.modules[module], inspect.isclass)
    own = {
        each: cls for each, cls in members if issubclass(cls, bases) and cls.__module__ == module
    }
    if name and name not in own:
        raise UsageError(f"{path} has no {CHECKED} called {name!r}; {suggest(name, own)}")
    if name:
        found = [own[name]]
    else:
        found = [cls for cls in own.values() if not inspect.isabstract(cls)]
    if not found:
        raise UsageError(
            f"{path} has no class that derives from {', '.join(base.__name__ for base in bases)}"
        )
    return found


def _checked(
    cls: Any, settings: dict[str, object], inputs: Sequence[str], *, quick: bool, device: str
) -> Checked:
    """The laws that a class keeps."""
    from seqkit.interfaces import Tokenizer
    from seqkit.nn.attention.mechanism import AttentionMechanism
    from seqkit.nn.position.base import PositionalEncoding, RelativePosition
    from seqkit.testing import (
        check_backbone,
        check_mechanism,
        check_position,
        check_relative_position,
    )

    others: dict[type, Any] = {
        AttentionMechanism: check_mechanism,
        PositionalEncoding: check_position,
        RelativePosition: check_relative_position,
    }
    try:
        if issubclass(cls, Tokenizer):
            return _check_tokenizer(cls, settings, inputs, quick=quick)
        for base, check in others.items():
            if issubclass(cls, base):
                found: Checked = check(partial(cls, **settings), quick=quick, device=device)
                return found
        if cls.is_encoder_decoder:
            raise UsageError(
                f"{cls.__name__} is an encoder–decoder; the laws here are for backbones of one sequence"
            )
        has_causal = "causal" in inspect.signature(cls).parameters

        def build(dim: int, causal: bool) -> Any:
            if has_causal:
                return cls(dim, causal=causal, **settings)
            return cls(dim, **settings)

        ways = (False, True) if has_causal else (bool(cls(24, **settings).causal),)
        return check_backbone(build, causal=ways, quick=quick, device=device)
    except AssertionError as error:
        raise UsageError(" ".join(str(error).splitlines())) from error
    except TypeError as error:  # of its constructor: what its methods raise names a law
        raise UsageError(
            f"{cls.__name__} cannot be built: {error}; give its settings, as --NAME VALUE"
        ) from error


def _check_tokenizer(
    cls: Any, settings: dict[str, object], inputs: Sequence[str], *, quick: bool
) -> Checked:
    """The laws that a tokenizer keeps on the inputs or, without any, on its own examples."""
    from seqkit.data.inputs import read_inputs
    from seqkit.testing import check_tokenizer

    tokenizer = cls(**settings)
    raws = [raw for given in inputs for _, raw in read_inputs(given, tokenizer, "text")]
    if not raws:
        raws = list(cls.examples)
    if len(raws) < 2:
        raise UsageError(
            f"{cls.__name__} is checked on two raw examples or more; list them in the class as `examples`, or give "
            "--input for each (a file, or a text)"
        )
    if hasattr(tokenizer, "fit"):
        tokenizer.fit(list(raws))
    return check_tokenizer(tokenizer, raws, unfitted=cls(**settings), quick=quick)


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add = parser.add_argument
    add(
        "what",
        metavar="FILE[:CLASS]|NAME",
        help="a Python file, a class of it, or a name (seqkit list)",
    )
    add("--quick", action="store_true", help="leave out slow laws, and name them")
    add("--device", default="cpu", metavar="NAME", help="auto, cpu (default), cuda or mps")
    add(
        "--input", action="append", default=[], metavar="FILE", help="raw example: a file or a text"
    )
    parser.set_defaults(takes_keys=True)
    parser.epilog = "Also takes the arguments of the class, such as --depth 2."
