"""metrics.csv of a run: Lightning's CSVLogger, whose file continues after a resume and is rewritten whole or not."""

from __future__ import annotations

import csv
import io
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from lightning_fabric.loggers.logger import rank_zero_experiment
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from seqkit.files import write_atomic

log = logging.getLogger("seqkit")

NAME = "metrics.csv"


class MetricsCSV(CSVLogger):
    """CSVLogger that writes `folder/metrics.csv`, and appends to one that exists."""

    def __init__(self, folder: Path):
        super().__init__(folder, name="", version="")

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        """The writer."""
        if self._experiment is None:
            self._experiment = _Writer(log_dir=self.log_dir)
        return cast(ExperimentWriter, self._experiment)


class _Writer(ExperimentWriter):
    has_failed = False

    def _check_log_dir_exists(self) -> None:
        """Take the columns of an existing file over; Lightning would delete it."""
        path = Path(self.metrics_file_path)
        if path.is_file():
            self.metrics_keys = list(_rows(path)[1])

    def save(self) -> None:
        """Write the rows since the last time. Where that fails they are kept, and written with those that follow."""
        if not self.metrics:
            return
        path, columns = Path(self.metrics_file_path), list(self.metrics_keys)
        try:
            if self._record_new_keys() or not path.is_file():
                before = _rows(path)[0] if path.is_file() else []
                _write(path, [*before, *self.metrics], self.metrics_keys)
            else:
                _append(path, self.metrics, columns)
        except OSError as error:
            self.metrics_keys = columns
            if not self.has_failed:
                log.error("%s cannot be written (%s); its rows are kept until there is room", path, error.strerror)
            self.has_failed = True
            return
        self.metrics, self.has_failed = [], False


def cut(path: Path, step: int, *, validation_follows: bool) -> None:
    """Remove the rows of a metrics.csv that come after a checkpoint, since they will be written again.

    step: optimizer steps of the checkpoint. validation_follows: the one at its last step is still to come.
    """
    if not path.is_file():
        return
    rows, columns = _rows(path)

    def stays(row: dict[str, str]) -> bool:
        number = int(row["step"])
        is_validation = any(value for name, value in row.items() if name.startswith("valid/"))
        return number < step - 1 or (number == step - 1 and not (is_validation and validation_follows))

    _write(path, [row for row in rows if stays(row)], columns)


def _rows(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and columns. A last line that a kill cut short is left out."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = list(reader.fieldnames or [])
        return [row for row in reader if None not in row.values() and (row.get("step") or "").isdigit()], columns


def _write(path: Path, rows: Sequence[dict[str, Any]], columns: list[str]) -> None:
    """A new file, whole or not at all."""
    write_atomic(path, _as_csv([dict(zip(columns, columns)), *rows], columns))


def _append(path: Path, rows: Sequence[dict[str, Any]], columns: list[str]) -> None:
    """More rows, all or none of them."""
    with path.open("ab", buffering=0) as file:
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
