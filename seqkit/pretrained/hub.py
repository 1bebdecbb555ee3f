"""Models of Hugging Face's hub, fetched into its cache: safetensors and settings, each file checked by its digest.

A model is a folder of transformers, whose settings are `config.json`, or a run of ours, with `config.yaml`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from seqkit.errors import DataError, UsageError, described, one_line, shortened
from seqkit.files import MAX_JSON_BYTES, decoded, load_json, read_small
from seqkit.pretrained.config_file import MAX_BYTES, NAME
from seqkit.progress import ProgressBar

log = logging.getLogger("seqkit")

HUB = "hf:"
"""Beginning of the name of a model on the hub: `hf:OWNER/NAME@REVISION`."""

ONE, INDEX, ONE_OF_RUN = "model.safetensors", "model.safetensors.index.json", "checkpoints/model.safetensors"

SMALL = {
    NAME: MAX_BYTES, "generation_config.json": MAX_BYTES, "preprocessor_config.json": MAX_BYTES,
    "processor_config.json": MAX_BYTES, "special_tokens_map.json": MAX_BYTES, "added_tokens.json": MAX_BYTES,
    "tokenizer_config.json": 16 << 20, "tokenizer.json": MAX_JSON_BYTES,
}  # fmt: skip
"""Files beside the weights that are fetched, and the most bytes of each; a larger one is an error."""

RUN = "config.yaml"
OF_RUN = {
    RUN: MAX_BYTES, "state.json": MAX_JSON_BYTES, "summary.json": MAX_BYTES,
    **{f"pretrained/{name}": most for name, most in SMALL.items()},
}  # fmt: skip
"""The same of a published run."""

VOCABULARIES = {"vocab.json": 16 << 20, "vocab.txt": 16 << 20, "merges.txt": 16 << 20}
"""The same of files that say again what `tokenizer.json` says, in most models; a larger one is left out."""

COMMIT = "[0-9a-f]{40}"
SHARD = r"[A-Za-z0-9][A-Za-z0-9._-]*\.safetensors"
MAX_SHARDS = 1000
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".msgpack", ".h5")
"""Ends of the names of weights that are not read: pickles, and formats of other frameworks."""

SECONDS = 20
"""Seconds after which a hub that does not answer counts as unreachable."""


class Unreachable(DataError):
    """The hub gave no answer, or one of its own failure."""


@dataclass(frozen=True)
class Listed:
    """Size in bytes of a file on the hub, and its digest: 64 digits of SHA-256, or 40 of git's SHA-1 of a blob."""

    size: int
    digest: str

    def is_content_of(self, path: Path) -> bool:
        """Whether a file has this size, and this digest if it is one of the two."""
        if path.stat().st_size != self.size:
            return False
        kind = {64: "sha256", 40: "git"}.get(len(self.digest)) if re.fullmatch("[0-9a-f]+", self.digest) else None
        return kind is None or _digest(path, kind) == self.digest


@dataclass(frozen=True)
class Listing:
    """Files of a model on the hub by name, at one commit."""

    commit: str
    is_private: bool
    files: Mapping[str, Listed]


def fetched(source: str, *, offline: bool | None = None) -> Path:
    """Folder on this machine with the files of a model of the hub, which are fetched where they are not there yet.

    source: `hf:NAME`, `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION`, where a revision is a branch, a tag or a commit.
    offline: True: from the cache alone; None: as `HF_HUB_OFFLINE` says. A hub that cannot be reached is a warning where
    the cache has the model. A line says at which commit a branch or a tag is.
    The files are `config.json`, weights as safetensors, `tokenizer.json` and other settings, or those of a run: no
    pickle, and no code.
    Raises UsageError for a name that is not there, DataError where the model cannot be fetched, is not complete, or is
    damaged.
    """
    repo, revision = parsed(source)
    hub = library()
    if hub.constants.HF_HUB_OFFLINE if offline is None else offline:
        return _cached(source, "HF_HUB_OFFLINE is set" if offline is None else "it is not to be fetched")
    if re.fullmatch(COMMIT, revision):
        return _at_commit(source, hub.constants.ENDPOINT, hub.constants.HF_HUB_CACHE)
    folder, commit = _online(source)
    if commit is not None:
        # The library writes at which commit a branch is, for use offline, once it has a file of it; that is here.
        with suppress(Exception):
            hub.hf_hub_download(repo, NAME if (folder / NAME).is_file() else RUN, revision=revision)
        log.warning("%s is commit %s", source, commit)
    return folder


