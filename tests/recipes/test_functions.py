"""Functions of the standard library: whole modules are held out."""

import ast

from seqkit.recipes.code.functions import StdlibFunctions, split_of


def test_a_module_and_its_code_are_in_one_split():
    splits = StdlibFunctions(["json", "email"]).splits()
    samples = [(name, sample) for name in ("train", "valid", "test") for sample in getattr(splits, name)]
    assert len(splits.train) > 50
    assert len({sample.raw for _, sample in samples}) == len(samples)
    for name, sample in samples:
        assert split_of(sample.group) == name
        ast.parse(sample.raw)
