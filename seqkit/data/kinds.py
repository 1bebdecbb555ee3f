"""Kinds of data, and of what is learned from it, one row each: every other place reads these two tables. No torch here.

A new modality adds a row to `KINDS` and one to `seqkit.data.formats.FORMATS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seqkit.data.formats import OF_TOKENIZER


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of the cells of a column, and of the raw examples of a tokenizer.

    is_file: cells are names of files relative to the table, or the bytes of files. is_cell: columns of it are one part
    together, whose tokenizer is `Cells`; every other column is a part. instead: as which kind such cells may be read,
    too. recipe: learns classes, numbers or labels from
    one column of it; empty: none does. input_names: names of columns that are the input of such a recipe, the likeliest
    first. tokenizers: names of those that read it, besides those of a file format of this kind.
    """

    name: str
    is_file: bool = False
    is_cell: bool = False
    instead: str = "unused"
    recipe: str = ""
    input_names: tuple[str, ...] = ()
    tokenizers: tuple[str, ...] = ()


IMAGE_NAMES = ("image", "images", "img", "picture", "photo")

KINDS = {
    kind.name: kind
    for kind in (
        Kind("number", is_cell=True, instead="category"),
        Kind("category", is_cell=True, instead="text"),
        Kind("date", is_cell=True, instead="category"),
        Kind("text", instead="category", recipe="text/classify", input_names=(
            "text", "input", "sentence", "body", "message", "content", "document", "review", "comment", "question",
            "prompt", "messages", "conversations", "source", "src",
        )),
        Kind("image", is_file=True, recipe="image/classify",
             input_names=(*IMAGE_NAMES, "path", "file", "filename", "file_name")),
        Kind("audio", is_file=True, recipe="audio/classify",
             input_names=("audio", "sound", "recording", "wav", "path", "file", "filename", "file_name")),
        Kind("video", is_file=True, recipe="video/classify"),
        Kind("smiles", recipe="graph/molecules",
             input_names=("smiles", "canonical_smiles", "smi", "molecule", "mol")),
        Kind("series", recipe="series/classify", tokenizers=("Series", "Ids"),
             input_names=("series", "values", "signal", "measurements", "sequence", "x")),
        Kind("words", recipe="text/classify", input_names=("tokens", "words")),
        Kind("file", is_file=True, recipe="own/classify",
             input_names=("file", "path", "filename", "file_name", "recording")),
        Kind("unused"),
    )
}  # fmt: skip
"""Kinds by name. A series is a list of numbers, or of lists of numbers; words are a list of words, or a text with
spaces between them; a file is read by the tokenizer's own `read`; an unused column is read by nobody."""

FILES = tuple(kind.name for kind in KINDS.values() if kind.is_file)
"""Kinds of columns that are files."""

OF_CELLS = tuple(kind.name for kind in KINDS.values() if kind.is_cell)
"""Kinds of columns that are one part together."""

KIND_OF_TOKENIZER = {name: known.kind for name, known in OF_TOKENIZER.items()} | {
    name: kind.name for kind in KINDS.values() for name in kind.tokenizers
}
"""Kind of the column that a tokenizer reads; for other tokenizers the table decides."""


TargetKind = Literal["classes", "numbers", "labels", "text", "tags", "none"]
"""Kind of the target: a class, measurements, yes or no of each column, another text, a class for each word, nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """Kind of a table's target.

    objectives: names of those that learn it; for others the table decides. objective: what a recipe of one column takes
    for it in place of its own; empty: there is none. of_texts: the recipe for one column of texts, where that is not
    the usual one. of_rows: keys of the recipe that learns it from all columns; None: none does.
    """

    name: TargetKind
    objectives: tuple[str, ...] = ()
    objective: str = ""
    of_texts: str = ""
    of_rows: tuple[str, ...] | None = None


TARGETS = {
    target.name: target
    for target in (
        Target("classes", ("Classify",), "{type: Classify, pool: mean}", of_rows=()),
        Target("numbers", ("Regress",), "Regress", of_rows=("--model.objective=Regress",)),
        Target("labels", ("MultiLabel",), "MultiLabel", of_rows=("--model.objective=MultiLabel",)),
        Target("text", ("Seq2Seq", "CTC"), of_texts="text/translate"),
        Target("tags", of_texts="text/tag"),
        Target("none", ("NextToken", "Contrastive", "Features", "Masked"), of_texts="text/char-lm"),
    )
}
"""Kinds of targets by name."""

TARGET_OF_OBJECTIVE = {
    objective: target.name for target in TARGETS.values() for objective in target.objectives
}
"""Kinds of target, by the name of the objective that learns it."""
