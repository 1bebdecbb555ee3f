"""Models of Hugging Face's hub, fetched into its cache: safetensors and settings, no pickle and no code.

A model is a folder of transformers, whose settings are `config.json`, or a run of ours, with `config.yaml`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from seqkit.errors import DataError, UsageError, described, one_line, shortened
from seqkit.files import MAX_JSON_BYTES
from seqkit.pretrained.config_file import NAME, own_file, read_json

log = logging.getLogger("seqkit")

HUB = "hf:"
"""Beginning of the name of a model on the hub: `hf:OWNER/NAME@REVISION`."""

ONE, INDEX, RUN = "model.safetensors", "model.safetensors.index.json", "config.yaml"
SHARD = r"model-[0-9]+-of-[0-9]+\.safetensors"
SETTINGS = (
    NAME, "generation_config.json", "preprocessor_config.json", "processor_config.json", "special_tokens_map.json",
    "tokenizer_config.json", "tokenizer.json", "modules.json", "sentence_bert_config.json", "1_Pooling/config.json",
)  # fmt: skip
"""Files beside the weights that are fetched, where a model has them."""

OF_RUN = (RUN, "state.json", "summary.json", f"checkpoints/{ONE}")
"""Files of a published run; it may have the settings of the model that it began with, below `pretrained/`."""

COMMIT = "[0-9a-f]{40}"
SECONDS = 20
"""Seconds after which a hub that does not answer counts as unreachable."""


def fetched(source: str, *, offline: bool | None = None) -> Path:
    """Folder on this machine with the files of a model of the hub, which are fetched where they are not there yet.

    source: `hf:NAME`, `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION`, where a revision is a branch, a tag or a commit.
    offline: True: from the cache alone; None: as `HF_HUB_OFFLINE` says. A hub that cannot be reached is a warning where
    the cache has the model. A line says at which commit a branch or a tag is.
    Raises UsageError for a name that is not there, DataError where the model cannot be fetched or is not complete.
    """
    repo, revision = parsed(source)
    hub = library()
    offline = hub.constants.HF_HUB_OFFLINE if offline is None else offline
    is_commit = re.fullmatch(COMMIT, revision) is not None
    cached = _cached(repo, revision)
    if offline and cached is None:
        raise DataError(
            f"{source}: HF_HUB_OFFLINE is set, or it is not to be fetched, and the cache {hub.constants.HF_HUB_CACHE} "
            "does not have all of it; fetch it once with a network, or give a folder that holds it"
        )
    if cached is not None and (offline or is_commit):  # a commit never changes
        return cached
    try:
        with answered(source):
            info = hub.HfApi().model_info(repo, revision=revision, timeout=SECONDS)
    except DataError as error:
        if cached is None or not is_failure_of_hub(error.__cause__):
            raise
        log.warning("%s; the commit %s of the cache is used", error, cached.name)
        return cached
    if not re.fullmatch(COMMIT, str(info.sha)):
        raise DataError(f"{source}: the hub names the commit {one_line(shortened(info.sha, 50))!r}; check HF_ENDPOINT")
    names = _names(source, [each.rfilename for each in info.siblings or ()])
    # one by one, so that who has weights has all; `snapshot_download` also takes names of files from a listing unseen
    with answered(source), _plain_names(hub):
        for name in names:
            hub.hf_hub_download(repo, name, revision=info.sha)
        with suppress(Exception):  # the library writes at which commit a branch is, for use offline
            hub.hf_hub_download(repo, names[0], revision=revision)
    if not is_commit:
        log.warning("%s is commit %s", source, info.sha)
    if (folder := _cached(repo, info.sha)) is None:
        raise DataError(f"{source}: {INDEX} lists files that the model does not have; tell its owner")
    return folder


def _names(source: str, files: Collection[str]) -> list[str]:
    """Files to fetch, the weights last. Raises DataError for a model that is not complete, or has pickles alone."""
    if NAME not in files and RUN in files:
        if missing := [name for name in OF_RUN if name not in files]:
            raise DataError(f"{source} is a run without {missing[0]}; export it again (seqkit export --to safetensors)")
        return [*(name for each in SETTINGS if (name := f"pretrained/{each}") in files), *OF_RUN]
    if NAME not in files:
        raise DataError(f"{source} has no {NAME} of transformers, and no {RUN} of a run; give another model")
    shards = [INDEX, *(name for name in sorted(files) if re.fullmatch(SHARD, name))] if INDEX in files else []
    weights = [ONE] if ONE in files else shards
    if not weights:
        raise DataError(
            f"{source} has no {ONE}, and no other weights are read: unpickling them runs code. If you trust it, save "
            "it again with transformers (AutoModel.from_pretrained, save_pretrained) and give the folder"
        )
    return [*(name for name in SETTINGS if name in files), *weights]


def _cached(repo: str, revision: str) -> Path | None:
    """The folder of a model in the cache; None: it is not there, or not all of its weights."""
    hub = library()
    places = (hub.try_to_load_from_cache(repo, name, revision=revision) for name in (NAME, RUN))
    folder = next((Path(place).parent for place in places if isinstance(place, str)), None)
    if folder is None:
        return None
    for path in (path for path in folder.rglob("*") if not path.is_dir()):
        own_file(path)
    try:
        names = files_of_weights(folder) if (folder / NAME).exists() else OF_RUN
    except DataError:
        return None
    return folder if all((folder / name).exists() for name in names) else None


def files_of_weights(folder: Path) -> dict[str, set[str] | None]:
    """Names of the files of weights, with those of the tensors in each that an index lists; None: there is no index."""
    index = folder / INDEX
    if (folder / ONE).exists():
        if index.is_file():
            raise DataError(f"{folder} has {ONE} and {INDEX}, which may disagree; remove one of them")
        return {ONE: None}
    if not index.is_file():
        raise DataError(
            f"{folder} has no {ONE}; only safetensors are read, since unpickling other files runs their code: "
            "save it again with save_pretrained"
        )
    shards: dict[str, set[str] | None] = {}
    try:
        for name, file in read_json(index, MAX_JSON_BYTES)["weight_map"].items():
            if Path(file).name != file or not file.endswith(".safetensors"):
                raise ValueError(f"{file!r} is no file of this folder")
            found = shards.setdefault(file, set())
            assert found is not None
            found.add(name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{index} is damaged ({one_line(error)}); copy it again") from error
    return shards


@contextmanager
def _plain_names(hub: Any) -> Iterator[None]:
    """Refuse answers of a hub whose ETag or commit is no plain name: the library makes paths of them, unseen."""

    def check(response: Any) -> None:
        for name in ("etag", "x-linked-etag", "x-repo-commit"):
            if not re.fullmatch(r'(W/)?"?[A-Za-z0-9_-]*"?', response.headers.get(name, "")):
                raise DataError(f"the hub gives a file a damaged {name}; check HF_ENDPOINT")

    client = hub.get_session()
    before = client.event_hooks
    client.event_hooks = {**before, "response": [*before["response"], check]}
    try:
        yield
    finally:
        client.event_hooks = before


def pinned(source: str) -> str:
    """A name of the hub with the commit that it is at, fetched; any other source as it is. Raises as `fetched`."""
    if not source.startswith(HUB):
        return source
    repo, revision = parsed(source)
    return source if re.fullmatch(COMMIT, revision) else f"{HUB}{repo}@{fetched(source).name}"


def parsed(source: str) -> tuple[str, str]:
    """Name and revision of a model of the hub. Raises UsageError for any other text."""
    part = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
    found = re.fullmatch(rf"{HUB}({part}(?:/{part})?)(?:@({part}(?:/{part})*))?", source)
    if found is None or ".." in source or "--" in found[1]:
        raise UsageError(
            f"{one_line(shortened(source))} is no name of a model on the hub; give {HUB}OWNER/NAME[@REVISION]"
        )
    return found[1], found[2] or "main"


def library() -> Any:
    """The package huggingface_hub. Raises UsageError where it is missing."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import huggingface_hub.constants
        import huggingface_hub.errors
    except ImportError as error:
        raise UsageError(f"{HUB} needs the package huggingface_hub; pip install 'seqkit[pretrained]'") from error
    return huggingface_hub


