"""Files that sentence-transformers puts beside a model: how texts become one vector, and where they end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.errors import DataError
from seqkit.pretrained.config_file import NAME, read_json
from seqkit.pretrained.family import Settings
from seqkit.pretrained.folder import SavedTensors

if TYPE_CHECKING:
    from torch import Tensor

LIMITS = "sentence_bert_config.json"
ORDER = "Transformer( Pooling( Dense)?( Normalize)?)?"
POOLS = {
    "mean": "mean",
    "cls": "first",
    "max": "max",
    "lasttoken": "last",
    "weightedmean": "weighted_mean",
    "mean_sqrt_len": "mean_sqrt_len",
}
"""Poolings of ours by the names of sentence-transformers, without `_token` or `_tokens` behind."""
ACTIVATIONS = {"Identity": None, "Tanh": "Tanh", "ReLU": "ReLU", "GELU": "GELU", "SiLU": "SiLU"}
"""Activations of ours by the names of torch."""


def sentence_vectors(folder: Path) -> Settings:
    """How a model of sentence-transformers makes vectors, as settings of `Features`; empty for any other.

    Raises DataError for a module, a pooling or a change of texts that is not read.
    """
    places = _places(folder)
    if "Pooling" not in places:
        return {}
    _check_texts(folder)
    found: Settings = {"normalize": "Normalize" in places}
    pool = _pool(places["Pooling"] / NAME)
    if "Dense" not in places:
        return {**found, "pool": pool}
    path = places["Dense"] / NAME
    held = _json(path, dict)
    activation = str(held.get("activation_function", "Tanh")).rpartition(".")[2]
    if activation not in ACTIVATIONS or held.get("use_residual"):
        raise DataError(
            f"{path}: activation_function is {activation} and use_residual {held.get('use_residual')}, and what is "
            f"read is one of {', '.join(ACTIVATIONS)}, without a residual"
        )
    projection = {
        "type": "LinearProjection",
        "pool": pool,
        "bias": held.get("bias", True),
        "activation": ACTIVATIONS[activation],
    }
    return {**found, "projection": projection, "dim": held.get("out_features")}


def dense_weights(folder: Path) -> dict[str, Tensor]:
    """Weights of the layer behind the pooling by our names; empty where there is none."""
    place = _places(folder).get("Dense")
    if place is None:
        return {}
    return {f"head.projection.{name}": x for name, x in SavedTensors(place).items()}


def _places(folder: Path) -> dict[str, Path]:
    """Folders of the modules by kind. Raises DataError for other modules than are read, or in another order."""
    path = folder / "modules.json"
    if not path.is_file():
        return {}
    found = {}
    for one in _json(path, list):
        place = str(one.get("path", ""))
        kind = str(one.get("type")).rpartition(".")[2]
        # the model itself is read from the folder
        is_here = re.fullmatch("" if kind == "Transformer" else r"\w*", place)
        found[kind if is_here else f"{kind} in {place}"] = folder / place
    if not re.fullmatch(ORDER, " ".join(found)):
        known = "Transformer, Pooling, Dense and Normalize, in this order"
        raise DataError(f"{path}: the modules {', '.join(found)} are not read, but {known}")
    return found


def _pool(path: Path) -> str:
    """A pooling of ours."""
    held = _json(path, dict)
    prefix = "pooling_mode_"
    old = [key for key, value in held.items() if key.startswith(prefix) and value is True]
    chosen = held.get("pooling_mode", old or "mean")
    names = [chosen] if isinstance(chosen, str) else chosen
    pools = [POOLS.get(re.sub("_tokens?$", "", str(name).removeprefix(prefix))) for name in names]
    if len(pools) != 1 or pools[0] is None:
        raise DataError(f"{path}: the pooling {names} is not read, but one of {', '.join(POOLS)}")
    return pools[0]


def _check_texts(folder: Path) -> None:
    """Raise DataError for a model that changes texts."""
    lower = _maybe(folder / LIMITS, "do_lower_case")
    prompts = folder / "config_sentence_transformers.json"
    name = _maybe(prompts, "default_prompt_name")
    if lower:
        raise DataError(
            f"{folder / LIMITS}: do_lower_case is true, which is not read; set it to false, and give lower-case texts"
        )
    if name is not None:
        raise DataError(
            f"{prompts}: default_prompt_name is {name!r}, whose prompt is not put before texts; set it to null, and "
            "put the prompt there yourself"
        )


def longest_sentence(folder: Path) -> Settings:
    """The section `data` that ends texts where sentence-transformers does; empty for any other model."""
    if not _places(folder):
        return {}
    most = _maybe(folder / LIMITS, "max_seq_length")
    if most is None:
        most = _maybe(folder / "tokenizer_config.json", "model_max_length")
    if isinstance(most, int) and 0 < most < 1 << 20:
        return {"max_tokens": most}
    return {}


def _maybe(path: Path, name: str) -> Any:
    """Value of a key of a file; None where there is no such key or file."""
    return _json(path, dict).get(name) if path.is_file() else None


def _json(path: Path, kind: type[Any]) -> Any:
    """Content of a small JSON file. Raises DataError if it is damaged, or of another kind."""
    value = read_json(path)
    if not isinstance(value, kind) or (
        kind is list and not all(isinstance(one, dict) for one in value)
    ):
        raise DataError(f"{path} is no {kind.__name__}; copy it again")
    return value
