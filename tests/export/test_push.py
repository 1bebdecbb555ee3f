"""Folders that go to a hub on 127.0.0.1 as one commit, and folders that do not."""

import pytest
from huggingface_hub import constants
from stub_hub import MODEL, SHARDED, TOKEN, Repo

from seqkit.errors import DataError, UsageError
from seqkit.export.push import push
from seqkit.pretrained.hub import fetched

CARD = b"---\nlibrary_name: seqkit\n---\n# Tiny\n"
EXPORT = {**MODEL, "README.md": CARD}
NAME = "owner/tiny"

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # huggingface_hub, of its client


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def written(folder, files=EXPORT):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def files(hub, name=NAME):
    return {each: content for each, content in hub.repos[name].at("main")[1].items() if each != ".gitattributes"}


@pytest.mark.parametrize("private", [False, True])
def test_a_folder_becomes_one_commit_of_a_new_model(hub, token, tmp_path, private):
    address = push(written(tmp_path / "export"), NAME, private=private, message="First")
    repo = hub.repos[NAME]
    assert repo.private is private
    assert files(hub) == EXPORT
    assert len(repo.commits) == 2, "the one that made the model, and this one"
    assert address == f"{hub.url}/{NAME}/commit/{repo.revisions['main']}"


def test_what_was_pushed_is_fetched_again(hub, token, tmp_path):
    push(written(tmp_path / "export", EXPORT), NAME, private=True)
    folder = fetched(f"hf:{NAME}")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == MODEL


def test_folders_inside_keep_their_places(hub, token, tmp_path):
    run = {"config.yaml": b"a: 1\n", "summary.json": b"{}", "checkpoints/model.safetensors": MODEL["model.safetensors"]}
    push(written(tmp_path / "export", run), NAME, private=False)
    assert files(hub) == run


def test_weights_under_other_names_go_with_the_same_commit(hub, token, tmp_path):
    hub.repos[NAME] = repo = Repo({**SHARDED, "pytorch_model.bin": b"theirs"})
    push(written(tmp_path / "export"), NAME, private=False)
    assert files(hub) == {**EXPORT, "pytorch_model.bin": b"theirs"}
    assert len(repo.commits) == 2


def test_a_card_that_is_there_stays(hub, token, tmp_path):
    hub.repos[NAME] = Repo({"README.md": b"by hand"})
    push(written(tmp_path / "export"), NAME, private=False)
    assert files(hub) == {**EXPORT, "README.md": b"by hand"}


def test_a_public_model_takes_no_files_that_should_be_private(hub, token, tmp_path):
    hub.repos[NAME] = Repo({"a.txt": b""})
    with pytest.raises(UsageError, match="is public already"):
        push(written(tmp_path / "export"), NAME, private=True)
    assert files(hub) == {"a.txt": b""}


def test_what_no_export_writes_stays_here(hub, token, tmp_path):
    other = (
        "pytorch_model.bin", "a/last.ckpt", "token", "hf_token.txt", "credentials.json", ".env", ".git/config.txt",
        "model.py", "deploy.md", "notes/config.json",
    )  # fmt: skip
    own = {**EXPORT, **dict.fromkeys(("tokenizer.json", "special_tokens_map.json", "LICENSE"), b"{}")}
    push(written(tmp_path / "export", own | dict.fromkeys(other, b"secret")), NAME, private=False)
    assert files(hub) == own


def test_a_link_out_of_the_folder_is_refused(hub, token, tmp_path):
    folder = written(tmp_path / "export")
    (tmp_path / "secret.json").touch()
    (folder / "more.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(UsageError, match=r"more\.json is a link"):
        push(folder, NAME, private=False)
    assert hub.asked == []


def test_a_folder_without_weights_is_no_export(hub, token, tmp_path):
    with pytest.raises(UsageError, match="holds no safetensors"):
        push(written(tmp_path / "export", {"README.md": CARD}), NAME, private=False)
    with pytest.raises(UsageError, match="holds no safetensors"):
        push(tmp_path / "nowhere", NAME, private=False)
    assert hub.asked == []


@pytest.mark.parametrize("name", ["tiny", "owner/tiny@main", "hf:owner/tiny", "../tiny", "owner/tiny/more", ""])
def test_a_name_that_is_none_is_refused(hub, token, tmp_path, name):
    with pytest.raises(UsageError):
        push(written(tmp_path / "export"), name, private=False)
    assert hub.asked == []


def test_without_a_token_nothing_is_asked(hub, tmp_path):
    with pytest.raises(UsageError, match="set HF_TOKEN"):
        push(written(tmp_path / "export"), NAME, private=False)
    assert hub.asked == []


def fails_for(repo, path):
    return {"create": "POST /api/repos/create", "commit": f"POST /api/models/{repo}/commit/main",
            "card": "POST /api/validate-yaml", "list": f"GET /api/models/{repo}"}[path]  # fmt: skip


@pytest.mark.parametrize(
    ("where", "how", "said"),
    [
        ("list", lambda h: h.fail(401), "401"),
        ("list", lambda h: h.fail(500), "500"),
        ("create", lambda h: h.fail(403, message="no rights"), "403"),
        ("commit", lambda h: h.fail(403), "403"),
        ("commit", lambda h: h.fail(412), "412"),
        ("card", lambda h: h.answer(400, {"errors": [{"message": "bad license"}]}), "bad license"),
    ],
)
def test_what_the_hub_does_not_take_is_told_in_a_line(hub, token, tmp_path, where, how, said):
    hub.says[fails_for(NAME, where)] = how
    with pytest.raises(DataError) as failure:
        push(written(tmp_path / "export"), NAME, private=False)
    assert said in str(failure.value)
    assert "\n" not in str(failure.value)


def test_another_commit_in_between_is_not_overwritten(hub, token, tmp_path):
    hub.repos[NAME] = repo = Repo({"a.txt": b""})

    def late(handler):
        hub.says.clear()
        repo.commit({"a.txt": b"theirs"})
        handler.answer(200, {"warnings": [], "errors": []})

    hub.says["POST /api/validate-yaml"] = late
    with pytest.raises(DataError, match="412"):
        push(written(tmp_path / "export"), NAME, private=False)
    assert files(hub) == {"a.txt": b"theirs"}


def test_offline_nothing_is_uploaded(hub, token, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="OfflineModeIsEnabled"):
        push(written(tmp_path / "export"), NAME, private=False)
    assert hub.asked == []
