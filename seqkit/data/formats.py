"""File formats: suffixes, what reads one file, the data sources of a user's own files. No torch here.

A new modality adds one row to `FORMATS`; the command line, `read_inputs` and `source_for` follow it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from seqkit.data.walk import walk
from seqkit.errors import DataError, UsageError, attempt


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A family of file formats.

    suffixes: in lower case, with the dot. reader: "module:function" from a path to one raw example; None: such a file
    is no raw example. options: arguments of the reader that are attributes of the tokenizer (an image's channels).
    many: True: the reader returns a list of raw examples, each of which is its own name.
    file_source, folder_source: registered data source that reads a file or a folder of them; None: there is none.
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
        """The raw example, or several, in a file. Raises DataError where it cannot be read."""
        assert self.reader is not None, "a format without a reader holds no raw examples"
        module, _, function = self.reader.partition(":")
        reader: Callable[..., Any] = getattr(import_module(module), function)
        return reader(path, **options)

    def read_for(self, path: Path, tokenizer: Any) -> Any:
        """`read` with the options of that tokenizer."""
        # an image tokenizer's `channels` is a number; one of audio has words for them
        options = {name: value for name in self.options if isinstance(value := getattr(tokenizer, name, None), int)}
        return self.read(path, **options)


AUDIO = FileFormat((".wav", ".flac", ".ogg", ".mp3"), "seqkit.data.io:read_audio", folder_source="AudioFolder")
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
GRAPH = FileFormat(
    (".graphml", ".gexf", ".edges", ".edgelist", ".npz", ".safetensors", ".pt", ".pth"), file_source="GraphFile"
)
TABLE = FileFormat(
    (
        ".parquet", ".arrow", ".feather", *(suffix + packed for packed in ("", ".gz", ".bz2", ".xz")
        for suffix in (".csv", ".tsv", ".json", ".jsonl", ".ndjson")),
    ),
    file_source="Table",
    folder_source="Table",
)  # fmt: skip

FORMATS = (AUDIO, IMAGE, TEXT, SMILES, GRAPH, TABLE)
"""All formats. In a folder with files of several, the first format that has a data source counts."""


TO_CSV = "to_csv('table.csv', index=False)"
TO_GRAPHML = "'graph.graphml')"
CONVERTED = {
    ".xlsx": f"pandas.read_excel(file).{TO_CSV}", ".xls": f"pandas.read_excel(file).{TO_CSV}",
    ".arff": "pandas.DataFrame(scipy.io.arff.loadarff(file)[0])"
             f".map(lambda x: x.decode() if isinstance(x, bytes) else x).{TO_CSV}",
    ".sdf": f"rdkit.Chem.PandasTools.LoadSDF(file, smilesName='smiles', molColName=None).{TO_CSV}",
    ".gml": f"networkx.write_graphml(networkx.read_gml(file), {TO_GRAPHML}",
    ".net": f"networkx.write_graphml(networkx.read_pajek(file), {TO_GRAPHML}",
    **dict.fromkeys(
        (".svm", ".libsvm"), "sklearn.datasets.load_svmlight_file(file) gives numbers and targets; write them as a CSV"
    ),
    **dict.fromkeys(
        (".conll", ".conllu", ".bio", ".iob"), 'write JSON Lines such as {"tokens": ["A", "cat"], "tags": ["X", "Y"]}'
    ),
}  # fmt: skip
"""Suffixes of formats that are not read though some look like text, and how to convert them in Python."""

_OF_ONE = re.compile(
    r"(part|shard|train|test|valid|val|dev)(ing|idation)?[-_.\d]|.*-of-\d|.*\.(parquet|arrow|feather)$"
)
"""Names of files that are parts of one table or text."""

MAX_FILES = 2_000_000
"""Most files of a folder that is searched; `/` holds more, and ImageNet fewer."""

MAX_LISTED = 100_000
"""Most files that a configuration can list, and be read back from a run."""


def format_of(path: Path) -> FileFormat | None:
    """The format of files that end as `path` does; None: there is none."""
    return next((known for known in FORMATS if path.name.lower().endswith(known.suffixes)), None)


def readable_suffixes() -> list[str]:
    """Suffixes of the files that hold raw examples."""
    return [suffix for known in FORMATS if known.reader is not None for suffix in known.suffixes]


@dataclass(frozen=True, slots=True)
class OwnReader:
    """Reads a file by the `read` of a tokenizer. Raises DataError that names the file."""

    tokenizer: Any

    def __call__(self, path: Path) -> Any:
        return self._named(path, "read", path)

    def check(self, path: Path) -> None:
        """Read the file and, where the tokenizer has nothing to fit first, encode what it holds."""
        raw = self(path)
        if not hasattr(self.tokenizer, "fit"):
            self._named(path, "encode", raw)

    def __repr__(self) -> str:
        return f"{type(self.tokenizer).__name__}.read"  # without an address, by which no fingerprint would come again

    def _named(self, path: Path, method: str, given: Any) -> Any:
        try:
            return attempt(self.tokenizer, method, given)
        except DataError as error:
            raise error if str(path) in str(error) else DataError(f"{path}: {error}") from error


def own_reader(tokenizer: Any) -> OwnReader | None:
    """Reader of files by the tokenizer's own `read`; None: it has none."""
    return OwnReader(tokenizer) if callable(getattr(tokenizer, "read", None)) else None


