"""Folders of foreign models: `config.json`, safetensors in one file or several, `tokenizer.json`."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from einops import EinopsError

from seqkit.errors import DataError, one_line
from seqkit.files import MAX_JSON_BYTES, read_mapping, read_regular, read_small, write_atomic
from seqkit.interfaces.finite import flaw
from seqkit.pretrained.config_file import (
    NAME,
    TOKENIZER,
    ConfigFile,
    own_file,
    read_json,
    tokenizer_file,
)
from seqkit.pretrained.families import family_of
from seqkit.pretrained.family import Family, Head, Settings, class_of
from seqkit.pretrained.generation_config import GENERATION, Generation, Published
from seqkit.pretrained.hub import HUB, INDEX, RUN, SENTENCES, fetched, files_of_weights
from seqkit.pretrained.rows import Entry, Row, Rows, write
from seqkit.tokenizers.from_file import FromFile

if TYPE_CHECKING:
    from torch import Tensor

    from seqkit.interfaces import Tokenizer

log = logging.getLogger("seqkit")


def located(source: str | Path) -> Path:
    """Folder of a model: the path itself, or for `hf:NAME` the local folder of its files, fetched if necessary.

    Raises DataError for a published run that names plug-ins: they are code, and no code of the hub is run.
    """
    if not str(source).startswith(HUB):
        return Path(source)
    folder = fetched(str(source))
    if not is_foreign(folder) and read_mapping(folder / RUN).get("plugins"):
        how = f"fetch it with `hf download {str(source).removeprefix(HUB)} --local-dir FOLDER`, read the code, and give"
        raise DataError(
            f"{source} names plug-ins, which are code, and no code of a hub is run; {how} FOLDER"
        )
    return folder


def is_foreign(folder: Path) -> bool:
    """Whether a folder holds another library's model: it has a `config.json`, and no `config.yaml` of a run."""
    return (folder / NAME).is_file() and not (folder / "config.yaml").is_file()


def own_task(folder: Path) -> str | None:
    """Task (`task_of`) of the head that `architectures` names; None if seqkit does not know a head of that name.

    Raises DataError for a model that seqkit cannot read.
    """
    config = ConfigFile(folder / NAME)
    heads = {**family_of(config, None).heads, **family_of(config, "Seq2Seq").heads}
    with _understood(config):
        name = class_of(config)
        for task, head in heads.items():
            if name.endswith(head.classes) and head.fits(config):
                return task
    return None


def class_with_head(folder: Path, task: str | None) -> str | None:
    """Name of the family's class with the head of a task; None if there is no such head or class."""
    config = ConfigFile(folder / NAME)
    head = family_of(config, task).heads.get(task or "")
    base = _stem(config)
    if head is not None and head.classes[0].startswith("For") and base:
        return base + head.classes[0]
    return None


def class_without_head(folder: Path) -> str | None:
    """Name of the family's class without a head; None if the names of its classes have no common stem."""
    base = _stem(ConfigFile(folder / NAME))
    if base:
        return f"{base}Model"
    return None


def _stem(config: ConfigFile) -> str:
    """Common beginning of the names of the family's classes, such as Bert; empty if they have none."""
    found = re.fullmatch(r"(\w+?)(For[A-Z]\w+|LMHeadModel|Model)", class_of(config))
    return found[1] if found else ""


def kept_files(place: Path) -> dict[str, bytes]:
    """Contents of a foreign model's settings files by name, with which a run is exported as such a model.

    place: the model's folder, or that of a run that began with it. For other runs the result is empty.
    """
    folder = place if is_foreign(place) else place / KEPT
    if not (folder / NAME).is_file():
        return {}
    found = {}
    for name in KEPT_FILES:
        if (folder / name).exists():
            # a file that is no JSON, or a link elsewhere, is not published
            read_json(folder / name, MAX_KEPT_BYTES)
            found[name] = read_small(folder / name, MAX_KEPT_BYTES)
    return found


