"""Run folders that are damaged, or that somebody sends to break in: what is done to a sound one.

`CASES` is (name, file, edit): edit takes the file's content and gives the new one; `MISSING`, `FOLDER`, `FIFO` and
`ENDLESS` (a link to a device without end) are put in its place. `seqkit predict` and `seqkit evaluate` have to refuse
each in one line with exit code 2 or 3. The SHA-256 sums in summary.json are made to fit, as an attacker would: what
they protect from is an accident.
"""

import json
import pickle
import re
import struct
from collections.abc import Callable
from typing import Any

from reliability.hostile_recipes import NAMES, SENTINEL

MISSING, FOLDER, FIFO, ENDLESS = b"\0missing", b"\0folder", b"\0fifo", b"\0endless"

CONFIG, STATE, SUMMARY, WEIGHTS = (
    "config.yaml",
    "state.json",
    "summary.json",
    "checkpoints/model.safetensors",
)

Edit = Callable[[bytes], bytes]


def _content(new: bytes | str) -> Edit:
    """The file has this content."""
    data = new if isinstance(new, bytes) else new.encode()
    return lambda _: data


def _sub(pattern: str, new: str) -> Edit:
    """The first match of a pattern is replaced; it has to be there."""

    def edit(content: bytes) -> bytes:
        text, count = re.subn(pattern, lambda _: new, content.decode(), count=1)
        assert count == 1, f"{pattern} is not in the sound file"
        return text.encode()

    return edit


def _put(*keys: Any, value: Any) -> Edit:
    """A value at a place of a JSON file; the last key may be new."""

    def edit(content: bytes) -> bytes:
        whole = json.loads(content)
        inner = whole
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        return json.dumps(whole).encode()

    return edit


def _without(key: str) -> Edit:
    """A JSON file without a key."""
    return lambda content: json.dumps(
        {name: v for name, v in json.loads(content).items() if name != key}
    ).encode()


def _twice(key: str) -> Edit:
    """A JSON file that gives a key twice."""
    return lambda content: content.rstrip()[:-1] + f', "{key}": "again"}}'.encode()


def _header(header: bytes, length: int | None = None) -> Edit:
    """A safetensors file of that header, and the length that it declares."""
    return _content(
        struct.pack("<Q", len(header) if length is None else length) + header + bytes(64)
    )


