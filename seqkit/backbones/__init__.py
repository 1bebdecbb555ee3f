"""Readers of embedded tokens, all behind one protocol (`seqkit.contract.Backbone`)."""

from typing import Any

from seqkit.registry import find, parts


def __getattr__(name: str) -> Any:
    if name in parts("backbone"):
        return find("backbone", name).load()
    raise AttributeError(f"module 'seqkit.backbones' has no attribute {name!r}")