def _online(source: str) -> tuple[Path, str | None]:
    """The folder of a model, and the commit that the hub names; None: it cannot be reached, and this is the cache's."""
    repo, revision = parsed(source)
    try:
        found = listing(repo, revision, source)
    except Unreachable as error:
        folder = _cached(source, str(error).removeprefix(f"{source}: "))
        log.warning("%s; the commit %s of the cache is used", error, folder.name)
        return folder, None
    return _downloaded(source, repo, found), found.commit


@lru_cache(maxsize=16)
def _at_commit(source: str, _endpoint: str, _cache: str) -> Path:
    """The folder of a commit, which never changes: a training asks for it several times."""
    return _online(source)[0]


def pinned(source: str) -> str:
    """A name of the hub with the commit that it is at, fetched; any other source as it is. Raises as `fetched`."""
    if not source.startswith(HUB):
        return source
    repo, revision = parsed(source)
    return source if re.fullmatch(COMMIT, revision) else f"{HUB}{repo}@{fetched(source).name}"


def origin(folder: Path) -> dict[str, Any]:
    """Where a folder of `fetched` came from: `source` with the commit, `commit`, and `files`, the SHA-256 of each.

    Empty for any other folder.
    """
    place = folder.absolute()
    name = re.fullmatch(r"models--(.+)", place.parent.parent.name)
    if name is None or place.parent.name != "snapshots":
        return {}
    repo = name[1].replace("--", "/")
    names = [*(each for each in (*SMALL, *VOCABULARIES, *OF_RUN) if (place / each).is_file()), *_weights(place)]
    files = {each: _digest(place / each, "sha256") for each in names}
    return {"source": f"{HUB}{repo}@{place.name}", "commit": place.name, "files": files}


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


def listing(repo: str, revision: str, source: str) -> Listing:
    """Files of a model at a revision, which is resolved to a commit. source: name for messages.

    Raises UsageError if there is no such model or revision, Unreachable or DataError where the hub does not say.
    """
    with answered(source):
        info = library().HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=SECONDS)
        files = {}
        for each in info.siblings or ():
            digest = each.blob_id if each.lfs is None else each.lfs.sha256
            if each.size is None or digest is None:
                raise DataError(f"{source}: the hub does not say how large its files are; check HF_ENDPOINT")
            files[each.rfilename] = Listed(each.size, digest)
    if not re.fullmatch(COMMIT, str(info.sha)):
        raise DataError(f"{source}: the hub names the commit {one_line(shortened(info.sha, 50))!r}; check HF_ENDPOINT")
    return Listing(info.sha, bool(info.private), files)


@contextmanager
def answered(source: str, failed: str = "") -> Iterator[None]:
    """Turn what the library raises into one line.

    source: name of the model. failed: what then did not come about; empty: the hub only was to say what it has.
    """
    try:
        yield
    except (DataError, UsageError):
        raise
    except Exception as error:  # whatever its HTTP client raises
        raise _failure(source, failed, error) from error


