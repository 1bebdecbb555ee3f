"""File formats: suffixes, what reads one file, the data sources of a user's own files. No torch here.

A new modality adds one row to `FORMATS`; the command line, `read_inputs` and `source_for` follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from seqkit.data.source import Arguments
from seqkit.data.walk import Walked, exists_as, walk
from seqkit.errors import DataError, UsageError, attempt


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A family of file formats.

    suffixes: in lower case, with the dot. reader: "module:function" from a path to one raw example; None: such a file
    is no raw example. options: arguments of the reader that are attributes of the tokenizer (an image's channels).
    many: True: the reader returns a list of samples, each with its name.
    file_source, folder_source: registered data source that reads a file or a folder of them; None: there is none.
    lists_files: True: the data source takes the list of files, False: the path that was named.
    kind: kind of a column of such files, and of the recipe that learns their classes; empty: there is none. plural: the
    files, in a word. tokenizers: names of those that take what the reader gives. holds: "module:function" from a folder
    and the names of its files to whether it is of this format; None: it is with one fitting file. grouped: also one, of
    which `examples` has the result; None: every file that fits is an example.
    """

    suffixes: tuple[str, ...]
    reader: str | None = None
    options: tuple[str, ...] = ()
    many: bool = False
    file_source: str | None = None
    folder_source: str | None = None
    lists_files: bool = False
    kind: str = ""
    plural: str = ""
    tokenizers: tuple[str, ...] = ()
    holds: str | None = None
    grouped: str | None = None

    def fits(self, name: str) -> bool:
        """Whether a file of that name is of the format."""
        return name.lower().endswith(self.suffixes)

    def source(self, *, in_folder: bool) -> str | None:
        """The registered data source that reads a folder of such files, or one; None: there is none."""
        if in_folder:
            return self.folder_source
        return self.file_source

    def read_for(self, path: Path, tokenizer: Any) -> Any:
        """The raw example, or several, in a file, for that tokenizer. Raises DataError where it cannot be read."""
        assert self.reader is not None, "a format without a reader holds no raw examples"
        # an image tokenizer's `channels` is a number; one of audio has words for them
        known = {name: getattr(tokenizer, name, None) for name in self.options}
        return _named(self.reader)(
            path, **{k: v for k, v in known.items() if isinstance(v, int) or callable(v)}
        )

    def is_in(self, folder: Path, names: Sequence[str]) -> bool:
        """Whether a folder with these files is one of the format."""
        if self.holds is None:
            return any(map(self.fits, names))
        return bool(_named(self.holds)(folder, names))

    def examples(self, below: Walked) -> tuple[Walked, list[str]]:
        """Files below a folder, where a folder that is one example is a file, and the names of the examples."""
        if self.grouped is not None:
            return _named(self.grouped)(below)  # type: ignore[no-any-return]
        return below, [name for name in below.files if self.fits(name)]


