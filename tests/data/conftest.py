"""Where the tests of data sets find data: `$SEQKIT_DATA`, or the folder `shared/data` beside the repository."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def shared_data(monkeypatch):
    given = os.environ.get("SEQKIT_DATA")
    folder = Path(given) if given else Path(__file__).parents[3] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no data at hand: set SEQKIT_DATA ({folder} is not there)")
    monkeypatch.setenv("SEQKIT_DATA", str(folder))
    return folder


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """An empty data folder; nothing else is looked at or written to."""
    monkeypatch.setenv("SEQKIT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("seqkit.data.download.user_folder", lambda: tmp_path / "user")
    return tmp_path / "data"
