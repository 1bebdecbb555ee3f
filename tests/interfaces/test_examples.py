"""The examples in the docstrings of the types that all modules exchange run, and give what they say."""

import doctest

import pytest

from seqkit.interfaces import base, batch, spec, tokens


@pytest.mark.parametrize("module", [base, batch, spec, tokens])
def test_examples_run(module):
    result = doctest.testmod(module)
    assert (result.failed, result.attempted > 0) == (0, True)
