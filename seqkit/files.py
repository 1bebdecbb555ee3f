"""Files that are written whole or not at all; YAML and JSON files read back as plain data, whoever wrote them."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import yaml

from seqkit.errors import DataError

MAX_YAML_BYTES = 2**24
MAX_JSON_BYTES = 2**26
"""Size of a run's JSON file: a list of 100,000 files as data, a tokenizer with the largest vocabulary in use."""

MAX_DEPTH = 20
"""Levels of mappings and lists: our recipes, complete, have 7; a decoder of unlike blocks of experts has 10."""

MAX_VALUES = 300_000
"""Number of keys, texts and numbers of a YAML file: four letters on disk are 660 bytes in memory."""


class StrictLoader(yaml.SafeLoader):
    """YAML loader for plain data: no tags, no anchors, no key twice; numbers and booleans are those of YAML 1.2."""

    def __init__(self, text: str, max_values: int):
        super().__init__(text)
        self._depth = 0
        self._count = 0
        self._max_values = max_values

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            alias = "an alias"
        else:
            alias = event.anchor and "an anchor"
        if special := alias or (event.tag and "a tag"):
            raise yaml.YAMLError(f"there is {special} at line {line}; write the plain value out")
        self._count += 1
        if self._count > self._max_values:
            raise yaml.YAMLError(
                f"it holds more than {self._max_values:,} values, the last one in line {line}"
            )
        nests = isinstance(event, yaml.CollectionStartEvent)
        if nests and self._depth == MAX_DEPTH:
            raise yaml.YAMLError(
                f"it is nested too deeply in line {line}; {MAX_DEPTH} levels are the most"
            )
        self._depth += nests
        node = super().compose_node(parent, index)
        self._depth -= nests
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        known: set[str] = set()
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise yaml.YAMLError(f"there is a merge key in line {line}; write the keys out")
            key = self.construct_object(key_node)
            if not isinstance(key, str):
                raise yaml.YAMLError(f"the key {key!r} in line {line} is not a text")
            if key in known:
                raise yaml.YAMLError(f"the key {key!r} is given twice, again in line {line}")
            known.add(key)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: Any) -> int:
        if len(node.value) > 20:
            line = node.start_mark.line + 1
            raise yaml.YAMLError(
                f"the number in line {line} has {len(node.value):,} digits; give at most 20"
            )
        return int(node.value)


StrictLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in pairs
        if tag in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
    ]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
StrictLoader.add_constructor("tag:yaml.org,2002:int", StrictLoader.construct_yaml_int)