_NESTED = b"[" * 100_000 + b"]" * 100_000
_any: list[tuple[str, Edit]] = [
    ("is missing", _content(MISSING)),
    ("is a folder", _content(FOLDER)),
    ("is a FIFO", _content(FIFO)),
    ("has no end", _content(ENDLESS)),
    ("is empty", _content(b"")),
    ("is cut in half", lambda content: content[: len(content) // 2]),
    ("has one byte", _content(b"{")),
    ("is NUL", lambda content: bytes(len(content))),
    ("is UTF-16", lambda content: b"\xff\xfe" + "{}".encode("utf-16-le")),
    ("is a pickle", _content(pickle.dumps({"sha256": "x"}))),
    ("is a PNG", _content(b"\x89PNG\r\n\x1a\n" + bytes(100))),
    ("is null", _content(b"null")),
    ("is a list", _content(b"[1, 2]")),
    ("is a text", _content(b'"os.system"')),
    ("is empty braces", _content(b"{}")),
    ("is nested deeply", _content(_NESTED)),
    ("is nested deeply in a key", _content(b'{"sha256": ' + _NESTED + b"}")),
]

_config: list[tuple[str, Edit]] = [
    (
        "runs by a tag",
        _content("model: !!python/object/apply:os.system [id]\ndata: 1\ntokenizer: 1\n"),
    ),
    ("has an alias", _sub(r"\ntokenizer:", "\nx: &a [*a]\ntokenizer:")),
    ("has an anchor", _sub(r"\nseed: 1", "\nseed: &a 1")),
    ("has a merge key", _sub(r"\nseed: 1", "\nseed: 1\n<<: {seed: 2}")),
    ("has a key twice", _sub(r"\nseed: 1", "\nseed: 1\nseed: 2")),
    ("has no model", _sub(r"\nmodel:", "\nmodel2:")),
    ("has null for the model", _content("model: null\ndata: null\ntokenizer: null\n")),
    ("has a list for the model", _content("model: []\ndata: []\ntokenizer: []\n")),
    ("has a list for the tokenizer", _content("model: {}\ndata: {}\ntokenizer: [a, b]\n")),
    *((f"names {name} as tokenizer", _sub("type: Patches", f"type: '{name}'")) for name in NAMES),
    *(
        (f"names {name} as backbone", _sub("type: Transformer", f"type: '{name}'"))
        for name in NAMES
    ),
    *(
        (f"names {name} as activation", _sub("type: GELU", f"type: '{name}'"))
        for name in NAMES[::5]
    ),
    ("has a NaN width", _sub(r"dim: 8", "dim: .nan")),
    ("has another width", _sub(r"dim: 8", "dim: 16")),
    ("has a width of no memory", _sub(r"dim: 8", "dim: 99999999999")),
    ("has a width of 20 digits", _sub(r"dim: 8", "dim: 99999999999999999999")),
    ("has no layers", _sub(r"depth: 1", "depth: 0")),
    ("has another patch", _sub(r"patch: 4", "patch: 2")),
    ("has another objective", _sub(r"type: Classify", "type: Masked")),
    ("has an unknown key", _sub(r"\nmodel:", "\nmodel:\n  __class__: 1")),
]

_state: list[tuple[str, Edit]] = [
    ("has a key twice", _twice("tokenizer")),
    ("has no objective", _without("objective")),
    ("has null for the tokenizer's state", _put("tokenizer", value=None)),
    ("has a text for the tokenizer's state", _put("tokenizer", value="os.system")),
    ("has more for the tokenizer", _put("tokenizer", value={"__class__": "os.system"})),
    ("has null for the objective's state", _put("objective", value=None)),
    ("has a number for the names", _put("objective", "names", value=7)),
    ("has null for the names", _put("objective", "names", value=None)),
    ("has too few names", _put("objective", "names", value=["a"])),
    ("has too many names", _put("objective", "names", value=["a"] * 10_000)),
    ("has no names", _put("objective", "names", value=[])),
    ("has a number of 5000 digits", _sub(r'"tokenizer": \{\}', '"tokenizer": ' + "9" * 5000)),
    ("is followed by another", lambda content: content + content),
]

_summary: list[tuple[str, Edit]] = [
    ("has a key twice", _twice("sha256")),
    *((f"has no {key}", _without(key)) for key in ("sha256", "recipe", "backbone", "metrics", "versions", "seed")),
    *((f"has {value!r} for the SHA-256", _put("sha256", value=value)) for value in (None, 7, [], {}, "", "0" * 64)),
    *((f"has {value!r} for the extents", _put("extents", value=value)) for value in (
        7, "ab", [1], [[1]], [["a", "b"]], [[1, 2, 3]], {"a": 1}, [None])),
    *((f"has {value!r} for the metrics", _put("metrics", value=value)) for value in (
        None, 7, [], {"loss": "os.system"}, {"loss": []}, {"loss": None})),
    *((f"has {value!r} for the versions", _put("versions", value=value)) for value in (None, [], {"seqkit": 7})),
    ("has a text for the seed", _put("seed", value="os.system")),
    ("has a list for the recipe", _put("recipe", value=["a"])),
    ("has a number of 5000 digits", _sub(r'"seed": 1', '"seed": ' + "9" * 5000)),
]  # fmt: skip

_ONE = b'"dtype":"F32","shape":[1],"data_offsets":[0,4]'
_weights: list[tuple[str, Edit]] = [
    ("declare a header without end", _header(b"{}", 2**62)),
    ("declare a header longer than the file", _header(b"{}", 10_000)),
    ("have a header of NUL", _header(bytes(64))),
    ("have a header nested deeply", _header(_NESTED)),
    ("have no tensors", _header(b"{}")),
    ("have an unknown type", _header(b'{"a":{' + _ONE.replace(b"F32", b"OBJ") + b"}}")),
    (
        "have a tensor outside the file",
        _header(b'{"a":{' + _ONE.replace(b"[0,4]", b"[0,4000000000]") + b"}}"),
    ),
    (
        "have a tensor before the file",
        _header(b'{"a":{' + _ONE.replace(b"[0,4]", b"[-4,0]") + b"}}"),
    ),
    (
        "have a tensor of no memory",
        _header(b'{"a":{' + _ONE.replace(b"[1]", b"[4611686018427387904]") + b"}}"),
    ),
    ("have overlapping tensors", _header(b'{"a":{' + _ONE + b'},"b":{' + _ONE + b"}}")),
    ("have a tensor of another model", _header(b'{"a":{' + _ONE + b"}}")),
    ("have a tensor twice", _header(b'{"a":{' + _ONE + b'},"a":{' + _ONE + b"}}")),
    ("are a pickle of a call", _content(b"cos\nsystem\n(S'touch hostile'\ntR.")),
    ("import a module by a pickle", _content(f"c{SENTINEL}\nrun\n(tR.".encode())),
]

CASES: list[tuple[str, str, Edit]] = [
    *(
        (f"{file} {what}", file, edit)
        for file in (CONFIG, STATE, SUMMARY, WEIGHTS)
        for what, edit in _any
    ),
    *((f"{CONFIG} {what}", CONFIG, edit) for what, edit in _config),
    *((f"{STATE} {what}", STATE, edit) for what, edit in _state),
    *((f"{SUMMARY} {what}", SUMMARY, edit) for what, edit in _summary),
    *((f"the weights {what}", WEIGHTS, edit) for what, edit in _weights),
]
"""(name, file, edit) of every case."""
