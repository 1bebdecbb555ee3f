"""What jsonargparse says of a wrong recipe, in one line of ours: which key, what was got, what is right."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

from seqkit.recipe import NAMED, refusal
from seqkit.registry import suggest

WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text", "NoneType": "null"}
WORDS |= {"list": "a list", "dict": "keys with a value each"}
"""Types as a user would say them."""


def one_line(message: str, p: Any, config: dict[str, Any]) -> str:
    """A message of the parser `p` about `config`, with the nearest key for one that is unknown."""
    text = " ".join(re.sub(r"\. Got value: Namespace\(.*", "", message, flags=re.DOTALL).split())
    text = text.replace("collections.abc.", "").replace("torch.nn.modules.module.", "")
    known = [
        action.dest for action in p._actions if "." in action.dest or action.dest in ("seed", "tokenizer", "optimizer")
    ]
    unknown = re.search(r"unrecognized arguments: --([\w.\-]+)", text) or re.search(
        r"[Kk]ey '([\w.\-]+)' is not expected", text
    )
    if unknown:
        key = unknown[1]
        near = difflib.get_close_matches(key, [*known, *_keys_of(config)], n=1, cutoff=0.5)
        return f"there is no key {key!r}" + (
            f"; did you mean {near[0]}?" if near else "; --print_config shows all keys"
        )
    if denied := re.search(r"Importing '([\w.]+)' is not allowed", text):
        return refusal(denied[1])
    refused = re.search(r"class_path '([\w.]+)': .*Option '(\w+)' is not accepted", text)
    if refused:
        names = _arguments(refused[1])
        return f"{refused[1].rsplit('.', 1)[-1]} has no argument {refused[2]!r}; {suggest(refused[2], names)}"
    return _wrong_value(text) or text


def _wrong_value(text: str) -> str | None:
    """`key is got; give right`, for a value of a wrong type; None where the message is about something else."""
    key = ".".join(dict.fromkeys(re.findall(r'Parser key "([\w.\-]+)"', text)))
    if found := re.search(r"the following arguments are required: ([\w., ]+)$", text):
        missing = [f"{key}.{name}".lstrip(".") for name in found[1].split(", ")]
        be = "is" if len(missing) == 1 else "are"
        return f"{' and '.join(missing)} {be} missing; say so in the recipe, or with --{missing[0]} VALUE"
    if not key:
        return None
    kind = NAMED.get(key)
    part = f"the name of a part (seqkit list {kind}s)" if kind else "the class path of a part"
    if found := re.search(r"Expected '([\w.]+)' to be a subclass of <class '(?:\w+\.)*(\w+)'>", text) or re.search(
        r"Import path ([\w.]+) does not correspond to a subclass of (\w+)", text
    ):
        return f"{key} is {found[1]}; give {'an' if found[2][0] in 'AEIOU' else 'a'} {found[2]}: {part}"
    for pattern, right in (
        (r"Subtypes: \[(?P<types>.*?)\] Errors: .* Given value: (?P<got>.*)$", ""),
        (r"Not a valid subclass of \w+\. Got value: (?P<got>.*?) Subclass types expect", part),
        (r"Expected a dot import path string: (?P<got>.*?)(?:\. Got .*)?$", part),
        (r"Expected an import path or a subclass spec, but got (?P<got>.*?)(?:\. Got .*)?$", part),
        (r"Expected an? (?P<types>.+)\. Got value: (?P<got>.*)$", ""),
        (r"Unable to load config ['\"](?P<got>.*?)['\"]", f"{WORDS['dict']}, such as --{key}.name VALUE"),
    ):
        if found := re.search(pattern, text):
            got = "null" if found["got"] == "None" else found["got"]
            return f"{key} is {got}; give {right or _said(_between_commas(found['types']))}"
    return None


def _said(types: Iterable[str]) -> str:
    """Types, as Python writes them, in a user's words."""
    words: list[str] = []
    for written in types:
        name = re.sub(r"^<class '(?:\w+\.)*(\w+)'>$", r"\1", written.strip())
        if choices := re.fullmatch(r"typing\.Literal\[(.*)\]", name):
            words += map(str, ast.literal_eval(f"[{choices[1]}]"))
        elif items := re.fullmatch(r"(?:list|typing\.List)\[(.*)\]", name):
            words.append(f"a list (each: {_said([items[1]])})")
        elif name.startswith(("dict[", "typing.Dict[")):
            words.append(WORDS["dict"])
        elif name.startswith("Callable["):
            words.append("the class path of a part")
        else:
            words.append(WORDS.get(name, name))
    *most, last = dict.fromkeys(words)
    return f"{', '.join(most)} or {last}" if most else last


def _between_commas(types: str) -> Iterator[str]:
    """`a, b[c, d]` → `a` and `b[c, d]`."""
    depth = start = 0
    for i, letter in enumerate(types):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            yield types[start:i]
            start = i + 1
    yield types[start:]


def _keys_of(config: Any, prefix: str = "") -> list[str]:
    inner = config.get("init_args", config) if isinstance(config, dict) else {}
    found = []
    for key, value in inner.items():
        found += [f"{prefix}{key}", *_keys_of(value, f"{prefix}{key}.")]
    return found


def _arguments(path: str) -> list[str]:
    from jsonargparse._util import import_object

    return [name for name in inspect.signature(import_object(path)).parameters if name != "self"]
