"""metrics.csv of a run: a logger whose file continues after a resume, and is rewritten whole or not at all."""

from __future__ import annotations

import csv
import io
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from seqkit.errors import DataError
from seqkit.files import open_to_append, write_atomic

log = logging.getLogger("seqkit")

NAME = "metrics.csv"

MOST_WAITING = 100
"""Rows that are kept before they are written, where nothing else asks for it."""

Row = Mapping[str, Any]
"""Cells of a row by column: numbers of a new one, texts of one that was read."""


class MetricsCSV(Logger):
    """Logger that appends rows to `folder/metrics.csv`; a row with a new column makes it write the file anew.

    Rows that cannot be written are kept, and written with those that follow.
    """

    name = None
    version = None

    def __init__(self, folder: Path):
        super().__init__()
        self.path = folder / NAME
        self._waiting: list[Row] = []
        self._has_failed = False

    @property
    def save_dir(self) -> str:
        return str(self.path.parent)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float | Tensor], step: int | None = None) -> None:
        """Keep a row, in the first process."""
        row = {name: x.item() if isinstance(x, Tensor) else x for name, x in metrics.items()}
        self._waiting.append({**row, "step": step})
        if len(self._waiting) >= MOST_WAITING:
            self.save()

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Write none: they are in config.yaml."""

    def save(self) -> None:
        """Write the rows since the last time."""
        if not self._waiting:
            return
        try:
            _add(self.path, self._waiting)
        except OSError as error:
            if not self._has_failed:
                log.error(
                    "%s cannot be written (%s); its rows are kept until there is room",
                    self.path,
                    error.strerror,
                )
            self._has_failed = True
        else:
            self._waiting = []
            self._has_failed = False

    def synced(self) -> int:
        """Write all rows so that they survive a power failure; gives their number, for a checkpoint."""
        self.save()
        if not self.path.is_file():
            return 0
        with self.path.open("rb") as file:
            with suppress(OSError):
                os.fsync(file.fileno())
            return file.read().count(b"\n") - 1


def cut(path: Path, num_rows: int) -> None:
    """Keep the first rows of a metrics.csv, which a checkpoint counted; those after it will be written again."""
    rows, columns = _rows(path)
    if len(rows) < num_rows:
        log.warning(
            "%s has %d rows, but had %d at the checkpoint: curves have gaps",
            path,
            len(rows),
            num_rows,
        )
    if path.is_file():
        _write(path, rows[:num_rows], columns)


def write_of_task(path: Path, task: str, own: Path) -> None:
    """Write the rows of one task of a mixture's metrics.csv to a file as of a run of that task alone.

    Steps are those of the mixture.
    """
    rows, columns = _rows(path)
    names = {f"{split}/{task}/": f"{split}/" for split in ("train", "valid")}
    renamed = {
        x: new + x.removeprefix(old)
        for x in columns
        for old, new in names.items()
        if x.startswith(old)
    }
    kept = [row for row in rows if any(row.get(name) for name in renamed)]
    renamed |= {
        x: "lr" + x.removeprefix(f"lr/{task}") for x in columns if f"{x}/".startswith(f"lr/{task}/")
    }
    renamed |= {name: name for name in ("epoch", "step") if name in columns}
    _write(
        own,
        [{new: row.get(old) for old, new in renamed.items()} for row in kept],
        list(renamed.values()),
    )


def read(path: Path) -> list[dict[str, float]]:
    """Numbers of each row of a metrics.csv, without empty cells; none where there is no file.

    Raises DataError if it is damaged.
    """
    try:
        return [
            {name: float(value) for name, value in row.items() if value} for row in _rows(path)[0]
        ]
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path} is damaged ({error}); copy it again or take it out") from error


def _rows(path: Path) -> tuple[list[Row], list[str]]:
    """Rows and columns of a file; none where there is no file. A last line that a kill cut short is left out."""
    if not path.is_file():
        return [], []
    text = path.read_text(encoding="utf-8")
    reader = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
    columns = list(reader.fieldnames or [])
    rows = [row for row in reader if None not in row and None not in row.values()]
    return [row for row in rows if row.get("step", "").isdigit()], columns


def _add(path: Path, rows: Sequence[Row]) -> None:
    """Append rows, or write a new file where they have other columns than it."""
    columns: list[str] = []
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            columns = next(csv.reader(file), [])
    if new := set().union(*rows).difference(columns):
        _write(path, [*_rows(path)[0], *rows], sorted([*columns, *new]))
    else:
        _append(path, rows, columns)


def _write(path: Path, rows: Sequence[Row], columns: list[str]) -> None:
    """Write a new file, whole or not at all."""
    write_atomic(path, _as_csv([dict(zip(columns, columns)), *rows], columns))


def _append(path: Path, rows: Sequence[Row], columns: list[str]) -> None:
    """Append rows, all or none of them."""
    with open_to_append(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            content = memoryview(_as_csv(rows, columns))
            while content:
                content = content[file.write(content) :]
        except OSError:
            file.truncate(size)
            raise


def _as_csv(rows: Sequence[Row], columns: list[str]) -> bytes:
    text = io.StringIO(newline="")
    csv.DictWriter(text, fieldnames=columns).writerows(rows)
    return text.getvalue().encode()
