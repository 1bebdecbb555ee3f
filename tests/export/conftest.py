"""Fixtures: `hub`, a hub on this machine; `assert_exported`, to every format."""

import importlib.util
import re
from functools import cache

import pytest
import torch
from stub_hub import hub as hub

from seqkit.errors import UsageError
from seqkit.export.graph import TOLERANCE, export

FORMATS = ("torch", "onnx")
HAS_ONNX = all(importlib.util.find_spec(each) for each in ("onnx", "onnxscript", "onnxruntime"))


@pytest.fixture(scope="module", autouse=True)
def _one_table_of_operations():
    """torch makes its table of ONNX operations anew for each export, in a second; here it is made once."""
    with pytest.MonkeyPatch.context() as patch:
        if HAS_ONNX:
            from torch.onnx._internal.exporter._registration import ONNXRegistry

            patch.setattr(
                ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib))
            )
        yield


def loses_sums(file):
    """Whether a graph has an operation that onnxruntime computes wrongly in several threads."""
    import onnx

    return any(
        node.op_type == "ScatterND"
        and any(each.name == "reduction" and each.s != b"none" for each in node.attribute)
        for node in onnx.load(file).graph.node
    )


@pytest.fixture
def assert_exported(tmp_path, monkeypatch):
    """Exports a model to each format: equal or refused. One trace serves both."""
    trace, traced = torch.export.export, []

    def once(*given, **settings):
        if not traced:
            traced.append(trace(*given, **settings))
        return traced[0]

    def assert_exported(model, marks):
        monkeypatch.setattr(torch.export, "export", once)
        for to, mark in zip(FORMATS, marks, strict=True):
            out = tmp_path / to
            if to == "onnx" and not HAS_ONNX:
                pytest.skip("no onnxruntime")
            if mark == "equal":
                assert export(model, out, to, {"seqkit.json": "{}"}) <= TOLERANCE
                assert out.stat().st_size > 1000
                assert to != "onnx" or not loses_sums(out)
                continue
            assert mark == "refused"
            with pytest.raises(UsageError) as refused:
                export(model, out, to, {})
            assert re.fullmatch(
                r".*(not exported|cannot be exported|takes one).*", str(refused.value)
            )
            assert not out.exists()

    return assert_exported
