"""Files that sentence-transformers puts beside a model: how texts become one vector, and where they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqkit.errors import DataError
from seqkit.pretrained.config_file import NAME, read_json
from seqkit.pretrained.family import Settings


def sentence_vectors(folder: Path) -> Settings:
    """Pooling of a model of sentence-transformers, as settings of `Features`; empty for any other.

    Raises DataError for a module or a pooling that is not read.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return {}
    found: Settings = {}
    for one in _json(path, list):
        kind = str(one.get("type")).rpartition(".")[2]
        place = str(one.get("path", ""))
        if kind == "Pooling" and Path(place).name == place:
            modes = _json(folder / place / NAME, dict)
            chosen = [
                name
                for name, value in modes.items()
                if name.startswith("pooling_mode_") and value is True
            ]
            pool = POOLS.get(chosen[0]) if len(chosen) == 1 else None
            if pool is None:
                raise DataError(
                    f"{folder / place / NAME}: the pooling {chosen} is not read, but {', '.join(POOLS)} are"
                )
            found["pool"] = pool
        elif kind == "Normalize":
            found["normalize"] = True
        elif kind != "Transformer":
            raise DataError(
                f"{path}: the module {one.get('type')!r} is not read, but Transformer, Pooling and Normalize"
            )
    return found


POOLS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
"""Poolings of `Features` by the names of sentence-transformers."""


def longest_sentence(folder: Path) -> Settings:
    """The section `data` that ends texts where sentence-transformers does; empty for any other model."""
    path = folder / "sentence_bert_config.json"
    most = _json(path, dict).get("max_seq_length") if path.is_file() else None
    if isinstance(most, int) and most > 0:
        return {"max_tokens": most}
    return {}


def _json(path: Path, kind: type[Any]) -> Any:
    """Content of a small JSON file. Raises DataError if it is damaged, or of another kind."""
    value = read_json(path)
    if not isinstance(value, kind) or (
        kind is list and not all(isinstance(one, dict) for one in value)
    ):
        raise DataError(f"{path} is no {kind.__name__}; copy it again")
    return value
