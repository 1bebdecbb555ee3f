"""docs/families.md: every section has recipe lines, and a parity test builds its backbone from them."""

import re
from pathlib import Path

import pytest
from families import PAGE, family

SECTIONS = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_family_is_built_from_its_lines_and_compared_in_a_test(name):
    assert sum(p.numel() for p in family(name).parameters()) > 1000
    tests = "\n".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")
    )
    assert re.search(rf'family\(\s*"{re.escape(name)}"', tests) or f'"{name}"' in tests, (
        f"no parity test names {name}"
    )


def test_the_page_fits_a_window_of_120_columns():
    assert [line for line in PAGE.read_text(encoding="utf-8").splitlines() if len(line) > 120] == []
