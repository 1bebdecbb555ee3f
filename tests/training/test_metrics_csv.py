"""metrics.csv loses no row where the disk is full for a while."""

import csv
import logging
import signal

import pytest

from seqkit.training import metrics_csv
from seqkit.training.metrics_csv import MetricsCSV


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [{name: value for name, value in row.items() if value} for row in csv.DictReader(file)]


@pytest.mark.parametrize("columns", [("loss",), ("loss", "other")], ids=["a row more", "a column more"])
def test_rows_that_cannot_be_written_are_written_once_there_is_room(tmp_path, monkeypatch, caplog, columns):
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.save()
    whole = (tmp_path / "metrics.csv").read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, logger="seqkit"):
        patch.setattr("os.fsync", full)
        patch.setattr(metrics_csv, "_as_csv", full)
        for step in (1, 2):
            logger.log_metrics(dict.fromkeys(columns, 2.0), step=step)
            logger.save()
        assert (tmp_path / "metrics.csv").read_bytes() == whole
    assert len(caplog.messages) == 1
    assert f"{tmp_path / 'metrics.csv'} cannot be written (No space left on device)" in caplog.text
    logger.log_metrics(dict.fromkeys(columns, 3.0), step=3)
    logger.save()
    assert rows(tmp_path) == [
        {"loss": "1.0", "step": "0"},
        *({**dict.fromkeys(columns, str(value)), "step": str(step)} for step, value in ((1, 2.0), (2, 2.0), (3, 3.0))),
    ]


def test_a_row_that_is_written_in_part_is_taken_back(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"loss,step\r\n1.0,0\r\n")

    resource = pytest.importorskip("resource")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 3, before[1]))
        with pytest.raises(OSError, match="File too large"):
            metrics_csv._append(path, [{"loss": 2.0, "step": 1}], ["loss", "step"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"loss,step\r\n1.0,0\r\n"


@pytest.mark.parametrize("validation_follows", [True, False])
def test_rows_after_a_checkpoint_are_cut_and_the_validation_of_its_last_step_if_it_runs_again(
    tmp_path, validation_follows
):
    """After 4 optimizer steps, which count from 0, the last row that stays is that of step 3."""
    path = tmp_path / "metrics.csv"
    lines = ["0,9,", "1,8,", "1,,8.5", "2,7,", "3,6,", "3,,6.5", "4,5,", "5,4,", "5,,4.5"]
    path.write_text("\n".join(["step,train/loss,valid/loss", *lines, ""]), encoding="utf-8")
    metrics_csv.cut(path, 4, validation_follows=validation_follows)
    left = lines[:5] if validation_follows else lines[:6]
    assert path.read_text(encoding="utf-8").split() == ["step,train/loss,valid/loss", *left]
    metrics_csv.cut(tmp_path / "missing.csv", 4, validation_follows=True)
    assert not (tmp_path / "missing.csv").exists()