def source_for(path: Path, *, reads_files: bool = False) -> tuple[str, dict[str, Any]]:
    """The registered data source for a user's own file or folder, and its arguments, chosen by file suffix.

    Files of no known suffix are text where they begin as UTF-8 does.
    reads_files: True: the tokenizer reads files itself, so a folder holds an example a file, whatever the suffix. A
    folder without folders in it is still one text, table or graph where one file is one, or names say so (`_is_whole`).

    Raises UsageError where no data source reads what is there.
    """
    in_folder = path.is_dir()
    if _is_edge_list(path):
        return "GraphFile", {"path": str(path)}
    if not in_folder and not reads_files and (how := CONVERTED.get(path.suffix.lower())) is not None:
        raise UsageError(f"{path}: {path.suffix} files are not read; convert it: {how}")
    below = walk(path, limit=MAX_FILES + 1, hidden=True).files if in_folder else []
    files = [path / name for name in below] if in_folder else [path]
    if not files:
        raise UsageError(f"no data source reads {path}; it holds no files")
    if len(files) > MAX_FILES:
        raise UsageError(f"{path} holds more than {MAX_FILES:,} files; give the folder of the data alone")
    sources = {known: known.folder_source if in_folder else known.file_source for known in FORMATS}
    if in_folder and reads_files:
        has_folders = any("/" in name and not name.startswith(".") for name in below)
        if has_folders or not _is_whole(below):
            return "FileFolder", {"path": str(path)}
    for known, source in sources.items():
        fitting = [str(file) for file in files if file.name.lower().endswith(known.suffixes)]
        if in_folder and not known.lists_files:  # <split>/<year>/<class>/<file> is the deepest
            near = (name for name in below if name.count("/") <= 3)
            fitting = [str(path / name) for name in near if name.lower().endswith(known.suffixes)]
        if source is not None and fitting:
            if known.lists_files and len(fitting) > MAX_LISTED:
                raise UsageError(f"{path} holds {len(fitting):,} texts, and {MAX_LISTED:,} are the most; join some")
            return source, {"path": fitting if known.lists_files else str(path)}
    texts = [str(file) for file in files if format_of(file) is None and _is_text(file)]
    if 0 < len(texts) <= MAX_LISTED:
        return "TextFiles", {"path": texts}
    alone = None if in_folder else format_of(path)
    if alone is not None and alone.folder_source is not None:
        what = "a recording" if alone is AUDIO else "an image"
        raise UsageError(
            f"no data source reads {path}: {what} alone has no class; give the folder above the class folders"
        )
    what = "a folder of" if in_folder else "a file that ends in"
    suffixes = ", ".join(suffix for known, source in sources.items() if source is not None for suffix in known.suffixes)
    others = " files, or a tokenizer that has read(path): --plugin FILE --tokenizer NAME" if in_folder else ""
    raise UsageError(f"no data source reads {path}; give {what} {suffixes}{others}")


def _is_whole(names: Sequence[str]) -> bool:
    """Whether the files of a folder are one text, table or graph, and not an example each: one of them is, or they are
    named as shards (part-0.csv, 0-of-8.csv, Parquet) or splits (train.csv)."""
    suffixes = tuple(suffix for known in FORMATS if known.file_source for suffix in known.suffixes)
    whole = [name.lower() for name in names if not name.startswith(".") and name.lower().endswith(suffixes)]
    return len(whole) == 1 or any(_OF_ONE.match(name) for name in whole)


def _is_text(path: Path) -> bool:
    """Whether a file of no known suffix, such as a licence or a README, begins as UTF-8 text does."""
    try:
        if not path.is_file() or path.stat().st_size == 0:  # opening a FIFO would wait; files of /proc have no size
            return False
        with path.open("rb") as file:
            beginning = file.read(2**12)
    except OSError:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(beginning)
    except UnicodeDecodeError:
        return False
    return bool(beginning.strip()) and b"\0" not in beginning


def _is_edge_list(path: Path) -> bool:
    """Whether it is a table called edges, or a folder with one and a table called nodes."""
    tables = (".csv", ".tsv")
    if not path.is_dir():
        return path.stem.lower() == "edges" and path.suffix.lower() in tables
    stems = {file.stem.lower() for file in path.iterdir() if file.suffix.lower() in tables}
    return {"edges", "nodes"} <= stems