@contextmanager
def answered(source: str) -> Iterator[None]:
    """Turn what the library raises into a UsageError or DataError of one line. source: name of the model."""
    errors = library().errors
    try:
        yield
    except (DataError, UsageError):
        raise
    except Exception as error:  # whatever its HTTP client raises
        log_in = "log in with `hf auth login`, or set HF_TOKEN"
        causes = [error.__cause__, error]
        if any(isinstance(each, errors.GatedRepoError) for each in causes):
            raise DataError(f"{source} is gated: accept its terms on its page of the hub, and {log_in}") from error
        if any(isinstance(each, errors.RepositoryNotFoundError) for each in causes):
            raise UsageError(f"{source} is not on the hub, or is private; check the name, or {log_in}") from error
        if any(isinstance(each, errors.RevisionNotFoundError) for each in causes):
            raise UsageError(f"{source} has no such revision; give a branch, a tag or a commit of it") from error
        status = getattr(getattr(error, "response", None), "status_code", None)
        advice = log_in if status in (401, 403) else "try again"
        raise DataError(f"{source}: no answer of the hub ({one_line(described(error))}); {advice}") from error


def is_failure_of_hub(error: BaseException | None) -> bool:
    """Whether a hub was not reached, or failed itself, so that what is in the cache may do."""
    response = getattr(error, "response", None)
    return response is None or response.status_code >= 500
