"""What tests of runs share."""

import pytest
from runs.stopping import TEXT


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    """A text of a few kilobytes, so that a run takes no longer to read than to train."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)
