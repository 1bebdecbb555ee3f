"""The fixture `hub`: a hub on this machine; the libraries of ONNX, which take a second to import, as a test's setup."""

import pytest
from stub_hub import hub as hub


@pytest.fixture(scope="session", autouse=True)
def _onnx():
    for library in ("onnxscript", "onnxruntime"):
        pytest.importorskip(library)
