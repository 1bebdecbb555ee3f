"""Rows of a table as raw examples and labels, each checked; rows that cannot be used are counted, or an error."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from seqkit.data.cache import state_of
from seqkit.data.formats import AUDIO, IMAGE, own_reader
from seqkit.data.notes import Caution
from seqkit.data.tables.cells import is_blank, is_missing, read_content, short, truth, word_of, words_of
from seqkit.data.tables.read import Rows
from seqkit.data.tables.schema import CELLS, FILES, OF_CELLS, Column, Schema
from seqkit.errors import DataError, attempt, one_line, reason

FORMATS = {"image": IMAGE, "audio": AUDIO}


class Examples:
    """Raw examples of the rows of a table, by its schema.

    folder: folder of the files that cells name; they lie below it. tokenizer: reads files as its parts are encoded; of
    several parts (`Join`), an example has a part for each column, and one of all numbers, categories and dates. None:
    as the schema has it.
    values: by input column, the value of each row (`Column.read`). faults: by row, why it cannot be used.

    >>> rows = Rows({"size": ["1.5", "x"]}, [("t.csv", 2)])
    >>> examples = Examples(rows, Schema((Column("size", "number"),), "none"), Path())
    >>> examples.raw(0), examples.faults
    ({'cells': {'size': 1.5}}, {1: "size is 'x', which is no number"})
    """

    def __init__(self, rows: Rows, schema: Schema, folder: Path, tokenizer: Any = None):
        self.rows, self.schema, self.folder = rows, schema, folder
        parts: Mapping[str, Any] | None = getattr(tokenizer, "parts", None)
        reads: Mapping[str, str] = getattr(tokenizer, "reads", {})
        is_one = parts is None and (tokenizer is not None or [c.kind in OF_CELLS for c in schema.inputs] == [False])
        self._one = schema.inputs[0] if is_one else None
        self._tokenizers = {reads.get(part, part): one for part, one in (parts or {}).items()}
        if self._one is not None and tokenizer is not None:
            self._tokenizers = {self._one.name: tokenizer}
        for column in schema.inputs if tokenizer is not None else ():
            reader = self._tokenizers.get(column.name)
            if column.kind == "file" and reader is not None and own_reader(reader) is None:
                what = f"names files for a tokenizer with read(path), which {type(reader).__name__} does not have"
                raise DataError(f"{rows.name}: {column.name} {what}")
        self.values: dict[str, Sequence[Any]] = {}
        self.faults: dict[int, str] = {}
        for column in schema.inputs:
            if column.name in rows.columns or schema.steps:
                self.values[column.name] = self._read(column)
        self._columns = [(c, self.values[c.name]) for c in schema.inputs if c.name in self.values]

    def __len__(self) -> int:
        return len(self.rows)

    def is_absent(self, row: int) -> bool:
        """Whether a row has no input."""
        return all(values[row] is None for values in self.values.values())

    def raw(self, row: int) -> Any:
        """The raw example of a row. Raises DataError where a file cannot be read."""
        if self._one is not None:
            return self._part(self._one, self.values[self._one.name][row])
        example: dict[str, Any] = {}
        cells: dict[str, Any] = {}
        for column, values in self._columns:
            if (value := values[row]) is not None:
                if column.kind in OF_CELLS:
                    cells[column.name] = value
                else:
                    example[column.name] = self._part(column, value)
        return example | ({CELLS: cells} if cells else {})

    def attempt(self, row: int) -> None:
        """Read the row and encode it by tokenizers that need not be fitted first. Raises ValueError or OSError."""
        raw = self.raw(row)
        given = {self._one.name: raw} if self._one is not None else raw
        for name, tokenizer in self._tokenizers.items():
            if name in given and not hasattr(tokenizer, "fit"):
                attempt(tokenizer, "encode", given[name])

    def _read(self, column: Column) -> Sequence[Any]:
        """Values of all rows of a column; faults are kept by row."""
        if self.schema.steps:
            steps = [self._values(step, self.rows.columns[step.name], is_needed=True) for step in self.schema.steps]
            return [None if None in numbers else list(numbers) for numbers in zip(*steps)]
        cells = self.rows.columns[column.name]
        if column.kind in FILES:  # cells may be whole files, which stay where they are
            for row, cell in enumerate(cells):
                self._note(row, lambda cell=cell: self._check_file(column, cell))  # type: ignore[misc]
            return _OnAccess(column, cells, self.schema.missing, self.faults)
        return self._values(column, cells)

    def _values(self, column: Column, cells: Iterable[Any], *, is_needed: bool = False) -> list[Any]:
        """Values of cells. A text that comes again is read once."""
        known: dict[str, Any] = {}
        values: list[Any] = []
        for row, cell in enumerate(cells):
            if isinstance(cell, str) and cell in known:
                values.append(known[cell])
                continue
            value = self._note(row, lambda cell=cell: column.read(cell, self.schema.missing))  # type: ignore[misc]
            if is_needed and value is None:
                self.faults.setdefault(row, f"{column.name} is empty, and each column of a series holds a number")
            elif isinstance(cell, str) and row not in self.faults:
                known[cell] = value
            values.append(value)
        return values

    def _note(self, row: int, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (ValueError, OSError) as error:
            self.faults.setdefault(row, reason(error))
            return None

    def _check_file(self, column: Column, cell: Any) -> None:
        """Raise ValueError where a cell names no file below the folder."""
        name = column.read(cell, self.schema.missing)
        if not isinstance(name, str):
            return
        path = self.folder / name
        where = "name files relative to the table, or their folder: --data.folder FOLDER"
        root = os.path.realpath(self.folder)
        if os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise ValueError(f"{one_line(name)[:200]} is not below {self.folder}; {where}")
        if not path.is_file():
            near = next(iter(sorted(path.parent.glob(f"{path.name}.*"))), None) if path.parent.is_dir() else None
            hint = f"; there is {near.name}" if near is not None else ""
            raise ValueError(f"{one_line(name)[:200]} does not exist in {self.folder}{hint}; {where}")

    def _part(self, column: Column, value: Any) -> Any:
        """The raw data of a part. Raises DataError where a file cannot be read."""
        if column.kind == "words":
            return " ".join(value)
        if column.kind not in FILES:
            return value
        tokenizer = self._tokenizers.get(column.name)
        read = own_reader(tokenizer) or (lambda file: FORMATS[column.kind].read_for(file, tokenizer))
        if isinstance(value, bytes):
            return read_content(value, read, column.name)
        return read(self.folder / value)


class _OnAccess(Sequence[Any]):
    """Values of cells that may be large, read when they are asked for; None where a row has a fault."""

    def __init__(self, column: Column, cells: Sequence[Any], missing: Sequence[str], faults: Mapping[int, str]):
        self._column, self._cells, self._missing, self._faults = column, cells, missing, faults

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, row: Any) -> Any:
        return None if row in self._faults else self._column.read(self._cells[row], self._missing)


class UsableRows:
    """The rows that have input and target.

    say: gets the sentence that counts the others. skip_bad: number of rows that may be left out because a cell is not
    what its column holds, or a file cannot be read; above 0, each row is read once for that.
    indices: places of the rows in the table, in its order. labels: their labels; classes as words, until `number`.
    Raises DataError, with file and line, where more rows than `skip_bad` cannot be used, or none is left.
    """

    def __init__(self, examples: Examples, *, say: Callable[[str], None], skip_bad: int = 0):
        self.examples, self.rows, self.schema = examples, examples.rows, examples.schema
        files = [Path(name) for name, _ in self.rows.files]
        self._files = [*map(state_of, files)] if all(file.is_file() for file in files) else None
        self.indices: list[int] = []
        self.labels: list[Any] = []
        self._read(Labels(examples), say, skip_bad)

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        """File and line of a row."""
        return self.rows.place(self.indices[index])

    def raw(self, index: int) -> Any:
        """The raw example of a row."""
        return self.examples.raw(self.indices[index])

    def key(self) -> str | None:
        """Fingerprint of rows, schema, and files by path, size and time of change; None: the table is elsewhere."""
        if self._files is None:
            return None
        digest = sha256(f"{self._files} {self.schema} {self.indices}".encode(errors="surrogatepass"))
        for values in (self.examples.values[c.name] for c in self.schema.inputs if c.kind in FILES):
            for name in (values[row] for row in self.indices):
                if isinstance(name, str):
                    digest.update(state_of(self.examples.folder / name).encode(errors="surrogatepass"))
        return digest.hexdigest()

    def number(self, names: Sequence[str], split: str) -> None:
        """Number classes and tags by their place in `names`. Raises DataError for one that training lacks."""
        known = {name: i for i, name in enumerate(names)}
        is_tags = self.schema.target_kind == "tags"
        for i, label in enumerate(self.labels):
            for word in label if is_tags else [label]:
                if word not in known:
                    raise DataError(
                        f"{self.name(i)}: the {split} split has the {'tag' if is_tags else 'class'} {short(word)}, "
                        "which training lacks; add rows of it to training, or take them out"
                    )
        if is_tags:
            import torch  # slow to import, and a mistake is answered without it

            self.labels = [torch.tensor([known[tag] for tag in tags]) for tags in self.labels]
        else:
            self.labels = [known[label] for label in self.labels]

    def _read(self, label_of: Labels, say: Callable[[str], None], skip_bad: int) -> None:
        examples, bad = self.examples, list(self.rows.faults)
        empty: dict[str, list[int]] = {}
        what = self.schema.inputs[0].name if len(self.schema.inputs) == 1 else "filled cell"
        for row in range(len(self.rows)):
            try:
                if row in examples.faults:
                    raise DataError(examples.faults[row])
                if examples.is_absent(row):
                    empty.setdefault(what, []).append(row)
                    continue
                label = label_of(row)
                if label is None and self.schema.target_kind != "none":
                    empty.setdefault(" or ".join(c.name for c in self.schema.targets), []).append(row)
                    continue
                if skip_bad > 0:
                    examples.attempt(row)
            except (ValueError, OSError) as error:
                bad.append(f"{self.rows.place(row)}: {reason(error)}")
                continue
            self.indices.append(row)
            self.labels.append(label)
        total = len(self.rows) + len(self.rows.faults)
        if len(bad) > skip_bad:
            advice = f"; --data.skip_bad {len(bad)} leaves them out" if len(self) else ""
            raise DataError(f"{bad[0]} ({len(bad):,} of {total:,} rows cannot be used{advice})")
        why = [f"no {what}: {len(rows):,}, the first: {self.rows.place(rows[0])}" for what, rows in empty.items()]
        why += [f"cannot be used: {len(bad):,}, the first: {bad[0]}"] if bad else []
        if not len(self):
            none = f"none of the {total:,} rows has both input and target ({', '.join(why)})"
            raise DataError(f"{self.rows.name}: {none}; give --data.columns and --data.target")
        if why:
            say(Caution(f"{self.rows.name}: {total - len(self):,} of {total:,} rows are left out ({'; '.join(why)})"))


class Labels:
    """Callable from a row to its label: a class as a word, numbers, texts, or tags; None: it has none.

    Raises ValueError where a cell is not what the target holds.
    """

    def __init__(self, examples: Examples):
        self._examples, self._missing = examples, examples.schema.missing
        self._kind, self._targets = examples.schema.target_kind, examples.schema.targets
        self._cells = [examples.rows.columns[column.name] for column in self._targets]
        if self._kind == "numbers":
            self._targets = [replace(column, kind="number") for column in self._targets]

    def __call__(self, row: int) -> Any:
        if self._kind == "none":
            return None
        cells = [cells[row] for cells in self._cells]
        if self._kind in ("numbers", "labels"):
            read = self._number if self._kind == "numbers" else self._truth
            found = [read(column, cell) for column, cell in zip(self._targets, cells)]
            if all(map(math.isnan, found)):
                return None
            return found[0] if self._kind == "numbers" and len(found) == 1 else found
        (target,), (cell,) = self._targets, cells
        if is_blank(cell):
            return None
        if self._kind == "text":
            if not all(isinstance(text, str) and text.strip() for text in (cell if isinstance(cell, list) else [cell])):
                raise ValueError(f"{target.name} is {short(cell)}, which is no text; choose another with --data.target")
            return cell
        if self._kind == "tags":
            return self._tags(target, cell, row)
        if isinstance(cell, list | dict):
            advice = "for a class of each word give --data.target_kind tags, for several labels a column each"
            raise ValueError(f"{target.name} is {short(cell)}, which is no class; {advice}")
        return None if is_missing(cell, self._missing) else word_of(cell)

    def _tags(self, target: Column, cell: Any, row: int) -> list[str]:
        tags = [word_of(tag) for tag in words_of(cell)]
        ((name, values),) = self._examples.values.items()
        if len(tags) != len(values[row]):
            what = f"{name} has {len(values[row])} words and {target.name} {len(tags)}"
            raise ValueError(f"{what}; give a tag for each word, or for several labels of a text a column each")
        return tags

    def _number(self, column: Column, cell: Any) -> float:
        try:
            found = column.read(cell, self._missing)
        except ValueError as error:
            raise ValueError(f"{error}; correct it, or take the row out (words: --data.target_kind classes)") from None
        return math.nan if found is None else float(found)

    def _truth(self, column: Column, cell: Any) -> float:
        if (found := truth(cell, self._missing)) is None:
            raise ValueError(f"{column.name} is {short(cell)}; write yes or no, true or false, 1 or 0, or nothing")
        return found
