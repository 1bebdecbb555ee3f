"""An exported folder as one commit on Hugging Face's hub."""

from __future__ import annotations

from pathlib import Path

from seqkit.errors import DataError, UsageError, one_line
from seqkit.pretrained.folder import KEPT, KEPT_FILES
from seqkit.pretrained.hub import HUB, INDEX, OF_RUN, ONE, SETTINGS, answered, library, parsed
from seqkit.runs.folder import check_no_links

CARD = "README.md"
FILES = (*SETTINGS, ONE, *OF_RUN, *(f"{KEPT}/{name}" for name in KEPT_FILES), CARD, "LICENSE", "NOTICE")
"""Files that an export writes, and what its owner may add; nothing else is uploaded."""


def push(folder: Path, name: str, *, private: bool, message: str = "Export of seqkit") -> str:
    """Upload an exported folder to the model `name` of the hub as one commit; gives its address.

    name: OWNER/NAME; the model is made if it is missing. private: whether it is seen by its owner alone; one that
    everybody sees is refused then. A README.md that is there stays. Weights that were there under other names are
    removed by the same commit, as readers would take them.
    Raises UsageError for a folder, a name or a token that is not right, DataError where the hub does not take them.
    """
    repo, _ = parsed(f"{HUB}{name}")
    if name.count("/") != 1 or repo != name:
        raise UsageError(f"{one_line(name)} names no model of yours on the hub; give OWNER/NAME")
    if not any((folder / each).is_file() for each in (ONE, *OF_RUN)):
        raise UsageError(f"{folder} holds no safetensors; give a folder that `seqkit export` wrote")
    try:
        check_no_links(folder)
    except DataError as error:
        raise UsageError(str(error)) from error
    hub, stale = library(), ["model-*.safetensors", INDEX] if (folder / ONE).is_file() else None
    if hub.get_token() is None:
        raise UsageError(f"{name}: to upload takes a token; log in with `hf auth login`, or set HF_TOKEN")
    with answered(f"{HUB}{name}"):
        api = hub.HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        there = api.model_info(name)
        if private and not there.private:
            raise UsageError(f"{name} is public already; make it private on the hub, or give another name")
        has_card = any(each.rfilename == CARD for each in there.siblings or ())
        commit = api.upload_folder(
            repo_id=name, folder_path=folder, allow_patterns=[*FILES], ignore_patterns=[CARD] if has_card else None,
            delete_patterns=stale, commit_message=message, parent_commit=there.sha,
        )  # fmt: skip
    return str(commit.commit_url)
