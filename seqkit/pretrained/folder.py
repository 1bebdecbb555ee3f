"""A foreign model's folder: `config.json`, safetensors in one file or several, `tokenizer.json`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqkit.errors import DataError, one_line
from seqkit.files import decoded, load_json, read_small
from seqkit.pretrained.config_file import NAME, ConfigFile
from seqkit.pretrained.families import family_of
from seqkit.pretrained.rows import taken

if TYPE_CHECKING:
    from torch import Tensor

ONE, INDEX, TOKENIZER = "model.safetensors", "model.safetensors.index.json", "tokenizer.json"
MAX_INDEX_BYTES = 64 << 20


def is_foreign(folder: Path) -> bool:
    """Whether a folder holds another library's model: it has a `config.json`, and is no run of ours."""
    return (folder / NAME).is_file() and not (folder / "config.yaml").is_file()


def settings(folder: Path, objective: str | None) -> dict[str, Any]:
    """Tokenizer and model of a foreign folder as a recipe writes them. Reads no weights.

    objective: name of the recipe's; a language model's head is described where it is NextToken, too.
    Raises DataError for a model that is not read, or a setting of it.
    """
    config = ConfigFile(folder / NAME)
    model = _model(config)
    config.check_all_read()
    if objective != "NextToken":
        model.pop("objective", None)
    if not (folder / TOKENIZER).is_file():
        raise DataError(f"{folder} has no {TOKENIZER}; save its fast tokenizer there (save_pretrained)")
    return {"tokenizer": {"type": "FromFile", "path": str(folder / TOKENIZER)}, "model": model}


def _model(config: ConfigFile) -> dict[str, Any]:
    """The section `model` of a recipe. Raises DataError for values of wrong types, too."""
    try:
        return family_of(config).model(config)
    except DataError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DataError(f"{config.path} has values that are not understood ({one_line(error)})") from error


def weights(folder: Path) -> tuple[dict[str, Tensor], list[str], str]:
    """Weights of a foreign folder under our names, in float32; names of theirs that were left out; a SHA-256 of all.

    Raises DataError where a file is missing or damaged, or a weight is unknown or missing.
    """
    config = ConfigFile(folder / NAME)
    family = family_of(config)
    depth = _model(config)["backbone"]["depth"]
    theirs, digest = _read(folder)
    theirs = {_plain(name, family.prefix): x.float() for name, x in theirs.items()}
    theirs = {name: x for name, x in theirs.items() if not name.endswith(BUFFERS)}
    left_out = [name for name in theirs if name.startswith(family.left_out)]
    for name in left_out:
        del theirs[name]
    try:
        ours = {f"embedder.{name}": x for name, x in family.embeddings(theirs, config).items()}
        head_dim = _head_dim(config)
        for i in range(depth):
            ours |= taken(family.layer, theirs, f"backbone.blocks.{i}.", family.layers.format(i), head_dim)
        ours |= taken(family.rest, theirs, "backbone.", "", head_dim)
    except KeyError as error:
        raise DataError(f"{folder} has no weight {error.args[0]}; copy it again") from None
    except (RuntimeError, IndexError) as error:
        raise DataError(f"{folder}: the weights are of other sizes than {NAME} says ({one_line(error)})") from error
    if family.head is not None:
        table = ours["embedder.content.weight"]
        own = theirs.pop(f"{family.head}.weight", None)
        ours["head.linear.weight"] = table if own is None else own
        ours["head.table.weight"] = table
    if theirs:
        more = f" and {len(theirs) - 1} more" if len(theirs) > 1 else ""
        raise DataError(f"{folder} has a weight {min(theirs)}{more} that a {config.model_type} is not known to have")
    return ours, sorted(left_out), digest


BUFFERS = (".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq", "embeddings.position_ids")
"""Ends of names of constants that old files hold."""


def _plain(name: str, prefix: str) -> str:
    """A name as files have it now: without the prefix of a model with a head, and norms with weight and bias."""
    for old, new in ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias")):
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name.removeprefix(prefix)


def _head_dim(config: ConfigFile) -> int:
    heads = config.get("num_attention_heads") or config.get("n_heads") or config.get("n_head") or 1
    dim = config.get("hidden_size") or config.get("dim") or config.get("n_embd") or heads
    return int(config.get("head_dim") or dim // heads)


def _read(folder: Path) -> tuple[dict[str, Tensor], str]:
    """All weights under their names, and the SHA-256 of their files. Only the files that the index lists are read."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    index = folder / INDEX
    shards: dict[str, set[str]] | None = None
    if (folder / ONE).is_file():
        if index.is_file():
            raise DataError(f"{folder} has {ONE} and {INDEX}, which may disagree; remove one of them")
        names = [ONE]
    elif index.is_file():
        shards = _shards(index)
        names = sorted(shards)
    else:
        raise DataError(
            f"{folder} has no {ONE}; only safetensors are read, since unpickling other files runs their code: "
            "save it again with save_pretrained"
        )
    found: dict[str, Tensor] = {}
    digest = hashlib.sha256()
    for name in names:
        try:
            content = (folder / name).read_bytes()
            digest.update(content)
            held = load(content)
        except OSError as error:
            raise DataError(f"{folder / name} is not readable ({error.strerror}); copy it again") from error
        except (SafetensorError, ValueError, KeyError) as error:
            raise DataError(f"{folder / name} holds no weights ({one_line(error)}); copy it again") from error
        if shards is not None and held.keys() != shards[name]:
            unlike = min(held.keys() ^ shards[name])
            raise DataError(f"{index} and {name} disagree about the weight {unlike}; copy the folder again")
        found |= held
    return found, digest.hexdigest()


def _shards(index: Path) -> dict[str, set[str]]:
    """Names of the weights in each file that an index lists."""
    try:
        listed = load_json(decoded(read_small(index, MAX_INDEX_BYTES)))["weight_map"]
        shards: dict[str, set[str]] = {}
        for name, file in listed.items():
            if Path(file).name != file or not file.endswith(".safetensors"):
                raise ValueError(f"{file!r} is no file of this folder")
            shards.setdefault(file, set()).add(name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{index} is damaged ({one_line(error)}); copy it again") from error
    return shards