def _named(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


AUDIO = FileFormat(
    (".wav", ".flac", ".ogg", ".mp3"), "seqkit.data.io:read_audio", folder_source="AudioFolder",
    kind="audio", plural="recordings",
    tokenizers=("LogMel", "MultiScale", "SpectrogramPatches", "WhisperMel", "SampleWindows"),
)  # fmt: skip
VIDEO = FileFormat(
    (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".gif"), "seqkit.data.clips:read_clip", folder_source="VideoFolder",
    options=("channels", "sample", "resized"), holds="seqkit.data.clips:holds_clips",
    grouped="seqkit.data.clips:with_folders_of_frames",
    kind="video", plural="videos", tokenizers=("Tubelets",),
)  # fmt: skip
IMAGE = FileFormat(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"), "seqkit.data.io:read_image",
    options=("channels",), folder_source="ImageFolder", kind="image", plural="images", tokenizers=("Patches",),
)  # fmt: skip
TEXT = FileFormat(
    (".txt", ".md"), "seqkit.data.io:read_text", file_source="TextFiles", folder_source="TextFiles", lists_files=True,
    kind="text", tokenizers=("Bytes", "Characters", "Words", "CharNGrams", "BPE", "FromFile"),
)  # fmt: skip
SMILES = FileFormat(
    (".smi",), "seqkit.data.io:read_smiles", many=True, kind="smiles", tokenizers=("Molecule",)
)
GRAPH = FileFormat((".graphml", ".npz", ".safetensors"), file_source="GraphFile")
TABLE = FileFormat(
    (
        ".parquet", ".arrow", ".feather", *(suffix + packed for packed in ("", ".gz", ".bz2", ".xz")
        for suffix in (".csv", ".tsv", ".json", ".jsonl", ".ndjson")),
    ),
    file_source="Table",
    folder_source="Table",
)  # fmt: skip

FORMATS = (AUDIO, VIDEO, IMAGE, TEXT, SMILES, GRAPH, TABLE)
"""All formats. In a folder with files of several, the first format that has a data source counts."""

OF_KIND = {known.kind: known for known in FORMATS if known.kind}
"""Format by the kind of a column."""

OF_CLASSES = (AUDIO, VIDEO, IMAGE)
"""Formats of which a folder has the classes as folders."""

OF_TOKENIZER = {name: known for known in FORMATS for name in known.tokenizers}
"""Format of the files that a tokenizer reads, by its name."""

_GRAPHML = "networkx.write_graphml(networkx.read_{}(FILE), 'graph.graphml')"
_TENSORS = "numpy.savez('graph.npz', x=data.x, edge_index=data.edge_index, y=data.y, train_mask=data.train_mask, …)"
_TAGS = """a JSON line for each sentence, {"tokens": ["the", "cat"], "tags": ["DET", "NOUN"]}"""

UNREAD = {
    (
        ".sdf",
        ".mol",
    ): "rdkit.Chem.PandasTools.LoadSDF(FILE, smilesName='smiles').to_csv('molecules.csv', index=False)",
    (".gml",): _GRAPHML.format("gml"),
    (".net", ".paj"): _GRAPHML.format("pajek"),
    (".gexf",): _GRAPHML.format("gexf"),
    (
        ".edges",
        ".edgelist",
    ): "pandas.read_csv(FILE, sep=' ', names=['source', 'target']).to_csv('edges.csv', "
    "index=False), with nodes.csv beside it",
    (".pt", ".pth"): _TENSORS,
    (
        ".arff",
    ): "pandas.DataFrame(scipy.io.arff.loadarff(FILE)[0]).map(lambda x: x.decode() if isinstance(x, bytes) "
    "else x).to_csv('table.csv', index=False)",
    (".libsvm", ".svm", ".svmlight"): "x, y = sklearn.datasets.load_svmlight_file(FILE); "
    "pandas.DataFrame(x.toarray()).assign(target=y).to_csv('table.csv', index=False)",
    (".xlsx", ".xls", ".ods"): "pandas.read_excel(FILE).to_csv('table.csv', index=False)",
    (".conll", ".conllu", ".bio", ".iob"): _TAGS,
}
"""Known formats that are not read, by suffix, and what makes a format of each that is read."""

MAX_FILES = 2_000_000
"""Most files of a folder that is searched; `/` holds more, and ImageNet fewer."""

MAX_LISTED = 100_000
"""Most files that a configuration can list, and be read back from a run."""


def format_of(path: Path, tokenizer: Any = None) -> FileFormat | None:
    """The format of files that end as `path` does; None: there is none. Where several fit, it is the tokenizer's."""
    own = OF_TOKENIZER.get(type(tokenizer).__name__)
    if own is not None and (
        own.fits(path.name) or (own.grouped is not None and exists_as(path, Path.is_dir))
    ):
        return own
    return next((known for known in (IMAGE, *FORMATS) if known.fits(path.name)), None)


def readable_suffixes() -> list[str]:
    """Suffixes of the files that hold raw examples."""
    return [
        *dict.fromkeys(
            suffix for known in FORMATS if known.reader is not None for suffix in known.suffixes
        )
    ]


def advice_on(name: str) -> str:
    """Advice for a file of a known format that is not read, as words behind a sentence; empty for any other."""
    found = next(
        (advice for suffixes, advice in UNREAD.items() if name.lower().endswith(suffixes)), None
    )
    if found is None:
        return ""
    return f"; {Path(name).suffix.lower()} is not read, convert it: {found}"


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
        # without an address, by which no fingerprint would come again
        return f"{type(self.tokenizer).__name__}.read"

    def _named(self, path: Path, method: str, given: Any) -> Any:
        try:
            return attempt(self.tokenizer, method, given)
        except DataError as error:
            if str(path) in str(error):
                raise
            raise DataError(f"{path}: {error}") from error


def own_reader(tokenizer: Any) -> OwnReader | None:
    """Reader of files by the tokenizer's own `read`; None: it has none."""
    if callable(getattr(tokenizer, "read", None)):
        return OwnReader(tokenizer)
    return None


def source_for(
    path: Path, *, reads_files: bool = False, tokenizer: Any = None
) -> tuple[str, Arguments]:
    """The registered data source for a user's own file or folder, and its arguments, chosen by file suffix.

    reads_files: True: the tokenizer reads files itself, so a folder holds an example a file, whatever the suffix.
    tokenizer: its name, if it is known: of several formats that a folder may be of, its own counts.
    Raises UsageError where no data source reads what is there.
    """
    in_folder = path.is_dir()
    below = Walked([path.name])
    of_graph = {"edges"}
    if in_folder:
        below = walk(path, limit=MAX_FILES + 1)
        of_graph = {"edges", "nodes"}
    names = below.files
    if len(names) > MAX_FILES:
        raise UsageError(
            f"{path} holds more than {MAX_FILES:,} files; give the folder of the data alone"
        )
    tables = [Path(name) for name in names if "/" not in name and TABLE.fits(name)]
    if of_graph <= {table.stem.lower() for table in tables}:
        return "GraphFile", {"path": str(path)}
    if in_folder and reads_files and names:
        return "FileFolder", {"path": str(path)}
    for known in sorted(FORMATS, key=lambda known: tokenizer not in known.tokenizers):
        source = known.source(in_folder=in_folder)
        is_own = in_folder and tokenizer in known.tokenizers and known.examples(below)[1]
        if source is None or not (is_own or known.is_in(path, names)):
            continue
        if not known.lists_files:
            return source, {"path": str(path)}
        fitting = [name for name in names if known.fits(name)]
        if len(fitting) > MAX_LISTED:
            raise UsageError(
                f"{path} holds {len(fitting):,} texts, and {MAX_LISTED:,} are the most; join some"
            )
        return source, {"path": [str(path / name) if in_folder else str(path) for name in fitting]}
    raise UsageError(f"no data source reads {path}{_what_is_read(path, names, in_folder)}")


def _what_is_read(path: Path, names: list[str], in_folder: bool) -> str:
    """Advice for a file or folder that no data source reads, as words behind a sentence."""
    if not names:
        return "; it holds no files"
    if advice := next(filter(None, map(advice_on, names)), ""):
        return advice
    if not in_folder and format_of(path) in OF_CLASSES:
        return ": a single one has no class; give the folder above the class folders"
    known = [one for one in FORMATS if one.source(in_folder=in_folder) is not None]
    suffixes = ", ".join(suffix for one in known for suffix in one.suffixes)
    if in_folder:
        plugin = "a tokenizer that has read(path): --plugin FILE --tokenizer NAME"
        texts = f"a pattern such as '{path}/**/*.py' for texts of another suffix"
        return f"; give a folder of {suffixes} files, {texts}, or {plugin}"
    return f"; give a file that ends in {suffixes}; a text of another suffix is read by --data.source TextFiles"
