"""`seqkit check WHAT`: the laws of `seqkit.testing` over components and modules, your own or published ones."""

from __future__ import annotations

import inspect
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from seqkit.config.overrides import Switch, dotted
from seqkit.errors import UsageError, one_line, suggest
from seqkit.registry import components, find
from seqkit.registry.plugins import import_plugins

if TYPE_CHECKING:
    from seqkit.testing import Checked

KINDS = (
    "tokenizer",
    "backbone",
    "objective",
    "mixer",
    "mechanism",
    "position",
    "relative_position",
)
CHECKED = "tokenizer, backbone, objective, mixer, mechanism or position"
LIBRARIES = ("hf", "timm")

Check = Callable[..., "Checked"]
Settings = dict[str, Any]


class Row(TypedDict):
    """The outcome of a check as data: the laws kept, left out and why, and broken with their sizes."""

    name: str
    kept: list[str]
    left_out: dict[str, str]
    broken: list[dict[str, str | float | None]]


def run(args: Namespace) -> int:
    """Check what `args.what` names; print the laws that it keeps and, on stderr, each that it breaks.

    Gives 0 if all are kept, 1 if one is broken. Raises UsageError if there is nothing to check, or nothing to check it
    on.
    """
    settings: Settings = {}
    for name, word in dotted(args.overrides):
        if isinstance(word, Switch):
            raise UsageError(f"--{one_line(name)} is no setting with its value; give --NAME VALUE")
        settings[name.replace("-", "_")] = word.read()
    ignored = dict.fromkeys(args.ignore, "ignored")
    if args.what.partition(":")[0] in LIBRARIES:
        checks = _published(args.what, settings, ignored)
    else:
        checks = {
            name: partial(_checked, found, settings, args, ignore=ignored)
            for name, found in _found(args.what).items()
        }
    from seqkit.runs.trained_model import find_device
    from seqkit.testing import BrokenLawsError

    options = {"quick": args.quick, "device": str(find_device(args.device))}
    rows = []
    for name, check in checks.items():
        try:
            checked = check(**options)
        except BrokenLawsError as error:
            checked = error.checked
        rows.append(_row(name, checked))
        if not args.json:
            _print(rows[-1])
    if args.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    return int(any(row["broken"] for row in rows))


def _row(name: str, checked: Checked) -> Row:
    broken: list[dict[str, str | float | None]] = []
    for fault in checked.broken:
        size = fault.size if fault.size is not None and isfinite(fault.size) else None
        broken.append({"law": fault.law, "size": size, "where": fault.where, "text": fault.text})
    laws = {fault.law for fault in checked.broken}
    return {
        "name": name,
        "kept": list(dict.fromkeys(law.__name__ for law in checked)),
        "left_out": {law: why for law, why in checked.left_out.items() if law not in laws},
        "broken": broken,
    }


def _print(row: Row) -> None:
    print(one_line(f"{row['name']} keeps {len(row['kept'])} laws: {', '.join(row['kept'])}"))
    for reason in sorted(set(row["left_out"].values())):
        names = [name for name, why in row["left_out"].items() if why == reason]
        print(one_line(f"not checked ({reason}): {', '.join(names)}"))
    for fault in row["broken"]:
        said = f"{fault['where']}: {fault['law']}: {fault['text']}"
        print(f"seqkit check: {one_line(said)}", file=sys.stderr)


def _published(what: str, settings: Settings, ignored: dict[str, str]) -> dict[str, Check]:
    """Checks of a model of transformers, and of its `generate`; or of the blocks of a vision transformer of timm.

    Raises UsageError for a model that is not there or cannot be built.
    """
    import logging

    library, _, name = what.partition(":")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    from seqkit.testing import check_module
    from seqkit.testing.adapters import from_timm, from_transformers, timm_doors, transformers_doors
    from seqkit.testing.generated import GENERATE_LAWS, check_generate

    try:
        if library == "timm":
            blocks = from_timm(name, **settings)
            return {what: partial(check_module, blocks, **timm_doors(blocks), ignore=ignored)}
        model = from_transformers(name, **settings)
    except ModuleNotFoundError as error:
        raise UsageError(f"{what} needs {error.name}: pip install {error.name}") from error
    except Exception as error:  # whatever a library raises
        raise UsageError(f"{what} cannot be built: {one_line(error)}") from error
    doors = transformers_doors(model)
    of_generate = {law.__name__ for law in GENERATE_LAWS}
    others = {law: ignored.pop(law) for law in of_generate & ignored.keys()}
    checks: dict[str, Check] = {
        what: partial(check_module, model.base_model, **doors, ignore=ignored)
    }
    if doors["causal"]:
        checks[f"{what}, generate"] = partial(check_generate, model, ignore=others)
    return checks


