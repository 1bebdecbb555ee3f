"""An exported folder as one commit on Hugging Face's hub."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from seqkit.errors import DataError, UsageError, one_line
from seqkit.files import read_regular
from seqkit.pretrained.hub import HUB, INDEX, ONE, PICKLES, SHARD, Listing, answered, library, listing, parsed
from seqkit.runs.folder import check_no_links

log = logging.getLogger("seqkit")

CARD = "README.md"
ENDS = (".safetensors", ".json", ".txt", ".md", ".yaml", ".jinja")
"""Ends of the names of files that are uploaded, beside LICENSE and NOTICE."""

PRIVATE = r"(?:^|[._-])(?:tokens?|secrets?|credentials?|passwords?|passwd|apikeys?|env|netrc|id_[a-z0-9]+)(?:[._-]|$)"
"""Words in the names of files that hold secrets; `tokenizer` is none of them."""

KNOWN = {"special_tokens_map.json", "added_tokens.json"}
"""Files of a tokenizer whose names look like one."""

SECRET = rb"\bhf_[A-Za-z0-9]{30,}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----|\bAKIA[A-Z0-9]{16}\b"
"""A token of the hub, a private key, a key of a cloud, in a text."""


def push(
    folder: Path, name: str, *, private: bool, message: str = "Export of seqkit", replace_card: bool = False
) -> str:
    """Upload the files of an exported folder to the model `name` of the hub as one commit; gives its address.

    name: OWNER/NAME; the model is made if it is missing. private: whether it is seen by its owner alone; one that
    everybody sees is not made private. replace_card: whether another README.md that is there is replaced.
    Weights that were there under other names are removed by the same commit, as readers would take them. At the end the
    files on the hub are compared with those of the folder.
    Raises UsageError for a folder, a name or a token that is not right, DataError where the hub does not take them.
    """
    repo, _ = parsed(f"{HUB}{name}")
    if name.count("/") != 1 or repo != name:
        raise UsageError(f"{one_line(name)} names no model of yours on the hub; give OWNER/NAME")
    files = _files(folder)
    hub = library()
    if hub.get_token() is None:
        raise UsageError(f"{name}: to upload takes a token; log in with `hf auth login`, or set HF_TOKEN")
    there = _there(name, private=private)
    known = {} if there is None else there.files
    if CARD in known and CARD in files and not replace_card and not known[CARD].is_content_of(files[CARD]):
        raise UsageError(
            f"{name} has another {CARD}, which somebody may have written by hand; delete it there, or take {CARD} out "
            f"of {folder}"
        )
    has_weights = any(_is_weights(each) for each in files)
    stale = [each for each in known if has_weights and _is_weights(each) and each not in files]
    with answered(f"{HUB}{name}", "the folder was not uploaded"):
        api = hub.HfApi()
        if there is None:
            api.create_repo(name, private=private)
        operations: list[Any] = [hub.CommitOperationAdd(each, path) for each, path in files.items()]
        operations += [hub.CommitOperationDelete(each) for each in stale]
        parent = None if there is None else there.commit
        commit = api.create_commit(name, operations, commit_message=message, parent_commit=parent)
    _check_arrived(name, commit.oid, files)
    return str(commit.commit_url)


def _files(folder: Path) -> dict[str, Path]:
    """Files of a folder by their names on the hub. Raises UsageError for one that is not to be uploaded."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; give one that `seqkit export` wrote")
    try:
        check_no_links(folder)
    except DataError as error:
        raise UsageError(str(error)) from error
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if not path.is_dir()}
    for name, path in files.items():
        if why := _refused(name, path):
            raise UsageError(f"{path} is not uploaded: {why}; take it out of the folder")
    if not any(name.endswith(".safetensors") for name in files):
        raise UsageError(f"{folder} holds no safetensors; give a folder that `seqkit export` wrote")
    return files


def _refused(name: str, path: Path) -> str:
    """Reason why a file is not uploaded; empty if it is."""
    last = path.name.lower()
    if last.endswith(PICKLES):
        return "it may be a pickle, which runs code when it is opened"
    if last not in KNOWN and re.search(PRIVATE, last):
        return "its name is that of a file with secrets"
    if any(part.startswith(".") for part in Path(name).parts):
        return "it is hidden"
    if not last.endswith(ENDS) and last not in ("license", "notice"):
        return f"it is none of {', '.join(ENDS)}"
    if not last.endswith(".safetensors") and re.search(SECRET, read_regular(path)):
        return "it holds a token or a private key"
    return ""


def _there(name: str, *, private: bool) -> Listing | None:
    """Files of a model on the hub; None: there is no such model. Raises UsageError for a public one, if private."""
    try:
        there = listing(name, "main", f"{HUB}{name}")
    except UsageError:
        return None
    if private and not there.is_private:
        raise UsageError(f"{name} is public already; make it private on the hub, or give another name")
    return there


def _is_weights(name: str) -> bool:
    return name in (ONE, INDEX) or (name.startswith("model-") and re.fullmatch(SHARD, name) is not None)


def _check_arrived(name: str, commit: str, files: dict[str, Path]) -> None:
    """Raise DataError if the hub has another file than the folder: a .gitignore there leaves out files in silence."""
    found = listing(name, commit, f"{HUB}{name}").files
    for each, path in files.items():
        if each not in found or not found[each].is_content_of(path):
            raise DataError(f"{name}: {each} did not arrive as it is here; look at .gitignore there, and push again")
