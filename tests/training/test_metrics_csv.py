"""metrics.csv loses no row where the disk is full for a while."""

import csv
import logging
import signal
from pathlib import Path

import pytest

from seqkit.training import metrics_csv
from seqkit.training.metrics_csv import MetricsCSV


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [
            {name: value for name, value in row.items() if value} for row in csv.DictReader(file)
        ]


@pytest.mark.parametrize(
    "columns", [("loss",), ("loss", "other")], ids=["a row more", "a column more"]
)
def test_rows_that_cannot_be_written_are_written_once_there_is_room(
    tmp_path, monkeypatch, caplog, columns
):
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
        *(
            {**dict.fromkeys(columns, str(value)), "step": str(step)}
            for step, value in ((1, 2.0), (2, 2.0), (3, 3.0))
        ),
    ]


def test_a_row_that_is_written_in_part_is_taken_back(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"loss,step\r\n1.0,0\r\n")

    resource = pytest.importorskip("resource")
    before, handler = (
        resource.getrlimit(resource.RLIMIT_FSIZE),
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 3, before[1]))
        with pytest.raises(OSError, match="File too large"):
            metrics_csv._append(path, [{"loss": 2.0, "step": 1}], ["loss", "step"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"loss,step\r\n1.0,0\r\n"


def test_rows_after_a_checkpoint_are_cut_though_columns_were_added(tmp_path):
    logger = MetricsCSV(tmp_path)
    for step in range(4):
        logger.log_metrics({"train/loss": 9.0 - step}, step=step)
    known = logger.synced()
    logger.log_metrics({"valid/loss": 6.5}, step=3)
    logger.log_metrics({"train/loss": 5.0}, step=4)
    logger.save()
    again = MetricsCSV(tmp_path).synced()
    metrics_csv.cut(tmp_path / "metrics.csv", known)
    assert rows(tmp_path) == [
        {"train/loss": str(9.0 - step), "step": str(step)} for step in range(4)
    ]
    assert again == known + 2
    assert MetricsCSV(tmp_path).synced() == known
    metrics_csv.cut(tmp_path / "missing.csv", 0)
    assert not (tmp_path / "missing.csv").exists()


@pytest.mark.parametrize("harm", [lambda text: text[:20], None])
def test_rows_that_are_lost_since_a_checkpoint_are_said(tmp_path, caplog, harm):
    logger = MetricsCSV(tmp_path)
    for step in range(4):
        logger.log_metrics({"train/loss": 9.0 - step}, step=step)
    known, path = logger.synced(), tmp_path / "metrics.csv"
    path.unlink() if harm is None else path.write_text(harm(path.read_text()))
    metrics_csv.cut(path, known)
    assert "but had 4 at the checkpoint" in caplog.text


def test_rows_are_on_the_disk_before_the_checkpoint_that_counts_them(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        "os.fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
    )
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"train/loss": 9.0}, step=0)
    logger.save()
    synced.clear()
    logger.log_metrics({"train/loss": 8.0}, step=1)
    assert logger.synced() == 2
    assert synced == [tmp_path / "metrics.csv"]
