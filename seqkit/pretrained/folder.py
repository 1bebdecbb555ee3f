"""A foreign model's folder: `config.json`, safetensors in one file or several, `tokenizer.json`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from einops import EinopsError

from seqkit.errors import DataError, one_line
from seqkit.files import MAX_JSON_BYTES, decoded, load_json, read_mapping, read_small, write_atomic
from seqkit.pretrained.config_file import NAME, ConfigFile
from seqkit.pretrained.families import family_of
from seqkit.pretrained.family import Family, class_of
from seqkit.pretrained.hub import HUB, RUN, fetched
from seqkit.pretrained.rows import read, write

if TYPE_CHECKING:
    from torch import Tensor

ONE, INDEX, TOKENIZER = "model.safetensors", "model.safetensors.index.json", "tokenizer.json"
MAX_INDEX_BYTES = 64 << 20


def located(source: str | Path) -> Path:
    """Folder of a model: the path itself, or for `hf:NAME` where its files are on this machine, fetched if need be.

    Raises DataError for a published run that names plug-ins: these are code, and nothing of a hub is run.
    """
    if not str(source).startswith(HUB):
        return Path(source)
    folder = fetched(str(source))
    if not is_foreign(folder) and read_mapping(folder / RUN).get("plugins"):
        how = f"fetch it with `hf download {str(source).removeprefix(HUB)} --local-dir FOLDER`, read the code, and give"
        raise DataError(f"{source} names plug-ins, which are code, and none of a hub is run; {how} FOLDER")
    return folder


def is_foreign(folder: Path) -> bool:
    """Whether a folder holds another library's model: it has a `config.json`, and is no run of ours."""
    return (folder / NAME).is_file() and not (folder / "config.yaml").is_file()


def own_task(folder: Path) -> str | None:
    """Task of the head that the model was saved with (`task_of`; `architectures`); None: it has none that is known.

    Raises DataError for a model that is not read.
    """
    config = ConfigFile(folder / NAME)
    heads = {**family_of(config, None).heads, **family_of(config, "Seq2Seq").heads}
    with _understood(config):
        name = class_of(config)
        return next((own for own, head in heads.items() if name.endswith(head.classes) and head.fits(config)), None)


def class_with_head(folder: Path, task: str | None) -> str | None:
    """Name of the family's class that has the head of a task; None: the family has none, or is not named by classes."""
    config = ConfigFile(folder / NAME)
    head, base = family_of(config, task).heads.get(task or ""), _stem(config)
    return base + head.classes[0] if head is not None and head.classes[0].startswith("For") and base else None


def class_without_head(folder: Path) -> str | None:
    """Name of the family's class without any head; None: it is not named by classes."""
    base = _stem(ConfigFile(folder / NAME))
    return f"{base}Model" if base else None


def _stem(config: ConfigFile) -> str:
    """Beginning of the names of the family's classes, such as Bert; empty where they are not named so."""
    found = re.fullmatch(r"(\w+?)(For[A-Z]\w+|LMHeadModel|Model)", class_of(config))
    return found[1] if found else ""


def objective_with_head(folder: Path, task: str | None) -> dict[str, Any] | None:
    """The section `objective` whose head the family has for a task; None: it has none."""
    config = ConfigFile(folder / NAME)
    head = family_of(config, task).heads.get(task or "")
    with _understood(config):
        return None if head is None else {**head.objective(config)}


def kept_files(place: Path) -> dict[str, bytes]:
    """The settings of a foreign model by the names of their files, so that a run can be written back as such a model.

    place: its folder, or that of a run that began with it; empty for any other run.
    """
    folder = place if is_foreign(place) else place / KEPT
    if not (folder / NAME).is_file():
        return {}
    return {name: read_small(folder / name, MAX_KEPT_BYTES) for name in KEPT_FILES if (folder / name).is_file()}


def keep_files(place: Path, run: Path) -> None:
    """Copy the settings of the foreign model that a run begins with into its folder. place: as of `kept_files`."""
    for name, content in kept_files(place).items():
        (run / KEPT).mkdir(exist_ok=True)
        write_atomic(run / KEPT / name, content)