class StrictDumper(yaml.SafeDumper):
    """YAML dumper that quotes a text which YAML 1.1 or `StrictLoader` would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """True: a list that occurs twice is written twice, since an alias would be refused."""
        return True


StrictDumper.add_multi_representer(
    Mapping,  # type: ignore[type-abstract]
    lambda dumper, value: dumper.represent_dict(value.items()),
)

for _tag, _first, _pattern in (
    ("bool", "tTfF", r"(?:true|True|TRUE|false|False|FALSE)$"),
    ("int", "-+0123456789", r"[-+]?[0-9]+$"),
    (
        "float",
        "-+.0123456789",
        r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.inf|\.nan)$",
    ),
):
    for _reads_or_writes in (StrictLoader, StrictDumper):
        _reads_or_writes.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), [*_first]
        )


def load_yaml(text: str, *, max_values: int = MAX_VALUES) -> Any:
    """YAML as plain data. Raises yaml.YAMLError, with the line, for anything else: tags, anchors, keys twice, …."""
    try:
        return StrictLoader(text, max_values).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}" if mark else ""
        raise yaml.YAMLError(
            f"{', '.join(filter(None, (error.context, error.problem)))}{where}"
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise yaml.YAMLError(
            f"there is a control character, U+{error.character:04X}, in line {line}"
        ) from None


def to_yaml(config: Any) -> str:
    """Plain data as YAML, keys in their order."""
    dumped: str = yaml.dump(config, Dumper=StrictDumper, sort_keys=False, allow_unicode=True)
    return dumped


def load_json(text: str) -> Any:
    """JSON as plain data. Raises ValueError for anything else: a key twice, deep nesting."""
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
        _check_depth(value, MAX_DEPTH)
    except RecursionError:
        raise ValueError(f"it is nested too deeply; {MAX_DEPTH} levels are the most") from None
    return value


def _check_depth(value: Any, most: int) -> None:
    """Raise RecursionError for more mappings and lists inside each other than `most`."""
    if isinstance(value, dict | list):
        if most == 0:
            raise RecursionError
        for inner in value.values() if isinstance(value, dict) else value:
            _check_depth(inner, most - 1)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises ValueError if it has a key twice, of which Python would silently take the last."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is given twice")
        found[key] = value
    return found


def read_regular(path: Path, size: int | None = None) -> bytes:
    """First `size` bytes of a regular file (None: all); a FIFO, on which reading would wait, is never opened.

    Raises OSError if it cannot be opened, DataError if it is a folder, a FIFO or a device.
    """
    check_regular(path, path.stat().st_mode)
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    with os.fdopen(descriptor, "rb") as file:
        check_regular(path, os.fstat(descriptor).st_mode)  # another file may have taken its place
        return file.read() if size is None else file.read(size)


def read_small(path: Path, max_bytes: int) -> bytes:
    """Bytes of a regular file of at most that size. Raises as `read_regular`, and DataError if it is larger."""
    data = read_regular(path, max_bytes + 1)
    if len(data) > max_bytes:
        raise DataError(
            f"{path} is too large: it has more than {max_bytes:,} bytes, the most that is read of its kind"
        )
    return data


def decoded(data: bytes) -> str:
    """Text from UTF-8, without a byte-order mark. Raises ValueError with the line of the first fault."""
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            kind = "it looks like UTF-16"
        else:
            kind = "it is of another encoding"
        line = data.count(b"\n", 0, error.start) + 1
        wrong = f"byte 0x{data[error.start]:02x} in line {line} is not UTF-8"
        raise ValueError(f"{wrong}: {kind}, or no text at all; save it as UTF-8") from None
    if text.startswith("\ufeff"):
        raise ValueError(
            "it begins with two byte-order marks; save it as UTF-8 with one, or with none"
        )
    return text


def check_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}
        what = kinds.get(stat.S_IFMT(mode), "device")
        raise DataError(f"{path} is a {what} and cannot be read as a file; give a regular file")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=False).encode())


def read_mapping(path: Path, *keys: str) -> dict[str, Any]:
    """Dictionary in a JSON or YAML file of a run, with these keys. Raises DataError if it is damaged."""
    is_yaml = path.suffix == ".yaml"
    advice = "copy it again or train again"
    try:
        text = decoded(read_small(path, MAX_YAML_BYTES if is_yaml else MAX_JSON_BYTES))
        value = load_yaml(text) if is_yaml else load_json(text)
    except FileNotFoundError:
        raise DataError(
            f"{path} is missing; the run folder is not complete, train again or copy it whole"
        ) from None
    except DataError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"{path} is damaged ({' '.join(str(error).split())}); {advice}") from error
    if isinstance(value, dict):
        missing = [key for key in keys if key not in value]
    else:
        missing = ["keys"]
    if missing:
        raise DataError(f"{path} is damaged: it has no {', '.join(missing)}; {advice}")
    found: dict[str, Any] = value
    return found


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: temporary file in the same folder, fsync, rename, fsync of the folder.

    On failure the temporary file is removed, and an earlier file at `path` is left unchanged.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:  # which follows no link
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, which gets that name when the context ends without error, and is removed otherwise.

    Raises FileExistsError or OSError if there is anything else than an empty folder at `path`.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.mkdir(parents=True)
    try:
        yield part
        part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def open_to_append(path: Path) -> FileIO:
    """File of a run, opened to append to; it is made if it is missing. Raises DataError for a link, OSError.

    A link in somebody else's folder could lead to any file of the user's; so could a second name (a hard link).
    """
    flags = (
        os.O_RDWR
        | os.O_APPEND
        | os.O_CREAT
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_NONBLOCK", 0)
    )
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise DataError(
            f"{path} is a link, and is not written to; put a copy of the file in its place"
        ) from error
    file = FileIO(descriptor, "ab")
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        file.close()
        raise DataError(
            f"{path} has a second name, or is no file, and is not written to; put a copy in its place"
        )
    return file


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power failure."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folder, and has no need to
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
