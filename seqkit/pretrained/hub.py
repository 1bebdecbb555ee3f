"""Models of the Hugging Face hub, fetched into its cache: only safetensors and settings, no pickle and no code.

A model is a folder of transformers, with `config.json`, or a published run of seqkit, with `config.yaml`.
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
"""Prefix of the name of a model on the hub: `hf:OWNER/NAME@REVISION`."""

ONE = "model.safetensors"
INDEX = "model.safetensors.index.json"
RUN = "config.yaml"
SHARD = r"model-[0-9]+-of-[0-9]+\.safetensors"
SENTENCES = (
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
)
"""Files of sentence-transformers, which say how texts become vectors."""
SETTINGS = (
    NAME,
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "tokenizer.json",
    *SENTENCES,
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
)
"""Files that are fetched beside the weights, if a model has them."""

MAY_HAVE = ["classical.skops", *(f"pretrained/{name}" for name in SETTINGS)]
OF_RUN = (RUN, "state.json", "summary.json", f"checkpoints/{ONE}")
"""Files of a published run. It may also have the classical method that joins its network, and, below `pretrained/`, the
settings of the model that it began with."""

COMMIT = "[0-9a-f]{40}"
SECONDS = 20
"""Seconds without an answer after which the hub counts as unreachable."""


def fetched(source: str, *, offline: bool | None = None) -> Path:
    """Local folder with the files of a model on the hub; files that the cache does not have are fetched.

    source: `hf:NAME`, `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION`, where a revision is a branch, a tag or a commit.
    offline: True: use the cache only; None: as `HF_HUB_OFFLINE` says. If the hub cannot be reached and the cache has
    the model, a warning is logged and the cache is used. The commit of a branch or a tag is logged.
    Raises UsageError for a name that the hub does not have, DataError if the model cannot be fetched or is incomplete.
    """
    repo, revision = parsed(source)
    hub = library()
    offline = hub.constants.HF_HUB_OFFLINE if offline is None else offline
    is_commit = re.fullmatch(COMMIT, revision) is not None
    cached = _cached(repo, revision)
    if offline and cached is None:
        raise DataError(
            f"{source} is not fetched offline (HF_HUB_OFFLINE), and the cache {hub.constants.HF_HUB_CACHE} "
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
        raise DataError(
            f"{source}: the hub names the commit {one_line(shortened(info.sha, 50))!r}; check HF_ENDPOINT"
        )
    names = _names(source, [each.rfilename for each in info.siblings or ()])
    # whole names of the commit above as patterns: the library would also use unchecked names of files and commits
    with answered(source), _plain_names(hub):
        hub.snapshot_download(repo, revision=info.sha, allow_patterns=names)
        with suppress(Exception):  # the library saves the commit of a branch, for use offline
            hub.hf_hub_download(repo, names[0], revision=revision)
    if not is_commit:
        log.warning("%s is commit %s", source, info.sha)
    if (folder := _cached(repo, info.sha)) is None:
        raise DataError(
            f"{source}: {INDEX} lists files that the model does not have; tell its owner"
        )
    return folder


def _names(source: str, files: Collection[str]) -> list[str]:
    """Files to fetch. Raises DataError for a model that is incomplete or has no safetensors."""
    if NAME not in files and RUN in files:
        if missing := [name for name in OF_RUN if name not in files]:
            raise DataError(
                f"{source} is a run without {missing[0]}; export it again (seqkit export RUN --to safetensors)"
            )
        return [*OF_RUN, *(name for name in files if name in MAY_HAVE)]
    if NAME not in files:
        raise DataError(
            f"{source} has no {NAME} of transformers, and no {RUN} of a run; give another model"
        )
    settings = [name for name in files if name in SETTINGS]
    if ONE in files:
        return [*settings, ONE]
    if INDEX in files:
        return [*settings, INDEX, *(name for name in files if re.fullmatch(SHARD, name))]
    raise DataError(
        f"{source} has no {ONE}, and no other weights are read: unpickling them runs code. If you trust it, save "
        "it again with transformers (AutoModel.from_pretrained, save_pretrained) and give the folder"
    )


def _cached(repo: str, revision: str) -> Path | None:
    """The folder of a model in the cache; None if the model or a part of its weights is missing."""
    hub = library()
    for name in (NAME, RUN):
        place = hub.try_to_load_from_cache(repo, name, revision=revision)
        if isinstance(place, str):
            break
    else:
        return None
    folder = Path(place).parent
    for path in folder.rglob("*"):
        if not path.is_dir():
            own_file(path)
    try:
        names = files_of_weights(folder) if (folder / NAME).exists() else OF_RUN
    except DataError:
        return None
    if all((folder / name).exists() for name in names):
        return folder
    return None


def files_of_weights(folder: Path) -> dict[str, set[str] | None]:
    """Files of weights, each with the names of the tensors that an index lists for it; None if there is no index."""
    index = folder / INDEX
    if (folder / ONE).exists():
        if index.is_file():
            raise DataError(
                f"{folder} has {ONE} and {INDEX}, which may disagree; remove one of them"
            )
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
    """Refuse answers of a hub whose ETag or commit is no plain name, since the library uses them in paths."""

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
    """Source with the commit that it is at; a model of the hub is fetched for that if need be. Raises as `fetched`."""
    if not source.startswith(HUB):
        return source
    repo, revision = parsed(source)
    if re.fullmatch(COMMIT, revision):
        return source
    return f"{HUB}{repo}@{fetched(source).name}"


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
        raise UsageError(
            f"{HUB} needs the package huggingface_hub; pip install 'seqkit[pretrained]'"
        ) from error
    return huggingface_hub


@contextmanager
def answered(source: str) -> Iterator[None]:
    """Turn errors of the library into a UsageError or DataError of one line. source: name of the model."""
    errors = library().errors
    try:
        yield
    except (DataError, UsageError):
        raise
    except Exception as error:  # its HTTP client raises errors of many types
        log_in = "log in with `hf auth login`, or set HF_TOKEN"
        gated = DataError(
            f"{source} is gated: accept its terms on its page on the hub, and {log_in}"
        )
        missing = UsageError(
            f"{source} is not on the hub, or is private; check the name, or {log_in}"
        )
        other = UsageError(f"{source} has no such revision; give a branch, a tag or a commit of it")
        for kind, known in (
            (errors.GatedRepoError, gated),
            (errors.RepositoryNotFoundError, missing),
            (errors.RevisionNotFoundError, other),
        ):
            if isinstance(error, kind) or isinstance(error.__cause__, kind):
                raise known from error
        status = getattr(getattr(error, "response", None), "status_code", None)
        advice = log_in if status in (401, 403) else "try again"
        raise DataError(
            f"{source}: no answer from the hub ({one_line(described(error))}); {advice}"
        ) from error


def is_failure_of_hub(error: BaseException | None) -> bool:
    """Whether the hub was not reached, or failed itself (status 500 or more), so that the cache may be used."""
    response = getattr(error, "response", None)
    return response is None or response.status_code >= 500