def keep_files(place: Path, run: Path) -> None:
    """Copy the settings of the foreign model that a run begins with into its folder. place: as in `kept_files`."""
    for name, content in kept_files(place).items():
        (run / KEPT / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(run / KEPT / name, content)


KEPT = "pretrained"
"""Folder in a run for the settings of the model that it began with."""

MAX_KEPT_BYTES = 16 << 20
"""Largest size of such a file; some models list thousands of added tokens in `tokenizer_config.json`."""

KEPT_FILES = (
    NAME,
    "tokenizer_config.json",
    "special_tokens_map.json",
    GENERATION,
    "preprocessor_config.json",
    "processor_config.json",
    *SENTENCES,
)


def settings(folder: Path, task: str | None) -> Settings:
    """The sections `tokenizer` and `model` of a recipe for a foreign model. Reads no weights.

    task: task of the recipe's objective (`task_of`); if the model has a head for it, its `objective` is included.
    Raises DataError for a model, or a setting of it, that seqkit cannot read.
    """
    config = ConfigFile(folder / NAME)
    family = family_of(config, task)
    config.must_be(None, "quantization_config")
    with _understood(config):
        model = family.model(config)
        head = family.head(config, task)
        if head is not None:
            model["objective"] = head.objective(config)
        if task in WRITES:
            written_as = Generation(config)
            written_as.published()
            written_as.log_unread()
        if family.inputs is None:
            tokenizer = _texts(folder, config, model)
        else:
            tokenizer = family.inputs(folder, config)
    config.log_unread()
    return {"tokenizer": tokenizer, "model": model}


WRITES = ("NextToken", "Seq2Seq")
"""Tasks of models that write."""


def published(place: Path) -> Published:
    """How a foreign model was published to write, or the model that a run began with; empty for other runs.

    place: as in `kept_files`. Raises DataError for a value that means nothing.
    """
    folder = place if is_foreign(place) else place / KEPT
    if not (folder / NAME).is_file():
        return Published()
    return Generation(ConfigFile(folder / NAME)).published()


def _texts(folder: Path, config: ConfigFile, model: Settings) -> Settings:
    """The section `tokenizer` of a model of texts. The second table of its positions, if any, is of token types."""
    path = tokenizer_file(folder)
    _, *types = _position(model).get("sizes", [0])
    num_ids = config.get("vocab_size")
    if num_ids is not None:
        num_ids = config.size("vocab_size")
    return {"type": "FromFile", "path": str(path), "num_ids": num_ids, "token_types": sum(types)}


def check_vocabulary(tokenizer: Tokenizer | None) -> None:
    """Log a warning where a tenth of a model's ids or more are no token's: the file may be another model's.

    Raises DataError for a file that is not read, or has more ids than the model.
    """
    if not isinstance(tokenizer, FromFile) or tokenizer.num_ids is None:
        return
    known = tokenizer.num_known_ids
    if known <= 0.9 * tokenizer.num_ids:
        log.warning(
            "%s has %s ids, and the model %s; check that it is this model's tokenizer",
            tokenizer.path,
            f"{known:,}",
            f"{tokenizer.num_ids:,}",
        )


def _position(model: Settings) -> Settings:
    """Settings of the positions; empty where there are none."""
    position = model.get("position")
    return position if isinstance(position, dict) else {}


def objective_state(folder: Path, task: str | None) -> Settings:
    """State of the objective of a task, such as names of classes; empty if the model has no head for it."""
    config = ConfigFile(folder / NAME)
    with _understood(config):
        head = family_of(config, task).head(config, task)
        return {} if head is None else head.state(config)


def longest(found: Settings) -> Settings:
    """The section `data` that cuts texts to the length of a learned table of positions; empty if there is none."""
    position = _position(found["model"])
    if found["tokenizer"]["type"] == "FromFile" and "sizes" in position:
        return {"max_tokens": position["sizes"][0] - position.get("first", 0)}
    return {}


@contextmanager
def _understood(config: ConfigFile) -> Iterator[None]:
    """Turn errors from values of a wrong type into a DataError."""
    try:
        yield
    except DataError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, ZeroDivisionError) as error:
        raise DataError(
            f"{config.path} has values that are not understood ({one_line(error)})"
        ) from error


