"""seqkit: text, images, audio and graphs as tokens through one shared backbone.

Importing this package imports no torch; each name below brings its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqkit.contract import (
        Backbone,
        Cache,
        DataError,
        Embedded,
        Links,
        Objective,
        Score,
        TokenBatch,
        Tokenizer,
        Tokens,
        TokenSpec,
    )
    from seqkit.model import Model
    from seqkit.registry import register
    from seqkit.run import load

__version__ = "0.1.0"

_HOME = {
    "contract": (
        "Backbone",
        "Cache",
        "DataError",
        "Embedded",
        "Links",
        "Objective",
        "Score",
        "TokenBatch",
        "Tokenizer",
        "Tokens",
        "TokenSpec",
    ),
    "model": ("Model",),
    "registry": ("register",),
    "run": ("load",),
}
__all__ = [
    "Backbone",
    "Cache",
    "DataError",
    "Embedded",
    "Links",
    "Model",
    "Objective",
    "Score",
    "TokenBatch",
    "Tokenizer",
    "Tokens",
    "TokenSpec",
    "load",
    "register",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"seqkit.{module}"), name)
    raise AttributeError(f"module 'seqkit' has no attribute {name!r}")
