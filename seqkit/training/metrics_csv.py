"""metrics.csv of a run: Lightning's CSVLogger, whose file continues after a resume and is rewritten whole or not."""

from __future__ import annotations

import csv
import io
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from lightning_fabric.loggers.logger import rank_zero_experiment
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from seqkit.errors import DataError
from seqkit.files import open_to_append, write_atomic

log = logging.getLogger("seqkit")

NAME = "metrics.csv"


class MetricsCSV(CSVLogger):
    """CSVLogger that writes `folder/metrics.csv`, and appends to one that exists."""

    def __init__(self, folder: Path):
        super().__init__(folder, name="", version="")

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        if self._experiment is None:
            self._experiment = _Writer(log_dir=self.log_dir)
        return cast(ExperimentWriter, self._experiment)

    def synced(self) -> int:
        """Write all rows so that they survive a power failure; gives their number, for a checkpoint."""
        self.save()
        writer = cast(_Writer, self.experiment)
        path = Path(writer.metrics_file_path)
        if path.is_file():
            with path.open("rb") as file, suppress(OSError):
                os.fsync(file.fileno())
        return writer.num_rows


class _Writer(ExperimentWriter):
    """Lightning's writer, which keeps rows that cannot be written."""

    has_failed = False

    def _check_log_dir_exists(self) -> None:
        """Take the columns of an existing file over; Lightning would delete it."""
        path = Path(self.metrics_file_path)
        self.num_rows = 0
        if path.is_file():
            rows, self.metrics_keys = _rows(path)
            self.num_rows = len(rows)

    def save(self) -> None:
        """Write the rows since the last time. If that fails, they are kept, and written with those that follow."""
        if not self.metrics:
            return
        path = Path(self.metrics_file_path)
        columns = list(self.metrics_keys)
        try:
            if self._record_new_keys() or not path.is_file():
                before = _rows(path)[0] if path.is_file() else []
                _write(path, [*before, *self.metrics], self.metrics_keys)
            else:
                _append(path, self.metrics, columns)
        except OSError as error:
            self.metrics_keys = columns
            if not self.has_failed:
                log.error(
                    "%s cannot be written (%s); its rows are kept until there is room",
                    path,
                    error.strerror,
                )
            self.has_failed = True
            return
        self.num_rows += len(self.metrics)
        self.metrics = []
        self.has_failed = False


def cut(path: Path, num_rows: int) -> None:
    """Keep the first rows of a metrics.csv, which a checkpoint counted; those after it will be written again."""
    rows, columns = _rows(path) if path.is_file() else ([], [])
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
    rows, columns = _rows(path) if path.is_file() else ([], [])
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
        rows = _rows(path)[0] if path.is_file() else []
        return [{name: float(value) for name, value in row.items() if value} for row in rows]
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path} is damaged ({error}); copy it again or take it out") from error


def _rows(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and columns of a file. A last line that a kill cut short is left out."""
    text = path.read_text(encoding="utf-8")
    reader = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
    columns = list(reader.fieldnames or [])
    rows = [row for row in reader if None not in row and None not in row.values()]
    return [row for row in rows if row.get("step", "").isdigit()], columns


def _write(path: Path, rows: Sequence[dict[str, Any]], columns: list[str]) -> None:
    """Write a new file, whole or not at all."""
    write_atomic(path, _as_csv([dict(zip(columns, columns)), *rows], columns))


def _append(path: Path, rows: Sequence[dict[str, Any]], columns: list[str]) -> None:
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


def _as_csv(rows: Sequence[dict[str, Any]], columns: list[str]) -> bytes:
    text = io.StringIO(newline="")
    csv.DictWriter(text, fieldnames=columns).writerows(rows)
    return text.getvalue().encode()