def weights(folder: Path, task: str | None) -> tuple[Mapping[str, Tensor], list[str], str]:
    """Weights of a foreign folder in float32 by our names, the foreign names that were left out, and a SHA-256 of all.

    task: as in `settings`; its head is read if the file has one. Weights are read one by one, on access, so a model
    that copies each has them in memory once.
    Raises DataError if a file is missing or damaged, or a weight is unknown or missing. Reading a weight raises it,
    too, if the weight has another size than the table says, is NaN, or is of no dtype of `DTYPES`.
    """
    config = ConfigFile(folder / NAME)
    family = family_of(config, task)
    theirs = SavedTensors(folder, family)
    with _understood(config):
        head = family.head(config, task)
        of_head = [
            replace(row, theirs=tuple(name.removeprefix(family.prefix) for name in row.theirs))
            for row in _head_table(head, config)
        ]
        table = family.table(config)
    needed = {name for row in of_head if not row.is_alias for name in row.theirs}
    missing = {name for name in needed - theirs.keys() if name.endswith(".weight")}
    if missing:
        if head is not None and head.classes and class_of(config).endswith(head.classes):
            raise DataError(
                f"{folder} has no weight {min(missing)}, which seqkit's {class_of(config)} needs; if transformers left "
                "it out as tied, untie it there (tie_word_embeddings) and save it again, else copy the folder again"
            )
        of_head = []  # the file has the model without its head
    table = [*table, *of_head]
    if task == "Masked" and (index := _mask_id(folder, family)) is not None:
        ids = next(row for row in table if row.ours == "embedder.content.weight")
        table.append(replace(ids, ours=MASK_TOKEN, whole=Entry(index)))
    try:
        rows = [row for row in table if row.is_in(theirs.keys())]
    except KeyError as error:
        raise DataError(
            f"{folder} has no weight {error.args[0]}, which a {config.model_type} that seqkit reads has; if a "
            f"{class_of(config) or 'model of its class'} has it, too, copy the folder again"
        ) from None
    ours = ForeignWeights(theirs, {row.ours: row for row in reversed(rows) if not row.is_alias})
    for row in rows:
        if row.is_alias and not theirs[row.theirs[0]].equal(ours[row.ours]):
            raise DataError(
                f"{folder}: {row.theirs[0]} is tied to another weight, and differs from it"
            )
    others = sorted(theirs.keys() - {name for row in rows for name in row.theirs})
    if unknown := [name for name in others if not name.startswith(family.left_out)]:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise DataError(
            f"{folder} has a weight {unknown[0]}{more} that a {config.model_type} is not known to have"
        )
    return ours, others, theirs.sha256


def _head_table(head: Head | None, config: ConfigFile) -> Rows:
    """Names of the weights of a head; none where there is no head."""
    return [] if head is None else head.table(config)


class ReadOnAccess(Mapping[str, "Tensor"]):
    """Tensors by name, each of which a subclass reads from its place in a file when it is asked for."""

    _places: dict[str, Any]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places


class ForeignWeights(ReadOnAccess):
    """Weights by our names. Raises as `weights`."""

    def __init__(self, theirs: SavedTensors, rows: dict[str, Row]):
        self._theirs = theirs
        self._places = rows

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self._places[name].read(self._theirs)
        except DataError:
            raise
        except (RuntimeError, ValueError, IndexError, EinopsError) as error:
            where = f"{self._theirs.folder}: the weights for {name}"
            raise DataError(
                f"{where} are of other sizes than {NAME} says ({one_line(error)})"
            ) from error


class SavedTensors(ReadOnAccess):
    """Tensors of a folder's safetensors by plain names (`_plain`), in float32, memory-mapped.

    folder: has one file, or several that an index lists. family: has the prefix, the old names and the stand-ins; None:
    there are none.
    sha256: digest of all files. Raises DataError for files that are missing, damaged or not regular, and on access for
    tensors that hold NaN or are of no dtype of `DTYPES`.
    """

    def __init__(self, folder: Path, family: Family | None = None):
        self.folder = folder
        digest = hashlib.sha256()
        self._places = {}
        for file, listed in files_of_weights(folder).items():
            held = _opened(folder / file, digest)
            names = {*held.keys()}
            if listed is not None and names != listed:
                unlike = min(names ^ listed)
                raise DataError(
                    f"{folder / INDEX} and {file} disagree about the weight {unlike}; copy it again"
                )
            for name in names:
                if not name.endswith(BUFFERS):
                    self._places[_plain(name, family)] = (held, name)
        stand_ins = family.stand_ins if family else {}
        for name, other in stand_ins.items():
            if other in self._places:
                self._places.setdefault(name, self._places[other])
        self.sha256 = digest.hexdigest()

    def __getitem__(self, name: str) -> Tensor:
        held, key = self._places[name]
        x: Tensor = held.get_tensor(key)
        wrong = str(x.dtype).removeprefix("torch.")
        if wrong in DTYPES:
            x = x.float()
            wrong = flaw(x)
        if wrong:
            raise DataError(
                f"{self.folder}: the weight {key} holds {wrong}; no model is made of it"
            )
        return x


