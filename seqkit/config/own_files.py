"""The data source of the user's own files, from their path."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqkit.config.overrides import Word
from seqkit.config.record import Written
from seqkit.config.table_columns import reads_files
from seqkit.errors import UsageError, one_line
from seqkit.registry import components

log = logging.getLogger("seqkit")


def _own_path(name: str) -> Path:
    if name.startswith("~/"):
        return Path(name).expanduser()
    return Path(name)


def unexpanded(path: str) -> str:
    """The advice for a path that does not exist and has a variable's `$`; empty for any other."""
    is_open = re.search(r"\$\{?[A-Za-z_]", path)
    if is_open:
        return "; $NAME is not expanded: write the path out, or let your shell do it in --data"
    return ""


def with_paths(source: Written, key: str) -> dict[str, Any]:
    """A data source's keys with `~/` of its path expanded. Raises UsageError for a path with a variable."""

    def written(path: Any) -> Any:
        if isinstance(path, list):
            return [written(one) for one in path]
        if not isinstance(path, str) or "://" in path:
            return path
        if (
            (advice := unexpanded(path))
            and not Path(path).exists()
            and not any(mark in path for mark in "*?[")
        ):
            raise UsageError(f"{key}: there is no file or folder {path}{advice}")
        return str(_own_path(path)) if path.startswith("~/") else path

    if "path" in source:
        return {**source, "path": written(source["path"])}
    return dict(source)


def is_data_set(name: str) -> bool:
    """Whether a data source is registered by that name, in either case."""
    return name.lower() in {known.lower() for known in components("data_source")}


def data_source(
    value: str,
    path: str,
    *,
    reads_files: bool = False,
    has_classes: bool = False,
    tokenizer: Any = None,
) -> dict[str, Any]:
    """A data source from its name or, for the user's own files, from their path.

    reads_files: True: the tokenizer reads files itself. has_classes: True: the objective learns a class of each
    example, so a folder of texts has a folder for each class. tokenizer: its name, as of `source_for`.
    """
    if is_data_set(value):
        return {"type": value}
    from seqkit.data.formats import TABLE, TEXT, format_of, source_for

    file = _own_path(value)
    if file.exists():
        name, arguments = source_for(file, reads_files=reads_files, tokenizer=tokenizer)
        if name == "TextFiles" and file.is_dir() and has_classes:
            return {"type": "TextFolder", "path": value}
        inside = list(file.iterdir()) if name == "FileFolder" else []
        if any(format_of(one) is TABLE for one in inside) and not any(
            one.is_dir() for one in inside
        ):
            log.warning(
                "%s: each file in it is an example, which the tokenizer's read(path) reads; for one table in several "
                "files give --data '%s/*'", value, value,
            )  # fmt: skip
        return {"type": name, **arguments}
    if "://" in value:
        return {"type": "Table", "path": value}
    if any(mark in value for mark in "*?["):  # a pattern
        known = next(
            (known for known in (TABLE, TEXT) if file.suffix.lower() in known.suffixes), TEXT
        )
        return {"type": known.file_source, "path": value}
    if "/" in value or Path(value).suffix:
        raise UsageError(f"{path}: there is no file or folder {value}{unexpanded(value)}")
    return {"type": value}


def tell_unread(value: str, source: Written) -> None:
    """Log how many files of a folder of texts are not read, by suffix. source: that of `data_source` for the folder."""
    folder = _own_path(value)
    if source["type"] != "TextFiles" or "path" not in source or not folder.is_dir():
        return
    from seqkit.data.walk import suffix_of, walk

    known = set(source["path"])
    below = walk(folder)
    unread = Counter(
        suffix_of(name) or "without a suffix"
        for name in below.files
        if str(folder / name) not in known
    )
    if unread:
        counts = ", ".join(
            f"{count:,} {one_line(suffix)}" for suffix, count in unread.most_common(8)
        )
        log.warning("%s: not read are %s", value, counts + (", …" if len(unread) > 8 else ""))


def with_own_files(
    config: Written, preset: Written | None, pairs: Sequence[tuple[str, Any]]
) -> tuple[Written, Sequence[tuple[str, Any]]]:
    """Recipe and overrides, in which a user's folder is written out: a source of files, where the tokenizer reads them
    itself, and of texts by class, where a class is learned."""
    for key, value in pairs:
        name = value.read() if isinstance(value, Word) else value
        if (
            key in ("data", "data.source")
            and isinstance(name, str)
            and is_data_set(name)
            and Path(name).exists()
        ):
            raise UsageError(
                f"--{key} {name} is a data set of seqkit, and a path here; give ./{name} for the path"
            )
    given = [*config.items(), *(preset or {}).items(), *pairs]
    tokenizer = named_tokenizer(given)
    has_classes = _named_objective(given) == "Classify"
    reads = reads_files(tokenizer)

    def written(key: str, value: Any) -> Any:
        if key == "data" and isinstance(value, Mapping):
            return {
                **value,
                **{
                    name: written("data.source", one)
                    for name, one in value.items()
                    if name == "source"
                },
            }
        own = value.read() if isinstance(value, Word) else value
        if key not in ("data", "data.source") or not isinstance(own, str):
            return value
        if not _own_path(own).is_dir():
            return value
        source = data_source(
            own, "data.source", reads_files=reads, has_classes=has_classes, tokenizer=tokenizer
        )
        if not reads and not source["type"].endswith("Folder"):
            return value
        return source if key == "data.source" else {"source": source}

    return {key: written(key, value) for key, value in config.items()}, [
        (key, written(key, v)) for key, v in pairs
    ]


def named_tokenizer(pairs: Sequence[tuple[str, Any]]) -> Any:
    """The name of the tokenizer that the last of (key, value) names; None: none does."""
    return _last_name([value for key, value in pairs if key.removesuffix(".type") == "tokenizer"])


def _named_objective(pairs: Sequence[tuple[str, Any]]) -> Any:
    """The name of the objective that the last of (key, value) names; None: none does."""
    models = [value for key, value in pairs if key == "model" and isinstance(value, Mapping)]
    inner = [model["objective"] for model in models if "objective" in model]
    return _last_name(
        [value for key, value in pairs if key in ("model.objective", "model.objective.type")]
        or inner
    )


def _last_name(given: Sequence[Any]) -> Any:
    if given and isinstance(given[-1], Word):
        last = given[-1].read()
    elif given:
        last = given[-1]
    else:
        last = None
    return last.get("type") if isinstance(last, Mapping) else last