KEPT = "pretrained"
"""Folder in a run for the settings of the model that it began with."""

MAX_KEPT_BYTES = 16 << 20
"""Size of such a file: `tokenizer_config.json` lists thousands of added tokens in some models."""

KEPT_FILES = (
    NAME, "tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "preprocessor_config.json",
    "processor_config.json",
)  # fmt: skip


def settings(folder: Path, task: str | None) -> dict[str, Any]:
    """Tokenizer and model of a foreign folder as a recipe writes them. Reads no weights.

    task: that of the recipe's objective (`task_of`); the model's own head is described where it has one for it.
    Raises DataError for a model that is not read, or a setting of it.
    """
    config = ConfigFile(folder / NAME)
    family = family_of(config, task)
    with _understood(config):
        model, head = family.model(config), family.head(config, task)
        if head is not None:
            model["objective"] = head.objective(config)
        tokenizer = _texts(folder, config, model) if family.inputs is None else family.inputs(folder, config)
    config.check_all_read()
    return {"tokenizer": tokenizer, "model": model}


def _texts(folder: Path, config: ConfigFile, model: Mapping[str, Any]) -> dict[str, Any]:
    """The section `tokenizer` for the texts of a model, whose second table of positions is that of token types."""
    path = folder / TOKENIZER
    if not path.is_file():
        raise DataError(f"{folder} has no {TOKENIZER}; save its fast tokenizer there (save_pretrained)")
    position = model["position"] if isinstance(model["position"], Mapping) else {}
    _, *types = position.get("sizes", [0])
    num_ids = None if config.get("vocab_size") is None else config.size("vocab_size")
    return {"type": "FromFile", "path": str(path), "num_ids": num_ids, "token_types": sum(types)}


def objective_state(folder: Path, task: str | None) -> dict[str, Any]:
    """State of the objective of a task, such as names of classes; empty where the model has no head for it."""
    config = ConfigFile(folder / NAME)
    with _understood(config):
        head = family_of(config, task).head(config, task)
        return {} if head is None else head.state(config)


def longest(found: Mapping[str, Any]) -> dict[str, Any]:
    """The section `data` that ends texts where a table of learned positions does; how many end there is logged."""
    if found["tokenizer"]["type"] != "FromFile":
        return {}
    model = found["model"]
    position = model["position"] if isinstance(model["position"], Mapping) else {}
    return {"max_tokens": position["sizes"][0] - position.get("first", 0)} if "sizes" in position else {}


@contextmanager
def _understood(config: ConfigFile) -> Iterator[None]:
    """Turn an error of a value of a wrong type into a DataError."""
    try:
        yield
    except DataError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, ZeroDivisionError) as error:
        raise DataError(f"{config.path} has values that are not understood ({one_line(error)})") from error


def weights(folder: Path, task: str | None) -> tuple[dict[str, Tensor], list[str], str]:
    """Weights of a foreign folder under our names, in float32; names of theirs that were left out; a SHA-256 of all.

    task: as of `settings`; a head for it is read where the file has one.
    Raises DataError where a file is missing or damaged, or a weight is unknown or missing.
    """
    config = ConfigFile(folder / NAME)
    family = family_of(config, task)
    theirs, digest = _read(folder)
    theirs = {_plain(name, family.prefix): x.float() for name, x in theirs.items()}
    theirs = {name: x for name, x in theirs.items() if not name.endswith(BUFFERS)}
    with _understood(config):
        head = family.head(config, task)
        of_head = [] if head is None else head.table(config)
        of_head = [
            replace(row, theirs=tuple(name.removeprefix(family.prefix) for name in row.theirs)) for row in of_head
        ]
        table = family.table(config)
    needed = [name for row in of_head if not row.is_alias for name in row.theirs if name.endswith(".weight")]
    if missing := {*needed} - theirs.keys():
        if head is not None and head.classes and class_of(config).endswith(head.classes):
            raise DataError(f"{folder} has no weight {min(missing)}, and {NAME} says {class_of(config)}; copy it again")
        of_head = []  # a file of the model without its head
    try:
        ours, used = read([*table, *of_head], theirs)
        if task == "Masked" and (row := _mask_id(folder, family)) is not None:
            ours[MASK_TOKEN] = ours["embedder.content.weight"][row].clone()
    except KeyError as error:
        raise DataError(f"{folder} has no weight {error.args[0]}; copy it again") from None
    except (RuntimeError, ValueError, IndexError, EinopsError) as error:
        raise DataError(f"{folder}: the weights are of other sizes than {NAME} says ({one_line(error)})") from error
    others = sorted(theirs.keys() - used)
    if unknown := [name for name in others if not name.startswith(family.left_out)]:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise DataError(f"{folder} has a weight {unknown[0]}{more} that a {config.model_type} is not known to have")
    return ours, others, digest


