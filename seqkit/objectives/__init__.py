"""What to hide, what to predict, how wrong it was. An objective knows a task; it holds no weights."""

from typing import Any

from seqkit.registry import find, parts


def __getattr__(name: str) -> Any:
    if name in parts("objective"):
        return find("objective", name).load()
    raise AttributeError(f"module 'seqkit.objectives' has no attribute {name!r}")