def _failure(source: str, failed: str, error: BaseException) -> Exception:
    errors = library().errors
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    last = next((each for each in causes if getattr(each, "response", None) is not None), causes[-1])
    status = getattr(getattr(last, "response", None), "status_code", None)
    repo = source.removeprefix(HUB).partition("@")[0]
    log_in = "log in with `hf auth login`, or set HF_TOKEN"
    if isinstance(last, errors.GatedRepoError):
        page = f"{library().constants.ENDPOINT}/{repo}"
        return DataError(f"{source} is gated: accept its terms at {page}, {log_in}, and try again")
    if isinstance(last, errors.RepositoryNotFoundError):
        return UsageError(f"{source} is not on the hub, or is private; check the name, or {log_in}")
    if isinstance(last, errors.RevisionNotFoundError):
        return UsageError(f"{source}: the model has no such revision; give a branch, a tag or a commit of it")
    if status == 401:
        return DataError(f"{source}: the hub does not know the token (401); {log_in}")
    if status == 403:
        return DataError(f"{source}: the hub does not let this token in (403); give one with access to {repo}")
    said = getattr(last, "server_message", None)
    why = described(last) if status is None else f"HTTP {status}{f': {shortened(said)}' if said else ''}"
    if failed:
        return DataError(f"{source}: {failed} ({one_line(why)}); try again")
    if status is not None and status < 500:
        return DataError(f"{source}: the hub refuses the request ({one_line(why)})")
    return Unreachable(f"{source}: the hub cannot be reached ({one_line(why)})")


def _downloaded(source: str, repo: str, found: Listing) -> Path:
    """The folder of a commit in the cache, complete and checked. Small files come first: who has weights has all."""
    files = found.files
    small = _small(source, files)
    bar = ProgressBar(f"fetching {repo}", None, in_bytes=True)
    counting = _counting(bar)

    def get(name: str) -> Path:
        with answered(source, f"{name} was not fetched"):
            path = Path(library().hf_hub_download(repo, name, revision=found.commit, tqdm_class=counting))
        _check(source, path, files[name])
        return path

    try:
        weights = _names_of_weights(files) or sorted(_shards(source, get(INDEX)))
        if missing := [name for name in weights if name not in files]:
            raise DataError(f"{source}: {INDEX} lists {missing[0]}, which the model does not have; tell its owner")
        bar.total = sum(files[name].size for name in (*small, *weights))
        paths = [get(name) for name in (*small, *weights)]
        return paths[0].parent
    finally:
        bar.stop()


def _names_of_weights(files: Collection[str]) -> list[str]:
    """The file of weights; empty: they are in several files, or there are none."""
    if RUN in files and NAME not in files:
        return [ONE_OF_RUN] if ONE_OF_RUN in files else []
    return [ONE] if ONE in files else []


def _small(source: str, files: Mapping[str, Listed]) -> list[str]:
    """Names of the files beside the weights. Raises DataError for a model that is not complete, or too large."""
    is_run = NAME not in files and RUN in files
    if NAME not in files and not is_run:
        raise DataError(f"{source} has no {NAME} of transformers, and no {RUN} of a run; give another model")
    if is_run and (missing := [name for name in ("state.json", "summary.json", ONE_OF_RUN) if name not in files]):
        raise DataError(f"{source} is a run without {missing[0]}; export it again (seqkit export --to safetensors)")
    if not is_run and ONE not in files and INDEX not in files:
        others = sorted(name for name in files if name.endswith(PICKLES) and "/" not in name)
        if not others:
            raise DataError(f"{source} has no {ONE}, and no other weights; give another model")
        raise DataError(
            f"{source} has no {ONE}, and {one_line(shortened(others[0], 60))} is refused: unpickling runs code. If you "
            "trust it, save it again with transformers (AutoModel.from_pretrained, save_pretrained) and give the folder"
        )
    needed = OF_RUN if is_run else SMALL if ONE in files else SMALL | {INDEX: MAX_JSON_BYTES}
    for name in needed.keys() & files.keys():
        if files[name].size > needed[name]:
            sizes = f"{files[name].size:,} bytes, and {needed[name]:,}"
            raise DataError(f"{source}: {name} has {sizes} are the most that is read; give another model")
    again: Mapping[str, int] = {} if is_run else VOCABULARIES
    left = [name for name, most in again.items() if name in files and files[name].size <= most]
    return [*(name for name in needed if name in files), *left]