def written(
    config: ConfigFile, ours: Mapping[str, Tensor], task: str | None
) -> tuple[dict[str, Tensor], list[str]]:
    """Weights by their names from weights by ours, in the dtype that `config.json` names if that loses nothing.

    ours: tied weights are in it once. task: as in `settings`; its head is written if the family has one. Also returns
    our names that were left out, of a head that the family does not have.
    Raises DataError for any other weight that the family has no place for, or that is missing.
    """
    family = family_of(config, task)
    with _understood(config):
        head = family.head(config, task)
        table = family.table(config)
        of_head = _head_table(head, config)
    if any(row.ours not in ours and not row.may_miss for row in of_head):
        head = None
        of_head = []
    if MASK_TOKEN in ours and (row := _mask_id(config.path.parent, family)) is not None:
        ours = {**ours, "embedder.content.weight": ours["embedder.content.weight"].clone()}
        ours["embedder.content.weight"][row] = ours.pop(MASK_TOKEN)
    if lacking := family.lacks(config):
        raise DataError(f"a {class_of(config)} has {lacking}, which the run does not hold")
    try:
        found, names = write([*table, *of_head], ours)
    except KeyError as error:
        raise DataError(
            f"the model has no weight {error.args[0]}, which a {config.model_type} has"
        ) from None
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
    """A tensor in the dtype that the model was saved in, if that represents all its values."""
    import torch

    kind = getattr(torch, str(config.get("dtype") or config.get("torch_dtype")), None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        return x
    narrow = x.to(kind)
    return narrow if narrow.to(x.dtype).equal(x) else x


MASK_TOKEN = "embedder.mask_token"  # noqa: S105  the name of a weight


def _mask_id(folder: Path, family: Family) -> int | None:
    """Id of the mask token in the tokenizer's file; None if there is none, or if inputs are not texts."""
    if family.inputs is not None:
        return None
    for token in read_json(folder / TOKENIZER, MAX_JSON_BYTES).get("added_tokens") or []:
        if token["content"] in ("[MASK]", "<mask>"):
            return int(token["id"])
    return None


DTYPES = ("float16", "bfloat16", "float32", "float64")
"""Types of weights that are read. Narrower ones are scaled, and how is said elsewhere."""


BUFFERS = (
    ".attn.bias",
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
    "rotary_emb.inv_freq",
    "embeddings.position_ids",
)
"""Suffixes of the names of constants that old files hold."""


OLD_NAMES = {
    ".LayerNorm.gamma": ".LayerNorm.weight",
    ".LayerNorm.beta": ".LayerNorm.bias",
    "pos_conv_embed.conv.weight_g": "pos_conv_embed.conv.parametrizations.weight.original0",
    "pos_conv_embed.conv.weight_v": "pos_conv_embed.conv.parametrizations.weight.original1",
}
"""Suffixes of names in old files: norms from TensorFlow, and convolutions with weight norm before torch 2.0."""


def _plain(name: str, family: Family | None) -> str:
    """A name as present files have it, without the prefix of a model with a head."""
    old_names = family.old_names if family else {}
    for old, new in {**OLD_NAMES, **old_names}.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name.removeprefix(family.prefix) if family else name


def _opened(path: Path, digest: Any) -> Any:
    """Open a file of safetensors, memory-mapped. digest: is updated with its content.

    Raises DataError for any other file, and for one of the hub's cache whose SHA-256 is not its name there.
    """
    from safetensors import SafetensorError, safe_open

    try:
        read_regular(own_file(path), 0)  # a FIFO or a device is not opened
        own = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(1 << 22):
                own.update(chunk)
                digest.update(chunk)
        blob = path.resolve()
        is_of_hub = path.is_symlink() and re.fullmatch("[0-9a-f]{64}", blob.name)
        if is_of_hub and blob.name != own.hexdigest():
            raise DataError(
                f"{path} is damaged: it is not what the hub says; delete {blob} and fetch it again"
            )
        return safe_open(path, "pt")
    except OSError as error:
        raise DataError(f"{path} is not readable ({error.strerror}); copy it again") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise DataError(f"{path} holds no weights ({one_line(error)}); copy it again") from error
