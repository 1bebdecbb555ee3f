"""Cases of a test by tier."""

import pytest


def one_in(number, cases):
    """The cases, of which one in so many is fast and the others, which are like it, are slow."""
    found = []
    for i, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        found.append(pytest.param(*values, marks=pytest.mark.slow if i % number else ()))
    return found