def _found(what: str) -> dict[str, object]:
    """Components by name: all of a Python file that are not abstract, one of them or a module, or a registered one."""
    path, _, name = what.partition(":")
    if not path.endswith(".py"):
        kinds = [kind for kind in KINDS if what.lower() in map(str.lower, components(kind))]
        if not kinds:
            near = suggest(what, [known for kind in KINDS for known in components(kind)])
            raise UsageError(
                f"there is no {CHECKED} called {what!r}; {near}; or give FILE.py:CLASS"
            )
        return {what: find(kinds[0], what).load()}
    import_plugins([Path(path)], option="")
    from torch import nn

    module = sys.modules[Path(path).stem]
    own = {
        each: found
        for each, found in vars(module).items()
        if isinstance(found, nn.Module) or getattr(found, "__module__", "") == module.__name__
    }
    if name and name not in own:
        raise UsageError(f"{path} has nothing called {name!r}; {suggest(name, own)}")
    if name:
        return {name: own[name]}
    found = {x: cls for x, cls in own.items() if _is_ours(cls) and not inspect.isabstract(cls)}
    if not found:
        names = ", ".join(base.__name__ for base in _bases())
        raise UsageError(
            f"{path} has no class that derives from {names}; of others, give {path}:NAME"
        )
    return found


def _bases() -> tuple[type, ...]:
    from seqkit.interfaces import Backbone, Objective, Tokenizer
    from seqkit.nn.attention.mechanism import AttentionMechanism
    from seqkit.nn.mixers.base import Mixer
    from seqkit.nn.position.base import PositionalEncoding, RelativePosition

    return (
        Tokenizer,
        Backbone,
        Objective,
        Mixer,
        AttentionMechanism,
        PositionalEncoding,
        RelativePosition,
    )


def _is_ours(subject: Any) -> bool:
    return inspect.isclass(subject) and issubclass(subject, _bases())


def _checked(subject: Any, settings: Settings, args: Namespace, **options: Any) -> Checked:
    """The laws that a class keeps, or a module, or what a function makes."""
    from seqkit.config.builder import check_whole
    from seqkit.testing import (
        check_mechanism,
        check_mixer,
        check_objective,
        check_position,
        check_relative_position,
    )

    tokenizer, backbone, objective, *others = _bases()
    name = getattr(subject, "__name__", type(subject).__name__)
    check_whole(subject, name)
    try:
        if not _is_ours(subject):
            file = sys.modules[Path(args.what.partition(":")[0]).stem]
            return _check_module(subject, settings, vars(file), **options)
        if issubclass(subject, tokenizer):
            options.pop("device")
            return _check_tokenizer(subject, settings, args.input, **options)
        if issubclass(subject, backbone):
            return _check_backbone(subject, settings, **options)
        if issubclass(subject, objective):
            return check_objective(subject(**settings), **options)
        each: tuple[Any, ...] = (
            check_mixer,
            check_mechanism,
            check_position,
            check_relative_position,
        )
        check = next(c for b, c in zip(others, each, strict=True) if issubclass(subject, b))
        found: Checked = check(partial(subject, **settings), **options)
        return found
    except TypeError as error:  # of its constructor: what its methods raise names a law
        raise UsageError(
            f"{name} cannot be built: {error}; give its settings, as --NAME VALUE"
        ) from error


def _check_module(subject: Any, settings: Settings, file: Settings, **options: Any) -> Checked:
    """The laws that a module of torch keeps. What makes one is called with those settings that are none of the check;
    functions of its file that are called as doors of the check, such as `call`, are those."""
    from torch import nn

    from seqkit.testing.modules import Doors, check_module

    doors = {"dim", "causal", "call", *Doors.__annotations__}
    built: Collection[str] = ()
    if callable(subject) and not isinstance(subject, nn.Module):
        built = inspect.signature(subject).parameters
    given = {key: settings.pop(key) for key in doors & settings.keys() - set(built)}
    module = subject if isinstance(subject, nn.Module) else subject(**settings)
    if not isinstance(module, nn.Module):
        raise TypeError(f"it gives a {type(module).__name__}, no module of torch")
    given |= {name: door for name, door in file.items() if name in doors and callable(door)}
    return check_module(module, **given, **options)


def _check_backbone(cls: Any, settings: Settings, **options: Any) -> Checked:
    """The laws that a backbone keeps, causal and not if it can be both."""
    from seqkit.testing import check_backbone

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
    return check_backbone(build, causal=ways, **options)


def _check_tokenizer(
    cls: Any, settings: Settings, inputs: Sequence[str], **options: Any
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
    return check_tokenizer(tokenizer, raws, unfitted=cls(**settings), **options)


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the command."""
    add = parser.add_argument
    add(
        "what",
        metavar="FILE[:NAME]|NAME|hf:MODEL|timm:MODEL",
        help="a Python file, a class or module of it, or a name (seqkit list); hf:FOLDER or hf:TYPE of transformers, "
        "timm:NAME",
    )
    add("--quick", action="store_true", help="leave out slow laws, and name them")
    add("--json", action="store_true", help="print laws kept, left out and broken as JSON")
    add("--ignore", action="append", default=[], metavar="LAW", help="law that is not checked")
    add("--device", default="cpu", metavar="NAME", help="auto, cpu (default), cuda or mps")
    add(
        "--input", action="append", default=[], metavar="FILE", help="raw example: a file or a text"
    )
    parser.set_defaults(takes_keys=True)
    parser.epilog = (
        "Also takes the arguments of the class or settings of the model, such as --depth 2. Exit codes: 0 all laws are "
        "kept, 1 one is broken, 2 the command is wrong."
    )