def _counting(bar: ProgressBar) -> type:
    """A class of progress bars for the library, which add up to one of ours; it begins with the first byte."""
    from tqdm.auto import tqdm  # which huggingface_hub requires

    done = 0

    class Counting(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **settings: Any):
            settings.pop("name", None)
            super().__init__(*args, **settings | {"disable": True})

        def update(self, n: float | None = 1) -> None:
            nonlocal done
            done += int(n or 0)
            bar.start()
            bar.update(done)

        def update_transfer(self, n: float) -> None:
            """Do nothing: these are bytes of the network, which are counted beside those of the file."""

        def set_transfer_postfix_str(self, *_: Any, **__: Any) -> None:
            """Do nothing: this is the speed of the network."""

    return Counting


# ── the cache ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _cached(source: str, why: str) -> Path:
    """The folder of a model in the cache. why: it is not fetched. Raises DataError where it is missing or damaged."""
    repo, revision = parsed(source)
    hub = library()
    places = (hub.try_to_load_from_cache(repo, name, revision=revision) for name in (NAME, RUN))
    folder = next((Path(place).parent for place in places if isinstance(place, str)), None)
    weights = [] if folder is None else _weights(folder)
    if folder is None or not weights:
        has = "not all of it is" if folder is not None else "nothing of it is"
        raise DataError(
            f"{source}: {why}, and {has} in the cache {hub.constants.HF_HUB_CACHE}; fetch it once with a network, or "
            "give a folder that holds it"
        )
    for name in (*(each for each in (*SMALL, *OF_RUN) if (folder / each).exists()), *weights):
        _check(source, folder / name, None)
    return folder


def _weights(folder: Path) -> list[str]:
    """Names of the files of weights in a folder: one, or the index and all that it lists; empty: there are not all."""
    if one := _names_of_weights([name for name in (NAME, RUN, ONE, ONE_OF_RUN) if (folder / name).is_file()]):
        return one
    names = [INDEX, *sorted(_shards(str(folder), folder / INDEX))] if (folder / INDEX).is_file() else []
    return names if all((folder / name).is_file() for name in names) else []


def _shards(source: str, index: Path) -> set[str]:
    """Names of the files that an index lists. Raises DataError if it is damaged, or names a file elsewhere."""
    try:
        names = set(load_json(decoded(read_small(index, MAX_JSON_BYTES)))["weight_map"].values())
        if wrong := [name for name in names if not re.fullmatch(SHARD, name)]:
            raise ValueError(f"{one_line(shortened(wrong[0], 60))!r} is no name of a file of safetensors")
        if not 0 < len(names) <= MAX_SHARDS:
            raise ValueError(f"it lists {len(names):,} files, and 1 to {MAX_SHARDS:,} are read")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{source}: {INDEX} is not understood ({one_line(error)})") from error
    return names


def _check(source: str, path: Path, listed: Listed | None) -> None:
    """Raise DataError for a file that is not in the cache, or not what the hub says; that is removed, to come anew.

    listed: what the hub says; None: the name of the file that the cache links to is its digest.
    """
    cache = Path(library().constants.HF_HUB_CACHE).resolve()
    if not path.resolve().is_relative_to(cache):
        raise DataError(f"{source}: {path} is a link out of the cache; remove it")
    if listed is None:
        listed = Listed(path.stat().st_size, path.readlink().name if path.is_symlink() else "")
    if listed.is_content_of(path):
        return
    path.resolve().unlink(missing_ok=True)  # a link to nothing is fetched again
    raise DataError(f"{source}: {path.name} is damaged: it is not what the hub says; it was removed, fetch it again")


def _digest(path: Path, kind: str) -> str:
    """SHA-256 of a file, or SHA-1 of the blob that it is in git, as hexadecimal digits."""
    with path.open("rb") as file:
        if kind == "sha256":
            return hashlib.file_digest(file, "sha256").hexdigest()
        whole = hashlib.sha1(b"blob %d\0" % os.fstat(file.fileno()).st_size, usedforsecurity=False)
        while chunk := file.read(1 << 20):
            whole.update(chunk)
        return whole.hexdigest()
