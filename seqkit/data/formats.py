"""File formats: suffixes, the function that reads one file, the data sources of a user's own files. No torch here.

A new modality adds one row to `FORMATS`; the command line, `read_inputs` and `source_for` follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from seqkit.errors import UsageError


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A family of file formats.

    suffixes: lower case, with the dot. reader: "module:function" from a path to one raw example; None: not a raw
    example. options: keyword arguments of the reader that are attributes of the tokenizer (an image's channels).
    many: True: the reader gives a list, one raw example an entry, each of them its own name.
    file_source, folder_source: registered data source that reads a file or a folder of these; None: there is none.
    lists_files: True: the data source takes the list of files, False: the path that was named.
    """

    suffixes: tuple[str, ...]
    reader: str | None = None
    options: tuple[str, ...] = ()
    many: bool = False
    file_source: str | None = None
    folder_source: str | None = None
    lists_files: bool = False

    def read(self, path: Path, **options: Any) -> Any:
        """What `reader` makes of the file. Raises DataError where it cannot be read."""
        assert self.reader is not None, "a format without a reader holds no raw examples"
        module, _, function = self.reader.partition(":")
        reader: Callable[..., Any] = getattr(import_module(module), function)
        return reader(path, **options)


AUDIO = FileFormat((".wav", ".flac", ".ogg"), "seqkit.data.io:read_audio", folder_source="AudioFolder")
IMAGE = FileFormat(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"),
    "seqkit.data.io:read_image",
    options=("channels",),
    folder_source="ImageFolder",
)
TEXT = FileFormat(
    (".txt", ".md"),
    "seqkit.data.io:read_text",
    file_source="TextFiles",
    folder_source="TextFiles",
    lists_files=True,
)
SMILES = FileFormat((".smi",), "seqkit.data.io:read_smiles", many=True)
TABLE = FileFormat((".csv",), file_source="SmilesTable")

FORMATS = (AUDIO, IMAGE, TEXT, SMILES, TABLE)
"""All of them. Where a folder holds files of several, the first that has a data source counts."""


MAX_FILES = 2_000_000
"""Files of a folder that is searched; `/` holds more, and ImageNet fewer."""

MAX_LISTED = 100_000
"""Files that a configuration can list, and be read back from a run."""


def format_of(path: Path) -> FileFormat | None:
    """The format of files that end as `path` does; None: there is none."""
    return next((known for known in FORMATS if path.suffix.lower() in known.suffixes), None)


def readable_suffixes() -> list[str]:
    """Suffixes of the files that hold raw examples."""
    return [suffix for known in FORMATS if known.reader is not None for suffix in known.suffixes]


def source_for(path: Path) -> tuple[str, dict[str, Any]]:
    """The registered data source for a user's own file or folder, and its arguments, chosen by file suffix.

    Raises UsageError where no data source reads what is there.
    """
    in_folder = path.is_dir()
    files = sorted(islice((p for p in path.rglob("*") if p.is_file()), MAX_FILES + 1)) if in_folder else [path]
    if not files:
        raise UsageError(f"no data source reads {path}; it holds no files")
    if len(files) > MAX_FILES:
        raise UsageError(f"{path} holds more than {MAX_FILES:,} files; give the folder of the data alone")
    sources = {known: known.folder_source if in_folder else known.file_source for known in FORMATS}
    for known, source in sources.items():
        fitting = [str(file) for file in files if file.suffix.lower() in known.suffixes]
        if in_folder and not known.lists_files:  # <split>/<class>/<file> is the deepest
            fitting = [file for file in fitting if len(Path(file).relative_to(path).parts) <= 3]
        if source is not None and fitting:
            if known.lists_files and len(fitting) > MAX_LISTED:
                raise UsageError(f"{path} holds {len(fitting):,} texts, and {MAX_LISTED:,} are the most; join some")
            return source, {"path": fitting if known.lists_files else str(path)}
    alone = None if in_folder else format_of(path)
    if alone is not None and alone.folder_source is not None:
        what = "a recording" if alone is AUDIO else "an image"
        raise UsageError(
            f"no data source reads {path}: {what} alone has no class; give the folder above the class folders"
        )
    what = "a folder of" if in_folder else "a file that ends in"
    suffixes = ", ".join(suffix for known, source in sources.items() if source is not None for suffix in known.suffixes)
    raise UsageError(f"no data source reads {path}; give {what} {suffixes}{' files' if in_folder else ''}")