def written(config: ConfigFile, ours: Mapping[str, Tensor], task: str | None) -> tuple[dict[str, Tensor], list[str]]:
    """Weights under their names from ours, in the type that `config.json` names where that loses nothing.

    ours: tied ones once. task: as of `settings`; its head is written where the family has one for it. Also gives
    the names of ours that were left out, of a head that they do not have.
    Raises DataError for any other weight that they have no place for, or that is missing.
    """
    family = family_of(config, task)
    with _understood(config):
        head, table = family.head(config, task), family.table(config)
        of_head = [] if head is None else head.table(config)
    if any(row.ours not in ours and not row.may_miss for row in of_head):
        head, of_head = None, []
    if MASK_TOKEN in ours and (row := _mask_id(config.path.parent, family)) is not None:
        ours = {**ours, "embedder.content.weight": ours["embedder.content.weight"].clone()}
        ours["embedder.content.weight"][row] = ours.pop(MASK_TOKEN)
    if lacking := family.lacks(config):
        raise DataError(f"a {class_of(config)} has {lacking}, which the run does not hold")
    try:
        found, names = write([*table, *of_head], ours)
    except KeyError as error:
        raise DataError(f"the model has no weight {error.args[0]}, which a {config.model_type} has") from None
    except (RuntimeError, ValueError, EinopsError) as error:
        raise DataError(f"the weights do not fit {NAME} ({one_line(error)})") from error
    others = sorted(ours.keys() - names)
    if unknown := [name for name in others if not name.startswith("head.") and name != MASK_TOKEN]:
        raise DataError(f"a {config.model_type} has no place for the weight {unknown[0]}")
    prefix = family.prefix if head is not None and head.has_prefix(config) else ""
    names_of_head = {name for row in of_head for name in row.theirs}
    found = {name if name in names_of_head else prefix + name: x for name, x in found.items()}
    return {name: _as_saved(x, config) for name, x in found.items()}, others


def _as_saved(x: Tensor, config: ConfigFile) -> Tensor:
    """A tensor in the type that the model was saved in, if all its values have one there."""
    import torch

    kind = getattr(torch, str(config.get("dtype") or config.get("torch_dtype")), None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        return x
    narrow = x.to(kind)
    return narrow if narrow.to(x.dtype).equal(x) else x


MASK_TOKEN = "embedder.mask_token"  # noqa: S105  a name of a weight


def _mask_id(folder: Path, family: Family) -> int | None:
    """Row of the table of ids that is the mask token, by the tokenizer; None: there is none, or inputs are no texts."""
    if family.inputs is not None:
        return None
    added = load_json(decoded(read_small(folder / TOKENIZER, MAX_JSON_BYTES))).get("added_tokens") or []
    return next((int(token["id"]) for token in added if token["content"] in ("[MASK]", "<mask>")), None)


BUFFERS = (
    ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq",
    "embeddings.position_ids",
)  # fmt: skip
"""Ends of names of constants that old files hold."""


OLD_NAMES = {
    ".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias",
    "pos_conv_embed.conv.weight_g": "pos_conv_embed.conv.parametrizations.weight.original0",
    "pos_conv_embed.conv.weight_v": "pos_conv_embed.conv.parametrizations.weight.original1",
}  # fmt: skip
"""Ends of names of old files: norms of TensorFlow's, and convolutions of normed weights before torch 2.0."""


def _plain(name: str, prefix: str) -> str:
    """A name as files have it now, without the prefix of a model with a head."""
    for old, new in OLD_NAMES.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name.removeprefix(prefix)


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
