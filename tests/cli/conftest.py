"""Runs without their page: tests of commands read what is printed, and tests/report the pages."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _no_page() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "seqkit.report.page.write_report", lambda folder, data=None: folder / "report.html"
        )
        yield
